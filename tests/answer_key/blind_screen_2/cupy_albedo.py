"""Light reflected by a planet's surface in CuPy. a: array by array, b: one fused function."""

import cupy as cp

N = 1 << 24


def reflected(sun, snow, leaf, dust):
    ground = 0.15 + 0.6 * snow + 0.08 * leaf * (1 - snow)
    air = cp.exp(-0.3 * dust / (sun + 0.05))
    sky = 0.5 * (1 - air)
    return cp.maximum(sun * air * air * ground / (1 - ground * sky) + sun * sky, 0)


def build(form):
    function = cp.fuse()(reflected) if form == "b" else reflected
    sun, snow, leaf, dust = (cp.random.random(N, dtype=cp.float32) for _ in range(4))

    def step(i):
        return cp.sort(function(sun, snow, leaf, dust)[: N // 8])

    return step
