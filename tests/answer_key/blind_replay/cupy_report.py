"""N-body forces in CuPy, and a text report that the host writes meanwhile. b: no report (wins nothing)."""

import cupy as cp

N = 24576
forces = cp.RawKernel(
    """extern "C" __global__ void forces(const float4* p, float4* f, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 me = p[i], sum = {0, 0, 0, 0};
  for (int k = 0; k < n; k++) {
    float4 other = p[k];
    float x = other.x - me.x, y = other.y - me.y, z = other.z - me.z, r = rsqrtf(x * x + y * y + z * z + 1e-3f);
    r = r * r * r * other.w; sum.x += x * r; sum.y += y * r; sum.z += z * r;
  }
  f[i] = sum;
}""",
    "forces",
)


def build(form):
    bodies = cp.random.standard_normal((N, 4), dtype=cp.float32)
    velocity, force = cp.zeros_like(bodies), cp.empty_like(bodies)
    lines = []

    def step(i):
        forces((N // 128,), (128,), (bodies, force, N))
        velocity[:] += force * 1e-6
        bodies[:, :3] += velocity[:, :3] * 1e-6
        if form == "a":
            cp.cuda.nvtx.RangePush("report")
            lines.clear()
            lines.extend(f"{i:6d} body {k:5d} cell {k % 97:3d}" for k in range(1500))
            cp.cuda.nvtx.RangePop()

    return step
