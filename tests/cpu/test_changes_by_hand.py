"""Changes of graphs of a few calls and operations of which a reader can tell what goes and what stays; times in ns."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.capture.model import Capture
from analysis.replay import changes
from analysis.replay.graph import NONE, OPERATION, STREAM, Graph
from tests.by_hand import allocate_once, bools, graph, launches

COPY = {"name": "cudaMemcpyAsync", "launches": True}
UP = {"name": "[CUDA memcpy Host-to-Device]", "kind": "memcpy"}
MALLOC, QUERY = {"name": "cudaMalloc"}, {"name": "cudaEventQuery"}


def empty(one: Graph) -> Graph:
    """The operations of a graph without calls."""
    calls = [name for name in one.__dataclass_fields__ if name.startswith("c_")]
    return replace(
        one,
        **{name: getattr(one, name)[:0] for name in calls},
        o_call=np.full(len(one.o_start), -1),
        seq_pid=np.zeros(0, int),
    )


# What goes with a launch


def test_operations_without_a_call_match_by_their_own_name() -> None:
    one = graph(
        [{"name": "cudaMalloc"}, {}], [{"name": "a", "call": -1}, {"name": "b", "call": 0}, {"name": "c", "call": 1}]
    )
    assert changes.operations(one, "Malloc").tolist() == [False, True, False]
    assert changes.operations(one, "a|c").tolist() == [True, True, True]  # cudaMalloc and cudaLaunchKernel hold an a
    assert changes.operations(empty(one), "^a$").tolist() == [True, False, False]


def test_a_dropped_operation_leaves_its_collective_and_needs_no_time_on_its_stream() -> None:
    one = graph([{}, {}, {}], [{"group": 0}, {"group": 1}, {"call": -1}], o_after=np.array([np.inf, 1.0, np.inf]))
    found = changes.drop(one, bools(0, 2, of=3))
    assert (found.o_group.tolist(), found.o_after.tolist()) == ([-1, 1, -1], [np.inf, 1, np.inf])
    assert (found.c_own.tolist(), found.o_duration.tolist()) == ([0, 5, 5], [0, 2, 0])
    assert changes.drop(empty(one), bools(0, of=3)).o_duration.tolist() == [0, 2, 2]
    called = bools(2, of=3)
    assert changes.drop(one, bools(0, of=3), called).c_own.tolist() == [0, 5, 0]
    assert called.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("copy", "calls", "goes"),
    [
        (UP, [COPY, {"name": "cudaStreamSynchronize"}], True),
        (UP | {"name": "x", "kind": "kernel"}, [COPY, {"name": "cudaStreamSynchronize"}], False),  # no copy
        ({"name": "DtoH", "kind": "memcpy"}, [COPY, {"name": "cudaEventSynchronize", "gap": 9_999.0}], True),
        (UP, [COPY, {"name": "cudaStreamSynchronize", "seq": 1}], False),  # of another thread
        (UP, [COPY, QUERY, {"name": "cudaStreamSynchronize"}], False),  # not the next call
    ],
)
def test_a_synchronisation_goes_with_the_copy_that_it_waits_for(
    copy: dict[str, Any], calls: list[dict[str, Any]], goes: bool
) -> None:
    one = graph([*calls, {}], [copy, {"call": len(calls)}])
    assert bool(changes._reads(one, bools(0, of=2), bools(0, of=len(calls) + 1))[len(calls) - 1]) is goes
    assert not changes._reads(one, bools(0, of=2), bools(of=len(calls) + 1)).any()  # its call stays
    assert not changes._reads(one, bools(1, of=2), bools(0, of=len(calls) + 1)).any()  # another operation goes


def test_calls_at_the_end_prepare_the_first_launch_of_the_next_step() -> None:
    found = changes.drop(graph([QUERY, {}, {}, QUERY], [{"call": 1}, {"call": 2}]), bools(0, of=2))
    assert found.c_own.tolist() == [0, 0, 5, 0]
    late = [{}, {}, *[QUERY] * 60]
    found = changes.drop(graph(late, [{"call": 0}, {"call": 1}]), bools(0, of=2))
    assert found.c_own.tolist() == [0, 5, *[5] * 12, *[0] * 48]  # the last 48


def test_waits_and_tails_go_with_their_calls() -> None:
    calls = [{}, MALLOC | {"wait": STREAM, "target": 0, "tail": 7.0}, {"wait": OPERATION, "target": 0, "tail": 3.0}]
    found = allocate_once(graph(calls, [{}]))
    assert (found.c_wait.tolist(), found.c_tail.tolist()) == ([NONE, NONE, OPERATION], [0, 0, 3])
    kept = changes.remove_waits(graph(calls, [{}]), bools(2, of=3))
    assert (kept.c_wait.tolist(), kept.c_tail.tolist()) == ([NONE, STREAM, NONE], [0, 7, 0])


@pytest.mark.parametrize(
    ("gap", "share", "left"),
    [
        (5_000.0, 1.0, 5_000.0),  # a fifth of the usual 30 µs stays
        (20_000.0, 1.0, 6_000.0),
        (20_000.0, 0.5, 13_000.0),
        (50_000.0, 1.0, 20_000.0),  # at most 30 µs go
        (36_000.0, 1.0, 6_000.0),
    ],
)
def test_the_way_back_from_a_dropped_call_goes_too(gap: float, share: float, left: float) -> None:
    calls = [{}, {}, {}, {}, MALLOC, {"gap": gap, "name": "cudaEventRecord"}, {"gap": 8_000.0}]
    found = allocate_once(graph(calls, [{}, {}, {}, {}, {"call": 6}]), share)
    assert found.c_gap.tolist()[5:] == [left, 8_000]
    record = {"gap": gap, "name": "cudaEventRecord"}
    other = allocate_once(graph([{}, MALLOC, {"seq": 1}, record], [{}]), share)
    assert other.c_gap.tolist()[2:] == [10, left]  # the next call of the same thread
    twice = allocate_once(graph([{}, MALLOC, MALLOC | {"gap": gap}], [{}]))
    assert twice.c_gap[2] == max(gap - 30_000, 0)  # a call that goes itself
    far = graph([{}, MALLOC, *[{"seq": 1}] * 62, record], [{}])
    assert allocate_once(far, share).c_gap[-1] == left
    beyond = graph([{}, MALLOC, *[{"seq": 1}] * 63, record], [{}])
    assert allocate_once(beyond, share).c_gap[-1] == gap


# Threads that only copy


def test_a_thread_whose_only_launches_go_goes_with_all_its_work() -> None:
    calls = [{}, COPY | {"seq": 1, "gap": 90_000.0}, QUERY | {"seq": 1, "gap": 70_000.0}]
    found = changes.drop(graph(calls, [{}, UP | {"call": 1}]), bools(1, of=2))
    assert (found.c_gap.tolist(), found.c_own.tolist()) == ([10, 0, 0], [5, 0, 0])
    alone = changes.drop(graph([{"gap": 90_000.0}, QUERY | {"gap": 70_000.0}], [{}]), bools(0, of=1))
    assert alone.c_gap.tolist() == [60_000, 40_000]  # no other thread works: what belongs to the launch goes
    two = graph([{}, *calls[1:], COPY | {"seq": 1}], [{}, UP | {"call": 1}, UP | {"call": 3}])
    assert changes.drop(two, bools(1, of=3)).c_own.tolist() == [5, 0, 5, 5]


@pytest.mark.parametrize(
    ("gap", "left"),
    [
        (150_000.0, 0.0),  # the first upload, at 60,000, began at 0
        (160_000.0, 0.0),
        (160_001.0, 20_005.0),  # more than 100 µs after the first: the second one began at 20,005
        (180_006.0, 180_006.0),
        (100_000.0, 100_000.0),  # too short to be a wait
    ],
)
def test_a_thread_that_waited_for_the_uploads_of_another_goes_on_earlier(gap: float, left: float) -> None:
    """Uploads begin at 60,000 and 80,005, each after at most 60,000 of host work."""
    calls = [{"gap": gap}, COPY | {"seq": 1, "gap": 60_000.0}, COPY | {"seq": 1, "gap": 20_000.0}]
    ops = [{}, UP | {"call": 1}, UP | {"call": 2}]
    assert changes.drop(graph(calls, ops), bools(1, 2, of=3)).c_gap[0] == left
    apart = graph(calls, ops, seq_pid=np.array([1, 2]))
    assert changes.drop(apart, bools(1, 2, of=3)).c_gap[0] == gap  # of another process


# Staging


def staged(end: int, **more: Any) -> list[float]:
    """Two launches and a copy of 1,000 bytes on the first thread, two copies of one call on the second one."""
    calls = [
        {},
        {},
        {"name": more.pop("name", "cudaMemcpyAsync"), "launches": True},
        COPY | {"seq": 1},
        *more.pop("calls", []),
    ]
    ops = [{}, {"call": 1, "bytes": 9.0}, UP | {"call": 2, "bytes": 1_000.0}, UP | {"call": 3, "bytes": 2_000.0}, UP | {"call": 3, "bytes": 400.0},
           UP | {"call": -1, "bytes": 4_000.0}]  # fmt: skip
    return changes._staging(graph(calls, ops, **more), end).tolist()


def test_threads_that_only_copy_stage_in_pinned_memory_at_2_5_to_8_bytes_per_ns() -> None:
    assert staged(0) == [0, 0, 0, 2_400 / 2.5]
    assert staged(1) == [0, 0, 0, 2_400 / 8]
    callback = {"name": "cuLaunchHostFunc"}
    assert staged(1, name="cuMemcpyHtoDAsync_v2") == [0, 0, 0, 300]
    assert staged(1, name="cuMemcpyHtoDAsync_v2", calls=[callback]) == [0, 0, 125, 300, 0]  # as JAX does
    assert staged(1, calls=[callback]) == [0, 0, 0, 300, 0]


def test_the_thread_with_most_launches_is_the_main_one() -> None:
    first = graph([COPY, {"seq": 1}, {"seq": 1}], [UP | {"bytes": 80.0}, {}, {}])
    assert changes._staging(first, 1).tolist() == [10, 0, 0]
    none = graph([QUERY, QUERY | {"seq": 1}], [UP | {"bytes": 80.0}, UP | {"bytes": 8.0}])
    assert changes._staging(none, 1).tolist() == [0, 1]  # without launches the first one


@pytest.mark.parametrize(("share", "left"), [(1.0, 100_000 - 40_000.0), (0.0, 100_000 - 12_500.0), (0.5, 80_000.0)])
def test_a_dropped_copy_takes_its_staging_along(share: float, left: float) -> None:
    """100,000 bytes take 12,500 to 40,000; the thread of the main launches has another launch, so it stays."""
    calls = [{}, {}, {}, COPY | {"seq": 1, "gap": 100_000.0}, COPY | {"seq": 1}]
    one = graph(calls, [{}, {}, {}, UP | {"bytes": 100_000.0}, UP | {"bytes": 1.0}])
    assert changes.drop(one, bools(3, of=5), share=share).c_gap[3] == left


@pytest.mark.parametrize(
    ("factor", "share", "left"), [(0.5, 0.0, 45_000.0), (0.5, 1.0, 34_000.0), (0.5, 0.5, 39_500.0), (1.0, 1.0, 50_000.0), (2.0, 0.0, 60_000.0)]
)  # fmt: skip
def test_a_smaller_copy_needs_less_staging_in_the_longest_gap_before_it(
    factor: float, share: float, left: float
) -> None:
    """80,000 bytes take 10,000 to 32,000. The work is before the call that prepares the copy."""
    calls = [
        {},
        {},
        {},
        COPY | {"seq": 1, "gap": 90_000.0},
        QUERY | {"seq": 1, "gap": 50_000.0},
        COPY | {"seq": 1, "gap": 40_000.0},
    ]
    ops = [{}, {}, {}, UP | {"bytes": 0.0}, UP | {"bytes": 80_000.0, "call": 5}]
    found = changes.scale(graph(calls, ops), bools(4, of=5), factor, share)
    assert found.c_gap.tolist() == [10, 10, 10, 90_000, left, 40_000]


def test_the_first_copy_of_a_step_is_staged_at_the_end_of_the_one_before() -> None:
    calls = [{}, {}, {}, COPY | {"seq": 1, "gap": 1_000.0}, COPY | {"seq": 1}, QUERY | {"seq": 1, "gap": 50_000.0}]
    ops = [{}, {}, {}, UP | {"bytes": 80_000.0}, UP | {"bytes": 0.0}]
    found = changes.scale(graph(calls, ops), bools(3, of=5), 0.5)
    assert found.c_gap.tolist()[3:] == [1_000, 10, 45_000]
    short = changes.scale(graph([*calls[:5], QUERY | {"seq": 1, "gap": 4_000.0}], ops), bools(3, of=5), 0.5)
    assert short.c_gap.tolist()[3:] == [1_000, 10, 2_000]  # no more than there is
    nothing = changes.scale(
        graph([*calls[:3], COPY | {"seq": 1, "gap": 1_000.0}, QUERY | {"seq": 1, "gap": 4_000.0}], ops[:4]),
        bools(3, of=4),
        0.0,
    )
    assert nothing.c_gap.tolist()[3:] == [1_000, 0]
    gone = changes.scale(graph(calls, ops), bools(3, of=5), 9.0)
    assert gone.c_gap[5] == 50_000 + 8 * 10_000


def test_what_follows_a_download_shrinks_beyond_5_us() -> None:
    calls = [
        {"name": "cudaMemcpy", "wait": OPERATION, "target": 0, "tail": 25_000.0},
        {"wait": OPERATION, "target": 0, "tail": 25_000.0},
    ]
    down = {"name": "[CUDA memcpy DtoH]", "kind": "memcpy", "ns": 100.0}
    found = changes.scale(graph(calls, [down, {}]), bools(0, of=2), 0.5)
    assert (found.c_tail.tolist(), found.o_duration.tolist()) == ([15_000, 25_000], [50, 2])
    near = changes.scale(graph([calls[0] | {"tail": 4_000.0}], [down]), bools(0, of=1), 0.5)
    assert near.c_tail.tolist() == [4_000]
    kernel = changes.scale(graph(calls, [down | {"kind": "kernel"}, {}]), bools(0, of=2), 0.5)
    assert kernel.c_tail.tolist() == [25_000, 25_000]


def test_a_pinned_upload_frees_the_synchronisation_after_it() -> None:
    calls = [
        COPY | {"wait": OPERATION, "target": 0},
        {"name": "cudaStreamSynchronize", "wait": STREAM, "target": 0},
        {"wait": STREAM, "target": 0},
    ]
    found = changes.scale(graph(calls, [UP, {"call": 2}]), bools(0, of=2), 0.5, 1.0)
    assert found.c_wait.tolist() == [NONE, NONE, STREAM]
    unknown = changes.scale(graph(calls, [UP | {"call": -1}, {"call": 2}]), bools(0, of=2), 0.5, 1.0)
    assert unknown.c_wait.tolist() == [OPERATION, STREAM, STREAM]


# Gaps between launches


def test_few_launches_do_not_tell_how_far_apart_they_usually_are() -> None:
    gaps = [{"gap": 90_000.0}] * 4
    assert changes.host_work_ns(graph(gaps, [{}] * 4)) == 300_000
    assert changes.host_work_ns(graph(gaps[:3], [{}] * 3)) == 100_000
    assert changes.host_work_ns(graph(gaps, [{}] * 4, steps=2)) == 100_000
    assert changes.host_work_ns(graph(gaps * 2, [{}] * 8, steps=2)) == 300_000


def test_gaps_between_launches_are_of_one_thread_and_include_other_calls() -> None:
    calls = [
        {"gap": 9.0},
        QUERY | {"gap": 3_000.0},
        {"gap": 5_000.0},
        {"seq": 1, "gap": 7_000.0},
        {"seq": 1, "gap": 90_000.0},
        {"gap": 9_000.0},
    ]
    assert changes.usual_gap(graph(calls, [{}])) == 5 * 9_000  # of 8,000, 9,000 and 90,000


# Streams


def test_a_moved_operation_follows_its_new_stream_within_2_us_and_with_share_0_its_old_one() -> None:
    one = graph(
        [{}] * 4,
        [{}, {"before": 0}, {"stream": 1}, {"dep": 0, "dep_gap": 3.0}],
        o_after=np.array([1.0, 9_000.0, 9_000.0, np.inf]),
    )
    found = changes.move(one, bools(1, 3, of=4), "side", 0.4)
    assert found.o_after.tolist() == [1, 2_000, 9_000, 0]
    assert (found.o_dep.tolist(), found.o_dep_gap.tolist()) == ([-1, 0, -1, 0], [0, 1_500, 0, 3])
    assert found.o_before.tolist() == [-1, -1, -1, -1]
    assert changes.move(one, bools(3, of=4), "side").o_before.tolist() == [-1, 0, -1, -1]
    first = changes.move(one, bools(0, of=4), "side", 0.0)
    assert first.o_dep.tolist() == [-1, -1, -1, 0]  # nothing ran before it


# CUDA graphs, ranks and buckets


def test_a_captured_graph_needs_two_launches_and_ends_at_a_wait_or_another_thread() -> None:
    one = graph([{}, QUERY, {}, {"seq": 1}, {}, QUERY], [{"call": 0}, {"call": 2}, {"call": 3}, {"call": 4}])
    found = changes.capture_graph(one, bools(0, 1, 2, 3, 5, of=6))
    assert found.c_own.tolist() == [7_000, 0, 0, 5, 5, 5]
    assert found.c_gap.tolist() == [10, 0, 0, 10, 10, 10]
    assert found.o_lag.tolist() == [7_000, 7_000, 4, 4]
    limit = graph([{}, {"gap": 30_000.0}, {"gap": 30_001.0}], [{}, {}, {}], o_after=np.array([900.0, 450.0, 451.0]))
    limit = replace(limit, c_launches=bools(0, 1, 2, of=3))
    kept = changes.capture_graph(limit, bools(0, 1, 2, of=3), 0.0)
    usual = changes.usual_gap(limit)
    assert kept.c_gap.tolist() == [10, 0 if usual >= 30_000 else 30_000, 0 if usual > 30_001 else 30_001]
    assert kept.o_after.tolist() == [900, 450, 450]


def test_only_long_host_work_inside_a_captured_graph_may_stay() -> None:
    calls = [{}, {}, {}, QUERY | {"gap": 30_000.0}, {}, {}, {}, QUERY | {"gap": 30_001.0}, {}]
    one = graph(calls, [{"call": at} for at in (0, 1, 2, 4, 5, 6, 8)])
    assert changes.usual_gap(one) == 30_000  # five times 10 is less
    assert changes.capture_graph(one, np.ones(9, bool), 0.0).c_gap.tolist() == [10, 0, 0, 0, 0, 0, 0, 30_001, 0]


def test_ranks_without_work_stay_without() -> None:
    two = {"stream_pid": np.array([1, 2]), "seq_pid": np.array([1, 2])}
    one = graph([{}, {"seq": 1, "gap": 0.0}], [{"ns": 100.0}, {"ns": 0.0, "stream": 1}], **two)
    found = changes.equalise_ranks(one)
    assert (found.o_duration.tolist(), found.c_gap.tolist()) == ([50, 0], [5, 0])
    bare = changes.equalise_ranks(replace(empty(one), stream_pid=np.array([1, 2])))
    assert bare.o_duration.tolist() == [50, 0]


def test_a_bucket_is_no_shorter_than_its_longest_collective() -> None:
    one = graph(
        [{}] * 4, [{"name": "ncclDevKernel_AllReduce", "ns": ns} for ns in (20_000.0, 1_000.0, 16_000.0, 14_000.0)]
    )
    assert changes.bucket(one, bools(0, 1, 2, 3, of=4), 2).o_duration.tolist() == [0, 20_000, 0, 16_000]
    assert changes.bucket(one, bools(0, 1, 2, 3, of=4), 2, 0.1).o_duration.tolist() == [0, 20_000, 0, 28_500]
    two = replace(one, steps=2)  # of which each has two
    assert changes.bucket(two, bools(0, 1, 2, 3, of=4), 64).o_duration.tolist() == [0, 20_000, 0, 16_000]
    side = replace(one, o_stream=np.array([0, 1, 0, 1]), stream_names=("a/0", "a/1"), stream_pid=np.array([1, 1]))
    assert changes.bucket(side, bools(0, 2, 3, of=4), 2).o_duration.tolist() == [0, 1_000, 21_000, 14_000]


# Ranges


@pytest.mark.parametrize(
    ("begin", "end", "covered", "held", "count"),
    [
        (15, 25, [0, 10, 0], [False, False, False], 1),  # a call at the end of a range is outside
        (15, 26, [0, 10, 0], [False, True, False], 1),
        (10, 11, [0, 0, 0], [True, False, False], 1),
        (11, 12, [0, 0, 0], [False, False, False], 1),
        (-5, 0, [0, 0, 0], [False, False, False], 0),
        (-5, 1, [1, 0, 0], [False, False, False], 1),
        (45, 90, [0, 0, 0], [False, False, False], 0),
        (44, 90, [0, 0, 0], [False, False, False], 1),
        (-9, 90, [10, 10, 10], [True, True, True], 1),
    ],
)
def test_a_range_holds_the_calls_that_begin_in_it(
    begin: int, end: int, covered: list[int], held: list[bool], count: int
) -> None:
    """Gaps 0 to 10, 15 to 25 and 30 to 40; the window ends at 45."""
    ranges = pd.DataFrame({"name": ["load"], "start_ns": [begin], "end_ns": [end], "pid": [1]})
    found = changes.in_ranges(Capture(ranges=ranges), launches(2, 2, 2), "load")
    assert (found[0].tolist(), found[1].tolist(), found[2]) == (covered, held, count)
    every = changes.in_ranges(Capture(), launches(2, 2, 2), "")
    assert (every[1].all(), every[2]) == (True, 1)
    none = changes.in_ranges(Capture(), launches(2, 2, 2), "load")
    assert (none[0].sum(), none[2]) == (0, 0)


def test_a_gap_that_begins_before_the_window_counts_with_its_ranges() -> None:
    ranges = pd.DataFrame({"name": ["load"], "start_ns": [20], "end_ns": [60], "pid": [1]})
    one = launches(2, start_ns=100, end_ns=200, c_start=np.array([110]), c_gap=np.array([60.0]))
    covered, _, count = changes.in_ranges(Capture(ranges=ranges), one, "load")
    assert (covered.tolist(), count) == ([10], 1)  # from 50 on
