"""Ages of rocks in CuPy: decay chains, then their isochrons. a: 2400 steps of decay, b: 1200."""

import cupy as cp

N = 1 << 20
source = """extern "C" __global__ void decay(float* x, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  x[i] = v;
}
extern "C" __global__ void isochrons(const float* x, float* y, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  y[i] = v;
}"""
decay, isochrons = (cp.RawKernel(source, name) for name in ("decay", "isochrons"))


def build(form):
    x, y = cp.zeros(N, cp.float32), cp.zeros(N, cp.float32)

    def step(i):
        decay((N // 256,), (256,), (x, 2400 if form == "a" else 1200))
        isochrons((N // 256,), (256,), (x, y, 1800))
        return y

    return step
