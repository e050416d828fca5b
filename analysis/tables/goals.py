"""What the best rungs were to reach (kernels/goals.toml), beside what the benchmarks found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.tables.schema import LADDER_TABLES

Goal = Mapping[str, Any]
_TIME = "bench_time_p50_ns"


def build_goals(goals: Sequence[Goal], points: pd.DataFrame, bench: pd.DataFrame) -> pd.DataFrame:
    """Return goals.csv: a row for each goal, dtype and shape.

    Shape: `goals` as ladder.json has them; `points` as there, with op, variant, dtype, best, kind, precision; `bench`
    the cold rows of the benchmarks, with op, variant, dtype, shape_name, floor_time_ns and bench_time_p50_ns.
    """
    known = points.drop_duplicates(["op", "variant", "dtype"])[["op", "variant", "dtype", "best", "kind", "precision"]]
    timed = bench.merge(known, on=["op", "variant", "dtype"])
    rows: list[dict[str, Any]] = []
    for number, goal in enumerate(goals, 1):
        rows += [{"goal": number, "what": goal["what"], "least": goal["least"]} | row for row in _judged(goal, timed)]
    schema = LADDER_TABLES["goals"]
    return schema.conform(pd.DataFrame(rows, columns=schema.column_names).assign(tier="timing"))


def _judged(goal: Goal, timed: pd.DataFrame) -> Iterable[dict[str, Any]]:
    """One row for each dtype and shape that the goal is about and the benchmark timed."""
    of_op = timed[timed["op"] == goal["op"]]
    own = of_op[of_op["best"].astype(bool)]
    for name, column in (("dtypes", "dtype"), ("shapes", "shape_name")):
        if name in goal:
            own = own[own[column].isin(goal[name])]
    for row in own.to_dict("records"):
        beside, time = _beside(goal, row, timed)
        if time is None:
            continue
        found = time / row[_TIME]
        yield {
            "op": row["op"], "variant": row["variant"], "dtype": row["dtype"], "shape_name": row["shape_name"],
            "beside": beside, "found": found, "met": found >= goal["least"],
        }  # fmt: skip


def _beside(goal: Goal, row: Mapping[str, Any], timed: pd.DataFrame) -> tuple[str, float | None]:
    """What the rung is held against, and its time in ns; None if that was not timed."""
    if goal.get("beside") == "floor":
        return "floor", float(row["floor_time_ns"])
    other = "beside_op" in goal
    op, shape = (goal["beside_op"], goal["beside_shape"]) if other else (row["op"], row["shape_name"])
    same = timed[(timed["op"] == op) & (timed["dtype"] == row["dtype"]) & (timed["shape_name"] == shape)]
    if other:
        same = same[same["best"].astype(bool)]
    elif goal["beside"] == "library":
        same = same[same["kind"].isin(("torch", "compile")) & (same["precision"].fillna("") == "")]
    else:
        same = same[same["variant"] == goal["beside"]]
    if same.empty:
        return "", None
    fastest = same.loc[same[_TIME].idxmin()]
    return f"{op} {shape} {fastest['variant']}" if other else str(fastest["variant"]), float(fastest[_TIME])
