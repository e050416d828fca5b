"""A compiled network on large batches. a: compiled by default, b: with mode="reduce-overhead" (wins nothing: the GPU is the limit)."""

import torch
from torch import nn

B, C, LAYERS = 8192, 4096, 6
SAME = 2e-2


def build(form):
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(C, C), nn.GELU())]
    net = nn.Sequential(*layers).to("cuda", torch.bfloat16)
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)
    made = torch.compile(net, dynamic=False, mode="reduce-overhead" if form == "b" else "default")

    @torch.no_grad()
    def step(i):
        return made(x)

    return step
