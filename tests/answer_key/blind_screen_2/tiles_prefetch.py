"""Classification of tiles of satellite pictures in pinned memory. a: uploaded before each step, b: beside the one before."""

import torch
from torch import nn

B, S, C = 24, 256, 64


def build(form):
    layers = [nn.Conv2d(8, C, 4, stride=4), nn.ReLU()]
    for _ in range(5):
        layers += [nn.Conv2d(C, C, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(C, 20)).cuda().half()
    model = model.to(memory_format=torch.channels_last)
    tiles = [torch.randn(B, 8, S, S).half().pin_memory() for _ in range(4)]
    side, ahead = torch.cuda.Stream(), []

    def load(i):
        with torch.cuda.stream(side):
            return tiles[i % 4].to("cuda", non_blocking=True)

    @torch.no_grad()
    def step(i):
        if form == "a":
            return model(tiles[i % 4].to("cuda", non_blocking=True)).argmax(1)
        if not ahead:
            ahead.append(load(i))
        torch.cuda.current_stream().wait_stream(side)
        x = ahead.pop()
        x.record_stream(torch.cuda.current_stream())
        ahead.append(load(i + 1))
        return model(x).argmax(1)

    return step
