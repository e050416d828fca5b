"""Tallies of a small village in CuPy, call by call. a: each is weighed in 200 rounds, b: in 100 (wins nothing)."""

import cupy as cp

N = 1 << 12
SAME = 1e-4
weigh = cp.ElementwiseKernel(
    "float32 x, int32 rounds",
    "float32 y",
    "float v = 1 + x; for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v)); y = v;",
    "weigh",
)


def build(form):
    rounds = cp.int32(200 if form == "a" else 100)
    grain = cp.linspace(1, 9, N, dtype=cp.float32)
    weighed = cp.empty_like(grain)

    def step(i):
        total = grain
        for _ in range(30):
            weigh(grain, rounds, weighed)
            total = cp.maximum(total * 0.9, weighed) + 0.1
        return total

    return step
