"""Tariffs on cargo lists, operation by operation. a: each of twelve rates is made on the GPU from a Python number, b: kept there."""

import torch

N, COUNT = 1 << 25, 12
SAME = 1e-5


def build(form):
    lists, due = torch.linspace(1, 2, N, device="cuda"), torch.zeros(N, device="cuda")
    rates = [0.05 + 0.01 * number for number in range(COUNT)]
    kept = [torch.tensor(rate, device="cuda") for rate in rates]

    @torch.no_grad()
    def step(i):
        for rate, known in zip(rates, kept, strict=True):
            torch.mul(lists, torch.tensor(rate, device="cuda") if form == "a" else known, out=due)
        return due

    return step
