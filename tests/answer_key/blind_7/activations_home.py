"""Inference that saves activations through pinned memory beside the products (b: saves none; wins nothing)."""

import torch
from torch import nn

B, C, LAYERS = 16384, 4096, 8


def build(form):
    layers = nn.ModuleList(nn.Linear(C, C) for _ in range(LAYERS)).cuda().bfloat16()
    start = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)
    home = torch.empty(B, C // 8, dtype=torch.bfloat16, pin_memory=True)
    side = torch.cuda.Stream()

    @torch.no_grad()
    def step(i):
        x = start
        for layer in layers:
            x = layer(x)
        if form == "a":
            kept = x[:, : C // 8].contiguous()
            side.wait_stream(torch.cuda.current_stream())
            kept.record_stream(side)
            with torch.cuda.stream(side):
                home.copy_(kept, non_blocking=True)
        return x

    return step
