"""Rollouts of 400 pendulums in Python. a: policy and critic each observe all of them, b: they share what was observed."""

import math

import torch
from torch import nn

ENVS, C = 400, 256


class Pendulum:
    def __init__(self, k):
        self.angle, self.speed = 0.01 * k, 0.0

    def observe(self):
        return [math.cos(self.angle), math.sin(self.angle), max(-8.0, min(8.0, self.speed))]

    def advance(self, torque):
        self.speed += 0.05 * (15.0 * math.sin(self.angle) + 3.0 * torque)
        self.angle += 0.05 * self.speed


def build(form):
    nets = [nn.Sequential(nn.Linear(3, C), nn.Tanh(), nn.Linear(C, C), nn.Tanh(), nn.Linear(C, 1)).cuda() for _ in "pc"]
    envs = [Pendulum(k) for k in range(ENVS)]

    def observed():
        return torch.tensor([env.observe() for env in envs])

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("observe"):
            seen = observed()
            valued = observed() if form == "a" else seen
        with torch.cuda.nvtx.range("act"):
            value = nets[1](valued.to("cuda"))
            torques = nets[0](seen.to("cuda")).squeeze(1).tolist()
        with torch.cuda.nvtx.range("simulate"):
            for env, torque in zip(envs, torques, strict=True):
                env.advance(torque)
        return value

    return step
