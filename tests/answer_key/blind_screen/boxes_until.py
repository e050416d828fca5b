"""Suppression of overlapping boxes, box by box. a: the host asks after each box whether any is left, b: a fixed count."""

import torch

N, ROUNDS = 4096, 12


def overlaps(boxes, box):
    low, high = torch.maximum(boxes[:, :2], box[:2]), torch.minimum(boxes[:, 2:], box[2:])
    inside = (high - low).clamp(min=0).prod(1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    return inside / (areas + (box[2:] - box[:2]).prod() - inside)


def build(form):
    corner = torch.rand(N, 2, device="cuda")
    boxes, scores = torch.cat([corner, corner + 0.05], 1), torch.rand(N, device="cuda")

    @torch.no_grad()
    def step(i):
        alive = torch.ones(N, device="cuda")
        for _ in range(ROUNDS):
            best = (scores * alive).argmax()
            alive = alive * (overlaps(boxes, boxes.index_select(0, best.view(1))[0]) < 0.3)
            if form == "a" and not bool(alive.any()):
                break
        return alive

    return step
