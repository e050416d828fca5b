"""Compare the goals for our fastest rungs (kernels/goals.toml) with the benchmarks."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.formats.spans import QUANTILES, Span
from analysis.tables.declare import Column, table
from kernels.registry import LIBRARY_KINDS
from studies.ladder.searched import paired

Goal = dict[str, Any]
_TIME = {at: f"bench_time_{at}_ns" for at in QUANTILES}


@table(
    "goals",
    question="Which goals were set for the fastest rungs, and did they reach them?",
    columns=(
        Column("goal", "its place in kernels/goals.toml", "key"),
        Column("what", "the goal in words", "row"),
        Column("op", "operation", "key"),
        Column("variant", "its fastest rung", "key"),
        Column("dtype", "fp32 or bf16", "key"),
        Column("shape_name", "name of the shape", "key"),
        Column("beside", "what its time is compared with", "key"),
        Column("least", "goal: how many times as fast as that", "timing"),
        Column("share", "share of the goal's shapes that must reach `least`", "timing", "0-1"),
        Column("never_below", "goal at every shape: at least this many times as fast", "timing"),
        Column("found", "how many times as fast it is: median of paired rounds, else of the medians", "row"),
        Column("found_p5", "5th percentile of the rounds, else the least that the ends of both times give", "timing"),
        Column("found_p95", "95th percentile, else the most", "timing"),
        Column("met", "whether `least` is reached by `found`", "row"),
        Column("within_spread", "whether `least` lies between found_p5 and found_p95", "row"),
        Column("two_runs", "whether the two times come from two runs instead of one", "timing"),
    ),
)
def build_goals(
    set_goals: Sequence[Goal], points: pd.DataFrame, every_time: pd.DataFrame, searched: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return goals.csv: a row for each goal, dtype and shape.

    Shape: `set_goals` and `points` as in ladder.json, `points` with op, variant, dtype, kind, precision; `every_time`
    holds the cold rows as in ladder_times.csv, each with its run; `searched` as in searched.csv.
    """
    known = points.drop_duplicates(["op", "variant", "dtype"])[["op", "variant", "dtype", "kind", "precision"]]
    timed = dict(list(paired(every_time, searched).merge(known, on=["op", "variant", "dtype"]).groupby("op")))
    rows: list[dict[str, Any]] = []
    for number, goal in enumerate(set_goals, 1):
        said = {"goal": number, "what": goal["what"], "least": goal["least"], "share": goal.get("share", 1.0),
                "never_below": goal.get("never_below", goal["least"] if "share" not in goal else 0.0)}  # fmt: skip
        rows += [said | row for op in goal["op"].split() for row in _judged(goal, op, timed)]
    return pd.DataFrame(rows, columns=build_goals.column_names).assign(tier="timing")


def fastest_rungs(timed: pd.DataFrame) -> pd.DataFrame:
    """Return our fastest rung of each dtype and shape of one op, in the order of `timed`."""
    own = timed[timed["kind"] == "cuda"]
    return own.loc[own.groupby(["dtype", "shape_name"])[_TIME["p50"]].idxmin().sort_values()]


def precision_of(rows: pd.DataFrame) -> pd.Series:
    """Return the precision of each row if it differs from its dtype's (`tf32`), else blank."""
    # pandas reads an all-blank column as numbers
    return rows["precision"].astype("object").fillna("").astype("str")


def library_of(timed: pd.DataFrame) -> pd.DataFrame:
    """Return the variants of libraries in the precision of the dtype."""
    return timed[timed["kind"].isin(LIBRARY_KINDS) & (precision_of(timed) == "")]


def versus(row: Mapping[str, Any], other: Mapping[str, Any]) -> Span:
    """Return the speed-up of `row` over `other`.

    If the run pairs the two, it comes from the rounds in which both ran. Otherwise it divides medians and has the
    widest interval: p5 of one time over p95 of the other. Rows whose `time_kind` differ use chained times.
    """
    known = _paired_with(row, other)
    if all(pd.notna(value) for value in known):
        return Span(*(float(value) for value in known))
    same = row.get("time_kind") == other.get("time_kind")
    time = _TIME if same else {at: f"chained_time_{at}_ns" for at in QUANTILES}
    times = zip(QUANTILES, reversed(QUANTILES), strict=True)
    return Span(*(_known(other[time[at]]) / _known(row[time[against]]) for at, against in times))


def _known(value: Any) -> float:
    """Return a time, NaN if it is not known: a run of few samples has no p5 and p95."""
    return math.nan if pd.isna(value) else float(value)


def _paired_with(row: Mapping[str, Any], other: Mapping[str, Any]) -> list[Any]:
    return [row.get(f"versus_{other['variant']}_{at}") for at in QUANTILES]


def rival(row: Mapping[str, Any], others: pd.DataFrame) -> tuple[pd.Series, Span, bool]:
    """Return the fastest of `others`, the speed-up of `row` over it, and whether the two times are of two runs.

    Of the run of `row`, the one with the shortest time counts. One of another run counts if `row` gains less over it:
    there, times of two runs may differ by what launch and events add on two hosts.
    """
    here = others[others["bench_run"] == row["bench_run"]]
    nearest = [here.loc[here[_TIME["p50"]].astype(float).idxmin()]] if len(here) else []
    candidates = [*nearest, *(other for _, other in others.drop(index=here.index).iterrows())]
    fastest = min(candidates, key=lambda other: versus(row, other).p50)
    apart = fastest["bench_run"] != row["bench_run"] and pd.isna(_paired_with(row, fastest)).any()
    return fastest, versus(row, fastest), bool(apart)


def _judged(goal: Goal, op: str, timed: Mapping[str, pd.DataFrame]) -> Iterable[dict[str, Any]]:
    """Yield a row for our fastest rung at each timed dtype and shape that the goal is about. `timed` is by op."""
    if op not in timed:
        return
    own = timed[op]
    for name, column in (("dtypes", "dtype"), ("shapes", "shape_name")):
        if name in goal:
            own = own[own[column].isin(goal[name])]
    for row in fastest_rungs(own).to_dict("records"):
        found, beside, other_run = _found(goal, row, timed)
        if found is not None:
            yield {
                **{name: row[name] for name in ("op", "variant", "dtype", "shape_name")}, "beside": beside,
                "found": found.p50, "found_p5": found.p5, "found_p95": found.p95, "met": found.p50 >= goal["least"],
                "within_spread": found.p5 <= goal["least"] <= found.p95, "two_runs": other_run,
            }  # fmt: skip


def _found(goal: Goal, row: Mapping[str, Any], timed: Mapping[str, pd.DataFrame]) -> tuple[Span | None, str, bool]:
    """Return the speed-up of the rung over its rival (None: not timed), the rival's name, whether another run timed it.

    The rival is the floor, the fastest library variant, a named variant, or our fastest rung of another op.
    """
    if goal.get("beside") == "floor":
        span = Span(*(float(row["floor_time_ns"]) / float(row[_TIME[at]]) for at in reversed(QUANTILES)))
        return span, "floor", False
    other = "beside_op" in goal
    op, shape = (goal["beside_op"], goal["beside_shape"]) if other else (row["op"], row["shape_name"])
    if op not in timed:
        return None, "", False
    same = timed[op]
    same = same[(same["dtype"] == row["dtype"]) & (same["shape_name"] == shape)]
    if other:
        same = fastest_rungs(same)
    elif goal["beside"] == "library":
        same = library_of(same)
    else:
        same = same[same["variant"] == goal["beside"]]
    if same.empty:
        return None, "", False
    fastest, span, apart = rival(row, same)
    name = f"{op} {shape} {fastest['variant']}" if other else str(fastest["variant"])
    return span, name, apart
