"""Iterations of programs without ranges: periods with known answers, what is none, and the report of such a program."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture.model import GPU_OPS_COLUMNS, RANGES_COLUMNS, Capture, as_table
from analysis.pipeline import analyse
from analysis.tables.periods import Period, find_iterations, find_period


def numbers(text: str) -> np.ndarray:
    return np.array([ord(letter) for letter in text], dtype=np.int64)


@pytest.mark.parametrize(
    ("launched", "expected"),
    [
        ("fill" + "reduce" * 8, Period(4, 6, 8)),
        ("ababc" * 5, Period(0, 5, 5)),  # and not the short ab inside
        ("init" + "abc" * 20 + "end", Period(4, 3, 20)),
        ("warm" * 3 + "abcde" * 9, Period(12, 5, 9)),  # what covers most
        ("abcd" * 2 + "efgh", None),  # seen twice
        ("aaaaaaaaaaaaaaaaaaaa", Period(0, 2, 10)),
        ("the quick brown fox jumps", None),
        ("", None),
    ],
)
def test_periods(launched: str, expected: Period | None) -> None:
    assert find_period(numbers(launched)) == expected


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=40), st.integers(3, 30), st.lists(st.integers(6, 9), max_size=5)
)
def test_what_is_repeated_is_found(body: list[int], count: int, before: list[int]) -> None:
    launched = np.array([*before, *body * count], dtype=np.int64)
    found = find_period(launched)
    if len(body) * count < len(launched) / 2:
        return
    assert found is not None
    assert found.length * found.times >= len(body) * count - len(body)
    assert len(body) >= found.length
    part = launched[found.first : found.first + found.length * found.times].reshape(found.times, found.length)
    assert (part == part[0]).all()


def captured(names: str, ranges: list[dict[str, Any]] | None = None, **more: Any) -> Capture:
    """A capture of one launch a letter, each 2 µs long and 10 µs after the one before."""
    count = len(names)
    begin = 1000 * 10 * np.arange(count)
    ops = {
        "start_ns": begin + 5000, "duration_ns": 2000, "kind": "kernel", "name": list(names), "grid": "1x1x1",
        "block": "32x1x1", "stream": 7, "device": "GPU (0)", "api_start_ns": begin, "api_end_ns": begin + 3000,
        "pid": 1, "tid": 1,
    }  # fmt: skip
    table = as_table(dict(pd.DataFrame(ops | more).items()), GPU_OPS_COLUMNS)
    frame = pd.DataFrame(ranges or [], columns=list(RANGES_COLUMNS))
    return Capture(gpu_ops=table, ranges=as_table(dict(frame.items()), RANGES_COLUMNS))


def test_a_program_without_ranges_has_iterations_as_steps() -> None:
    report = analyse(captured("f" + "reduce" * 5))
    steps = report.tables["gaps"]
    assert list(steps["step"]) == [f"iteration#{number}" for number in range(1, 6)]
    assert list(steps["launches"]) == [6] * 5
    assert list(steps["busy_ns"]) == [12_000] * 5
    assert any("longest period" in note for note in report.report.notes)


def test_an_iteration_lasts_from_its_first_launch_to_that_of_the_next() -> None:
    """The launch before the five rounds begins at 0, each later one 10 µs on; the last call takes 3 µs."""
    found = find_iterations(captured("f" + "reduce" * 5))
    assert found["start_ns"].tolist() == [10_000, 70_000, 130_000, 190_000, 250_000]
    assert found["end_ns"].tolist() == [70_000, 130_000, 190_000, 250_000, 303_000]
    assert found["range_id"].tolist() == [1, 2, 3, 4, 5]
    assert find_iterations(captured("abc" * 6)).empty  # 18 launches
    assert len(find_iterations(captured("ab" * 10))) == 10


def test_where_nothing_repeats_that_is_said() -> None:
    report = analyse(captured("abcdefghijklmnopqrstuvwxyz"))
    assert list(report.tables["gaps"]["step"]) == ["capture"]
    assert any("repeat in no period" in note for note in report.report.notes)


@pytest.mark.parametrize(("name", "steps"), [("CCCL:cub::DeviceReduce", 5), ("epoch", 1)])
def test_ranges_of_a_library_do_not_count_as_the_programs(name: str, steps: int) -> None:
    row = {"range_id": 1, "start_ns": 0, "end_ns": 10_000, "pid": 1, "tid": 1, "name": name, "level": 0, "path": name}
    assert len(analyse(captured("f" + "reduce" * 5, [row])).tables["gaps"]) == steps
