"""Two filters over large seismic sections by FFT in CuPy. a: one after the other, b: on two streams (wins nothing)."""

import cupy as cp

ROWS, N = 16384, 4096


def build(form):
    sections = [cp.random.random((ROWS, N), dtype=cp.float32) for _ in range(2)]
    filters = [cp.exp(-cp.arange(N // 2 + 1, dtype=cp.float32) / width).astype(cp.complex64) for width in (90, 400)]
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)] if form == "b" else [cp.cuda.Stream.null] * 2
    cp.cuda.Device().synchronize()

    def step(i):
        for section, kept, stream in zip(sections, filters, streams, strict=True):
            with stream:
                spectrum = cp.fft.rfft(section)
                spectrum *= kept
                cp.fft.irfft(spectrum)

    return step
