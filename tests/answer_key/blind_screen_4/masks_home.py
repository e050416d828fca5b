"""Masks of cells for a viewer. a: .cpu() of each batch makes a new pageable tensor, b: they come into pinned memory."""

import torch
from torch import nn

B, S, C = 8, 512, 24


def build(form):
    parts = (nn.Conv2d(1, C, 3, padding=1), nn.ReLU(), nn.Conv2d(C, 4, 3, padding=1))
    net = nn.Sequential(*parts).cuda().half().to(memory_format=torch.channels_last)
    x = torch.randn(B, 1, S, S, device="cuda", dtype=torch.half)
    pinned = torch.empty(B, 4, S, S).pin_memory()

    @torch.no_grad()
    def step(i):
        masks = net(x).float().softmax(1)
        if form == "a":
            return masks.cpu()
        pinned.copy_(masks, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return pinned

    return step
