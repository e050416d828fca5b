"""Compressed sensing by iterated FFT thresholds in CuPy. a: the host reads two norms an iteration, b: none."""

import cupy as cp

N = 512


def build(form):
    rng = cp.random.RandomState(0)
    image, mask = rng.standard_normal((N, N), dtype=cp.float32), rng.standard_normal((N, N), dtype=cp.float32) > 0
    state = {"x": image.copy()}

    def step(i):
        for _ in range(3):
            x = state["x"]
            spectrum = cp.fft.fft2(x)
            size = cp.abs(spectrum).max()
            if form == "a" and float(size) < 0:
                return
            spectrum *= cp.abs(spectrum) > 0.01 * size
            new = cp.where(mask, image, cp.fft.ifft2(spectrum).real)
            change = cp.abs(new - x).sum()
            if form == "a" and float(change) < 0:
                return
            state["x"] = new

    return step
