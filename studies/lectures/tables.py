"""Build the studies' tables: predictions beside measurements."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.facts import Facts
from analysis.formats.lectures import LECTURES
from analysis.hardware.devices import find_device
from analysis.tables.declare import Column, Table, part, table
from studies.lectures.predict import REFITTED, Expected, fits, frozen
from studies.lectures.second import fitted

REASONS = Path(__file__).with_name("reasons.toml")
HOLDS, MISSES, UNKNOWN = "holds", "misses", "not measured"

COLUMNS = (
    Column("case", "what was measured", "key"),
    Column("quantity", "what was measured about the case", "key"),
    Column("unit", "unit of the numbers", "key"),
    Column("predicted", "written before it was measured", "static"),
    Column("low", "the prediction misses below this", "static", shown=False),
    Column("high", "the prediction misses above this", "static", shown=False),
    Column("measured", "median of the samples, or ncu's count", "row"),
    Column("p5", "of the samples", "timing", shown=False),
    Column("p95", "of the samples", "timing", shown=False),
    Column("error_frac", "measured over predicted, less 1", "row", "1"),
    Column("verdict", "holds, misses, or not measured", "row"),
    Column("lecture", "what the lecture says about its own GPU", "static"),
    Column("because", "how the prediction was calculated", "static", style="prose"),
    Column("seen", "kernels and grids, or times behind a factor", "timing", shown=False, style="prose"),
    Column("reason", "why it missed, written afterwards", "static", style="prose"),
)
SECOND = (
    Column("half", "fit: the second model was fitted to the row; judge: it was not", "static"),
    Column("second", "by the second model (studies/lectures/second.py), written after a first miss", "static"),
    Column("second_error_frac", "measured over second, less 1", "row", "1"),
    Column("second_verdict", "holds within the first prediction's interval, moved to the second", "row"),
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
    second = fitted(study, points)
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
        again = second.get((one.case, one.quantity))
        rows.append(
            {
                "case": one.case, "quantity": one.quantity, "unit": one.unit, "predicted": one.predicted,
                "low": one.low, "high": one.high, "measured": value, "p5": point.get("p5"), "p95": point.get("p95"),
                "error_frac": error, "verdict": verdict, "lecture": one.lecture, "because": one.because,
                "seen": point.get("seen", ""), "reason": reason_of(one) if verdict == MISSES else "",
                **(_again(one, again, value) if study in REFITTED else {}),
                "tier": "counters" if one.quantity in _COUNTED else "timing",
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _again(one: Expected, predicted: float | None, value: float | None) -> dict[str, Any]:
    """Return the columns of the second model for a row."""
    made: dict[str, Any] = {"half": "fit" if fits(one) else "judge", "second": predicted, "second_error_frac": None}
    if predicted is None or value is None:
        return made | {"second_verdict": UNKNOWN}
    low, high = (predicted * end / one.predicted for end in (one.low, one.high))
    return made | {
        "second_error_frac": value / predicted - 1 if predicted else None,
        "second_verdict": HOLDS if low <= value <= high else MISSES,
    }  # fmt: skip


def _counted(one: Expected, measured: pd.DataFrame) -> float | None:
    """ncu's count for a case of the tricks; None without one."""
    column, how = _COUNTED[one.quantity]
    if column not in measured:
        return None
    values = measured.loc[measured["path"] == f"tricks/{one.case.replace(' ', '_')}", column].dropna().astype(float)
    return float(values.agg(how)) if len(values) else None


def _study(name: str, title: str, question: str) -> Table:
    """Declare the table of a study."""
    declare = table(
        f"lecture_{name}",
        question=question,
        title=title,
        columns=(*COLUMNS, *(SECOND if name in REFITTED else ())),
    )
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


# First word of a case (and 2:4, which doubles it) -> the datasheet's rate, and how many times it.
_DATASHEET = {
    "IMMA": ("bf16_flop_per_s", 2.0),
    "FP8": ("bf16_flop_per_s", 2.0),
    "BF16": ("bf16_flop_per_s", 1.0),
    "TF32": ("tf32_flop_per_s", 1.0),
    "FP64": ("fp32_flop_per_s", 1.0),  # tensor cores in FP64 have the rate of FP32 without them
}


def _of_datasheet(case: str, rate: float, gpu: str) -> float | None:
    device, (name, times) = find_device(gpu), _DATASHEET.get(case.split()[0], ("", 1.0))
    peak = getattr(device, name, None) if name else None
    return rate / peak / times / (2.0 if "2:4" in case else 1.0) if peak else None


@table(
    "lecture_roofs",
    question="How fast does this GPU issue its math instructions?",
    title="Roofs of math instructions",
    columns=(
        Column("case", "instruction, or an MLP of two 4096 x 4096 weights in bfloat16", "key"),
        Column(
            "rate_per_s", "operations a second of the whole GPU; of a sparse product as if it were dense", "row", "1/s"
        ),
        Column("datasheet_frac", "rate_per_s over the datasheet's; blank: it has no line for it", "row"),
        Column("cycles", "between two of them on one scheduler; of wgmma, between two of the whole SM", "row", "cycle"),
        Column("time_ns", "GPU time of the MLP", "timing"),
        Column(
            "error_frac", "norm of the difference from the dense MLP over its norm, with random weights", "row", "1"
        ),
    ),
)
def build_roofs(facts: Facts) -> pd.DataFrame | None:
    """Return lecture_roofs.csv; None if no roofs were measured."""
    names = {"rate": "rate_per_s", "cycles": "cycles", "GPU time": "time_ns", "error of pruning": "error_frac"}
    rows: dict[str, dict[str, Any]] = {}
    gpu = str((facts.capture.of(LECTURES.kind) or {}).get("gpu") or "")
    for (study, case, quantity), one in facts.once(points).items():
        if study == "roofs" and quantity in names:
            columns = ["rate_per_s", "datasheet_frac", *list(names.values())[1:]]
            row = rows.setdefault(case, {"case": case, **dict.fromkeys(columns), "tier": "timing"})
            row[names[quantity]] = one["value"]
            if quantity == "rate":
                row["datasheet_frac"] = _of_datasheet(case, one["value"], gpu)
    return pd.DataFrame(rows.values()) if rows else None
