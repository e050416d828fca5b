"""Snapshots of a flow projected to modes in CuPy. a: the modes are turned in each step, b: once (wins nothing)."""

import cupy as cp

BLOCKS, ROWS, C, MODES = 4, 32768, 4096, 1024
SAME = 1e-2


def build(form):
    random = cp.random.RandomState(0)
    blocks = [random.random_sample((ROWS, C), dtype=cp.float32).astype(cp.float16) for _ in range(BLOCKS)]
    modes = random.random_sample((MODES, C), dtype=cp.float32).astype(cp.float16) * cp.float16(0.01)
    kept = cp.ascontiguousarray(modes.T)

    def step(i):
        turned = cp.ascontiguousarray(modes.T) if form == "a" else kept
        return [block @ turned for block in blocks][-1]

    return step
