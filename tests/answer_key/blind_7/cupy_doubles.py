"""Sums of a Fourier series in CuPy. a: in float64, as CuPy makes arrays, b: in float32."""

import cupy as cp

N, TERMS = 1 << 22, 24


def build(form):
    dtype = cp.float64 if form == "a" else cp.float32
    angles = cp.linspace(0, 6.28, N).astype(dtype)
    series = cp.ElementwiseKernel(
        "T x", "T y", f"y = 0; for (int k = 1; k <= {TERMS}; k++) y += sin(k * x) / (T)(k * k);", "series"
    )
    return lambda i: series(angles).sum()
