"""Sampling of the next token from a decoder's logits. a: top-k on the host in NumPy, b: on the GPU."""

import numpy as np
import torch
from parts import Block
from torch import nn

B, T, C, V, L, K = 8, 64, 512, 32000, 3, 50


def build(form):
    blocks = nn.Sequential(*(Block(C, 8) for _ in range(L))).cuda().half()
    head, token = nn.Linear(C, V, bias=False).cuda().half(), nn.Embedding(V, C).cuda().half()
    ids, rng = torch.randint(V, (B, T), device="cuda"), np.random.default_rng(0)

    def on_host(logits):
        values = logits.float().cpu().numpy()
        best = np.argpartition(values, -K, axis=1)[:, -K:]
        kept = np.take_along_axis(values, best, 1)
        weights = np.exp(kept - kept.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        chosen = [best[row, rng.choice(K, p=weights[row] / weights[row].sum())] for row in range(B)]
        return torch.tensor(chosen, device="cuda")

    @torch.no_grad()
    def step(i):
        logits = head(blocks(token(ids))[:, -1])
        with torch.cuda.nvtx.range("sample"):
            if form == "a":
                chosen = on_host(logits)
            else:
                values, best = logits.float().topk(K)
                chosen = best.gather(1, torch.multinomial(values.softmax(1), 1))[:, 0]
        ids[:, i % T] = chosen

    return step
