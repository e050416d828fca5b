"""Frozen features from pinned memory to a small head, each batch beside the one before. a: float32, b: bfloat16."""

import torch
from torch import nn

B, C = 16384, 2048


def build(form):
    kind = torch.float32 if form == "a" else torch.bfloat16
    head = nn.Sequential(nn.Linear(C, 1024), nn.ReLU(), nn.Linear(1024, 16)).cuda().bfloat16()
    host = torch.randn(B, C).to(kind).pin_memory()
    up, work = torch.cuda.Stream(), torch.cuda.current_stream()
    held = [torch.empty(B, C, device="cuda", dtype=kind) for _ in range(2)]
    came, used = [torch.cuda.Event() for _ in range(2)], [torch.cuda.Event() for _ in range(2)]

    @torch.no_grad()
    def step(i):
        at = i % 2
        with torch.cuda.stream(up):
            used[at].wait(up)
            held[at].copy_(host, non_blocking=True)
            came[at].record(up)
        came[at].wait(work)
        result = head(held[at].bfloat16()).argmax(1)
        used[at].record(work)
        return result

    return step
