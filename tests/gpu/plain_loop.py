"""Time a launch with the simplest loop: launch, overwrite 256 MB, record an event, launch, record an event.

It measures as harness/bench.py does, and shares no code with it but the kernels. It times two launches, though, and not
all variants of an op. So a ratio on which both agree does not depend on the code of one of them, or on what ran between.

    python -m tests.gpu.plain_loop BENCH.csv …      our fastest rung against the fastest library, row by row, beside it
    python -m tests.gpu.plain_loop --time OP --out DIR [ARGUMENTS of harness.bench]
                                                    the benchmark and, in the same process, the loop: DIR/plain_loop.csv

Exit code 1: two ratios differ by more than 3 %, or a check of the benchmark failed. With --pause both the benchmark and
the loop wait for a line of standard input, which `tests.gpu.together` sends.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from harness import bench

SAMPLES, SHORT_SAMPLES = 60, 300
SHORT_MS = 0.03  # a launch is short below this, and gets SHORT_SAMPLES
TOLERANCE = 0.03
PLACES = 5  # copies of the inputs of a short launch
ROUND = 10  # samples between two synchronisations: a queue holds about a thousand launches


class Ratio(NamedTuple):
    """The speed-up of our fastest rung over the fastest library, as published and by the loop."""

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


def medians(bind: Callable[[], Mapping[str, Callable[[], object]]]) -> dict[str, float]:
    """Return the median time of one launch of each in µs. They take turns; the caches are overwritten before each.

    `bind` makes the launches with inputs of their own: short launches are timed with PLACES of them, as the time of one
    depends on the addresses.
    """
    import torch

    flush = torch.empty(64 << 20, dtype=torch.float32, device="cuda")
    bound = [bind()]
    for run in bound[0].values():
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    first = _round(bound[0], flush)
    short = min(times[-1] for times in first.values()) < SHORT_MS
    if short:
        bound += [bind() for _ in range(PLACES - 1)]
    times: dict[str, list[float]] = {name: [] for name in bound[0]}
    for turn in range((SHORT_SAMPLES if short else SAMPLES) // ROUND):
        for name, values in _round(bound[turn % len(bound)], flush).items():
            times[name] += values
    return {name: statistics.median(values) * 1e3 for name, values in times.items()}


def _round(runs: Mapping[str, Callable[[], object]], flush: Any) -> dict[str, list[float]]:
    """Return ROUND times of each in ms."""
    import torch

    torch.cuda._sleep(20_000_000)  # ten milliseconds, in which the queue fills
    pairs = []
    for turn in range(ROUND):
        for name, run in list(runs.items())[:: 1 if turn % 2 else -1]:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            run()  # so that its code is at hand
            flush.fill_(1.0)
            start.record()
            run()
            end.record()
            pairs.append((name, start, end))
    torch.cuda.synchronize()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for name, start, end in pairs:
        times[name].append(start.elapsed_time(end))
    return times


def published(rows: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, str, str, str, str, float]]:
    """Yield (op, dtype, shape name, our fastest rung, fastest library, ratio) of shapes with isolated times of both."""
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


def _bound(op: Any, shape: tuple[int, ...], dtype: str, variants: Sequence[str]) -> dict[str, Callable[[], object]]:
    inputs = op.make_inputs(shape, dtype, device="cuda")
    return {name: op.variants[name].bind(*inputs) for name in variants}


def ratios(rows: Sequence[Mapping[str, str]]) -> Iterator[Ratio]:
    """Yield each published ratio with the loop's ratio."""
    import torch

    from kernels.registry import ops

    for name, dtype, shape_name, rung, library, ratio in published(rows):
        op = ops()[name]
        found = medians(partial(_bound, op, op.shapes[shape_name], dtype, (rung, library)))
        yield Ratio(name, dtype, shape_name, rung, library, ratio, found[library] / found[rung])
        torch.cuda.empty_cache()


def write(rows: Sequence[Mapping[str, str]], stream: IO[str], until: float = float("inf")) -> float:
    """Write a CSV line for each ratio; start none after `until` (time.monotonic()). Return the largest difference."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*Ratio._fields, "apart"])
    worst = 0.0
    for one in ratios(rows):
        writer.writerow([*one[:5], f"{one.published:.4f}", f"{one.looped:.4f}", f"{one.apart:.4f}"])
        stream.flush()
        worst = max(worst, one.apart)
        if time.monotonic() > until:
            break
    return worst


def time_and_loop(op: str, out: Path, more: Sequence[str]) -> int:
    """Run the benchmark of an op, then the loop over its bench.csv. Return 1 if either finds something wrong."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--pause", action="store_true")
    known, _ = parser.parse_known_args(more)
    until = time.monotonic() + known.seconds
    status = bench.main([op, "--out", str(out), "--no-gpt2", *more])
    timed = out / "bench.csv"
    if not timed.is_file():
        return status
    if known.pause:
        bench.wait_for_a_line("timed")
    with timed.open(newline="", encoding="utf-8") as stream, (out / "plain_loop.csv").open("w", newline="") as to:
        worst = write(list(csv.DictReader(stream)), to, until)
    return status or int(worst > TOLERANCE)


def main() -> int:
    """See the module's docstring."""
    timing = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    timing.add_argument("--time", metavar="OP")
    timing.add_argument("--out", type=Path)
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.plain_loop",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[timing],
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="BENCH.csv")
    options, more = parser.parse_known_args()
    if options.time:
        if not options.out:
            parser.error("--time needs --out, the folder for what is measured")
        _, more = timing.parse_known_args()  # in their order: `files` would take the values of the benchmark's options
        return time_and_loop(options.time, options.out, more)
    if more or not options.files:
        parser.error("give files of harness.bench, or --time OP --out DIR")
    rows: list[Mapping[str, str]] = []
    for file in options.files:
        with file.open(newline="", encoding="utf-8") as stream:
            rows += csv.DictReader(stream)
    return int(write(rows, sys.stdout) > TOLERANCE)


if __name__ == "__main__":
    raise SystemExit(main())
