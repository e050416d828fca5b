"""A robot's 48 sensors in pinned tensors. a: each is uploaded by itself, b: they are views of one tensor, which is uploaded."""

import torch
from torch import nn

SENSORS, SIZE = 48, 256


def build(form):
    net = nn.Sequential(nn.Linear(SENSORS * SIZE, 1024), nn.Tanh(), nn.Linear(1024, 12)).cuda()
    host = torch.randn(SENSORS, SIZE).pin_memory()
    held = torch.zeros(SENSORS, SIZE, device="cuda")
    pairs = list(zip(held, host, strict=True)) if form == "a" else [(held, host)]

    @torch.no_grad()
    def step(i):
        for there, here in pairs:
            there.copy_(here, non_blocking=True)
        return net(held.view(1, -1))

    return step
