"""Test the replay with programs whose time with and without a change is known: a small machine runs both."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import what_if
from analysis.capture.load import load
from analysis.capture.model import Capture, nest_ranges
from analysis.diagnosis.step_tables import answer_steps
from analysis.facts import Facts
from analysis.formats.errors import InputError
from analysis.formats.report import Saving
from analysis.replay import changes, savings, steady
from analysis.replay.decompose import PARTS, decompose
from analysis.replay.graph import OPERATION, Windows, build
from analysis.replay.simulate import simulate
from tests.by_hand import allocate_once
from tests.clock import within
from tests.toy import US, Action, Machine, kernels

ROOT = Path(__file__).parents[2]


def seconds(step: Sequence[Action], count: int = 40) -> float:
    """Return the time of one of many steps on the machine, ns."""
    short, long = Machine([*step] * 10), Machine([*step] * (10 + count))
    return (max(long.now, *long.tails.values()) - max(short.now, *short.tails.values())) / count


def step_of(step: Sequence[Action], count: int = 14) -> tuple[Capture, savings.Step]:
    start_up = [("h2d", "weights", 900 * US), ("launch", "tune_a", 50 * US), ("launch", "tune_b", 90 * US), ("sync",)]
    capture = Machine([*start_up, *[*step] * count]).capture()
    found = savings.steps(capture)
    assert found, steady.find(capture).reason
    return capture, found[0]


LAUNCH_BOUND = [*kernels(12, 3 * US, 20 * US), ("launch", "head", 4 * US), ("sync",)]
GPU_BOUND = [*kernels(12, 60 * US, 5 * US), ("launch", "head", 90 * US)]
HOST_BOUND = [
    ("work", 900 * US),
    *kernels(6, 40 * US, 3 * US),
    ("launch", "head", 20 * US),
    ("d2h", "loss", 2 * US),
    ("sync",),
]
PAGEABLE = [("work", 10 * US), ("h2d", "batch", 400 * US), *kernels(6, 50 * US, 3 * US), ("launch", "head", 20 * US)]
STREAMS = [*kernels(4, 50 * US, 2 * US), ("launch", "head", 9 * US), ("record", "e", 7), ("wait", "e", 20), ("launch", "side", 300 * US, 20), ("record", "f", 20), ("wait", "f", 7)]  # fmt: skip
FREES = [*kernels(5, 50 * US, 2 * US), ("free",), ("launch", "head", 50 * US), ("free",)]
PROGRAMS = {
    "launch": LAUNCH_BOUND,
    "gpu": GPU_BOUND,
    "host": HOST_BOUND,
    "pageable": PAGEABLE,
    "streams": STREAMS,
    "frees": FREES,
}


def without(step: Sequence[Action], name: str) -> list[Action]:
    """Return the step without launches of this name and the work right before each."""
    left: list[Action] = []
    for action in step:
        if action[0] in ("launch", "h2d", "d2h") and action[1].startswith(name):
            if left and left[-1][0] == "work":
                left.pop()
        else:
            left.append(action)
    return left


@pytest.mark.parametrize("name", PROGRAMS)
def test_unchanged_replay_reproduces_the_step(name: str) -> None:
    _, step = step_of(PROGRAMS[name])
    assert step.graph.steps >= 2
    assert step.phase.launches == sum(a[0] in ("launch", "h2d", "d2h") for a in PROGRAMS[name])
    assert step.step_ns == pytest.approx(seconds(PROGRAMS[name]), rel=0.02)
    assert step.run.step_ns == pytest.approx(step.step_ns, rel=0.02)


@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_add_up_and_name_the_limit(name: str) -> None:
    _, step = step_of(PROGRAMS[name])
    found = decompose(step.run)
    assert sum(ns for _, ns in found.parts) == sum(ns for _, ns in found.busy_parts) == found.wall_ns
    assert {part for part, _ in found.parts} <= set(PARTS)
    largest = max(found.parts, key=lambda item: item[1])[0]
    assert largest == {"launch": "launching", "gpu": "gpu_busy", "host": "host_work", "pageable": "copies"}.get(
        name, "gpu_busy"
    )


def test_slack_is_what_an_operation_can_take_longer() -> None:
    _, step = step_of(GPU_BOUND)
    found = decompose(step.run)
    assert (found.operations["slack_ns"] < 1 * US).all()
    assert found.operations["critical_ns"].sum() == pytest.approx(
        sum(a[2] for a in GPU_BOUND if a[0] == "launch") * step.graph.steps, rel=0.05
    )
    _, step = step_of(HOST_BOUND)
    assert decompose(step.run).operations["critical_frac"].sum() < 0.35


@pytest.mark.parametrize(
    ("name", "dropped", "tolerance"),
    [("launch", "layer0", 0.02), ("gpu", "layer0", 0.01), ("host", "layer1", 0.02), ("pageable", "batch", 0.03), ("streams", "side", 0.02), ("frees", "layer2", 0.02)],
)  # fmt: skip
def test_drop_saves_what_the_machine_saves(name: str, dropped: str, tolerance: float) -> None:
    _, step = step_of(PROGRAMS[name])
    pattern = {"batch": "Host-to-Device"}.get(dropped, dropped)
    ops = changes.operations(step.graph, pattern)
    replayed = simulate(changes.drop(step.graph, ops)).step_ns
    assert replayed == pytest.approx(seconds(without(PROGRAMS[name], dropped)), rel=tolerance)


def test_faster_kernels_save_nothing_where_launches_limit() -> None:
    _, step = step_of(LAUNCH_BOUND)
    ops = changes.operations(step.graph, "layer")
    assert savings.saving(step, lambda graph, share: changes.scale(graph, ops, 0.1)).middle < 0.02
    assert (
        savings.saving(
            step, lambda graph, share: changes.capture_graph(graph, np.ones(len(graph.c_own), bool), share)
        ).low
        > 0.3
    )


def test_host_work_beside_the_step_saves_until_the_gpu_limits() -> None:
    _, step = step_of(HOST_BOUND)
    rest = [a for a in HOST_BOUND if a[0] != "work"]
    replayed = simulate(changes.host(step.graph, 0.0)).step_ns
    assert replayed == pytest.approx(seconds(rest), rel=0.02)
    pinned = simulate(
        changes.overlap_copies(
            step_of(PAGEABLE)[1].graph, changes.operations(step_of(PAGEABLE)[1].graph, "Host-to-Device")
        )
    ).step_ns
    assert pinned == pytest.approx(400 * US, rel=0.03)


def test_allocations_that_wait_are_found() -> None:
    _, step = step_of(FREES)
    assert (step.graph.c_wait == 3).sum() == 2 * step.graph.steps
    assert simulate(allocate_once(step.graph)).step_ns == pytest.approx(
        seconds([a for a in FREES if a[0] != "free"]), rel=0.03
    )


def test_moving_to_a_stream_and_contention() -> None:
    step = [*kernels(3, 100 * US, 2 * US), ("launch", "head", 10 * US), ("sync",)]
    _, found = step_of(step)
    ops = changes.operations(found.graph, "layer1")
    beside = simulate(changes.move(found.graph, ops, "side")).step_ns
    assert beside < 0.75 * found.run.step_ns  # one block leaves room
    full = replace(found.graph, o_fill=np.ones(len(ops)))
    assert simulate(changes.move(full, ops, "side")).step_ns == pytest.approx(found.run.step_ns, rel=0.05)


FULL, HALF, TINY = "1056x1x1", "528x1x1", "1x1x1"  # of 132 SMs, with blocks of 128 threads


@pytest.mark.parametrize(
    ("step", "moves", "takes"),
    [
        # each product waits behind a tiny kernel of its own stream, which leaves room that the product does not
        ([("a", 300, FULL), ("clear", 1, TINY), ("b", 300, FULL), ("clear", 1, TINY)], {"b": "s1"}, 602),
        ([("a", 200, FULL), ("b", 200, FULL), ("c", 200, FULL)], {"a": "s1", "b": "s2", "c": "s3"}, 600),
        ([("a", 200, HALF), ("b", 200, HALF)], {"a": "s1", "b": "s2"}, 200),
        ([("a", 200, HALF), ("b", 200, HALF), ("c", 200, HALF)], {"a": "s1", "b": "s2", "c": "s3"}, 300),
        ([("a", 200, FULL), ("b", 200, HALF)], {"b": "s1"}, 300),
    ],
    ids=["behind tiny kernels", "three full ones", "two halves", "three halves", "one and a half"],
)
def test_kernels_on_streams_share_the_gpu(
    step: list[tuple[str, int, str]], moves: dict[str, str], takes: float
) -> None:
    launched = [("launch", name, us * US, 7, grid) for name, us, grid in step]
    _, found = step_of([action for one in launched for action in (("work", 2 * US), one)])
    graph = found.graph
    for name, stream in moves.items():
        graph = changes.move(graph, changes.operations(found.graph, f"^{name}$"), stream)
    assert simulate(graph, 12).step_ns == pytest.approx(takes * US, rel=0.05)


def test_ranges_mark_steps_and_hold_host_work() -> None:
    step = [
        ("range", "train_step"),
        ("range", "load"),
        ("work", 300 * US),
        ("end",),
        *kernels(5, 20 * US, 2 * US),
        ("sync",),
        ("end",),
        ("work", 40 * US),
    ]
    capture, found = step_of(step)
    assert found.phase.name == "train_step"
    covered, held, count = changes.in_ranges(capture, found.graph, "load")
    assert count
    assert covered.sum() == pytest.approx(300 * US * found.graph.steps)
    assert not held[found.graph.c_name == "cudaDeviceSynchronize"].any()
    assert found.graph.c_gap.sum() / found.graph.steps == pytest.approx(350 * US, rel=0.02)


def test_phases_start_up_and_slow_steps() -> None:
    prefill = [*kernels(9, 80 * US, 3 * US, "prefill"), ("sync",)]
    decode = [*kernels(6, 10 * US, 3 * US, "decode"), ("sync",)]
    slow = [*decode[:-1], ("work", 900 * US), ("sync",)]
    capture = Machine([("h2d", "weights", 5000 * US), *prefill * 5, *decode * 20, *slow, *decode * 12]).capture()
    found = steady.find(capture)
    assert {phase.launches for phase in found.phases} >= {9, 6}
    decodes = next(phase for phase in found.phases if phase.launches == 6)
    assert decodes.count == 32
    assert len(decodes.slow) == 1
    assert found.start_up_ns[1] - found.start_up_ns[0] >= 5000 * US
    assert dict(found.start_up_parts)["uploads"] == 5000 * US


def test_copies_of_the_results_at_the_end_are_no_steps() -> None:
    """A program launches one kernel many times, waits, and copies two results, which takes longer than all kernels."""
    results = [("d2h", "result", 9_000 * US, 7, 16 << 20)] * 2
    capture = Machine([("launch", "price", 20 * US)] * 200 + [("sync",), *results]).capture()
    (phase,) = steady.find(capture).phases
    assert phase.launches * phase.count >= 100


def test_slow_steps_that_recur_belong_to_the_step() -> None:
    normal = [*kernels(5, 20 * US, 2 * US), ("sync",)]
    saving = [*normal[:-1], ("work", 600 * US), ("sync",)]
    _, found = step_of([*normal * 3, *saving], 5)
    assert found.graph.steps % 4 == 0
    assert found.step_ns == pytest.approx(seconds([*normal * 3, *saving]) / 4, rel=0.02)


def test_a_layer_is_no_step() -> None:
    layer = [
        ("launch", "norm", 9 * US),
        ("launch", "gemm", 30 * US),
        ("launch", "gelu", 9 * US),
        ("launch", "gemm", 30 * US),
    ]
    _, step = step_of([("launch", "embed", 5 * US), *layer * 24, ("launch", "head", 50 * US)])
    assert step.phase.launches == 98


def test_no_steady_step_has_a_reason() -> None:
    found = steady.find(Machine([("launch", f"only_once_{i}", 5 * US) for i in range(30)]).capture())
    assert not found.phases
    assert "No sequence of launches repeats" in found.reason
    assert "No GPU operation" in steady.find(Capture()).reason


def test_without_host_calls_only_the_gpu_is_replayed() -> None:
    whole = Machine([*kernels(3, 50 * US, 2 * US), ("launch", "head", 9 * US)] * 12).capture()
    bare = {
        name: pd.array([pd.NA] * len(whole.gpu_ops), dtype="Int64")
        for name in ("api_start_ns", "api_end_ns", "pid", "tid")
    }
    found = savings.steps(Capture(gpu_ops=whole.gpu_ops.assign(**bare)))[0]
    assert found.run.step_ns == pytest.approx(found.step_ns, rel=0.02)
    assert "no host calls" in found.graph.notes[0]
    half = simulate(changes.scale(found.graph, changes.operations(found.graph, "layer"), 0.5)).step_ns
    assert found.run.step_ns - half == pytest.approx(75 * US, rel=0.02)
    with pytest.raises(InputError, match="lists no host calls"):
        what_if.what_if(whole, found, [("host", ".*", "0.5")])


def test_clocks_that_disagree_and_lost_records_are_said() -> None:
    whole = Machine(LAUNCH_BOUND * 12).capture()
    early = whole.gpu_ops.assign(start_ns=whole.gpu_ops["start_ns"] - 40 * US)
    found = savings.steps(replace(whole, gpu_ops=early))[0]
    assert "clocks of host and GPU disagree" in found.graph.notes[0]
    some = whole.gpu_ops[np.arange(len(whole.gpu_ops)) % 13 != 4].reset_index(drop=True)
    found = savings.steps(replace(whole, gpu_ops=some))[0]
    assert "records were lost" in found.graph.notes[0]
    assert found.run.step_ns == pytest.approx(found.step_ns, rel=0.02)


def test_overlapping_ranges_and_steps_in_two_threads() -> None:
    whole = Machine(HOST_BOUND * 12).capture()
    starts = (
        whole.calls["start_ns"].to_numpy()[:: len(whole.calls) // 12][:12] if whole.calls is not None else np.zeros(0)
    )
    rows = {
        "range_id": range(12),
        "name": "tick",
        "start_ns": starts - 400 * US,
        "end_ns": starts + 900 * US,
        "pid": 1,
        "tid": 1,
    }
    crossed = replace(whole, ranges=nest_ranges(pd.DataFrame(rows)))
    covered, _, _ = changes.in_ranges(crossed, savings.steps(crossed)[0].graph, "tick")
    graph = savings.steps(crossed)[0].graph
    assert (covered <= graph.c_gap + 1e-6).all()
    assert covered.sum() == pytest.approx(graph.c_gap.sum())  # ranges that overlap count once
    assert whole.calls is not None
    other = whole.calls["name"].astype(str) == "cudaDeviceSynchronize"
    turns = replace(whole, calls=whole.calls.assign(tid=np.where(other, 2, 1)))
    found = savings.steps(turns)[0]
    assert len(found.graph.seq_pid) == 1
    assert found.run.step_ns == pytest.approx(found.step_ns, rel=0.02)


def test_a_full_queue_holds_the_host() -> None:
    capture = Machine(kernels(2500, 10 * US, 8 * US)).capture()
    graph = build(capture, Windows(0, int(capture.gpu_ops["start_ns"].max()) + US), 1)
    run = simulate(changes.host(graph, 0.0))
    ahead = run.o_start - run.c_begin[graph.o_call]
    assert 900 * 11 * US < ahead.max() <= (1024 + 2 * 256) * 11 * US


@pytest.mark.parametrize(("names", "left"), [("abc", 12), ("ab", 12), ("a", 1)])
def test_merge_makes_one_operation_of_each_repeat(names: str, left: int) -> None:
    step = [("launch", name, 5 * US) for _ in range(12) for name in names]
    _, found = step_of([*step, ("launch", "head", 9 * US), ("sync",)])
    graph = found.graph
    merged = changes.merge(graph, changes.operations(graph, "^[abc]$"))
    assert np.count_nonzero(merged.o_duration) == (left + 1) * graph.steps


@pytest.mark.parametrize("rate", [3.0, 6.0])
def test_what_copies_cost_the_host_scales_with_their_bytes(rate: float) -> None:
    size = 12 << 20
    graph = step_of([*kernels(6, 50 * US, 3 * US), ("d2h", "scores", 600 * US, 7, size)])[1].graph
    empties = replace(graph, c_tail=np.where(graph.c_wait == OPERATION, 900.0 * US, 0.0))
    down = changes.operations(graph, "Device-to-Host")
    assert changes.scale(empties, down, 0.5).c_tail.max() == pytest.approx(452.5 * US)
    fills = [("work", round(size / rate)), ("pinned", "batch", 250 * US, 7, size), *kernels(6, 50 * US, 3 * US)]
    xla = Machine([*fills, ("call", "cuLaunchHostFunc", 5 * US)] * 12).capture()
    assert xla.calls is not None
    names = xla.calls["name"].astype(object).replace("cudaMemcpyAsync", "cuMemcpyHtoDAsync_v2")
    step = savings.steps(replace(xla, calls=xla.calls.assign(name=names)))[0]
    half = savings.saving(step, lambda one, share: changes.scale(one, changes.operations(one, "to-Device"), 0.5, share))
    assert half.low < size / rate / 2 / step.step_ns < half.high + 0.05


def test_a_thread_that_only_watches_holds_no_step() -> None:
    whole = Machine(HOST_BOUND * 12).capture()
    assert whole.calls is not None
    at = whole.calls["start_ns"].to_numpy()[5::40]
    rows = {"start_ns": at + 100, "end_ns": at + 900, "name": "cudaEventQuery", "correlation_id": 0, "pid": 1, "tid": 9}
    calls = pd.concat([whole.calls.astype({"name": object}), pd.DataFrame(rows)])
    step = savings.steps(replace(whole, calls=calls.sort_values("start_ns", ignore_index=True)))[0]
    assert simulate(changes.host(step.graph, 0.0)).step_ns < 0.5 * step.step_ns


def test_the_path_over_thousands_of_waits_is_found() -> None:
    capture = Machine([("launch", "k", 30 * US), ("sync",)] * 3000).capture()
    graph = build(capture, Windows(0, int(capture.gpu_ops["start_ns"].max()) + 60 * US), 1)
    parts = decompose(simulate(graph))
    assert sum(ns for _, ns in parts.parts) == parts.wall_ns
    assert dict(parts.parts)["gpu_busy"] > 0.6 * parts.wall_ns


REDUCES = [*kernels(3, 50 * US, 2 * US), *kernels(8, 40 * US, 2 * US, "ncclDevKernel_AllReduce_")]


@pytest.mark.parametrize(("size", "left"), [(2, 4 * 65), (4, 2 * 115), (8, 215), (3, 2 * 90 + 2 * 40)])
def test_larger_buckets_save_what_each_collective_costs_besides_its_bytes(size: int, left: int) -> None:
    _, step = step_of(REDUCES)  # collectives of 40 µs, 15 µs of which are no bytes: 25 µs a part, and 15 µs each
    change = what_if.what_if(Capture(), step, [("bucket", "AllReduce", str(size))])
    assert simulate(change(step.graph, 1.0)).step_ns == pytest.approx((150 + left) * US, rel=0.04)
    assert simulate(change(step.graph, 0.0)).step_ns > (150 + 300) * US


@pytest.mark.parametrize(
    ("low", "asked", "high"),
    [
        (0.3, ["graph"], 1 - 40 / 80 + 0.02),  # kernels take as much less in another run
        (0.6, ["graph"], 0.6),
        (0.3, ["graph", "host"], 0.54),  # as wide as intervals may be
        (0.3, ["host"], 0.54),
    ],
)
def test_a_graph_alone_leaves_the_time_of_kernels(
    low: float, asked: list[str], high: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels take 40 µs of a step of 80 µs."""
    capture, step = step_of([*kernels(12, 3 * US, 20 * US), ("launch", "head", 4 * US), ("sync",)])
    step = replace(step, step_ns=80.0 * US, reason="It is off.")
    monkeypatch.setattr(what_if, "_chosen", lambda *_: step)
    monkeypatch.setattr(what_if, "as_given", lambda *_: Saving(low, 0.54))
    _, found, _ = what_if.replayed(capture, [(kind, ".*", "0.5") for kind in asked])
    assert (found.low, found.high) == (low, pytest.approx(high))


def test_order_of_changes_ends_where_nothing_saves() -> None:
    _, step = step_of(HOST_BOUND)
    layers = changes.operations(step.graph, "layer")
    made = savings.in_order(step, {
        "faster kernels": lambda graph, share: changes.scale(graph, layers, 0.5),
        "host beside": lambda graph, share: changes.host(graph, 0.0),
        "nothing": lambda graph, share: graph,
    })  # fmt: skip
    assert [name for name, _ in made] == ["host beside", "faster kernels"]
    assert made[0][1].low > 0.5


def test_two_ranks_wait_for_each_other() -> None:
    def rank(pid: int, work: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        one = Machine(
            [
                a
                for _ in range(12)
                for a in (*kernels(3, work, 2 * US), ("launch", "ncclDevKernel_AllReduce", 10 * US), ("sync",))
            ]
        ).capture()
        assert one.calls is not None
        return one.gpu_ops.assign(pid=pid, device=f"GPU ({pid})"), one.calls.assign(pid=pid, tid=pid)

    fast, slow = rank(1, 50 * US), rank(2, 90 * US)
    ops = fast[0].copy()
    talks = ops["name"] == "ncclDevKernel_AllReduce"
    # both ranks leave a collective together: shift the fast rank's steps to the slow one's, and let its kernel wait
    step_fast, step_slow = 50 * US * 3, 90 * US * 3
    lag = pd.Series(np.arange(len(ops)) // 4 * (step_slow - step_fast), index=ops.index)
    for name in ("start_ns", "api_start_ns", "api_end_ns"):
        ops[name] += lag
    ops.loc[talks, "duration_ns"] += step_slow - step_fast
    calls = fast[1].copy()
    order = np.arange(len(calls)) // 5 * (step_slow - step_fast)
    calls["start_ns"] += order
    calls["end_ns"] += order + np.where(calls["name"] == "cudaDeviceSynchronize", step_slow - step_fast, 0)
    both = pd.concat([ops, slow[0]]).sort_values("start_ns", ignore_index=True)
    capture = Capture(gpu_ops=both, calls=pd.concat([calls, slow[1]]).sort_values("start_ns", ignore_index=True))
    found = savings.steps(capture)[0]
    assert (found.graph.o_group >= 0).any()
    assert found.run.step_ns == pytest.approx(found.step_ns, rel=0.02)
    even = simulate(changes.equalise_ranks(found.graph)).step_ns
    assert found.run.step_ns - even == pytest.approx((step_slow - step_fast) / 2, rel=0.1)


@pytest.mark.slow
def test_a_hundred_thousand_operations_replay_in_half_a_second() -> None:
    capture = Machine([*kernels(1000, 5 * US, 2 * US), ("sync",)] * 100).capture()
    end = int(capture.gpu_ops["start_ns"].max()) + 100 * US
    graph = build(capture, Windows(0, end), 100)
    assert len(graph.o_start) == 100_000
    within(
        1.5, lambda: simulate(graph, passes=2)
    )  # a second pass is as long as the first; beside other work twice that


COMMITTED = sorted(path.parent.parent for path in ROOT.glob("tests/cpu/data/profile/*/captures/nsys"))


@pytest.mark.slow
@pytest.mark.parametrize("folder", COMMITTED, ids=lambda path: path.name)
def test_committed_captures_replay(folder: Path) -> None:
    found = savings.steps(load([folder]))
    assert found
    for step in found:
        assert step.reason or abs(step.off) < 0.05
        parts = decompose(step.run)
        assert sum(ns for _, ns in parts.parts) == parts.wall_ns


@pytest.mark.slow
def test_what_if(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(ROOT / "tests/cpu/data/profile/qwen")
    assert what_if.main([folder, "--graph", ".*", "--host", ".*=0.5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"step_ns", "replayed_ns", "changed_ns", "saves_frac"}
    assert told["replayed_ns"] == pytest.approx(told["step_ns"], rel=0.02)
    assert 0.4 < told["saves_frac"]["low"] <= told["saves_frac"]["high"] < 0.95
    file = tmp_path / "both.json"
    assert what_if.main([folder, "--drop", "elementwise", "--scale", "gemm|nvjet=0.5", "--timeline", str(file)]) == 0
    events = json.loads(file.read_text())["traceEvents"]
    ends = [max(e["ts"] + e["dur"] for e in events if e["ph"] == "X" and e["pid"] == pid) for pid in (1, 2)]
    assert ends[1] < 0.9 * ends[0]
    assert "Saves" in capsys.readouterr().out


@pytest.mark.parametrize(("example", "is_held"), [("h200/qwen_like", False), ("public/mnist", True)])
def test_a_graph_of_the_whole_step_is_that_of_the_report(
    example: str, is_held: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """In mnist, the host may need the results of kernels, so that a graph saves a fourth and not most of the step."""
    capture = load([ROOT / "examples" / example / "captures"])
    (told,) = [one for one in Facts(capture).once(answer_steps)[0].replayed if one.proposal.kind == "launch_bound"]
    _, found, _ = what_if.replayed(capture, [what_if.GRAPH])
    assert told.low <= found.low < found.high <= told.high
    assert (found.high < 0.3) == is_held
    assert what_if.main([str(ROOT / "examples" / example / "captures"), "--graph", ".*"]) == 0
    assert f"{told.high:.1%}: it allows for other fixes of the same cause." in capsys.readouterr().out


def test_what_if_changes_the_step_that_the_report_shows_first(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever else repeats: layers of its steps do so more often."""
    run = ROOT / "reports/h200-gpt2-fp32"
    shown = json.loads((run / "report.json").read_text(encoding="utf-8"))["steps"][0]["name"]
    assert what_if.main([str(run / "captures"), "--drop", "gemm|nvjet|cutlass"]) == 0
    assert capsys.readouterr().out.startswith(f"Step {shown}: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--drop", "no_such_kernel"], "matches no operation"),
        (["--drop", "-no-such-kernel"], "matches no operation"),
        (["--host", "no_such_range=0.5"], "matches no range"),
        (["--scale", "elementwise=fast"], "is no number"),
        (["--drop", "("], "no regular expression"),
        (["--stream", "gemm"], "has no ="),
        (["--bucket", "gemm=4"], "needs collectives"),
        (["--bucket", "gemm=some"], "is no number"),
        (["--phase", "nothing"], "no steady phase"),
    ],
)
def test_what_if_refuses(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert what_if.main([str(ROOT / "tests/cpu/data/profile/qwen"), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_what_if_of_no_capture_ends_as_bad_input_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert what_if.main([str(tmp_path), "--drop", "gemm"]) == 3
    assert str(tmp_path) in capsys.readouterr().err
