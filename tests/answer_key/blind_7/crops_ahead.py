"""Training with crops that NumPy cuts while the GPU works on the last batch (b: crops cut before; wins nothing)."""

import numpy as np
import torch
from torch import nn

B, S, C = 32, 128, 256


def build(form):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (B, 3, S + 32, S + 32), dtype=np.uint8)

    def cut():
        top, left = rng.integers(0, 32, 2)
        return torch.from_numpy(np.ascontiguousarray(images[:, :, top : top + S, left : left + S])).pin_memory()

    ready = cut()
    net = nn.Sequential(
        nn.Conv2d(3, C, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(C, C, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(C, C, 3, padding=1),
    )
    net = net.cuda().to(torch.bfloat16, memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(net.parameters(), 1e-3, fused=True)

    def step(i):
        with torch.cuda.nvtx.range("crops"):
            batch = cut() if form == "a" else ready
        with torch.cuda.nvtx.range("train"):
            x = batch.to("cuda", non_blocking=True).to(torch.bfloat16, memory_format=torch.channels_last)
            loss = net(x).square().mean()
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
        return loss

    return step
