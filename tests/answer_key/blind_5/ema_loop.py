"""Training that keeps a moving average of its weights. a: parameter by parameter, b: with one foreach operation."""

import torch
from torch import nn

B, C, L, DECAY = 512, 256, 20, 0.999


def build(form):
    net = nn.Sequential(*(nn.Sequential(nn.Linear(C, C), nn.LayerNorm(C)) for _ in range(L))).cuda()
    parameters = [p.detach() for p in net.parameters()]
    averages = [p.clone() for p in parameters]
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, fused=True)
    x = torch.randn(B, C, device="cuda")

    def step(i):
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if form == "b":
            torch._foreach_lerp_(averages, parameters, 1 - DECAY)
            return
        for average, parameter in zip(averages, parameters, strict=True):
            average.mul_(DECAY).add_(parameter, alpha=1 - DECAY)

    return step
