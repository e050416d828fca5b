"""Training of a denoiser. a: NumPy draws the noise of each batch, b: the GPU does."""

import numpy as np
import torch
from torch import nn

SHAPE, C = (32, 4, 64, 64), 192


def build(form):
    rng = np.random.default_rng(0)
    net = nn.Sequential(
        nn.Conv2d(4, C, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(C, C, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(C, 4, 3, padding=1),
    )
    net = net.cuda().to(torch.bfloat16, memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(net.parameters(), 1e-3, foreach=True)
    latents = torch.randn(SHAPE, device="cuda", dtype=torch.bfloat16)

    def step(i):
        with torch.cuda.nvtx.range("noise"):
            if form == "a":
                noise = torch.from_numpy(rng.standard_normal(SHAPE)).to("cuda", torch.bfloat16)
            else:
                noise = torch.randn(SHAPE, device="cuda", dtype=torch.bfloat16)
        with torch.cuda.nvtx.range("train"):
            loss = (net(latents + 0.5 * noise) - noise).square().mean()
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
        return loss

    return step
