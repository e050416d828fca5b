"""Shading of a terrain in CuPy. a: array by array, b: one elementwise kernel."""

import cupy as cp

SIDE = 2048
shade_kernel = cp.ElementwiseKernel(
    "float32 east, float32 north, float32 height",
    "float32 light",
    "light = sqrtf(fmaxf(0.0f, (east * 0.4f + north * 0.5f + 0.7f) / (1.0f + east * east + north * north))) * (1.0f - height * 0.1f)",
    "shade_kernel",
)


def shade(east, north, height):
    slope = east * 0.4 + north * 0.5 + 0.7
    light = cp.maximum(0.0, slope / (1.0 + east * east + north * north))
    return cp.sqrt(light) * (1.0 - height * 0.1)


def build(form):
    height = cp.random.random((SIDE, SIDE), dtype=cp.float32)
    east, north = cp.roll(height, 1, 1) - height, cp.roll(height, 1, 0) - height
    function = shade if form == "a" else shade_kernel

    def step(i):
        light = function(east, north, height)
        return cp.fft.rfft2(light)

    return step
