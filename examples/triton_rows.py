"""Softmax of rows and a sum of columns in Triton, the second with a stride that wastes most of each sector.

Run        python examples/triton_rows.py [rows] [columns]
Expert's list, before any capture
1. `column_sums` reads one float of each sector of 32 bytes: most of its traffic is wasted.
2. `softmax_rows` is at the DRAM roof: only fusing it with what follows helps.
3. `x * 2 + 1` between them is two kernels of PyTorch that either Triton kernel could take over.
"""

import sys

import torch

if not torch.cuda.is_available():
    sys.exit("This example needs an NVIDIA GPU.")

import triton
import triton.language as tl


@triton.jit
def softmax_rows(source, target, columns, BLOCK: tl.constexpr):  # noqa: N803
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(source + row * columns + at, mask=at < columns, other=float("-inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(target + row * columns + at, x / tl.sum(x, axis=0), mask=at < columns)


@triton.jit
def column_sums(source, target, rows, columns, BLOCK: tl.constexpr):  # noqa: N803
    column, total = tl.program_id(0), tl.zeros((BLOCK,), tl.float32)
    for first in range(0, rows, BLOCK):
        row = first + tl.arange(0, BLOCK)
        total += tl.load(source + row * columns + column, mask=row < rows, other=0.0)
    tl.store(target + column, tl.sum(total, axis=0))


rows, columns = (int(word) for word in (sys.argv[1:3] or (32768, 4096)))
x = torch.randn(rows, columns, device="cuda")
y, sums = torch.empty_like(x), torch.empty(columns, device="cuda")
for _ in range(8):
    softmax_rows[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
    z = y * 2 + 1
    column_sums[(columns,)](z, sums, rows, columns, BLOCK=1024)
torch.testing.assert_close(sums, (torch.softmax(x, dim=1) * 2 + 1).sum(0), rtol=1e-3, atol=1e-3)
print("correct")
