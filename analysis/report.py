"""Turn nsys and ncu exports into tables, figures and one report.

The only composer and the only writer of `analysis/`: it reads a capture, calls the tables, then the views, and moves
the finished folder into place. Run it as `python analysis/report.py [PATH …] [--out DIR]`; needs no GPU and no torch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    # Run as a script, Python puts analysis/ on the path, where `capture` or `tables` could shadow other packages.
    sys.path[0] = str(ROOT)

if TYPE_CHECKING:
    import pandas as pd

    from analysis.capture.model import Capture, Gap

RUNS = ROOT / "runs"
COMMITTED = ROOT / "reports"
PARTS = ("tables", "figures", "report.json", "report.md", "report.html")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: report written. 2: wrong usage. 3: input that cannot be read."""
    options = _parse(arguments)
    # Imported late so that --help answers at once.
    from analysis.capture.errors import AnalysisError

    try:
        paths = options.paths or [default_run()]
        out = options.out or default_out(paths[0])
        report = build(paths, out, extrapolate=options.extrapolate_siblings, only=options.only, quiet=options.quiet)
    except AnalysisError as error:
        print(f"report.py: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(
            f"report.py: {error.filename or 'file'}: {error.strerror}; check the path and its permissions",
            file=sys.stderr,
        )
        return 3
    from analysis.views.markdown import render_terminal

    if options.only == "roofline":
        figures = [file for figure in report["figures"] if figure["name"] == "roofline" for file in figure["files"]]
        print("\n".join(_shown(out / name) for name in (*figures, "tables/roofline.csv")))
        return 0 if figures else 3
    print(render_terminal(report))
    print(f"\nreport: {_shown(out / 'report.html')}  {_shown(out / 'report.md')}")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="report.py",
        description="Tables, figures and a report from nsys and ncu exports. The kind of a file is told from its content.",
    )
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH",
        help="files or folders of exports (default: the newest run in runs/, else the committed one)",
    )  # fmt: skip
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where the report goes (default: the run, or runs/NAME-report)",
    )
    parser.add_argument(
        "--extrapolate-siblings", action="store_true",
        help="give kernels without counters those of a sibling layer with the same kernel, grid and block; the report says so",
    )  # fmt: skip
    parser.add_argument("--only", choices=["roofline"], help="write only this figure and its table")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser.parse_args(arguments)


def default_run() -> Path:
    """Return the newest folder in runs/ that holds captures, else the committed run.

    Raises: InputError if there is neither.
    """
    from analysis.capture.errors import InputError

    for folder in (RUNS, COMMITTED):
        # names of runs begin with their UTC time stamp, so the newest is the last by name
        found = sorted(path.parent for path in folder.glob("*/captures") if any(path.iterdir()))
        if found:
            return found[-1]
    raise InputError(
        "no run found in runs/ or reports/; take one with `make profile` or name a file or folder of exports"
    )


def default_out(path: Path) -> Path:
    """A run of runs/ gets its report inside; everything else, committed runs above all, one in runs/NAME-report."""
    resolved = path.resolve()
    run = resolved.parent if resolved.name == "captures" else resolved
    if run.parent == RUNS and run.is_dir():
        return run
    return RUNS / f"{run.stem if run.is_file() else run.name}-report"


def build(
    paths: Sequence[Path],
    out: Path,
    *,
    extrapolate: bool = False,
    only: str | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Read, analyse and write a report into `out`; return report.json's content. Nothing is left behind on failure.

    Raises: AnalysisError with one sentence for input that cannot be used.
    """
    from tqdm import tqdm

    from analysis.capture.load import load

    with tqdm(total=5, disable=quiet or not sys.stderr.isatty(), leave=False, unit="stage") as progress:

        def stage(name: str) -> None:
            progress.set_description(name)
            progress.update()

        stage("reading exports")
        sources = [path / "captures" if (path / "captures").is_dir() else path for path in paths]
        capture = load(sources, progress=not quiet and sys.stderr.isatty())
        stage("building tables")
        report, tables, roofs = analyse(capture, extrapolate=extrapolate)
        stage("drawing figures")
        images = draw(report, tables, roofs, only=only)
        stage("writing the report")
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
            written = write(Path(scratch), report, tables, images, only=only)
            stage("moving it into place")
            _move_into_place(Path(scratch), out, written)
    return report


def analyse(
    capture: Capture, *, extrapolate: bool = False
) -> tuple[dict[str, Any], dict[str, pd.DataFrame], pd.DataFrame]:
    """Return (report.json's content, the tables by name, the roofs) of a capture. Pure: touches no file."""
    import numpy as np

    from analysis.hardware import metrics
    from analysis.hardware.devices import find_device
    from analysis.tables import (
        attribution,
        findings,
        gaps,
        join,
        kernels,
        layers,
        roofline,
        selftest,
        stalls,
        traffic,
    )
    from analysis.tables.schema import TABLES

    named_gaps = list(capture.gaps)
    gpu_ops = capture.gpu_ops.reset_index(drop=True)
    ranges = capture.ranges.reset_index(drop=True)
    has_timeline = len(gpu_ops) > 0
    owner = attribution.attribute(gpu_ops, ranges)
    launches = join.prepare_launches(gpu_ops, owner, ranges)
    counters = join.prepare_counters(capture.counters)
    ncu = next((tool for tool in capture.tools if tool.get("tool") == "ncu"), None)
    include = ncu.get("nvtx_include") if ncu and ncu.get("status") == "ok" else None
    joined = join.join(launches, counters, include, extrapolate=extrapolate)
    derived = metrics.derive(counters, capture.counter_units)
    measured = kernels.measured_launches(joined.launches, counters, derived)

    gpu_name = _gpu_name(capture)
    device = find_device(gpu_name, _compute_capability(capture)) if gpu_name else None
    roofs = roofline.build_roofs(capture.ceilings, device)

    tables: dict[str, pd.DataFrame] = {}
    tables["layers"] = layers.build_layers(ranges, launches, has_timeline=has_timeline)
    tables["layers_folded"] = layers.fold_layers(tables["layers"])
    tables["kernels"] = kernels.build_kernels(measured)
    tables["roofline"] = roofline.build_roofline(measured, roofs)
    tables["stalls"] = stalls.build_stalls(measured)
    seen_paths = set(launches["path"]) | set(ranges["path"]) if len(ranges) else set()
    tables["traffic"] = traffic.build_traffic(measured, capture.ops, seen_paths)
    tables["coverage"] = join.build_coverage(joined) if has_timeline else TABLES["coverage"].empty()

    steps = gaps.find_steps(ranges)
    step_of_row = gaps.step_of_rows(ranges, steps, attribution.parent_rows(ranges)) if len(ranges) else np.array([])
    rows = owner.to_numpy(np.int64)
    step_of_op = np.where(rows >= 0, step_of_row[np.maximum(rows, 0)], -1) if len(ranges) else rows
    bare = {step["range"]: float(step["wall_ns"]["p50"]) for step in (capture.timing or {}).get("steps", [])}
    limits = gaps.step_limits(
        measured, tables["roofline"], capture.ops, roofs, list(steps["path"]) if len(steps) else []
    )
    tables["gaps"] = gaps.build_gaps(gpu_ops, steps, step_of_op, bare, limits)

    trust = selftest.check_counters(measured, capture.ops) if len(counters) else None
    if trust is None:
        trust = {"status": "untested", "sentence": "This report holds no hardware counters.", "checks": []}
    seen = int(joined.launches["requested"].sum()) if len(joined.launches) else 0
    coverage = {
        "sentence": _coverage_sentence(joined.matched, seen, len(launches), joined.how, bool(len(counters))),
        "matched": joined.matched,
        "seen": seen,
        "frac": joined.matched / seen if seen and len(counters) else None,
        "refused": int((joined.launches["refused"] != "").sum()) if len(counters) and len(joined.launches) else 0,
    }
    own = np.zeros(len(ranges), dtype=np.int64)
    kernel_rows = launches[launches["owner"] >= 0]
    np.add.at(own, kernel_rows["owner"].to_numpy(np.int64), kernel_rows["duration_ns"].to_numpy(np.int64))
    equal, compared = layers.check_against_nsys(ranges, own, capture.nsys_range_sums)

    notes = []
    if compared:
        notes.append(
            f"Kernel time per range equals nsys' own nvtx_kern_sum to the nanosecond in {equal} of {compared} ranges."
        )
    siblings = int((joined.launches["counters_from"] == "sibling").sum()) if len(joined.launches) else 0
    if siblings:
        notes.append(
            f"{siblings} kernels carry the counters of a sibling layer (--extrapolate-siblings), not their own."
        )
    notes += _timing_notes(capture.timing)
    named_gaps += _gaps_of(capture, roofs, gpu_name, device is not None, tables, has_timeline)
    ranked = findings.find(
        tables["gaps"], measured, tables["roofline"], tables["stalls"], tables["traffic"], roofs
    ) if has_timeline else findings.largest_ranges(tables["layers_folded"])  # fmt: skip
    report = {
        "kind": "report",
        "schema_version": 1,
        "title": _title(capture, gpu_name),
        "conditions": _conditions(capture, gpu_name, ncu),
        "trust": trust,
        "coverage": coverage,
        "findings": ranked,
        "tables": [
            {
                "name": name,
                "file": f"tables/{name}.csv",
                "question": schema.question,
                "rows": len(tables[name]),
                "columns": [
                    {"name": column.name, "unit": column.unit, "description": column.description}
                    for column in schema.columns
                ],
            }
            for name, schema in TABLES.items()
        ],
        "figures": [],
        "gaps": [{"what": gap.what, "why": gap.why, "fix": gap.fix} for gap in dict.fromkeys(named_gaps)],
        "files": [{"name": file.name, "kind": file.kind, "rows": file.rows} for file in capture.files],
        "notes": notes,
    }
    return report, tables, roofs


def draw(
    report: dict[str, Any], tables: dict[str, pd.DataFrame], roofs: pd.DataFrame, *, only: str | None
) -> dict[str, dict[str, bytes]]:
    """Draw one figure a table that has rows; return {name: {"svg": …, "png": …}} and enter them in report["figures"]."""
    from analysis.views import figures

    caption = "  ·  ".join(f"{c['name']}: {c['value']}" for c in report["conditions"] if c["name"] in _CAPTION)
    plots: dict[str, tuple[str, Callable[[], Any]]] = {
        "roofline": ("roofline", lambda: figures.plot_roofline(tables["roofline"], roofs, caption)),
        "stalls": ("stalls", lambda: figures.plot_stalls(tables["stalls"], caption)),
        "traffic": ("traffic", lambda: figures.plot_traffic(_traffic_by_op(tables["traffic"]), caption)),
        "layers": ("layers_folded", lambda: figures.plot_layers(tables["layers_folded"], caption)),
    }
    images = {}
    for name, (table, plot) in plots.items():
        if only not in (None, name) or tables[table].empty:
            continue
        figure = plot()
        if figure is None:
            continue
        images[name] = figures.to_bytes(figure)
        files = [f"figures/{name}.{suffix}" for suffix in sorted(images[name], reverse=True)]
        report["figures"].append({"name": name, "files": files, "table": table, "caption": caption})
    return images


def write(
    folder: Path, report: dict[str, Any], tables: dict[str, pd.DataFrame], images: dict[str, dict[str, bytes]],
    *, only: str | None,
) -> list[str]:  # fmt: skip
    """Write the report's parts into `folder`; return their names relative to it."""
    from analysis.views.html import render_html
    from analysis.views.markdown import render_markdown

    (folder / "tables").mkdir()
    (folder / "figures").mkdir()
    written = []
    for name, table in tables.items():
        if only in (None, name):
            table.to_csv(folder / "tables" / f"{name}.csv", index=False, lineterminator="\n", float_format="%.6g")
            written.append(f"tables/{name}.csv")
    for name, image in images.items():
        for suffix, content in image.items():
            (folder / "figures" / f"{name}.{suffix}").write_bytes(content)
            written.append(f"figures/{name}.{suffix}")
    if only is not None:
        return written
    texts = {
        "report.json": json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False, default=_plain) + "\n",
        "report.md": render_markdown(report, tables),
        "report.html": render_html(report, tables, {name: image["svg"].decode() for name, image in images.items()}),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return list(PARTS)


def _move_into_place(scratch: Path, out: Path, names: list[str]) -> None:
    """Swap finished parts in; what was there is kept until every part has moved, and comes back if one cannot."""
    out.mkdir(parents=True, exist_ok=True)
    kept = scratch / "replaced"
    moved: list[str] = []
    try:
        for name in names:
            (kept / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            if (out / name).exists():
                os.replace(out / name, kept / name)
            moved.append(name)
            os.replace(scratch / name, out / name)
    except BaseException:
        for name in reversed(moved):
            if (kept / name).exists():
                if (out / name).is_dir():
                    shutil.rmtree(out / name)
                os.replace(kept / name, out / name)
        raise


_CAPTION = ("GPU", "workload", "SM clock", "ncu cache control")


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in report.json")


def _shown(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _gpu_name(capture: Capture) -> str | None:
    """The GPU as the manifest names it, else as nsys or ncu do."""
    gpu = (capture.manifest or {}).get("gpu") or {}
    if gpu.get("name"):
        return str(gpu["name"])
    for frame in (capture.gpu_ops, capture.counters):
        names = [name for name in frame["device"].dropna().unique() if name and not str(name).isdigit()]
        if names:
            return str(names[0])
    return None


def _compute_capability(capture: Capture) -> str | None:
    gpu = (capture.manifest or {}).get("gpu") or {}
    if gpu.get("compute_capability"):
        return str(gpu["compute_capability"])
    values = [value for value in capture.counters["cc"].dropna().unique() if value]
    return str(values[0]) if values else None


def _title(capture: Capture, gpu_name: str | None) -> str:
    workloads = (capture.manifest or {}).get("workloads") or []
    what = "GPT-2" if any(str(w.get("range", "")).startswith("gpt2") for w in workloads) else "Capture"
    if gpu_name:
        return f"{what} on {gpu_name}"
    return f"{what} on the CPU" if capture.clock == "cpu" else what


def _conditions(capture: Capture, gpu_name: str | None, ncu: dict[str, Any] | None) -> list[dict[str, str]]:
    manifest = capture.manifest or {}
    rows: list[tuple[str, Any]] = [("GPU", gpu_name)]
    names = [f"{w.get('name')} {w.get('dtype', '')}".strip() for w in manifest.get("workloads") or []]
    rows.append(("workload", ", ".join(dict.fromkeys(names))))
    clocks = manifest.get("clocks") or {}
    for label, key, unit in (
        ("SM clock", "sm_mhz", "MHz"),
        ("memory clock", "memory_mhz", "MHz"),
        ("power", "power_w", "W"),
    ):
        seen = clocks.get(key)
        if seen:
            rows.append((label, f"{seen['min']:g}–{seen['max']:g} {unit}, median {seen['median']:g}"))
    rows.append(("throttling", ", ".join(clocks.get("throttle_reasons") or [])))
    rows += [(name, manifest.get(name)) for name in ("driver", "cuda", "torch", "nsys", "ncu")]
    weights = manifest.get("weights") or {}
    rows.append(
        (
            "weights",
            f"{weights['source']}, seed {manifest.get('seed')}"
            if weights.get("source") == "random"
            else weights.get("source"),
        )
    )
    if ncu:
        rows += [
            (f"ncu {name}", ncu.get(f"{name.replace(' ', '_')}"))
            for name in ("cache control", "clock control", "replay mode")
        ]
    rows.append(("locale", manifest.get("locale")))
    rows.append(("commit", manifest.get("git_sha")))
    return [{"name": name, "value": str(value)} for name, value in rows if value]


def _coverage_sentence(matched: int, seen: int, total: int, how: str, has_counters: bool) -> str:
    if not has_counters:
        return "No ncu counters: everything here is of tier timing."
    if not total:
        return "No nsys timeline: counters stand alone, without the time that kernels take in the running program."
    share = f" ({matched / seen:.1%})" if seen else ""
    return f"{matched} of {seen} kernels{share} have counters; the timeline holds {total}. {how}"


def _timing_notes(timing: dict[str, Any] | None) -> list[str]:
    notes = []
    rates = (timing or {}).get("tokens_per_s") or {}
    for name, rate in rates.items():
        value = rate.get("p50") if isinstance(rate, dict) else rate
        if isinstance(value, int | float):
            spread = (
                f" (p5 {rate['p5']:,.1f}, p95 {rate['p95']:,.1f})" if isinstance(rate, dict) and "p5" in rate else ""
            )
            notes.append(f"{name}: {value:,.1f} tokens/s without a tool{spread}.")
    return notes


def _gaps_of(
    capture: Capture, roofs: pd.DataFrame, gpu_name: str | None, device_known: bool, tables: dict[str, pd.DataFrame],
    has_timeline: bool,
) -> list[Gap]:  # fmt: skip
    """Name what this report cannot answer, why, and what would change that."""
    from analysis.capture.model import Gap

    found = []
    has_counters = len(capture.counters) > 0
    for tool in capture.tools:
        if tool.get("status") not in (None, "ok"):
            found.append(
                Gap(
                    f"{tool['tool']} capture {tool['status']}",
                    str(tool.get("reason") or ""),
                    str(tool.get("fix") or ""),
                )
            )
    named = {str(tool.get("tool")) for tool in capture.tools if tool.get("status") not in (None, "ok")}
    if not has_timeline and "nsys" not in named and capture.clock != "cpu":
        found.append(
            Gap(
                "time per layer and step",
                "there is no nsys timeline",
                "add the nsys CSV exports of the same program (nsys_scripts/nsys_capture.sh)",
            )
        )
    if not has_counters and "ncu" not in named:
        why = "the run was on a CPU" if capture.clock == "cpu" else "there is no ncu export"
        found.append(
            Gap(
                "roofline, stalls and measured bytes",
                why,
                "capture with nsys_scripts/ncu_capture.sh on a machine with an NVIDIA GPU",
            )
        )
    if has_timeline and capture.ranges.empty:
        found.append(
            Gap(
                "time per layer",
                "the capture holds no NVTX range",
                "annotate the program with NVTX ranges (torch.cuda.nvtx.range_push/pop) and capture with `-t cuda,nvtx`",
            )
        )
    if capture.ops is None:
        found.append(
            Gap(
                "predicted bytes",
                "there is no ops.csv, which says what each range must move",
                "profile through the harness, or write one (analysis/README.md)",
            )
        )
    if (has_timeline or has_counters) and roofs["measured"].isna().all():
        found.append(
            Gap(
                "measured roofs",
                "there is no ceilings.json",
                "run `python -m harness.run --mode bare` on that GPU",
            )
        )
    if gpu_name and not device_known and capture.clock != "cpu":
        found.append(
            Gap(
                "datasheet roofs",
                f"the GPU {gpu_name} is not in the device table",
                "add it to analysis/hardware/devices.toml with its source",
            )
        )
    if has_timeline and capture.timing is None:
        found.append(
            Gap(
                "verdicts on steps",
                "there is no wall time without a tool (timing.json)",
                "run `python -m harness.run --mode bare` or write the file (analysis/README.md)",
            )
        )
    if has_counters and tables["stalls"].empty:
        found.append(
            Gap(
                "stall reasons",
                "the ncu export holds no stall metrics",
                "capture with the metrics of `python -m analysis.hardware.metrics`",
            )
        )
    if has_counters and tables["roofline"].empty:
        found.append(
            Gap(
                "roofline",
                "the ncu export holds no duration, bytes or FLOPs",
                "capture with the metrics of `python -m analysis.hardware.metrics`",
            )
        )
    return found


def _traffic_by_op(traffic: pd.DataFrame) -> pd.DataFrame:
    """The rows for the byte figure: repeated layers summed; only ops that a fusion changes, or all if there is none."""
    import pandas as pd

    from analysis.tables.attribution import fold_paths

    table = traffic.assign(range=fold_paths(traffic["range"]))
    changed = table["predicted_fused_bytes"].notna()
    table = table[changed] if changed.any() else table
    numbers = [name for name in table if name.endswith("_bytes")]
    groups = table.groupby(["range", "op", "variant", "tier"], sort=False, dropna=False)
    summed = groups[numbers].agg(lambda values: values.sum(skipna=False)).reset_index()
    total = summed["dram_read_bytes"] + summed["dram_write_bytes"]
    summed["measured_over_minimum"] = total / summed["minimum_bytes"].astype(pd.Float64Dtype())
    return summed.head(20)


if __name__ == "__main__":
    sys.exit(main())
