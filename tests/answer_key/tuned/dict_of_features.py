"""A tabular model whose batch is a dict of columns. a: each column is uploaded, b: all in one copy."""

import torch
from torch import nn

B, COLUMNS = 4096, 48


def build(form):
    model = nn.Sequential(nn.Linear(COLUMNS, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 2))
    model = model.cuda()
    columns = {f"c{number}": torch.randn(B) for number in range(COLUMNS)}
    packed = torch.stack(list(columns.values()))

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("batch"):
            if form == "a":
                features = torch.stack([column.to("cuda") for column in columns.values()], 1)
            else:
                features = packed.to("cuda").t()
        with torch.cuda.nvtx.range("model"):
            return model(features)

    return step
