"""Scores of many sequences under autocast. a: float32 weights are cast in each step, b: kept in bfloat16 (wins nothing)."""

import torch
from torch import nn

TOKENS, C, LAYERS = 98304, 4096, 2
SAME = 2e-2


def build(form):
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(C, C, bias=False) for _ in range(LAYERS))).cuda()
    net = net.bfloat16() if form == "b" else net
    x = torch.randn(TOKENS, C, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step(i):
        with torch.autocast("cuda", torch.bfloat16):
            return net(x)[::64]

    return step
