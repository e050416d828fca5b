"""Beams of an antenna array in CuPy. a: the steering vectors go to the GPU for each block of samples, b: once."""

import cupy as cp
import numpy as np

BEAMS, ANTENNAS, SAMPLES = 1024, 1024, 2048


def build(form):
    angles = np.linspace(-1, 1, BEAMS, dtype=np.float32)[:, None] * np.arange(ANTENNAS, dtype=np.float32)
    vectors = np.exp(1j * angles).astype(np.complex64)
    kept = cp.asarray(vectors)
    samples = cp.ones((ANTENNAS, SAMPLES), cp.complex64)

    def step(i):
        steering = cp.asarray(vectors) if form == "a" else kept
        return cp.abs(steering @ samples).mean(axis=1)

    return step
