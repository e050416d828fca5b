"""Training of a net on large graphs. a: six tensors of each batch are uploaded by themselves, b: in one copy (wins nothing)."""

import torch
from torch import nn

NODES, EDGES, C, L = 65536, 262144, 512, 3


def build(form):
    layers = nn.ModuleList(nn.Linear(C, C) for _ in range(L)).cuda().bfloat16()
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3, fused=True)
    x = torch.randn(NODES, C, device="cuda", dtype=torch.bfloat16)
    source, target = torch.randint(NODES, (2, EDGES), device="cuda")
    parts = [torch.randn(512).pin_memory() for _ in range(6)]
    joined = torch.cat(parts).pin_memory()

    def step(i):
        if form == "a":
            there = [part.to("cuda", non_blocking=True) for part in parts]
        else:
            there = joined.to("cuda", non_blocking=True).split(512)
        y = x
        for at, layer in enumerate(layers):
            z = (layer(y) * there[at].bfloat16()).relu()
            y = y + torch.zeros_like(z).index_add_(0, target, z[source])
        ((y.mean(0).float() - there[3] + there[4] * there[5]).square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
