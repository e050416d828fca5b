"""Training with clipped gradients. a: they are joined, clipped and copied back, b: clipped where they lie."""

import torch
from torch import nn

B, C, LAYERS = 512, 4096, 8


def build(form):
    net = nn.Sequential(*(nn.Linear(C, C, bias=False) for _ in range(LAYERS))).cuda().bfloat16()
    weights = list(net.parameters())
    optimiser = torch.optim.SGD(weights, 1e-5, foreach=True)
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)

    def clip_joined():
        flat = torch.cat([weight.grad.flatten() for weight in weights])
        flat.mul_((1.0 / (flat.norm() + 1e-6)).clamp(max=1.0))
        for weight, part in zip(weights, flat.split([weight.numel() for weight in weights]), strict=True):
            weight.grad.copy_(part.view_as(weight))

    def step(i):
        loss = net(x).float().square().mean()
        loss.backward()
        if form == "a":
            clip_joined()
        else:
            nn.utils.clip_grad_norm_(weights, 1.0, foreach=True)
        optimiser.step()
        optimiser.zero_grad()
        return loss

    return step
