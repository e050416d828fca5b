"""Training that skips steps with bad gradients. a: the host asks for each parameter, b: it asks once for their norm."""

import torch
from torch import nn

B, C, L = 2048, 512, 10


def build(form):
    net = nn.Sequential(*(nn.Sequential(nn.Linear(C, C), nn.Tanh()) for _ in range(L))).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, fused=True)
    x = torch.randn(B, C, device="cuda")
    torch.set_float32_matmul_precision("high")

    def step(i):
        (net(x) - x).square().mean().backward()
        if form == "a":
            norms = [float(p.grad.norm()) for p in net.parameters()]
            good = all(norm < 1e6 for norm in norms)
        else:
            good = float(torch.nn.utils.clip_grad_norm_(net.parameters(), 1e6, foreach=True)) < 1e6
        if good:
            optimizer.step()
        optimizer.zero_grad()

    return step
