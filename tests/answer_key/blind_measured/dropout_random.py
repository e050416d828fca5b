"""A net with Monte-Carlo dropout draws new masks in every step. b: masks are drawn once."""

import torch
from torch import nn

B, C, L = 16384, 2048, 4


def build(form):
    layers = nn.ModuleList(nn.Linear(C, C) for _ in range(L)).cuda().bfloat16()
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)
    masks = [torch.rand(B, C, device="cuda") > 0.1 for _ in range(L)]
    drawn = [torch.empty(B, C, device="cuda") for _ in range(L)]

    @torch.no_grad()
    def step(i):
        y = x
        for layer, mask, into in zip(layers, masks, drawn, strict=True):
            if form == "a":
                into.uniform_()
            y = torch.relu(layer(y)) * mask
        return y

    return step
