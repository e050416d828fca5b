"""Threads through ten looms. a: each result goes to FP32 and back, b: stays in BF16, which gives the same."""

import torch

N, C, L = 8192, 4096, 10
SAME = 1e-3


def build(form):
    torch.manual_seed(0)
    looms = [torch.randn(C, C, device="cuda", dtype=torch.bfloat16) * C**-0.5 for _ in range(L)]
    threads = torch.randn(N, C, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step(i):
        y = threads
        for loom in looms:
            y = y @ loom
            if form == "a":
                y = y.float().to(torch.bfloat16)
        return y

    return step
