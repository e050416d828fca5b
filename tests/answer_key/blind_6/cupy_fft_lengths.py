"""Spectra of twenty sensors, each with its own length. a: CuPy's cache of 16 plans never has the next one, b: plans are kept."""

import cupy as cp
import cupyx.scipy.fft as fft

ROWS, SENSORS = 64, 20


def build(form):
    signals = [cp.random.random((ROWS, 2048 + 128 * k), dtype=cp.float32).astype(cp.complex64) for k in range(SENSORS)]
    plans = [fft.get_fft_plan(signal, axes=1) for signal in signals] if form == "b" else [None] * SENSORS

    def step(i):
        return [fft.fft(signal, axis=1, plan=plan) for signal, plan in zip(signals, plans, strict=True)]

    return step
