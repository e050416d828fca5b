"""A wide network. a: each of its blocks is compiled by itself, b: the whole of it is (wins nothing: the GPU is the limit)."""

import torch
from torch import nn

B, C, BLOCKS = 16384, 8192, 3
SAME = 2e-2


def build(form):
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(C, C), nn.SiLU()).to("cuda", torch.bfloat16) for _ in range(BLOCKS)]
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)
    if form == "a":
        net = nn.Sequential(*(torch.compile(block, dynamic=False) for block in blocks))
    else:
        net = torch.compile(nn.Sequential(*blocks), dynamic=False)

    @torch.no_grad()
    def step(i):
        return net(x)[::64]

    return step
