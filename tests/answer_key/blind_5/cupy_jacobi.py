"""Jacobi iterations in CuPy, twenty a step. a: each iteration asks whether it has converged, b: the last one does."""

import cupy as cp

SIDE, TIMES = 1024, 20
source = r"""
extern "C" __global__ void jacobi(const float* x, float* y, float* change, int side) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, row = i / side, column = i % side;
  if (row == 0 || column == 0 || row == side - 1 || column == side - 1) return;
  y[i] = 0.25f * (x[i - 1] + x[i + 1] + x[i - side] + x[i + side]);
  change[i] = fabsf(y[i] - x[i]);
}
"""


def build(form):
    jacobi = cp.RawKernel(source, "jacobi")
    x, change = cp.random.random((SIDE, SIDE), dtype=cp.float32), cp.zeros((SIDE, SIDE), cp.float32)
    y, side = x.copy(), cp.int32(SIDE)

    def step(i):
        nonlocal x, y
        for k in range(TIMES):
            jacobi((SIDE * SIDE // 256,), (256,), (x, y, change, side))
            x, y = y, x
            most = change.max()
            if (form == "a" or k == TIMES - 1) and float(most) < 1e-9:
                break

    return step
