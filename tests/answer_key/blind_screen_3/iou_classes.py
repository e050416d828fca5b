"""Evaluation of a segmenter with the overlap of each class. a: three sums of each class are read, b: one table of all."""

import torch
from torch import nn

B, S, C, CLASSES = 8, 256, 64, 21


def build(form):
    layers, width = [], 3
    for wider in (C, C, C, CLASSES):
        layers += [nn.Conv2d(width, wider, 3, padding=1), nn.ReLU()]
        width = wider
    model = nn.Sequential(*layers[:-1]).cuda().half().to(memory_format=torch.channels_last)
    pictures = torch.randn(B, 3, S, S, device="cuda").half().to(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (B, S, S), device="cuda")

    @torch.no_grad()
    def step(i):
        found = model(pictures).argmax(1)
        if form == "a":
            overlaps = []
            for one in range(CLASSES):
                here, there = found == one, labels == one
                both = (here & there).sum().item()
                overlaps.append(both / max(here.sum().item() + there.sum().item() - both, 1))
            return sum(overlaps) / CLASSES
        pairs = torch.nn.functional.one_hot(found.flatten(), CLASSES).half()
        table = (pairs.t() @ torch.nn.functional.one_hot(labels.flatten(), CLASSES).half()).float()
        both = table.diagonal()
        return (both / (table.sum(0) + table.sum(1) - both).clamp(min=1)).mean().item()

    return step
