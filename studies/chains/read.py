"""Compare the fusion plan's predictions with the ready-made kernels in a capture of examples/kinds/chains.py.

    python -m studies.chains.read CAPTURES

It prints a row for each chain: bytes and time as predicted before, as this capture's plan predicts, and as measured.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
    by: str
    bytes: int
    time_us: float
    why: str = ""


class Measured(NamedTuple):
    """The ready-made kernel in one call of its range. Unknown is None.

    `l2_bytes`: what it reads and writes between L2 and the SMs.
    """

    time_ns: float | None = None
    dram_bytes: float | None = None
    l2_bytes: float | None = None
    launches: float | None = None


def predictions() -> dict[str, Prediction]:
    """Return the predictions by the name of the chain."""
    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), dict[str, Prediction])


def compare(tables: pipeline.Tables) -> pd.DataFrame:
    """Return a row a chain: predicted, planned and measured bytes and time of one call, and whether the limits hold.

    The errors are those of the plan of this capture; without a plan, of the prediction.

    Shape: `tables` by name, as of a report. What the capture does not have is blank, and then `holds` is blank, too.
    """
    rows = []
    for name, one in predictions().items():
        plan_bytes, plan_ns = _planned(tables.get("fusion"), one.planned)
        found = _measured(tables, one.fused)
        errors = [
            _error(found.dram_bytes, plan_bytes, one.bytes),
            _error(found.time_ns, plan_ns, one.time_us * 1e3),
        ]
        within = [
            abs(error) <= limit
            for error, limit in zip(errors, (BYTES_GOAL, TIME_GOAL), strict=True)
            if error is not None
        ]
        rows.append(
            {
                "chain": name,
                "predicted_bytes": one.bytes,
                "planned_bytes": plan_bytes,
                "measured_bytes": found.dram_bytes,
                "bytes_error_frac": errors[0],
                "predicted_time_ns": one.time_us * 1e3,
                "planned_time_ns": plan_ns,
                "measured_time_ns": found.time_ns,
                "time_error_frac": errors[1],
                "holds": all(within) if within else None,
                "why": "; ".join(_why(one, found, *errors)),
            }
        )
    return pd.DataFrame(rows)


def _error(measured: float | None, planned: float | None, predicted: float) -> float | None:
    return None if measured is None else measured / (predicted if planned is None else planned) - 1


def _why(one: Prediction, found: Measured, bytes_error: float | None, time_error: float | None) -> Iterator[str]:
    """Yield what explains the difference between the plan and the ready-made kernel."""
    if found.time_ns is None:
        yield "this capture does not have it"
        return
    if found.dram_bytes is None:
        yield "ncu did not count its bytes"
    if bytes_error is not None and abs(bytes_error) > BYTES_GOAL:
        yield f"it moves {abs(bytes_error):.0%} {'more' if bytes_error > 0 else 'less'} than planned"
    if time_error is None or abs(time_error) <= TIME_GOAL:
        return
    yield f"it moves its least bytes at {one.bytes / found.time_ns / 1e3:.2f} TB/s"
    if found.l2_bytes is not None and found.l2_bytes > (1 + BYTES_GOAL) * one.bytes:
        yield f"it asks L2 for {found.l2_bytes / 1e6:,.0f} MB"
    if one.why:
        yield one.why.rstrip(".")


def _inside(ranges: pd.Series, name: str) -> pd.Series:
    """Return which ranges are of this name, or lie in one."""
    return ranges.astype(str).str.contains(rf"(?:^|/|step ){name}(?:$|/)", regex=True)


def _planned(fusion: pd.DataFrame | None, name: str) -> tuple[float | None, float | None]:
    """Return (bytes, ns) after the fusion of the largest chain in a range, of one call, as the plan has them."""
    rows = pd.DataFrame() if fusion is None or fusion.empty else fusion[_inside(fusion["range"], name)]
    rows = rows.dropna(subset=["after_bytes"]) if len(rows) else rows
    if rows.empty:
        return None, None
    row = rows.loc[rows["after_bytes"].astype(float).idxmax()]
    calls, bound = max(float(row["occurrences"]), 1.0), row["bound_time_ns"]
    return float(row["after_bytes"]) / calls, None if pd.isna(bound) else float(bound) / calls


def _measured(tables: pipeline.Tables, name: str) -> Measured:
    """Return the kernel with most time in a range, by nsys and ncu, for one call of the range.

    An optimiser launches its kernel several times in a call.
    """
    kernels = tables["kernels"]
    rows = kernels[_inside(kernels["range"], name) & kernels["nsys_time_ns"].notna()] if len(kernels) else kernels
    if rows.empty:
        return Measured()
    sums = rows.astype({"nsys_time_ns": float, "launches": float}).groupby(["kernel", "range"])
    totals = sums[["nsys_time_ns", "launches"]].sum()
    kernel, where = totals["nsys_time_ns"].idxmax()
    time, launches = totals.loc[(kernel, where)]
    layers = tables.get("layers")
    known = [] if layers is None else layers.loc[layers["range"] == where, "calls"].dropna().tolist()
    calls = float(known[0]) if known else launches
    counters = tables.get("counters")
    moved: dict[str, float] = {}
    if counters is not None and len(counters):
        own = counters[(counters["kernel"] == kernel) & (counters["range"] == where)]
        for column in ("dram_bytes", "l2_bytes"):
            counted = own.dropna(subset=[column]) if column in own else own.head(0)
            if len(counted):
                each = float(counted[column].sum()) / float(counted["launches"].sum())
                moved[column] = each * launches / calls
    return Measured(time / calls, moved.get("dram_bytes"), moved.get("l2_bytes"), launches / calls)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: printed. 1: a prediction does not hold. 3: the captures cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.chains.read", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("captures", type=Path)
    options = parser.parse_args(arguments)

    def program() -> int:
        found: Any = compare(pipeline.analyse(load([options.captures])).tables)
        print(found.drop(columns="why").to_string(index=False))
        print("\n".join(f"{row.chain}: {row.why}" for row in found.itertuples() if row.why))
        return int((found["holds"] == False).any())  # noqa: E712

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
