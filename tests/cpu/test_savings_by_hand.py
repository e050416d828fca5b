"""Steps of a few numbers of which a reader can tell the window, the profiler's cost and what a change saves; times in ns."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.capture.model import Capture
from analysis.replay import savings
from analysis.replay.graph import Graph
from analysis.replay.simulate import simulate
from analysis.replay.steady import Phase, Steady
from tests.by_hand import graph, launches

# The window


def phase(walls: list[int], slow: tuple[int, ...] = (), first: int = 0, count: int = 1_000, **more: Any) -> Phase:
    """Steps of 100 that follow each other."""
    begin = np.arange(len(walls)) * 100
    given = {"start_ns": begin, "end_ns": begin + 100} | more
    return Phase(
        "step",
        1,
        "",
        given["start_ns"],
        given["end_ns"],
        begin,
        begin + 100,
        np.array(walls),
        count,
        first,
        np.array(slow, int),
    )


def window(
    walls: list[int], slow: tuple[int, ...] = (), first: int = 0, count: int = 1_000, most: int = 3_000, **more: Any
) -> list[int]:
    return savings.window(phase(walls, slow, first, count, **more), most).tolist()


EVEN = [100] * 12


def test_a_window_holds_as_many_steps_as_3000_launches_and_2_to_20() -> None:
    """Of steps 0 to 11, the last one may be cut, and the first two let the host get ahead."""
    assert window(EVEN) == [2, 3, 4]
    assert window(EVEN, count=1_500) == [2, 3]
    assert window(EVEN, count=5_000) == [2, 3]
    assert window(EVEN, count=100) == list(range(2, 11))
    assert window([100] * 30, count=1, most=3) == [2, 3, 4]
    assert window([100] * 30, count=0) == list(range(2, 22))


def test_a_window_is_where_steps_take_as_long_as_usual() -> None:
    assert window([100, 100, 130, 110, *[100] * 8]) == [4, 5, 6]
    assert window([100, 100, 90, 110, 101, *[100] * 7]) == [5, 6, 7]
    assert window([100, 100, 98, 101, 101, 100, 104, 100, 104, 100, 104, 100]) == [3, 4, 5]  # the middle is 101
    assert window([100, 100, 110, 90, 100, 160, 100, 100, 103, 100, 100, 100]) == [2, 3, 4]


def test_few_steps_are_all_there_is() -> None:
    assert window([100]) == [0]
    assert window([100] * 3) == [0, 1, 2]
    assert window([100] * 4) == [0, 1, 2]  # the last of more than three goes
    assert window([100] * 5) == [1, 2, 3]  # a quarter of four leads
    assert window([100] * 4, slow=(3,)) == [0, 1, 2]
    assert window([100] * 5, slow=(4,)) == [1, 2, 3]
    assert window([100] * 5, first=2) == [2, 3, 4]


def test_a_window_is_within_one_run_of_steps() -> None:
    assert window(EVEN, slow=(4,)) == [5, 6, 7]
    assert window(EVEN, slow=(5, 9)) == [2, 3, 4]
    assert window([100, 100, 100, 100, 190, 100, 190, 100, 190, 100, 100, 100], slow=(4, 6, 8), count=1_500) == [2, 3]
    begin = np.arange(12) * 100
    begin[4:] += 1_000
    assert window(EVEN, start_ns=begin, end_ns=begin + 100) == [2, 3, 4]
    begin[4:] += 1  # a pause of more than a microsecond
    assert window(EVEN, start_ns=begin, end_ns=begin + 100) == [4, 5, 6]


@pytest.mark.parametrize(
    ("slow", "first", "found"),
    [
        ((3, 7, 11), 0, list(range(3, 11))),
        ((3, 7, 12), 0, list(range(3, 12))),  # one step later is even enough
        ((3, 7, 13), 0, None),
        ((3, 7), 0, None),  # once is no period
        ((3, 4, 5), 0, None),  # nothing between them
        ((3, 5, 7), 0, None),  # they could have begun before
        ((1, 3, 5), 0, list(range(1, 5))),
        ((4, 8, 12), 0, None),
        ((4, 8, 12), 1, list(range(4, 12))),
    ],
)
def test_slow_steps_that_recur_evenly_are_in_the_window_with_whole_periods(
    slow: tuple[int, ...], first: int, found: list[int] | None
) -> None:
    got = window([100] * 16, slow, first)
    assert (got == found) if found else not set(got) & set(slow)


def test_all_steps_are_those_after_start_up_without_a_cut_last_one() -> None:
    whole = lambda count, first: savings.whole(phase([100] * count, first=first)).tolist()  # noqa: E731
    assert [whole(3, 0), whole(4, 0), whole(4, 1), whole(5, 1)] == [[0, 1, 2], [0, 1, 2], [1, 2, 3], [1, 2, 3]]


def test_other_processes_have_the_windows_of_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    main = phase([100] * 5, count=100)

    def of(pid: int, *others: tuple[int, int, int]) -> dict[int, tuple[int, int]]:
        """others: shift of the steps, their number and launches."""
        found = []
        for shift, steps, count in others:
            one = phase([100] * steps, count=count)
            found.append(replace(one, start_ns=one.start_ns + shift, end_ns=one.end_ns + shift))
        monkeypatch.setattr(savings, "find", lambda capture, which: Steady(tuple(found) if which == pid else ()))
        capture: Any = SimpleNamespace(gpu_ops=pd.DataFrame({"pid": pd.array([1, pid, None], "Int64")}))
        windows = savings._windows(capture, main, np.array([1, 2]))
        assert (windows.begin, windows.end, windows.main, windows.of[1]) == (100, 300, 1, (100, 300))
        return {one: bounds for one, bounds in windows.of.items() if one != 1}

    assert of(2, (7, 5, 100)) == {2: (107, 307)}
    assert of(2, (7, 5, 110)) == of(2, (7, 5, 90)) == {2: (107, 307)}
    assert of(2, (7, 5, 111)) == of(2, (7, 5, 89)) == of(2, (7, 4, 100)) == {}
    assert of(2, (500, 5, 100)) == {}  # they only begin when the others have ended
    assert of(2, (499, 5, 100)) == {2: (599, 799)}
    assert of(2, (200, 5, 100), (-30, 5, 100), (90, 5, 100)) == {2: (70, 270)}  # the one that overlaps most
    assert of(1) == {}


# What a profiler costs


COSTS = {"launch": [100, 200], "call": [10, 20], "range": [5, 50], "crowded": [0, 1]}


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(savings, "_costs", lambda clock: COSTS)


def cheaper(end: int, part: float = 1.0) -> tuple[list[float], list[float]]:
    """A launch after two ranges, a call, a driver's call, and a launch after long work; a crowded host takes 1.5 times."""
    calls = [{"gap": 1_000.0, "own": 400.0}, {"gap": 500.0, "own": 60.0, "name": "cudaEventRecord"},
             {"gap": 30.0, "own": 900.0, "name": "cudaMalloc"}, {"gap": 100_000.0, "own": 10.0}]  # fmt: skip
    found = savings._without_cost(graph(calls, [{}, {"call": 3}]), np.array([2.0, 0, 0, 0]), "nsys", end, part)
    return found.c_own.tolist(), found.c_gap.tolist()


def test_the_least_cost_of_calls_is_half_inside_and_that_of_ranges_before(costs: None) -> None:
    """A launch of 100: 50 inside, 50 and 2 · 5 before. Of a call of 10 at least 3 stay, of a gap of 30 at least 9."""
    own, gap = cheaper(0)
    assert own == pytest.approx([350, 55, 900, 3])
    assert gap == pytest.approx([940, 495, 25, 100_000 - 93])


def test_the_highest_cost_includes_that_of_a_crowded_host(costs: None) -> None:
    """The rest is a third shorter, but of a gap what a launch usually needs, 30,000 at least, and half of the rest; the driver's work as well."""
    own, gap = cheaper(1)
    assert own == pytest.approx([300 * 2 / 3, 50 * 2 / 3, 900 * 2 / 3, 3 * 2 / 3])
    long = 100_000 - 193
    usual = 5 * (500 + 30 + 100_000)  # the gap between both launches; the long one is no longer
    assert gap == pytest.approx([800 * 2 / 3, 490 * 2 / 3, 20 * 2 / 3, long - min(long, usual) / 3])


def test_a_part_of_the_cost_is_that_part_of_each(costs: None) -> None:
    own, gap = cheaper(1, 0.5)
    assert own == pytest.approx([350 * 5 / 6, 55 * 5 / 6, 900 * 5 / 6, 3 * 5 / 6])
    assert gap[:2] == pytest.approx([900 * 5 / 6, 495 * 5 / 6])
    assert cheaper(1, 0.0) == ([400, 60, 900, 10], [1_000, 500, 30, 100_000])


def test_more_than_the_whole_cost_of_a_crowded_host_leaves_no_negative_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(savings, "_costs", lambda clock: COSTS | {"crowded": [0, 4]})
    own, gap = cheaper(1, 2.0)
    assert own[0] == pytest.approx(200 * (2 / 3) ** 8)
    assert min(own + gap) > 0


def test_long_work_of_the_program_is_slowed_half_as_much(costs: None) -> None:
    one = graph([{"gap": 100_000.0}], [{}])
    assert savings._without_cost(one, np.zeros(1), "nsys", 1).c_gap[0] == pytest.approx(
        100_000 - 196.5 - 30_000 / 3 - (70_000 - 196.5) / 6
    )
    small = graph([{"gap": 100.0, "own": 100.0}], [{}])
    found = savings._without_cost(small, np.zeros(1), "nsys", 1)
    assert (found.c_own[0], found.c_gap[0]) == pytest.approx((30 * 2 / 3, 30 * 2 / 3))  # three tenths stay


@pytest.mark.parametrize(
    ("took", "crowd"),
    [
        ([200] * 8, 2.0),
        ([200] * 7, 1.5),
        ([50, *[150] * 7], 150 / 57),
        ([20] * 8, 1.0),
        ([0] * 4 + [30] * 4, 15.0),
        ([0] * 8, 1.0),
    ],
)
def test_a_host_is_as_crowded_as_trivial_calls_are_longer_than_at_best(took: list[int], crowd: float) -> None:
    """At best: the 1st percentile, 100 at most."""
    calls = [{"name": "cuCtxGetCurrent", "own": float(ns)} for ns in took]
    one = graph([*calls, {"own": 9_999.0}], [{"call": len(calls)}])
    assert savings._crowded(one) == pytest.approx(crowd)


def test_a_clock_without_costs_of_its_own_has_those_of_nsys() -> None:
    assert savings._costs("nothing") == savings._costs("nsys") != savings._costs("torch")


def test_ranges_in_the_host_work_before_a_call_count_as_pairs() -> None:
    """Gaps 0 to 10 and 15 to 25 (process 1), 0 to 40 (process 2)."""
    one = graph([{}, {}, {"seq": 1, "gap": 40.0}], [{}], seq_pid=np.array([1, 2]))
    ranges = pd.DataFrame({"pid": [1, 1, 1, 2], "start_ns": [0, 9, 15, 39], "end_ns": [10, 25, 20, 50]})
    assert savings._marks(Capture(ranges=ranges), one).tolist() == [
        1,
        1,
        0.5,
    ]  # 0 and 9; 15 and 20; 39: ends are not in
    assert savings._marks(Capture(ranges=ranges.assign(pid=3)), one).tolist() == [0, 0, 0]


# The bare time of a step


def fitted(ns: float, bare: float, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """A launch of 5 after host work of 995, of which the profiler may cost 200 times a part of 0 to 2."""
    only = {"launch": [0, 200], "call": [0, 0], "range": [0, 0], "crowded": [0, 0]}
    monkeypatch.setattr(savings, "_costs", lambda clock: only)
    return savings._fit(graph([{"gap": 995.0}], [{"ns": ns}]), np.zeros(1), "nsys", bare)


@pytest.mark.parametrize(
    ("bare", "step"), [(900, 900.0), (650, 650.0), (590, 600.0), (589, 600.0), (588, 588.0), (300, 300.0)]
)
def test_as_much_of_the_cost_goes_as_makes_the_step_as_long_as_without_a_profiler(
    bare: int, step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 400 go, within 2 %; then all host times shrink."""
    assert simulate(fitted(2, bare, monkeypatch)).step_ns == pytest.approx(step, abs=0.3)


@pytest.mark.parametrize(
    ("ns", "bare", "gap"),
    [(900, 1_000, 798.5), (899, 1_000, 995.0), (1_100, 1_080, 798.5), (1_100, 1_079, 0.0), (1_100, 1_400, 995.0)],
)
def test_a_gpu_that_is_busy_for_nine_tenths_tells_nothing_of_the_host(
    ns: float, bare: float, gap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the highest usual cost goes: 3.5 inside the launch, and 196.5 before."""
    assert fitted(ns, bare, monkeypatch).c_gap[0] == pytest.approx(gap, abs=0.5)


def test_a_host_that_runs_ahead_has_its_bare_time() -> None:
    """The main process takes 30 for two steps: 15 for one."""
    one = graph([{}, {}, {"seq": 1, "gap": 999.0}], [{}], seq_pid=np.array([1, 2]), steps=2)
    assert savings._ahead(one, 6.0).c_gap.tolist() == [4, 4, 999 * 0.4]
    assert savings._ahead(one, 6.0).c_own.tolist() == [2, 2, 2]
    assert savings._ahead(one, 20.0).c_gap.tolist() == [10, 10, 999]
    assert savings._busiest(graph([{}] * 3, [{"ns": 20.0}, {"ns": 30.0, "stream": 1}, {"ns": 40.0}], steps=2)) == 30


def bare_step(timing: dict[str, Any] | None = None, rows: pd.DataFrame | None = None, **ranges: list[Any]) -> Any:
    """Two steps of process 1 in a window from 0 to 30."""
    table = pd.DataFrame({"name": [], "start_ns": [], "pid": []} | ranges)
    capture: Any = SimpleNamespace(timing=timing, of=lambda kind: rows, ranges=table)
    return savings._bare_step(capture, phase([100]), launches(2, 2, steps=2, end_ns=30))


def test_a_harness_tells_the_bare_time_of_the_step_that_it_names() -> None:
    def timed(*names: str, **wall: float) -> Any:
        return bare_step({"steps": [{"range": name, "wall_ns": {"p50": 50} | wall} for name in names]})

    assert timed("step", p5=40, p95=90) == (40, 50, 90)
    assert timed("a/step", "step/a") == (50, 50, 50)
    assert timed("other") is timed("step", "a/step") is timed() is None
    assert bare_step({}) is None


def instances(*starts: list[int], name: str = "step") -> pd.DataFrame:
    """Instances of a bare range on each thread."""
    return pd.concat(
        [pd.DataFrame({"name": name, "process": 1, "thread": at, "start_ns": one}) for at, one in enumerate(starts)]
    )


def test_bare_ranges_tell_it_from_start_to_start() -> None:
    assert bare_step(rows=instances([0, 900, 1_000, 1_100, 1_210])) == pytest.approx((100.5, 105, 109.5))
    assert bare_step(rows=instances([0, 900, 1_000])) is None  # one later instance
    assert bare_step(rows=instances([])) is bare_step(rows=None) is None


def test_ranges_that_begin_once_a_step_tell_it_too() -> None:
    rows = pd.concat(
        [
            instances([at * ns for at in range(7)], name=name)
            for name, ns in (("a", 70), ("b", 90), ("c", 50), ("d", 10))
        ]
    )
    twice = {"name": ["a", "b", "c", "a", "b", "c"], "start_ns": [0, 5, 29, 10, 11, 12], "pid": [1] * 6}
    assert bare_step(rows=rows, **twice) == (70, 70, 70)  # the middle one of 50, 70 and 90
    assert bare_step(rows=rows, **twice | {"start_ns": [0, 5, 30, 10, 11, 12]}) == (90, 90, 90)  # c begins once within
    assert bare_step(rows=rows, **twice | {"start_ns": [-1, 5, 29, 10, 11, 12]}) == (90, 90, 90)
    assert bare_step(rows=rows, **twice | {"pid": [2, 1, 1, 1, 1, 1]}) == (90, 90, 90)
    assert bare_step(rows=rows) is None


def test_the_later_half_of_instances_counts_without_pauses() -> None:
    assert savings._apart(instances([0, 900, 1_000, 1_100, 1_210])) == [100, 110]
    assert savings._apart(instances([0, 1, 2, 3, 103, 203, 502])) == [100, 100, 299]
    assert savings._apart(instances([0, 1, 2, 3, 103, 203, 503])) == [100, 100]  # three times the usual is a pause
    assert savings._apart(instances([0, 100, 200], [50, 80, 110])) == [100, 30]
    assert savings._apart(instances([5, 0, 12])) == [7]
    assert savings._apart(instances([5])) == []


# A step


def whole(one: Graph, *bare: Graph, known: bool = False, **more: Any) -> savings.Step:
    run = simulate(one)
    bases = bare or (one,)
    times = tuple(simulate(base).step_ns for base in bases)
    return savings.Step(phase([100] * 5), one, run, bases, times, known, more.pop("seen", run.step_ns), **more)


HOST = graph([{"gap": 995.0}], [{}])  # a step of 1,000


def test_the_report_tells_of_the_bare_step_where_it_is_known() -> None:
    fast = replace(HOST, c_gap=np.array([495.0]))
    one = whole(HOST, fast, known=True, bare_wall_ns=(480.0, 510.0, 600.0))
    assert (one.told is fast, one.told_run.step_ns, one.told_ns) == (True, 500, 510)
    assert [ns for _, ns in one.bases] == [500]
    other = whole(HOST, fast, seen=1_250.0)
    assert (other.told is HOST, other.told_run is other.run, other.told_ns) == (True, True, 1_000)
    assert other.off == pytest.approx(-0.2)
    assert whole(HOST, seen=1_250.0, reason="far off").told_ns == 1_250
    assert (whole(HOST, seen=0.0).off, whole(HOST).takes_time) == (0, True)
    assert not replace(one, bare_ns=(5.0, 0.0)).takes_time
    assert replace(one, bare_ns=(1.0, 5.0)).takes_time


@pytest.mark.parametrize(
    ("longest", "steps", "left"),
    [
        (400_000.0, 4, 50_000.0),  # of four steps one has more than twice the usual work
        (90_000.0, 4, 90_000.0),  # each launch may need as much
        (400_000.0, 3, 400_000.0),  # too few steps to tell
    ],
)
def test_host_work_of_one_step_is_no_part_of_the_others(longest: float, steps: int, left: float) -> None:
    one = graph([{"gap": gap} for gap in (50_000.0, 60_000.0, longest, 55_000.0)], [{}], steps=steps)
    assert savings._even(one).c_gap[2] == left


def host_work(low: float, high: float) -> savings.Change:
    """Take from `low` to `high` of the host work before the launch."""
    return lambda one, share: replace(one, c_gap=one.c_gap - low - (high - low) * share)


def test_a_saving_spans_from_the_likely_to_the_highest_and_the_error_of_a_replay() -> None:
    """The step is 800 to 400 long: likely 440. Errors: 1.5 % of the step and a tenth of 0.56 and of 0.6."""
    found = savings.saving(whole(HOST), host_work(200, 600))
    assert (found.low, found.high) == (pytest.approx(0.56 - 0.071), pytest.approx(0.60 + 0.075))
    assert (found.low_ns, found.high_ns) == (pytest.approx(489), pytest.approx(675))
    assert (found.changed_ns, found.after.step_ns) == (600, 600)
    assert found.middle == pytest.approx((0.489 + 0.675) / 2)


def test_a_saving_spans_both_ends_of_the_profilers_cost() -> None:
    """Of a step of 500, 300 less are 0.6; of 1,000 they are 0.3."""
    fast = replace(HOST, c_gap=np.array([495.0]))
    found = savings.saving(whole(HOST, HOST, fast), host_work(300, 300))
    assert (found.low, found.high) == (pytest.approx(0.3 - 0.045), pytest.approx(0.6 + 0.075))
    known = savings.saving(whole(HOST, fast, known=True), host_work(100, 300))
    assert (known.changed_ns, known.after.step_ns) == (800, 200)  # the upper end on the bare step
    one = savings.saving(whole(HOST), host_work(300, 300), [(fast, 600.0)])
    assert one.high == pytest.approx(1 - 200 / 600 + 0.015 + 0.1 * 2 / 3)


def test_no_more_than_the_step_is_saved() -> None:
    found = savings.saving(whole(HOST), host_work(980, 990))
    assert (found.high, found.high_ns) == (1, 1_000)


@pytest.mark.parametrize(
    ("saved", "error"), [(0.0, 0.015), (0.2, 0.035), (-0.3, 0.045), (0.5, 0.065), (0.8, 0.055), (1.0, 0.015), (1.2, 0.015)]
)  # fmt: skip
def test_the_error_is_a_tenth_of_the_saving_or_of_twice_what_is_left(saved: float, error: float) -> None:
    assert savings._error(saved) == pytest.approx(error)


def test_changes_stand_in_the_order_of_what_each_saves_after_those_before() -> None:
    """100 of 1,000 is a tenth; 600 first, then 100 of 400 is a quarter; 9 of the last 300 is 3 %."""
    made = savings.in_order(whole(HOST), {"a": host_work(100, 100), "b": host_work(600, 600), "c": host_work(9, 9)})
    assert [name for name, _ in made] == ["b", "a", "c"]
    assert [one.middle for _, one in made] == pytest.approx([0.6, 0.25, 0.03], abs=0.01)
    few = savings.in_order(whole(HOST), {"c": host_work(10, 10), "d": host_work(9, 9)})
    assert [name for name, _ in few] == ["c"]
    assert savings.in_order(whole(HOST), {"c": host_work(10, 10), "d": host_work(9, 9)}, worth=0.02) == []


def test_after_a_change_half_of_its_uncertain_part_is_made() -> None:
    ((base, ns),) = savings.after(whole(HOST), host_work(200, 600))
    assert (base.c_gap.tolist(), ns) == ([595], 600)
    both = savings.together([host_work(100, 300), host_work(50, 50)])
    assert both(HOST, 1.0).c_gap.tolist() == [995 - 300 - 50]


# From a capture to a step


def step(
    one: Graph, monkeypatch: pytest.MonkeyPatch, bare: float | None = None, split: Graph | None = None
) -> savings.Step:
    only = {"launch": [100, 200], "call": [0, 0], "range": [0, 0], "crowded": [0, 0]}
    monkeypatch.setattr(savings, "_costs", lambda clock: only)
    monkeypatch.setattr(savings.graphs, "build", lambda capture, windows, steps, split=False: other if split else one)
    other = split or one
    ranges = pd.DataFrame({"pid": [], "start_ns": [], "end_ns": []}).astype("int64")
    timing = {"steps": [{"range": "step", "wall_ns": {"p50": bare, "p5": bare - 1, "p95": 2 * bare}}]} if bare else None
    capture: Any = SimpleNamespace(
        gpu_ops=pd.DataFrame({"pid": [1]}), ranges=ranges, clock="nsys", timing=timing, of=lambda kind: None
    )
    return savings.step(capture, phase([1_000] * 5))


def gaps(one: savings.Step) -> list[float]:
    return [round(float(base.c_gap[0])) for base in one.bare]


def test_without_a_bare_run_the_step_has_the_least_and_the_highest_cost_off(monkeypatch: pytest.MonkeyPatch) -> None:
    found = step(HOST, monkeypatch)
    assert (found.bare_known, found.bare_wall_ns, found.step_ns, found.reason) == (False, None, 1_001, "")
    assert gaps(found) == [898, 798]  # 995 less 100 and 200, 3.5 of them inside the launch
    assert found.bare_ns == pytest.approx((900, 800))


@pytest.mark.parametrize(
    ("bare", "gap", "wall"),
    [
        (800, [798], (799, 800, 1_600)),
        (970, [995], (969, 970, 1_940)),  # so little that the profiler costs nothing
        (969, [968], (968, 969, 1_938)),
        (1_029, [995], (1_028, 1_029, 2_058)),
        (1_030, [898, 798], None),  # it was measured beside other work
        (4, [4], (3, 4, 8)),
    ],
)
def test_a_bare_time_replaces_the_usual_cost(
    bare: float, gap: list[int], wall: tuple[float, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = step(HOST, monkeypatch, bare)
    assert gaps(found) == pytest.approx(gap, abs=1)
    assert (found.bare_wall_ns, found.bare_known) == (wall, wall is not None)


def test_a_bare_time_below_that_of_the_gpu_lets_the_host_run_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of 999 and 1 between two: 1,000 without any host work. A host of 500 a step runs ahead."""
    one = replace(HOST, o_duration=np.array([999.0]))
    found = step(one, monkeypatch, 500)
    assert (gaps(found), found.bare_wall_ns) == ([498], (1_000, 1_000, 1_000))
    assert step(one, monkeypatch, 970).bare_wall_ns == (969, 970, 1_940)
    assert step(one, monkeypatch, 969).bare_wall_ns == (1_000, 1_000, 1_000)
    assert step(replace(one, has_calls=False), monkeypatch, 500).bare_known is False


def test_a_replay_that_is_far_from_the_timeline_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert step(replace(HOST, end_ns=1_052), monkeypatch).reason == ""
    found = step(replace(HOST, end_ns=1_054), monkeypatch).reason
    assert found.startswith("A step of step takes 1.0 µs replayed, 1.1 µs in the timeline")
    assert step(replace(HOST, steps=2, end_ns=1_902), monkeypatch).reason == found.replace("1.0", "0.5").replace(
        "1.1", "1.0"
    )


def test_more_than_two_percent_of_doubtful_waits_give_another_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    many = graph([{"gap": 995.0}] + [{"gap": 0.0, "own": 0.0}] * 49, [{} for _ in range(50)])
    other = replace(many, c_gap=many.c_gap * 2)
    assert gaps(step(replace(many, unexplained=np.array([1])), monkeypatch, split=other)) == [898, 798]
    doubt = replace(many, unexplained=np.array([1, 2]))
    assert gaps(step(doubt, monkeypatch, split=other)) == [898, 798, 1_894]
    assert gaps(step(doubt, monkeypatch, 800, split=other))[1] == pytest.approx(798, abs=3)


def test_steps_without_time_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(savings, "step", lambda capture, one: one)
    some = SimpleNamespace(phases=[SimpleNamespace(takes_time=False), SimpleNamespace(takes_time=True)])
    capture: Any = None
    steady: Any = some
    assert savings.steps(capture, steady) == [some.phases[1]]


def test_kernels_of_several_streams_share_the_gpu() -> None:
    """Two that fill it and overlap for 50 of 100 ns each: 25 and 50 of it; one of a third leaves room for others."""
    ops = [
        {"start": 0, "ns": 100.0},
        {"start": 50, "ns": 100.0, "stream": 1},
        {"start": 200, "ns": 90.0, "fill": 1 / 3},
    ]
    one = graph([{}] * 3, ops)
    assert savings._work(one).tolist() == pytest.approx([75, 75, 30])
    shorter = replace(one, o_duration=np.array([50.0, 100.0, 0.0]))
    assert savings._capacity(savings._work(one), one, shorter) == pytest.approx(112.5)
    assert not savings._work(graph([{}] * 2, ops[:1])).any()
