"""Matched filters over a radar's pulses in CuPy. a: the pulses lie in NumPy arrays, b: in pinned ones."""

import cupy as cp
import cupyx
import numpy as np

PULSES, N, FILTERS = 512, 4096, 8


def build(form):
    rng, hosts = np.random.default_rng(0), []
    for _ in range(4):
        host = np.empty((PULSES, N), np.complex64) if form == "a" else cupyx.empty_pinned((PULSES, N), np.complex64)
        host[:] = rng.standard_normal((PULSES, N), dtype=np.float32)
        hosts.append(host)
    filters = cp.random.standard_normal((FILTERS, N), dtype=cp.float32).astype(cp.complex64)
    pulses = cp.empty((PULSES, N), cp.complex64)

    def step(i):
        pulses.set(hosts[i % 4])
        spectrum = cp.fft.fft(pulses, axis=1)
        return [cp.abs(cp.fft.ifft(spectrum * one, axis=1)).max(axis=1) for one in filters]

    return step
