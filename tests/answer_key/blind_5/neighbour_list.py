"""A neural potential that lists neighbours once in 10 steps. a: on the host with NumPy, b: on the GPU."""

import numpy as np
import torch
from torch import nn

N, NEAR, C, L, EVERY = 768, 64, 256, 10, 10


def build(form):
    net = nn.Sequential(nn.Linear(3, C), *(nn.Sequential(nn.Linear(C, C), nn.ReLU()) for _ in range(L))).cuda().half()
    places = torch.rand(N, 3, device="cuda")
    near = torch.randint(N, (N, NEAR), device="cuda")

    def listed():
        if form == "b":
            return torch.cdist(places, places).topk(NEAR, largest=False).indices
        found = places.cpu().numpy()
        distances = np.square(found[:, None] - found[None]).sum(2)
        return torch.from_numpy(np.argpartition(distances, NEAR, axis=1)[:, :NEAR]).to("cuda")

    @torch.no_grad()
    def step(i):
        nonlocal near
        if i % EVERY == 6:
            near = listed()
        pairs = places[near] - places.unsqueeze(1)
        places.add_(net(pairs.half()).mean((1, 2)).float().unsqueeze(1), alpha=1e-6)

    return step
