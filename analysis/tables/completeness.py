"""What a report cannot answer: each gap by name, with its reason and the way out."""

from __future__ import annotations

import math

import pandas as pd

from analysis.capture.model import Capture, Gap
from analysis.formats.words import count_of
from studies.sweep.tables import CELL

BARE_RUN = "run `python -m harness.run --mode bare --out RUN/captures` on that GPU"
METRICS = "capture with the metrics that `python -m analysis.metrics` prints"


def name_gaps(
    capture: Capture, roofs: pd.DataFrame, gpu: str | None, *, device_known: bool, tables: dict[str, pd.DataFrame]
) -> list[Gap]:
    """Return the gaps of this capture beside those that the readers found."""
    has_timeline, has_counters, on_cpu = len(capture.gpu_ops) > 0, len(capture.counters) > 0, capture.clock == "cpu"
    if capture.sweep_rows is not None:  # a sweep has neither steps nor layers
        return _sweep_gaps(capture, tables["sweep"])
    # a tool that failed is a gap that its own status file already named
    named = {tool.get("tool") for tool in capture.tools if tool.get("status") != "ok"}
    conditions = (
        (
            not has_timeline and "nsys" not in named and not on_cpu and capture.ranges.empty,
            Gap("time per layer and step", "there is no nsys timeline", "add the nsys exports of the same program"),
        ),
        (
            not has_timeline and not on_cpu and len(capture.ranges) > 0,
            Gap(
                "time on the GPU",
                "the timeline holds ranges and no GPU operation",
                "capture with `-t cuda,nvtx` a program that uses an NVIDIA GPU",
            ),
        ),
        (
            not has_counters and "ncu" not in named,
            Gap(
                "roofline, stalls and measured bytes",
                "the run was on a CPU" if on_cpu else "there is no ncu export",
                "capture with nsys_scripts/ncu_capture.sh on a machine with an NVIDIA GPU",
            ),
        ),
        (
            capture.ops is None,
            Gap(
                "predicted bytes", "there is no ops.csv, which says what each range must move", "see analysis/README.md"
            ),
        ),
        (
            (has_timeline or has_counters) and bool(roofs["measured"].isna().all()),
            Gap("measured roofs", "there is no ceilings.json", BARE_RUN),
        ),
        (
            bool(gpu) and not device_known and not on_cpu,
            Gap(
                "datasheet roofs",
                f"the GPU {gpu} is not in the device table",
                "add it with its source to analysis/hardware/devices.toml",
            ),
        ),
        (
            has_timeline and capture.timing is None,
            Gap("verdicts on steps", "there is no wall time without a tool (timing.json)", BARE_RUN),
        ),
        (
            has_timeline and capture.dataflow is None,
            Gap(
                "what to fuse, beyond known patterns",
                "there is no dataflow.csv, which says which tensors each operation reads and writes",
                "capture with harness.run, or record it with harness/dataflow.py",
            ),
        ),
        (
            has_counters and tables["stalls"].empty,
            Gap("stall reasons", "the ncu export holds no stall metrics", METRICS),
        ),
        (
            has_counters and tables["rules"].empty,
            Gap(
                "what ncu's own rules say",
                "no details page of ncu with rules is among the files",
                "export it with `ncu --import X.ncu-rep --csv --page details` and add the file",
            ),
        ),
        (
            has_counters and tables["source"].empty,
            Gap(
                "the hottest source lines",
                "no source page of ncu with samples is among the files",
                "compile with -lineinfo, capture with `--section SourceCounters --import-source yes`, export with "
                "`ncu --import X.ncu-rep --csv --page source --print-source cuda,sass` and add the file",
            ),
        ),
        (
            has_counters and tables["roofline"].empty,
            Gap("roofline", "the ncu export holds no kernel duration", METRICS),
        ),
    )
    return [gap for applies, gap in conditions if applies]


def _sweep_gaps(capture: Capture, sweep: pd.DataFrame) -> list[Gap]:
    timed = sweep[sweep["verdict"] == "timed"]
    counted = timed["tier"].eq("counters").groupby([timed[name] for name in CELL]).any()
    without = int((~counted).sum())
    gaps = []
    if rungs := (capture.sweep or {}).get("not_swept"):
        wanted = dict.fromkeys(rung.split()[0] for rung in rungs)
        fix = f"`make sweep RUN=… OP='{' '.join(wanted)}'` with this run"
        what = f"{count_of(len(rungs), 'rung')} with compile-time choices"
        gaps.append(Gap(what, f"not swept: {', '.join(rungs)}", fix))
    if count := _without_row(sweep):
        why = "sweep.csv holds no row of them: the sweep was interrupted, or they came to it later"
        gaps.append(Gap(count_of(count, "combination"), why, "`make sweep RUN=… OP=…` with this run goes on"))
    if timed.empty:
        fix = "sweep on a machine with an NVIDIA GPU: `make sweep OP=…`"
        return [Gap("times of the combinations", "nothing was timed", fix), *gaps]
    failed = any(tool.get("tool") == "ncu" and tool.get("status") != "ok" for tool in capture.tools)
    if not without or (failed and not counted.any()):  # which its status file has already named
        return gaps
    why = "no combination of them was launched under ncu: achieved occupancy, stalls, cache hits and bytes are unknown"
    bare = dict.fromkeys(cell[0] for cell in counted.index[~counted])
    fix = f"`make sweep RUN=… ARGS=--counters OP='{' '.join(bare)}'` with this run; what is timed or counted stays"
    return [Gap(f"the counters of {without} of {len(counted)} kernels, dtypes and shapes", why, fix), *gaps]


def _without_row(sweep: pd.DataFrame) -> int:
    """How many combinations of the values that each kernel was tried with have no row."""
    missing = 0
    for _, rows in sweep.groupby([*CELL, "gpu"], sort=False):
        values = rows["combination"].str.split(expand=True)
        missing += math.prod(values.nunique()) - len(rows)
    return missing


def name_partial_counters(launches: pd.DataFrame, measured: pd.DataFrame) -> list[Gap]:
    """Return a gap for kernels that ncu was not asked for, and one for matched kernels whose counters have no value."""
    gaps: list[Gap] = []
    if launches.empty or not (launches["counters_from"] != "").any():
        return gaps
    outside = int((~launches["requested"]).sum())
    if outside:
        gaps.append(
            Gap(
                f"the counters of {outside} of {len(launches)} kernels",
                "they ran outside the ranges that ncu was asked for",
                "capture them with `bash nsys_scripts/profile.sh --deep`, or report with --extrapolate-siblings",
            )
        )
    matched = measured[measured["counters_from"] != ""]
    for column, what in (("duration_ns", "duration"), ("dram_read_bytes", "DRAM bytes"), ("flops", "FLOPs")):
        missing = int(matched[column].isna().sum()) if column in matched else 0
        if missing:
            gaps.append(
                Gap(
                    f"{what} of {missing} of {len(matched)} measured kernels",
                    "ncu gave no value (nan or n/a) or its metrics were not captured",
                    METRICS,
                )
            )
    return gaps
