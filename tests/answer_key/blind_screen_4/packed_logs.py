"""Anomaly scores of compressed log blocks. a: the loop inflates each block before it is scored, b: threads do so ahead."""

import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn

B, C, THREADS, AHEAD = 2048, 1024, 6, 8


def build(form):
    net = (
        nn.Sequential(nn.Linear(C, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 1)).cuda().half()
    )
    values = np.random.default_rng(0).integers(0, 12, (B, C)).astype(np.float16)
    packed = zlib.compress(values.tobytes(), 1)
    pool, coming = ThreadPoolExecutor(THREADS), deque()

    def block():
        return torch.frombuffer(bytearray(zlib.decompress(packed)), dtype=torch.half).view(B, C)

    def following():
        if form == "a":
            return block()
        while len(coming) < AHEAD:
            coming.append(pool.submit(block))
        return coming.popleft().result()

    @torch.no_grad()
    def step(i):
        with torch.cuda.nvtx.range("next block"):
            x = following()
        with torch.cuda.nvtx.range("score"):
            return net(x.to("cuda")).float().mean().item()

    return step
