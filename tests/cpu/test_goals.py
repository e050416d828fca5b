"""studies/ladder/goals.py, and that kernels/goals.toml names what is declared."""

from __future__ import annotations

import tomllib
from typing import Any

import pandas as pd
import pytest

from analysis.formats.spans import QUANTILES
from kernels.registry import ops
from studies.ladder.goals import build_goals, versus
from studies.ladder.measure import GOALS

POINTS = pd.DataFrame(
    [
        ("widen", "torch", "fp32", False, "torch", ""),
        ("widen", "torch_tf32", "fp32", False, "torch", "tf32"),
        ("widen", "compile", "fp32", False, "compile", ""),
        ("widen", "v01", "fp32", False, "cuda", ""),
        ("widen", "v02", "fp32", True, "cuda", ""),
        ("narrow", "v01", "fp32", True, "cuda", ""),
    ],
    columns=["op", "variant", "dtype", "best", "kind", "precision"],
)
TIMES = [
    ("widen", "torch", "large", 200.0), ("widen", "torch_tf32", "large", 10.0), ("widen", "compile", "large", 120.0),
    ("widen", "v01", "large", 300.0), ("widen", "v02", "large", 100.0), ("widen", "torch", "small", 20.0),
    ("widen", "v02", "small", 25.0), ("narrow", "v01", "long", 600.0),
]  # fmt: skip
BENCH = pd.DataFrame(
    [(op, variant, "fp32", shape, 90.0, 0.8 * time, time, 1.25 * time) for op, variant, shape, time in TIMES],
    columns=["op", "variant", "dtype", "shape_name", "floor_time_ns", *(f"bench_time_{at}_ns" for at in QUANTILES)],
).assign(bench_run="a run", **{f"versus_torch_{at}": float("nan") for at in QUANTILES})


def judged(bench: pd.DataFrame = BENCH, **goal: Any) -> list[tuple[str, str, float, bool]]:
    table = build_goals([{"op": "widen", "what": "as fast", "least": 1.0} | goal], POINTS, bench)
    return [(row.shape_name, row.beside, row.found, bool(row.met)) for row in table.itertuples()]


def test_a_goal_is_about_every_shape_that_was_timed_unless_it_names_some() -> None:
    assert judged(beside="torch") == [("large", "torch", 2.0, True), ("small", "torch", 0.8, False)]
    assert judged(beside="torch", shapes=["small"], least=0.75) == [("small", "torch", 0.8, True)]
    assert judged(beside="torch", dtypes=["bf16"]) == []


def test_the_library_is_the_fastest_of_it_in_the_same_precision() -> None:
    assert judged(beside="library", shapes=["large"]) == [("large", "compile", 1.2, True)]


def test_the_floor_and_another_op() -> None:
    assert judged(beside="floor", shapes=["large"]) == [("large", "floor", 0.9, False)]
    found = judged(beside_op="narrow", beside_shape="long", shapes=["large"], least=6)
    assert found == [("large", "narrow long v01", 6.0, True)]


def paired(variant: str, *ratios: float) -> pd.DataFrame:
    """BENCH with p5, p50, p95 of a rung's ratios to torch at the large shape."""
    bench = BENCH.copy()
    mine = (bench["variant"] == variant) & (bench["shape_name"] == "large")
    bench.loc[mine, [f"versus_torch_{at}" for at in QUANTILES]] = ratios
    return bench


def test_the_fastest_rung_is_judged_by_the_rounds_of_its_own_run() -> None:
    assert judged(paired("v02", 2.4, 2.5, 2.6), beside="torch", shapes=["large"]) == [("large", "torch", 2.5, True)]
    # not the rung whose ratios come out best
    assert judged(paired("v01", 2.4, 2.5, 2.6), beside="torch", shapes=["large"]) == [("large", "torch", 2.0, True)]


@pytest.mark.parametrize(
    ("least", "met", "within"), [(2.3, True, False), (2.45, True, True), (2.55, False, True), (2.7, False, False)]
)
def test_a_goal_says_whether_its_limit_lies_within_the_spread(least: float, met: bool, within: bool) -> None:
    goal = {"op": "widen", "what": "as fast", "least": least, "beside": "torch", "shapes": ["large"]}
    (row,) = build_goals([goal], POINTS, paired("v02", 2.4, 2.5, 2.6)).to_dict("records")
    assert (row["variant"], row["found_p5"], row["found"], row["found_p95"]) == ("v02", 2.4, 2.5, 2.6)
    assert (row["met"], row["within_spread"]) == (met, within)


def test_a_goal_says_whether_its_times_are_of_two_runs() -> None:
    of_another = BENCH.assign(bench_run=BENCH["op"] + "-bench")
    goals = [
        {"op": "widen", "what": "as fast", "least": 1, "shapes": ["large"]} | beside
        for beside in ({"beside_op": "narrow", "beside_shape": "long"}, {"beside": "torch"}, {"beside": "floor"})
    ]
    for bench, apart in ((of_another, [True, False, False]), (BENCH, [False] * 3)):
        table = build_goals(goals, POINTS, bench)
        assert table["two_runs"].tolist() == apart


def test_a_ratio_that_was_not_paired_lies_between_the_ends_of_both_times() -> None:
    for goal, ends in (({"beside": "compile"}, (0.768, 1.2, 1.875)), ({"beside": "floor"}, (0.72, 0.9, 1.125))):
        (row,) = build_goals(
            [{"op": "widen", "what": "as fast", "least": 1.0, "shapes": ["large"]} | goal], POINTS, BENCH
        ).to_dict("records")
        assert [row[name] for name in ("found_p5", "found", "found_p95")] == pytest.approx(ends)


def test_what_was_not_timed_is_left_out() -> None:
    assert judged(beside="compile") == [("large", "compile", 1.2, True)]


@pytest.mark.parametrize("goal", tomllib.loads(GOALS.read_text("utf-8"))["goal"], ids=lambda goal: goal["what"])
def test_goals_name_what_is_declared(goal: dict[str, Any]) -> None:
    assert goal["least"] > 0
    assert ("share" in goal) == ("never_below" in goal)
    for op in (ops()[name] for name in goal["op"].split()):
        assert set(goal.get("shapes", ())) <= set(op.shapes)
        if "beside_op" in goal:
            assert goal["beside_shape"] in ops()[goal["beside_op"]].shapes
        else:
            assert goal["beside"] in {"floor", "library", *op.variants}


def test_a_ratio_of_times_without_quantiles_has_its_median_alone():
    """Tables that were read have NaN there, tables that were just built have pandas' NA."""
    names = [f"bench_time_{at}_ns" for at in QUANTILES]
    for nothing in (pd.NA, float("nan")):
        row, other = ({"time_kind": "isolated", "variant": name, **dict.fromkeys(names, nothing)} for name in "ab")
        row["bench_time_p50_ns"], other["bench_time_p50_ns"] = 50, 100
        found = versus(row, other)
        assert found.p50 == 2.0
        assert found.p5 != found.p5
        assert found.p95 != found.p95
