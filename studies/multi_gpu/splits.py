"""Predict single kernels that are split over GPUs, and our all-reduce: `python -m studies.multi_gpu.splits`.

Time on N GPUs: a floor, a share of the rest of the time on one GPU, and a transfer that nothing hides. The times on one
GPU are those of the committed benchmarks, as in predict.py.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats.console import guarded, run_program
from studies.multi_gpu import predict, times
from studies.multi_gpu.links import ALL_GATHER, ALL_REDUCE, links

TABLE = Path(__file__).with_name("predictions_splits.csv")
WINDOW, LONG = 256, 4096  # tokens
GPUS = (2, 4)
SIZES = tuple(1 << shift for shift in range(12, 23, 2))  # of an all-reduce, bytes
FLOOR_NS = 3_000  # of a kernel
OURS_NS, PEER_NS_BYTE = 7_000, 1 / 330  # our all-reduce: flags there and back; each byte of each peer over NVLink
COLUMNS = ("op", "split", "shape", "gpus", "one_ns", "transfer_ns", "predicted_ns", "speedup")


@dataclass(frozen=True)
class Split:
    """A way to split a kernel. `sent`: bytes as nccl-tests counts them of `collective`, which no kernel hides."""

    op: str
    by: str
    batch: int = 8
    tokens: int = 1024
    collective: str = ""
    sent: int = 0

    @property
    def shape(self) -> str:
        return f"B {self.batch}, T {self.tokens}, C 768"


_ROW = 768 * 4
SPLITS = (
    Split("residual", "rows"),
    Split("layernorm", "rows"),
    Split("matmul", "rows"),
    Split("matmul", "columns"),
    Split("matmul", "inner", collective=ALL_REDUCE, sent=8192 * 4 * _ROW),
    Split("attention", "batch"),
    Split("attention", "heads"),
    Split("attention", "sequence", 2, LONG, ALL_GATHER, 2 * 2 * LONG * _ROW),
    Split("windowed", "heads", 2, LONG),
    Split("windowed", "sequence", 2, LONG, ALL_GATHER, 2 * 2 * WINDOW * _ROW),
)


def one_ns(split: Split) -> float:
    """Return the predicted time on one GPU. A window takes the share of the pairs that blocks of its length compute."""
    if split.op in ("attention", "windowed"):
        pairs = split.batch * split.tokens**2 / (8 * 1024**2)
        share = 2 * WINDOW / (split.tokens / 2) if split.op == "windowed" else 1.0
        return predict.one_ns("attention", 8) * pairs * share
    return predict.one_ns(split.op, split.batch)


def rows(ceilings: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the predictions: each split, then all-reduces by NCCL (one_ns) and by ours (predicted_ns)."""
    for gpus in GPUS:
        between = links(times.runs().gpu, gpus, ceilings)
        for split in SPLITS:
            one = one_ns(split)
            sent = between[split.collective].time_ns(split.sent) if split.collective else 0.0
            many = FLOOR_NS + (one - FLOOR_NS) / gpus + sent
            yield _row(split.op, split.by, split.shape, gpus, one, sent, many)
        for size in SIZES:
            ours = OURS_NS + (gpus - 1) * size * PEER_NS_BYTE
            yield _row("all_reduce", "ours", f"{size} byte", gpus, between[ALL_REDUCE].time_ns(size), ours, ours)


def _row(op: str, by: str, shape: str, gpus: int, one: float, sent: float, many: float) -> dict[str, Any]:
    return dict(
        zip(COLUMNS, (op, by, shape, gpus, round(one), round(sent), round(many), round(one / many, 3)), strict=True)
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m studies.multi_gpu.splits", description=__doc__)
    parser.add_argument("--ceilings", type=Path, help="a ceilings.json with measured links")
    options = parser.parse_args(argv)

    def program() -> int:
        print(predict.text_of(rows(predict.ceilings_of(options.ceilings)), COLUMNS), end="")
        return 0

    return guarded(program)


if __name__ == "__main__":
    sys.exit(run_program(main))
