"""The focal loss of a detector. a: each operation is a kernel, b: compiled."""

import torch
from torch.nn import functional as F  # noqa: N812

B, ANCHORS, CLASSES = 8, 76_725, 80


def focal(logits, targets):
    chance = torch.sigmoid(logits)
    entropy = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    right = chance * targets + (1 - chance) * (1 - targets)
    weight = 0.25 * targets + 0.75 * (1 - targets)
    return (weight * (1 - right) ** 2 * entropy).sum() / B


def build(form):
    logits = torch.randn(B, ANCHORS, CLASSES, device="cuda")
    targets = (torch.rand(B, ANCHORS, CLASSES, device="cuda") > 0.99).float()
    loss = torch.compile(focal) if form == "b" else focal

    @torch.no_grad()
    def step(i):
        return loss(logits, targets)

    return step
