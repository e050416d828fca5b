"""Kelp through a net; its first number is read, then the host hashes a block of the log. a: 2 MB, b: 1 MB."""

import hashlib

import torch

N, C, L = 8192, 2048, 8
SAME = 2e-2


def build(form):
    torch.manual_seed(0)
    layers = [torch.randn(C, C, device="cuda", dtype=torch.bfloat16) * C**-0.5 for _ in range(L)]
    kelp = torch.randn(N, C, device="cuda", dtype=torch.bfloat16)
    block = bytes(range(256)) * (8192 if form == "a" else 4096)

    @torch.no_grad()
    def step(i):
        y = kelp
        for layer in layers:
            y = torch.relu(y @ layer)
        step.first = y[0, 0].item()
        with torch.cuda.nvtx.range("hash block"):
            step.digest = hashlib.blake2b(block).digest()
        return y

    return step
