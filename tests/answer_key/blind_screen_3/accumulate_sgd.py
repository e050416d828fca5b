"""Training of a large net with gradients of two microbatches. a: SGD tensor by tensor, b: the fused SGD (wins nothing)."""

import torch
from torch import nn

B, C, L = 8192, 4096, 6


def build(form):
    net = nn.Sequential(*(nn.Linear(C, C, bias=False) for _ in range(L))).cuda().bfloat16()
    options = {"fused": True} if form == "b" else {"foreach": False}
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, **options)
    parts = torch.randn(2, B, C, device="cuda", dtype=torch.bfloat16)

    def step(i):
        for part in parts:
            (net(part).float().square().mean() / 2).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
