"""Norm, rotation and gate of long sequences, written by hand. a: eager, b: compiled."""

import torch

N, C = 32768, 2048


def chain(x, gate, weight, cosine, sine):
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight
    one, two = y.chunk(2, -1)
    y = torch.cat([one * cosine - two * sine, two * cosine + one * sine], -1)
    return y * gate * torch.sigmoid(gate)


def build(form):
    x, gate = (torch.randn(N, C, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    weight = torch.ones(C, device="cuda", dtype=torch.bfloat16)
    cosine, sine = (torch.randn(N, C // 2, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    run = torch.compile(chain) if form == "b" else chain

    @torch.no_grad()
    def step(i):
        return run(x, gate, weight, cosine, sine)

    return step
