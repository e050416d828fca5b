"""A translator that calls gc.collect() once in 16 steps, among many live objects. b: it never does."""

import gc

import torch
from torch import nn

B, C, T, V = 2048, 1024, 12, 32000
memory = [(number, [number]) for number in range(100_000)]


def build(form):
    cells = nn.ModuleList(nn.GRUCell(C, C) for _ in range(2)).cuda().half()
    embed, head = nn.Embedding(V, C).cuda().half(), nn.Linear(C, V).cuda().half()

    @torch.no_grad()
    def step(i):
        if i % 16 == 11 and form == "a":
            gc.collect()
        ids = torch.ones(B, dtype=torch.long, device="cuda")
        states = [torch.zeros(B, C, device="cuda", dtype=torch.half) for _ in cells]
        for _ in range(T):
            x = embed(ids)
            for layer, cell in enumerate(cells):
                x = states[layer] = cell(x, states[layer])
            ids = head(x).argmax(1)
        return ids.sum().item()

    return step
