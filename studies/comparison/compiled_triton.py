"""Write a census of Triton kernels as the installed Triton compiles them for sm_90, for a bisection. It needs no GPU.

python studies/comparison/compiled_triton.py    write $OUT/census.csv; $WARPS and $STAGES are launch options
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[2]))  # behind PYTHONPATH, which names the Triton of a state

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels import census


@triton.jit  # type: ignore[untyped-decorator]
def softmax_rows(x, y, columns: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Softmax of a row."""
    at = tl.arange(0, block)
    row = tl.program_id(0).to(tl.int64) * columns
    value = tl.load(x + row + at, mask=at < columns, other=float("-inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(y + row + at, value / tl.sum(value, 0), mask=at < columns)


@triton.jit  # type: ignore[untyped-decorator]
def matmul_tiles(a, b, c, n: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """A tile of a product of two square matrices of halves."""
    rows = tl.program_id(0) * block + tl.arange(0, block)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    inner = tl.arange(0, 32)
    found = tl.zeros((block, block), tl.float32)
    for k in range(0, n, 32):
        left = tl.load(a + rows[:, None] * n + k + inner[None, :])
        right = tl.load(b + (k + inner)[:, None] * n + columns[None, :])
        found += tl.dot(left, right)
    tl.store(c + rows[:, None] * n + columns[None, :], found)


KERNELS = (
    (softmax_rows, {"x": "*fp32", "y": "*fp32"}, {"columns": 1000, "block": 1024}),
    (matmul_tiles, {"a": "*fp16", "b": "*fp16", "c": "*fp32"}, {"n": 1024, "block": 64}),
)


def main() -> int:
    """Compile every kernel, and write its row."""
    out = Path(os.environ["OUT"])
    options = {"num_warps": int(os.environ.get("WARPS", "4")), "num_stages": int(os.environ.get("STAGES", "3"))}
    rows = []
    for kernel, pointers, constants in KERNELS:
        signature = pointers | dict.fromkeys(constants, "constexpr")
        source = ASTSource(
            kernel, signature, {(list(signature).index(name),): value for name, value in constants.items()}
        )
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        cubin = out / f"{kernel.__name__}.o"
        cubin.write_bytes(made.asm["cubin"])
        (code,) = census.read_sass(census.dump("-sass", cubin)).values()
        local = sum(sum(census.accesses(code.opcodes, root).values()) for root in ("LDL", "STL"))
        rows.append(
            {
                "op": "triton", "source": Path(__file__).name, "kernel": kernel.__name__, "sm": "90",
                "nvcc": f"triton {triton.__version__}", "local_instructions": str(local),
                "shared_bytes": str(made.metadata.shared), "instructions": str(code.opcodes.total()),
                "code_bytes": str(code.code_bytes),
            }
        )  # fmt: skip
    (out / "census.csv").write_text(census.csv_text(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
