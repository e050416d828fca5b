"""Rules on a step at the edges of their thresholds, and what each of several conditions decides; times in ns."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.diagnosis.step_rules import (
    calls,
    copies,
    host_work,
    kernels,
    launches,
    migration,
    pause,
    planned,
    ranks,
    sync,
)
from analysis.diagnosis.step_rules.view import View
from analysis.replay.graph import NONE, OPERATION, STREAM
from tests.by_hand import graph, view
from tests.cpu.test_step_rules_by_hand import (
    ADD,
    D2H,
    MS,
    MUL,
    chain,
    copy,
    found,
    paused,
    plan,
    two_ranks,
)

# Calls


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pauses of a millisecond count, as the steps here are short."""
    monkeypatch.setattr(pause, "ONCE_NS", 0.0)


def test_what_compiles_takes_the_host_work_of_all_its_calls() -> None:
    """Between two launches: an allocation (host work 40, call 7) and a load (700, 300). Only the load's call counts."""
    base = graph(
        [{}, {"name": "cudaMalloc", "gap": 40.0, "own": 7.0}, {"name": "cuModuleLoadData", "gap": 700.0, "own": 300.0}, {}],
        [{}, {"call": 3}],
    )  # fmt: skip
    one = found(calls.propose, view(base))
    assert one["compile_in_loop"].time_ns == 300 + 40 + 700
    change = one["compile_in_loop"].change
    assert change is not None
    changed = change(base, 0.5)
    assert changed.c_gap.tolist() == [10, 0, 0, 10]
    assert changed.c_own.tolist() == [5, 7, 0, 5]
    assert one["allocation"].time_ns == 7
    assert list(found(host_work.propose, view(base))) == []


@pytest.mark.parametrize(("count", "proposed"), [(2, False), (3, True)])
def test_graphs_built_three_times_in_one_step_are_a_loop(count: int, proposed: bool) -> None:
    calls_ = [{}, *[{"name": "cudaGraphInstantiate", "own": 30.0}] * count, {}]
    one = found(calls.propose, view(graph(calls_, [{}, {"call": count + 1}]), count=1))
    assert ("graph_each_step" in one) is proposed


# Copies


@pytest.mark.parametrize(
    ("size", "gap", "staged"),
    [(1.5e6, 1_000_000.0, True), (1.5e6, 1_000_001.0, False), (1.6e6, 100_000.0, True), (1.6e6, 99_999.0, False),
     (65_536.0, 10_000.0, False), (65_537.0, 10_000.0, True)],
)  # fmt: skip
def test_host_work_at_the_speed_of_a_copy_before_an_upload_of_cupy_is_one(
    size: float, gap: float, staged: bool
) -> None:
    """1.5 to 16 byte a ns. The longest work since the last launch counts, here that of an allocation."""
    calls_ = [{"gap": 3 * gap}, {"name": "cudaMalloc", "gap": gap}, {"name": "cudaMemcpy", "gap": 20.0}, {}]
    base = graph(calls_, [{"name": "cupy_add__float32"}, copy(size=size, call=2), {"call": 3}])
    one = [proposal for proposal in copies.propose(view(base)) if proposal.about == "staged copies to the GPU"]
    assert bool(one) is staged
    if staged:
        assert (one[0].time_ns, one[0].bytes, one[0].count) == (gap, size, 1)
        assert one[0].change is not None
        assert one[0].change(base, 0.0).c_gap.tolist() == [3 * gap, 0, 20, 10]
    plain = graph(calls_, [{"name": "k"}, copy(size=size, call=2), {"call": 3}])
    assert view(plain).staging.sum() == 0


def test_pinned_memory_frees_the_call_of_the_copy_and_its_wait_alone() -> None:
    """A launch and a copy of 90 µs each; the copy waits, and the synchronisation after it goes with the best case."""
    calls_ = [
        {"own": 90_000.0},
        {"name": "cudaMemcpyAsync", "own": 90_000.0, "wait": OPERATION, "target": 1},
        {"name": "cudaStreamSynchronize", "own": 800.0, "wait": STREAM, "target": 0},
        {"own": 70_000.0, "wait": OPERATION, "target": 0},
    ]
    base = graph(calls_, [{}, copy(size=1e6, ns=500_000.0, call=1), {"call": 3}])
    change = found(copies.propose, view(base, memory="Pageable -> Device"))["pageable_copy"].change
    assert change is not None
    assert change(base, 0.25).c_own.tolist() == [90_000, 10_000, 600, 70_000]
    assert change(base, 0.25).c_wait.tolist() == [NONE, NONE, NONE, OPERATION]
    assert change(base, 0.25).o_duration.tolist() == pytest.approx([2, 1e6 / 27.5, 2])  # at 27.5 GB/s


def test_packed_copies_wait_for_nothing() -> None:
    calls_ = [{"name": "cudaMemcpy", "wait": OPERATION, "target": at} for at in range(4)]
    calls_ += [{"name": "cudaStreamSynchronize", "wait": STREAM, "target": 0}, {"wait": OPERATION, "target": 0}]
    base = graph(calls_, [copy() for _ in range(4)] + [{"call": 5}])
    change = found(copies.propose, view(base))["small_copies"].change
    assert change is not None
    assert change(base, 0.0).c_wait.tolist() == [NONE] * 5 + [OPERATION]


# Host work


@pytest.mark.parametrize(
    ("begin", "end", "about"),
    [(100, 250_030, "load"), (100, 250_029, "between launches"), (250_030, 400_000, "load"), (250_031, 400_000, "between launches")],
)  # fmt: skip
def test_a_range_holds_host_work_whose_middle_it_holds(begin: int, end: int, about: str) -> None:
    """Two launches of 15, then 500 µs of host work from 30 on: its middle is at 250,030."""
    base = graph([{"gap": 500_000.0} if at == 2 else {} for at in range(8)], [{}] * 8)
    ranges = pd.DataFrame({"name": ["load"], "start_ns": [begin], "end_ns": [end], "pid": [1], "level": [0]})
    (one,) = host_work.propose(view(base, capture={"ranges": ranges}))
    assert one.about == about
    assert one.what_if == ("--host 'load=0'" if about == "load" else "")
    assert ("in range load" in one.sentence) is (about == "load")


@pytest.mark.parametrize(("many", "kind"), [(5, "data_loader"), (4, "host_work")])
def test_five_uploads_after_host_work_are_batches_of_a_run_that_repeats_nothing(many: int, kind: str) -> None:
    calls_ = [{"gap": 500_000.0} if at % 3 == 0 else {} for at in range(3 * many)]
    ops = [copy(size=1e6) if at % 3 == 1 else {} for at in range(3 * many)]
    assert list(found(host_work.propose, view(graph(calls_, ops), count=1))) == [kind]


@pytest.mark.parametrize(("other", "proposed"), [(400_000.0, True), (399_999.0, False)])
def test_one_rank_has_more_than_one_and_a_half_times_the_work_of_the_next(other: float, proposed: bool) -> None:
    calls_ = [{"gap": 600_000.0, "seq": 0}, {"seq": 0}, {"gap": other, "seq": 1}, {"seq": 1}]
    base = graph(calls_, [{}, {}, {"stream": 1}, {"stream": 1}], seq_pid=np.array([1, 2]), stream_pid=np.array([1, 2]))
    assert bool(found(host_work.propose, view(base))) is proposed


def test_the_work_of_a_rank_adds_up() -> None:
    """Twice 400 µs are more than one and a half times 500."""
    calls_ = [{"gap": 400_000.0, "seq": 0}, {"gap": 400_000.0, "seq": 0}, {"gap": 500_000.0, "seq": 1}, {"seq": 1}]
    base = graph(calls_, [{}, {}, {"stream": 1}, {"stream": 1}], seq_pid=np.array([1, 2]), stream_pid=np.array([1, 2]))
    assert found(host_work.propose, view(base)) == {}


def test_recording_a_graph_is_no_host_work() -> None:
    base = graph([{}, {"name": "cudaGraphInstantiate", "gap": 500_000.0}, {}], [{}, {"call": 2}])
    assert found(host_work.propose, view(base)) == {}


# Kernels


@pytest.mark.parametrize(("wall", "proposed"), [(12_000_000, True), (12_000_001, False)])
def test_a_hundredth_of_the_step_is_enough_to_fuse(wall: int, proposed: bool) -> None:
    base = graph([{}] * 3, [{"name": name, "ns": 40_000.0} for name in (MUL, ADD, MUL)])
    assert ("fuse" in found(kernels.propose, view(base, wall=wall))) is proposed


@pytest.mark.parametrize(("wall", "proposed"), [(2_000_000, True), (2_000_001, False)])
def test_a_hundredth_of_the_step_is_enough_for_a_small_grid(wall: int, proposed: bool) -> None:
    base = graph([{}] * 2, [{"name": "rows", "ns": 20_000.0, "fill": 0.1}, {}])
    assert ("small_grid" in found(kernels.propose, view(base, wall=wall))) is proposed


@pytest.mark.parametrize(("wall", "proposed"), [(5_000_000, True), (5_000_001, False)])
def test_a_hundredth_of_the_step_is_enough_for_casts(wall: int, proposed: bool) -> None:
    base = graph([{}] * 5, [{"name": "bfloat16_copy_kernel", "ns": 10_000.0}] * 5)
    assert ("repeated_casts" in found(kernels.propose, view(base, wall=wall))) is proposed


def test_kernels_in_turn_have_more_than_four_fifths_of_the_time() -> None:
    few = {"fill": 0.1, "name": "rows"}
    ops = [few | {"ns": 40_000.0}, few | {"ns": 40_000.0}, {}, few | {"ns": 20_000.0}]
    assert list(found(kernels.propose, view(graph([{}] * 4, ops)))) == ["small_grid"]


def test_kernels_of_nccl_are_no_small_grids() -> None:
    ops = [{"name": "ncclDevKernel_AllReduce", "ns": 90_000.0, "fill": 0.1}, {}]
    assert found(kernels.propose, view(graph([{}] * 2, ops))) == {}


# Launches


@pytest.mark.parametrize(("graphed", "proposed"), [(4, True), (5, False)])
def test_more_than_half_of_the_kernels_in_graphs_need_no_other_one(graphed: int, proposed: bool) -> None:
    calls_ = [{"name": "cudaGraphLaunch", "launches": True}, *[{}] * 4]
    ops = [*[{"call": 0}] * graphed, *[{"call": at} for at in range(1, 5)]]
    assert bool(found(launches.propose, view(graph(calls_, ops)))) is proposed


def test_threads_forbid_a_capture_in_their_own_calls() -> None:
    """Two threads: each launches, allocates and launches again, so it happens twice; and in order of threads."""
    calls_ = [
        {"seq": 0},
        {"seq": 1},
        {"name": "cudaMalloc", "seq": 0},
        {"name": "cudaMalloc", "seq": 1},
        {"seq": 0},
        {"seq": 1},
    ]
    ops = [{"call": at} for at in (0, 1, 4, 5)]
    assert launches._blockers(view(graph(calls_, ops, seq_pid=np.array([1, 1])))) == "allocation"
    more = [*calls_[::2], {}, {}]  # one of four launches or more may stand at the end of the step
    assert launches._blockers(view(graph(more, [{"call": at} for at in (0, 2, 3, 4)]))) == ""


def test_a_wait_before_long_host_work_takes_its_time_in_a_graph_too() -> None:
    """A launch of 20 µs, then 30 of host work and a wait of 5: 55, as long as before, whatever the kernels take."""
    calls_ = [{"own": 20_000.0}, {"name": "cudaStreamSynchronize", "own": 5_000.0, "gap": 30_000.0, "wait": STREAM, "target": 0},
              {"gap": 600_000.0, "own": 20_000.0}, *[{"own": 20_000.0}] * 3]  # fmt: skip
    ops = [{"ns": 90_000.0, "call": at} for at in (0, 2, 3, 4, 5)]
    base = graph(calls_, ops)
    change = found(launches.propose, view(base))["launch_bound"].change
    assert change is not None
    assert change(base, 0.5).c_own.tolist() == [20_000, 5_000, 80_030, 0, 0, 0]  # 4 * 20 + 3 * 10 ns


# Migration


@pytest.mark.parametrize(
    ("calm", "waits"), [((60_000.0, 70_000.0, 110_000.0), "130 µs"), ((195_000.0,), "20 µs"), ((), "20 µs")]
)
def test_a_kernel_waits_for_pages_until_it_lasts_as_long_as_others(calm: tuple[float, ...], waits: str) -> None:
    """It lasts 200 µs, while pages come for 20: others of its name last 70 (median), so it may wait for 130."""
    up = "[CUDA Unified Memory memcpy HtoD]"
    page = {"name": up, "kind": "migration", "bytes": 1e6, "ns": 20_000.0, "start": 110_000, "call": -1}
    ops = [{"ns": 200_000.0, "start": 100_000, "name": "a", "call": 0}, page]
    ops += [{"ns": ns, "start": 400_000 + 200_000 * at, "name": "a", "call": 0} for at, ns in enumerate(calm)]
    ops += [{"ns": 5_000.0, "start": 1_500_000, "name": "b", "call": 0}]
    one = found(migration.propose, view(graph([{}], ops)))["migration"]
    assert f"kernels wait up to {waits} for them" in one.sentence


# Pauses


def with_phase(one: View, **changed: Any) -> View:
    phase = replace(one.step.phase, **changed)
    return replace(one, steady=replace(one.steady, phases=(phase,)), step=replace(one.step, phase=phase))


def test_operations_of_other_processes_do_not_end_a_pause() -> None:
    one = paused(3 * MS)
    (base,) = pause.propose(one)
    ops = one.capture.gpu_ops
    more = ops.head(1).assign(start_ns=5_950_000, duration_ns=3_000_000, pid=2)
    other = replace(one, capture=replace(one.capture, gpu_ops=pd.concat([ops, more], ignore_index=True)))
    (same,) = pause.propose(other)
    assert (same.lost_ns, same.span) == (base.lost_ns, base.span)
    own = replace(one, capture=replace(one.capture, gpu_ops=pd.concat([ops, more.assign(pid=1)], ignore_index=True)))
    assert list(pause.propose(own)) == []
    zero = with_phase(
        replace(
            other,
            capture=replace(other.capture, gpu_ops=other.capture.gpu_ops.assign(pid=other.capture.gpu_ops["pid"] - 1)),
        ),
        pid=0,
    )
    (same,) = pause.propose(zero)
    assert same.lost_ns == base.lost_ns
    assert list(pause.propose(with_phase(other, pid=-1))) == []  # of an unknown process all operations count


def test_a_step_lasts_until_its_gpu_has_ended() -> None:
    """The host of each step ends half a millisecond before its GPU."""
    one = paused(3 * MS)
    (base,) = pause.propose(one)
    (same,) = pause.propose(with_phase(one, end_ns=one.step.phase.end_ns - 500_000))
    assert (same.lost_ns, same.span) == (base.lost_ns, base.span)
    early = with_phase(one, gpu_end_ns=one.step.phase.end_ns - 500_000)
    (same,) = pause.propose(early)
    assert (same.lost_ns, same.span) == (base.lost_ns, base.span)


# Chains of the plan


def test_a_chain_is_told_already_if_more_than_half_of_it_is() -> None:
    ops = [{"name": MUL, "ns": 30_000.0}, {"name": ADD, "ns": 30_000.0}, {"name": "reduce_kernel", "ns": 60_000.0}, {}]
    one = view(graph([{}] * 4, ops), folded=np.array(["mlp"] * 4, object), plan=plan(kernels="mul > add > reduce"))
    assert list(found(planned.propose, one)) == ["fuse"]


@pytest.mark.parametrize(
    ("now", "bound", "worst", "best"),
    [(1000.0, 900.0, 10_000.0, 9_000.0), (1000.0, 2000.0, 10_000.0, 10_000.0), (1.0, 0.5, 8_000.0, 5_000.0), (0.5, 0.25, 4_000.0, 2_500.0)],
)  # fmt: skip
def test_a_fused_chain_takes_no_longer_than_its_parts(now: float, bound: float, worst: float, best: float) -> None:
    """10 µs in two kernels. The bound is 0.9, 2 or 0.5 of the time; below 1 ns, it is of 1 ns."""
    one = chain()
    one = view(one.graph, folded=one.folded, plan=plan(now_time_ns=now, bound_time_ns=bound))
    change = found(planned.propose, one)["fuse"].change
    assert change is not None
    assert [change(one.graph, share).o_duration[0] for share in (0.0, 1.0)] == pytest.approx([worst, best])


def test_chains_of_other_ranges_do_not_take_the_place_of_those_of_the_step() -> None:
    one = chain()
    rows = pd.concat([*[plan(range="attn", gain_ns=9.0)] * 4, plan()], ignore_index=True)
    assert list(found(planned.propose, view(one.graph, folded=one.folded, plan=rows))) == ["fuse"]
    unknown = pd.concat([*[plan(now_time_ns=np.nan, gain_ns=9.0)] * 4, plan()], ignore_index=True)
    assert list(found(planned.propose, view(one.graph, folded=one.folded, plan=unknown))) == ["fuse"]


def test_the_four_chains_with_the_largest_gain_count_and_the_longest_range_names_them() -> None:
    base = graph([{}] * 12, [{"name": name, "ns": 5_000.0} for _ in range(6) for name in (MUL, "reduce_kernel")])
    folded = np.array([f"mlp{at // 2}" for at in range(12)], object)
    rows = pd.concat([plan(gain_ns=float(at), pattern=f"p{at}", range=f"h + mlp{at}") for at in range(6)])
    titles = [proposal.title for proposal in planned.propose(view(base, folded=folded, plan=rows))]
    assert titles == [f"Fuse p{at} in mlp{at}" for at in (5, 4, 3, 2)]


def test_a_launch_belongs_to_one_chain_that_with_most_kernels_and_to_no_row_of_element_wise_kernels() -> None:
    names = [MUL, "reduce_kernel", MUL, "reduce_kernel", "softmax_forward", MUL, MUL]
    base = graph([{}] * 7, [{"name": name, "ns": 5_000.0} for name in names])
    rows = pd.concat(
        [plan(gain_ns=9.0, pattern="short"), plan(pattern="long", kernels="mul > reduce > softmax")], ignore_index=True
    )
    one = view(base, folded=np.array(["mlp"] * 7, object), plan=rows)
    assert {proposal.title: proposal.count for proposal in planned.propose(one)} == {
        "Fuse short in mlp": 2.0, "Fuse long in mlp": 3.0,
    }  # fmt: skip
    assert found(kernels.propose, one)["fuse"].count == 2.0


# Ranks


def test_a_collective_on_one_gpu_has_no_slow_rank() -> None:
    base = graph([{}] * 2, [{"ns": 90_000.0}, {"ns": 50_000.0, "name": "ncclDevKernel_AllReduce"}])
    one = found(ranks.propose, view(base))
    assert list(one) == ["exposed_communication"]
    assert (one["exposed_communication"].count, one["exposed_communication"].time_ns) == (1, 50_000)


def test_processes_of_two_programs_are_not_uneven() -> None:
    """Of three names they share none, or one: a third; of two names one, which is half."""

    def unlike(first: str, second: str) -> dict[int, float]:
        ops = [
            {"ns": 300_000.0, "name": first},
            {"ns": 50_000.0},
            {"ns": 100_000.0, "stream": 1, "name": second},
            {"ns": 50_000.0, "stream": 1},
        ]
        calls_ = [{"seq": 0}, {"seq": 0}, {"seq": 1}, {"seq": 1}]
        return ranks.unlike(view(graph(calls_, ops, seq_pid=np.array([1, 2]), stream_pid=np.array([1, 2]))))

    assert unlike("a", "b") == {}
    assert unlike("a", "k") == {1: 350_000.0, 2: 150_000.0}


def test_equal_work_saves_the_host_work_beyond_the_mean() -> None:
    """The slowest takes 350 of 300 µs on average: of its 20 ns of host work, a seventh."""
    one = found(ranks.propose, two_ranks(300_000.0, 200_000.0, talk=False))["slow_rank"]
    assert one.time_ns == pytest.approx(20 / 7)
    assert one.about == "Process 1"


# Waits


@pytest.mark.parametrize(
    ("names", "proposed"),
    [(["[CUDA Unified Memory memcpy DtoH]", "[CUDA Unified Memory memcpy HtoD]"], False), (["[CUDA Unified Memory memcpy HtoD]"], True)],
)  # fmt: skip
def test_the_host_waits_before_it_touches_pages_that_come_back(names: list[str], proposed: bool) -> None:
    calls_ = [{}, {"name": "cudaDeviceSynchronize", "wait": STREAM, "target": 0, "own": 8.0}]
    pages = [{"name": name, "kind": "migration", "bytes": 5e4, "ns": 100.0, "call": -1} for name in names]
    assert ("sync" in found(sync.propose, view(graph(calls_, [{}, *pages])))) is proposed
    copied = [copy(D2H, 5e4, call=0)]
    assert "sync" in found(sync.propose, view(graph(calls_, [{}, *copied])))


def test_synchronisations_after_packable_copies_go_with_them() -> None:
    calls_ = [*[{"name": "cudaMemcpyAsync"}] * 4, {"name": "cudaStreamSynchronize", "wait": STREAM, "target": 0}]
    assert "sync" not in found(sync.propose, view(graph(calls_, [copy(D2H)] * 4)))
    assert "sync" in found(sync.propose, view(graph(calls_[1:], [copy(D2H)] * 3)))


# More of what adds up


def test_small_uploads_are_no_weights_and_neither_are_downloads() -> None:
    for third in (copy(size=1024.0), copy(D2H, size=9e4)):
        base = graph([{}] * 3, [copy(size=7e4), copy(size=8e4), third])
        assert "repeated_copy" not in found(copies.propose, view(base))


def test_staged_copies_add_up() -> None:
    """Two uploads of 1 MB, each after 100 µs of host work, and a launch between them."""
    calls_ = [{}, {"name": "cudaMemcpy", "gap": 100_000.0}, {}, {"name": "cudaMemcpy", "gap": 200_000.0}, {}]
    ops = [{"name": "cupy_add__float32"}, copy(size=1e6, call=1), {"call": 2}, copy(size=1e6, call=3), {"call": 4}]
    (one,) = (each for each in copies.propose(view(graph(calls_, ops))) if each.about.startswith("staged"))
    assert (one.count, one.time_ns, one.bytes) == (2, 300_000, 2e6)


def test_the_longest_work_of_a_step_that_repeats_tells_of_batches() -> None:
    """An upload follows the longest of two stretches of host work in one step."""
    calls_ = [{"gap": {2: 500_000.0, 9: 400_000.0}.get(place, 10.0)} for place in range(16)]
    ops = [copy(size=1e6) if place == 3 else {"name": "sgd"} for place in range(16)]
    assert list(found(host_work.propose, view(graph(calls_, ops)))) == ["data_loader"]


def test_launches_of_two_processes_are_told_of_each() -> None:
    """Each launches four kernels of 4 µs in 15 ns each; one of them is a collective, which waits for the other."""
    calls_ = [{"seq": at // 4} for at in range(8)]
    ops = [{"ns": 4_000.0, "stream": at // 4, "group": 0 if at % 4 == 3 else -1} for at in range(8)]
    base = graph(calls_, ops, seq_pid=np.array([1, 2]), stream_pid=np.array([1, 2]))
    one = found(launches.propose, view(base))["launch_bound"]
    assert (one.count, one.time_ns) == (4, 60)
    assert one.sentence == "Each process needs 0.06 µs to launch 4 operations, and its kernels take 12 µs."


def test_the_waits_of_kernels_for_pages_add_up() -> None:
    up = "[CUDA Unified Memory memcpy HtoD]"
    pages = [
        {"name": up, "kind": "migration", "bytes": 1e6, "ns": 20_000.0, "start": at, "call": -1}
        for at in (110_000, 310_000)
    ]
    ops = [
        {"ns": 100_000.0, "start": 100_000, "call": 0},
        pages[0],
        {"ns": 100_000.0, "start": 300_000, "call": 0},
        pages[1],
    ]
    one = found(migration.propose, view(graph([{}], ops)))["migration"]
    assert "kernels wait up to 40 µs for them, the host up to 0 µs" in one.sentence


def test_a_pause_is_the_longest_idle_time_within_its_step() -> None:
    """The step before idles 2.5 ms until the pause begins, the one after 2.5 ms from its end; within it are 2.0 and 1.8."""
    usual = (1_000_000, [(0, 600_000)])
    steps = [usual] * 6 + [
        (3_100_000, [(0, 600_000)]),
        (5_200_000, [(0, 600_000), (2_600_000, 600_000), (5_000_000, 200_000)]),
        (3_100_000, [(2_500_000, 600_000)]),
    ] + [usual] * 7  # fmt: skip
    ends, ops, now = [], [], 0
    for length, own in steps:
        ops += [{"start": now + start, "ns": float(ns), "call": 0} for start, ns in own]
        now += length
        ends.append(now)
    (one,) = pause.propose(view(graph([{}], ops), ends=ends))
    begin = 6 * MS + 3_100_000
    assert one.span == (begin + 600_000, begin + 2_600_000)
    assert one.count == 3


def test_three_quarters_of_the_slowest_process_are_even() -> None:
    assert ranks.unlike(two_ranks(350_000.0, 250_000.0, talk=False)) == {}
    assert ranks.unlike(two_ranks(350_000.0, 249_999.0, talk=False)) == {1: 400_000.0, 2: 299_999.0}


def test_pages_that_move_to_the_gpu_hold_no_host() -> None:
    up = "[CUDA Unified Memory memcpy HtoD]"
    page = {"name": up, "kind": "migration", "bytes": 1e6, "ns": 20_000.0, "start": 40_000, "call": -1}
    base = graph([{}, {"gap": 200_000.0}], [{"call": 0}, page, {"call": 1}])
    one = view(base)
    assert "the host" not in found(migration.propose, one)["migration"].sentence
    assert one.long_gaps.tolist() == [0, 200_000]


def test_the_first_call_of_a_step_may_stage_its_copy() -> None:
    base = graph(
        [{"name": "cudaMemcpy", "gap": 100_000.0}, {}],
        [copy(size=1e6, call=0), {"name": "cupy_add__float32", "call": 1}],
    )
    assert view(base).staging.tolist() == [100_000, 0]


# What a fresh sample of changes was not noticed in


def test_long_host_work_of_a_compiler_is_the_compilers() -> None:
    base = graph([{}, {"name": "cuModuleLoadData", "gap": 500_000.0}, {}], [{}, {"call": 2}])
    assert found(host_work.propose, view(base)) == {}


def test_a_run_of_kernels_in_one_of_three_steps_becomes_one() -> None:
    base = graph([{}] * 3, [{"name": name, "ns": 40_000.0} for name in (MUL, ADD, MUL)], steps=3)
    assert found(kernels.propose, view(base))["fuse"].title == "Fuse 1 kernel into 1"


def test_a_graph_leaves_long_host_work_of_less_than_half_a_step() -> None:
    base = graph([{"gap": 300_000.0} if at == 2 else {} for at in range(8)], [{}] * 8)
    change = found(launches.propose, view(base))["launch_bound"].change
    assert change is not None
    assert change(base, 1.0).c_gap.tolist() == [10, 0, 300_000, *[0] * 5]


def test_the_first_idle_time_of_a_capture_may_be_the_pause() -> None:
    """The first step has no GPU work; the second idles from 1.6 to 5 ms."""
    ops = [{"start": at, "ns": 600_000.0, "call": 0} for at in (MS, *range(5 * MS, 13 * MS, MS))]
    (one,) = pause.propose(view(graph([{}], ops), ends=[MS, *range(5 * MS, 14 * MS, MS)]))
    assert one.span == (1_600_000, 5 * MS)


def test_two_of_five_long_steps_are_a_part_of_the_loop() -> None:
    assert list(pause.propose(paused(3 * MS, 3 * MS, steps=5))) == []


def test_a_load_belongs_to_the_step_in_which_it_begins() -> None:
    one = paused(loads=[("cuModuleLoadData", 1_900_000, 2_100_000)])
    ends = one.step.phase.end_ns
    assert pause._warms_up(one, ends[:-1], ends[1:]).tolist() == [True, *[False] * 8]


def test_a_fused_chain_needs_no_more_than_its_parts() -> None:
    one = chain()
    told = found(planned.propose, view(one.graph, folded=one.folded, plan=plan(bound_time_ns=2000.0)))["fuse"]
    assert "take 10 µs. One kernel for each chain needs at least 10 µs" in told.sentence


def test_the_library_with_most_time_counts() -> None:
    ops = [{"name": "at::native::k", "ns": 10.0}, {"name": "cupy_add", "ns": 60.0}, {"name": "k", "ns": 90.0}]
    assert view(graph([{}] * 3, ops)).library == "cupy"


def test_what_compiles_may_begin_at_the_end_of_the_step_before() -> None:
    names = ["cuModuleLoadData", "cudaLaunchKernel", "cudaMalloc", "cudaEventRecord"]
    one = view(graph([{"name": name} for name in names], [{"call": 1}]))
    assert one.compiling.tolist() == [True, False, True, True]
