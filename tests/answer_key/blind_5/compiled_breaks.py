"""Compiled layers that guard against overflow. a: each asks the host whether to clamp, b: each clamps in any case."""

import torch
from torch import nn

B, C, L = 512, 512, 12


class Guarded(nn.Module):
    def __init__(self, asks):
        super().__init__()
        self.linear, self.asks = nn.Linear(C, C), asks

    def forward(self, x):
        y = torch.tanh(self.linear(x)) * 3
        if not self.asks:
            return y.clamp(-1e3, 1e3)
        if y.abs().max().item() > 1e3:
            return y.clamp(-1e3, 1e3)
        return y


def build(form):
    layers = [torch.compile(Guarded(form == "a").cuda().half()) for _ in range(L)]
    x = torch.randn(B, C, device="cuda", dtype=torch.half)

    @torch.no_grad()
    def step(i):
        y = x
        for layer in layers:
            y = layer(y)
        return y

    return step
