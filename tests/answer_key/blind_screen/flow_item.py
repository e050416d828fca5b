"""Training of a normalising flow in bfloat16: the GPU is always busy. a: loss.item() each step, b: none (wins nothing)."""

import torch
from torch import nn

B, C = 49152, 1024


def build(form):
    halves = [
        nn.Sequential(nn.Linear(C, 4 * C), nn.SiLU(), nn.Linear(4 * C, 2 * C)).cuda().bfloat16() for _ in range(4)
    ]
    parameters = [p for half in halves for p in half.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-5, fused=True)
    data = torch.randn(B, 2 * C, device="cuda", dtype=torch.bfloat16)

    def step(i):
        one, two = data.chunk(2, 1)
        total = 0
        for half in halves:
            scale, shift = half(one).chunk(2, 1)
            one, two = two * torch.tanh(scale).exp() + shift, one
            total = total - scale.mean()
        loss = total + one.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item() if form == "a" else loss

    return step
