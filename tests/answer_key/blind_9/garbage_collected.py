"""Training that watches its loss. a: garbage is collected at each tenth step, to keep memory small, b: it is not."""

import gc

import torch
from torch import nn

B, C, LAYERS = 8192, 8192, 4
SAME = 2e-2


def build(form):
    torch.manual_seed(0)
    gc.disable()  # no collection but the program's own, in both forms
    net = nn.Sequential(*(nn.Linear(C, C, bias=False) for _ in range(LAYERS))).to("cuda", torch.bfloat16)
    x, wanted = (torch.randn(B, C, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    losses = []

    def step(i):
        loss = (net(x) - wanted).square().mean()
        loss.backward()
        net.zero_grad()
        losses.append(loss.item())
        if form == "a" and i % 10 == 7:
            gc.collect()
        return loss

    return step
