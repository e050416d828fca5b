"""Spectra of 64 channels in CuPy. a: one transform for each channel, b: one for all."""

import cupy as cp

CHANNELS, SAMPLES = 64, 16_384


def build(form):
    x = cp.random.random((CHANNELS, SAMPLES), dtype=cp.float32)
    spectra = cp.empty((CHANNELS, SAMPLES // 2 + 1), cp.complex64)

    def step(i):
        if form == "b":
            spectra[...] = cp.fft.rfft(x, axis=1)
            return
        for channel in range(CHANNELS):
            spectra[channel] = cp.fft.rfft(x[channel])

    return step
