"""A product of one's own in Triton. a: in full float32, b: in TF32."""

import torch
import triton
import triton.language as tl

N, M, K, TILE, DEEP = 2048, 2048, 2048, 64, 32


@triton.jit
def multiply(a, b, c, n, k, TILE: tl.constexpr, DEEP: tl.constexpr, HOW: tl.constexpr):  # noqa: N803
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, k, DEEP):
        deep = start + tl.arange(0, DEEP)
        left = tl.load(a + rows[:, None] * k + deep[None, :])
        right = tl.load(b + deep[:, None] * n + columns[None, :])
        total += tl.dot(left, right, input_precision=HOW)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


def build(form):
    a, b, c = (torch.randn(shape, device="cuda") for shape in ((M, K), (K, N), (M, N)))
    how = "ieee" if form == "a" else "tf32"

    def step(i):
        multiply[(M // TILE, N // TILE)](a, b, c, N, K, TILE, DEEP, how)
        return c

    return step
