"""Clean: large products in float16 with CuPy, launched long before the GPU needs them. The tensor cores are the limit."""

import cupy as cp

N = 8192


def build(form):
    a, b = (cp.random.random((N, N), dtype=cp.float32).astype(cp.float16) for _ in "ab")
    out = cp.empty((N, N), cp.float16)

    def step(i):
        for _ in range(3):
            cp.matmul(a, b, out=out)
        return out

    return step
