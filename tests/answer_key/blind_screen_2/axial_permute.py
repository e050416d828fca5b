"""Video tokens through layers over space and time. a: permuted before each of them, b: never, as they mix channels only."""

import torch
from torch import nn

B, T, S, C, L = 4, 16, 32, 512, 3


def build(form):
    spatial, temporal = (
        nn.ModuleList(nn.Sequential(nn.LayerNorm(C), nn.Linear(C, C), nn.ReLU()) for _ in range(L)).cuda().bfloat16()
        for _ in range(2)
    )
    data = torch.randn(B, T, S * S, C, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step(i):
        x = data
        for space, time in zip(spatial, temporal, strict=True):
            x = space(x)
            x = x.permute(0, 2, 1, 3).contiguous() if form == "a" else x
            x = time(x)
            x = x.permute(0, 2, 1, 3).contiguous() if form == "a" else x
        return x

    return step
