"""Training that was once short of memory. a: it still empties the allocator's cache after each step, b: it does not."""

import torch
from torch import nn

B, C, L = 4096, 1024, 8


def build(form):
    net = nn.Sequential(*(nn.Sequential(nn.Linear(C, C), nn.GELU()) for _ in range(L))).cuda().bfloat16()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, fused=True)
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)

    def step(i):
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if form == "a":
            torch.cuda.empty_cache()

    return step
