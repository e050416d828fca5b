"""Rows of a quilt are stitched by a Triton kernel at the roof of memory, then another cloth is dyed. a: patches of 32 bits, b: 16."""

import torch
import triton
import triton.language as tl

ROWS, WIDTH, CLOTH, TIMES = 1 << 15, 4096, 1 << 25, 4
SAME = 1e-5


@triton.jit
def stitch_rows(patches, rows, width: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    values = tl.load(patches + row * width + tl.arange(0, width))
    tl.store(rows + row, tl.sum(values.to(tl.float32), 0))


def build(form):
    patches = torch.arange(ROWS * WIDTH, device="cuda").remainder(97).to(torch.int32 if form == "a" else torch.int16)
    rows = torch.zeros(ROWS, device="cuda")
    cloth = torch.linspace(0, 1, CLOTH, device="cuda")
    dyed = torch.empty_like(cloth)

    @torch.no_grad()
    def step(i):
        for _ in range(TIMES):
            stitch_rows[(ROWS,)](patches, rows, WIDTH)
            torch.sin(cloth, out=dyed)
        return rows

    return step
