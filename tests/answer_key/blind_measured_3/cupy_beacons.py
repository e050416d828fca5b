"""Waves over a coast in CuPy; beacons are heard on a second stream meanwhile. b: heard in a third of it (wins nothing)."""

import cupy as cp

N = 48 * 128
source = """extern "C" __global__ void waves(float* x, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  for (int k = 0; k < rounds; k++) v = v * 0.98f + __cosf(v - k);
  x[i] = v;
}
extern "C" __global__ void hear_beacons(float* y, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = y[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  y[i] = v;
}"""
waves, hear_beacons = (cp.RawKernel(source, name) for name in ("waves", "hear_beacons"))


def build(form):
    x, y = cp.zeros(N, cp.float32), cp.zeros(N, cp.float32)
    one, two = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    begun, heard = cp.cuda.Event(disable_timing=True), cp.cuda.Event(disable_timing=True)
    rounds = 6000 if form == "a" else 2000

    def step(i):
        begun.record(one)
        two.wait_event(begun)
        with one:
            waves((N // 128,), (128,), (x, 14000))
        with two:
            hear_beacons((N // 128,), (128,), (y, rounds))
        heard.record(two)
        one.wait_event(heard)
        return x

    return step
