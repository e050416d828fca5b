"""Build the studies' tables: predictions beside measurements, and profiles of single operators."""

from __future__ import annotations

import math
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.facts import Facts
from analysis.formats.lectures import LECTURES
from analysis.fusion.opmap import kind_of_kernel
from analysis.tables.declare import Column, Table, part, table
from studies.accounting.tiles import tile_of
from studies.lectures import predict
from studies.lectures.predict import Expected, frozen

REASONS = Path(__file__).with_name("reasons.toml")
HOLDS, MISSES, UNKNOWN = "holds", "misses", "not measured"

COLUMNS = (
    Column("case", "", "what was measured", "key"),
    Column("quantity", "", "what was measured about the case", "key"),
    Column("unit", "", "unit of the numbers", "key"),
    Column("predicted", "", "written before it was measured", "static"),
    Column("low", "", "the prediction misses below this", "static", shown=False),
    Column("high", "", "the prediction misses above this", "static", shown=False),
    Column("measured", "", "median of the samples, or ncu's count", "row"),
    Column("p5", "", "of the samples", "timing", shown=False),
    Column("p95", "", "of the samples", "timing", shown=False),
    Column("error_frac", "1", "measured over predicted, less 1", "row"),
    Column("verdict", "", "holds, misses, or not measured", "row"),
    Column("lecture", "", "what the lecture says about its own GPU", "static"),
    Column("because", "", "how the prediction was calculated", "static", style="prose"),
    Column("seen", "", "kernels and grids, or times behind a factor", "timing", shown=False, style="prose"),
    Column("reason", "", "why it missed, written afterwards", "static", style="prose"),
)
# Quantities that ncu counts: column of the launches, and how to combine the launches of a case.
_COUNTED = {
    "DRAM bytes read": ("dram_read_bytes", "sum"),
    "DRAM bytes written": ("dram_write_bytes", "sum"),
    "L2 bytes read": ("l2_read_bytes", "sum"),
    "sectors a request": ("sectors_per_request_load", "mean"),
    "global loads": ("global_load_inst", "sum"),
}


def points(facts: Facts) -> dict[tuple[str, str, str], dict[str, Any]]:
    found = (facts.capture.of(LECTURES.kind) or {}).get("points") or []
    return {(one["study"], one["case"], one["quantity"]): one for one in found}


def cases(facts: Facts) -> list[dict[str, Any]]:
    return (facts.capture.of(LECTURES.kind) or {}).get("profiles") or []


Points = dict[tuple[str, str, str], dict[str, Any]]


@part("title")
def _title(facts: Facts) -> str | None:
    return f"The lecture's studies on {facts.gpu or 'a CPU'}" if facts.once(points) else None


@cache
def reasons() -> list[dict[str, str]]:
    """Return reasons for misses: study, regular expression of cases, sentence.

    They were written after the measurement.
    """
    if not REASONS.is_file():
        return []
    return list(tomllib.loads(REASONS.read_text(encoding="utf-8"))["reason"])


def reason_of(one: Expected) -> str:
    """Return the written reason for a prediction's miss; blank without one."""
    for entry in reasons():
        fits = entry["study"] == one.study and re.fullmatch(entry["case"], one.case)
        if fits and one.quantity in entry.get("quantity", one.quantity).split(", "):
            return entry["why"]
    return ""


def judged(study: str, points: Points, measured: pd.DataFrame) -> pd.DataFrame | None:
    """Return one row a prediction of the study; None if nothing of the study was measured."""
    if not any(name == study for name, _, _ in points):
        return None
    rows = []
    for one in frozen():
        if one.study != study:
            continue
        point = points.get((one.study, one.case, one.quantity)) or {}
        value = point.get("value")
        if one.quantity in _COUNTED:
            value = _counted(one, measured)
        holds = value is not None and one.low <= value <= one.high
        verdict = UNKNOWN if value is None else HOLDS if holds else MISSES
        error = value / one.predicted - 1 if value is not None and one.predicted else None
        rows.append(
            {
                "case": one.case, "quantity": one.quantity, "unit": one.unit, "predicted": one.predicted,
                "low": one.low, "high": one.high, "measured": value, "p5": point.get("p5"), "p95": point.get("p95"),
                "error_frac": error, "verdict": verdict, "lecture": one.lecture, "because": one.because,
                "seen": point.get("seen", ""), "reason": reason_of(one) if verdict == MISSES else "",
                "tier": "counters" if one.quantity in _COUNTED else "timing",
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _counted(one: Expected, measured: pd.DataFrame) -> float | None:
    """ncu's count for a case of the tricks; None without one."""
    column, how = _COUNTED[one.quantity]
    if column not in measured:
        return None
    values = measured.loc[measured["path"] == f"tricks/{one.case.replace(' ', '_')}", column].dropna().astype(float)
    return float(values.agg(how)) if len(values) else None


def _study(name: str, title: str, question: str) -> Table:
    """Declare the table of a study."""
    declare = table(f"lecture_{name}", question=question, title=title, columns=COLUMNS, optional=True)
    return declare(lambda facts: judged(name, facts.once(points), facts.all_measured))


build_profiles = _study("profiles", "Profiles of one operator", "Which kernels does one operator launch?")
build_matmul = _study(
    "matmul", "How a matrix product scales", "How long does an n³ product take: do waves and roofs say it?"
)
build_mlp = _study("mlp", "How an MLP scales", "What does twice as much of an MLP cost, and from where on?")
build_tricks = _study(
    "tricks", "Five tricks", "What do low precision, fusion, recomputation, coalescing and tiling win?"
)
build_waves = _study(
    "waves", "Wave quantisation", "At which sizes does a product get slower in a step, and how high is it?"
)
build_latencies = _study("latencies", "Latencies", "How many cycles does a load take from each memory?")
build_units = _study(
    "units",
    "Warps, units and formats",
    "What do divergent paths cost, how fast are units, what do formats round?",
)


@table(
    "lecture_tiles",
    question="Which tile did cuBLAS choose at each size, and do its waves say the time?",
    title="Waves of the tiles that cuBLAS chose",
    columns=(
        Column("n", "1", "rows and columns", "key"),
        Column("divisor", "1", "largest of 32, 8, 2 and 1 that divides n", "static"),
        Column("tile", "", "tile, as the kernel's name gives it", "timing"),
        Column("tiles", "1", "number of tiles that cover the result; those at the edges reach beyond it", "static"),
        Column("waves", "1", "number of waves; a wave has one tile for each SM", "static"),
        Column("fill_frac", "0-1", "tiles over the places of all waves", "static"),
        Column("model_ns", "ns", "the prediction's formula with this tile; blank where rows do not start at 16 bytes",
               "static"),
        Column("measured_ns", "ns", "median", "timing"),
        Column("error_frac", "1", "measured over model, less 1", "timing"),
        Column("kernel", "", "kernel's name, up to the tile", "timing"),
    ),
    optional=True,
)  # fmt: skip
def build_tiles(facts: Facts) -> pd.DataFrame | None:
    """Return lecture_tiles.csv: one row a size of the waves, by n."""
    rows = []
    for (study, case, quantity), point in facts.once(points).items():
        tile = tile_of(point["seen"]) if study == "waves" and case.isdigit() and quantity == "GPU time" else None
        if tile is None:
            continue
        n = int(case)
        tiles = math.ceil(n / tile.first) * math.ceil(n / tile.second)
        aligned = n % predict.ALIGNED == 0
        model = predict.wave_ns(n, (tile.first, tile.second)) if aligned else None
        rows.append(
            {
                "n": n, "divisor": next(one for one in (32, 8, 2, 1) if n % one == 0),
                "tile": f"{tile.first}x{tile.second}", "tiles": tiles, "waves": predict.waves(tiles),
                "fill_frac": tiles / (predict.waves(tiles) * predict.SMS), "model_ns": model,
                "measured_ns": point["value"], "error_frac": point["value"] / model - 1 if model else None,
                "kernel": point["seen"].split(" grid")[0][:60], "tier": "timing",
            }
        )  # fmt: skip
    return pd.DataFrame(rows).sort_values("n", ignore_index=True) if rows else None


@table(
    "lecture_operators",
    question="What does torch.profiler say about each operator?",
    title="Operators of the profiles",
    columns=(
        Column("case", "", "what was profiled", "key"),
        Column("name", "", "operator", "key"),
        Column("self_cpu_ns", "ns", "CPU time without what it calls", "timing"),
        Column("cpu_ns", "ns", "CPU time with what it calls", "timing"),
        Column("self_cuda_ns", "ns", "time of its own kernels", "timing"),
        Column("cuda_ns", "ns", "time of all kernels below it", "timing"),
        Column("calls", "1", "calls", "timing"),
    ),
    optional=True,
)
def build_operators(facts: Facts) -> pd.DataFrame | None:
    """Return lecture_operators.csv: the lecture's table, sorted by own time."""
    rows = [{"case": one["case"], **row, "tier": "timing"} for one in facts.once(cases) for row in one["operators"]]
    return pd.DataFrame(rows) if rows else None


@table(
    "lecture_kernels",
    question="Which kernels stand behind the operators?",
    title="Kernels of the profiles",
    columns=(
        Column("case", "", "what was profiled", "key"),
        Column("operator", "", "operator that launched it", "key"),
        Column("kernel", "", "kernel name", "key"),
        Column("kind", "", "kind of the kernel, as the fusion planner names it", "row"),
        Column("grid", "", "blocks", "timing"),
        Column("block", "", "threads of a block", "timing"),
        Column("calls", "1", "launches", "timing"),
        Column("time_ns", "ns", "of all of them", "timing"),
    ),
    optional=True,
)
def build_kernels(facts: Facts) -> pd.DataFrame | None:
    """Return lecture_kernels.csv in the order of the first launches."""
    rows = [
        {"case": one["case"], "operator": kernel["operator"], "kernel": kernel["name"],
         "kind": kind_of_kernel(kernel["name"]), "grid": "x".join(map(str, kernel["grid"])),
         "block": "x".join(map(str, kernel["block"])), "calls": kernel["calls"], "time_ns": kernel["total_ns"],
         "tier": "timing"}
        for one in facts.once(cases)
        for kernel in one["kernels"]
    ]  # fmt: skip
    return pd.DataFrame(rows) if rows else None
