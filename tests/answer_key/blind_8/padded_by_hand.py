"""Segmentation with convolutions that keep the size. a: pads each input by F.pad, b: the convolution pads."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

B, C, S, LAYERS = 32, 64, 256, 5
SAME = 2e-2


def build(form):
    torch.manual_seed(0)
    convs = nn.ModuleList(nn.Conv2d(C, C, 3, padding=1 if form == "b" else 0, bias=False) for _ in range(LAYERS))
    convs = convs.cuda().to(torch.bfloat16, memory_format=torch.channels_last)
    start = torch.randn(B, C, S, S, device="cuda").to(torch.bfloat16, memory_format=torch.channels_last)

    @torch.no_grad()
    def step(i):
        x = start
        for conv in convs:
            x = conv(F.pad(x, (1, 1, 1, 1)) if form == "a" else x).relu_()
        return x[0]

    return step
