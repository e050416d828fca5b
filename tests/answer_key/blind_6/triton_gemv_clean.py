"""Clean: a large matrix times a vector in Triton. Memory is the limit."""

import torch
import triton
import triton.language as tl

ROWS, C = 132 * 2048, 8192


@triton.jit
def matrix_vector(matrix, vector, out, C: tl.constexpr, ROWS_A_BLOCK: tl.constexpr):  # noqa: N803
    rows = tl.program_id(0).to(tl.int64) * ROWS_A_BLOCK + tl.arange(0, ROWS_A_BLOCK)
    total = tl.zeros((ROWS_A_BLOCK,), tl.float32)
    for at in range(0, C, 1024):
        columns = at + tl.arange(0, 1024)
        values = tl.load(matrix + rows[:, None] * C + columns[None, :]).to(tl.float32)
        total += tl.sum(values * tl.load(vector + columns).to(tl.float32)[None, :], 1)
    tl.store(out + rows, total)


def build(form):
    matrix = torch.randn(ROWS, C, device="cuda", dtype=torch.half)
    vector = torch.randn(C, device="cuda", dtype=torch.half)
    out = torch.empty(ROWS, device="cuda")

    def step(i):
        matrix_vector[(ROWS // 4,)](matrix, vector, out, C, 4)
        return out

    return step
