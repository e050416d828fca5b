"""Batches of long complex transforms in CuPy at the DRAM roof: nothing is worth doing."""

import cupy as cp

ROWS, LENGTH = 8192, 4096


def build(form):
    x = cp.random.random((ROWS, LENGTH), dtype=cp.float32).astype(cp.complex64)
    return lambda i: cp.fft.fft(x, axis=1)
