"""A loader whose collate function stacks on the GPU. a: each sample goes there by itself, b: the stacked batch does."""

import torch
from torch import nn

B, SIDE = 128, 32


def build(form):
    samples = [torch.randint(256, (3, SIDE, SIDE), dtype=torch.uint8) for _ in range(B)]
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda()

    @torch.no_grad()
    def step(i):
        batch = torch.stack([one.to("cuda") for one in samples]) if form == "a" else torch.stack(samples).to("cuda")
        return net(batch / 255)

    return step
