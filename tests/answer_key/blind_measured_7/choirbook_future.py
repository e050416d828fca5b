"""A thread of a pool draws the next chorus in numpy while the GPU sings ten times as long. b: 0.3 of the draws (wins nothing)."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

N, LINES, USED = 1 << 27, 10, 64
SAME = 1e-5


def build(form):
    drawn = 40000 if form == "a" else 12000
    voices, sung = torch.linspace(0, 1, N, device="cuda"), torch.empty(N, device="cuda")
    chorus = [torch.empty(USED).pin_memory() for _ in range(2)]
    here = [torch.empty(USED, device="cuda") for _ in range(2)]
    over = [torch.cuda.Event(), torch.cuda.Event()]
    pool = ThreadPoolExecutor(1)

    def draw(number):
        with torch.cuda.nvtx.range("draw chorus"):
            return np.random.default_rng(number).standard_normal(drawn, dtype=np.float32)[:USED]

    waiting = [pool.submit(draw, 0)]

    @torch.no_grad()
    def step(i):
        now = i % 2
        over[now].synchronize()
        chorus[now].numpy()[:] = waiting.pop().result()
        waiting.append(pool.submit(draw, i + 1))
        here[now].copy_(chorus[now], non_blocking=True)
        torch.mul(voices.view(-1, USED), here[now], out=sung.view(-1, USED))
        for _ in range(LINES):
            torch.sin(sung, out=sung)
        over[now].record()
        return sung

    return step
