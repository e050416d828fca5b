"""Training that saves its curve once in 14 steps. a: the whole history is written as JSON, b: the new lines are appended."""

import io
import json

import torch
from torch import nn

B, C, L, EVERY = 8192, 1024, 4, 14


def build(form):
    net = nn.Sequential(*(nn.Sequential(nn.Linear(C, C), nn.ReLU()) for _ in range(L))).cuda().bfloat16()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, fused=True)
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)
    history = [{"step": k, "loss": k * 0.37, "rate": 1e-3} for k in range(20_000)]
    file = io.StringIO()

    def step(i):
        loss = (net(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % EVERY == 9:
            value = loss.item()
            file.seek(0)
            lines = history if form == "a" else [{"step": i, "loss": value, "rate": 1e-3}]
            file.write(json.dumps(lines))

    return step
