"""analysis/tables/goals.py, and that kernels/goals.toml names what is declared."""

from __future__ import annotations

import tomllib
from typing import Any

import pandas as pd
import pytest

from analysis.tables.goals import build_goals
from harness.ladder import GOALS
from kernels.registry import ops

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
    [(op, variant, "fp32", shape, 90.0, time) for op, variant, shape, time in TIMES],
    columns=["op", "variant", "dtype", "shape_name", "floor_time_ns", "bench_time_p50_ns"],
).assign(versus_torch_p50=float("nan"))


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


def test_beside_pytorch_the_ratio_of_a_rungs_own_run_counts() -> None:
    later = BENCH[(BENCH["variant"] == "v01") & (BENCH["shape_name"] == "large") & (BENCH["op"] == "widen")]
    both = pd.concat([BENCH, later.assign(versus_torch_p50=2.5)], ignore_index=True)
    assert judged(both, beside="torch", shapes=["large"]) == [("large", "torch", 2.5, True)]


def test_what_was_not_timed_is_left_out() -> None:
    assert judged(beside="compile") == [("large", "compile", 1.2, True)]


@pytest.mark.parametrize("goal", tomllib.loads(GOALS.read_text("utf-8"))["goal"], ids=lambda goal: goal["what"])
def test_goals_name_what_is_declared(goal: dict[str, Any]) -> None:
    op = ops()[goal["op"]]
    assert set(goal.get("shapes", ())) <= set(op.shapes)
    assert goal["least"] > 0
    if "beside_op" in goal:
        assert goal["beside_shape"] in ops()[goal["beside_op"]].shapes
    else:
        assert goal["beside"] in {"floor", "library", *op.variants}
