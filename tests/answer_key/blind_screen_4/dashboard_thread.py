"""A rating net whose process also draws a dashboard. a: a Python thread computes its averages meanwhile, b: another process does."""

import queue
import threading

import torch
from torch import nn

B, C, L = 512, 512, 24


def averages(values):
    mean, found = 0.0, []
    for value in values:
        mean += 0.05 * (value - mean)
        found.append(mean)
    return found


def build(form):
    net = nn.Sequential(*(nn.Sequential(nn.Linear(C, C), nn.ReLU()) for _ in range(L))).cuda().half()
    x = torch.randn(B, C, device="cuda", dtype=torch.half)
    jobs, values = queue.Queue(), [k * 0.01 % 1 for k in range(40_000)]

    def draw():
        while True:
            jobs.get()
            averages(values)
            jobs.task_done()

    threading.Thread(target=draw, daemon=True).start()

    @torch.no_grad()
    def step(i):
        if form == "a":
            jobs.put(i)
        result = net(x).float().mean().item()
        jobs.join()
        return result

    return step
