"""Measure all combinations of the compile-time choices of an op's CUDA rungs, and recommend one that is clearly faster.

    python -m studies.sweep.measure OP [OP ...] [--variants ...] [--dtype ...] [--shapes ...] [--out DIR]
    python -m studies.sweep.measure OP --dry-run    lists the combinations and which of them are measured already
    python -m studies.sweep.measure OP --counters   also takes ncu's counters of one launch of the default, of the
                                                  fastest and of the slowest of each
    python -m studies.sweep.measure OP --update     also writes kernels/tuned.toml, which kernels.build reads (without
                                                  a GPU: from what DIR holds, and nothing is built)

The choices are the `tunables` of kernels.registry, separately for each rung. ninja compiles all combinations at once,
and a cache keeps them by content. A worker process checks each one against float64 like studies.bench. Then it times
those that pass, and the default, in turn and isolated (studies/bench). A combination that does not compile, link or
launch, gives a wrong result, crashes or hangs becomes a row with the reason. A crash costs one row and a new process.

The first stage measures all combinations at the shape of the ladder. A source is compiled once for all its ops, dtypes
and shapes. So the second stage measures the default and the three best clearly faster combinations at every other
registered shape, in all dtypes of all ops of the source. If one of them is slower there, the next best replaces it.
--shapes measures all combinations at the named shapes, without a second stage.

Each row goes to DIR/captures/sweep.csv at once, so the same command continues an interrupted sweep. Its key is op,
variant, dtype, shape, macros, GPU and the fingerprint of compiler, source and flags. sweep.json
holds the choices and, for each call, its rows and its conditions. A recommended combination was timed wherever the
default was, and meets three conditions. It is at least 1 % faster in the geometric mean of the dtypes and shapes of the
first stage. It is faster in 95 % of the rounds somewhere. It is nowhere slower by 1 % in the median and slower in 95 %
of the rounds. It does not become the default if any registered shape of an op's best rung is untimed. `make sweep`
writes a report with tables, heat maps and reasons.
Exit: 0 done, 2 usage, 3 nothing can be built, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from analysis.formats import packed
from analysis.formats.console import documented, guarded
from analysis.formats.errors import InputError, UsageError
from analysis.formats.sweep import SWEEP, SWEEP_ROWS
from analysis.formats.writing import write
from harness.console import progress
from studies.sweep.measure_ledger import Ledger
from studies.sweep.measure_worker import batches
from studies.sweep.rows import (
    LEAST_GAIN,
    Row,
    cell_of,
    choose,
    entries_of,
    finalists,
    latest,
    macros_of,
    not_taken,
    swept_cells,
)

if TYPE_CHECKING:
    from kernels.registry import Op, Variant

ROOT = Path(__file__).resolve().parents[2]
FILE, KIND = SWEEP_ROWS.name, SWEEP.kind
ROUNDS = 40
GROUP = 8  # combinations timed in turn, with the default; each keeps its own outputs in memory
WORKER = (sys.executable, "-m", "studies.sweep.measure_worker")
STEP_SECONDS = 240.0  # seconds of silence after which a worker counts as hanging; it first loads torch
CRASHES = 20  # crashed workers after which the sweep gives up
# the parts of each call's manifest that sweep.json keeps
CALL_FACTS = ("arguments", "git_sha", "git_dirty", "driver", "cuda", "torch", "clocks", "clocks_reason")


# Plan --------------------------------------------------------------------------------------------------------


@dataclass
class Cell:
    """One rung at one dtype and shape; its `combinations` (kernels.combinations) are timed together."""

    op: Op
    variant: str
    dtype: str
    shape: tuple[int, ...]
    combinations: list[Any] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Return a title such as `gelu v02_vector bf16 large`."""
        return f"{self.op.name} {self.variant} {_short(self.dtype)} {self.op.shape_name(self.shape)}"


def _short(dtype: str) -> str:
    from kernels.registry import short_dtype

    return str(short_dtype(dtype))


def plan(
    ops: Sequence[Any], variants: Sequence[str] | None, dtypes: Sequence[str] | None, shapes: Sequence[str] | None
) -> list[Cell]:
    """Return the cells of the requested ops, variants, dtypes and shapes. Raises UsageError for an unknown name."""
    from kernels.combinations import combinations
    from kernels.registry import dtype_name

    tunable = {op.name: [name for name, variant in op.variants.items() if variant.tunables] for op in ops}
    for what, wanted, known in (
        ("--variants", variants, {name for names in tunable.values() for name in names}),
        ("--shapes", shapes, {name for op in ops for name in op.shapes}),
        ("--dtype", dtypes, {_short(dtype) for op in ops for dtype in op.dtypes}),
    ):
        for name in wanted or ():
            if name not in known:
                raise UsageError(f"{what} {name!r} is unknown here: use {', '.join(sorted(known)) or 'another op'}.")
    cells = []
    for op in ops:
        if not tunable[op.name]:
            raise UsageError(
                f"op {op.name} has no variant with tunables (kernels/{op.folder}/op.py): nothing to sweep."
            )
        sizes = [op.shapes[name] for name in shapes if name in op.shapes] if shapes else [op.bench_shape]
        for name in tunable[op.name]:
            variant = op.variants[name]
            if variants and name not in variants:
                continue
            for dtype in [dtype_name(name) for name in dtypes] if dtypes else op.dtypes:
                cells += [
                    Cell(op, name, dtype, size, combinations(op, variant))
                    for size in sizes
                    if variant.takes(size, dtype)
                ]
    if not cells:
        raise UsageError("No variant supports this choice: give other --variants, --dtype or --shapes.")
    return cells


def second_stage(cells: Sequence[Cell], rows: Sequence[Row], gpu: str) -> list[Cell]:
    """Return the cells of the second stage: default and finalists of each source in `cells`, at every registered shape.

    `rows` decide which combinations are clearly faster on that GPU. Sources that keep their default are left out.
    """
    from kernels.combinations import combinations

    rungs = [(cell.op, cell.op.variant(cell.variant)) for cell in cells]
    asked = {(_source(op, variant), tuple(variant.tunables)) for op, variant in rungs}
    found = []
    for (name, source, macros), best in finalists(rows).items():
        if name != gpu or (source, macros) not in asked:
            continue
        for op, variant in _compiled_from(source, macros):
            taken = [one for one in combinations(op, variant) if one.is_default or one.text in best]
            if len(taken) > 1 and not variant.keeps_default:
                found += [Cell(op, variant.name, dtype, shape, taken) for dtype, shape in _registered(op, variant)]
    return found


def _source(op: Op, variant: Variant) -> str:
    return f"{op.folder}/{variant.source}"


def _registered(op: Op, variant: Variant) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield all supported (dtype, shape) of a variant."""
    for dtype in op.dtypes:
        for shape in op.shapes.values():
            if variant.takes(shape, dtype):
                yield dtype, shape


def _compiled_from(source: str, macros: Sequence[str]) -> Iterator[tuple[Any, Any]]:
    """Yield all (op, variant) that are compiled from a source with these macros."""
    from kernels.registry import ops

    for op in ops().values():
        for variant in op.variants.values():
            if _source(op, variant) == source and tuple(variant.tunables) == tuple(macros):
                yield op, variant


def range_of(cell: Cell, combination: Any) -> str:
    """Return the NVTX path in which --counters launches a combination: sweep/gelu/v02_vector/bf16/large/256x3."""
    values = "x".join(str(value) for _, value in combination.macros)
    return "/".join((KIND, cell.op.name, cell.variant, _short(cell.dtype), cell.op.shape_name(cell.shape), values))


def row_start(cell: Cell, combination: Any, gpu: str, fingerprint: str) -> Row:
    """Return the fields of a row before compilation."""
    row: Row = dict.fromkeys(SWEEP_ROWS.names, "") | {
        "op": cell.op.name,
        "variant": cell.variant,
        "source": f"{cell.op.folder}/{combination.source.name}",
        "macros": combination.text,
        "default": int(combination.is_default),
        "gpu": gpu,
        "fingerprint": fingerprint,
    }
    if not gpu:  # an object file belongs to no single dtype or shape
        return row
    return row | {
        "dtype": _short(cell.dtype),
        "shape_name": cell.op.shape_name(cell.shape),
        "shape": "x".join(map(str, cell.shape)),
        "range": range_of(cell, combination),
        "minimum_bytes": cell.op.minimum_bytes(cell.shape, cell.dtype),
    }


# The worker process, which may crash ---------------------------------------------------------------------------


def events(command: Sequence[str], jobs: Sequence[Row], limit_s: float = STEP_SECONDS) -> Iterator[Row]:
    """Yield a worker's messages about these jobs, one object a line; the last is {"end": reason}, "" after success."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        worker = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        lines: queue.Queue[str | None] = queue.Queue()
        assert worker.stdin is not None
        assert worker.stdout is not None
        reader = threading.Thread(target=_pass_on, args=(worker.stdout, lines), daemon=True)
        reader.start()
        try:
            try:
                worker.stdin.write(json.dumps(list(jobs)))
                worker.stdin.close()
            except BrokenPipeError:
                pass
            while True:
                line = lines.get(timeout=limit_s)
                if line is None:
                    break
                if line.endswith("\n"):  # an incomplete line was cut off
                    yield json.loads(line)
            code = worker.wait()
            yield {"end": "" if code == 0 else _why_it_ended(code, errors)}
        except queue.Empty:
            yield {"end": f"it did not come to an end in {limit_s:g} s"}
        finally:
            worker.kill()
            worker.wait()
            reader.join()
            worker.stdout.close()


def sampled(told: Iterable[Row], sampler: Any) -> Iterator[Row]:
    """Yield a worker's messages, and sample the clocks only while the worker times."""
    for event in told:
        if "start" in event or "end" in event:
            sampler.paused = not event.get("timed", False)
        yield event


def _pass_on(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _why_it_ended(code: int, errors: IO[str]) -> str:
    from harness.manifest import scrub

    errors.seek(0)
    said = [line.strip() for line in errors.read().splitlines() if line.strip()]
    # torch appends advice in several lines to its errors
    named = [line for line in said if "rror" in line.split(":")[0]]
    last = (named or said or ["it said nothing"])[-1]
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return scrub(f"{how}: {last}")[:300]


def measure(
    jobs: list[Row],
    on_row: Callable[[int, Row], None],
    start: Callable[[Sequence[Row]], Iterator[Row]],
    tell: Callable[[str], None],
) -> None:
    """Run workers until every job has a row for each of its combinations, by number.

    Shape: a job as in measure_worker.py: {"rows": [{"id", "library", "default"}], …}. If a check crashes, the crash is
    the row of that combination. If the timing of a group crashes, its combinations are then timed one by one.
    """
    open_rows = {row["id"] for job in jobs for row in job["rows"] if row["wanted"]}
    done: set[int] = set()
    dead: set[int] = set()
    for _ in range(CRASHES):
        left = []
        for job in jobs:
            rows = [row for row in job["rows"] if row["id"] in open_rows - done or row["default"]]
            rows = [row for row in rows if row["id"] not in dead]
            if any(row["wanted"] and row["id"] not in done for row in rows):
                left.append(job | {"rows": rows})
        if not left:
            return
        at: list[int] = []
        end = "it ended without a word"
        for event in start(left):
            if "start" in event:
                at = event["start"]
            elif "row" in event:
                if event["row"] in open_rows - done:
                    on_row(event["row"], event["fields"])
                done.add(event["row"])
            elif "end" in event:
                end = event["end"]
        pending = [row for row in at if row not in done]
        if not end and open_rows <= done:
            return
        if not pending:  # it died between two combinations, so no combination is to blame
            if not at and end:
                raise InputError(f"The measuring process does not start: {end}.")
            continue
        if len(pending) == 1:
            tell(f"a combination ended the process ({end}); going on without it")
            dead.add(pending[0])
            done.add(pending[0])
            if pending[0] in open_rows:
                on_row(pending[0], {"verdict": "crashed", "reason": end})
            continue
        tell(f"a process ended while it timed {len(pending)} combinations ({end}); timing them one by one")
        for job in jobs:
            if any(row["id"] in pending for row in job["rows"]):
                job["group"] = 1
    raise InputError(f"{CRASHES} measuring processes ended early: run it again, sweep.csv keeps the finished rows.")


# Running -----------------------------------------------------------------------------------------------------


class _Progress:
    """Ninja's counts and the measured rows: a bar on a terminal, else a line every few seconds."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._what = ""
        self._said = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        from tqdm import tqdm

        if sys.stderr.isatty():
            if self._bar is None or self._what != what:
                self.close()
                self._bar, self._what = tqdm(total=total, desc=what), what
            self._bar.total = total
            self._bar.update(done - self._bar.n)
        elif done == total or time.monotonic() - self._said > 5:
            progress(f"{what} {done} of {total}")
            self._said = time.monotonic()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def static_fields(arch: int, built: Any) -> Row:
    """Return fields from nvcc: the kernel with the lowest occupancy at its launch bound; blank if it cannot launch."""
    from kernels import census, combinations

    bounds = combinations.max_threads(built)
    found: list[Row] = [
        {"kernel": census.demangle([usage.symbol])[0], "registers": usage.registers, "shared_bytes": usage.shared_bytes}
        | occupancy_fields(arch, bounds.get(usage.symbol, 0), usage.registers, usage.shared_bytes)
        | {"reason": cannot_launch(arch, bounds.get(usage.symbol, 0), usage.shared_bytes)}
        for usage in built.usages
    ]
    spilled = max((usage.spill_bytes for usage in built.usages), default=0)
    lowest = min(
        found,
        key=lambda fields: (not fields["reason"], float(fields.get("occupancy_theoretical_frac", 1))),
        default={},
    )
    return lowest | {"spill_bytes": spilled}


def cannot_launch(arch: int, threads: int, shared_bytes: int) -> str:
    """Return why no GPU of that architecture can start a block of this size.

    "" if it can, or if the limits are unknown.

    The limits are those of sm_limits.toml. Dynamic shared memory is unknown before a launch.
    """
    from kernels import census

    try:
        most = census.limits(arch)
    except KeyError:
        return ""
    if threads > most["block_threads"]:
        return f"cannot launch: {threads} threads a block, at most {most['block_threads']}"
    most_shared = most["shared_bytes"] - most["shared_reserved_bytes"]
    if shared_bytes > most_shared:
        return f"cannot launch: {shared_bytes:,} bytes of shared memory a block, at most {most_shared:,}"
    return ""


def occupancy_fields(arch: int, threads: int, registers: int, shared_bytes: int) -> Row:
    """Return block size, theoretical occupancy, its limiter, and blocks an SM.

    Block size alone if the limits are unknown.
    """
    from kernels import census

    fields: Row = {"block_threads": threads or ""}
    try:
        found = census.occupancy(arch, threads, registers, shared_bytes) if threads else None
    except KeyError:
        return fields
    if found is not None:
        blocks = round(found[0] * census.limits(arch)["warps"] / math.ceil(threads / 32))
        fields |= {"occupancy_theoretical_frac": f"{found[0]:.4g}", "limiter": found[1], "blocks_per_sm": blocks}
    return fields


@dataclass(frozen=True)
class Gpu:
    """This machine's GPU: its name, and its architecture such as 90."""

    name: str
    arch: int


def gpu_at_hand() -> Gpu | None:
    """This machine's GPU; None without one."""
    from harness import manifest

    facts = manifest.gpu_facts()
    if facts is None:
        return None
    return Gpu(facts["name"], int(facts["compute_capability"].replace(".", "")))


def sweep(cells: Sequence[Cell], ledger: Ledger, gpu: Gpu | None, arch: int, rounds: int, start: Any = None) -> None:
    """Build, check and time; every result becomes a row of sweep.csv. Raises LedgerError if nothing can be built."""
    from kernels import build, combinations

    nvcc = build.find_nvcc()
    if nvcc is None:
        raise InputError("nvcc was not found, and every combination has to be compiled: install the CUDA toolkit.")
    name = gpu.name if gpu else ""
    if gpu is None:  # nothing is timed, so one row a combination is enough
        cells = list({(cell.op.name, cell.variant): cell for cell in cells}.values())
    every = [one for cell in cells for one in cell.combinations]
    shown = _Progress()
    try:
        wanted = _unknown(cells, ledger, name, combinations.fingerprints(nvcc, every, arch))
        if not wanted:
            progress("every combination is measured already")
            return
        extensions = _start_extensions(cells) if gpu else []
        built = combinations.compile_all(nvcc, every, arch, shown)
        failed = {one: found.errors for one, found in built.items() if found.errors}
        for _, one, row in wanted:
            if one in failed:
                ledger.add(row | {"verdict": "does not compile", "reason": failed[one]})
            elif gpu is None:
                ledger.add(row | static_fields(arch, built[one]) | {"verdict": "built"})
        if gpu is None:
            return
        _wait_for(extensions)
        unlinked = combinations.link_all(built.values(), shown)
        for _, one, row in wanted:
            if one in unlinked:
                ledger.add(row | {"verdict": "does not link", "reason": unlinked[one]})
        left = [(cell, one, row) for cell, one, row in wanted if one not in failed and one not in unlinked]
        _measure_all(cells, left, built, ledger, gpu, rounds, shown, start)
    except build.BuildError as error:
        raise InputError(str(error)) from error
    finally:
        shown.close()


def _unknown(
    cells: Sequence[Cell], ledger: Ledger, gpu: str, fingerprints: Mapping[Any, str]
) -> list[tuple[Cell, Any, Row]]:
    rows = [(cell, one, row_start(cell, one, gpu, fingerprints[one])) for cell in cells for one in cell.combinations]
    return [(cell, one, row) for cell, one, row in rows if not ledger.has(row)]


def _start_extensions(cells: Sequence[Cell]) -> list[tuple[str, subprocess.Popen[bytes]]]:
    """Start building the folders' extensions, whose bindings the combinations use, while the combinations compile."""
    folders = dict.fromkeys(cell.op.folder for cell in cells)
    command = [sys.executable, "-m", "kernels.build"]
    return [(folder, subprocess.Popen([*command, folder], cwd=ROOT, stdout=subprocess.DEVNULL)) for folder in folders]


def _wait_for(running: Sequence[tuple[str, subprocess.Popen[bytes]]]) -> None:
    for number, (folder, process) in enumerate(running, 1):
        if process.poll() is None:
            progress(f"waiting for the extension of kernels/{folder} ({number} of {len(running)})")
        if process.wait():
            raise InputError(f"kernels/{folder} cannot be built: see the compiler's message above.")


def _measure_all(
    cells: Sequence[Cell],
    left: Sequence[tuple[Cell, Any, Row]],
    built: Mapping[Any, Any],
    ledger: Ledger,
    gpu: Gpu,
    rounds: int,
    shown: _Progress,
    start: Any,
) -> None:
    from kernels import combinations

    wanted = {(id(cell), one): number for number, (cell, one, _) in enumerate(left)}
    rows = {number: row for number, (_, _, row) in enumerate(left)}
    jobs: list[Row] = []
    for cell in cells:
        members = []
        for one in cell.combinations:
            asked = (id(cell), one) in wanted
            if (asked or one.is_default) and not built[one].errors:
                number = wanted.get((id(cell), one), -1 - len(jobs))
                library = str(combinations.library_of(built[one]))
                members.append({"id": number, "wanted": asked, "default": one.is_default, "library": library})
        if any(member["wanted"] for member in members):
            jobs.append(_job(cell) | {"rounds": rounds, "group": GROUP, "rows": members})
    done = 0

    def on_row(number: int, fields: Row) -> None:
        nonlocal done
        done += 1
        spilled = max((usage.spill_bytes for usage in built[left[number][1]].usages), default=0)
        row = rows[number] | {"spill_bytes": spilled} | fields
        if "grid_blocks" in fields:
            row |= occupancy_fields(gpu.arch, row["block_threads"], row["registers"], row["shared_bytes"])
            row |= wave_fields(row, fields.get("sm_count", 0))
        ledger.add({name: row[name] for name in SWEEP_ROWS.names})
        shown("check and time", done, len(rows))

    for batch in batches(jobs):
        measure(batch, on_row, start, progress)


def _job(cell: Cell) -> Row:
    return {"op": cell.op.name, "variant": cell.variant, "dtype": cell.dtype, "shape": list(cell.shape)}


def wave_fields(row: Row, sm_count: int) -> Row:
    """Return the number of waves of the grid, and the empty share of the last wave."""
    if not row.get("blocks_per_sm") or not sm_count:
        return {}
    waves = row["grid_blocks"] / (row["blocks_per_sm"] * sm_count)
    return {"waves": f"{waves:.4g}", "tail_frac": f"{math.ceil(waves) - waves:.4g}"}


# Counters ----------------------------------------------------------------------------------------------------


def telling(rows: Sequence[Row], gpu: str) -> set[str]:
    """Return the ranges of combinations to count: default, recommended, fastest and slowest of each first-stage cell.

    The differences between their counters explain why one is faster.
    """
    chosen = {(choice["source"], choice["macros"]) for choice in choose(rows) if choice["gpu"] == gpu}
    swept = swept_cells(rows, gpu)
    cells: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row["verdict"] == "timed" and row["gpu"] == gpu and cell_of(row) in swept:
            cells.setdefault(cell_of(row), []).append(row)
    found = set()
    for members in cells.values():
        # relative to the default of the same rounds, if it was timed
        ordered = sorted(members, key=lambda row: 1 / float(row["versus_default_p50"] or 1))
        found |= {row["range"] for row in members if row["default"] == "1" or (row["source"], row["macros"]) in chosen}
        found |= {ordered[0]["range"], ordered[-1]["range"]}
    return found


def capture_counters(out: Path, ledger: Ledger, cells: Sequence[Cell], gpu: Gpu) -> None:
    """Capture one launch of each combination to count under ncu, in its NVTX range; return a sentence on failure.

    Each op of `cells` gets one capture, captures/<op>, with all its combinations in sweep.csv. A complete capture
    replaces the earlier one, so an interruption costs one op.
    """
    from harness import doctor, manifest
    from kernels import build, combinations

    if doctor.find_ncu() is None:
        progress("no ncu here, so there are no counters (`make doctor` says how to get it)")
        return
    nvcc = build.find_nvcc()
    assert nvcc is not None  # otherwise nothing would have been timed
    rows = latest(ledger.rows)
    told = telling(rows, gpu.name)
    asked = {cell.op.name: cell.op for cell in cells}
    cells = []
    for name, op in asked.items():
        shapes = dict.fromkeys(row["shape_name"] for row in rows if row["op"] == name)
        cells += plan([op], None, None, [shape for shape in shapes if shape in op.shapes])
    built = combinations.compile_all(nvcc, [one for cell in cells for one in cell.combinations], gpu.arch, _Progress())
    _wait_for(_start_extensions(cells))
    combinations.link_all(built.values(), _Progress())
    jobs: dict[str, list[Row]] = {}
    for cell in cells:
        members = [
            {
                "range": range_of(cell, one),
                "fingerprint": built[one].fingerprint,
                "library": str(combinations.library_of(built[one])),
            }
            for one in cell.combinations
            if range_of(cell, one) in told
        ]
        if members:
            jobs.setdefault(cell.op.name, []).append(_job(cell) | {"rows": members})
    for number, (name, of_op) in enumerate(jobs.items(), 1):
        count = sum(len(job["rows"]) for job in of_op)
        progress(f"counters of {count} launches of {name} under ncu ({number} of {len(jobs)})")
        run = out / "raw" / name
        if (failed := _capture(run, of_op)) is not None:
            shown = os.path.relpath(run, ROOT)
            progress(
                f"{failed} failed, so the counters of {name} stay as they were; {shown}/captures/ncu.json says why"
            )
            continue
        status = run / "captures" / "ncu.json"  # it also names the builds that were counted
        counted = {row["range"]: row["fingerprint"] for job in of_op for row in job["rows"]}
        manifest.write_json(status, json.loads(status.read_text("utf-8")) | {"counted": counted})
        shutil.rmtree(out / "captures" / name, ignore_errors=True)
        shutil.move(run / "captures", out / "captures" / name)
        for file in (out / "captures").glob("ncu*"):  # the capture of all ops together by an earlier version
            file.unlink()


def _capture(run: Path, jobs: Sequence[Row]) -> str | None:
    """Capture the launches of `jobs` with ncu into a separate run folder; return the script that failed."""
    launches = run / "launches.json"
    launches.parent.mkdir(parents=True, exist_ok=True)
    launches.write_text(json.dumps(jobs), encoding="utf-8")
    scripts, to = ROOT / "nsys_scripts", os.path.relpath(run, ROOT)
    program = [*WORKER, "--launch", os.path.relpath(launches, ROOT)]
    capture = [str(scripts / "ncu_capture.sh"), "--window", "all", "--include", f"{KIND}/", "--out", to]
    for command in ([*capture, "--", *program], [str(scripts / "export_csv.sh"), to]):
        environment = os.environ | {"PYTHON": sys.executable}
        if subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, check=False).returncode:
            return Path(command[0]).name
    return None


# Program -----------------------------------------------------------------------------------------------------


def dry_run(cells: Sequence[Cell], ledger: Ledger | None, gpu: Gpu | None, arch: int, every_shape: bool) -> None:
    """Print the combinations to measure and those already measured; for the second stage as far as sweep.csv tells."""
    from kernels import build

    rows = ledger.rows if ledger else []
    gpus = [gpu.name] if gpu else list(dict.fromkeys(row["gpu"] for row in rows))
    nvcc = build.find_nvcc()
    _list(cells, ledger, gpus, nvcc, arch)
    if every_shape:
        more = [cell for name in gpus for cell in second_stage(cells, rows, name)]
        print("second stage, at every shape" + ("" if more else ": nothing is known to be clearly faster yet"))
        if more:
            _list(more, ledger, gpus, nvcc, arch)


def _list(cells: Sequence[Cell], ledger: Ledger | None, gpus: Sequence[str], nvcc: str | None, arch: int) -> None:
    from kernels import combinations

    every = [one for cell in cells for one in cell.combinations]
    prints = combinations.fingerprints(nvcc, every, arch) if nvcc else {}
    total = left = 0
    for cell in cells:
        print(f"{cell.title}: {len(cell.combinations)} combinations")
        for one in cell.combinations:
            starts = [row_start(cell, one, name, prints.get(one, "")) for name in gpus]
            known = ledger is not None and any(ledger.has(start) for start in starts)
            total, left = total + 1, left + (not known)
            marks = [mark for mark, is_so in (("default", one.is_default), ("measured", known)) if is_so]
            print(f"  {one.text}" + (f" ({', '.join(marks)})" if marks else ""))
    measured = f"{total - left} measured already" if nvcc else "which are measured is not known without nvcc"
    print(f"{total} rows, {measured}; {len(set(every))} compilations")


def not_measured(choice: Row, none_of_it: Collection[tuple[str, ...]] = ()) -> list[str]:
    """Return the ops, dtypes and shapes of a choice's source that were not timed with it.

    Examples: "gelu fp32"; "merge_heads fp32, bf16 at b1_t1024, decode_b1" if only some shapes are missing. `none_of_it`
    are cells that the default does not support either.
    """
    timed = {tuple(cell[name] for name in ("op", "variant", "dtype", "shape")) for cell in choice["measured"]}
    said: list[str] = []
    for op, variant in _compiled_from(choice["source"], macros_of(choice)):
        cells: dict[str, list[str]] = {}
        for dtype, shape in _registered(op, variant):
            cells.setdefault(_short(dtype), []).append(op.shape_name(shape))
        partly: dict[str, list[str]] = {}  # dtypes with the same missing shapes
        for dtype, shapes in cells.items():
            rung = op.name, variant.name, dtype
            left = [shape for shape in shapes if not {(*rung, shape)} & {*timed, *none_of_it}]
            if left and not any(cell[:3] == rung for cell in timed):
                said.append(f"{op.name} {dtype}")
            elif left:
                partly.setdefault(", ".join(left), []).append(dtype)
        said += [f"{op.name} {', '.join(lacking)} at {left}" for left, lacking in partly.items()]
    return said


def keeps_default(choice: Row) -> str:
    """Return why the build ignores a choice and keeps the source's defaults; "" if it uses the choice.

    Reasons are a declaration, or an op whose best rung would run untimed shapes with this choice.
    """
    rungs = list(_compiled_from(choice["source"], macros_of(choice)))
    if declared := next((variant.keeps_default for _, variant in rungs if variant.keeps_default), ""):
        return str(declared)
    runs = any(op.best_for(dtype) == variant.name for op, variant in rungs for dtype in variant.dtypes)
    return "it runs where no rung is named, and was not timed at every shape" if runs and choice["not_measured"] else ""


def not_swept(rows: Sequence[Row]) -> list[str]:
    """Return the rungs with tunables but without a row: "attention v04_mma"."""
    from kernels.registry import ops

    swept = {(row["op"], row["variant"]) for row in rows}
    return [
        f"{op.name} {name}"
        for op in ops().values()
        for name, variant in op.variants.items()
        if variant.tunables and (op.name, name) not in swept
    ]


def without_choices() -> list[str]:
    """Return the CUDA rungs without tunables, and why: "attention v02_per_query: a specimen …"."""
    from kernels.registry import ops

    return [
        f"{op.name} {name}: {variant.no_tunables}"
        for op in ops().values()
        for name, variant in op.variants.items()
        if variant.no_tunables
    ]


def describe(out: Path, ledger: Ledger, rounds: int, calls: Sequence[Row]) -> list[Row]:
    """Write sweep.json; the choices in it."""
    from harness import manifest
    from studies.bench import measure as bench

    choices = choose(ledger.rows)
    for choice in choices:
        choice["not_measured"] = not_measured(choice, not_taken(ledger.rows, choice["gpu"])) if choice["clear"] else []
        choice["keeps_default"] = keeps_default(choice) if choice["clear"] else ""
    document = {
        "convention": bench.CONVENTIONS["isolated"], "rounds": rounds,
        "least_gain": LEAST_GAIN, "calls": list(calls), "choices": choices, "not_swept": not_swept(ledger.rows),
        "without_choices": without_choices(),
    }  # fmt: skip
    manifest.write_json(out / "captures" / SWEEP.name, SWEEP.document(document))
    return choices


# sweep.csv only grows, so a call owns the rows that it appended: `first_row` to `last_row`, counted from 1. A call that
# was killed has no last row; its rows end where the next call's begin, or at the end of the file.


def earlier_calls(file: Path, rows: int) -> list[Row]:
    """Return the calls in sweep.json that have rows; killed ones get their last row."""
    from studies import outputs

    calls = (outputs.read_json(file) or {}).get("calls") or []
    ends = [*(call["first_row"] - 1 for call in calls[1:]), rows]
    closed = [
        call if call.get("last_row") else call | {"last_row": end} for call, end in zip(calls, ends, strict=False)
    ]
    return [call for call in closed if call["first_row"] <= call["last_row"]]


def begin_call(facts: Mapping[str, Any], rows: int) -> Row:
    """Return a call that starts now, after `rows` rows; `facts` is its manifest."""
    from harness import doctor
    from kernels import build

    return {
        "first_row": rows + 1, "when": datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: facts[name] for name in CALL_FACTS}, "nvcc": doctor.tool_version(build.find_nvcc()),
        "sampled": "while timing", "time_kind": "isolated",
    }  # fmt: skip


def end_call(call: Row, rows: int, clocks: Mapping[str, Any]) -> list[Row]:
    """Return the call with its last row and its clocks; [] if it measured nothing."""
    return [call | {"last_row": rows, **clocks}] if rows >= call["first_row"] else []


def recorded(
    out: Path, ledger: Ledger, given: Sequence[str], rounds: int, sampler: Any, measure_all: Callable[[], None]
) -> None:
    """Run `measure_all`, and record the call in sweep.json from its start; add its clocks however it ends.

    manifest.json describes the last call that measured something.
    """
    from harness import manifest

    captures = out / "captures"
    facts = manifest.build_manifest(["studies.sweep.measure", *given], [], 0, {"source": "none"})
    before = earlier_calls(captures / "sweep.json", len(ledger.rows))
    call = begin_call(facts, len(ledger.rows))
    describe(out, ledger, rounds, [*before, call])
    try:
        measure_all()
    finally:
        clocks = {} if sampler is None else {"clocks": sampler.clocks, "clocks_reason": sampler.reason}
        ended = end_call(call, len(ledger.rows), clocks)
        describe(out, ledger, rounds, [*before, *ended])
        if sampler is not None and (ended or not (captures / "manifest.json").is_file()):
            manifest.write_manifest(captures / "manifest.json", facts | clocks)


def finish(out: Path, ledger: Ledger, rounds: int, update: bool) -> None:
    """Write the choices; with `update`, also kernels/tuned.toml."""

    calls = earlier_calls(out / "captures" / "sweep.json", len(ledger.rows))
    choices = describe(out, ledger, rounds, calls)
    counts: dict[str, int] = {}
    for row in latest(ledger.rows):
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    print("rows: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    for choice in choices:
        print(f"{choice['source']} on {choice['gpu']}: {choice['macros'] if choice['clear'] else choice['default']}")
        print(f"  {choice['why']}")
        if choice["clear"] and choice["keeps_default"]:
            print(f"  not compiled in: {choice['keeps_default']}")
        if choice["clear"] and choice["not_measured"]:
            print(f"  not measured: {'; '.join(choice['not_measured'])}")
    if update:
        run = out.resolve()
        print(update_tuned(choices, run.relative_to(ROOT).as_posix() if run.is_relative_to(ROOT) else run.name))


def update_tuned(choices: Sequence[Row], run: str) -> str:
    """Write kernels/tuned.toml, and return its new entries for the swept sources."""
    from kernels import tuned

    entries: list[Mapping[str, Any]] = list(tuned.read())
    for choice in choices:
        entries = tuned.replaced(entries, choice["gpu"], choice["source"], macros_of(choice), entries_of([choice], run))
    write(tuned.TABLE, tuned.text(entries))
    count = len(entries_of(choices, run))
    return f"kernels/{tuned.TABLE.name} recommends other than the default for {count} of {len(choices)} swept sources"


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    from kernels import tuned

    parser = documented("python -m studies.sweep.measure", __doc__)
    parser.add_argument("ops", nargs="+", metavar="OP", help="ops of kernels.registry")
    parser.add_argument("--variants", nargs="+", help="names of variants (default: all with tunables)")
    parser.add_argument("--dtype", nargs="+", help="fp32, bf16 (default: all of the op)")
    parser.add_argument(
        "--shapes", nargs="+", help="names of shapes: these alone, no second stage (default: the ladder's)"
    )
    parser.add_argument("--out", type=Path, help="run folder (default runs/<time>-<gpu>-sweep-<op>)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"samples of each combination (default {ROUNDS})")
    parser.add_argument("--arch", type=int, default=90, help="without a GPU: compile for this one (default 90)")
    parser.add_argument(
        "--counters", action="store_true", help="ncu's counters of the default, the fastest and the slowest of each"
    )
    parser.add_argument("--update", action="store_true", help="write kernels/tuned.toml")
    parser.add_argument("-n", "--dry-run", action="store_true", help="list the combinations, run nothing")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    # times are relative to the defaults, so neither this process nor its children may use an earlier recommendation
    before = os.environ.get(tuned.SWITCH)
    os.environ[tuned.SWITCH] = "off"
    try:
        return guarded(lambda: _run(options, given), "smaller --shapes")
    finally:
        del os.environ[tuned.SWITCH]
        if before is not None:
            os.environ[tuned.SWITCH] = before


def _run(options: argparse.Namespace, given: Sequence[str]) -> int:
    from harness import manifest
    from kernels import registry
    from studies import outputs

    known = registry.ops()
    for name in options.ops:
        if name not in known:
            raise UsageError(f"OP {name!r} is unknown: use {', '.join(known)}.")
    if options.rounds < 2:
        raise UsageError("--rounds must be 2 or more.")
    cells = plan([known[name] for name in options.ops], options.variants, options.dtype, options.shapes)
    gpu = gpu_at_hand()
    arch = gpu.arch if gpu else options.arch
    out = options.out or outputs.default_run(f"{KIND}-{'-'.join(options.ops)}")
    if options.dry_run:
        file = out / "captures" / FILE
        dry_run(cells, Ledger(file) if packed.find(file).is_file() else None, gpu, arch, every_shape=not options.shapes)
        return 0
    if gpu is None and options.counters:
        progress("no NVIDIA GPU, so --counters takes none")
    if out.is_dir() and any(out.iterdir()) and not packed.find(out / "captures" / FILE).is_file():
        raise UsageError(
            f"--out {out} is not a run of a sweep: it holds other things and no {FILE}; give a new folder."
        )
    ledger = Ledger(outputs.captures_of(out) / FILE)
    if gpu is None and options.update:
        finish(out, ledger, options.rounds, update=True)
        return 0
    if gpu is None:
        progress(f"no NVIDIA GPU: the combinations are compiled for sm_{arch}, and nothing is timed")
    code = 0
    with manifest.ClockSampler(paused=True) if gpu else contextlib.nullcontext() as sampler:

        def measure_all() -> None:
            def start(jobs: Sequence[Row]) -> Iterator[Row]:
                return sampled(events(WORKER, jobs), sampler)

            sweep(cells, ledger, gpu, arch, options.rounds, start)
            before = -1
            while gpu and not options.shapes and before < len(ledger.rows):  # the next best replaces a slower one
                before = len(ledger.rows)
                if more := second_stage(cells, ledger.rows, gpu.name):
                    progress("second stage: what is clearly faster, and the default, at every shape")
                    sweep(more, ledger, gpu, arch, options.rounds, start)

        try:
            recorded(out, ledger, given, options.rounds, sampler, measure_all)
        except KeyboardInterrupt:
            progress(f"interrupted; all measurements so far are kept: repeat the command with --out {out} to continue")
            code = 130
    if options.counters and gpu and not code:
        capture_counters(out, ledger, cells, gpu)
    finish(out, ledger, options.rounds, options.update and not code)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
