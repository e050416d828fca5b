"""Training on pictures from a DataLoader. a: num_workers=0, b: six workers."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

B, S, C, WORKERS = 64, 64, 96, 6


class Pictures(Dataset):
    def __init__(self):
        self.data = np.random.default_rng(0).integers(0, 256, (512, S + 8, S + 8, 3), dtype=np.uint8)

    def __len__(self):
        return 1 << 24

    def __getitem__(self, index):
        top, left = index % 7, index // 7 % 7
        crop = self.data[index % 512, top : top + S, left : left + S].astype(np.float32)
        crop += np.random.default_rng(index).standard_normal(crop.shape, dtype=np.float32)
        return np.ascontiguousarray((crop.transpose(2, 0, 1) / 255 - 0.45) / 0.22), index % 10


def build(form):
    layers = [nn.Conv2d(3, C, 3, padding=1), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(C, C, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(C, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    batches = iter(DataLoader(Pictures(), B, num_workers=0 if form == "a" else WORKERS))

    def step(i):
        with torch.cuda.nvtx.range("next batch"):
            pictures, labels = next(batches)
        with torch.cuda.nvtx.range("train"):
            loss = nn.functional.cross_entropy(model(pictures.cuda()), labels.cuda())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return step
