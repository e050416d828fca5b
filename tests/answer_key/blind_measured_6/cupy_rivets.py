"""Rivets are set by 32 kernels of CuPy. a: 800 rounds each, b: 100, and CuPy's launches limit."""

import cupy as cp

BLOCKS, COUNT = 128, 32
N = BLOCKS * 256
SAME = 1e-4
source = """
extern "C" __global__ void set_rivet(float* rivets, int number, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 2 + (i + number) % 43, v = x;
  for (int k = 0; k < rounds; k++) v = 0.5f * (v + __fdividef(x, v));
  rivets[i] = 0.5f * rivets[i] + v;
}"""
module = cp.RawModule(code=source)


def build(form):
    kernel, rivets = module.get_function("set_rivet"), cp.zeros(N, cp.float32)
    rounds = cp.int32(800 if form == "a" else 100)

    def step(i):
        for number in range(COUNT):
            kernel((BLOCKS,), (256,), (rivets, cp.int32(number), rounds))
        return rivets

    return step
