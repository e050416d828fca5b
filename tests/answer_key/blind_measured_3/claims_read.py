"""Insurance claims: the host parses dates, then the GPU scores them and the host reads one number. b: parsed before."""

import datetime

import torch

N, C, L = 4096, 4096, 6


def build(form):
    layers = [torch.randn(C, C, device="cuda", dtype=torch.bfloat16) * C**-0.5 for _ in range(L)]
    x = torch.randn(N, C, device="cuda", dtype=torch.bfloat16)
    dates = [f"20{k % 30:02d}-{k % 12 + 1:02d}-{k % 28 + 1:02d}" for k in range(2500)]

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("parse dates"):
            if form == "a":
                sum(datetime.date.fromisoformat(one).toordinal() for one in dates)
        y = x
        for layer in layers:
            y = torch.relu(y @ layer)
        return y.float().mean().item()

    return step
