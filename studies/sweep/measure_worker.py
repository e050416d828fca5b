"""Check and time combinations for studies.sweep.measure, in a process that may crash at the cost of one combination.

    python -m studies.sweep.measure_worker < jobs.json                checks and times, one JSON object a line on stdout
    python -m studies.sweep.measure_worker --launch launches.json     one launch of each, in NVTX ranges, for ncu

Lines: {"start": [numbers]} before these are touched ("timed": true where they are timed), {"row": number,
"fields": {…}} once one is known.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.formats import symbols
from analysis.formats.console import documented
from analysis.formats.spans import QUANTILES, quantiles
from harness.manifest import first_line

if TYPE_CHECKING:
    from kernels.registry import Op

Say = Callable[[dict[str, Any]], None]
LIBRARIES = 150  # libraries a process: each takes some of its 1024 thread-specific keys


def batches(jobs: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Split the jobs into batches whose libraries fit one process, with at least one job each."""
    batch: list[dict[str, Any]] = []
    held: set[str] = set()
    for job in jobs:
        more = {row["library"] for row in job["rows"]}
        if batch and len(held | more) > LIBRARIES:
            yield batch
            batch, held = [], set()
        batch, held = [*batch, job], held | more
    if batch:
        yield batch


def combined(op: Op, variant: str, libraries: dict[str, str]) -> tuple[Any, dict[str, str]]:
    """Return (the op with one variant for each library, by the library's key; reasons of those that do not load)."""
    from kernels.combinations import load
    from kernels.variants import calling

    base = op.variant(variant)
    variants, failed = {}, {}

    def through(module: Any) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            with calling(op.folder, module):
                return base.fn(*inputs)

        return run

    for key, path in libraries.items():
        try:
            module = load(Path(path), op.folder)
        except ImportError as error:
            failed[key] = first_line(error)
            continue
        variants[key] = dataclasses.replace(base, fn=through(module))
    return dataclasses.replace(op, variants=variants, best_by_dtype={}), failed


def check(op: Op, keys: Sequence[str], dtype: str, shape: tuple[int, ...], say: Say) -> dict[str, float]:
    """Return (keys that pass, with the share of the tolerance that their worst error uses; rows of the keys that fail).

    The check runs the op's check shapes and `shape`.
    """
    import torch

    from studies.bench import measure as bench

    passed = {}
    for key in keys:
        say({"start": [int(key)]})
        try:
            checks = bench.check_variant(op, key, dtype, bench.check_shapes(op, key), "cuda", [shape])
            torch.cuda.synchronize()
        except Exception as error:  # any error of a launch belongs to this combination
            say({"row": int(key), "fields": {"verdict": "does not run", "reason": first_line(error)}})
            torch.cuda.synchronize()  # a broken context raises here, the process ends, and a new one continues
            continue
        wrong = [one for one in checks if not one.passed]
        if wrong:
            where = "x".join(map(str, wrong[0].shape))
            reason = f"{wrong[0].note} at {where}, {wrong[0].inputs}, {len(wrong)} of {len(checks)} checks"
            say({"row": int(key), "fields": {"verdict": "wrong", "reason": reason}})
        else:
            passed[key] = max((one.tolerance_used for one in checks), default=0.0)
    return passed


def geometry(op: Op, keys: Sequence[str], inputs: tuple[Any, ...]) -> dict[str, dict[str, Any]]:
    """Return grid, block, registers and shared memory of each variant's longest kernel, by CUPTI."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for key in keys:
            with torch.profiler.record_function(f"combination {key}"):
                op.variants[key].fn(*inputs)
                torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        found = json.loads(trace.read_text("utf-8", errors="replace"))["traceEvents"]
    return read_geometry(found, keys)


def read_geometry(events: Sequence[dict[str, Any]], keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the same, from the events of a trace: a kernel belongs to the CPU range in which it ran."""
    spans = {
        event["name"].removeprefix("combination "): (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") == "user_annotation" and str(event.get("name", "")).startswith("combination ")
    }
    kernels = [event for event in events if event.get("cat") == "kernel" and event.get("ph") == "X"]
    fields = {}
    for key in keys:
        start, end = spans.get(key, (0.0, -1.0))
        inside = [event for event in kernels if start <= event["ts"] <= end]
        if not inside:
            continue
        longest = max(inside, key=lambda event: float(event["dur"]))
        about = longest["args"]
        grid, block = about["grid"], about["block"]
        fields[key] = {
            "kernel": symbols.key(str(longest["name"]))[:120],
            "registers": about["registers per thread"],
            "shared_bytes": about["shared memory"],
            "grid_blocks": grid[0] * grid[1] * grid[2],
            "block_threads": block[0] * block[1] * block[2],
        }
    return fields


def timed(
    op: Op, keys: Sequence[str], default: str, dtype: str, shape: tuple[int, ...], rounds: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (key, fields of times) of each combination, timed isolated (studies/bench) beside the default."""
    from studies.bench import measure as bench

    together = [*([default] if default in op.variants and default not in keys else []), *keys]
    baseline = dataclasses.replace(op, baseline=together[0], best=together[0])
    told: set[str] = set()
    for group in bench.groups_by_speed(baseline, together, dtype, shape, rounds):
        seconds = bench.time_isolated(baseline, group, dtype, shape)
        for key in group.variants:
            if key in keys and key not in told:  # every group contains the default
                yield key, times(seconds.seconds[key], seconds.seconds.get(default, []), seconds.launches)
                told.add(key)


def times(seconds: Sequence[float], default: Sequence[float], launches: int) -> dict[str, Any]:
    """Return the fields of a row from its samples; versus_default pairs the rounds."""
    fields: dict[str, Any] = {"verdict": "timed", "samples": len(seconds), "launches_per_sample": launches}
    spans = zip(QUANTILES, quantiles(seconds), strict=True)
    fields |= {f"bench_time_{name}_ns": round(value * 1e9) for name, value in spans}
    if default:
        ratios = [before / now for before, now in zip(default, seconds, strict=True)]
        spans = zip(QUANTILES, quantiles(ratios), strict=True)
        fields |= {f"versus_default_{name}": f"{value:.5g}" for name, value in spans}
    return fields


def run_job(job: dict[str, Any], say: Say) -> None:
    """Check, inspect and time the combinations of one rung, dtype and shape."""
    import torch

    from harness import manifest
    from kernels.registry import ops

    dtype, shape = job["dtype"], tuple(job["shape"])
    libraries = {str(row["id"]): row["library"] for row in job["rows"]}
    wanted = {str(row["id"]) for row in job["rows"] if row["wanted"]}
    default = next((str(row["id"]) for row in job["rows"] if row["default"]), "")
    op, failed = combined(ops()[job["op"]], job["variant"], libraries)
    for key, reason in failed.items():
        say({"row": int(key), "fields": {"verdict": "does not link", "reason": reason}})
    passed = check(op, list(op.variants), dtype, shape, say)
    torch.cuda.empty_cache()
    if not wanted & set(passed):
        return
    say({"start": [int(key) for key in passed]})
    facts = manifest.gpu_facts() or {}
    launched: dict[str, dict[str, Any]] = {}
    try:
        if job["group"] > 1:  # after a crash, inspect nothing and only time
            launched = geometry(op, list(passed), op.make_inputs(shape, dtype, device="cuda"))
    except RuntimeError as error:  # CUPTI may be in use or forbidden; times do not need it
        print(f"no launch geometry: {error}", file=sys.stderr)
    torch.cuda.empty_cache()
    pending = [key for key in passed if key in wanted]
    size = max(1, job["group"] - 1)
    first = [key for key in pending if key == default]
    others = [key for key in pending if key != default]
    groups = [others[place : place + size] for place in range(0, len(others), size)]
    if first and size > 1 and groups:
        groups[0] = [*first, *groups[0]]
    elif first:  # one by one, so that a crash belongs to one combination
        groups = [first, *groups]
    for group in groups:
        say({"start": [int(key) for key in group], "timed": True})
        try:
            for key, fields in timed(op, group, default if default in passed else "", dtype, shape, job["rounds"]):
                about = launched.get(key, {}) | ({"sm_count": facts["sm_count"]} if key in launched else {})
                about |= {"tolerance_used": f"{passed[key]:.3g}"}
                say({"row": int(key), "fields": about | fields})
        except Exception as error:
            if len(group) > 1:
                raise  # one of them failed: the parent has them timed one by one
            say({"row": int(group[0]), "fields": {"verdict": "not timed", "reason": first_line(error)}})
            torch.cuda.synchronize()
        torch.cuda.empty_cache()


def launch(jobs: Sequence[dict[str, Any]]) -> None:
    """Launch each combination once in its NVTX range."""
    import torch

    from kernels.registry import ops

    for job in jobs:
        dtype, shape = job["dtype"], tuple(job["shape"])
        op, _ = combined(ops()[job["op"]], job["variant"], {row["range"]: row["library"] for row in job["rows"]})
        inputs = op.make_inputs(shape, dtype, device="cuda")
        for path, variant in op.variants.items():
            names = path.split("/")
            for name in names:
                torch.cuda.nvtx.range_push(name)
            variant.fn(*inputs)
            torch.cuda.synchronize()
            for _ in names:
                torch.cuda.nvtx.range_pop()
        del inputs
        torch.cuda.empty_cache()


def launch_all(jobs: Sequence[dict[str, Any]]) -> int:
    """Run `launch` in one process a batch, in turn; return the exit status of the first that fails."""
    for batch in batches(jobs):
        process = multiprocessing.get_context("spawn").Process(target=launch, args=(batch,))
        process.start()
        process.join()
        if process.exitcode:
            return abs(process.exitcode)
    return 0


def main() -> int:
    """See the module's docstring."""
    parser = documented("python -m studies.sweep.measure_worker", __doc__)
    parser.add_argument("--launch", type=Path, help="launch what this file lists, once each")
    options = parser.parse_args()
    if options.launch:
        return launch_all(json.loads(options.launch.read_text("utf-8")))
    jobs = json.load(sys.stdin)
    # libraries print to stderr, so that stdout holds only our lines
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(line: dict[str, Any]) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    for job in jobs:
        run_job(job, tell)
    return 0


if __name__ == "__main__":
    from analysis.formats.console import run_program

    sys.exit(run_program(main))
