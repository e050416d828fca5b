"""Training under autocast that keeps the GPU busy, while the host formats a log. b: no log (wins nothing)."""

import json

import torch
from torch import nn

B, C, L = 16384, 2048, 4


def build(form):
    model = nn.Sequential(
        *(part for _ in range(L) for part in (nn.Linear(C, 2 * C), nn.GELU(), nn.Linear(2 * C, C)))
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    x, lines = torch.randn(B, C, device="cuda"), []

    def step(i):
        with torch.autocast("cuda", torch.bfloat16):
            loss = (model(x).float() - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if form == "a":
            with torch.cuda.nvtx.range("write log"):
                lines.clear()
                lines.extend(json.dumps({"step": i, "layer": layer, "rate": 1e-5 * layer}) for layer in range(300))

    return step
