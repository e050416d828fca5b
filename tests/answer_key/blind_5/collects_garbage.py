"""An evaluation loop that frees what it can. a: it calls gc.collect() after each batch, b: it leaves that to Python."""

import gc

import torch
from torch import nn

B, C, L = 4096, 1024, 8


def build(form):
    net = nn.Sequential(*(nn.Sequential(nn.Linear(C, C), nn.ReLU()) for _ in range(L))).cuda().half()
    x = torch.randn(B, C, device="cuda", dtype=torch.half)

    @torch.no_grad()
    def step(i):
        score = net(x).float().mean()
        if form == "a":
            gc.collect()
        return score.item()

    return step
