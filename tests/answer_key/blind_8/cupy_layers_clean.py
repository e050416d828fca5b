"""Clean: two layers of a film are blended in one CuPy kernel. Memory is the limit."""

import cupy as cp

N = 1 << 27


def build(form):
    below, above, share = (cp.full(N, number, cp.float32) for number in (0.2, 0.7, 0.5))
    blend = cp.ElementwiseKernel("T below, T above, T share", "T out", "out = below + share * (above - below)", "blend")
    out = cp.empty_like(below)
    return lambda i: blend(below, above, share, out)
