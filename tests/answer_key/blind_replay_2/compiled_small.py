"""A small compiled tabular model at batch 64. a: compiled by default, b: with mode="reduce-overhead"."""

import torch
from torch import nn

B, C, L = 64, 256, 8


class Cross(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(C), nn.Linear(C, C), nn.Linear(C, C)

    def forward(self, x):
        y = self.norm(x)
        return x + self.outer(torch.sigmoid(self.inner(y)) * y)


def build(form):
    model = nn.Sequential(*(Cross() for _ in range(L))).cuda().requires_grad_(False)
    run = torch.compile(model, mode="default" if form == "a" else "reduce-overhead")
    x = torch.randn(B, C, device="cuda")

    @torch.no_grad()
    def step(i):
        run(x)

    return step
