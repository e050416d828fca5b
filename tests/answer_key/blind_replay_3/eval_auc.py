"""Evaluation of a click model. a: the host sorts each batch's scores in NumPy for the area under the curve, b: the GPU does."""

import numpy as np
import torch
from torch import nn

N, D, H = 65536, 256, 1024


def build(form):
    net = nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.Linear(H, H), nn.ReLU(), nn.Linear(H, 1)).cuda().bfloat16()
    x = torch.randn(4, N, D, device="cuda", dtype=torch.bfloat16)
    clicks = torch.randint(2, (4, N), device="cuda")
    clicks_here = clicks.cpu().numpy()

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("scores"):
            scores = net(x[i % 4])[:, 0].float()
        with torch.cuda.nvtx.range("area"):
            if form == "a":
                hits = clicks_here[i % 4][np.argsort(scores.cpu().numpy())]
                ranks = np.arange(1, N + 1)[hits == 1].sum()
                return (ranks - hits.sum() * (hits.sum() + 1) / 2) / (hits.sum() * (N - hits.sum()))
            hits = clicks[i % 4][scores.argsort()]
            count = hits.sum()
            ranks = (torch.arange(1, N + 1, device="cuda") * hits).sum()
            return ((ranks - count * (count + 1) / 2) / (count * (N - count))).item()

    return step
