"""What our fastest rungs were to reach (kernels/goals.toml), beside what the benchmarks found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.tables.schema import LADDER_TABLES

Goal = Mapping[str, Any]
_TIME = "bench_time_p50_ns"
LIBRARY_KINDS = ("torch", "compile")  # whose variants are PyTorch's, cuBLAS' and cuDNN's: what a rung is held against


def build_goals(goals: Sequence[Goal], points: pd.DataFrame, bench: pd.DataFrame) -> pd.DataFrame:
    """Return goals.csv: a row for each goal, dtype and shape.

    Shape: `goals` as ladder.json has them; `points` as there, with op, variant, dtype, kind, precision; `bench` the
    cold rows of what was timed, with op, variant, dtype, shape_name, floor_time_ns and bench_time_p50_ns.
    """
    known = points.drop_duplicates(["op", "variant", "dtype"])[["op", "variant", "dtype", "kind", "precision"]]
    timed = bench.merge(known, on=["op", "variant", "dtype"])
    rows: list[dict[str, Any]] = []
    for number, goal in enumerate(goals, 1):
        rows += [{"goal": number, "what": goal["what"], "least": goal["least"]} | row for row in _judged(goal, timed)]
    schema = LADDER_TABLES["goals"]
    return schema.conform(pd.DataFrame(rows, columns=schema.column_names).assign(tier="timing"))


def fastest_rungs(timed: pd.DataFrame) -> pd.DataFrame:
    """Our fastest rung of each dtype and shape of one op, in the order of `timed`."""
    own = timed[timed["kind"] == "cuda"]
    return own.loc[own.groupby(["dtype", "shape_name"])[_TIME].idxmin().sort_values()]


def precision_of(rows: pd.DataFrame) -> pd.Series:
    """The precision of each row where it is not that of its dtype (`tf32`), else blank."""
    return rows["precision"].fillna("").astype("str")


def library_of(timed: pd.DataFrame, precision: str = "") -> pd.DataFrame:
    """The variants of PyTorch in this precision ("": that of the dtype)."""
    return timed[timed["kind"].isin(LIBRARY_KINDS) & (precision_of(timed) == precision)]


def _judged(goal: Goal, timed: pd.DataFrame) -> Iterable[dict[str, Any]]:
    """One row for each dtype and shape that the goal is about and that was timed: our rung that does best there."""
    own = timed[(timed["op"] == goal["op"]) & (timed["kind"] == "cuda")]
    for name, column in (("dtypes", "dtype"), ("shapes", "shape_name")):
        if name in goal:
            own = own[own[column].isin(goal[name])]
    for (dtype, shape), rows in own.groupby(["dtype", "shape_name"], sort=False):
        judged = [(*_found(goal, row, timed), row["variant"]) for row in rows.to_dict("records")]
        found, beside, variant = max(judged)
        if beside:
            yield {
                "op": goal["op"], "variant": variant, "dtype": dtype, "shape_name": shape, "beside": beside,
                "found": found, "met": found >= goal["least"],
            }  # fmt: skip


def _found(goal: Goal, row: Mapping[str, Any], timed: pd.DataFrame) -> tuple[float, str]:
    """How many times as fast the rung is as what it is held against, and the name of that; (0, "") if that was not
    timed. Beside PyTorch's chain by the ratios of its own run, round by round.
    """
    if goal.get("beside") == "floor":
        return float(row["floor_time_ns"]) / row[_TIME], "floor"
    other = "beside_op" in goal
    op, shape = (goal["beside_op"], goal["beside_shape"]) if other else (row["op"], row["shape_name"])
    same = timed[(timed["op"] == op) & (timed["dtype"] == row["dtype"]) & (timed["shape_name"] == shape)]
    if other:
        same = fastest_rungs(same)
    elif goal["beside"] == "library":
        same = library_of(same)
    else:
        same = same[same["variant"] == goal["beside"]]
    if same.empty:
        return 0.0, ""
    fastest = same.loc[same[_TIME].idxmin()]
    if fastest["variant"] == "torch" and not other and pd.notna(row.get("versus_torch_p50")):
        return float(row["versus_torch_p50"]), "torch"
    name = f"{op} {shape} {fastest['variant']}" if other else str(fastest["variant"])
    return float(fastest[_TIME]) / row[_TIME], name
