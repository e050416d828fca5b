"""Check, time and capture every variant of every op at its bench shape, for the kernel ladder.

    python -m studies.ladder.measure --mode declare --out DIR                write DIR/ladder.json: all points; no GPU
    python -m studies.ladder.measure --mode missing --out DIR [--ops OP …]   print the points that DIR lacks; no GPU
    python -m studies.ladder.measure --mode measure --out DIR --run RUN      check and time the points that DIR lacks
    python -m studies.ladder.measure --mode capture --run RUN                launch each point once: ncu runs this

A point is a variant, a dtype and a shape. The shape is the op's bench shape, or one that kernels/CLAIMS.md compares
or a hypothesis needs. DIR holds one folder RUN for each run. RUN/captures holds points.csv (the checked points, with
the fingerprint of their source) and bench.csv (only points that no benchmark beside DIR has timed). ncu_capture.sh and
export_csv.sh add their files. Nothing is overwritten: the newest run with a point counts. A point whose source has
changed since is missing again. `studies/ladder/ladder.sh` (`make ladder`) runs all of these steps.
"""

import argparse
import contextlib
import csv
import io
import json
import math
import os
import re
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.formats import packed, symbols
from analysis.formats.console import documented, guarded, run_program
from analysis.formats.errors import InputError, UsageError
from analysis.formats.hot_lines import HOT_LINES
from analysis.formats.spans import quantile
from analysis.formats.writing import write
from kernels import registry
from kernels.gpu import modelling, named
from kernels.registry import MOST_BYTES, dtype_name, short_dtype
from kernels.variants import choices, fingerprint
from studies.bench.files import BASELINES, BENCH, BENCH_ROWS, median_ns
from studies.ladder.files import LADDER, POINTS
from studies.ladder.read import run_folders
from studies.runs import benches, gpu_of

GOALS = registry.FOLDER / "goals.toml"
# Rungs of matmul in float32 that kernels/CLAIMS.md compares, by the names of further shapes.
CLAIMED = {
    "fc": ("v01_naive", "v02_restrict", "v03_unroll4", "v04_constant_bias", "v05_coalesced", "v07_float4"),
    "square_1792": ("v08_register_tile",),
    "square_1793": ("v08_register_tile",),
    "square_2048": ("v02_restrict", "v06_shared_tile", "v08_register_tile"),
    "square_2049": ("v02_restrict", "v05_coalesced", "v06_shared_tile", "v08_register_tile"),
    "lm_head": ("v09_warp_tile",),
    "lm_head_padded": ("v09_warp_tile",),
}
ROOT_RANGE = "ladder"
ROUNDS = 40
SLOW_NS = 35e6
CHECKED = 3  # check every third small shape again; the benchmark and the tests check all of them
Key = tuple[str, str, str, str]
Measured = tuple[Key, str, str]  # a point's key, sizes and fingerprint


def say(text: str) -> None:
    print(f"ladder: {text}", file=sys.stderr, flush=True)


# What is to be measured --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """One variant of an op on one dtype ("float32") and shape."""

    op: registry.Op
    variant: str
    dtype: str
    shape: tuple[int, ...]

    @cached_property
    def key(self) -> Key:
        """Return (op, variant, dtype, shape name), as in the tables."""
        return self.op.name, self.variant, short_dtype(self.dtype), self.op.shape_name(self.shape)

    @property
    def sizes(self) -> str:
        return "x".join(map(str, self.shape))

    @property
    def path(self) -> tuple[str, ...]:
        """Return the names of the ranges around its launch."""
        return ROOT_RANGE, *self.key

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.op, self.variant)

    @property
    def measured(self) -> Measured:
        """Return the key, sizes and fingerprint that a measurement of this point in its present state has."""
        return self.key, self.sizes, self.fingerprint

    @property
    def of_torch(self) -> bool:
        """Return whether the variant is a library's, whose source lines a capture need not have."""
        return self.op.variant(self.variant).kind in registry.LIBRARY_KINDS

    def able(self) -> bool:
        """Return whether the variant takes this dtype and shape."""
        return self.op.variant(self.variant).takes(self.shape, self.dtype)


def points() -> list[Point]:
    """Return all points, in the order of the registry: bench shapes, then other points for hypotheses and claims."""
    known = registry.ops()
    found = [
        Point(op, variant, dtype, op.bench_shape)
        for op in known.values()
        for dtype in op.dtypes
        for variant in op.variants
    ]
    found += [
        Point(op, name, dtype, op.shapes[said.shape])
        for op in known.values()
        for variant in op.variants.values()
        for said in variant.hypotheses
        if said.shape and said.counters
        for dtype in said.dtypes
        if dtype in variant.dtypes
        for name in (variant.name, said.than)
        if name in op.variants
    ]
    if "matmul" in known:
        op = known["matmul"]
        found += [Point(op, name, "float32", op.shapes[shape]) for shape, names in CLAIMED.items() for name in names]
    unique = {point.key: point for point in found if point.able()}
    return list(unique.values())


def rung_below(point: Point) -> str:
    """Return the rung that a variant is compared with: our nearest one before it that takes its dtype and shape."""
    below = ""
    for name, variant in point.op.variants.items():
        if name == point.variant:
            return below
        if variant.kind == "cuda" and Point(point.op, name, point.dtype, point.shape).able():
            below = name
    return below


def hypotheses(point: Point) -> Iterator[dict[str, Any]]:
    """Yield the hypotheses of the variant for this dtype: metric, versus, low, high, equals, and `at` for a shape.

    They belong to the point at the bench shape, also those about another shape.
    """
    variant = point.op.variant(point.variant)
    stated = [said for said in variant.hypotheses if point.dtype in said.dtypes]
    if variant.captured and not any(said.is_about_bytes for said in stated):
        yield {"metric": "measured_over_predicted", "versus": "", "low": 0.0, "high": MOST_BYTES, "equals": "",
               "stated": False}  # fmt: skip
    if point.shape != point.op.bench_shape:
        return
    for said in stated:
        row = {"metric": said.metric, "versus": said.than, "low": said.low, "high": said.high, "equals": said.equals}
        if said.refuted:
            row |= dict(zip(("refuted_low", "refuted_high"), said.refuted, strict=True))
        yield row | ({"at": said.shape} if said.shape else {})
        if said.least_bytes:
            yield from (row | {"at": name} for name in other_shapes(point, said))


def other_shapes(point: Point, said: registry.Hypothesis) -> list[str]:
    """Return the further shapes of a hypothesis with `least_bytes`, without its own shape and the bench shape."""
    op = point.op
    return [
        name
        for name, shape in op.shapes.items()
        if name != said.shape
        and shape != op.bench_shape
        and op.minimum_bytes(shape, point.dtype) >= said.least_bytes
        and op.variant(point.variant).takes(shape, point.dtype)
    ]


def refuses(point: Point) -> str:
    """Return a text with the registered shapes that the variant refuses on this dtype, and why; "" if it takes all."""
    shapes: dict[str, list[str]] = {}
    for name, shape in point.op.shapes.items():
        if reason := point.op.variant(point.variant).cannot(shape, point.dtype):
            shapes.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in shapes.items())


def declared(point: Point) -> dict[str, Any]:
    """Return the entry of a point in ladder.json. Open ends of hypotheses are null."""
    op, variant = point.op, point.op.variant(point.variant)
    name, _, dtype, shape_name = point.key
    return {
        "op": name,
        "folder": op.folder,
        "variant": point.variant,
        "kind": variant.kind,
        "rung": list(op.variants).index(point.variant),
        "best": op.best_for(point.dtype) == point.variant,
        "is_library": variant.kind in registry.LIBRARY_KINDS and not variant.precision,
        "precision": variant.precision,
        "macros": " ".join(flag.removeprefix("-D") for flag in choices(op, variant)),
        "refuses": refuses(point),
        "rung_below": rung_below(point),
        "dtype": dtype,
        "shape_name": shape_name,
        "shape": point.sizes,
        "axes": ",".join(op.axes),
        "at_bench_shape": point.shape == op.bench_shape,
        "hypothesis": op.hypothesis(point.variant),
        "minimum_bytes": op.minimum_bytes(point.shape, point.dtype),
        "predicted_bytes": op.fused_bytes(point.shape, point.dtype, point.variant),
        "flops": op.flops(point.shape),
        "compute_bound": op.compute_bound,
        "reads_only": op.reads_only,
        "symbols": list(variant.symbols),
        "source": variant.source,
        "fingerprint": point.fingerprint,
        "hypotheses": list(hypotheses(point)),
    }


def _open_ends(value: Any) -> Any:
    """Return `value` with null for infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _open_ends(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_open_ends(item) for item in value]
    return None if value in (math.inf, -math.inf) else value


def shapes() -> dict[str, dict[str, list[str]]]:
    """Return the names of the registered shapes that at least one variant takes, by op and dtype."""

    def taken(op: registry.Op, dtype: str) -> list[str]:
        return [
            name for name, shape in op.shapes.items() if any(one.takes(shape, dtype) for one in op.variants.values())
        ]

    return {op.name: {short_dtype(dtype): taken(op, dtype) for dtype in op.dtypes} for op in registry.ops().values()}


def declaration(folder: Path) -> str:
    """Return the text of ladder.json for a folder: one line a point and goal, and one for each op's shapes.

    A published ladder is declared for its own GPU, any other for the GPU of this machine.
    """
    published_for = gpu_of(folder, "ladder")
    if published_for:
        try:
            named(published_for)
        except LookupError as error:
            raise InputError(str(error)) from None
    with modelling(published_for) if published_for else contextlib.nullcontext():
        return _declaration()


def _declaration() -> str:

    def lines(values: Iterable[Any]) -> str:
        return ",\n  ".join(json.dumps(_open_ends(value), ensure_ascii=False, allow_nan=False) for value in values)

    return (
        f'{{\n "kind": "{LADDER.kind}",\n "schema_version": {LADDER.version},\n "points": [\n  '
        + lines(map(declared, points()))
        + '\n ],\n "goals": [\n  '
        + lines(tomllib.loads(GOALS.read_text("utf-8"))["goal"])
        + '\n ],\n "shapes": {\n  '
        + ",\n  ".join(f"{json.dumps(name)}: {json.dumps(of_op)}" for name, of_op in shapes().items())
        + "\n }\n}\n"
    )


# What is there already ---------------------------------------------------------------------------------------


def _rows(path: Path) -> list[dict[str, str]]:
    found = packed.find(path)
    if not found.is_file():
        return []
    return list(csv.DictReader(io.StringIO(packed.read_bytes(found).decode("utf-8"), newline="")))


def _launches(page: Path) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the ranges of every launch in a raw page of ncu, outermost name first, by kernel and ordinal."""
    csv.field_size_limit(1 << 30)
    count: Counter[str] = Counter()
    found = {}
    for row in _rows(page):
        kernel = symbols.match_key(row["Kernel Name"])
        stacks = " ".join(cell or "" for name, cell in row.items() if name and "Push/Pop" in name)
        found[kernel, str(count[kernel])] = tuple(re.findall(r"<default domain>:([^:\"]+)", stacks))
        count[kernel] += 1
    return found


def captured(folder: Path) -> dict[Measured, bool]:
    """Return (key, sizes, fingerprint) of every point that a run in `folder` checked and captured -> is it complete.

    A capture is complete if it has the hottest source lines of one of the launches. A run of slow points may lack them.
    """
    found: dict[Measured, bool] = {}
    with run_folders(folder) as runs:
        for measured, is_complete in (one for run in runs for one in _captured(run)):
            found[measured] = is_complete or found.get(measured, False)
    return found


def _captured(run: Path) -> Iterator[tuple[Measured, bool]]:
    launches = _launches(run / "captures/ncu_raw.csv")
    ranges = set(launches.values())
    lines = _rows(run / "captures" / HOT_LINES.name)
    lined = {launches.get((symbols.match_key(row["kernel"]), row["ordinal"])) for row in lines}
    for row in _rows(run / "captures" / POINTS.name):
        key = (row["op"], row["variant"], row["dtype"], row["shape_name"])
        path = (ROOT_RANGE, *key)
        if row["passed"] == "yes" and path in ranges:
            yield (key, row["shape"], row["fingerprint"]), run.name.endswith("-slow") or path in lined


def timed(folder: Path) -> dict[Measured, float]:
    """Return the median time, ns, data in DRAM, of every point that a run in `folder` or a benchmark beside it timed.

    The keys are (key, sizes, fingerprint).
    """
    found: dict[Measured, float] = {}
    with run_folders(folder) as runs:
        for captures in (run / "captures" for run in runs):
            sources = {(row["op"], row["variant"]): row["fingerprint"] for row in _rows(captures / POINTS.name)}
            found |= _cold(_rows(captures / BENCH_ROWS.name), sources)
    prefix = folder.name.removesuffix("ladder")
    for beside in (one for name, one in benches(folder.parent).items() if prefix and name.startswith(prefix)):
        document = beside / BENCH.name
        known = json.loads(document.read_text("utf-8")).get("sources", {}) if document.is_file() else {}
        rows = [row for row in _rows(beside / BENCH_ROWS.name) if median_ns(row) is not None]
        found |= _cold(rows, {(row["op"], row["variant"]): known.get(row["variant"], "") for row in rows})
    return found


def _cold(rows: Iterable[Mapping[str, Any]], sources: Mapping[tuple[str, str], str]) -> dict[Measured, float]:
    return {
        (
            (row["op"], row["variant"], row["dtype"], row["shape_name"]),
            row["shape"],
            sources.get((row["op"], row["variant"]), ""),
        ): median
        for row in rows
        if row["convention"] == "cold" and (median := median_ns(row)) is not None
    }


def _of(wanted: Iterable[Point], ops: Sequence[str]) -> list[Point]:
    names = registry.ops()
    for name in ops:
        if name not in names:
            raise UsageError(f"--ops {name!r} is unknown: use {', '.join(names)}.")
    return [point for point in wanted if not ops or point.op.name in ops]


def missing(folder: Path, ops: Sequence[str] = (), everything: bool = False) -> list[Point]:
    """Return the points of `ops` (default: all) that still need a capture; with `everything`, all that can be captured.

    A point needs one if no run in `folder` captured its present source. Our own points also need source lines.
    """
    there = {} if everything else captured(folder)
    lacking = [
        point
        for point in _of(points(), ops)
        if point.op.variant(point.variant).captured
        and not (point.measured in there and (there[point.measured] or point.of_torch))
    ]
    for point in lacking:
        if point.measured in there:
            say(f"{' '.join(point.key)} was captured without its source lines")
    return sorted(lacking, key=_order)


def _order(point: Point) -> tuple[bool, int]:
    """Return the order of captures, since time may run out: our points first, then the library's, long chains last."""
    return point.of_torch, len(point.op.chain) if point.variant == point.op.baseline else 0


# On the GPU --------------------------------------------------------------------------------------------------


def _row(point: Point) -> dict[str, Any]:
    return dict(zip(POINTS.names, (*point.key, point.sizes, point.fingerprint), strict=False))


def check(point: Point) -> dict[str, Any]:
    """Check a point against float64 on small shapes and on its own; return its row of points.csv."""
    from harness import manifest
    from studies.bench import measure as bench

    row = _row(point)
    # torch.compile takes seconds for each shape, and is not ours
    compiled = point.op.variant(point.variant).kind == "compile"
    small = () if compiled else bench.check_shapes(point.op, point.variant)[::CHECKED]
    try:
        found = bench.check_variant(point.op, point.variant, point.dtype, small, "cuda", [point.shape])
    except Exception as error:  # compilers, loaders and launches raise any exception; the other points still count
        return row | {"checks": 0, "passed": "no", "note": f"does not run: {manifest.first_line(error, 120)}"}
    bad = [one for one in found if not one.passed]
    note = f"{'x'.join(map(str, bad[0].shape))} {bad[0].inputs}: {bad[0].note}" if bad else ""
    return row | {"checks": len(found), "passed": "no" if bad else "yes", "note": note}


def measure(folder: Path, run: Path, ops: Sequence[str], everything: bool, rounds: int) -> int:
    """Check the missing points and time the untimed ones; write points.csv, bench.csv and manifest.json of new runs.

    Each op has a run RUN-OP of its own, so that a kernel that blocks a capture costs one op. Points of SLOW_NS and more
    go into RUN-OP-slow: ncu cannot collect every counter for them. Returns 1 if a point failed its check. Returns 4,
    without a new run, if nothing is missing.

    Raises:
        InputError: there is no GPU.
    """
    import torch

    from harness import manifest

    wanted = missing(folder, ops, everything)
    if not wanted:
        say("nothing is missing")
        return 4
    if not torch.cuda.is_available():
        raise InputError("--mode measure needs a CUDA GPU and torch sees none: --mode missing lists what it would do.")
    there = {} if everything else timed(folder)
    with manifest.ClockSampler(paused=True) as sampler:
        rows = _check_all(wanted, there)
        passed = [point for point, row in zip(wanted, rows, strict=True) if row["passed"] == "yes"]
        untimed = [point for point in passed if point.measured not in there]
        sampler.paused = not untimed  # do not sample clocks during checks: the GPU mostly waits
        times, conditions = _time_all(untimed, rounds)
    arguments = ["studies.ladder.measure", "--mode", "measure", *(["--ops", *ops] if ops else [])]
    conditions |= manifest.build_manifest(arguments, [], 0, {"source": "none"}, sampler)
    if not untimed:
        conditions["clocks_reason"] = "nothing was timed in this run"
    took = there | _cold(times, {(point.op.name, point.variant): point.fingerprint for point in wanted})
    parts: dict[str, list[dict[str, Any]]] = {}
    for point, row in zip(wanted, rows, strict=True):
        slow = took.get(point.measured, 0.0) >= SLOW_NS
        parts.setdefault(f"{run.name}-{point.op.name}{'-slow' if slow else ''}", []).append(row)
    for name, mine in parts.items():
        _write_run(run.with_name(name) / "captures", mine, times, conditions)
    failed = [row for row in rows if row["passed"] != "yes"]
    for row in failed:
        say(f"{row['op']} {row['variant']} {row['dtype']} {row['shape_name']} is left out: {row['note']}")
    say(f"{len(rows) - len(failed)} of {len(rows)} points passed, {len(times)} were timed")
    return int(bool(failed))


def _check_all(wanted: Sequence[Point], there: Mapping[Measured, float]) -> list[dict[str, Any]]:
    """Return a row of points.csv for each point. A point that was timed before passed its checks then."""
    import torch
    from tqdm import tqdm

    rows = []
    for point in tqdm(wanted, desc="checks", disable=None):
        known = point.measured in there
        rows.append(_row(point) | {"checks": 0, "passed": "yes", "note": ""} if known else check(point))
        torch.cuda.empty_cache()
    return rows


def _time_all(untimed: Sequence[Point], rounds: int) -> tuple[list[Any], dict[str, Any]]:
    """Return the rows of bench.csv for these points, by op, dtype and shape.

    It also returns the copy speed and the roofs of the run.
    """
    from tqdm import tqdm

    from studies.bench import measure as bench

    groups: dict[tuple[str, str, str], list[Point]] = {}
    for point in untimed:
        groups.setdefault((point.op.name, point.dtype, point.sizes), []).append(point)
    copies: dict[str, float] = {}
    if groups:
        copies = {name: quantile(values, 0.5) for name, values in bench.measure_copy(rounds).items()}
    roofs: dict[tuple[bool, bool], dict[str, float]] = {}
    times: list[Any] = []
    for members in tqdm(groups.values(), desc="timing", disable=None):
        first = members[0]
        bound = (first.op.compute_bound, first.op.reads_only)
        if bound not in roofs:
            roofs[bound] = bench.measure_roofs(first.op)
        times += time_group(members, rounds, max(copies.values()), roofs[bound])
    conditions: dict[str, Any] = {"copy_byte_per_s": copies} if copies else {}
    return times, conditions | {"roofs": {name: value for known in roofs.values() for name, value in known.items()}}


def _write_run(
    captures: Path, rows: Sequence[dict[str, Any]], times: Sequence[dict[str, Any]], conditions: dict[str, Any]
) -> None:
    """Write points.csv and manifest.json of one run, and bench.csv if any of its points were timed."""
    from harness import manifest

    captures.mkdir(parents=True, exist_ok=True)
    write(captures / POINTS.name, POINTS.text(rows))
    keys = {tuple(row[name] for name in POINTS.names[:4]) for row in rows}
    if mine := [row for row in times if tuple(row[name] for name in POINTS.names[:4]) in keys]:
        write(captures / BENCH_ROWS.name, BENCH_ROWS.text(mine))
    manifest.write_manifest(captures / "manifest.json", conditions)


def time_group(members: Sequence[Point], rounds: int, copy_byte_per_s: float, roofs: Mapping[str, float]) -> list[Any]:
    """Return the rows of bench.csv for points of one op, dtype and shape, timed beside the library."""
    from studies.bench import measure as bench

    op, dtype, shape = members[0].op, members[0].dtype, members[0].shape
    names = [point.variant for point in members]
    beside = [
        name
        for name in BASELINES[:1]
        if name in op.variants and name not in names and Point(op, name, dtype, shape).able()
    ]
    rows = bench.time_shape(op, [*beside, *names], dtype, shape, rounds, copy_byte_per_s, roofs)
    return [row for row in rows if row["variant"] in names]


def capture(run: Path, seconds: float) -> int:
    """Launch every point of the run that passed, once and warmed, between cudaProfilerStart and Stop.

    The launch has the point's ranges. No point begins after `seconds` (0: no limit).
    """
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # ncu would profile its worker processes
    import torch

    from harness.ranges import NvtxTracer
    from harness.run import Launch, run_launches

    known = registry.ops()
    rows = [row for row in _rows(run / "captures" / POINTS.name) if row["passed"] == "yes"]
    if not rows:
        raise InputError(f"{run.name} has no points that passed: run --mode measure first.")
    if not torch.cuda.is_available():
        raise InputError("--mode capture needs a CUDA GPU and torch sees none.")
    tracer: NvtxTracer | None = None
    profiler = torch.cuda.cudart()
    started = time.monotonic()
    for place, row in enumerate(rows):
        if seconds and time.monotonic() - started > seconds:
            say(f"time is up: {len(rows) - place} of {len(rows)} points are left")
            return 0
        op = known[row["op"]]
        point = Point(op, row["variant"], dtype_name(row["dtype"]), tuple(map(int, row["shape"].split("x"))))
        call = op.variant(point.variant).bind(*op.make_inputs(point.shape, point.dtype, device="cuda"))
        with torch.inference_mode():
            call()
        torch.cuda.synchronize()
        torch.cuda.check_error(profiler.cudaProfilerStart())
        try:
            # made inside the window: the NVTX package asks once, at its first call, whether a profiler is listening
            tracer = tracer or NvtxTracer()
            run_launches(tracer, [Launch(point.path, call)])
            torch.cuda.synchronize()
        finally:
            torch.cuda.check_error(profiler.cudaProfilerStop())
        del call
        torch.cuda.empty_cache()
    say(f"launched {len(rows)} points")
    return 0


# Command line ------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = documented("python -m studies.ladder.measure", __doc__)
    parser.add_argument("--mode", choices=("declare", "missing", "measure", "capture"), required=True)
    parser.add_argument("--out", type=Path, help="folder of the ladder, with a folder for each run")
    parser.add_argument("--run", type=Path, help="folder of one run")
    parser.add_argument("--ops", nargs="+", default=(), metavar="OP", help="only these ops")
    parser.add_argument("--all", action="store_true", help="measure points again that the folder already has")
    parser.add_argument("--seconds", type=float, default=0.0, help="start no capture later than that")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"samples of each variant (default {ROUNDS})")
    return parser


def _run(options: argparse.Namespace) -> int:
    needs = {"declare": ("out",), "missing": ("out",), "measure": ("out", "run"), "capture": ("run",)}[options.mode]
    for name in needs:
        if getattr(options, name) is None:
            raise UsageError(f"--mode {options.mode} needs --{name}.")
    if options.rounds < 1:
        raise UsageError("--rounds must be 1 or more.")
    _of((), options.ops)
    if options.mode == "declare":
        options.out.mkdir(parents=True, exist_ok=True)
        write(options.out / LADDER.name, declaration(options.out))
        return 0
    if options.mode == "missing":
        if not options.out.is_dir():
            raise UsageError(f"--out {options.out} is not a folder: give the folder of a ladder, such as runs/ladder.")
        lacking = missing(options.out, options.ops, options.all)
        for point in lacking:
            print(" ".join(point.key))
        total = len(_of(points(), options.ops))
        count = f"{len(lacking)} of {total} points are missing" if lacking else f"nothing of {total} points is missing"
        say(f"{count} in {options.out}")
        return 0
    if options.mode == "measure":
        return measure(options.out, options.run, options.ops, options.all, options.rounds)
    return capture(options.run, options.seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    options = _parser().parse_args(arguments)
    return guarded(lambda: _run(options))


if __name__ == "__main__":
    sys.exit(run_program(main))
