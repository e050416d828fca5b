"""Training that logs histograms of its weights at each tenth step. a: NumPy counts them, b: the GPU does."""

import numpy as np
import torch
from torch import nn

B, C, EACH = 4096, 512, 10


def build(form):
    net = nn.Sequential(*(nn.Sequential(nn.Linear(C, C), nn.Tanh()) for _ in range(4))).cuda()
    optimiser = torch.optim.SGD(net.parameters(), 1e-3, foreach=True)
    x = torch.randn(B, C, device="cuda")
    logged = {}

    def step(i):
        loss = (net(x) - x).square().mean()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        if i % EACH == EACH - 1:
            for name, weight in net.named_parameters():
                if form == "a":
                    logged[name] = np.histogram(weight.detach().cpu().numpy(), 64)
                else:
                    logged[name] = torch.histc(weight.detach(), 64)
        return loss

    return step
