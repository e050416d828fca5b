"""Counts of a detector are linearised in CuPy. a: the polynomial is in double precision, b: in single (wins nothing: memory is the limit)."""

import cupy as cp

N = 1 << 29
SAME = 1e-4


def build(form):
    kind = "double" if form == "a" else "float"
    counts = cp.linspace(0, 1, N, dtype=cp.float32)
    out = cp.empty_like(counts)
    linear = cp.ElementwiseKernel(
        "float32 count",
        "float32 out",
        f"""
        {kind} x = count;
        out = (float)(x * (({kind})1.02 + x * (({kind})0.03 + x * (({kind})-0.004 + x * ({kind})0.0005))));
        """,
        f"linear_{kind}",
    )
    return lambda i: linear(counts, out)
