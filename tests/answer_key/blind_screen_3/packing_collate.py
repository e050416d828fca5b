"""Training on packed texts. a: Python packs texts of many lengths into rows in the loop, b: that was done before."""

import random

import torch
from torch import nn

ROWS, T, C, V = 64, 512, 512, 8192


def build(form):
    embed, head = nn.Embedding(V, C).cuda().bfloat16(), nn.Linear(C, V).cuda().bfloat16()
    mix = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C)).cuda().bfloat16()
    weights = [*embed.parameters(), *head.parameters(), *mix.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.01, fused=True)
    rng = random.Random(3)
    texts = [list(range(5, 5 + rng.randrange(16, 160))) for _ in range(4000)]

    def pack():
        rows = [[] for _ in range(ROWS)]
        for text in sorted(rng.sample(texts, 420), key=len, reverse=True):
            for row in rows:
                if len(row) + len(text) < T:
                    row += text
                    row.append(2)
                    break
        return torch.tensor([row + [0] * (T - len(row)) for row in rows])

    known = pack().pin_memory()

    def step(i):
        with torch.cuda.nvtx.range("pack"):
            batch = pack() if form == "a" else known
        with torch.cuda.nvtx.range("train"):
            ids = batch.to("cuda", non_blocking=True)
            x = embed(ids[:, :-1])
            loss = nn.functional.cross_entropy(head(x + mix(x)).flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return step
