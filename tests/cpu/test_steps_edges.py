"""Steps, their times without a profiler and the periods of programs without ranges, at their edges, by hand."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.capture.model import Capture
from analysis.tables import bare, periods
from tests.cpu.test_facts_by_hand import bare_rows, kinds, launched, numbers, operations
from tests.cpu.test_tables_periods import captured
from tests.declared import facts_of

# First occurrences and quantiles


@pytest.mark.parametrize(
    ("times", "left_out"),
    [
        ([15.0, 10.0, 10.0, 10.0], 0),  # exactly one and a half times the median
        ([15.1, 10.0, 10.0, 10.0], 1),
        ([19.0, 20.0, 10.0, 10.0, 10.0, 20.0], 0),  # of the later half, 10, 10 and 20, the 95th percentile is 19
        ([19.1, 20.0, 10.0, 10.0, 10.0, 20.0], 2),
        ([90.0, 80.0, 10.0, 10.0, 10.0], 2),  # the middle one belongs to the later half
        ([90.0, 10.0], 1),
        ([10.0, 90.0], 0),
        ([], 0),
    ],
)
def test_a_first_occurrence_takes_longer_than_later_ones(times: list[float], left_out: int) -> None:
    assert bare.first_occurrences(np.array(times)) == left_out


def test_first_ones_of_all_threads_are_counted_and_quantiles_are_of_the_rest() -> None:
    """Two threads lose one each; 10, 20, 30 and 10, 20, 30 are left: 5th percentile 10, 95th 30."""
    rows = bare_rows(*[(1, thread, "r", 0, end) for thread in (1, 2) for end in (90 + thread, 10, 20, 30)])
    found = bare.steady_state(rows, "duration_ns")
    assert (found["first_calls"], found["first_ns"], found["steady"]) == (2, 91, 6)
    assert (found["bare_p5_ns"], found["bare_p50_ns"], found["bare_p95_ns"]) == (10, 20, 30)


def test_the_ranges_with_most_time_are_shown() -> None:
    """Twelve ranges of 10 ns: calls 1 to 12, of which the last ones take most; nothing is lost of few."""
    rows = pd.DataFrame({"bare_p50_ns": [10] * 40, "calls": range(1, 41)})
    shown = bare._most_time(rows)
    assert shown["calls"].tolist() == list(range(41 - bare.TOP, 41))
    assert len(bare._most_time(rows.head(3))) == 3


# Which ranges are steps


@pytest.mark.parametrize(
    ("launched_", "calls", "steps"),
    [
        (["a"], {"a": 2}, ["a"]), (["a"], {"a": 1}, []),
        (["run/x/y"], {"run": 1, "run/x": 3, "run/x/y": 9}, ["run/x"]),  # launches below count for the range around
        (["ab/c", "a"], {"ab": 1, "ab/c": 3, "a": 3}, ["a", "ab/c"]),  # a is no outer range of ab/c
    ],
)  # fmt: skip
def test_a_step_occurs_twice_and_launches(launched_: list[str], calls: dict[str, int], steps: list[str]) -> None:
    paths = ["ab", "ab/c", "run", "run/x", "run/x/y", "a"]
    ranges = pd.DataFrame({"path": paths, "start_ns": [5, 6, 0, 1, 2, 3]})
    assert bare.find_repeated(ranges, launched_, {}, calls)["path"].tolist() == steps
    named = bare.find_repeated(ranges, ["a"], {"a": "*"}, {"*": 2})
    assert named["path"].tolist() == ["a"]


# Waits


def test_each_thread_waits_for_its_own_steps() -> None:
    """Thread 1 waits until 45, thread 2 until 50; both steps' GPU ends at 48, and the last wait in the step counts."""
    steps = pd.DataFrame({"start_ns": [0, 0], "end_ns": [50, 50], "pid": 1, "tid": [1, 2]})
    waits = pd.DataFrame({"start_ns": [30, 30, 10], "end_ns": [45, 50, 20], "pid": 1, "tid": [1, 2, 2]})
    assert bare.ends_in_wait(steps, numbers(48, 48), waits).tolist() == [False, True]
    assert bare.ends_in_wait(steps, numbers(45, 51), waits).tolist() == [True, False]
    assert bare.ends_in_wait(steps[:0], numbers(), waits).tolist() == []
    other = waits.assign(pid=2)
    assert bare.ends_in_wait(steps, numbers(5, 5), other).tolist() == [False, False]


def test_a_wait_that_ends_after_its_step_is_none_of_it() -> None:
    steps = pd.DataFrame({"start_ns": [0], "end_ns": [50], "pid": 1, "tid": 1})
    late = pd.DataFrame({"start_ns": [30], "end_ns": [51], "pid": 1, "tid": 1})
    assert bare.ends_in_wait(steps, numbers(40), late).tolist() == [False]
    assert bare.ends_in_wait(steps, numbers(50), None).tolist() == [True]
    assert bare.ends_in_wait(steps, numbers(51), None).tolist() == [False]


def test_a_step_waits_until_its_gpu_ends_or_the_next_begins() -> None:
    """Ranges 0 to 10 and 100 to 110; waits 20 to 60 and 90 to 105. The first step's GPU ends at 50, 95 or 400."""
    steps = pd.DataFrame({"start_ns": [0, 100], "end_ns": [10, 110], "pid": 1, "tid": 1})
    waits = pd.DataFrame({"start_ns": [20, 90], "end_ns": [60, 105], "pid": 1, "tid": 1})

    def blocked(*until: int) -> list[float]:
        found = bare.blocked(steps, np.array(until, float), waits)
        assert found is not None
        return found.tolist()

    assert blocked(50, 0) == [30, 5]
    assert blocked(95, 0) == [45, 5]
    assert blocked(400, 0) == [50, 5]  # until 100, where the next one begins
    assert blocked(5, 0) == [0, 5]
    assert bare.blocked(steps[:0], np.array([]), waits) is None
    later = waits.assign(start_ns=waits["start_ns"] + 500, end_ns=waits["end_ns"] + 500)
    found = bare.blocked(steps, np.array([50.0, 0.0]), later)
    assert found is not None
    assert found.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("until", "covered"), [(0, 0), (10, 0), (11, 1), (30, 20), (35, 25), (40, 30), (60, 30), (65, 35), (99, 40)]
)
def test_time_before_a_moment_in_intervals_that_overlap(until: int, covered: int) -> None:
    """10 to 40 holds 15 to 20 and meets 30 to 35; then 60 to 70."""
    start, end = numbers(10, 15, 30, 60), numbers(40, 20, 35, 70)
    assert bare._covered(start, end, numbers(until)).tolist() == [covered]


def test_memory_that_is_not_named_is_not_pageable() -> None:
    ops = operations([(10, 5, "memcpy"), (20, 5, "memcpy")]).assign(
        memory=[None, "Device -> Pageable"], api_start_ns=[1, 2], api_end_ns=[8, 9], tid=1
    )
    calls = pd.DataFrame({"start_ns": [50], "end_ns": [60], "pid": [1], "tid": [1]})
    found = bare.waiting_calls(Capture(waits=calls), ops)
    assert found is not None
    assert found["start_ns"].tolist() == [50, 2]
    unknown = bare.waiting_calls(Capture(waits=calls), ops.assign(api_start_ns=[1, pd.NA]))
    assert unknown is not None
    assert unknown["start_ns"].tolist() == [50]


# Times of steps


def test_the_times_of_steps_in_waits_are_those_of_all_instances() -> None:
    """Kind a ends in a wait in one of two instances: then it lasts until the next one begins."""
    rows = bare_rows((1, 1, "a", 0, 5), (1, 1, "a", 30, 36), (1, 1, "a", 70, 79))
    steps = pd.DataFrame({"path": ["a", "a"]})
    for waits, wall, how in (([True, True], 6, "start to end"), ([True, False], 35, "start to start")):
        found = bare.bare_steps(Capture(), rows, steps, np.array(waits), {"a": "a"})
        assert (found["bare_from"].tolist(), found["bare_p50_ns"].tolist()) == ([how], [wall])


def test_a_step_that_was_never_closed_has_no_time() -> None:
    rows = bare_rows((1, 1, "a", 0, None))
    steps = pd.DataFrame({"path": ["a"]})
    assert bare.bare_steps(Capture(), rows, steps, np.array([True]), {"a": "a"}).empty


@pytest.mark.parametrize(("steady", "first", "known"), [(1, 0, False), (2, 0, True), (1, 1, True), (0, 0, True)])
def test_a_step_ran_once_if_one_was_timed_and_none_left_out(steady: int, first: int, known: bool) -> None:
    steps = pd.DataFrame({"path": ["a", "b"]})
    rows = kinds(("a", "start to end", steady, first, 5.0), ("b", "start to end", 9, 0, 7.0))
    assert ("a" in bare.bare_wall_ns(rows, steps, {"a": "a", "b": "b"})) is known


def alternating(*starts: int) -> dict[str, float]:
    """Steps a and b in turn on one process; a keeps the GPU busy for 30, b for 50."""
    rows = bare_rows(*[(1, 1, "ab"[at % 2], start, start + 1) for at, start in enumerate(starts)])
    steps = pd.DataFrame({"path": ["a", "b"]}, index=[0, 1])
    ops = pd.DataFrame({"duration_ns": [30, 50]})
    own = {"a": "a", "b": "b"}
    return bare.filled(rows, kinds(("a", "start to end", 9, 0, 5.0)), ops, steps, numbers(0, 1), own)


def test_two_rounds_of_the_later_half_tell_how_full_the_gpu_is() -> None:
    """Of twelve steps the later six are a b a b a b: whole rounds are a b a b, 200 ns with 160 of work."""
    assert alternating(*range(0, 600, 50)) == {"a": 0.8, "b": 0.8}
    assert alternating(*range(0, 400, 50)) == {}  # four of eight: one round
    assert alternating(*[7] * 12) == {}  # no time passes
    last = [*range(0, 550, 50), 900]  # what comes after the last whole round does not count
    assert alternating(*last) == {"a": 0.8, "b": 0.8}


def test_each_process_has_rounds_of_its_own_and_only_pushed_ranges_count() -> None:
    rows = bare_rows(
        *[
            (process, 1, "ab"[at % 2], 50 * process * at, 50 * process * at + 1)
            for process in (1, 2)
            for at in range(12)
        ]
    )
    steps = pd.DataFrame({"path": ["a", "b"]}, index=[0, 1])
    given: Any = (pd.DataFrame({"duration_ns": [30, 50]}), steps, numbers(0, 1), {"a": "a", "b": "b"})
    known = kinds(("a", "start to end", 9, 0, 5.0))
    assert bare.filled(rows, known, *given) == {"a": 0.4, "b": 0.4}  # of the last process
    assert bare.filled(rows.assign(style="start"), known, *given) == {}
    assert bare.filled(rows, known[:0], *given) == bare.filled(rows, known, given[0], steps[:0], *given[2:]) == {}


def test_a_step_without_gpu_work_has_no_share() -> None:
    gaps = pd.DataFrame({"busy_ns": [pd.NA, pd.NA], "blocked_ns": [1, 2], "launches": [3, 4]})
    steps = pd.DataFrame({"path": ["a", "a"]})
    own = {"a": "a"}
    row = bare.measure_kinds(
        facts_of(bare_steps=kinds(("a", "start to end", 2, 0, 50.0)), gaps=gaps, step_ranges=steps, folded=own)
    ).iloc[0]
    assert (row["bare_wall_ns"], row["host_ns"], row["launches"]) == (50, 50, 4)
    assert pd.isna(row["busy_ns"])
    assert pd.isna(row["busy_frac"])
    assert row["evidence"] == ""


def test_steps_of_another_program_are_told_by_the_first_one() -> None:
    rows = bare_rows((1, 1, "x", 0, 5))
    steps = pd.DataFrame({"path": ["train", "test"]})
    given = {"bare": rows, "step_ranges": steps}
    gap = bare._unmatched(facts_of(bare_wall_ns={}, **given))
    assert gap is not None
    assert "no step of the timeline (train) is a range" in gap.why
    assert bare._unmatched(facts_of(bare_wall_ns={"train": 1.0}, **given)) is None
    assert bare._unmatched(facts_of(bare_wall_ns={}, bare=rows[:0], step_ranges=steps)) is None
    assert bare._unmatched(facts_of(bare_wall_ns={}, bare=rows, step_ranges=steps[:0])) is None


# Periods


def test_what_never_comes_again_has_no_repeat() -> None:
    assert periods._repeated(launched("abcdef"), 2) == (0, 2, 0)
    assert periods._repeated(launched("xyabcabcabcabq"), 3) == (2, 3, 3)  # three and two thirds
    assert periods._repeated(launched("ababxababababx"), 2) == (5, 2, 4)  # the longest stretch


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("abcabcabc" + "x" * 0, (0, 3, 3)), ("ab" * 3, (0, 2, 3)), ("abab", None),
        ("aabb" * 6, (0, 4, 6)), ("ab" * 5 + "cd" * 4, (0, 2, 5)),
        ("abc" * 4 + "uvwxyz1234567", None), ("abc" * 4 + "uvwxyz123456", (0, 3, 4)),  # 12 of 25, 12 of 24
    ],
)  # fmt: skip
def test_a_period_repeats_three_times_and_covers_half(text: str, period: tuple[int, int, int] | None) -> None:
    assert periods.find_period(launched(text)) == period


def test_a_shorter_period_may_cover_less_by_one_repeat_at_most() -> None:
    """vwxyz four times are 20 launches; of abc, six times are 18, and five are 15, which a sixth would not raise above 20."""
    assert periods.find_period(launched("vwxyz" * 4 + "abc" * 6)) == (20, 3, 6)
    assert periods.find_period(launched("vwxyz" * 4 + "abc" * 5)) == (0, 5, 4)


def test_a_long_period_is_proposed_among_many_shorter_ones_that_nearly_repeat() -> None:
    """199 launches of one kernel and one of another, three times: all short lengths fit most launches, 200 fits all."""
    assert periods.find_period(launched(("a" * 199 + "b") * 3)) == (0, 200, 3)
    assert 200 in periods._lengths(launched(("a" * 199 + "b") * 3))


def test_launches_of_another_process_or_without_a_call_are_no_iterations() -> None:
    names = "f" + "reduce" * 5
    count = len(names)
    both = captured(names + "xyz", pid=[1] * count + [2] * 3)
    assert periods.find_iterations(both)["pid"].unique().tolist() == [1]
    assert len(periods.find_iterations(both)) == 5
    assert periods.find_iterations(captured(names, tid=[pd.NA, *[1] * (count - 1)])).empty


def test_launches_of_one_name_and_other_grids_are_others() -> None:
    """One kernel in grids of 1 and 2 blocks in turn."""
    found = periods.find_iterations(captured("k" * 20, grid=["1x1x1", "2x1x1"] * 10))
    assert len(found) == 10
    threads = periods.find_iterations(captured("k" * 21, block=["1x1x1", "2x1x1", "3x1x1"] * 7))
    assert len(threads) == 7
    assert found["level"].unique().tolist() == [0]


@pytest.mark.parametrize(
    ("names", "said"),
    [("abcdefghijklmnopqrst", "repeat in no period"), ("abcdefghijklmnopqrs", None), ("ab" * 10, "longest period")],
)
def test_a_program_of_20_launches_is_told_whether_it_repeats(names: str, said: str | None) -> None:
    capture = captured(names)
    found = periods.find_iterations(capture)
    facts: Any = facts_of(capture=capture, iterations=found, step_ranges=found)
    text = periods._said(facts)
    assert text is None if said is None else said in (text or "")
    other = periods._said(facts_of(capture=capture, iterations=found, step_ranges=found.copy()))
    assert (other is None) is (said != "repeat in no period")
    ranges = [
        {"range_id": 1, "start_ns": 0, "end_ns": 9, "pid": 1, "tid": 1, "name": "mine", "level": 0, "path": "mine"}
    ]
    assert periods._said(facts_of(capture=captured(names, ranges), iterations=found, step_ranges=found)) is None
