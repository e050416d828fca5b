"""Forecasts of prices: the host sorts the next orders while the GPU multiplies. b: no sorting (wins nothing)."""

import torch

N, C, L = 8192, 4096, 12


def build(form):
    layers = [torch.randn(C, C, device="cuda", dtype=torch.bfloat16) * C**-0.5 for _ in range(L)]
    x = torch.randn(N, C, device="cuda", dtype=torch.bfloat16)
    orders = [(k * 7919) % 10007 for k in range(3000)]

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("sort orders"):
            if form == "a":
                sorted(orders, key=lambda one: (one + i) % 997)
        y = x
        for layer in layers:
            y = torch.relu(y @ layer)
        return y

    return step
