"""The goals counted by the plain loop and with the rung that runs unasked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd

from studies.ladder import otherwise
from studies.ladder.build import read_tables
from studies.ladder.searched import paired
from studies.runs import read

REPORTS = Path(__file__).parents[2] / "reports"


def goal(shape: str, found: float, variant: str = "v02", **more: Any) -> dict[str, Any]:
    return {
        "goal": 1, "what": "as fast", "op": "widen", "variant": variant, "dtype": "fp32", "shape_name": shape,
        "beside": "torch", "least": 1.0, "share": 0.5, "never_below": 0.9, "found": found, **more,
    }  # fmt: skip


def time(variant: str, shape: str, p50: float) -> dict[str, Any]:
    known = {f"bench_time_{at}_ns": p50 for at in ("p5", "p50", "p95")}
    return {"op": "widen", "dtype": "fp32", "shape_name": shape, "variant": variant, "time_kind": "isolated", **known}


RUNGS = pd.DataFrame(
    [
        {"op": "widen", "dtype": "fp32", "variant": "v01", "best": True},
        {"op": "widen", "dtype": "fp32", "variant": "v02", "best": False},
    ]
)
TIMES = pd.DataFrame([time("v01", "a", 200.0), time("torch", "a", 100.0), time("torch", "b", 100.0)])
LOOPS = pd.DataFrame(
    [
        {"op": "widen", "dtype": "fp32", "shape_name": shape, "library": library, "looped": looped}
        for shape, library, looped in (("a", "torch", 0.95), ("b", "compile", 2.0))
    ]
)


def test_each_count_has_its_own_ratio() -> None:
    rows = pd.DataFrame([goal("a", 1.2), goal("b", 1.1), goal("c", 1.3, variant="v01"), goal("d", math.nan)])
    found = otherwise.count(rows, LOOPS, RUNGS, TIMES).set_index("shape_name")
    assert list(found.index) == ["a", "b", "c"]  # what was not timed has no count
    # the loop held b against another library than the goal
    assert found["looped"].fillna(0).tolist() == [0.95, 0, 0]
    # v01 runs unasked: half as fast at a, not timed at b, the fastest itself at c
    assert found["unasked"].fillna(0).tolist() == [0.5, 0, 1.3]


def test_a_verdict_that_turns_over_is_bold() -> None:
    counted = otherwise.count(pd.DataFrame([goal("a", 1.2), goal("b", 0.95)]), LOOPS, RUNGS, TIMES)
    row = otherwise.render(counted).splitlines()[4]  # behind a sentence and two lines of headings
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == [
        "as fast",
        "met: 1 of 2, least 0.950 ×",
        "**not met: 0 of 1, least 0.950 ×**",
        "**not met: 0 of 1, least 0.500 ×**",
    ]


def test_goals_of_every_shape_are_left_out_and_no_loop_is_a_dash() -> None:
    whole = pd.DataFrame([goal("a", 1.2, share=1.0)])
    assert otherwise.render(otherwise.count(whole, LOOPS, RUNGS, TIMES)) == ""
    none = otherwise.count(pd.DataFrame([goal("a", 1.2)]), otherwise.read_loops(Path("nowhere")), RUNGS, TIMES)
    assert "| – " in otherwise.render(none)


def test_the_goals_own_count_is_that_of_the_goals() -> None:
    """On the committed ladder."""
    runs = read(REPORTS)[0]
    folder = runs.folder("ladder")
    assert folder is not None
    tables = read_tables(folder)
    loops = otherwise.read_loops(REPORTS / f"{runs.prefix}checks")
    times = paired(tables["ladder_times"], tables["searched"])
    counted = otherwise.count(tables["goals"], loops, tables["ladder"], times)
    assert (counted["met"].astype(bool) == (counted["found"] >= counted["least"])).all()
    assert counted["looped"].notna().sum() > 100
    assert counted["unasked"].notna().all()
    # a rung that runs unasked is no faster than the fastest, but by what paired rounds and medians differ
    assert (counted["unasked"] <= counted["found"] * 1.02).all()


def test_the_loop_of_a_run_that_searches_counts_where_the_benchmark_did_not_time_the_library(tmp_path: Path) -> None:
    header = "op,dtype,shape_name,rung,library,published,looped,apart"
    (tmp_path / "plain_loop_isolated.csv").write_text(f"{header}\ngemv,fp32,qkv,v02,torch,1.2,1.21,0\n")
    (tmp_path / "plain_loop_tuned.csv").write_text(
        f"{header}\ngemv,fp32,qkv,v04,torch,1.3,1.31,0\ngemv,fp32,qkv,v04,compile_tuned,0.99,0.98,0\n"
    )
    found = otherwise.read_loops(tmp_path).set_index("library")["looped"]
    assert found.to_dict() == {"torch": 1.21, "compile_tuned": 0.98}
