"""A thread makes batches of velvet, more slowly than the GPU takes them. b: 0.3 of its work, and the GPU limits."""

import hashlib
import queue
import threading

import torch

N, C, L, SIZE = 8192, 4096, 4, 4096
SAME = 2e-2


def build(form):
    torch.manual_seed(0)
    rounds = 24000 if form == "a" else 7200
    layers = [torch.randn(C, C, device="cuda", dtype=torch.bfloat16) * C**-0.5 for _ in range(L)]
    velvet = torch.randn(N, C, device="cuda", dtype=torch.bfloat16)
    batches = queue.Queue(maxsize=2)

    def load():
        slots, number = [torch.zeros(SIZE).pin_memory() for _ in range(6)], 0
        while True:
            with torch.cuda.nvtx.range("make batch"):
                key = hashlib.pbkdf2_hmac("sha256", b"velvet", b"salt", rounds)  # without the interpreter's lock
                slots[number % 6].fill_(len(key) / 32)
            batches.put(slots[number % 6])
            number += 1

    threading.Thread(target=load, daemon=True).start()

    @torch.no_grad()
    def step(i):
        y = velvet * batches.get().to("cuda", torch.bfloat16, non_blocking=True)
        for layer in layers:
            y = torch.relu(y @ layer)
        step.first = y[0, 0].item()
        return y

    return step
