"""A launch timed by the plainest loop there is: launch, overwrite 256 MB, record an event, launch, record an event.

It shares nothing with harness/bench.py but the kernels: what both say of a ratio is not an accident of one of them.

    python -m tests.gpu.plain_loop BENCH.csv …      our fastest rung against the fastest library, row by row, beside it
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SAMPLES = 60
TOLERANCE = 0.03
ROUND = 10  # samples between two synchronisations: a queue holds about a thousand launches


class Ratio(NamedTuple):
    """How many times as fast our fastest rung is as the fastest library, as published and by the loop."""

    op: str
    dtype: str
    shape_name: str
    rung: str
    library: str
    published: float
    looped: float

    @property
    def apart(self) -> float:
        return abs(self.looped / self.published - 1)


def medians(runs: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median microseconds of one launch of each, in turn, caches overwritten before each."""
    import torch

    flush = torch.empty(64 << 20, dtype=torch.float32, device="cuda")
    for run in runs.values():
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(SAMPLES // ROUND):
        torch.cuda._sleep(20_000_000)  # ten milliseconds, in which the queue fills
        pairs = []
        for _ in range(ROUND):
            for name, run in runs.items():
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                run()  # so that its code is at hand
                flush.fill_(1.0)
                start.record()
                run()
                end.record()
                pairs.append((name, start, end))
        torch.cuda.synchronize()
        for name, start, end in pairs:
            times[name].append(start.elapsed_time(end) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def published(rows: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, str, str, str, str, float]]:
    """(op, dtype, shape name, our fastest rung, fastest library, ratio) of each shape with isolated times of both."""
    from kernels.registry import LIBRARY_KINDS, ops

    known = ops()
    cells: dict[tuple[str, str, str], list[Mapping[str, str]]] = {}
    for row in rows:
        if row["convention"] == "cold" and row.get("isolated_time_p50_ns"):
            cells.setdefault((row["op"], row["dtype"], row["shape_name"]), []).append(row)
    for cell, members in cells.items():
        variants = known[cell[0]].variants
        times = {row["variant"]: float(row["isolated_time_p50_ns"]) for row in members}
        ours = {name: value for name, value in times.items() if variants[name].kind == "cuda"}
        theirs = {n: v for n, v in times.items() if variants[n].kind in LIBRARY_KINDS and not variants[n].precision}
        if ours and theirs:
            rung, library = min(ours, key=ours.__getitem__), min(theirs, key=theirs.__getitem__)
            yield *cell, rung, library, theirs[library] / ours[rung]


def ratios(rows: Sequence[Mapping[str, str]]) -> Iterator[Ratio]:
    """The published ratios, each beside that of the loop."""
    import torch

    from kernels.registry import ops

    for name, dtype, shape_name, rung, library, ratio in published(rows):
        op = ops()[name]
        inputs = op.make_inputs(op.shapes[shape_name], dtype, device="cuda")

        def run(variant: str, op: Any = op, inputs: tuple[Any, ...] = inputs) -> Callable[[], object]:
            return op.variants[variant].bind(*inputs)

        found = medians({variant: run(variant) for variant in (rung, library)})
        yield Ratio(name, dtype, shape_name, rung, library, ratio, found[library] / found[rung])
        del inputs
        torch.cuda.empty_cache()


def main() -> int:
    """See the module's docstring; 1 if a ratio is further apart than TOLERANCE."""
    writer = csv.writer(sys.stdout)
    writer.writerow([*Ratio._fields, "apart"])
    worst = 0.0
    for file in map(Path, sys.argv[1:]):
        with file.open(newline="", encoding="utf-8") as stream:
            for one in ratios(list(csv.DictReader(stream))):
                writer.writerow([*one[:5], f"{one.published:.4f}", f"{one.looped:.4f}", f"{one.apart:.4f}"])
                sys.stdout.flush()
                worst = max(worst, one.apart)
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    raise SystemExit(main())
