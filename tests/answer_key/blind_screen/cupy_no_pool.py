"""Black-Scholes in CuPy array by array. a: without a memory pool, so that each array is a cudaMalloc, b: with it."""

import cupy as cp
from cupyx.scipy.special import erf

N = 1 << 22
pool = cp.cuda.MemoryPool()


def build(form):
    price, strike, time = (cp.random.random(N, dtype=cp.float32) + 0.5 for _ in range(3))

    def step(i):
        cp.cuda.set_allocator(None if form == "a" else pool.malloc)
        spread = 0.3 * cp.sqrt(time)
        one = (cp.log(price / strike) + 0.05 * time) / spread
        two = one - spread
        return price * erf(one) - strike * cp.exp(-0.02 * time) * erf(two)

    return step
