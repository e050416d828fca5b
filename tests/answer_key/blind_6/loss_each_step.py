"""Training of a wide network that logs its loss. a: the loss is read after each step, b: never (wins nothing)."""

import torch
from torch import nn

B, C, LAYERS = 8192, 8192, 4


def build(form):
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(C, C, bias=False) for _ in range(LAYERS))).cuda().bfloat16()
    optimiser = torch.optim.SGD(net.parameters(), 1e-6, foreach=True)
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)
    losses = []

    def step(i):
        loss = net(x).square().mean()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        if form == "a":
            losses.append(loss.item())
        return loss

    return step
