"""Products of many tokens. a: at each tenth step the host digests a log while steps wait in the queue, b: it does not (wins nothing)."""

import hashlib

import torch

TOKENS, C, LAYERS, LOG = 16384, 8192, 2, 8 << 20
SAME = 1e-3


def build(form):
    torch.manual_seed(0)
    weights = [torch.randn(C, C, device="cuda").mul_(C**-0.5).bfloat16() for _ in range(LAYERS)]
    start = torch.randn(TOKENS, C, device="cuda", dtype=torch.bfloat16)
    log, digests = bytes(LOG), []

    @torch.no_grad()
    def step(i):
        x = start
        for weight in weights:
            x = x @ weight
        if form == "a" and i % 10 == 7:
            digests.append(hashlib.blake2b(log).hexdigest())
        return x[::64]

    return step
