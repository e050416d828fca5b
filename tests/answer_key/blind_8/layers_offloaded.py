"""Prefill with a language model whose weights wait in host memory. a: in ordinary memory, b: in pinned memory."""

import torch

TOKENS, C, LAYERS = 65536, 4096, 2
SAME = 1e-2


def build(form):
    torch.manual_seed(0)
    weights = [torch.randn(C, C, device="cuda").mul_(C**-0.5).half().cpu() for _ in range(LAYERS)]
    if form == "b":
        weights = [one.pin_memory() for one in weights]
    start = torch.randn(TOKENS, C, device="cuda", dtype=torch.half)

    @torch.no_grad()
    def step(i):
        x = start
        for one in weights:
            x = x @ one.to("cuda", non_blocking=True)
        return x[::64]

    return step
