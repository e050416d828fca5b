"""Tapes through a compiled function: roots by a continued fraction, then a product. a: 48 rounds, b: 24 are enough."""

import torch

N, C = 8192, 4096
SAME = 2e-2


def build(form):
    torch.manual_seed(0)
    rounds = 48 if form == "a" else 24
    heads = torch.randn(C, C, device="cuda", dtype=torch.bfloat16) * C**-0.5
    tapes = torch.randn(N, C, device="cuda")

    @torch.compile(dynamic=False)
    def played(tape):
        root = share = tape.abs().clamp(max=6)
        for _ in range(rounds):
            root = share / (2 + root)
        return root.to(torch.bfloat16) @ heads

    @torch.no_grad()
    def step(i):
        return played(tapes)

    return step
