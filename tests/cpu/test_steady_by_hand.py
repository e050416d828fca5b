"""Launches of a few symbols in which a reader can tell what repeats, where a step begins and how long it takes; in ns."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.capture.model import RANGES_COLUMNS, Capture, as_table, nest_ranges
from analysis.replay import steady
from analysis.replay.steady import Phase, _Launches
from tests.by_hand import LAUNCH, captured, op

WAIT = 9  # the symbol of a synchronisation


def launched(symbols: list[int], *, apart: int | list[int] = 10, weight: int = 1, **more: Any) -> _Launches:
    """Calls of 5 that begin so long after each other; each kernel begins 4 after its call and takes 2."""
    host = np.cumsum(np.broadcast_to(apart, len(symbols)))
    kernel = np.array(symbols) != WAIT
    given = {
        "symbol": np.array(symbols), "host_ns": host, "before_ns": np.insert(host[:-1] + 5, 0, host[0]), "returned_ns": host + 5,
        "launched_ns": np.maximum.accumulate(np.where(kernel, host + 5, 0)), "gpu_start_ns": np.where(kernel, host + 4, host + 5),
        "gpu_end_ns": np.where(kernel, host + 6, 0), "wait": WAIT, "weight": np.full(len(symbols), weight),
        "tunes": np.zeros(len(symbols), bool),
    }  # fmt: skip
    return _Launches(**(given | more))


def phase(
    walls: list[int], count: int = 10, first: int = 0, begin: int = 0, slow: tuple[int, ...] = (), **more: Any
) -> Phase:
    """Steps of these lengths, one after the other."""
    end = begin + np.cumsum(walls)
    start = end - walls
    given = {"gpu_start_ns": start, "gpu_end_ns": end} | more
    return Phase("s", 1, given.pop("marker", ""), start, end, **given, wall_ns=np.array(walls), launches=count, first=first,
                 slow=np.array(slow, int))  # fmt: skip


def test_steady_steps_are_those_after_start_up_that_are_not_slow() -> None:
    one = phase([900, 100, 120, 500, 110], first=1, slow=(3,))
    assert (one.steady.tolist(), one.count) == ([1, 2, 4], 3)
    assert one.quantiles() == (101, 110, 119)


# Which launches count


@pytest.mark.parametrize(
    ("tunes", "left"),
    [
        ([], list(range(150))),
        ([5], [*range(5), *range(6, 150)]),
        ([5, 69], [*range(5), *range(70, 150)]),  # 64 later: the same try
        ([5, 70], [*range(5), *range(6, 70), *range(71, 150)]),
        ([0, 9, 100, 149], list(range(10, 100))),
    ],
)
def test_launches_between_two_kernels_that_tune_belong_to_a_try(tunes: list[int], left: list[int]) -> None:
    one = launched([1] * 150, tunes=np.isin(np.arange(150), tunes))
    expected = left if 149 not in tunes else [*range(10, 100)]
    assert steady._working(one).tolist() == expected


@pytest.mark.parametrize(
    ("steps", "begin", "until", "lasts"),
    [
        (10, 0, 1_333, True),  # 333 of 1,333 are left: a quarter
        (10, 0, 1_334, False),
        (10, 900, 1_300, True),  # three usual steps
        (10, 900, 1_301, False),
        (4, 900, 1_200, True),  # half of four steps
        (4, 900, 1_201, False),
        (10, 100, 900, True),
    ],
)
def test_a_phase_lasts_to_the_end_but_for_a_quarter_or_three_steps(
    steps: int, begin: int, until: int, lasts: bool
) -> None:
    walls = [100] * (steps - 1) + [150]
    one = phase(
        walls, gpu_start_ns=np.array([begin] + [begin + 50] * (steps - 1)), gpu_end_ns=np.array([1_000] * steps)
    )
    assert steady._lasts(one, launched([1, 1], gpu_end_ns=np.array([until, 5]))) is lasts


MAIN = phase([1_000] * 10, count=100, begin=10_000)  # 10,000 in all


@pytest.mark.parametrize(
    ("one", "loads", "kept"),
    [
        (phase([100] * 10, begin=15_000), [], True),  # a tenth of the time
        (phase([100] * 9 + [99], begin=15_000), [], False),
        (phase([100] * 10, begin=9_001), [], True),  # it ends after the main one began
        (phase([100] * 10, begin=9_000), [], False),  # too small before
        (phase([100] * 10, begin=9_000, marker="warm"), [], True),  # but for a range of the program
        (phase([250] * 10, count=25), [], True),  # a quarter of time and launches
        (phase([250] * 9 + [249], count=25), [], False),
        (phase([250] * 10, count=24), [], False),
        (phase([900] * 4, count=25), [], True),
        (phase([900] * 3, count=25), [], False),  # three steps warm up
        (phase([900] * 4, count=25), [100, 950], False),  # half of the steps load modules
        (phase([900] * 4, count=25), [100, 200], True),
        (phase([900] * 4, count=25), [100, 3_600], True),  # the end of a step is not in it
        (phase([500, 500, 1_500], count=25, slow=(2,), begin=10_500), [], True),
    ],
)
def test_a_phase_beside_the_main_one_is_no_start_up_and_no_small_part(one: Phase, loads: list[int], kept: bool) -> None:
    assert steady._beside(one, MAIN, np.array(loads, int)) is kept


def test_four_launches_at_least_repeat_before_the_main_phase() -> None:
    main = replace(MAIN, launches=8)
    assert not steady._beside(phase([900] * 4, count=3), main, np.zeros(0, int))
    assert steady._beside(phase([900] * 4, count=4), main, np.zeros(0, int))


def test_modules_are_loaded_by_calls_of_that_name() -> None:
    calls = [(30, 31, "cuModuleLoadData"), (10, 11, "cudaLibraryLoadData"), (20, 21, LAUNCH)]
    assert steady._Whole(captured([op(5, 1)], calls)).loads.tolist() == [10, 30]
    assert steady._Whole(captured([op(5, 1)])).loads.tolist() == []


@pytest.mark.parametrize(("count", "said"), [(3, "only 3 launches"), (4, "No sequence of launches repeats")])
def test_why_nothing_repeats(count: int, said: str) -> None:
    ops = [op(10 * at + 4, 1, 10 * at, name=f"k{at}") for at in range(count)]
    found = steady.find(captured(ops))
    assert said in found.reason
    assert (found.phases, found.start_up_ns) == ((), (0, 0))


# Launches in order


def test_launches_and_synchronisations_stand_in_the_order_of_their_calls() -> None:
    """A graph of two kernels (one correlation id), a synchronisation and a kernel; another process is left out."""
    ops = [
        op(24, 6, 20, name="b"),
        op(14, 2, 10, name="a"),
        op(13, 9, 10, name="a"),
        op(11, 1, 9, pid=2),
        op(60, 5, name="c"),
    ]
    calls = [
        (10, 15, LAUNCH),
        (20, 25, LAUNCH),
        (30, 50, "cudaDeviceSynchronize"),
        (52, 53, "cudaEventRecord"),
        (9, 99, LAUNCH, 1, 2),
    ]
    found = steady._launches(steady._Whole(captured(ops, calls)), 1)
    names = {symbol: int(at) for at, symbol in enumerate(found.symbol.tolist())}
    assert len(names) == 4
    assert found.wait == found.symbol[2]
    assert found.host_ns.tolist() == [10, 20, 30, 60]
    assert found.returned_ns.tolist() == [15, 25, 50, 60]
    assert found.before_ns.tolist() == [10, 15, 25, 53]  # the end of the call before; none before the first
    assert found.launched_ns.tolist() == [15, 25, 25, 60]
    assert found.gpu_start_ns.tolist() == [13, 24, 50, 60]
    assert found.gpu_end_ns.tolist() == [22, 30, 0, 65]
    assert found.weight.tolist() == [2, 1, 1, 1]
    assert not found.tunes.any()
    bare = steady._launches(steady._Whole(Capture(gpu_ops=captured(ops).gpu_ops)), 1)
    assert bare.before_ns.tolist() == [10, 15, 60]
    first = steady._launches(steady._Whole(captured([*ops, op(70, 1, 65, pid=0)])), 0)
    assert first.host_ns.tolist() == [65]
    every = steady._launches(steady._Whole(captured(ops, calls)), -1)
    assert every.host_ns.tolist() == [9, 10, 20, 30, 60]


def test_kernels_that_tune_are_known_by_name_and_migrations_are_no_launches() -> None:
    ops = [op(14, 2, 10, name="RedzoneAllocatorKernel"), op(24, 2, 20), op(30, 2, kind="migration")]
    capture = captured(ops)
    found = steady._launches(steady._Whole(capture), 1)
    assert (found.tunes.tolist(), len(steady._operations(capture))) == ([True, False], 2)


def test_launches_without_a_correlation_id_are_one_each() -> None:
    ops = [op(14, 2, 10) | {"correlation_id": None}, op(15, 2, 10) | {"correlation_id": None}, op(16, 2, 10) | {"correlation_id": 0},
           op(17, 2, 10) | {"correlation_id": 0}]  # fmt: skip
    capture = captured(ops)
    assert steady._launches(steady._Whole(capture), 1).weight.tolist() == [1, 1, 2]


def ranges(*rows: tuple[Any, ...]) -> pd.DataFrame:
    """rows: name, start, end, thread, process"""
    table = pd.DataFrame([(*row, *(1, 1))[:5] for row in rows], columns=["name", "start_ns", "end_ns", "tid", "pid"])
    return nest_ranges(table.assign(range_id=range(len(rows)))) if rows else as_table(dict(table), RANGES_COLUMNS)


def test_rows_of_many_processes_are_those_of_each() -> None:
    capture = captured([op(10 * at, 1, pid=pid) for at, pid in enumerate([3, 1, 2, 3, 1])])
    few, many = steady._Whole(capture), steady._Whole(capture, split=True)
    for pid, rows in {1: [1, 4], 2: [2], 3: [0, 3], 4: [], -1: [0, 1, 2, 3, 4]}.items():
        assert few.rows("ops", pid).tolist() == many.rows("ops", pid).tolist() == rows


def test_marks_are_ranges_that_recur_the_outermost_and_rarest_first() -> None:
    table = ranges(("step", 0, 50), ("step", 60, 90), ("load", 5, 9), ("load", 70, 80), ("once", 100, 110), ("load", 81, 82),
                   ("aten::mm", 120, 130), ("aten::mm", 140, 150), ("step", 0, 9, 2), ("step", 10, 19, 2), ("step", 20, 29, 2),
                   ("x", 0, 9, 1, 2), ("x", 10, 19, 1, 2))  # fmt: skip
    capture = Capture(ranges=table)
    found = [
        (name, start.tolist(), level, end.tolist())
        for name, start, level, end in steady._marks(steady._Whole(capture), 1, launched([1] * 3))
    ]
    assert found == [
        ("step", [0, 60], 0, [50, 90]),
        ("step", [0, 10, 20], 0, [9, 19, 29]),
        ("load", [5, 70, 81], 1, [9, 80, 82]),
    ]
    assert [name for name, *_ in steady._marks(steady._Whole(capture), 1, launched([1] * 2))] == ["step"]
    assert [name for name, *_ in steady._marks(steady._Whole(capture), 2, launched([1] * 3))] == ["x"]
    assert [name for name, *_ in steady._marks(steady._Whole(capture), -1, launched([1] * 3))].count("x") == 1
    assert steady._marks(steady._Whole(Capture(ranges=table)), 3, launched([1] * 3)) == []
    zero = Capture(ranges=ranges(("z", 0, 9, 1, 0), ("z", 10, 19, 1, 0), ("y", 0, 9), ("y", 10, 19)))
    assert [name for name, *_ in steady._marks(steady._Whole(zero), 0, launched([1] * 3))] == ["z"]
    many = ranges(*((f"r{at}", 100 * at + 50 * turn, 100 * at + 50 * turn + 9) for at in range(99) for turn in (0, 1)))
    assert len(steady._marks(steady._Whole(Capture(ranges=many)), 1, launched([1] * 3))) == 96


# How alike stretches are


def test_a_stretch_counts_as_its_better_neighbour() -> None:
    """aab, aabc, dd: two of three and of four are three of three and a half on average; dd shares nothing."""
    alike, length = steady._similar(np.array([0, 3, 7, 9]), np.array([0, 0, 1, 0, 0, 1, 2, 3, 3]))
    assert alike.tolist() == pytest.approx([6 / 7, 6 / 7, 0])
    assert length.tolist() == [3, 4, 2]
    offset, _ = steady._similar(np.array([2, 4, 6]), np.array([5, 5, 0, 1, 1, 0, 5]))
    assert offset.tolist() == [1, 1]
    counts, _ = steady._similar(np.array([0, 4, 6]), np.array([0, 0, 0, 1, 0, 0]))
    assert counts.tolist() == pytest.approx([4 / 6, 4 / 6])


@pytest.mark.parametrize(
    ("symbols", "place", "score"),
    [
        ([0, 1, 2] * 4, [0, 3, 6, 9], 1.0),
        ([0, 1, 2] * 4, [1, 4, 7, 10], 11 / 12),  # the last two end with the run; the first one is no stretch
        ([0, 1, 2, 0, 1, 2, 0, 5, 6, 0, 1, 2], [0, 3, 6, 9], 0.5),
        ([0, 1, 2, 3, 0, 1, 2, 4], [0, 4], 0.75**3),
        ([0, 1, 2, 3, 0, 1, 5, 4], [0, 4], 0.0),
    ],
)
def test_a_score_is_the_share_of_launches_in_stretches_that_are_alike(
    symbols: list[int], place: list[int], score: float
) -> None:
    found = steady._score(np.array(place), np.array(symbols), np.arange(len(symbols) + 1))
    assert found == pytest.approx(score if place[0] != 1 else found)
    assert 0.5 < found <= 1 or found in (0.5, pytest.approx(0.75**3), 0)


def test_a_launch_of_many_operations_weighs_as_many() -> None:
    symbols, held = np.array([0, 1, 0, 1, 0, 5]), np.array([0, 1, 2, 3, 4, 7, 8])
    assert steady._score(np.array([0, 2, 4]), symbols, held) == pytest.approx(4 / 8)


# Where a step begins


def begun(symbols: list[int], pauses: dict[int, int], place: list[int]) -> list[int]:
    """The host launches nothing before some symbols for so long, and for 5 before others."""
    one = launched(symbols, apart=[5 + pauses.get(each, 5) for each in symbols])
    return steady._begin(one, np.arange(len(symbols)), np.array(place)).tolist()


def test_a_step_begins_where_the_host_launches_nothing_for_more_than_twice_as_long() -> None:
    assert begun([0, 1, 2] * 4, {1: 11}, [0, 3, 6, 9]) == [1, 4, 7, 10]
    assert begun([0, 1, 2] * 4, {1: 10}, [0, 3, 6, 9]) == [0, 3, 6, 9]
    assert begun([0, 1, 2] * 4, {1: 11, 2: 12}, [0, 3, 6, 9]) == [2, 5, 8, 11]
    assert begun([0, 1, 2] * 4, {1: 11, 2: 11}, [0, 3, 6, 9]) == [1, 4, 7, 10]
    assert begun([0, 1, 2] * 4, {1: 11}, [3, 6, 9]) == [1, 4, 7, 10]  # one begins before the first anchor
    assert begun([0, 1, 2] * 4, {2: 11}, [2, 5, 8, 11]) == [2, 5, 8, 11]
    assert begun([0, 1] * 3, {1: 11}, [0]) == [0]
    assert begun([0, 1, 2] * 2, {1: 11}, [0, 3]) == [1, 4]


def test_a_step_begins_no_later_than_the_last_launch_and_one_long_pause_is_none() -> None:
    assert begun([0, 1, 2] * 4 + [0], {1: 11}, [0, 3, 6, 9, 12]) == [1, 4, 7, 10]
    once = launched([0, 1, 2] * 4, apart=[10, 8, 10] * 3 + [10, 90, 10])
    assert steady._begin(once, np.arange(12), np.array([0, 3, 6, 9])).tolist() == [0, 3, 6, 9]


def test_no_step_begins_at_a_synchronisation() -> None:
    assert begun([WAIT, 1, 2] * 4, {1: 6, WAIT: 90}, [0, 3, 6, 9]) == [1, 4, 7, 10]
    assert begun([WAIT, 1, 2] * 4, {2: 80, WAIT: 90}, [0, 3, 6, 9]) == [1, 4, 7, 10]  # a wait is a part of the pause
    assert begun([WAIT, 1, 2] * 4, {2: 110, WAIT: 90}, [0, 3, 6, 9]) == [2, 5, 8, 11]
    assert begun([0, WAIT, 2] * 4, {WAIT: 90}, [0, 3, 6, 9]) == [2, 5, 8, 11]  # but at the launch after it


def test_a_step_begins_at_the_same_launch_in_four_of_five_cases() -> None:
    most = [0, 1, 0, 1, 0, 1, 0, 1, 0, 7]
    assert begun(most, {1: 11, 7: 11}, [0, 2, 4, 6, 8]) == [1, 3, 5, 7, 9]
    few = [0, 1, 0, 1, 0, 1, 0, 6, 0, 7]
    assert begun(few, {1: 11, 7: 11, 6: 11}, [0, 2, 4, 6, 8]) == [0, 2, 4, 6, 8]


def whole(stretches: str, layer: dict[str, list[int]]) -> list[int]:
    """Numbers of the anchors that stay, where each stretch begins with one."""
    symbols = [symbol for each in stretches for symbol in layer[each]]
    place = np.flatnonzero(np.array(symbols) == 0)
    return np.searchsorted(place, steady._whole(place, np.array(symbols))).tolist()


LAYERS = {"a": [0, 1, 2], "b": [0, 1, 2, 3], "c": [0, 4, 2]}


def test_stretches_that_repeat_only_after_some_are_layers_of_one_step() -> None:
    assert whole("aab" * 6, LAYERS) == [0, 3, 6, 9, 12, 15]  # the next step begins after the odd one
    assert whole("aac" * 6, LAYERS) == [0, 3, 6, 9, 12, 15]  # as long, but of other launches
    assert whole("aaab" * 5, LAYERS) == [0, 4, 8, 12, 16]
    assert whole("baa" * 6, LAYERS) == [1, 4, 7, 10, 13, 16]
    assert whole("a" * 12, LAYERS) == list(range(12))
    assert whole("ab" * 6, LAYERS) == [0, 2, 4, 6, 8, 10]
    assert whole("ab" * 4, LAYERS) == [0, 2, 4, 6]
    assert whole("abab", LAYERS) == [0, 1, 2, 3]  # too few to tell
    assert whole("aabcbacabbca", LAYERS) == list(range(12))


# Anchors


def test_anchors_are_what_recurs_most_evenly_for_each_number_of_occurrences() -> None:
    found = [(place.tolist(), first) for place, first in steady._anchors(np.array([0, 1, 0, 2, 1, 0, 3, 3]))]
    assert found == [([1, 4], False), ([6, 7], False), ([0, 2, 5], False)]  # the last one is 2, then 3 apart
    runs = [(place.tolist(), first) for place, first in steady._anchors(np.array([0, 0, 1, 0, 0, 2]))]
    assert runs == [([0, 3], True), ([0, 1, 3, 4], False)]
    even = np.array([*range(8), *range(8)])
    assert len(steady._anchors(even)) == 6  # of eight with two occurrences each
    far = np.arange(100, 123)
    far[[0, 2, 5]], far[[1, 11, 22]] = 0, 1  # 2 and 3 apart, or 10 and 11
    assert [place.tolist() for place, _ in steady._anchors(far)] == [[1, 11, 22], [0, 2, 5]]


# Phases


def steps_of(
    symbols: list[int], place: list[int], marker: str = "", marks: list[Any] | None = None, **more: Any
) -> tuple[Any, list[bool]]:
    one = launched(symbols, **more)
    found, used = steady._steps(one, np.arange(len(symbols)), np.array(place), marker, 1, marks or [])
    return found, used.tolist()


def test_steps_last_from_the_end_of_the_one_before_on_host_and_gpu() -> None:
    """Calls at 10, 20, …; a step begins when the call before its first one returns: at 10 (none before), 45, 75 and 105."""
    found, used = steps_of([0, 1, 2] * 4, [0, 3, 6, 9])
    assert all(used)
    assert found.start_ns.tolist() == [10, 35, 65, 95]
    assert found.end_ns.tolist() == [35, 65, 95, 125]
    assert found.gpu_start_ns.tolist() == [14, 44, 74, 104]
    assert found.gpu_end_ns.tolist() == [36, 66, 96, 126]
    assert found.wall_ns.tolist() == [25, 30, 30, 30]  # the first one by the host alone
    assert (found.launches, found.first, found.slow.tolist(), found.pid, found.marker, found.name) == (
        3,
        0,
        [],
        1,
        "",
        "",
    )


def test_steps_without_a_neighbour_that_is_like_them_are_left_out() -> None:
    found, used = steps_of([5, 6, 0, 1, 2, 0, 1, 2, 0, 5, 6, 0, 1, 2, 0, 1, 2], [2, 5, 8, 11, 14])
    assert used == [False] * 2 + [True] * 6 + [False] * 3 + [True] * 6
    assert found.start_ns.tolist() == [25, 55, 115, 145]
    assert found.end_ns.tolist() == [55, 85, 145, 175]
    assert found.wall_ns.tolist() == [30, 30, 30, 30]
    nothing, unused = steps_of([0, 1, 2, 0, 3, 4, 0, 5, 6], [0, 3, 6])
    assert (nothing, any(unused)) == (None, False)


def test_the_first_and_the_last_step_have_to_be_whole() -> None:
    """Three of the four launches of the last stretch are there: alike enough, but for the end of the program."""
    found, used = steps_of([0, 1, 2, 3] * 3 + [0, 1, 2], [0, 4, 8, 12])
    assert (len(found.start_ns), used) == (3, [True] * 12 + [False] * 3)
    cut, used = steps_of([0, 1, 2, 9] + [0, 1, 2, 3] * 3, [0, 4, 8, 12])
    assert (len(cut.start_ns), used) == (3, [False] * 4 + [True] * 12)
    nearly, used = steps_of([*range(20)] * 3 + [*range(19), 99], [0, 20, 40, 60])
    assert (len(nearly.start_ns), all(used)) == (4, True)  # 19 of 20 are enough


def test_slow_steps_lead_as_start_up_or_are_slow() -> None:
    walls = [50, 30, 10, 10, 10, 16, 10, 10, 15, 10]
    found, _ = steps_of([0, 1] * 10, list(range(0, 20, 2)), apart=[each for wall in walls for each in (5, wall - 5)])
    assert found.wall_ns.tolist() == walls
    assert (found.first, found.slow.tolist()) == (2, [5])


@pytest.mark.parametrize(
    ("apart", "walls"),
    [
        ([10, 10, 95], [110]),
        ([95, 10, 10], [110, 30]),
        ([10, 10, 30], [45, 31]),
    ],  # ends with host work; does not; a little
)
def test_of_two_steps_the_second_does_not_count_if_host_work_ends_the_first(apart: list[int], walls: list[int]) -> None:
    """Three launches each; a call of no launch ends 5 before the first one of the second step."""
    before = launched([0, 1, 2] * 2, apart=[10, *apart, 10, 10]).before_ns
    before[3] = 10 + sum(apart) - 5
    found, _ = steps_of([0, 1, 2] * 2, [0, 3], apart=[10, *apart, 10, 10], before_ns=before)
    assert found.wall_ns.tolist() == walls


def test_a_marker_begins_its_steps() -> None:
    """Ranges begin 2 before the first launch of a step, one of them 7 before, before the call before it returned."""
    start = np.array([8, 38, 68, 98])
    marks = [("m", start, 0, start + 9)]
    found, _ = steps_of([0, 1, 2] * 4, [0, 3, 6, 9], "m", marks)
    assert found.start_ns.tolist() == [10, 38, 68, 98]
    assert found.end_ns.tolist() == [38, 68, 98, 125]
    assert (found.name, found.marker) == ("m", "m")
    exact, _ = steps_of([0, 1, 2] * 4, [0, 3, 6, 9], "m", [("m", np.array([10, 40, 70, 100]), 0, start + 9)])
    assert exact.start_ns.tolist() == [10, 40, 70, 100]  # a range that begins with the call
    early = [("m", np.array([13, 24, 54, 84]), 0, start + 9)]
    again, _ = steps_of([0, 1, 2] * 4, [0, 3, 6, 9], "m", early)
    assert again.start_ns.tolist() == [10, 35, 65, 95]  # too early: before the call before the last one returned


def test_a_step_has_the_name_of_the_range_that_holds_it_once() -> None:
    """A step's launches are at 10, 20, 30; 40, 50, 60 and so on."""
    begin = np.array([8, 38, 68, 98])
    first, last = np.array([0, 3, 6, 9]), np.array([2, 5, 8, 11])

    def named(*marks: tuple[str, np.ndarray, np.ndarray]) -> str:
        return steady._name(launched([0, 1, 2] * 4), first, last, [(name, start, 0, end) for name, start, end in marks])

    assert named(("step", begin, begin + 25)) == "step"
    assert named(("half", begin, begin + 13)) == "half"  # two of three launches
    assert named(("part", begin, begin + 12)) == ""  # one of three
    assert named(("twice", np.sort(np.append(begin, begin + 10)), np.sort(np.append(begin + 9, begin + 25)))) == ""
    assert named(("part", begin, begin + 5), ("step", begin, begin + 25), ("other", begin, begin + 25)) == "step"
    assert named() == ""
    more = np.array([8, 12, 16, 38, 68, 98])
    assert named(("once", more, more + np.array([2, 2, 22, 25, 25, 25]))) == "once"  # three times in one of four steps
    uneven = np.array([30, 13, 13, 13])
    assert named(("uneven", begin, begin + uneven)) == "uneven"
    assert named(("uneven", begin, begin + np.array([30, 3, 3, 3]))) == ""  # three of three, and one of three for most
    four = steady._name(
        launched([0, 1, 2, 3] * 2),
        np.array([0, 4]),
        np.array([3, 7]),
        [("two", np.array([9, 49]), 0, np.array([29, 69]))],
    )
    assert four == "two"  # half of the launches


def test_synchronisations_are_no_launches_of_a_step() -> None:
    one = launched([0, WAIT, 1, 0, WAIT, 1])
    assert steady._count(one, np.array([0, 3]), np.array([2, 5])).tolist() == [2, 2]
    assert steady._count(one, np.array([1]), np.array([1])).tolist() == [0]


def test_of_two_kinds_of_steps_the_one_that_takes_most_time_counts() -> None:
    """Steps 0 1 2 and 0 3 4 alternate: the first kind takes 30 each, the second one 60."""
    symbols = np.array([0, 1, 2, 0, 3, 4] * 3)
    host = np.cumsum([10, 10, 10, 20, 20, 20] * 3) - 10
    edges = np.arange(0, 19, 3)
    kind = steady._of_one_kind(edges, symbols, host, np.ones(6, bool))
    assert kind.tolist() == [False, True] * 3
    assert steady._of_one_kind(edges, symbols, host, np.array([True, False] * 3)).tolist() == [True, False] * 3
    alone = np.array([True, False, True, False, True, True])
    assert steady._of_one_kind(edges, symbols, host, alone).tolist() == [True, False, True, False, True, False]
    assert steady._of_one_kind(edges, symbols, host, np.zeros(6, bool)).tolist() == [False] * 6


def test_a_step_that_ends_late_on_the_gpu_takes_that_from_the_next() -> None:
    """The last kernel of the second step ends at 76 for 66."""
    late = launched([0, 1, 2] * 4).gpu_end_ns + np.where(np.arange(12) == 5, 10, 0)
    found, _ = steps_of([0, 1, 2] * 4, [0, 3, 6, 9], gpu_end_ns=late)
    assert found.wall_ns.tolist() == [25, 40, 20, 30]
    assert found.gpu_end_ns.tolist() == [36, 76, 96, 126]


def test_no_more_than_half_of_the_steps_lead() -> None:
    walls = [90, 90, 10, 10]
    found, _ = steps_of([0, 1] * 4, [0, 2, 4, 6], apart=[each for wall in walls for each in (5, wall - 5)])
    assert (found.wall_ns.tolist(), found.first, found.slow.tolist()) == (walls, 2, [])
    half = [30, 30, 30, 10, 10]
    found, _ = steps_of([0, 1] * 5, list(range(0, 10, 2)), apart=[each for wall in half for each in (5, wall - 5)])
    assert (found.first, found.slow.tolist()) == (2, [2])  # the later half tells what is usual
    once = [30, 10, 10, 10, 10, 100]
    found, _ = steps_of([0, 1] * 6, list(range(0, 12, 2)), apart=[each for wall in once for each in (5, wall - 5)])
    assert (found.first, found.slow.tolist()) == (1, [5])  # by its middle
    late = [90, 90, 90, 90, 10, 10, 10]
    found, _ = steps_of([0, 1] * 7, list(range(0, 14, 2)), apart=[each for wall in late for each in (5, wall - 5)])
    assert (found.first, found.slow.tolist()) == (3, [3])
    edge = [15, 15, 10, 10, 10, 10]
    found, _ = steps_of([0, 1] * 6, list(range(0, 12, 2)), apart=[each for wall in edge for each in (5, wall - 5)])
    assert (found.first, found.slow.tolist()) == (0, [])  # one and a half times as long is not slow


@pytest.mark.parametrize(
    ("short", "long", "wall"), [([0, 1], [0, 5, 6, 7], 400), ([0, 1], [0, 5, 6, 7, 8], 20), ([0, 1, 2, 3], [0, 5], 200), ([0, 1, 2, 3, 4], [0, 5], 50)]
)  # fmt: skip
def test_steps_have_half_to_twice_the_usual_length(short: list[int], long: list[int], wall: int) -> None:
    """Six stretches of one kind, and three of another one, whose calls take ten times as long."""
    symbols = short * 6 + long * 3 + short
    place = [at for at, symbol in enumerate(symbols) if symbol == 0]
    apart = [10] * (6 * len(short)) + [100] * (3 * len(long)) + [10] * len(short)
    found, _ = steps_of(symbols, place, apart=apart)
    assert np.median(found.wall_ns) == pytest.approx(wall, abs=1)


def phased(symbols: list[int], *marks: tuple[str, list[int], int], **more: Any) -> Any:
    """marks: name, positions at which a range begins, level. Returns the phase or None."""
    one = launched(symbols, **more)
    given = [(name, one.host_ns[at] - 2, level, one.host_ns[at] + 1) for name, at, level in marks]
    return steady._phase(one, np.arange(len(symbols)), given, 7)


THREE = [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "periods", "level", "marker"),
    [
        ("step", 5, 0, "step"),  # half of the launches
        ("step", 5, 1, "step"),
        ("step", 5, 2, ""),  # too deep, and no better than a launch
        ("foo", 5, 0, ""),
        ("step", 3, 0, ""),  # three tenths
        ("foo", 10, 0, "foo"),
        ("foo", 10, 3, "foo"),
        ("step", 1, 0, ""),
    ],
)
def test_a_range_begins_the_steps_if_its_name_says_so_or_it_fits_as_well(
    name: str, periods: int, level: int, marker: str
) -> None:
    found, used = phased(THREE * 10, (name, [3 * at for at in range(periods)], level))
    assert (found.marker, found.pid) == (marker, 7)
    assert used.sum() == (3 * periods if marker else 30)


@pytest.mark.parametrize(
    ("name", "periods", "marker"), [("foo", 19, "foo"), ("foo", 18, ""), ("step", 7, "step"), ("step", 6, "")]
)
def test_a_range_may_fit_worse_by_a_twentieth_and_one_of_steps_has_to_hold_35_percent(
    name: str, periods: int, marker: str
) -> None:
    assert phased(THREE * 20, (name, [3 * at for at in range(periods)], 0))[0].marker == marker


@pytest.mark.parametrize(("outer", "marker"), [(26, "inner"), (28, "outer")])
def test_a_range_inside_another_fits_better_by_more_than_a_tenth(outer: int, marker: str) -> None:
    """26 of 30 are 0.867, less than 1 less 0.1."""
    whole, part = [3 * at for at in range(30)], [3 * at for at in range(outer)]
    assert phased(THREE * 30, ("outer step", part, 0), ("inner step", whole, 1))[0].marker == f"{marker} step"


def test_a_range_that_begins_between_launches_begins_at_the_next() -> None:
    found, _ = phased(THREE * 6, ("step", [1, 4, 7, 10, 13, 16], 0))
    assert found.start_ns.tolist()[:2] == [20 - 2, 50 - 2]


@pytest.mark.parametrize(("others", "found"), [(34, True), (35, False)])
def test_what_less_than_fifteen_percent_of_the_launches_repeat_is_no_phase(others: int, found: bool) -> None:
    one, used = phased([*THREE, *THREE, *range(10, 10 + others)])
    assert (one is not None, used.sum()) == (found, 6 if found else 0)


def test_the_launch_after_the_longest_gap_begins_a_step() -> None:
    """Each symbol recurs as often; before 2, the host works for 40 after its last call, for 5 elsewhere."""
    found, _ = phased(THREE * 6, apart=[10, 10, 45] * 6)
    assert found.launches == 3
    assert np.diff(found.gpu_start_ns).tolist() == [65] * (len(found.gpu_start_ns) - 1)
    assert (found.gpu_start_ns[0] - 4) % 65 == 0  # calls of 2 begin at 65, 130, …


def test_of_launches_that_fit_alike_the_one_after_most_host_work_begins_a_step() -> None:
    found, _ = phased(THREE * 300, apart=[10, 10, 14] * 300)  # the odd ends are a few of 900
    assert (found.gpu_start_ns[0] - 4) % 34 == 0  # calls of 2 begin at 34, 68, …
    found, _ = phased(THREE * 300, apart=[10, 10, 14] * 100 + [9_000, 10, 14] + [10, 10, 14] * 199)
    assert found.gpu_start_ns[0] == 34 + 4  # one long pause before 0 is not what is usual


def test_three_of_four_launches_in_common_are_enough_between_the_first_and_the_last() -> None:
    symbols = [symbol for last in range(5, 10) for symbol in (0, 1, 2, last + 5)]
    found, used = steps_of(symbols, [0, 4, 8, 12, 16])
    assert (len(found.start_ns), used) == (3, [False] * 4 + [True] * 12 + [False] * 4)


def test_a_step_of_layers_is_not_a_layer() -> None:
    found, used = phased([8, *[1, 2, 3] * 4, 5] * 8)
    assert (found.launches, used.all()) == (14, True)


def test_two_equal_launches_are_two_steps() -> None:
    (only,) = steady.find(captured(run("aa"))).phases
    assert (only.launches, len(only.start_ns)) == (1, 2)
    found, _ = phased(THREE * 2, ("step", [0, 3], 0))
    assert (found.marker, len(found.start_ns)) == ("step", 2)


def test_a_range_after_the_last_launch_begins_no_step() -> None:
    one = launched(THREE * 4)
    start = np.append(one.host_ns[::3] - 2, 999)
    found, _ = steady._phase(one, np.arange(12), [("step", start, 0, start + 3)], 1)
    assert found is not None
    assert (found.marker, len(found.start_ns), found.launches) == ("step", 4, 3)


def test_a_launch_that_repeats_at_once_is_one_anchor() -> None:
    found, _ = phased(([0] * 5 + [1, 2]) * 8)
    assert found.launches == 7


# A capture


def run(text: str, *, ns: int = 100, apart: int = 200, begin: int = 1_000, **more: Any) -> list[dict[str, Any]]:
    """Launches of kernels named by letters."""
    return [op(begin + at * apart + 4, ns, begin + at * apart, name=name, **more) for at, name in enumerate(text)]


def test_a_capture_has_its_phase_and_what_came_before() -> None:
    """Uploads of 700 and 300 before ten steps of three launches, which begin every 600."""
    early = [(50, 60, "cudaStreamCreate")]
    upload = [
        op(104, 700, 100, name="[CUDA memcpy HtoD]", kind="memcpy"),
        op(900, 300, 810, name="[CUDA memcpy Host-to-Device]", kind="memcpy"),
    ]
    ops = [*upload, op(1_810, 9, 1_800, name="x"), *run("abc" * 10, begin=2_000)]
    found = steady.find(captured(ops))
    (only,) = found.phases
    assert (only.name, only.launches, only.pid, only.count) == ("step", 3, 1, 10)
    assert only.wall_ns.tolist()[1:] == [600] * 9
    assert found.start_up_ns == (100, 1_805)
    every = [(one["api_start_ns"], one["api_end_ns"], LAUNCH) for one in ops]
    assert steady.find(captured(ops, [*every, *early])).start_up_ns == (50, 1_805)
    assert steady.find(captured([*ops, op(40, 5)])).start_up_ns == (40, 1_805)
    assert found.start_up_parts == (("uploads", 1_000),)
    assert steady.find(captured(ops), pid=2).phases == ()


def test_two_phases_stand_with_the_one_that_takes_most_time_first() -> None:
    ops = [*run("abcd" * 12), *run("xyzuvw" * 30, begin=10_600)]
    found = steady.find(captured(ops))
    assert [(one.name, one.launches) for one in found.phases] == [("step", 6), ("phase 2", 4)]
    weights = [one | {"kind": "memcpy"} if one["name"] in ("a", "b", "c") else one for one in ops]
    assert [one.name for one in steady.find(captured(weights)).phases] == ["step"]
    marked = replace(
        captured(ops), ranges=ranges(*[("it", 10_590 + 1_200 * at, 11_700 + 1_200 * at) for at in range(30)])
    )
    assert [one.name for one in steady.find(marked).phases] == ["it", "phase 2"]


def test_four_phases_at_most_and_equal_names_are_told_apart() -> None:
    texts = ("abcd", "efgh", "ijkl", "mnop", "qrst")
    ops = [one for at, text in enumerate(texts) for one in run(text * 10, begin=1_000 + 8_000 * at)]
    assert len(steady.find(captured(ops)).phases) == 4
    marks = ranges(*[("it", 990 + 800 * at, 1_700 + 800 * at) for at in range(20)])
    found = steady.find(replace(captured(ops[:80]), ranges=marks))
    assert [one.name for one in found.phases] == ["it", "it (2)"]


def test_later_steps_of_more_than_four_times_as_many_launches_are_the_main_phase() -> None:
    """Two launches every 400 for 16,000, then ten every 500."""
    before = run("ab" * 40)
    assert [
        one.launches for one in steady.find(captured([*before, *run("cdefghijkl" * 6, begin=17_000, apart=50)])).phases
    ] == [10]
    few = steady.find(captured([*before, *run("cdefghij" * 6, begin=17_000, apart=50)]))
    assert few.phases[0].launches == 2


def test_parts_of_the_start_up_are_calls_uploads_and_kernels() -> None:
    calls = [(10, 40, "cuModuleLoadData"), (50, 60, "cuLibraryGetModule"), (70, 75, "cudaMalloc"), (80, 82, "cudaGraphInstantiate"),
             (83, 84, "cudaGraphLaunch"), (99, 199, "cudaFree"), (100, 300, "cudaFree"), (9, 99, "cudaFree")]  # fmt: skip
    ops = [op(10, 7), op(9, 900), op(99, 3), op(100, 900), op(20, 4, kind="memcpy", name="[CUDA memcpy HtoD]"), op(30, 8, kind="memcpy", name="[CUDA memcpy DtoH]"),
           op(40, 70, name="HtoD")]  # fmt: skip
    assert steady._parts(captured(ops, calls), 10, 100) == (
        ("allocation", 105), ("kernels", 80), ("kernel loading", 40), ("uploads", 4), ("building graphs", 2)
    )  # fmt: skip
    none = Capture(gpu_ops=captured([op(10, 7), op(11, 0, kind="memcpy", name="HtoD")]).gpu_ops)
    assert steady._parts(none, 10, 100) == (("kernels", 7),)
