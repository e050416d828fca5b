"""A large sum in CuPy, random walks on a second stream meanwhile. a: walks on four blocks, b: on 64 (wins nothing: they are hidden)."""

import cupy as cp

N, WALKERS, LENGTH = 1 << 30, 16384, 2000
SAME = 1e-4

SOURCE = """
extern "C" __global__ void walk(float* places, int walkers, int length) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < walkers; i += gridDim.x * blockDim.x) {
    unsigned state = i * 2654435761u + 1;
    float place = 0;
    for (int k = 0; k < length; k++) {
      state = state * 1664525u + 1013904223u;
      place += (state >> 31) ? 1.0f : -1.0f;
    }
    places[i] = place;
  }
}
"""


def build(form):
    x, y, out = (cp.full(N, number, cp.float32) for number in (1, 2, 0))
    places = cp.zeros(WALKERS, cp.float32)
    walk = cp.RawModule(code=SOURCE).get_function("walk")
    add = cp.ElementwiseKernel("T x, T y", "T out", "out = x + 3 * y", "add_scaled")
    beside = cp.cuda.Stream(non_blocking=True)
    begun, ended = cp.cuda.Event(disable_timing=True), cp.cuda.Event(disable_timing=True)
    blocks = 4 if form == "a" else WALKERS // 256

    def step(i):
        here = cp.cuda.get_current_stream()
        here.record(begun)
        beside.wait_event(begun)
        with beside:
            walk((blocks,), (256,), (places, cp.int32(WALKERS), cp.int32(LENGTH)))
        beside.record(ended)
        add(x, y, out)
        here.wait_event(ended)
        return places

    return step
