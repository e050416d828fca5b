"""Advection of tracers in CuPy. a: a stopwatch waits for the GPU at both ends of each stage, b: it does not."""

import contextlib
import time

import cupy as cp

TRACERS, SIDE = 12, 3072
SAME = 1e-4


def build(form):
    flow = cp.random.RandomState(0).random_sample((SIDE, SIDE), dtype=cp.float32) * cp.float32(0.1)
    tracers = [cp.full((SIDE, SIDE), number + 1, cp.float32) for number in range(TRACERS)]
    upwind = cp.ElementwiseKernel(
        "raw T x, T speed, int32 side", "T y", "y = x[i] - speed * (x[i] - x[i >= side ? i - side : i])", "upwind"
    )
    decay = cp.ElementwiseKernel("T x, T speed", "T y", "y = x * (1 - speed * speed)", "decay")

    spent = {"advection": 0.0, "decay": 0.0}

    @contextlib.contextmanager
    def stopwatch(stage):
        if form == "a":
            cp.cuda.get_current_stream().synchronize()
        begun = time.perf_counter()
        yield
        if form == "a":
            cp.cuda.get_current_stream().synchronize()
        spent[stage] += time.perf_counter() - begun

    def step(i):
        for tracer in tracers:
            with stopwatch("advection"):
                moved = upwind(tracer, flow, SIDE)
            with stopwatch("decay"):
                moved = decay(moved, flow)
        return moved

    return step
