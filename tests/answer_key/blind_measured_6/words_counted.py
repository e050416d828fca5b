"""Text through a net, with at most two steps queued; the host sorts a list of words beside it. b: 0.3 of them (wins nothing)."""

import random

import torch

N, C, L = 8192, 4096, 8
SAME = 1e-3


def build(form):
    torch.manual_seed(0)
    layers = [torch.randn(C, C, device="cuda", dtype=torch.bfloat16) * C**-0.5 for _ in range(L)]
    text = torch.randn(N, C, device="cuda", dtype=torch.bfloat16)
    read = [torch.cuda.Event(), torch.cuda.Event()]
    chance = random.Random(0)
    words = [chance.random() for _ in range(6000 if form == "a" else 1800)]

    @torch.no_grad()
    def step(i):
        read[i % 2].synchronize()
        y = text
        for layer in layers:
            y = y @ layer
        read[i % 2].record()
        with torch.cuda.nvtx.range("sort words"):
            step.sorted = sorted(words)
        return y

    return step
