"""Training in short epochs. a: the loader starts its workers anew in each epoch, b: they stay. A step is an epoch."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCHES, B, C = 8, 256, 512
SAME = 1e-2


class Curves(Dataset):
    """Batches of curves with noise."""

    def __init__(self):
        self.curves = np.random.default_rng(0).standard_normal((BATCHES, B, C), dtype=np.float32)

    def __len__(self):
        return BATCHES

    def __getitem__(self, number):
        return torch.from_numpy(np.cumsum(self.curves[number], axis=1) / C**0.5)


def build(form):
    torch.manual_seed(0)
    loader = DataLoader(Curves(), None, num_workers=2, persistent_workers=form == "b")
    net = nn.Sequential(nn.Linear(C, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, C)).cuda()
    optimiser = torch.optim.SGD(net.parameters(), 1e-3, foreach=True)

    def step(i):
        for batch in loader:
            curves = batch.to("cuda")
            loss = (net(curves) - curves).square().mean()
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
        return loss

    return step
