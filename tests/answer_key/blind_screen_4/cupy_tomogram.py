"""Filtered projections in CuPy by FFT, which take milliseconds; angles come from the host. a: pageable, b: pinned (wins nothing)."""

import cupy as cp
import cupyx
import numpy as np

ANGLES, WIDTH, TIMES, MOVED = 16384, 8192, 6, 8


def build(form):
    angles = np.random.default_rng(0).random((MOVED, WIDTH), dtype=np.float32)
    host = angles
    if form == "b":
        host = cupyx.empty_pinned(angles.shape, dtype=np.float32)
        host[:] = angles
    offsets = cp.zeros((MOVED, WIDTH), dtype=cp.float32)
    views = cp.random.random((ANGLES, WIDTH), dtype=cp.float32)
    ramp = cp.abs(cp.fft.rfftfreq(WIDTH)).astype(cp.float32)

    def step(i):
        offsets.set(host)
        found = views
        for _ in range(TIMES):
            found = cp.fft.irfft(cp.fft.rfft(found, axis=1) * ramp, axis=1)
        found[:MOVED] += offsets
        return found

    return step
