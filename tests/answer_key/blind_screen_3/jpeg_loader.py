"""Training of a convnet on JPEG pictures from a DataLoader. a: without workers, b: with eight."""

import io

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

B, S = 32, 128


def encoded(seed):
    rough = np.random.default_rng(seed).integers(0, 255, (S // 8, S // 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(rough).resize((S + 32, S + 32), Image.Resampling.BICUBIC).save(file, "jpeg", quality=90)
    return file.getvalue()


class Pictures(Dataset):
    def __init__(self):
        self.files = [encoded(seed) for seed in range(64)]

    def __len__(self):
        return 1 << 24

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index * 31 % 64])).convert("RGB")
        left, top = index % 32, index // 32 % 32
        picture = np.asarray(picture.crop((left, top, left + S, top + S)))
        return torch.from_numpy(picture.copy()).permute(2, 0, 1), index % 100


def build(form):
    layers, width = [], 3
    for wider in (48, 96, 192, 384):
        layers += [nn.Conv2d(width, wider, 3, stride=2, padding=1), nn.BatchNorm2d(wider), nn.ReLU()]
        width = wider
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100)).cuda()
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    workers = 0 if form == "a" else 8
    batches = iter(DataLoader(Pictures(), B, num_workers=workers, pin_memory=True))

    def step(i):
        pictures, labels = next(batches)
        x = pictures.to("cuda", non_blocking=True).float().div_(255).to(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), labels.to("cuda", non_blocking=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
