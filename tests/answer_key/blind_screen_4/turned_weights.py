"""Layers whose weights lie in the order of another framework. a: each call turns and copies them, b: a view of them."""

import torch
from torch.nn import functional as F  # noqa: N812

B, C, L = 64, 6144, 4


def build(form):
    weights = [torch.randn(C, C, device="cuda", dtype=torch.half) * 0.01 for _ in range(L)]
    x = torch.randn(B, C, device="cuda", dtype=torch.half)

    @torch.no_grad()
    def step(i):
        y = x
        for weight in weights:
            turned = weight.t().contiguous() if form == "a" else weight.t()
            y = F.relu(F.linear(y, turned))
        return y

    return step
