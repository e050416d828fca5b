"""Captures of a few calls and operations of which a reader can tell each edge of the dependency graph; times in ns."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.capture.model import GPU_OPS_COLUMNS, Capture, as_table
from analysis.replay import graph as graphs
from analysis.replay.graph import Graph, Windows
from tests.by_hand import LAUNCH, captured, graph, launches, op


def built(ops: list[dict[str, Any]], calls: list[tuple[Any, ...]] | None = None, *, begin: int = 0, end: int = 1_000_000,
          others: dict[int, tuple[int, int]] | None = None, split: bool = False) -> Graph:  # fmt: skip
    return graphs.build(captured(ops, calls), Windows(begin, end, 1, others), 1, split)


# The time of a step


def test_a_step_lasts_between_the_last_ends_before_both_boundaries() -> None:
    one = graph([{}], [{"start": 220, "ns": 30.0}, {"start": 200, "ns": 99.0, "stream": 1, "call": 0}], start_ns=100, end_ns=200,
                stream_pid=np.array([1, 2]), stream_free=np.array([150.0, 190.0]), steps=2)  # fmt: skip
    assert one.step_ns() == (250 - 150) / 2
    assert replace(one, start_ns=170, end_ns=270).step_ns() == (270 - 170) / 2
    assert replace(one, main=2).step_ns() == (299 - 190) / 2
    assert replace(one, main=3).step_ns() == (299 - 190) / 2  # all streams if the process is unknown
    assert [one.main_streams().tolist(), replace(one, main=3).main_streams().tolist()] == [[True, False], [True, True]]
    assert launches(2, 2, 2).step_ns() == 46  # the last kernel: 40 + 4 + 2


def test_a_window_holds_its_begin_and_not_its_end() -> None:
    windows = Windows(10, 20, 1, {2: (30, 40)})
    times, pids = np.array([9, 10, 19, 20, 10, 30, 39, 40, 10]), np.array([1, 1, 1, 1, 2, 2, 2, 2, 5])
    assert windows.inside(times, pids).tolist() == [False, True, True, False, False, True, True, False, True]


# Calls and operations of a window


def test_operations_belong_to_the_window_of_their_call() -> None:
    ops = [op(95, 50, 90), op(105, 20, 99), op(210, 30, 100), op(240, 30, 199), op(300, 9, 200), op(150, 9), op(200, 9)]
    one = built(ops, begin=100, end=200)
    assert (one.o_start.tolist(), one.o_row.tolist()) == ([150, 210, 240], [2, 4, 5])
    assert (one.c_start.tolist(), one.c_row.tolist(), one.o_call.tolist()) == ([100, 199], [2, 3], [-1, 0, 1])
    assert one.stream_free.tolist() == [145]  # of what was launched before 100
    assert (one.start_ns, one.end_ns, one.main, one.steps) == (100, 200, 1, 1)
    assert graphs.build(captured(ops), Windows(100, 200, 1), 0).steps == 1


def test_streams_are_told_apart_by_process_device_and_number() -> None:
    ops = [op(10, 1, 5), op(20, 1, 15, stream=8), op(30, 1, 25, device="GPU 1"), op(40, 1, 35, pid=2), op(50, 1, 45)]
    one = built(ops)
    assert one.o_stream.tolist() == [0, 1, 2, 3, 0]
    assert one.stream_names == ("GPU 0/7", "GPU 0/8", "GPU 1/7", "GPU 0/7")
    assert one.stream_pid.tolist() == [1, 1, 1, 2]
    zero = built([op(10, 1, 5), op(550, 1, 545, pid=0)], end=100, others={0: (500, 600)})
    assert (zero.o_start.tolist(), zero.stream_pid.tolist()) == ([10, 550], [1, 0])
    unknown = built([op(10, 1, stream=None, pid=None), op(20, 1)])
    assert (unknown.stream_names, unknown.stream_pid.tolist()) == (("GPU 0/-1", "GPU 0/7"), [-1, 1])
    assert (unknown.has_calls, built(ops).has_calls) == (False, True)


def test_without_a_list_each_launch_is_a_call() -> None:
    ops = [op(10, 1, 5), op(30, 1, 5), op(40, 1, 35, kind="memcpy"), op(50, 1)]
    one = graphs.build(Capture(gpu_ops=captured(ops).gpu_ops), Windows(0, 99, 1), 1)
    assert (one.c_start.tolist(), one.c_end.tolist(), one.c_name.tolist()) == ([5, 35], [10, 40], ["launch", "copy"])
    assert one.o_call.tolist() == [0, 0, 1, -1]


def test_calls_inside_a_call_of_their_thread_and_of_the_profiler_are_left_out() -> None:
    calls = [(10, 30, "outer"), (12, 20, LAUNCH), (13, 30, "inner"), (31, 35, "cudaProfilerStart"), (14, 40, LAUNCH, 2),
             (40, 50, "next"), (40, 51, "longer")]  # fmt: skip
    one = built([op(25, 9, 12), op(60, 9, 14)], calls)
    assert one.c_name.tolist() == ["outer", LAUNCH, "next", "longer"]
    assert one.o_call.tolist() == [0, 1]  # the launch within is of the call around it
    assert one.c_launches.tolist() == [True, True, False, False]
    assert one.c_own.tolist() == [20, 26, 10, 11]


# Host sequences


def test_threads_that_take_turns_are_one_sequence() -> None:
    """Thread 2 runs between the calls of thread 1; a gap is from the last end of either. After the last: 50 to 90."""
    calls = [(10, 15, LAUNCH), (20, 28, LAUNCH, 2), (30, 35, LAUNCH), (40, 50, LAUNCH, 2)]
    one = built([op(11, 1, 10), op(21, 1, 20), op(31, 1, 30), op(41, 1, 40)], calls, begin=4, end=90)
    assert (one.c_seq.tolist(), one.seq_pid.tolist(), one.seq_begin.tolist()) == ([0, 0, 0, 0], [1], [4])
    assert one.c_gap.tolist() == [6 + 40, 5, 2, 5]


def test_threads_beside_each_other_are_sequences_of_their_own() -> None:
    calls = [(10, 15, LAUNCH), (12, 28, LAUNCH, 2), (30, 35, LAUNCH), (34, 50, LAUNCH, 2), (60, 61, LAUNCH)]
    ops = [op(11, 1, 10), op(21, 1, 12), op(31, 1, 30), op(41, 1, 34)]
    one = built(ops, calls, begin=0, end=100)
    assert (one.c_seq.tolist(), one.seq_pid.tolist()) == ([0, 1, 0, 1, 0], [1, 1])
    assert one.c_gap.tolist() == [10 + 39, 12 + 50, 15, 6, 25]
    assert built(ops[:3], calls, begin=0, end=33).c_gap.tolist() == [
        10,
        12 + 5,
        15,
    ]  # the last call ends after the window
    far = built(ops, calls, begin=0, end=55)
    assert far.c_gap.tolist()[:2] == [10 + 20, 12 + 5]  # the window of the second thread ends 5 after its last call


def test_each_process_has_its_own_window_and_sequence() -> None:
    calls = [(10, 15, LAUNCH), (20, 28, LAUNCH, 1, 2), (30, 35, LAUNCH, 1, 3)]
    one = built(
        [op(11, 1, 10), op(21, 1, 20, pid=2), op(31, 1, 30, pid=3)], calls, begin=0, end=100, others={2: (18, 60)}
    )
    assert (one.seq_pid.tolist(), one.seq_begin.tolist()) == ([1, 2, 3], [0, 18, 0])
    assert one.c_gap.tolist() == [10 + 85, 2 + 32, 30 + 65]


def test_a_thread_that_launches_nothing_beside_one_that_does_waits_for_it() -> None:
    calls = [(10, 50, LAUNCH), (12, 28, "query", 2), (60, 99, LAUNCH), (62, 70, "query", 2), (20, 30, "query", 1, 2)]
    one = built([op(11, 1, 10), op(61, 1, 60)], calls, begin=0, end=100)
    assert one.c_gap.tolist() == [10 + 1, 0, 20 + 70, 10, 0]  # the other process launches nothing at all
    close = built([op(11, 1, 10), op(16, 1, 15)], begin=0, end=20)
    assert close.c_gap.tolist() == [10, 0]  # one call ends when the next begins
    single = built([op(11, 1, 10)], [(10, 50, LAUNCH), (12, 28, "query", 2)], begin=0, end=100)
    assert single.c_gap.tolist() == [10 + 50, 0]


@pytest.mark.parametrize(("overlaps", "turns"), [(2, True), (3, False)])
def test_threads_take_turns_if_less_than_three_percent_of_the_calls_overlap(overlaps: int, turns: bool) -> None:
    start = np.arange(200) * 10
    one = np.arange(200) % 2 == 0
    end = start + np.where(one & (np.arange(200) < 2 * overlaps), 11, 10)
    assert graphs._take_turns(start, end, one, ~one) is turns


def test_a_call_before_all_others_overlaps_none() -> None:
    start, end = np.array([0, 10, 20]), np.array([10, 30, 21])
    assert graphs._take_turns(start, end, np.array([False, True, False]), np.array([True, False, False]))
    assert not graphs._take_turns(start, end, np.array([False, True, False]), np.array([True, False, True]))
    long = np.array([50, 11, 21])  # the first call of the group holds on while the second one has ended
    assert not graphs._take_turns(start, long, np.array([True, True, False]), np.array([False, False, True]))


# An operation and its call


def test_an_operation_without_a_call_follows_the_last_one_that_began_a_microsecond_before() -> None:
    calls = [(100, 105, LAUNCH), (200, 205, LAUNCH, 1, 2), (900, 905, LAUNCH)]
    ops = [op(150, 1, 100), op(1_100, 1), op(1_101, 1), op(1_900, 1), op(1_901, 1), op(5_000, 1, pid=2), op(6_000, 1, pid=None), op(1_050, 1, pid=3), op(7_000, 1, pid=3)]  # fmt: skip
    one = built(ops, calls)
    of = dict(zip(one.o_start.tolist(), one.o_host.tolist(), strict=True))
    assert of == {150: 0, 1_100: -1, 1_101: 0, 1_900: 0, 1_901: 2, 5_000: 1, 6_000: 2, 1_050: -1, 7_000: -1}
    assert (one.o_call >= 0).tolist() == [True] + [False] * 8


# What an operation waits for


def last(*ops: dict[str, Any], split: bool = False) -> tuple[float, float, int, list[int]]:
    """The lag after its call and the time after its stream that the last operation needs, what it depends on, and doubts."""
    one = built([*ops], split=split)
    return float(one.o_lag[-1]), float(one.o_after[-1]), int(one.o_dep[-1]), one.unexplained.tolist()


BEFORE = op(10_000, 90_000, 9_000)  # ends at 100,000


@pytest.mark.parametrize(
    ("since", "late", "lag", "after", "doubt"),
    [
        (5_000, 50_000, 4_500, 5_000, False),  # right after its stream
        (5_000, 4_000, 4_000, 5_000, False),
        (5_001, 15_000, 15_000, 1_200, False),  # soon after its call
        (1_000, 15_000, 15_000, 1_000, False),
        (5_001, 15_001, 4_500, 5_001, False),  # neither, and three times closer to its stream
        (16_000, 20_000, 4_500, 16_000, True),
        (20_000, 20_000, 4_500, 20_000, True),
        (30_000, 20_000, 20_000, 1_200, True),
        (16_000, 31_999, 4_500, 16_000, True),
        (16_000, 32_000, 4_500, 16_000, False),  # twice as far from its call
        (32_000, 16_000, 16_000, 1_200, False),
    ],
)
def test_an_operation_follows_its_stream_or_its_call(
    since: int, late: int, lag: float, after: float, doubt: bool
) -> None:
    second = op(100_000 + since, 10, 100_000 + since - late)
    assert last(BEFORE, second) == (lag, after, -1, [1] if doubt else [])


@pytest.mark.parametrize(
    ("since", "late", "lag", "after"), [(16_000, 20_000, 20_000, 1_200), (30_000, 20_000, 4_500, 30_000), (16_000, 32_000, 4_500, 16_000)]
)  # fmt: skip
def test_the_other_reading_gives_doubtful_waits_to_the_other_side(
    since: int, late: int, lag: float, after: float
) -> None:
    assert last(BEFORE, op(100_000 + since, 10, 100_000 + since - late), split=True)[:2] == (lag, after)


def test_the_first_operation_of_a_stream_follows_its_call() -> None:
    assert last(BEFORE, op(200_000, 10, 150_000, stream=8)) == (50_000, 1_200, -1, [])
    assert last(BEFORE, op(200_000, 10, 199_000, stream=8)) == (1_000, 1_200, -1, [])
    assert last(op(10_000, 10, 9_000)) == (1_000, 1_200, -1, [])


def test_the_first_operation_of_a_stream_without_any_call_has_only_its_place() -> None:
    one = built([op(100, 10), op(130, 10), op(9_000, 10, stream=8), op(19_050, 10, stream=9)], [])
    assert one.o_after.tolist() == [np.inf, 20, np.inf, np.inf]
    near = built([op(100, 10), op(150, 10, stream=8)], [])
    assert (near.o_dep.tolist(), near.o_after[1]) == ([-1, 0], 1_200)  # it follows the other stream


@pytest.mark.parametrize(("gap", "dep"), [(0, 0), (8_000, 0), (8_001, -1), (-1, -1)])
def test_an_unexplained_operation_waits_for_another_stream_that_ended_within_8_us(gap: int, dep: int) -> None:
    side = op(100_000 + gap, 10, 20_000, stream=8)
    one = built([BEFORE, side])
    assert (one.o_dep[1], one.o_dep_gap[1]) == (dep, gap if dep == 0 else 0)
    assert one.o_lag[1] == (4_500 if dep == 0 else 80_000 + gap)  # else only its call is left


def test_it_waits_for_the_last_one_of_its_own_process_on_another_stream() -> None:
    ops = [op(10_000, 90_000, 9_000), op(10_001, 90_500, 9_000, stream=8), op(10_002, 91_000, 9_000, pid=2),
           op(101_100, 10, 20_000, stream=9)]  # fmt: skip
    one = built(ops)
    assert (one.o_dep[3], one.o_dep_gap[3]) == (1, 101_100 - 100_501)
    same = built([op(10_000, 90_000, 9_000), op(10_001, 85_000, 9_000, stream=8), op(101_100, 10, 30_000, stream=8)])
    assert same.o_dep[2] == 0  # its own stream ended 6,099 before
    soon = built([op(10_000, 90_000, 9_000), op(101_100, 10, 90_000, stream=9)])
    assert soon.o_dep[1] == -1  # its call explains it


def chain(since: tuple[int, ...], late: int, ns: int = 200_000) -> list[dict[str, Any]]:
    """Kernels on one stream, each so long after the end of the one before, and `late` after its call."""
    ops, at = [op(0, ns, 0)], ns
    for apart in since:
        ops.append(op(at + apart, ns, at + apart - late))
        at += apart + ns
    return ops


def end(ops: list[dict[str, Any]]) -> int:
    return int(ops[-1]["start_ns"] + ops[-1]["duration_ns"])


@pytest.mark.parametrize(
    ("since", "late", "gap"),
    [
        ((100, 300, 700), 40_001, 300.0),
        ((100, 300, 700), 40_000, 1_200.0),  # too soon after their calls to tell of the stream
        ((100, 300), 40_001, 1_200.0),  # two are too few
        ((100, 300, 19_999), 40_001, 300.0),
        ((100, 300, 20_000), 40_001, 1_200.0),
    ],
)
def test_the_usual_gap_is_the_median_of_launches_long_after_their_calls(
    since: tuple[int, ...], late: int, gap: float
) -> None:
    """The last operation follows its call, so it needs the usual gap after its stream."""
    ops = chain(since, late)
    assert last(*ops, op(end(ops) + 30_000, 10, end(ops) + 21_000))[:2] == (9_000, gap)


@pytest.mark.parametrize(("since", "by_stream"), [(6_000, True), (6_001, False)])
def test_an_operation_follows_its_stream_within_three_usual_gaps(since: int, by_stream: bool) -> None:
    ops = chain((2_000, 2_000, 2_000), 40_001)
    found = last(*ops, op(end(ops) + since, 10, end(ops) + since - 14_000))
    assert found[:2] == (14_000, since if by_stream else 2_000)  # its call explains it in any case
    assert graphs._usual(np.array([1.0, 2.0, 9.0]), 5.0) == 2.0


@pytest.mark.parametrize(
    ("since", "late", "kind", "lag"),
    [
        (10_001, 6_000, "kernel", 6_000.0),
        (10_000, 6_000, "kernel", 4_500.0),  # too soon after their stream to tell of the call
        (10_001, 99_999, "kernel", 50_000.0),
        (10_001, 100_000, "kernel", 4_500.0),
        (10_001, 6_000, "memcpy", 4_500.0),  # the lag of kernels is unknown then
    ],
)
def test_the_usual_lag_is_that_of_kernels_long_after_their_stream(since: int, late: int, kind: str, lag: float) -> None:
    ops = [one | {"kind": kind} for one in chain((since, since, since), late)]
    assert last(*ops, op(end(ops) + 100, 10, end(ops) - 49_900))[:2] == (
        lag if late < 50_000 else {99_999: 50_000.0}.get(late, lag),
        100,
    )
    copy = op(end(ops) + 100, 10, end(ops) - 49_900, kind="memcpy")
    assert last(*ops, copy)[0] == (6_000 if kind == "memcpy" else 4_500)


@pytest.mark.parametrize(("late", "by_host"), [(18_000, True), (18_001, False)])
def test_an_operation_follows_its_call_within_three_usual_lags(late: int, by_host: bool) -> None:
    ops = chain((10_001, 10_001, 10_001), 6_000)
    assert last(*ops, op(end(ops) + 8_000, 10, end(ops) + 8_000 - late))[:2] == (
        (late, 1_200) if by_host else (6_000, 8_000)
    )


@pytest.mark.parametrize(
    ("name", "returned", "since", "lag"),
    [("HtoD", 110_002, 10_001, 40_000), ("HtoD", 110_001, 10_000, 4_500), ("HtoD", 140_001, 40_000, 40_000),
     ("k", 108_001, 8_000, 4_500), ("HtoD", 199_999, 5_000, 4_500), ("DtoH", 108_001, 8_000, 4_500)],
)  # fmt: skip
def test_an_upload_that_begins_within_its_call_follows_the_host(
    name: str, returned: int, since: int, lag: float
) -> None:
    """The host fills a buffer first; but a copy right after a stream that was at work follows that, and reads have none."""
    begin = 100_000 + since
    copy = op(begin, 10, begin - 40_000, kind="kernel" if name == "k" else "memcpy", name=name) | {
        "api_end_ns": returned
    }
    assert last(BEFORE, copy)[0] == lag


# Streams


def order(*runs: tuple[int, int], free: float = 0.0) -> tuple[list[int], list[float]]:
    """runs: start and end of the operations of a stream."""
    start, end_ = (np.array(each) for each in zip(*runs, strict=True))
    before, since = graphs._stream_order(start, end_.astype(float), np.zeros(len(runs), np.int64), np.array([free]))
    return before.tolist(), since.tolist()


def test_an_operation_begins_after_the_one_that_ended_last_on_its_stream() -> None:
    assert order((10, 20), (25, 90), (95, 96), free=4) == ([-1, -1, -1], [6, 5, 5])
    assert order((10, 20), (25, 30)) == ([-1, -1], [np.inf, 5])  # nothing ran before
    assert order((10, 20_000), (18_500, 18_600), (20_100, 20_101)) == ([-1, -1, -1], [np.inf, -1_500, 100])
    assert order((1, 5), (10, 20_000), (18_500, 18_600)) == ([-1, -1, -1], [np.inf, 5, -1_500])


def test_an_operation_that_overlaps_by_more_than_1500_follows_the_last_that_had_ended() -> None:
    runs = ((0, 50), (60, 100), (70, 20_000), (100, 18_499), (18_499, 18_500))
    assert order(*runs) == ([-1, -1, -1, 1, 3], [np.inf, 10, -30, 0, 0])
    assert order((0, 20_000), (10, 20)) == ([-1, -1], [np.inf, -19_990])  # nothing had ended


@pytest.mark.parametrize(("between", "found"), [(22, 0), (23, -1)])
def test_a_branch_follows_one_of_the_last_24_operations(between: int, found: int) -> None:
    runs = [(0, 10), *((11 + at, 90_000) for at in range(between + 1)), (500, 600)]
    assert order(*runs)[0][-1] == found


def test_streams_do_not_mix() -> None:
    before, since = graphs._stream_order(
        np.array([10, 11, 30]), np.array([20.0, 25.0, 40.0]), np.array([0, 1, 0]), np.zeros(2)
    )
    assert (before.tolist(), since.tolist()) == ([-1, -1, -1], [np.inf, np.inf, 10])


# Blocks


@pytest.mark.parametrize(
    ("name", "kind", "grid", "block", "fill"),
    [
        ("k", "kernel", "33x2x1", "1024x1x1", 0.5),  # 66 of 132 blocks of 1,024 threads
        ("k", "kernel", "66x1x4", "32x4x2", 0.5),  # 264 blocks of 256
        ("k", "kernel", "132x1x1", "32x1x1", 0.0625),  # a block takes 64 threads at least
        ("k", "kernel", "132x1x1", "65x1x1", 65 / 1024),
        ("k", "kernel", "999x1x1", "1024x1x1", 1.0),
        ("k", "kernel", "", "", 1.0),
        ("k", "kernel", "132x1", "1024x1x1", 1.0),
        ("sm90_gemm", "kernel", "66x1x1", "32x1x1", 0.5),  # a block takes a whole SM
        ("sm90_gemm", "kernel", "4x33x2", "32x1x1", 1.0),
        ("k", "memcpy", "132x1x1", "1024x1x1", 0.0),
    ],
)
def test_blocks_fill_a_share_of_132_multiprocessors(name: str, kind: str, grid: str, block: str, fill: float) -> None:
    ops = pd.DataFrame([{"name": name, "kind": kind, "grid": grid, "block": block}])
    assert graphs._fill(ops).tolist() == [fill]


# Faults of a capture


def notes(late: list[float], call: list[int], names: list[str]) -> list[str]:
    """late: from call to start of each operation; call: its call; names: of all calls."""
    frame: Any = SimpleNamespace(own=pd.DataFrame({"name": names}), call=np.array(call))
    return graphs._notes(frame, np.array(late))


def of(count: int, bad: int, usual: Any, other: Any) -> list[Any]:
    return [usual] * (count - bad) + [other] * bad


@pytest.mark.parametrize(
    ("count", "bad", "said"), [(100, 1, ""), (99, 1, "1 of 99"), (200, 2, ""), (150, 2, "2 of 150"), (5_000, 1, "")]
)
def test_more_than_one_percent_of_early_or_lonely_operations_is_said(count: int, bad: int, said: str) -> None:
    fine = list(range(count))
    early = notes(of(count, bad, 4.0, -1.0), fine, [LAUNCH] * count)
    lonely = notes([4.0] * count, [*fine[: count - bad], *[-1] * bad], [LAUNCH] * (count - bad))
    assert notes([0.0] * count, fine, [LAUNCH] * count) == []  # they begin with their calls
    assert early == (
        [f"{said} operations begin before their call: the clocks of host and GPU disagree, so what changes on the host "
         "would save is uncertain."] if said else []
    )  # fmt: skip
    assert [one[: len(said) + 27] for one in lonely] == ([f"{said} operations have no call: e"] if said else [])


@pytest.mark.parametrize(
    ("count", "lost", "said"),
    [(100, 1, ""), (99, 1, "1 calls that launch"), (200, 2, ""), (150, 2, "2 calls that launch")],
)
def test_more_than_one_percent_of_launches_without_an_operation_is_said(count: int, lost: int, said: str) -> None:
    names = [LAUNCH] * (count + lost)
    found = notes([4.0] * count, list(range(count)), names)
    assert [one[: len(said)] for one in found] == ([said] if said else [])
    assert notes([4.0] * count, list(range(count)), of(count + lost, lost, LAUNCH, "cudaEventRecord")) == []
    assert notes([4.0] * count, list(range(count)), of(count + lost, lost, LAUNCH, "cudaMemcpyAsync")) == found


def test_a_capture_without_calls_is_said() -> None:
    assert built([op(20_000, 1)], []).notes == (
        "The capture lists no host calls, so only changes on the GPU can be replayed.",
    )


# Events


RECORD, WAIT = {"name": "cudaEventRecord"}, {"name": "cudaStreamWaitEvent"}


def events(calls: list[dict[str, Any]], ops: list[dict[str, Any]], **more: Any) -> list[tuple[int, float]]:
    found = graphs._events(graph(calls, ops, **more))
    return list(zip(found.o_dep.tolist(), found.o_dep_gap.tolist(), strict=True))


def test_a_launch_after_a_wait_for_an_event_depends_on_the_launch_before_its_record() -> None:
    calls = [{}, {}, RECORD, {}, WAIT, {}, {}]
    ops = [{"call": 0}, {"call": 1, "start": 31, "ns": 4.0}, {"call": 3}, {"call": 5, "stream": 1, "start": 45}, {"call": 6, "stream": 1}]  # fmt: skip
    assert events(calls, ops) == [(-1, 0), (-1, 0), (-1, 0), (1, 10), (-1, 0)]  # only the next launch
    far = [*ops[:3], ops[3] | {"start": 1_535}, ops[4]]
    assert events(calls, far)[3] == (1, 1_500)
    assert events(calls, [*ops[:3], ops[3] | {"start": 1_534}, ops[4]])[3] == (1, 1_499)
    assert events(calls, [*ops[:3], ops[3] | {"start": 35}, ops[4]])[3] == (1, 0)
    assert events(calls, [*ops[:3], ops[3] | {"start": 34}, ops[4]])[3] == (-1, 0)  # it did not wait
    assert events(calls, [*ops[:3], ops[3] | {"dep": 0, "dep_gap": 3.0}, ops[4]])[3] == (0, 3)


@pytest.mark.parametrize(
    ("lag", "since", "told"),
    [
        (100_000.0, 49_999, (49_999, 4.0)),  # the GPU was full when the event let it begin
        (100_000.0, 50_000, (1_500, 100_000.0)),  # no better than its call
        (15_001.0, 4_000, (4_000, 4.0)),
        (15_000.0, 4_000, (1_500, 15_000.0)),
    ],
)
def test_an_event_that_explains_a_late_start_better_than_the_call_replaces_it(
    lag: float, since: int, told: tuple[float, float]
) -> None:
    ops = [{"call": 0}, {"call": 0}, {"call": 3, "stream": 1, "start": 16 + since}]
    for late in ("o_lag", "o_after"):
        found = graphs._events(graph([{}, RECORD, WAIT, {}], ops, **{late: np.array([4.0, 4.0, lag])}))
        assert (found.o_dep_gap[2], getattr(found, late)[2]) == told


def test_a_wait_for_an_event_of_the_own_stream_holds_for_the_next_launch_on_another() -> None:
    calls = [{}, RECORD, WAIT, {}, {}]
    ops = [{"call": 0}, {"call": 3, "start": 70}, {"call": 4, "stream": 1, "start": 80}]
    assert [dep for dep, _ in events(calls, ops)] == [-1, -1, 0]


def test_without_a_record_or_a_launch_before_it_nothing_is_waited_for() -> None:
    ops = [{"call": 0}, {"call": 2, "stream": 1, "start": 70}]
    assert [dep for dep, _ in events([{}, WAIT, {}], ops)] == [-1, -1]
    assert [dep for dep, _ in events([{}, RECORD, {}], ops)] == [-1, -1]
    late = [{"call": 2}, {"call": 3, "stream": 1, "start": 70}]
    assert [dep for dep, _ in events([RECORD, WAIT, {}, {}], late)] == [-1, -1]
    other = graph([{}, RECORD, {**WAIT, "seq": 1}, {"seq": 1}], [{"call": 0}, {"call": 3, "stream": 1, "start": 70}])
    assert graphs._events(other).o_dep.tolist() == [-1, -1]  # another thread's record


def test_the_first_operation_of_a_call_waits_and_the_last_one_is_recorded() -> None:
    calls = [{}, RECORD, WAIT, {}]
    ops = [
        {"call": 0},
        {"call": 0, "start": 20},
        {"call": 3, "stream": 1, "start": 70},
        {"call": 3, "stream": 1, "start": 80},
    ]
    assert [dep for dep, _ in events(calls, ops)] == [-1, -1, 1, -1]


# Default streams


def turns(
    count: int = 5, gap: int = 10, ns: int = 10, names: tuple[str, ...] = ("GPU 0/7", "GPU 0/8"), **more: Any
) -> Any:
    """Operations that go from stream to stream, each so long after the one before."""
    calls = [{}] * count
    ops = [{"start": 100_000 + at * (ns + gap), "ns": float(ns), "stream": at % 2} for at in range(count)]
    return graphs._serial(graph(calls, ops, stream_names=names, **more)).serial


def test_streams_that_take_turns_with_the_default_stream_wait_for_it() -> None:
    assert turns() == ((0, 1),)
    assert turns(4) == ()  # three turns are too few
    assert turns(names=("GPU 0/8", "GPU 0/7")) == ((1, 0),)
    assert turns(names=("GPU 0/8", "GPU 0/9")) == turns(names=("GPU 0/7", "GPU 1/8")) == ()
    assert turns(stream_pid=np.array([1, 2])) == ()
    assert turns(gap=7_999) == ((0, 1),)
    assert turns(gap=8_000) == ()
    assert turns(gap=-499, ns=1_000) == ((0, 1),)
    assert turns(gap=-500, ns=1_000) == ()  # they overlap


@pytest.mark.parametrize(("soon", "waits"), [(2, True), (1, False)])
def test_two_turns_at_least_follow_at_once(soon: int, waits: bool) -> None:
    """Of five operations, so many begin 10 after the one before; the others 9,000 after it."""
    apart = [100_000, *(10 if at < soon else 9_000 for at in range(4))]
    start = np.cumsum(np.array(apart) + 10)
    ops = [{"start": int(at), "ns": 10.0, "stream": number % 2} for number, at in enumerate(start)]
    one = graph([{}] * 5, ops, stream_names=("GPU 0/7", "GPU 0/8"))
    assert graphs._serial(one).serial == (((0, 1),) if waits else ())


def test_operations_of_one_stream_after_each_other_tell_of_no_turns() -> None:
    """Stream 8 has three at once for one of stream 7, but each begins 9,000 after the other stream's end."""
    start = np.cumsum([100_000, *[9_010, 20, 20, 9_010] * 4][:17])
    ops = [{"start": int(at), "ns": 10.0, "stream": int(number % 4 > 0)} for number, at in enumerate(start)]
    one = graph([{}] * 17, ops, stream_names=("GPU 0/7", "GPU 0/8"))
    assert graphs._serial(one).serial == ()


# Collectives


def ranks(ops: list[dict[str, Any]]) -> list[int]:
    names = [{"name": "ncclDevKernel_AllReduce"} | one for one in ops]
    one = graph([{}] * len(ops), names, stream_pid=np.array([1, 2]))
    return graphs._collectives(one, whole(one)).o_group.tolist()


def whole(one: Graph) -> Capture:
    """Return a capture of the operations of a graph, in their order."""
    rows = {"start_ns": one.o_start, "duration_ns": one.o_duration, "kind": one.o_kind, "name": one.o_name}
    return Capture(gpu_ops=as_table(rows | {"pid": one.stream_pid[one.o_stream]}, GPU_OPS_COLUMNS))


def test_the_nth_collectives_of_all_processes_are_one_if_they_overlap() -> None:
    first, second = {"start": 10, "ns": 10.0}, {"start": 19, "ns": 5.0, "stream": 1}
    assert ranks([first, second]) == [0, 0]
    assert ranks([first, second | {"start": 20}]) == [-1, -1]
    later = [{"start": 40, "ns": 10.0}, {"start": 45, "ns": 10.0, "stream": 1}]
    assert ranks([first, second | {"start": 20}, *later]) == [-1, -1, 1, 1]
    assert ranks([first, second, {"start": 40, "ns": 10.0}]) == [0, 0, -1]  # one rank has more of them
    last = [{"start": 40, "ns": 10.0}, {"start": 45, "ns": 10.0, "stream": 1}]
    assert ranks([{"start": 10, "ns": 10.0}, *last]) == [-1, 1, 1]  # counted from the end, they overlap
    assert ranks([first, second | {"kind": "memcpy"}]) == [-1, -1]
    assert ranks([first, second | {"name": "gemm"}]) == [-1, -1]
    assert ranks([first, second, {"start": 11, "name": "gemm"}]) == [0, 0, -1]
    three = graph(
        [{}] * 3, [{"name": "ncclDevKernel_AllReduce", "stream": at} for at in range(3)], stream_pid=np.array([1, 2, 3])
    )

    def grouped(*start: int) -> list[int]:
        one = replace(three, o_start=np.array(start))
        return graphs._collectives(one, whole(one)).o_group.tolist()

    assert grouped(4, 5, 5) == [0, 0, 0]
    assert grouped(4, 5, 6) == [-1, -1, -1]
