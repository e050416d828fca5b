"""Graphs of a few calls and operations whose replay, changes and parts a reader can add up; times in ns."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.replay import changes, decompose, spans, steady
from analysis.replay.graph import NONE, OPERATION, STREAM
from analysis.replay.simulate import BY_HOST, BY_RANKS, BY_STREAM, _Pieces, simulate
from tests.by_hand import AFTER, LAG, bools, graph, launches

# The replay


def test_kernels_that_do_not_fit_beside_each_other_share_the_gpu() -> None:
    """Each fills three quarters: while both run, the moved one has the quarter that is left, a third of its speed."""
    ops = [{"ns": 300.0, "fill": 0.75}, {"ns": 300.0, "fill": 0.75, "stream": 1}]
    moved = graph([{}, {}], ops, o_moved=bools(1, of=2))
    run = simulate(moved, 2)
    overlap = float(run.o_end[0] - run.o_start[1])
    assert run.o_end[1] - run.o_start[1] == pytest.approx(overlap + 300 - overlap / 3)
    beside = simulate(replace(moved, o_fill=np.array([0.5, 0.5])), 2)
    assert beside.o_end[1] - beside.o_start[1] == 300
    short = simulate(replace(moved, o_duration=np.array([300.0, 30.0])), 2)
    assert short.o_end[1] - short.o_start[1] == 90


def test_a_collective_ends_on_all_ranks_when_the_last_one_has_come() -> None:
    """Rank 2 comes 50 ns later; the transfer takes what it takes where nobody waits: 20 ns."""
    calls = [{"seq": 0}, {"seq": 1, "gap": 60.0}]
    ops = [{"ns": 70.0, "group": 0, "call": 0}, {"ns": 20.0, "group": 0, "stream": 1, "call": 1}]
    run = simulate(graph(calls, ops, stream_pid=np.array([1, 2]), seq_pid=np.array([1, 2])), 2)
    assert run.o_end[0] == run.o_end[1] == run.o_start[1] + 20
    assert (run.o_why[0], run.o_cause[0], run.o_why[1], run.alone[0]) == (BY_RANKS, 1, BY_HOST, (BY_STREAM, -1))


# Changes


def test_a_dropped_kernel_takes_its_launch_and_the_host_work_before_it_along() -> None:
    changed = changes.drop(launches(50, 60, 70), bools(1, of=3))
    assert changed.o_duration.tolist() == [50, 0, 70]
    assert (changed.c_own.tolist(), changed.c_gap.tolist()) == ([5, 0, 5], [10, 0, 10])
    assert changed.c_launches.tolist() == [True, False, True]
    assert (changed.o_after.tolist(), changed.o_lag.tolist()) == ([AFTER, 0, AFTER], [LAG, 0, LAG])
    half = changes.drop(launches(50, 60, 70), bools(1, of=3), share=0.5)
    assert half.c_gap.tolist() == [10, 5, 10]


def test_a_call_that_launches_more_than_what_goes_stays() -> None:
    both = graph([{}], [{"call": 0}, {"call": 0}])
    assert changes.drop(both, bools(0, of=2)).c_own.tolist() == [5]
    assert changes.drop(both, bools(0, 1, of=2)).c_own.tolist() == [0]
    assert changes.drop(both, bools(of=2), bools(0, of=1)).c_own.tolist() == [0]


@pytest.mark.parametrize(
    ("name", "kind", "gap", "goes"),
    [
        ("cudaStreamSynchronize", "[CUDA memcpy Device-to-Host]", 90_000.0, True),  # right after a download
        ("cudaStreamSynchronize", "[CUDA memcpy Host-to-Device]", 4_999.0, True),  # of the same call of a library
        ("cudaStreamSynchronize", "[CUDA memcpy Host-to-Device]", 5_000.0, False),
        ("cudaEventRecord", "[CUDA memcpy Device-to-Host]", 10.0, False),
    ],
)
def test_a_wait_for_a_dropped_copy_goes_with_it(name: str, kind: str, gap: float, goes: bool) -> None:
    calls = [
        {},
        {"name": "cudaMemcpyAsync", "launches": True},
        {"name": name, "gap": gap, "wait": STREAM, "target": 0},
        {},
    ]
    one = graph(calls, [{"call": 0}, {"call": 1, "name": kind, "kind": "memcpy"}, {"call": 3}])
    changed = changes.drop(one, bools(1, of=3))
    assert bool(changed.c_wait[2] == NONE) is goes


@pytest.mark.parametrize(
    ("factor", "share", "name", "waits"),
    [(0.6, 1.0, "Host-to-Device", False), (0.61, 1.0, "Host-to-Device", True), (0.1, 0.4, "Host-to-Device", True),
     (0.1, 1.0, "Device-to-Host", True), (0.1, 0.5, "HtoD", False)],
)  # fmt: skip
def test_only_pinned_memory_makes_uploads_that_much_faster(factor: float, share: float, name: str, waits: bool) -> None:
    calls = [{"name": "cudaMemcpyAsync", "wait": OPERATION, "target": 0, "launches": True}, {}]
    ops = [{"name": f"[CUDA memcpy {name}]", "kind": "memcpy", "ns": 100.0}, {}]
    changed = changes.scale(graph(calls, ops), bools(0, of=2), factor, share)
    assert changed.o_duration[0] == pytest.approx(100 * factor)
    assert bool(changed.c_wait[0] != NONE) is waits


def test_a_small_grid_spreads_over_the_gpu_but_no_kernel_is_shorter_than_the_floor() -> None:
    one = graph([{}] * 4, [{"ns": 90_000.0, "fill": 0.1}, {"ns": 9_000.0, "fill": 0.1}, {"ns": 900.0, "fill": 0.1},
                           {"ns": 90_000.0, "fill": 0.1, "kind": "memcpy"}])  # fmt: skip
    assert changes.split(one, bools(0, 1, 2, 3, of=4)).o_duration.tolist() == [
        9_000,
        1_500,
        900,
        90_000,
    ]
    assert changes.split(one, bools(1, of=4)).o_duration[0] == 90_000


@pytest.mark.parametrize(("share", "first"), [(0.0, 90_000 - 1_500), (0.5, 64_250), (1.0, 40_000)])
def test_merged_kernels_take_from_the_longest_to_all_of_them(share: float, first: float) -> None:
    """20 + 40 + 30 µs, less half a floor for each of the two launches saved: 88.5 µs; at the least 40 µs."""
    one = launches(20_000, 40_000, 30_000, 7)
    changed = changes.merge(one, bools(0, 1, 2, of=4), share)
    assert changed.o_duration.tolist() == [first, 0, 0, 7]


@pytest.mark.parametrize(
    ("names", "lengths"),
    [("abab", [2, 2]), ("abcabcab", [3, 3, 2]), ("aaaa", [4]), ("abc", [3]), ("abaaba", [3, 3])],
)
def test_names_that_repeat_are_merged_repeat_by_repeat(names: str, lengths: list[int]) -> None:
    one = graph([{}] * len(names), [{"name": name} for name in names])
    assert [len(rows) for rows in changes._repeats(one, [np.arange(len(names))])] == lengths


def test_one_copy_for_several_saves_what_each_costs_besides_its_bytes() -> None:
    one = graph([{}] * 3, [{"ns": ns, "kind": "memcpy"} for ns in (2_000.0, 9_000.0, 1_000.0)])
    assert changes.batch_copies(one, bools(0, 1, 2, of=3)).o_duration.tolist() == [10_000, 0, 0]  # twice the 1 µs
    assert changes.batch_copies(one, bools(0, 1, of=3)).o_duration.tolist() == [9_500, 0, 1_000]  # the floor of 1.5 µs
    assert changes.batch_copies(one, bools(0, 1, of=3), 0.0).o_duration.tolist() == [11_000, 0, 1_000]


@pytest.mark.parametrize(("share", "dep"), [(0.49, [-1, 0, -1]), (0.5, [-1, -1, -1])])
def test_moved_operations_run_on_a_stream_of_their_own(share: float, dep: list[int]) -> None:
    changed = changes.move(launches(50, 60, 70), bools(1, of=3), "side", share)
    assert changed.stream_names == ("GPU 0/0", "GPU 0/side")
    assert (changed.o_stream.tolist(), changed.o_dep.tolist()) == ([0, 1, 0], dep)
    assert (changed.stream_pid.tolist(), changed.stream_free.tolist()) == ([1, 1], [0, 0])
    assert changed.o_moved is not None
    again = changes.move(changed, bools(2, of=3), "side")
    assert (again.stream_names, again.o_stream.tolist()) == (changed.stream_names, [0, 1, 1])
    assert again.o_moved is not None
    assert again.o_moved.tolist() == [False, True, True]


def test_copies_beside_kernels_hold_the_host_no_longer() -> None:
    calls = [{"name": "cudaMemcpyAsync", "wait": OPERATION, "target": 0}, {"wait": OPERATION, "target": 1}]
    changed = changes.overlap_copies(graph(calls, [{}, {}]), bools(0, of=2))
    assert (changed.c_wait.tolist(), changed.o_stream.tolist()) == ([NONE, OPERATION], [1, 0])
    kept = changes.remove_waits(graph(calls, [{}, {}]), bools(1, of=2))
    assert kept.c_wait.tolist() == [OPERATION, NONE]


@pytest.mark.parametrize(("share", "long"), [(1.0, 0.0), (0.0, 50_000.0), (0.5, 25_000.0)])
def test_a_captured_graph_is_one_launch(share: float, long: float) -> None:
    one = graph([{}, {}, {"gap": 50_000.0}, {"wait": STREAM, "target": 0}, {}], [{}, {}, {}, {}, {}])
    changed = changes.capture_graph(one, bools(0, 1, 2, 3, 4, of=5), share)
    assert changed.c_own.tolist() == [changes.GRAPH_LAUNCH_NS, 0, 0, 5, 5]  # a launch alone is no graph
    assert changed.c_gap.tolist() == [10, 0, long, 10, 10]
    assert changed.o_lag.tolist() == [7_000, 7_000, 7_000, LAG, LAG]
    slow = changes.capture_graph(replace(one, o_after=np.full(5, 900.0)), bools(0, 1, 2, of=5))
    assert slow.o_after.tolist() == [900, 450, 450, 900, 900]


def test_host_work_and_launches_scale() -> None:
    one = graph([{"gap": 40.0}, {"gap": 10.0, "wait": STREAM, "target": 0}, {"name": "cudaEventQuery"}], [{}, {}])
    assert changes.host(one, 0.25).c_gap.tolist() == [10, 2.5, 2.5]
    assert changes.host(one, 0.5, np.array([20.0, 99.0, 0.0])).c_gap.tolist() == [30, 5, 10]
    assert changes.launch_faster(one, bools(0, 1, 2, of=3), 0.2).c_own.tolist() == [1, 5, 5]


def test_buckets_of_collectives_carry_all_bytes_at_the_cost_of_one() -> None:
    names = ["ncclDevKernel_AllReduce"] * 5 + ["k"]
    one = graph([{}] * 6, [{"name": name, "ns": 20_000.0} for name in names])
    assert changes.bucket(one, changes.collectives(one), 2).o_duration.tolist() == [
        0,
        25_000,
        0,
        25_000,
        20_000,
        20_000,
    ]
    assert changes.bucket(one, changes.collectives(one), 3, 0.5).o_duration.tolist() == [
        0,
        0,
        45_000,
        20_000,
        20_000,
        20_000,
    ]
    assert (
        changes.bucket(one, changes.collectives(one), 5).o_duration.tolist()[4] == 40_000
    )  # 100 less four floors of 15


def test_the_share_of_the_gpu_that_a_stream_uses_at_a_time() -> None:
    """Half of the GPU until 10, and a quarter from 12 to 20."""
    pieces = _Pieces()
    pieces.add(0.0, 10.0, 0.5)
    pieces.add(12.0, 20.0, 0.25)
    assert [pieces.at(time) for time in (-1.0, 0.0, 9.0, 10.0, 12.0, 20.0)] == [
        (0.0, 0.0), (0.5, 10.0), (0.5, 10.0), (0.0, 12.0), (0.25, 20.0), (0.0, math.inf)
    ]  # fmt: skip
    pieces.next_pass()
    assert pieces.begin == [0.0, 12.0]
    pieces.add(30.0, 31.0, 1.0)
    pieces.next_pass()
    assert (pieces.begin, pieces.seen) == ([30.0], 1)


# Parts


def test_idle_time_counts_by_its_cause_and_busy_time_first() -> None:
    found = decompose.decompose(simulate(launches(2, 2, 2)))
    assert dict(found.busy_parts) == {"gpu_busy": 6, "launching": 39}
    rank = simulate(
        graph([{"seq": 0}, {"seq": 1, "gap": 60.0}], [{"ns": 70.0, "group": 0, "call": 0, "name": "ncclKernel_AllReduce"},
              {"ns": 20.0, "group": 0, "stream": 1, "call": 1, "name": "ncclKernel_AllReduce"}],
              stream_pid=np.array([1, 2]), seq_pid=np.array([1, 2])), 2
    )  # fmt: skip
    told = decompose.decompose(rank)
    for parts_of in (dict(told.parts), dict(told.busy_parts)):  # a collective waits on the GPU for its last rank
        assert (parts_of["communication"], parts_of["rank_wait"]) == (20, 44)


@pytest.mark.parametrize(("wall", "rest"), [(47, {"launching": 41}), (48, {"other": 42})])
def test_of_a_replay_that_misses_the_step_only_the_work_of_the_gpu_is_told(wall: int, rest: dict[str, int]) -> None:
    found = decompose.decompose(simulate(launches(2, 2, 2)), wall)  # 45 replayed
    assert dict(found.busy_parts) == {"gpu_busy": 6} | rest
    assert sum(ns for _, ns in found.parts) == wall


def test_whole_nanoseconds_add_up_and_the_largest_part_takes_the_rounding() -> None:
    assert dict(decompose._whole({"sync": 1.4, "copies": 5.4}, 1.0, 8)) == {"sync": 1, "copies": 7}
    assert decompose._whole({}, 1.0, 9) == (("other", 9),)
    assert decompose._whole({}, 1.0, 0) == ()


# What stands for a step where nothing repeats


def ops(*rows: tuple[int, int, int]) -> pd.DataFrame:
    """rows: (call, start, duration)"""
    frame = pd.DataFrame(rows, columns=["api_start_ns", "start_ns", "duration_ns"])
    return frame.assign(pid=1).astype({"api_start_ns": "Int64", "pid": "Int64"})


def test_a_range_is_a_step_with_the_operations_launched_in_it() -> None:
    """Range a: 10 to 50, its last kernel ends at 70. Range b: two of 20 and 90 ns, the second one slow."""
    capture: Any = type(
        "C", (), {"gpu_ops": ops((12, 20, 5), (40, 60, 10), (105, 110, 2), (205, 220, 75), (300, 310, 1))}
    )
    ranges = pd.DataFrame(
        {"path": ["a", "b", "b", "none"], "start_ns": [10, 100, 200, 400], "end_ns": [50, 120, 290, 500], "pid": 1}
    )
    found = spans.spans(capture, ranges, "nothing repeats")
    assert found.reason == "nothing repeats"
    phases = [(one.name, one.launches, one.wall_ns.tolist(), one.slow.tolist()) for one in found.phases]
    assert phases == [("b", 1, [20, 95], [1]), ("a", 2, [60], [])]
    assert [one.gpu_start_ns.tolist() for one in found.phases] == [[110, 220], [20]]
    assert [one.gpu_end_ns.tolist() for one in found.phases] == [[112, 295], [70]]
    assert spans.spans(capture, ranges.assign(pid=2), "").phases == ()


def test_without_ranges_the_capture_is_one_step() -> None:
    capture: Any = type("C", (), {"gpu_ops": ops((12, 20, 5), (40, 60, 10))})
    (phase,) = spans.spans(capture, pd.DataFrame(columns=["path", "start_ns", "end_ns", "pid"]), "short").phases
    assert (phase.name, phase.pid, phase.launches, phase.wall_ns.tolist()) == ("capture", 1, 2, [58])
    assert (phase.start_ns.tolist(), phase.end_ns.tolist()) == ([12], [70])


def test_a_slow_span_is_longer_than_the_others_of_its_path() -> None:
    rows = [(100 * at + 1, 100 * at + 2, 3) for at in range(5)]
    capture: Any = type("C", (), {"gpu_ops": ops(*rows)})
    ends = [110, 210, 310, 410 + 80, 510]
    ranges = pd.DataFrame(
        {"path": "s", "start_ns": [0, 100, 200, 300, 400], "end_ns": [one - 100 for one in ends], "pid": 1}
    )
    (phase,) = spans.spans(capture, ranges, "").phases
    assert phase.wall_ns.tolist() == [10, 10, 10, 90, 10]
    assert (phase.slow.tolist(), phase.count) == ([3], 4)
    assert phase.quantiles() == (10, 10, 10)


def spanned(frame: pd.DataFrame, *ranges: tuple[str, int, int, int]) -> list[tuple[str, list[int], list[int], int]]:
    """ranges: path, start, end, process. Returns path, lengths, slow ones and launches of each phase."""
    capture: Any = type("C", (), {"gpu_ops": frame})
    table = pd.DataFrame(ranges, columns=["path", "start_ns", "end_ns", "pid"])
    return [
        (one.name, one.wall_ns.tolist(), one.slow.tolist(), one.launches)
        for one in spans.spans(capture, table, "").phases
    ]


def test_a_range_holds_the_operations_of_its_process_and_of_all_if_that_is_unknown() -> None:
    frame = ops((10, 20, 5), (12, 30, 5), (14, 40, 5)).assign(pid=pd.array([0, 1, None], "Int64"))
    assert spanned(frame, ("a", 10, 15, 0)) == [("a", [15], [], 1)]
    assert spanned(frame, ("a", 10, 15, 1)) == [("a", [25], [], 1)]
    assert spanned(frame, ("a", 10, 15, -1)) == [("a", [35], [], 3)]
    assert spanned(frame, (spans.WHOLE_RUN, 10, 15, 1)) == [(spans.WHOLE_RUN, [35], [], 3)]


def test_an_operation_without_a_call_is_in_the_range_of_its_start() -> None:
    frame = ops((10, 20, 5), (0, 500, 5), (0, 30, 5)).assign(api_start_ns=pd.array([10, 0, None], "Int64"))
    assert spanned(frame, ("a", 0, 15, 1)) == [("a", [505], [], 2)]  # called at 0 and at 10
    assert spanned(frame, ("a", 25, 35, 1)) == [("a", [10], [], 1)]


def test_spans_stand_in_the_order_of_their_starts_and_paths_in_that_of_their_time() -> None:
    frame = ops(*((at, at, 1) for at in (2, 20, 60, 110, 210, 310, 410)))
    assert spanned(frame, ("a", 10, 50, 1), ("a", 0, 100, 1)) == [("a", [100, 40], [], 2)]
    three = [("b", at, at + 12, 1) for at in (100, 200, 300)]
    assert [name for name, *_ in spanned(frame, ("a", 10, 45, 1), *three)] == ["b", "a"]  # 36 in three, 35 in one
    assert spanned(frame, ("z", 20, 20, 1), ("z", 100, 120, 1), ("z", 200, 220, 1))[0][1] == [
        1,
        20,
        20,
    ]  # no step takes less than 1


@pytest.mark.parametrize(
    ("walls", "slow"), [((10, 10, 10, 15, 16), [4]), ((10, 10, 10, 16, 60), [3, 4]), ((10, 10, 15), [])]
)
def test_a_slow_span_takes_more_than_one_and_a_half_times_the_middle(walls: tuple[int, ...], slow: list[int]) -> None:
    frame = ops(*((100 * at, 100 * at, 1) for at in range(len(walls))))
    ((_, took, found, _),) = spanned(frame, *(("s", 100 * at, 100 * at + ns, 1) for at, ns in enumerate(walls)))
    assert (took, found) == (list(walls), slow)


def test_a_path_has_the_usual_number_of_launches() -> None:
    frame = ops(*((at, at, 1) for at in (1, 101, 201, 202, 203, 204)))
    assert spanned(frame, *(("s", at, at + 50, 1) for at in (0, 100, 200)))[0][3] == 1
    assert spanned(frame, *(("s", at, at + 50, 1) for at in (0, 400, 500))) == []  # most hold none


# What repeats


@pytest.mark.parametrize(
    ("place", "total", "edges"),
    [
        ([2, 5, 8], 12, [2, 5, 8, 11]),
        ([4, 7], 9, [1, 4, 7, 9]),
        ([3], 8, [3, 8]),
        ([0, 4], 9, [0, 4, 8]),
        ([0, 2, 4, 12], 20, [0, 2, 4, 12, 14]),
        ([3, 6], 9, [0, 3, 6, 9]),
    ],
)
def test_edges_stand_one_usual_length_around_the_anchors(place: list[int], total: int, edges: list[int]) -> None:
    assert steady._edges(np.array(place), total).tolist() == edges


def test_positions_of_each_launch_or_of_the_first_of_each_run_and_where_each_begins() -> None:
    symbol = np.array([1, 1, 0, 1, 0, 0])
    assert [one.tolist() for one in steady._places(symbol, False)] == [[2, 4, 5, 0, 1, 3], [0, 3]]
    assert [one.tolist() for one in steady._places(symbol, True)] == [[2, 4, 0, 3], [0, 2]]


def test_the_process_with_most_gpu_time_is_the_busiest() -> None:
    frame = pd.DataFrame({"pid": pd.array([1, 2, 2, None], "Int64"), "duration_ns": [50, 30, 30, 999]})
    assert steady.busiest(frame) == 2
    assert steady.busiest(frame.tail(1)) == -1
