"""Ranking with a wide network. a: ids of eight features go up one by one from pinned memory, b: in one copy (wins nothing)."""

import torch
from torch import nn

B, FEATURES, C, LAYERS = 8192, 8, 4096, 12
SAME = 1e-2


def build(form):
    torch.manual_seed(0)
    ids = torch.randint(1000, (FEATURES, B)).pin_memory()
    apart = [one.clone().pin_memory() for one in ids]
    tables = [torch.randn(1000, C // FEATURES, device="cuda", dtype=torch.bfloat16) for _ in range(FEATURES)]
    net = nn.Sequential(*(nn.Linear(C, C) for _ in range(LAYERS))).to("cuda", torch.bfloat16)

    @torch.no_grad()
    def step(i):
        if form == "a":
            here = [one.to("cuda", non_blocking=True) for one in apart]
        else:
            here = ids.to("cuda", non_blocking=True)
        return net(torch.cat([table[one] for table, one in zip(tables, here, strict=True)], 1))

    return step
