"""A recommender that reloads its dictionary once in 16 steps, on the serving thread. b: it never does."""

import torch
from torch import nn

B, C, ITEMS = 2048, 1024, 60000


def build(form):
    model = nn.Sequential(nn.Linear(C, C), nn.ReLU(), nn.Linear(C, C), nn.ReLU(), nn.Linear(C, C)).cuda().half()
    items = torch.randn(C, ITEMS, device="cuda", dtype=torch.half)
    x, names = torch.randn(B, C, device="cuda", dtype=torch.half), {}

    @torch.no_grad()
    def step(i):
        if i % 16 == 9 and form == "a":
            names.clear()
            names.update({f"item-{number}": (number * 7919) % ITEMS for number in range(250000)})
        best = (model(x) @ items).amax(1)
        return best.sum().item()

    return step
