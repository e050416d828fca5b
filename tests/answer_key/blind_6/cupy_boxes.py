"""Eight boxes of particles in CuPy, simulated on their own. a: on one stream, b: each box on its stream."""

import cupy as cp

BOXES, N = 8, 4096

SOURCE = r"""
extern "C" __global__ void box_NUMBER(const float2* now, float2* next, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float2 me = now[i];
  float x = 0, y = 0;
  for (int k = 0; k < n; k++) {
    float2 other = now[k];
    float dx = other.x - me.x, dy = other.y - me.y, near = dx * dx + dy * dy + 1e-3f;
    float push = rsqrtf(near) * (1.0f / near - 0.5f);
    x -= dx * push, y -= dy * push;
  }
  next[i] = make_float2(me.x + 1e-6f * x, me.y + 1e-6f * y);
}
"""


def build(form):
    kernels = [cp.RawKernel(SOURCE.replace("NUMBER", str(box)), f"box_{box}") for box in range(BOXES)]
    boxes = [[cp.random.random((N, 2), dtype=cp.float32), cp.empty((N, 2), cp.float32)] for _ in range(BOXES)]
    shared = cp.cuda.Stream(non_blocking=True)
    streams = [shared if form == "a" else cp.cuda.Stream(non_blocking=True) for _ in range(BOXES)]
    cp.cuda.Device().synchronize()

    def step(i):
        for _ in range(3):
            for kernel, box, stream in zip(kernels, boxes, streams, strict=True):
                with stream:
                    kernel((N // 256,), (256,), (box[0], box[1], cp.int32(N)))
                box.reverse()
        return boxes

    return step
