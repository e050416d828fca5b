"""Click rates from 26 categorical features. a: an embedding bag for each feature, b: one bag over the joined tables."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

B, FEATURES, ROWS, C, IDS = 2048, 26, 50000, 64, 8


def build(form):
    tables = torch.randn(FEATURES, ROWS, C, device="cuda")
    mix = nn.Sequential(nn.Linear(FEATURES * C, 512), nn.ReLU(), nn.Linear(512, 1), nn.Sigmoid()).cuda()
    ids = torch.randint(ROWS, (FEATURES, B * IDS), device="cuda")
    joined_ids = (ids + torch.arange(FEATURES, device="cuda")[:, None] * ROWS).flatten()
    starts = torch.arange(0, B * IDS, IDS, device="cuda")
    joined_starts = torch.arange(0, FEATURES * B * IDS, IDS, device="cuda")

    @torch.no_grad()
    def step(i):
        if form == "a":
            bags = [F.embedding_bag(ids[at], tables[at], starts, mode="sum") for at in range(FEATURES)]
            x = torch.cat(bags, 1)
        else:
            x = F.embedding_bag(joined_ids, tables.flatten(0, 1), joined_starts, mode="sum")
            x = x.view(FEATURES, B, C).transpose(0, 1).reshape(B, FEATURES * C)
        return mix(x)

    return step
