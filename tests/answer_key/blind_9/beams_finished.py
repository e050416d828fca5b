"""A large model's step. a: the host asks after each step whether all beams have ended, b: it does not (wins nothing)."""

import torch

BEAMS, C, LAYERS = 8192, 8192, 7
SAME = 1e-3


def build(form):
    torch.manual_seed(0)
    weights = [torch.randn(C, C, device="cuda").mul_(C**-0.5).bfloat16() for _ in range(LAYERS)]
    start = torch.randn(BEAMS, C, device="cuda", dtype=torch.bfloat16)
    ended = 0

    @torch.no_grad()
    def step(i):
        nonlocal ended
        x = start
        for weight in weights:
            x = x @ weight
        if form == "a":
            ended += bool((x[:, 0] > 100).all())
        return x[::64]

    return step
