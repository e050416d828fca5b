"""Q-learning from a replay memory. a: once in 12 steps the host shuffles the memory's order in NumPy, b: the GPU does."""

import numpy as np
import torch
from torch import nn

MEMORY, N, D, H, ACTIONS = 1_000_000, 65536, 32, 512, 6


def build(form):
    net = nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.Linear(H, H), nn.ReLU(), nn.Linear(H, ACTIONS)).cuda().bfloat16()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, fused=True)
    seen = torch.randn(MEMORY, D, device="cuda", dtype=torch.bfloat16)
    actions = torch.randint(ACTIONS, (MEMORY, 1), device="cuda")
    rewards = torch.randn(MEMORY, device="cuda", dtype=torch.bfloat16)
    rng, order = np.random.default_rng(0), [torch.randperm(MEMORY, device="cuda")]

    def step(i):
        if i % 12 == 7:
            if form == "a":
                order[0] = torch.from_numpy(rng.permutation(MEMORY)).cuda()
            else:
                order[0] = torch.randperm(MEMORY, device="cuda")
        rows = order[0][i % 12 * N : (i % 12 + 1) * N]
        with torch.no_grad():
            target = rewards[rows] + 0.99 * net(seen[rows + 1 - (rows == MEMORY - 1).long()]).max(1).values
        value = net(seen[rows]).gather(1, actions[rows])[:, 0]
        nn.functional.smooth_l1_loss(value, target).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
