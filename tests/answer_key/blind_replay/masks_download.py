"""Segmentation whose host needs the class of each pixel. a: it downloads all scores, b: the classes."""

import torch
from torch import nn

B, S, W, CLASSES = 4, 256, 48, 20


def build(form):
    layers = [nn.Conv2d(3, W, 3, padding=1), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(W, W, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Conv2d(W, CLASSES, 1)).cuda().half().to(memory_format=torch.channels_last)
    x = torch.randn(B, 3, S, S, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("segment"):
            scores = model(x)
        with torch.cuda.nvtx.range("download"):
            return scores.cpu() if form == "a" else scores.argmax(1).to(torch.uint8).cpu()

    return step
