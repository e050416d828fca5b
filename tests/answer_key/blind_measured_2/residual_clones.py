"""Residual blocks that clone their input before each product. b: no clone."""

import torch
from torch.nn import functional

B, C, L = 4096, 4096, 8


def build(form):
    weights = [(torch.randn(C, C, device="cuda") * 0.01).bfloat16() for _ in range(L)]
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step(i):
        y = x
        for w in weights:
            kept = y.clone() if form == "a" else y
            y = functional.linear(y, w) + kept
        return y

    return step
