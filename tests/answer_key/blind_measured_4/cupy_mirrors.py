"""Light between mirrors in CuPy, many small calls a step. a: roots by 64 rounds of Newton, b: by 16 (wins nothing)."""

import cupy as cp

N = 1 << 14
SAME = 1e-4
source = """extern "C" __global__ void find_roots(const float* x, float* y, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = 1.0f + x[i];
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + x[i] / v);
  y[i] = v;
}"""
find_roots = cp.RawKernel(source, "find_roots")


def build(form):
    light, root = cp.linspace(1, 9, N, dtype=cp.float32), cp.zeros(N, cp.float32)
    rounds = 64 if form == "a" else 16

    def step(i):
        total = light * 1.0
        for _ in range(20):
            find_roots((N // 128,), (128,), (light, root, rounds))
            total = cp.sqrt(total + root) * 0.9
        return total

    return step
