"""Scores that are signed block by block with SHA-256 before the next batch begins. a: by the loop, b: by threads, meanwhile."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

B, C, L, BLOCKS = 4096, 2048, 4, 32


def build(form):
    net = nn.Sequential(*(nn.Sequential(nn.Linear(C, C), nn.ReLU()) for _ in range(L))).cuda().half()
    x = torch.randn(B, C, device="cuda", dtype=torch.half)
    host = [torch.empty(B, C, dtype=torch.half).pin_memory() for _ in range(2)]
    pool, signing = ThreadPoolExecutor(6), []

    def sign(block):
        return hashlib.sha256(memoryview(block).cast("B")).digest()

    @torch.no_grad()
    def step(i):
        scores = host[i % 2]
        scores.copy_(net(x), non_blocking=True)
        for one in signing:
            one.result()
        signing.clear()
        torch.cuda.current_stream().synchronize()
        for block in scores.numpy()[::2].reshape(BLOCKS, -1) if form == "a" else ():
            sign(block)
        if form == "b":
            signing.extend(pool.submit(sign, block) for block in scores.numpy()[::2].reshape(BLOCKS, -1))

    return step
