"""Restoration of images with a prior. a: the same prior goes up from pinned memory in each step, b: it is there."""

import torch

B, C, LAYERS = 8192, 8192, 4
SAME = 1e-2


def build(form):
    torch.manual_seed(0)
    weights = [torch.randn(C, C, device="cuda").mul_(C**-0.5).bfloat16() for _ in range(LAYERS)]
    start = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)
    prior = torch.rand(B // 2, C).pin_memory()
    kept = prior.to("cuda")

    @torch.no_grad()
    def step(i):
        here = prior.to("cuda", non_blocking=True) if form == "a" else kept
        x = start
        for weight in weights:
            x = x @ weight
        return x[: B // 2] * here

    return step
