"""Graphs of a few calls and operations of which a reader can tell each time of a replay and each part of a step; in ns."""

from dataclasses import replace
from typing import Any
from weakref import ref

import numpy as np
import pytest

from analysis.replay import changes, decompose, simulate
from analysis.replay.graph import DEVICE, OPERATION, STREAM, Graph
from analysis.replay.simulate import BY_HOST, BY_OTHER, BY_STREAM, Run, _compile, _queues, _room
from tests.by_hand import bools, graph, launches

SYNC = {"name": "cudaStreamSynchronize", "wait": STREAM, "target": 0}


def without_calls(one: Graph) -> Graph:
    """The operations of a graph, of which no call is known."""
    calls = [name for name in one.__dataclass_fields__ if name.startswith("c_")]
    none = np.full(len(one.o_start), -1)
    return replace(
        one, **{name: getattr(one, name)[:0] for name in calls}, o_call=none, o_host=none, has_calls=False,
        seq_pid=none[:0], seq_begin=none[:0],
    )  # fmt: skip


# Passes


def passes(one: Graph, most: int = 5) -> tuple[float, ...]:
    return simulate.simulate(one, most).passes


def test_a_step_is_a_share_of_the_window() -> None:
    assert simulate.simulate(launches(100, 100, 100, steps=3)).step_ns == 101


@pytest.mark.parametrize("apart", [0.1, 30.0])  # some operations then end before the one before them on their stream
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("streams", [1, 3, 9, 40])
@pytest.mark.parametrize("ns", [40.0, 100.0, 2000.0])  # the host is slower, as slow, quicker
def test_stretches_give_the_times_of_single_operations(
    ns: float, streams: int, plain: bool, apart: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(7)
    calls: list[dict[str, Any]] = [{"gap": float(random.integers(1, 40))} for _ in range(600)]
    ops: list[dict[str, Any]] = [
        {"stream": int(random.integers(streams)), "ns": float(random.integers(1, ns)) / 3} for _ in range(600)
    ]
    calls[300] |= {"wait": STREAM, "target": 0}
    if not plain:
        ops[500] |= {"dep": 470, "dep_gap": 2.0}
        ops[555] |= {"dep": 554}
        calls[400] |= {"wait": OPERATION, "target": 350}
        ops[250] |= {"before": 240}
    one = graph(calls, ops, o_after=random.normal(1, apart, 600), stream_free=random.uniform(0, 900, streams))
    stretches = simulate.simulate(one)
    assert stretches.step_ns == simulate.step_ns(one)
    assert simulate._STRETCH in {node[0] for node in _compile(one).nodes}
    free = one.o_dep < 0  # these then wait for an operation that ended long ago, which makes them single ones
    single = simulate.simulate(
        replace(one, o_dep=np.where(free, 0, one.o_dep), o_dep_gap=np.where(free, -1e9, one.o_dep_gap))
    )
    for name in (each for each in Run.__dataclass_fields__ if each not in ("graph", "alone")):
        np.testing.assert_allclose(getattr(stretches, name), getattr(single, name), rtol=1e-12)


def test_the_first_pass_begins_when_host_and_streams_of_the_process_are_free() -> None:
    """The call begins 10 after its sequence, the kernel 4 later, or 1 after its stream is free; it lasts 100."""
    assert passes(launches(100))[0] == 10 + 4 + 100
    assert passes(launches(100, stream_free=np.array([50.0])))[0] == 1 + 100  # from 50
    assert passes(launches(100, start_ns=60, seq_begin=np.array([60])))[0] == 114
    assert passes(launches(100, start_ns=60, seq_begin=np.array([60]), stream_free=np.array([70.0])))[0] == 104
    other = graph([{}], [{"ns": 100.0}, {"stream": 1, "call": 0}], stream_pid=np.array([1, 2]))
    assert passes(replace(other, stream_free=np.array([0.0, 500.0])))[0] == 114


def late(ns: float, free: float, gap: float) -> Graph:
    """One launch a pass, on a stream that is busy until `free`; the host needs `gap` + 5 a pass."""
    return graph([{"gap": gap}], [{"ns": ns}], stream_free=np.array([free]))


@pytest.mark.parametrize(
    ("one", "took"),
    [
        # the GPU lags behind from 60 on: it takes 31 a pass, until the host limits in the third one
        (late(30, 60, 40), (31, 31, 42, 45, 45)),
        (late(998, 999, 995), (999, 999, 1000)),  # 1 of 1,000 is below 0.2 %: settled
        (late(997, 1000, 995), (998, 998, 1000)),
        (late(996, 1001, 995), (997, 997, 1000, 1000)),
        (launches(100, 100, 100), (316, 303, 303)),
    ],
)
def test_passes_end_when_two_differ_by_no_more_than_two_thousandths(one: Graph, took: tuple[float, ...]) -> None:
    assert passes(one) == took
    assert passes(one, 1) == took[:2]  # at least two
    assert passes(one, 3) == took[:3]


def test_no_graph_is_simulated_twice_or_kept_when_nobody_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = launches(100, 103), launches(100, 104)
    run = simulate.simulate(one)
    assert simulate.step_ns(other) != run.step_ns
    monkeypatch.setattr(simulate, "_simulated", None)
    assert [simulate.step_ns(each) for each in (launches(100, 103), one, other)] == [205, 205, 206]
    kept = ref(other)
    del other
    assert kept() is None


def test_a_changed_graph_has_the_shape_of_the_first_until_other_operations_wait_for_each_other() -> None:
    one = launches(100, 103)
    shapes = [
        _compile(each).shape for each in (one, changes.host(one, 0.5), replace(one, o_duration=one.o_duration * 2))
    ]
    assert all(shape is shapes[0] for shape in shapes)
    assert _compile(replace(one, o_after=-one.o_duration - 1)).shape is not shapes[0]
    assert _compile(replace(one, o_dep=np.array([-1, 0]))).shape is not shapes[0]
    assert _compile(one).shape is shapes[0]


def test_without_calls_a_pass_ends_with_the_window() -> None:
    """Two kernels of 10 with 1 before each end at 22 in a pass; in the timeline the second one ends 30 before 100."""
    bare = without_calls(graph([{}], [{"ns": 10.0, "call": 0}, {"ns": 10.0, "call": 0, "start": 60}], end_ns=100))
    run = simulate.simulate(bare)
    assert run.passes == (52, 22, 22)
    assert run.end_ns - run.o_end[1] == 30
    assert (len(run.c_begin), len(run.c_end), run.o_cause.tolist()) == (0, 0, [-1, 0])
    assert simulate.simulate(replace(bare, end_ns=50)).passes == (22, 22, 22)


def test_a_step_is_of_its_process_and_of_all_if_it_is_unknown() -> None:
    two = {"stream_pid": np.array([1, 2]), "seq_pid": np.array([1, 2])}
    one = graph([{}, {"seq": 1, "gap": 195.0}], [{}, {"stream": 1}], **two)
    assert simulate.simulate(one).step_ns == 15
    assert simulate.simulate(replace(one, main=2)).step_ns == 200
    assert simulate.simulate(replace(one, main=3)).step_ns == 200


# Operations


def test_an_operation_that_its_stream_and_its_call_allow_at_once_waits_for_its_stream() -> None:
    """Launches are 15 apart, kernels 14 and 1 between them: each ends when the next one may begin."""
    run = simulate.simulate(launches(14, 14, 14))
    assert (run.o_why.tolist(), run.o_cause.tolist()) == ([BY_STREAM] * 3, [-1, 0, 1])
    shorter = simulate.simulate(launches(13, 13, 13))
    assert (shorter.o_why.tolist(), shorter.o_cause.tolist()) == ([BY_HOST] * 3, [-1] * 3)


@pytest.mark.parametrize(
    ("ns", "gap", "waits", "why"), [(12.0, 3.0, 0.0, BY_HOST), (13.0, 3.0, 1.0, BY_OTHER), (2.0, 3.0, 0.0, BY_HOST)]
)
def test_an_operation_waits_for_another_only_if_that_ends_later(ns: float, gap: float, waits: float, why: int) -> None:
    """The first one begins at 14; the second one may at 29 by its call, and `gap` after the end of the first."""
    run = simulate.simulate(graph([{}, {}, {"gap": 100.0}], [{"ns": ns}, {"stream": 1, "dep": 0, "dep_gap": gap}]))
    assert (run.o_start[1] - run.o_start[0] - 15, run.o_why[1]) == (waits, why)


def test_an_operation_without_a_call_follows_its_stream_alone() -> None:
    run = simulate.simulate(graph([{"gap": 500.0}], [{"ns": 20.0}, {"call": -1, "start": 540}]))
    assert (run.o_start[1] - run.o_end[0], run.o_why[1]) == (1, BY_STREAM)


@pytest.mark.parametrize(("start", "begins"), [(300, 200.0), (100, 0.0)])
def test_the_first_operation_of_a_stream_without_a_call_begins_where_it_did_in_the_window(
    start: int, begins: float
) -> None:
    """The window begins at 100. Of its own stream nothing is known, of its host neither."""
    ops = [{"ns": 2.0}, {"call": -1, "stream": 1, "start": start, "ns": 900.0}]
    one = graph([{}], ops, start_ns=100, o_after=np.array([np.inf, np.inf]))
    run = simulate.simulate(one)
    assert run.o_start[1] - run.begin_ns == begins
    assert run.o_start[0] - run.c_begin[0] == 4  # its call is known


def test_the_last_of_two_operations_that_end_together_is_the_cause_of_the_next() -> None:
    run = simulate.simulate(changes.drop(launches(100, 100, 100), bools(1, of=3)))
    assert (run.o_cause[2], run.o_end[1]) == (1, run.o_end[0])


def test_only_streams_that_wait_for_each_other_do() -> None:
    ops = [{"ns": 60.0}, {"stream": 1}, {"stream": 2}, {"before": 0}]
    run = simulate.simulate(graph([{}] * 4, ops, serial=((0, 1),)), 2)
    assert (run.o_start[1] - run.o_end[0], run.o_why[2]) == (1, BY_HOST)
    assert run.o_start[3] - run.o_end[0] == 1  # a branch waits for the one it names


@pytest.mark.parametrize(("ns", "begin", "why"), [(14.0, 15.0, BY_HOST), (15.0, 16.0, BY_OTHER)])
def test_a_default_stream_holds_another_only_while_it_works(ns: float, begin: float, why: int) -> None:
    """The first kernel begins at 14, the call of the second allows it at 29."""
    run = simulate.simulate(graph([{}, {}, {"gap": 90.0}], [{"ns": ns}, {"stream": 1}], serial=((0, 1),)))
    assert (run.o_start[1] - run.o_start[0], run.o_why[1]) == (begin, why)


# Kernels beside each other


def took(one: Graph) -> list[float]:
    run = simulate.simulate(one, 2)
    return (run.o_end - run.o_start).tolist()


def test_copies_and_kernels_that_were_beside_each_other_before_keep_their_time() -> None:
    beside = [{"ns": 300.0, "fill": 0.75}, {"ns": 300.0, "fill": 0.75, "stream": 1}]
    moved = {"stream": 2, "fill": 0.0, "ns": 5.0}
    assert took(graph([{}] * 3, [*beside, moved], o_moved=bools(2, of=3))) == [300, 300, 5]
    copy = {"ns": 300.0, "fill": 0.75, "stream": 1, "kind": "memcpy"}
    assert took(graph([{}] * 2, [beside[0], copy], o_moved=bools(1, of=2))) == [300, 300]


def test_a_moved_kernel_goes_on_when_the_first_of_two_others_ends() -> None:
    """Both others fill half of the GPU. The moved one begins 30 after the first one, which lasts 100, and needs a half."""
    ops = [{"ns": 100.0, "fill": 0.5}, {"ns": 500.0, "fill": 0.5, "stream": 1}, {"ns": 300.0, "fill": 0.5, "stream": 2}]
    found = took(graph([{"gap": 5_000.0}, {}, {}], ops, o_moved=bools(2, of=3)))
    assert found == [100, 500, 70 + 300]


# Collectives


def test_a_collective_frees_its_stream_when_all_ranks_have_ended() -> None:
    """Rank 1 comes at 14, rank 2 at 64, where the transfer takes 20: both end at 84, and the next kernel begins at 85."""
    two = {"stream_pid": np.array([1, 2]), "seq_pid": np.array([1, 2])}
    calls = [{}, {}, {"seq": 1, "gap": 60.0}]
    ops = [
        {"ns": 100.0, "group": 0},
        {"ns": 20.0, "group": 0, "stream": 1, "call": 2},
        {"ns": 7.0, "call": 1, "start": 90},
    ]
    run = simulate.simulate(graph(calls, ops, **two, start_ns=0, main=3), 2)
    assert run.o_end[0] == run.o_end[1] == run.o_start[1] + 20
    assert (run.o_start[2] - run.o_end[0], run.o_cause[2]) == (1, 0)


# Calls that wait


def waits(ns: float, tail: float = 7.0, **call: Any) -> Run:
    """The kernel begins at 14; the call begins at 25 and would return at 30."""
    return simulate.simulate(graph([{}, SYNC | {"tail": tail} | call, {"gap": 900.0}], [{"ns": ns}]))


@pytest.mark.parametrize(
    ("ns", "lasts", "by"),
    [(2.0, 5.0, -1), (9.0, 5.0, -1), (10.0, 6.0, 0), (12.0, 8.0, 0), (50.0, 46.0, 0)],
)
def test_a_call_returns_its_tail_after_the_end_unless_that_is_before_its_own(ns: float, lasts: float, by: int) -> None:
    """14 + 9 + 7 is when it would return anyway."""
    run = waits(ns)
    assert (run.c_end[1] - run.c_begin[1], run.b_call.tolist(), run.b_by.tolist()) == (lasts, [1], [by])


def test_a_call_that_waits_for_nothing_takes_its_tail_besides() -> None:
    ops = [{"ns": 50.0, "stream": 1}]
    run = simulate.simulate(graph([{}, SYNC | {"tail": 7.0}], ops))
    assert (run.c_end[1] - run.c_begin[1], run.b_by.tolist()) == (5 + 7, [-1])
    device = simulate.simulate(graph([{}, SYNC | {"tail": 7.0, "wait": DEVICE, "target": 9}], ops))
    assert (device.c_end[1] - device.c_begin[1], device.b_by.tolist()) == (5, [-1])


def test_a_call_may_wait_for_what_ran_before_the_pass() -> None:
    run = simulate.simulate(graph([SYNC, {"gap": 1.0}], [{"ns": 100.0, "call": 1}]))
    assert (run.b_by.tolist(), run.c_end[0]) == ([-2], run.begin_ns)


def test_the_first_of_two_streams_that_end_together_holds_a_device() -> None:
    """Kernels from 14 and from 29 on end at 100."""
    ops = [{"ns": 86.0}, {"ns": 71.0, "stream": 1}]
    run = simulate.simulate(graph([{}, {}, SYNC | {"wait": DEVICE, "target": 1}], ops))
    assert (run.o_end[0] == run.o_end[1], run.b_by.tolist()) == (True, [0])


# Queues


@pytest.fixture
def short_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two launches fit into a queue, and each launch is looked at."""
    monkeypatch.setattr(simulate, "QUEUE", 2)
    monkeypatch.setattr(simulate, "_CHECK_EACH", 1)


def test_a_launch_waits_for_the_one_that_leaves_the_queue(short_queues: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operation n waits for n - 2: for 1 and 2 of the pass before (-2 - 1 and -2 - 2), and for 0 of the same."""
    assert _queues(launches(1, 1, 1)) == {0: -3, 1: -4, 2: 0}
    assert _queues(launches(1, 1)) == {0: -2, 1: -3}
    assert _queues(launches(1)) == {}
    mixed = graph([{}] * 4, [{"call": 3}, {"stream": 1, "call": 0}, {"call": -1}, {"call": 1}, {"call": 0}])
    assert _queues(mixed) == {0: -5, 1: -2, 3: 4}  # of stream 0, in the order of calls: 4, 3, 0
    monkeypatch.setattr(simulate, "_CHECK_EACH", 2)
    assert _queues(launches(1, 1, 1)) == {0: -3, 2: 0}


def test_the_host_runs_no_more_than_a_queue_ahead(short_queues: None) -> None:
    """Kernels of 100, 1 apart; launches would be 15 apart. A call begins when the kernel two before its own has ended."""
    run = simulate.simulate(launches(100, 100, 100))
    assert run.step_ns == 303
    assert (run.c_begin - run.o_start[0]).tolist() == [-102, -1, 100]
    assert run.c_begin[2] == run.o_end[0]
    free = simulate.simulate(launches(2, 2, 2))
    assert (np.diff(free.c_begin).tolist(), free.step_ns) == ([15, 15], 45)


def test_a_queue_and_a_wait_hold_the_host_one_after_the_other(short_queues: None) -> None:
    """The call after two launches waits for both; the launch after it has room."""
    run = simulate.simulate(graph([{}, {}, SYNC, {}], [{"ns": 100.0}, {"ns": 100.0}, {"ns": 100.0, "call": 3}]))
    assert run.c_end[2] == run.o_end[1]
    assert run.c_begin[3] == run.o_end[1] + 10


def test_a_look_at_the_queue_comes_before_all_that_is_launched_later() -> None:
    one = graph([{}] * 3, [{"start": 14}, {"start": 12, "call": 1}, {"start": 44, "call": 2}, {"start": 1, "call": -1}])
    assert _room(one, {2: -3, 0: 5}).tolist() == [12 - 0.5, 44 - 0.5]
    assert _room(replace(one, c_seq=np.array([0, 1, 0])), {0: 5}).tolist() == [
        14 - 0.5
    ]  # call 1 is of another sequence
    assert _room(replace(one, o_start=one.o_start + 90), {0: 5}).tolist() == [15 - 0.5]  # the call returned before


def test_epochs_end_at_calls_that_wait() -> None:
    one = graph([{}, SYNC, {"seq": 1}, {}], [{}])
    assert _compile(one).shape.epoch.tolist() == [1, 1, 3, 2]


# Parts of a step


def parts(one: Graph) -> dict[str, int]:
    return dict(decompose.decompose(simulate.simulate(one)).parts)


@pytest.mark.parametrize(("ns", "busy"), [(949.0, 0), (950.0, 950)])
def test_work_that_fills_95_percent_of_a_step_is_its_part(ns: float, busy: int) -> None:
    """Two calls that take 1,000 in all beside one kernel: the host ends last."""
    one = graph([{}, {"name": "cudaEventRecord", "gap": 980.0}], [{"ns": ns}])
    found = decompose.decompose(simulate.simulate(one))
    assert dict(found.busy_parts) == {"gpu_busy": int(ns), "launching": 1_000 - int(ns)}
    assert dict(found.parts).get("gpu_busy", 0) == busy


def test_communication_alone_does_not_decide_a_step() -> None:
    one = graph([{}, {"name": "cudaEventRecord", "gap": 980.0}], [{"ns": 980.0, "name": "ncclDevKernel_AllReduce"}])
    assert parts(one) == {"launching": 1_000}
    assert parts(replace(one, o_kind=np.array(["memcpy"], object))) == {"copies": 980, "launching": 20}


def test_operations_hold_their_part_of_the_path() -> None:
    found = decompose.decompose(simulate.simulate(launches(100, 100, 100))).operations
    assert found["critical_ns"].tolist() == [100, 100, 100]
    assert found["critical_frac"].tolist() == pytest.approx([100 / 303] * 3)
    assert decompose.decompose(simulate.simulate(launches(2, 2, 2))).operations["critical_ns"].tolist() == [0, 0, 2]
    run = simulate.simulate(graph([{"gap": 99.0}], [{"ns": 2.0}, {"ns": 30.0, "call": 0}]))
    assert decompose.decompose(run).operations["critical_ns"].tolist() == [2, 30]


def test_a_wait_for_the_first_operation_goes_through_it() -> None:
    """Launch, kernel of 500 from 14 on, return 7 after its end; then host work of 500 and the launch again: 1,041."""
    one = graph([{"gap": 510.0}, SYNC | {"tail": 7.0}], [{"ns": 500.0}])
    assert parts(one) == {"gpu_busy": 500, "launching": 514, "sync": 7}
    plain = graph([{"gap": 510.0}, {"wait": STREAM, "target": 0, "tail": 7.0}], [{"ns": 500.0}])
    assert parts(plain) == {"gpu_busy": 500, "launching": 514, "sync": 7}  # the tail of a launch is a wait, too
    assert parts(graph([{"gap": 510.0}, SYNC], [{"ns": 2.0}])) == {"launching": 525, "sync": 5}


@pytest.mark.parametrize(("gap", "part"), [(100_000.0, "launching"), (100_001.0, "host_work")])
def test_host_work_of_more_than_100_us_is_no_launching(gap: float, part: str) -> None:
    one = graph([{}, {}, {}, {"gap": gap}, {"name": "cudaEventRecord"}], [{}] * 4)
    found = parts(one)
    assert found == ({"launching": 75 + 99_990} if part == "launching" else {"launching": 65, "host_work": 100_001})


@pytest.mark.parametrize(("after", "part"), [(20_000.0, "launching"), (20_001.0, "other")])
def test_more_than_20_us_between_operations_of_a_stream_is_no_gap_of_launches(after: float, part: str) -> None:
    found = parts(graph([{}, {}], [{"ns": 9_000.0}, {"ns": 9_000.0}], o_after=np.array([1.0, after])))
    assert found == {"gpu_busy": 18_000, part: after} | ({"other": 1} if part == "launching" else {part: after + 1})


@pytest.mark.parametrize(("ns", "critical"), [(985.0, 985.0), (984.5, 0.0)])
def test_an_operation_that_ends_1_ns_before_the_host_ends_the_step(ns: float, critical: float) -> None:
    one = graph([{}, {"name": "cudaEventRecord", "gap": 980.0}], [{"ns": ns}])
    assert decompose.decompose(simulate.simulate(one)).operations["critical_ns"].tolist() == [critical]


def test_the_path_begins_with_the_process_and_the_thread_that_end_last() -> None:
    two = {"stream_pid": np.array([1, 2]), "seq_pid": np.array([1, 2])}
    one = graph([{}, {"seq": 1, "gap": 195.0, "name": "cudaMalloc", "own": 90.0}], [{}, {"stream": 1}], **two)
    assert parts(one) == {"gpu_busy": 2, "launching": 13}
    both = graph([{}, {"seq": 1, "gap": 195.0, "name": "cudaMalloc", "own": 90.0}], [{}])
    assert parts(both) == {"launching": 195, "allocation": 90}
    assert parts(replace(one, main=3)) == {"launching": 195, "allocation": 90}
    swapped = graph([{"seq": 1}, {"gap": 195.0, "name": "cudaMalloc", "own": 90.0}], [{}])
    assert parts(swapped) == {"launching": 195, "allocation": 90}


def test_idle_time_is_what_no_operation_covers() -> None:
    """The path is all launching: 45; kernels of 10 each overlap none of 15 of it."""
    run = simulate.simulate(launches(10, 10, 10))
    assert decompose._busy(run, [(run.begin_ns, run.end_ns, "launching", -1)]) == {
        "gpu_busy": 30, "copies": 0, "communication": 0, "rank_wait": 0, "launching": 15
    }  # fmt: skip
    mixed = graph(
        [{}] * 3,
        [
            {"ns": 20.0},
            {"ns": 20.0, "stream": 1, "kind": "memcpy"},
            {"ns": 5.0, "stream": 2, "name": "ncclKernel_AllReduce"},
        ],
    )
    run = simulate.simulate(mixed)  # from 10 to 30, 25 to 45 and 40 to 45 of the pass
    begin = run.begin_ns
    found = decompose._busy(run, [(begin, begin + 6, "gpu_busy", 0), (begin + 6, run.end_ns, "sync", -1)])
    assert {part: ns for part, ns in found.items() if ns} == {"gpu_busy": 20, "copies": 15, "other": 6.0, "sync": 4.0}


# Slack


def slack(one: Graph, most: int = 5) -> list[float]:
    return decompose.slack(simulate.simulate(one, most)).tolist()


def test_what_a_call_waits_for_may_end_later_by_what_the_next_wait_lasts() -> None:
    """Kernels 14 to 64 and 29 to 529. The calls that wait for them return at 71, and at 536 for 86 without a wait."""
    waits = {"wait": OPERATION, "tail": 7.0, "name": "cudaEventSynchronize"}
    calls = [{}, {}, waits | {"target": 0}, waits | {"target": 1}]
    one = graph(calls, [{"ns": 50.0}, {"ns": 500.0, "stream": 1}])
    assert slack(one) == [536 - 86, 0]
    assert slack(replace(one, c_own=np.array([5.0, 5.0, 5.0, 15.0]))) == [536 - 96, 0]
    assert slack(replace(one, o_duration=np.array([50.0, 2.0]))) == [0, 86 - 31]  # the second call waits no longer


def test_the_host_may_be_as_late_as_what_it_launches_next() -> None:
    """The second pass: the long kernel runs from 1,015 to 2,015, the one that the host waits for from 130 to 180.

    The last launch begins at 197; its kernel of 900 has to begin at 1,115 at the latest, 4 after the call.
    """
    waits = {"wait": OPERATION, "tail": 7.0, "name": "cudaEventSynchronize", "target": 1}
    ops = [{"ns": 1000.0, "stream": 2}, {"ns": 50.0}, {"ns": 900.0, "stream": 1, "call": 3}]
    assert slack(graph([{}, {}, waits, {}], ops), 2) == [0, 1_115 - 4 - 197, 2_015 - 1_901]
    early = graph([{}, {}, waits, {}], [ops[2] | {"call": 0}, ops[1], ops[0] | {"call": 3}])
    assert slack(early, 2)[1] == 1_101 - 4 - 197  # the kernel of 1,000 begins at 1,101 and ends the step


def test_a_host_that_ends_before_the_gpu_may_be_late_by_that() -> None:
    """The second pass: the call returns at 142; the long kernel ends at 630."""
    waits = {"wait": OPERATION, "tail": 7.0, "name": "cudaEventSynchronize", "target": 0}
    assert slack(graph([{}, {}, waits], [{"ns": 50.0}, {"ns": 300.0, "stream": 1}]), 2) == [630 - 142, 0]


def test_an_operation_may_end_as_late_as_those_that_need_it_begin() -> None:
    """The last kernel begins at 144 and ends the step; the first one ends at 34."""
    calls = [{}, {}, {"gap": 100.0}]
    last = {"ns": 20.0, "stream": 1}
    by_other = graph(calls, [{"ns": 20.0}, {"stream": 2}, last | {"dep": 0, "dep_gap": 3.0}])
    assert slack(by_other)[0] == 134 - 34 - 3
    branch = graph(calls, [{"ns": 20.0}, {"stream": 2}, last | {"before": 0}])
    assert slack(branch)[0] == 134 - 34 - 1
    first = graph([{}, {"gap": 100.0}], [{"ns": 20.0}, {"ns": 10.0}], o_after=np.array([1.0, np.inf]))
    assert slack(first) == [119 - 34, 0]
    assert slack(replace(first, o_after=np.array([1.0, 2.0]))) == [119 - 34 - 2, 0]
