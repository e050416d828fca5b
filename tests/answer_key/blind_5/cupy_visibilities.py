"""A correlator of antennas in CuPy. a: the recorded voltages come from ordinary NumPy memory, b: from pinned memory."""

import cupy as cp
import cupyx
import numpy as np

ANTENNAS, SAMPLES = 32, 1 << 17


def build(form):
    recorded = np.random.default_rng(0).standard_normal((2, ANTENNAS, SAMPLES), dtype=np.float32)
    if form == "b":
        pinned = cupyx.empty_pinned(recorded.shape, recorded.dtype)
        pinned[...] = recorded
        recorded = pinned
    voltages = cp.empty((ANTENNAS, SAMPLES), cp.float32)
    stream = cp.cuda.get_current_stream()

    def step(i):
        voltages.set(recorded[i % 2], stream)
        spectra = cp.fft.rfft(voltages.reshape(ANTENNAS, -1, 256), axis=2)
        return (spectra[0] * spectra.conj()).mean(1)

    return step
