"""Lanterns are lit by a kernel on a second stream of CuPy that nobody reads, beside a longer one. b: not lit (wins nothing)."""

import cupy as cp

BLOCKS = 60
N = BLOCKS * 256
SAME = 1e-5
source = """
extern "C" __global__ void light_lanterns(float* lanterns, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = lanterns[i];
  for (int k = 0; k < rounds; k++) v = v * 0.96f + __cosf(v - k);
  lanterns[i] = v;
}
extern "C" __global__ void sail_boats(float* boats, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = boats[i];
  for (int k = 0; k < rounds; k++) v = v * 0.97f + __sinf(v + k);
  boats[i] = v;
}"""
module = cp.RawModule(code=source)


def build(form):
    light, sail = module.get_function("light_lanterns"), module.get_function("sail_boats")
    lanterns, boats = cp.zeros(N, cp.float32), cp.zeros(N, cp.float32)
    short, long = cp.int32(25000), cp.int32(60000)
    work, side = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    begun, lit = (cp.cuda.Event(disable_timing=True) for _ in range(2))
    cp.cuda.Device().synchronize()

    def step(i):
        begun.record(work)
        side.wait_event(begun)
        if form == "a":
            with side:
                light((BLOCKS,), (256,), (lanterns, short))
        lit.record(side)
        with work:
            sail((BLOCKS,), (256,), (boats, long))
            sail((BLOCKS,), (256,), (boats, long))
            work.wait_event(lit)
            sail((BLOCKS,), (256,), (boats, long))
        return boats

    return step
