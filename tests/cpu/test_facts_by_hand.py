"""Facts that small changes of the code would break, each on numbers that a reader can check by hand.

tests/mutants.py changes one operator or number at a time; a test here names the fact that a surviving change broke.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.diagnosis.host import _rates
from analysis.tables import collectives, gaps, join
from analysis.tables.bare import blocked, first_occurrences
from analysis.tables.roofline import refuse_impossible
from analysis.tables.tokens import token_floors


def numbers(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("start", "length", "busy", "idle"),
    [
        ([0, 2, 20], [10, 1, 5], 15, [10]),  # the second lies inside the first
        ([0, 5], [10, 10], 15, []),
        ([5, 0], [5, 5], 10, []),  # in any order, and they touch
        ([0, 10, 30], [1, 1, 1], 3, [9, 19]),
        ([], [], 0, []),
    ],
)
def test_the_gpu_is_busy_for_the_union(start: list[int], length: list[int], busy: int, idle: list[int]) -> None:
    found, between = gaps.busy_and_gaps(numbers(*start), numbers(*length))
    assert (found, between.tolist()) == (busy, idle)


def test_steps_of_one_name_have_numbers() -> None:
    assert gaps.step_labels(pd.DataFrame({"path": ["a", "b", "a"]})) == ["a#1", "b", "a#2"]


def test_a_launch_at_the_end_of_a_step_belongs_to_the_next() -> None:
    steps = pd.DataFrame({"start_ns": [0, 100], "end_ns": [100, 200], "pid": [7, 7]}, index=[3, 5])
    ops = pd.DataFrame({"pid": [7] * 5, "api_start_ns": [0, 99, 100, 199, 200]})
    assert gaps.add_other_threads(ops, steps, numbers(-1, -1, -1, -1, -1)).tolist() == [3, 3, 5, 5, -1]
    assert gaps.add_other_threads(ops, steps, numbers(5, -1, -1, -1, -1)).tolist() == [5, 3, 5, 5, -1]


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        (0.0, 5e6, True),
        (5e6, 0.0, True),
        (5e6, 5.04e6, True),
        (5e6, 5.2e6, False),
        (-1.0, 1.0, False),
        (0.004, 0.008, True),
    ],
)
def test_pages_of_one_capture_agree_but_for_rounding(one: float, other: float, agree: bool) -> None:
    """A scaled page prints 0 for a small value; else a hundredth, or half of the last digit, is rounding."""
    rows = pd.DataFrame(
        {"ncu_id": [0, 0], "path": "p", "symbol": "s", "grid": "1", "block": "1", "value": [one, other]}
    )
    assert join._agree(rows) == agree


@pytest.mark.parametrize(
    ("pattern", "names", "matches"),
    [
        ("A/*/B", "A/B", True),
        ("A/*/B", "A/x/y/B", True),
        ("A/+/B", "A/B", False),
        ("A/+/B", "A/x/B", True),
        ("A/+/B", "A/x/y/B", False),
        ("[A", "A/B", True),
        ("[B", "A/B", False),
        ("B]", "A/B", True),
        ("A]", "A/B", False),
        ("A/", "x/A/B", True),
        ("A/B", "A/x/B", False),
    ],
)
def test_a_filter_of_ncu_matches_ranges_as_its_manual_says(pattern: str, names: str, matches: bool) -> None:
    matcher = join.path_matcher(pattern)
    assert matcher is not None
    assert matcher(names.split("/")) == matches


def test_one_late_collective_moves_no_clock() -> None:
    """Rank 1 ends 100 ns later, once by a millisecond: its clock is 100 ns ahead."""
    late = [100] * 8 + [1_000_000]
    rows = pd.DataFrame(
        {
            "collective": [*range(9), *range(9)], "kind": "all_reduce", "place": [0] * 9 + [1] * 9,
            "start_ns": [1000 * at for at in range(9)] * 2,
            "end_ns": [1000 * at + 500 for at in range(9)] + [1000 * at + 500 + late[at] for at in range(9)],
        }
    )  # fmt: skip
    clocks = collectives._clocks(rows, 2)
    assert clocks["offset_ns"].tolist() == [0, 100]
    assert clocks["pairs"].tolist() == [0, 9]


def test_the_transfer_of_uneven_collectives_is_their_median() -> None:
    """100, 200 and 900 ns from the last start to the end: 200 ns; one copy alone counts its own time."""
    ends = [1100, 2200, 3900]
    rows = pd.DataFrame(
        {
            "path": "step", "collective": [0, 1, 2], "kind": "all_reduce", "start_ns": [500, 1500, 2500], "end_ns": ends,
            "aligned_end_ns": ends, "last_start_ns": [1000, 2000, 3000], "ranks": pd.array([2] * 3, "Int64"), "partners": 2,
            "payload_bytes": pd.array([4] * 3, "Int64"), "call": "ncclAllReduce", "waiting_ns": 0.0, "transfer_ns": 1.0,
        }
    )  # fmt: skip
    facts: Any = SimpleNamespace(
        matched=SimpleNamespace(rows=rows), exposed=pd.DataFrame({"exposed_ns": [1, 1, 1]}),
        gpu_ops=pd.DataFrame({"duration_ns": [5000]}), links=pd.DataFrame(columns=["kind", "ranks", "bytes", "byte_per_s"]),
    )  # fmt: skip
    build: Any = collectives.build_collectives
    (row,) = getattr(build, "build", build)(facts).to_dict("records")
    assert (row["transfer_p50_ns"], row["count"], row["time_ns"]) == (200, 3, 600 + 700 + 1400)


def test_a_rung_that_decodes_several_tokens_has_the_floor_of_all() -> None:
    """3 + 1 GB at 2 TB/s: 2 ms a token."""
    run = {
        "copy_bytes_per_s": 2e12, "weight_bytes": 3e9, "cache_bytes": 1e9, "rungs": [{"rung": "one"}, {"rung": "four"}],
        "captured": [{"rung": "four", "tokens": 4}],
    }  # fmt: skip
    capture: Any = SimpleNamespace(of=lambda name: run if name == "decode" else None)
    assert token_floors(capture, None, pd.DataFrame()) == {"one/decode": 2e6, "four/decode": 8e6}


@pytest.mark.parametrize(("times", "kept"), [(1.04, True), (1.2, False), (1.0, True)])
def test_a_roof_above_the_datasheet_is_refused(times: float, kept: bool) -> None:
    device: Any = SimpleNamespace(
        dram_bytes_per_s=1e12, fp32_flop_per_s=None, tf32_flop_per_s=None, bf16_flop_per_s=None
    )
    given = {"roofs": [{"name": "dram_copy", "value": times * 1e12, "unit": "byte/s"}]}
    found, refused = refuse_impossible(given, device, None)
    assert found is not None
    assert ([roof["value"] for roof in found["roofs"]], len(refused)) == ([times * 1e12] if kept else [], int(not kept))


def test_a_wait_counts_for_the_step_in_which_it_lies() -> None:
    """The GPU works for the first step until 300, and the second starts at 100: the wait from 150 to 250 is its own."""
    steps = pd.DataFrame({"start_ns": [0, 100], "end_ns": [90, 300], "pid": 1, "tid": 1})
    waits = pd.DataFrame({"start_ns": [80, 150], "end_ns": [95, 250], "pid": 1, "tid": 1})
    found = blocked(steps, np.array([300.0, 300.0]), waits)
    assert found is not None
    assert found.tolist() == [15.0, 100.0]


@pytest.mark.parametrize(
    ("times", "first"),
    [
        ([50, 10, 10, 10, 10, 10], 1),
        ([14, 10, 10, 10, 10, 10], 0),  # below 1.5 times the median
        ([17, 10, 10, 10, 10, 18], 0),  # as slow as one in twenty of the later ones
        ([30, 40, 10, 10], 2),
        ([30], 0),
    ],
)
def test_the_first_calls_are_those_that_no_later_one_is_as_slow_as(times: list[float], first: int) -> None:
    assert first_occurrences(np.array(times, dtype=float)) == first


def test_rates_of_a_range_are_of_all_its_calls() -> None:
    """Two operations of 1 MFLOP, called 10 times in all, in 1 ms: 10 MFLOP / 1 ms."""
    ops = pd.DataFrame({"range": ["h/a", "h/a"], "flops": [1e6, 1e6], "minimum_bytes": [2e6, 2e6]})
    assert _rates("h/a", 1e6, 10, ops)[0] == "runs at 10 GFLOP/s and 20 GB/s"
