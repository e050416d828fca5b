"""Clean: a radix sort of many keys by CuPy. Nothing of the program is to blame."""

import cupy as cp


def build(form):
    keys = cp.random.randint(0, 1 << 31, 1 << 28, dtype=cp.int32)
    return lambda i: cp.sort(keys)
