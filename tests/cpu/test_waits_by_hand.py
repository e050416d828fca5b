"""Calls and operations of a few numbers from which a reader can tell which calls wait, and for what; times in ns."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis.replay import waits
from analysis.replay.graph import DEVICE, NONE, OPERATION, STREAM, Graph
from tests.by_hand import graph

LAUNCH = "cudaLaunchKernel"
SYNC, STREAM_SYNC, EVENT_SYNC = "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"


def window(calls: list[tuple[Any, ...]], ops: list[dict[str, Any]], **more: Any) -> Graph:
    """calls: name, start, end, sequence if not 0; ops: start, end, call and what differs."""
    at: dict[int, int] = {}
    rows = []
    for name, start, end, *seq in calls:
        one = seq[0] if seq else 0
        rows.append({"name": name, "gap": float(start - at.get(one, 0)), "own": float(end - start), "seq": one})
        at[one] = end
    return graph(rows, [{"ns": float(one["end"] - one["start"])} | one for one in ops] or [{"call": -1}], **more)


def found(one: Graph, memory: str = "", size: float = 0.0) -> Graph:
    count = len(one.o_start)
    return waits.find_waits(one, np.array([memory] * count, object), np.full(count, size))


def last(one: Graph) -> tuple[int, int, float, float]:
    """What the last call waits for, its own time, and the time from the end of that to its return."""
    return int(one.c_wait[-1]), int(one.c_target[-1]), float(one.c_own[-1]), float(one.c_tail[-1])


def synchronised(name: str, start: int, returned: int, *, end: int = 90_000) -> tuple[int, int, float, float]:
    """A kernel that ends at `end`, and a call that may wait for it."""
    kernel = {"start": 20, "end": end, "call": 0}
    return last(found(window([(LAUNCH, 0, 10), (name, start, returned)], [kernel])))


# A call that waits


@pytest.mark.parametrize(
    ("name", "kind", "target"),
    [(SYNC, DEVICE, 1), (STREAM_SYNC, STREAM, 0), (EVENT_SYNC, OPERATION, 0), ("cudaFree", DEVICE, 1),
     ("hipCtxSynchronize", DEVICE, 1), ("cuStreamSynchronize", STREAM, 0), ("cudaEventQuery", NONE, -1)],
)  # fmt: skip
def test_what_a_call_waits_for_follows_from_its_name(name: str, kind: int, target: int) -> None:
    assert synchronised(name, 100, 93_000)[:2] == (kind, target)


@pytest.mark.parametrize("name", [SYNC, STREAM_SYNC, EVENT_SYNC, "cudaFree"])
def test_a_call_that_waits_takes_5_us_by_itself_at_most_and_returns_after_the_end(name: str) -> None:
    assert synchronised(name, 100, 93_000)[2:] == (5_000, 3_000)
    assert synchronised(name, 89_000, 93_000)[2:] == (
        4_000,
        3_000,
    )  # the kernel ended within what the call itself takes


@pytest.mark.parametrize(
    ("end", "own", "tail"),
    [(5_100, 5_000, 27_000), (5_099, 32_000, 3_000), (32_100, 5_000, 0), (32_101, 32_000, 3_000)],
)
def test_a_device_waits_if_its_work_ends_between_the_calls_own_time_and_its_return(
    end: int, own: float, tail: float
) -> None:
    """The call lasts from 100 to 32,100 and takes 5,000 by itself; without a wait it returns 3,000 after the work."""
    assert synchronised(SYNC, 100, 32_100, end=end) == (DEVICE, 1, own, tail)


def test_a_short_call_that_did_not_wait_returns_within_its_own_time() -> None:
    assert synchronised(SYNC, 100, 1_100, end=50) == (DEVICE, 1, 1_000, 1_000)


def test_an_event_that_ended_before_is_waited_for_no_longer() -> None:
    assert synchronised(EVENT_SYNC, 100, 9_100, end=5_100) == (OPERATION, 0, 5_000, 4_000)
    assert synchronised(EVENT_SYNC, 100, 9_100, end=5_099) == (OPERATION, 0, 9_000, 3_000)


def test_calls_that_do_not_wait_stay_as_they_are() -> None:
    one = window([(LAUNCH, 0, 10), ("cudaEventRecord", 100, 90_000)], [{"start": 20, "end": 90_000, "call": 0}])
    assert found(one).c_own.tolist() == [10, 89_900]
    assert found(one).c_target.tolist() == [-1, -1]
    none = replace(one, **{name: getattr(one, name)[:0] for name in ("c_start", "c_end")})
    assert waits.find_waits(none, np.zeros(0), np.zeros(0)) is none


@pytest.mark.parametrize(
    ("name", "took", "usual"),
    [
        ("k", (1, 2, 3, 4, 9), 2.0),
        ("k", (9_000,) * 3, 9_000.0),
        ("cudaMalloc", (9_000,), 9_000.0),
        ("cuCtxSynchronize", (9_000,), 5_000.0),
        ("cudaMemcpyAsync", (9_000,), 5_000.0),
        ("cudaFree", (9_000,), 5_000.0),
        ("cudaFree", (4_000,), 4_000.0),
    ],
)
def test_the_usual_time_of_a_call_is_the_lower_quartile(name: str, took: tuple[int, ...], usual: float) -> None:
    one = window([(name, 10_000 * at, 10_000 * at + ns) for at, ns in enumerate(took)], [])
    assert waits._own_times(one, np.array(took, float)) == {name: usual}


def test_launches_of_more_than_four_times_the_usual_may_wait() -> None:
    took = [(LAUNCH, 0, 10), (LAUNCH, 100, 140), (LAUNCH, 200, 241), ("other", 300, 310), ("other", 400, 500)]
    one = window([*took, ("cudaMalloc", 600, 601)], [])
    assert waits._candidates(one, (one.c_end - one.c_start).astype(float), {LAUNCH: 10.0, "other": 10.0, "cudaMalloc": 1.0}
    ).tolist() == [False, False, True, False, False, True]  # fmt: skip


# Copies


def copied(name: str = "cudaMemcpy", text: str = "[CUDA memcpy Device-to-Host]", *, memory: str = "", size: float = 65_537.0,
           start: int = 1_000, end: int = 8_000, returned: int = 9_000) -> tuple[int, int, float, float]:  # fmt: skip
    calls = [(LAUNCH, 0, 10), (name, 100, returned)]
    copy = {"start": start, "end": end, "call": 1, "kind": "memcpy", "name": text}
    return last(found(window(calls, [{"start": 20, "end": 50, "call": 0}, copy]), memory, size))


def test_a_download_holds_the_host_until_it_has_ended() -> None:
    assert copied() == (OPERATION, 1, 5_000, 1_000)
    assert copied(end=9_400) == (OPERATION, 1, 5_000, -400)  # clocks of host and GPU differ a little
    assert copied(end=5_099, returned=9_000) == (OPERATION, 1, 8_900, 3_901)
    assert copied(end=5_100, returned=9_000) == (OPERATION, 1, 5_000, 3_900)


UP, ON = "[CUDA memcpy Host-to-Device]", "[CUDA memcpy Device-to-Device]"


@pytest.mark.parametrize(
    ("name", "text", "more", "does"),
    [
        ("cudaMemcpy", UP, {}, True),  # 8,000 before 9,000
        ("cudaMemcpy", UP, {"end": 99_000}, True),  # it returned after the copy had begun
        ("cudaMemcpy", UP, {"start": 8_999, "end": 99_000}, True),
        ("cudaMemcpy", UP, {"start": 9_000, "end": 99_000}, False),
        ("cudaMemcpy", ON, {"end": 9_000}, True),
        ("cudaMemcpy", ON, {"end": 9_001}, False),
        ("cuMemcpyDtoH_v2", "[CUDA memcpy DtoH]", {"end": 9_001}, True),
        ("cudaMemcpyAsync", "[CUDA memcpy DtoH]", {"memory": "Pageable"}, True),
        ("cudaMemcpyAsync", "[CUDA memcpy DtoH]", {"memory": "Pinned"}, False),
        ("cudaMemcpyAsync", "[CUDA memcpy DtoH]", {"end": 9_000}, True),  # memory unknown: by the times
        ("cudaMemcpyAsync", "[CUDA memcpy DtoH]", {"end": 9_001}, False),
        ("cudaMemcpyAsync", "[CUDA memcpy DtoH]", {"memory": "Pageable", "end": 9_001}, True),
        ("cudaMemcpyAsync", "[CUDA memcpy HtoD]", {"memory": "Pageable"}, True),
        ("cudaMemcpyAsync", "[CUDA memcpy Host-to-Array]", {"memory": "Pageable"}, True),
        ("cudaMemcpyAsync", "[CUDA memcpy Array-to-Host]", {"memory": "Pageable"}, True),
        ("cudaMemcpyAsync", UP, {"memory": "Pageable", "size": 65_536}, False),  # staged
        ("cudaMemcpyAsync", UP, {"memory": "Pageable", "start": 8_999, "end": 99_000}, True),
        ("cudaMemcpyAsync", UP, {"memory": "Pageable", "start": 9_000, "end": 99_000}, False),
        ("cudaMemcpyAsync", UP, {"memory": "Pinned"}, False),
        ("cudaMemcpyAsync", UP, {"end": 9_000}, True),
        ("cudaMemcpyAsync", UP, {"end": 9_001}, False),
        ("cudaMemcpyAsync", ON, {"memory": "Pageable"}, False),
    ],
)  # fmt: skip
def test_whether_the_call_of_a_copy_waits(name: str, text: str, more: dict[str, Any], does: bool) -> None:
    assert copied(name, text, **more)[:2] == ((OPERATION, 1) if does else (NONE, -1))


def test_a_call_of_a_copy_that_ran_as_a_kernel_does_not_wait() -> None:
    one = window([("cudaMemcpy", 0, 9_000)], [{"start": 10, "end": 8_000, "call": 0, "kind": "kernel"}])
    assert last(found(one)) == (NONE, -1, 9_000, 0)


# Launches that wait for room in a queue


@pytest.mark.parametrize(
    ("waiting", "long", "own"), [(1_000, 21, 5.0), (999, 21, 21.0), (1_000, 20, 20.0)]
)  # fmt: skip
def test_a_long_launch_behind_a_thousand_others_waits_for_room(waiting: int, long: int, own: float) -> None:
    calls = [(LAUNCH, 10 * at, 10 * at + 5) for at in range(waiting)]
    ops = [{"start": 50_000 + at, "end": 50_001 + at, "call": at} for at in range(waiting + 1)]
    one = found(window([*calls, (LAUNCH, 10 * waiting, 10 * waiting + long)], ops))
    assert last(one) == (NONE, -1, own, 0)
    assert one.c_own[:waiting].tolist() == [5.0] * waiting


@pytest.mark.parametrize(
    ("starts", "waiting"), [((5, 20, 30), 0), ((5, 30, 31), 1), ((60, 70, 80), 3), ((31, 32, 9_999), 3)]
)
def test_what_has_begun_when_a_call_begins_waits_no_longer(starts: tuple[int, ...], waiting: int) -> None:
    """The call begins at 30; its own operation is not among those launched before it."""
    calls = [(LAUNCH, at, at + 2) for at in (1, 3, 6, 30)]
    ops = [{"start": at, "end": at + 1, "call": row} for row, at in enumerate((*starts, 90))]
    assert waits._Pending(window(calls, ops)).count(3, 0) == waiting


# What a device, a stream or an event waits for


def pending(**more: Any) -> waits._Pending:
    """Stream 0 (process 1): 20 to 500 and 600 to 700. Stream 1 (process 1): 30 to 900. Stream 2 (process 2): 40 to 999."""
    calls = [(LAUNCH, 0, 10), (LAUNCH, 12, 14), (LAUNCH, 15, 16, 1), (LAUNCH, 50, 60), (SYNC, 70, 950)]
    ops = [
        {"start": 20, "end": 500, "call": 0}, {"start": 30, "end": 900, "call": 1, "stream": 1},
        {"start": 40, "end": 999, "call": 2, "stream": 2}, {"start": 600, "end": 700, "call": 3},
    ]  # fmt: skip
    given = {"stream_pid": np.array([1, 1, 2]), "seq_pid": np.array([1, 2])}
    return waits._Pending(window(calls, ops, **(given | more)))


def test_a_device_has_done_its_work_when_all_streams_of_its_process_have() -> None:
    assert [pending().last(4, 1), pending().last(4, 2), pending().last(4, 3)] == [900, 999, 0]
    assert [pending().end(4, 0), pending().end(3, 0), pending().end(0, 0)] == [700, 500, 0]


def test_a_stream_is_busy_with_what_was_launched_before_the_window() -> None:
    one = pending(stream_free=np.array([450.0, 0.0, 9_999.0]))
    assert [one.end(0, 0), one.end(3, 0), one.end(4, 2)] == [450, 500, 9_999]


def test_an_operation_without_a_call_counts_from_its_start() -> None:
    one = waits._Pending(window([(LAUNCH, 0, 10), (SYNC, 70, 90)], [{"start": 69, "end": 80, "call": -1}]))
    assert (one.end(1, 0), one.end(0, 0)) == (80, 0)
    late = waits._Pending(window([(LAUNCH, 0, 10), (SYNC, 70, 90)], [{"start": 70, "end": 80, "call": -1}]))
    assert late.end(1, 0) == 0
    launched = waits._Pending(window([(LAUNCH, 0, 10), (SYNC, 70, 90)], [{"start": 75, "end": 80, "call": 0}]))
    assert launched.end(1, 0) == 80


def test_a_stream_synchronisation_waits_for_the_stream_of_the_last_launch() -> None:
    one = pending()
    assert one.last_stream == [None, 0, None, 1, 0]
    assert one.synchronised(4, False) == (STREAM, 0, 700)


def test_work_of_the_stream_that_lasts_longer_is_not_what_a_call_waited_for() -> None:
    """The stream of the last launch ends at 700, after the call: the last operation that ended before may be the cause."""
    calls = [(LAUNCH, 0, 10), (LAUNCH, 12, 14), (STREAM_SYNC, 70, 600)]
    ops = [{"start": 20, "end": 590, "call": 0}, {"start": 30, "end": 700, "call": 1, "stream": 1}]
    one = window(calls, ops, c_start=np.array([0, 12, 70]))
    assert waits._Pending(one).synchronised(2, False) == (STREAM, 0, 590)
    on_time = replace(one, o_duration=np.array([570.0, 570.0]))
    assert waits._Pending(on_time).synchronised(2, False) == (STREAM, 1, 600)
    assert waits._Pending(on_time).synchronised(2, True) == (OPERATION, 1, 600)  # launched before, ended last
    both = replace(one, o_duration=np.array([580.0, 570.0]))
    assert waits._Pending(both).synchronised(2, False) == (STREAM, 1, 600)
    late = replace(one, o_duration=np.array([580.0, 571.0]))
    assert waits._Pending(late).synchronised(2, False) == (STREAM, 0, 600)


@pytest.mark.parametrize(
    ("end", "returned", "does"), [(71, 99, True), (70, 99, False), (100, 30_099, True), (100, 30_100, False)]
)
def test_a_thread_without_launches_waits_for_what_ended_within_30_us_before_it_returned(
    end: int, returned: int, does: bool
) -> None:
    one = window([(LAUNCH, 0, 10), (STREAM_SYNC, 70, returned, 1)], [{"start": 20, "end": end, "call": 0}])
    assert waits._Pending(one).synchronised(1, False) == ((STREAM, 0, end) if does else None)


def test_nothing_launched_is_nothing_to_wait_for() -> None:
    one = window([(LAUNCH, 0, 10), (EVENT_SYNC, 70, 99)], [{"start": 20, "end": 100, "call": 0}])
    assert waits._Pending(one).synchronised(1, True) is None
    assert last(found(one)) == (NONE, -1, 29, 0)
    other = window(
        [(LAUNCH, 0, 10), (EVENT_SYNC, 70, 99, 1)], [{"start": 20, "end": 90, "call": 0}], seq_pid=np.array([1, 2])
    )
    assert waits._Pending(other).synchronised(1, True) is None  # of another process
    begun = window([(LAUNCH, 0, 10), (EVENT_SYNC, 70, 99)], [{"start": 70, "end": 90, "call": -1}])
    assert waits._Pending(begun).synchronised(1, True) is None  # begun with the call, not before


@pytest.mark.parametrize(("behind", "row"), [(2_047, 0), (2_048, 1)])
def test_an_event_is_of_the_last_2048_launches_of_a_stream(behind: int, row: int) -> None:
    calls = [(LAUNCH, at, at + 1) for at in range(behind + 1)]
    ops = [{"start": at, "end": 7_000 if at == 0 else 6_000 - at, "call": at} for at in range(behind + 1)]
    one = waits._Pending(window([*calls, (EVENT_SYNC, 6_500, 8_000)], ops))
    assert one.synchronised(behind + 1, True) == (OPERATION, row, 7_000 if row == 0 else 5_999)


# Allocations that wait for the GPU


@pytest.mark.parametrize(
    ("name", "waited", "does"),
    [
        ("cudaFree", "", True),
        ("cuMemFree_v2", "", True),
        ("cudaFreeHost", "", False),
        ("cudaHostUnregister", "", False),
        ("cudaHostUnregister", "ww", False),  # two are too few
        ("cudaHostUnregister", "www", True),
        ("cudaMalloc", "wwww-", True),  # four of five
        ("cudaMalloc", "www-", False),
        ("cudaMallocAsync", "wwww", False),
        ("cudaEventRecord", "wwww", False),
    ],
)
def test_an_allocation_waits_by_its_documentation_or_as_seen(name: str, waited: str, does: bool) -> None:
    """Each call lasts 30 µs, beside a kernel that ends in it (w) or after it (-)."""
    calls = [(name, 100_000 * at, 100_000 * at + 30_000) for at in range(max(len(waited), 1))]
    ops = [{"start": 100_000 * at - 10, "end": 100_000 * at + (25_000 if one == "w" else 40_000), "call": -1}
           for at, one in enumerate(waited)]  # fmt: skip
    assert waits._device_wide(window(calls, ops)) == ({name} if does else set())


@pytest.mark.parametrize(
    ("start", "end", "does"),
    [(29_999, 30_000, True), (30_000, 30_001, False), (5, 20_001, True), (5, 20_000, False), (5, 30_000, True), (5, 30_001, False)],
)  # fmt: skip
def test_a_kernel_tells_of_a_wait_if_it_runs_20_us_after_the_begin_of_the_call(
    start: int, end: int, does: bool
) -> None:
    calls = [("cudaMalloc", 100_000 * at, 100_000 * at + 30_000) for at in range(3)]
    ops = [{"start": 100_000 * at + start, "end": 100_000 * at + end, "call": -1} for at in range(3)]
    assert waits._device_wide(window(calls, ops)) == ({"cudaMalloc"} if does else set())


def test_one_of_two_kernels_that_runs_on_shows_that_a_call_does_not_wait() -> None:
    calls = [("cudaMalloc", 100_000 * at, 100_000 * at + 30_000) for at in range(3)]
    ops = [
        {"start": 100_000 * at, "end": 100_000 * at + end, "call": -1} for at in range(3) for end in (25_000, 40_000)
    ]
    assert waits._device_wide(window(calls, ops)) == set()
    later = [one | {"start": one["start"] + 30_000} if at % 2 else one for at, one in enumerate(ops)]
    assert waits._device_wide(window(calls, later)) == {"cudaMalloc"}  # it began when the call returned


def test_the_first_200_calls_tell_whether_an_allocation_waits() -> None:
    """160 of the first 200 waited; the call after these is not asked."""
    calls = [("cudaMalloc", 100_000 * at, 100_000 * at + 30_000) for at in range(201)]
    ops = [
        {"start": 100_000 * at, "end": 100_000 * at + (25_000 if at < 160 else 40_000), "call": -1} for at in range(201)
    ]
    assert waits._device_wide(window(calls, ops)) == {"cudaMalloc"}
