"""Genomes for a convolution. a: the host holds them as four floats a letter, b: as codes of a byte, which the GPU expands."""

import torch
from torch import nn

B, LENGTH = 64, 131_072


def build(form):
    codes = torch.randint(4, (B, LENGTH), dtype=torch.uint8)
    letters = torch.arange(4, dtype=torch.uint8, device="cuda").view(1, 4, 1)
    net = nn.Conv1d(4, 32, 16, 16).cuda()
    if form == "a":
        codes = (codes.unsqueeze(1) == torch.arange(4).view(1, 4, 1)).float()
    codes = codes.pin_memory()

    @torch.no_grad()
    def step(i):
        x = codes.to("cuda", non_blocking=True)
        if form == "b":
            x = (x.unsqueeze(1) == letters).float()
        return net(x).amax(2)

    return step
