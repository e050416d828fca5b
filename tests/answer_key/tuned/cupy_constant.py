"""A cooling schedule in CuPy. a: the temperature is a constant of the source, so each step compiles; b: an argument."""

import itertools
import os

os.environ["CUPY_CACHE_IN_MEMORY"] = "1"  # CuPy reads it when it is imported

import cupy as cp

N = 1 << 24
SOURCE = """extern "C" __global__ void anneal(float* x, float t, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) { float e = x[i]; for (int k = 0; k < 40; k++) e = e * 0.999f + sinf(e) * %s; x[i] = e; }
}"""
fresh = itertools.count(1)


def build(form):
    x = cp.random.standard_normal(N, dtype=cp.float32)
    general = cp.RawKernel(SOURCE % "t", "anneal")

    def step(i):
        kernel = general
        if form == "a":
            cp.cuda.nvtx.RangePush("build kernel")
            kernel = cp.RawKernel(SOURCE % f"{1e-3 + next(fresh) * 1e-9:.12f}f", "anneal")
            kernel.compile()
            cp.cuda.nvtx.RangePop()
        for _ in range(20):
            kernel((N // 256,), (256,), (x, cp.float32(1e-3), N))
        x.sum()

    return step
