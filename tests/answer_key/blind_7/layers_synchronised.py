"""Long products with a synchronisation after each layer (b: without; wins nothing: the GPU is the limit)."""

import torch
from torch import nn

B, C, LAYERS = 32768, 4096, 6


def build(form):
    layers = nn.ModuleList(nn.Linear(C, C) for _ in range(LAYERS)).cuda().bfloat16()
    start = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step(i):
        x = start
        for layer in layers:
            x = layer(x)
            if form == "a":
                torch.cuda.synchronize()
        return x

    return step
