"""Orbits of satellites by Kepler's equation in CuPy, six Newton steps. a: array by array, b: one fused function for all steps."""

import cupy as cp

N = 1 << 18


def anomaly(mean, shape):
    angle = mean + shape * cp.sin(mean)
    for _ in range(6):
        angle = angle - (angle - shape * cp.sin(angle) - mean) / (1 - shape * cp.cos(angle))
    return angle


def build(form):
    function = cp.fuse()(anomaly) if form == "b" else anomaly
    mean, shape = cp.random.random(N, dtype=cp.float32) * 6, cp.random.random(N, dtype=cp.float32) * 0.3

    def step(i):
        angle = function(mean, shape)
        return cp.sort(angle), cp.argsort(mean - angle)

    return step
