"""Fusion of 32 sensors in CuPy. a: each sensor's readings are uploaded by themselves, b: all of them at once."""

import cupy as cp
import numpy as np

SENSORS, N, CELLS = 32, 256, 1 << 18
fuse_readings = cp.RawKernel(
    """extern "C" __global__ void fuse_readings(const float* readings, float* map, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = map[i] * 0.9f;
  for (int k = 0; k < count; k++) sum += readings[k] * __expf(-fabsf(i * 1e-3f - k));
  map[i] = sum;
}""",
    "fuse_readings",
)


def build(form):
    host = np.random.default_rng(0).standard_normal((SENSORS, N), dtype=np.float32)
    readings, cells = cp.zeros((SENSORS, N), cp.float32), cp.zeros(CELLS, cp.float32)
    rows = [readings[k] for k in range(SENSORS)]

    def step(i):
        if form == "a":
            for row, values in zip(rows, host, strict=True):
                row.set(values)
        else:
            readings.set(host)
        fuse_readings((CELLS // 256,), (256,), (readings, cells, np.int32(SENSORS * N // 4)))

    return step
