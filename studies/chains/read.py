"""Compare the fusion plan's predictions with the ready-made kernels in a capture of examples/kinds/chains.py.

    python -m studies.chains.read CAPTURES

It prints a row for each chain: bytes and time as predicted before, as this capture's plan predicts, and as measured.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from analysis import pipeline
from analysis.capture.load import load
from analysis.formats.console import guarded
from analysis.fusion.plan import BYTES_GOAL, TIME_GOAL

FILE = Path(__file__).with_name("predictions.toml")


class Prediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One chain of predictions.toml; the first lines of that file explain the fields."""

    planned: str
    fused: str
    bytes: int
    time_us: float


def predictions() -> dict[str, Prediction]:
    """Return the predictions by the name of the chain."""
    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), dict[str, Prediction])


def compare(tables: pipeline.Tables) -> pd.DataFrame:
    """Return a row a chain: predicted, planned and measured bytes and time of one call, and whether the limits hold.

    Shape: `tables` by name, as of a report. What the capture does not have is blank, and then `holds` is blank, too.
    """
    rows = []
    for name, one in predictions().items():
        plan = _planned(tables.get("fusion"), one.planned)
        time, moved = _measured(tables, one.fused)
        errors = [
            None if found is None else abs(found / expected - 1)
            for found, expected in ((moved, one.bytes), (time, one.time_us * 1e3))
        ]
        known = [error for error in errors if error is not None]
        within = [
            error <= limit for error, limit in zip(errors, (BYTES_GOAL, TIME_GOAL), strict=True) if error is not None
        ]
        rows.append(
            {
                "chain": name,
                "predicted_bytes": one.bytes,
                "planned_bytes": plan,
                "measured_bytes": moved,
                "predicted_time_ns": one.time_us * 1e3,
                "measured_time_ns": time,
                "holds": all(within) if known else None,
            }
        )
    return pd.DataFrame(rows)


def _inside(ranges: pd.Series, name: str) -> pd.Series:
    """Return which ranges are of this name, or lie in one."""
    return ranges.astype(str).str.contains(rf"(?:^|/|step ){name}(?:$|/)", regex=True)


def _planned(fusion: pd.DataFrame | None, name: str) -> float | None:
    """Return bytes after the fusion of the largest chain in a range, of one call, as the plan has them."""
    rows = pd.DataFrame() if fusion is None or fusion.empty else fusion[_inside(fusion["range"], name)]
    rows = rows.dropna(subset=["after_bytes"]) if len(rows) else rows
    if rows.empty:
        return None
    row = rows.loc[rows["after_bytes"].astype(float).idxmax()]
    return float(row["after_bytes"]) / max(float(row["occurrences"]), 1.0)


def _measured(tables: pipeline.Tables, name: str) -> tuple[float | None, float | None]:
    """Return (ns by nsys, DRAM bytes by ncu) of the kernel with most time in a range, for one call of the range.

    An optimiser launches its kernel several times in a call.
    """
    kernels = tables["kernels"]
    rows = kernels[_inside(kernels["range"], name) & kernels["nsys_time_ns"].notna()] if len(kernels) else kernels
    if rows.empty:
        return None, None
    sums = rows.astype({"nsys_time_ns": float, "launches": float}).groupby(["kernel", "range"])
    totals = sums[["nsys_time_ns", "launches"]].sum()
    kernel, where = totals["nsys_time_ns"].idxmax()
    time, launches = totals.loc[(kernel, where)]
    layers = tables.get("layers")
    known = [] if layers is None else layers.loc[layers["range"] == where, "calls"].dropna().tolist()
    calls = float(known[0]) if known else launches
    counters = tables.get("counters")
    moved = None
    if counters is not None and len(counters):
        own = counters[(counters["kernel"] == kernel) & (counters["range"] == where)].dropna(subset=["dram_bytes"])
        moved = float(own["dram_bytes"].sum()) / float(own["launches"].sum()) * launches / calls if len(own) else None
    return time / calls, moved


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: printed. 1: a prediction does not hold. 3: the captures cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.chains.read", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("captures", type=Path)
    options = parser.parse_args(arguments)

    def program() -> int:
        found: Any = compare(pipeline.analyse(load([options.captures])).tables)
        print(found.to_string(index=False))
        return int((found["holds"] == False).any())  # noqa: E712

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
