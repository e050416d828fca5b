"""A rollout of pendulums under a small policy, operation by operation. a: eager, b: one CUDA graph."""

import torch
from torch import nn

N, STEPS = 1024, 10


def build(form):
    policy = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 1), nn.Tanh()).cuda()
    angle, speed, reward = (torch.zeros(N, 1, device="cuda") for _ in range(3))

    @torch.no_grad()
    def rollout():
        for _ in range(STEPS):
            torque = 2 * policy(torch.cat([angle.cos(), angle.sin(), speed], 1))
            speed.add_((15 * angle.sin() + 3 * torque) * 0.05).clamp_(-8, 8)
            angle.add_(speed * 0.05)
            reward.sub_(angle.square() + 0.1 * speed.square())

    if form == "a":
        return lambda i: rollout()
    rollout()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rollout()
    return lambda i: graph.replay()
