"""Clean: a residual and a norm, compiled into one kernel. Memory is the limit."""

import torch

ROWS, C = 131_072, 4096


def normed(x, branch, weight):
    x = (x + branch).float()
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight).half()


def build(form):
    x, branch = (torch.randn(ROWS, C, device="cuda", dtype=torch.half) for _ in range(2))
    weight = torch.rand(C, device="cuda")
    compiled = torch.compile(normed)

    @torch.no_grad()
    def step(i):
        return compiled(x, branch, weight)

    return step
