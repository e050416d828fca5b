"""Compare published claims about such kernels with our measurements. The rungs of a claim are points of the ladder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from analysis.tables.declare import Column, table
from studies.ladder.tables import Show, with_verdicts

TESTS = ("ratio", "change", "value")


class _Point:
    """A point of the ladder with its columns as attributes, written for people: {after.COLUMN} in claims.toml.

    `unknown` is true once a caller read a column that was not measured, `stale` once it read one of an older build.
    """

    def __init__(self, row: Mapping[str, Any], show: Show) -> None:
        self._row, self._show = row, show
        self.unknown = self.stale = False

    def __getattr__(self, column: str) -> str:
        if column not in with_verdicts.column_names:
            raise ValueError(f"claims.toml: {column} is not a column of ladder.csv")
        value = self._row.get(column)
        self.unknown |= value is None or value == "" or bool(pd.isna(value))
        self.stale |= ("times" if _of_time(column) else "counters") in str(self._row.get("stale")).split()
        return self._show(column, value)


@table(
    "claims",
    question="What do others claim about such kernels, and what did we measure?",
    columns=(
        Column("claim", "", "name in kernels/claims.toml", "row"),
        Column("source", "", "whose claim", "row"),
        Column("says", "", "the claim", "row"),
        Column("op", "", "operation", "row"),
        Column("dtype", "", "fp32 or bf16", "row"),
        Column("before", "", "variant and shape that it compares with, blank if none", "row"),
        Column("after", "", "variant and shape that it is about", "row"),
        Column("what", "", "the part of the claim that is measured", "row"),
        Column("metric", "", "column of ladder.csv", "row"),
        Column("claimed", "", "the claimed value", "row"),
        Column("before_value", "", "found, in the unit of the metric", "row"),
        Column("after_value", "", "found, in the unit of the metric", "row"),
        Column("found", "", "both as text", "row"),
        Column("verdict", "", "confirmed, refuted or not measured", "row"),
        Column("why", "", "why, from the counters", "row"),
        Column("stale", "", "variants of which a number of the row is of an older build, with commas between", "row"),
    ),
)
def build_claims(published_claims: list[dict[str, Any]], ladder: pd.DataFrame, show: Show) -> pd.DataFrame:
    """Return claims.csv, one row for each measure, in the order of claims.toml.

    Shape: `published_claims` as in ladder.json, `ladder` as ladder.csv.
    """
    by_shape = {(row["op"], row["variant"], row["dtype"], row["shape"]): row for row in ladder.to_dict("records")}
    rows = [row for claim in published_claims for row in _rows(claim, by_shape, show)]
    return pd.DataFrame(rows, columns=build_claims.column_names)


def _rows(claim: Mapping[str, Any], by_shape: Mapping[tuple[Any, ...], Any], show: Show) -> Iterator[dict[str, Any]]:
    sides: dict[str, Any] = {}
    names = {"before": "", "after": ""}
    for side in ("before", "after"):
        if side not in claim:
            continue
        asked = claim[side]
        shape = "x".join(map(str, asked["shape"]))
        row = by_shape.get((claim["op"], asked["variant"], asked["dtype"], shape), {})
        names[side] = f"{asked['variant']} {row.get('shape_name', shape)}"
        sides[side] = row
    for measure in claim["measure"]:
        metric = measure["metric"]
        values = {side: _number(row.get(metric)) for side, row in sides.items()}
        verdict = _verdict(measure, values)
        why = ""
        told = {side: _Point(row, show) for side, row in sides.items()}
        if verdict != "not measured":
            for point in told.values():
                getattr(point, metric)  # to note whether the found value is of an older build
            template = measure["holds" if verdict == "confirmed" else "fails"]
            why = template.format(**told)
            if any(point.unknown for point in told.values()):
                why = "the counters that would say why were not captured"
        yield {
            "claim": claim["name"], "source": claim["source"], "says": claim["says"], "op": claim["op"],
            "dtype": claim["after"]["dtype"], **names, "what": measure["what"], "metric": metric,
            "claimed": measure["claimed"], "before_value": values.get("before"), "after_value": values["after"],
            "found": _found(metric, values, show), "verdict": verdict, "why": why,
            "stale": ", ".join(dict.fromkeys(claim[side]["variant"] for side in told if told[side].stale)),
            "tier": "timing" if _of_time(metric) else "counters",
        }  # fmt: skip


def _of_time(column: str) -> bool:
    return column.startswith("bench_time")


def _number(value: Any) -> float | None:
    return None if value is None or value == "" or pd.isna(value) else float(value)


def _verdict(measure: Mapping[str, Any], values: Mapping[str, float | None]) -> str:
    """Return "confirmed", "refuted" or "not measured".

    Raises:
        ValueError: the measure does not have exactly one of TESTS.
    """
    (test,) = [name for name in TESTS if name in measure]
    if any(value is None for value in values.values()):
        return "not measured"
    after, before = values["after"], values.get("before")
    assert after is not None
    if test != "value":
        if before is None or (test == "ratio" and before == 0):
            return "not measured"
        after = after / before if test == "ratio" else after - before
    low, high = measure[test]
    return "confirmed" if (low is None or after >= low) and (high is None or after <= high) else "refuted"


def _found(metric: str, values: Mapping[str, float | None], show: Show) -> str:
    """Return the measured values, such as `5.06 ms → 433.7 µs (0.0854 ×)`; shares have no ratio."""
    text = " → ".join(show(metric, value) for value in values.values())
    before, after = values.get("before"), values["after"]
    if before and after is not None and not metric.endswith("_frac"):
        text += f" ({after / before:.4g} ×)"
    return text
