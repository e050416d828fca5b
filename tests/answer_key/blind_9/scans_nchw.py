"""Denoising of scans by convolutions. a: channels come first, and the library turns them, b: channels_last."""

import torch
from torch import nn

B, C, S, LAYERS = 32, 128, 128, 8
SAME = 3e-2


def build(form):
    torch.manual_seed(0)
    form_of = torch.channels_last if form == "b" else torch.contiguous_format
    net = nn.Sequential(*(nn.Conv2d(C, C, 3, padding=1, bias=False) for _ in range(LAYERS)))
    net = net.cuda().to(torch.bfloat16, memory_format=form_of)
    scans = torch.randn(B, C, S, S, device="cuda").to(torch.bfloat16, memory_format=form_of)

    @torch.no_grad()
    def step(i):
        return net(scans)[0]

    return step
