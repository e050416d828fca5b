"""What a rule on a step proposes at its thresholds, on a few calls and operations; times in ns, a step lasts 1 ms."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.diagnosis.step_rules import (
    alignment,
    calls,
    copies,
    counted,
    host_work,
    kernels,
    launches,
    migration,
    own_chain,
    pause,
    planned,
    ranks,
    sync,
)
from analysis.diagnosis.step_rules.view import Proposal, View
from analysis.diagnosis.vocabulary import library_of
from analysis.formats.report import Confidence
from analysis.hardware.devices import find_device
from analysis.replay.graph import NONE, OPERATION, STREAM
from tests.by_hand import bools, graph, view

MS = 1_000_000
H2D, D2H, D2D = (f"[CUDA memcpy {way}]" for way in ("Host-to-Device", "Device-to-Host", "Device-to-Device"))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pauses of a millisecond count, as the steps here are short."""
    monkeypatch.setattr(pause, "ONCE_NS", 0.0)


def copy(name: str = H2D, size: float = 1024.0, ns: float = 2_000.0, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "memcpy", "bytes": size, "ns": ns} | more


def found(rule: Callable[[View], Iterator[Proposal]], one: View) -> dict[str, Proposal]:
    return {proposal.kind: proposal for proposal in rule(one)}


# What a rule sees


def test_amounts_are_of_one_step() -> None:
    one = view(
        graph([{}] * 4, [{"ns": 30.0}, {"ns": 10.0, "name": "x"}, {"ns": 30.0, "name": "x"}, copy()], steps=2), wall=70
    )
    assert (one.of_step(9), one.time(one.kernels), one.share(7.0)) == (4.5, 35.0, 0.1)
    assert (one.most(one.kernels), one.most(bools(of=4))) == ("x", "")
    assert view(graph([{}], [{}]), wall=0).share(5.0) == 0.0
    assert (one.repeats, view(graph([{}], [{}]), count=1).repeats) == (True, False)


@pytest.mark.parametrize(
    ("name", "reason", "count", "is_run"),
    [
        ("capture", "short", 1, True),
        ("capture", "", 1, False),
        ("s", "short", 1, False),
        ("capture", "short", 2, False),
    ],
)
def test_the_whole_capture_is_the_step_only_where_nothing_repeats(
    name: str, reason: str, count: int, is_run: bool
) -> None:
    assert view(graph([{}], [{}]), name=name, reason=reason, count=count).is_run is is_run


def test_four_small_copies_to_the_host_in_a_row_are_packable() -> None:
    def packable(count: int, size: float = 65_536.0) -> int:
        return int(view(graph([{}] * (count + 1), [*[copy(D2H, size)] * count, {}])).packable.sum())

    assert (packable(3), packable(4), packable(4, 65_537.0)) == (0, 4, 0)


def test_batches_begin_after_other_work() -> None:
    sizes = [1e6, 1e6, 0.0, 1e6, 65_536.0, 1e6]
    ops = [copy(size=size) if size else {} for size in sizes]
    assert view(graph([{}] * 6, ops)).batches == 3


@pytest.mark.parametrize(
    ("many", "batches", "count", "once"), [(2, 5, 1, True), (2, 4, 1, False), (5, 5, 1, False), (2, 5, 9, False)]
)
def test_few_long_gaps_beside_many_batches_belong_to_no_loop(many: int, batches: int, count: int, once: bool) -> None:
    calls_ = [{"gap": 900_000.0} if at < many else {} for at in range(12)]
    ops = [copy(size=1e6) if at % 2 == 0 and at < 2 * batches else {} for at in range(12)]
    assert bool(view(graph(calls_, ops), count=count).once.any()) is once


@pytest.mark.parametrize(
    ("names", "library"),
    [
        (["void at::native::k", "k"], "pytorch"), (["loop_add_fusion", "k"], "jax"), (["cupy_add", "k"], "cupy"), (["k", "k"], "cuda"),
    ],
)  # fmt: skip
def test_the_library_is_that_of_the_kernels(names: list[str], library: str) -> None:
    assert view(graph([{}] * 2, [{"name": name} for name in names])).library == library


def test_a_twentieth_of_the_time_is_too_little_for_a_library() -> None:
    ops = [{"name": "cupy_add", "ns": 5.0}, {"name": "k", "ns": 95.0}]
    assert view(graph([{}] * 2, ops)).library == "cuda"
    ops[0]["ns"] = 6.0
    assert view(graph([{}] * 2, ops)).library == "cupy"


def test_the_share_of_kernels_in_graphs() -> None:
    calls_ = [{"name": "cudaGraphLaunch"}, {}]
    one = view(graph(calls_, [{"call": 0}, {"call": 0}, {"call": 0}, {"call": 1}, copy(call=0)]))
    assert one.graphed == 0.75
    assert view(graph([{}], [{"kind": "graph", "call": -1}])).graphed == 1.0


# Copies


@pytest.mark.parametrize(("count", "size", "proposed"), [(3, 1024.0, False), (4, 65_536.0, True), (4, 65_537.0, False)])
def test_four_small_copies_could_be_one(count: int, size: float, proposed: bool) -> None:
    one = found(copies.propose, view(graph([{}] * count, [copy(size=size)] * count)))
    assert ("small_copies" in one) is proposed
    if proposed:
        assert (one["small_copies"].count, one["small_copies"].bytes, one["small_copies"].time_ns) == (
            4,
            262_144,
            8_000,
        )
        assert "move 0.3 MB in 8 µs" in one["small_copies"].sentence


def test_small_copies_whose_sizes_the_export_rounds_to_nothing_only_take_time() -> None:
    one = found(copies.propose, view(graph([{}] * 4, [copy(size=0.0)] * 4)))["small_copies"]
    assert one.sentence == "4 copies of at most 64 KB a step take 8 µs; each pays for a call of its own."


@pytest.mark.parametrize(
    ("memory", "size", "kind"),
    [("Pageable -> Device", 1e5, "pageable_copy"), ("Pageable -> Device", 99_999.0, None), ("Pinned -> Device", 1e5, "copies_not_overlapped"),
     ("Pinned -> Device", 99_999.0, None)],
)  # fmt: skip
def test_large_copies_belong_in_pinned_memory_beside_the_kernels(memory: str, size: float, kind: str | None) -> None:
    one = found(copies.propose, view(graph([{}], [copy(D2H, size, 50_000.0)]), memory=memory))
    assert list(one) == ([kind] if kind else [])


@pytest.mark.parametrize(("ns", "kinds"), [(99_000.0, []), (101_000.0, ["copies_not_overlapped"])])
def test_copies_of_less_than_a_hundredth_of_the_step_have_nothing_to_overlap(ns: float, kinds: list[str]) -> None:
    one = found(copies.propose, view(graph([{}], [copy(D2H, 1e6, ns)]), memory="Pinned -> Device", wall=10_000_000))
    assert list(one) == kinds


@pytest.mark.parametrize(
    ("size", "ns", "low", "high"), [(1e6, 500_000.0, 0.1, 0.04), (1e6, 25_000.0, 1.0, 0.8), (1e6, 10_000.0, 1.0, 1.0)]
)
def test_pinned_copies_run_at_20_to_50_gb_a_second(size: float, ns: float, low: float, high: float) -> None:
    """1 MB in 500 µs is 2 GB/s: a tenth of the time at 20, a 25th at 50; a faster copy gets no slower."""
    base = graph([{"name": "cudaMemcpy", "own": 90_000.0}], [copy(D2H, size, ns)])
    one = found(copies.propose, view(base, memory="Device -> Pageable"))["pageable_copy"]
    assert one.change is not None
    for share, factor in ((0.0, low), (1.0, high)):
        changed = one.change(base, share)
        assert changed.o_duration[0] == pytest.approx(ns * factor)
        assert changed.c_own.tolist() == [10_000]
    assert f"{size / ns:,.1f} GB/s" in one.sentence


@pytest.mark.parametrize(
    ("sizes", "steps", "count", "repeated"),
    [([7e4, 8e4, 9e4], 1, 9, True), ([7e4, 8e4], 1, 9, False), ([7e4, 8e4] * 2, 2, 9, False), ([7e4, 8e4, 9e4] * 2, 2, 9, True), ([7e4, 8e4, 9e4, 9e4], 2, 9, False),
     ([7e4, 8e4, 9e4], 1, 1, False)],
)  # fmt: skip
def test_three_large_uploads_that_are_the_same_in_each_step_are_weights(
    sizes: list[float], steps: int, count: int, repeated: bool
) -> None:
    one = found(
        copies.propose, view(graph([{}] * len(sizes), [copy(size=size) for size in sizes], steps=steps), count=count)
    )
    assert ("repeated_copy" in one) is repeated
    if repeated:
        assert (one["repeated_copy"].count, one["repeated_copy"].bytes) == (3, 240_000)
        assert "0.2 MB" in one["repeated_copy"].sentence


@pytest.mark.parametrize(("ns", "proposed"), [(199_999.0, False), (200_000.0, True)])
def test_sets_of_a_fifth_of_the_step_are_a_finding(ns: float, proposed: bool) -> None:
    one = found(copies.propose, view(graph([{}], [{"kind": "memset", "ns": ns, "bytes": 5e6}])))
    assert ("redundant_copy" in one) is proposed
    if proposed:
        assert ", 25 GB/s" in one["redundant_copy"].sentence


def test_pages_that_a_kernel_waits_for_come_before_it() -> None:
    """A kernel of 100 µs from 100 on, while 1 MB comes from 110 to 130 and 1 MB from 150 to 160: it waits 30 to 50 µs."""
    up = "[CUDA Unified Memory memcpy HtoD]"
    pages = [
        {"name": up, "kind": "migration", "bytes": 1e6, "ns": ns, "start": at, "call": -1}
        for at, ns in ((110_000, 20_000.0), (150_000, 10_000.0))
    ]
    base = graph([{}], [{"ns": 100_000.0, "start": 100_000, "call": 0}, *pages])
    one = found(migration.propose, view(base))["migration"]
    assert (one.count, one.bytes, one.time_ns) == (2, 2e6, 30_000)
    assert "kernels wait up to 50 µs for them" in one.sentence
    assert one.change is not None
    rates = [one.change(base, share).o_duration.tolist() for share in (0.0, 1.0)]
    assert rates[0] == [100_000, 0, 0]  # 100 − 30 and 2 MB at 20 GB/s are no shorter
    assert rates[1] == [90_000, 0, 0]  # 100 − 50 and 2 MB at 50 GB/s


@pytest.mark.parametrize(("between", "old"), [(17_999.0, [0, 1]), (18_000.0, [])])
def test_what_the_kernels_since_cannot_have_made_was_there_before(between: float, old: list[int]) -> None:
    """Two neighbours take 18 µs; what makes their bytes takes no less, also over the end of a step."""
    ops = [{"name": "at::native::CatArrayBatchedCopy", "ns": 9_000.0}] * 2 + [{"ns": between}]
    one = view(graph([{}] * 3, ops))
    assert np.flatnonzero(kernels._old(one, kernels._cats(one))).tolist() == old


@pytest.mark.parametrize(
    ("size", "text"),
    [(99_999.0, "100.0 KB"), (1e5, "0.1 MB"), (1_000.0, "1.0 KB"), (999.0, "999 bytes"), (3e9, "3,000.0 MB")],
)
def test_sizes_have_a_unit(size: float, text: str) -> None:
    assert copies.size_of(size) == text


# Calls and host work


def test_an_allocation_goes_with_half_of_the_host_work_before_it() -> None:
    base = graph([{}, {"name": "cudaMalloc", "own": 600.0, "wait": STREAM, "target": 0, "tail": 9.0}], [{}])
    change = found(calls.propose, view(base))["allocation"].change
    assert change is not None
    changed = change(base, 0.5)
    assert (changed.c_own.tolist(), changed.c_gap.tolist(), changed.c_tail.tolist()) == ([5, 0], [10, 5], [0, 0])
    assert changed.c_wait.tolist() == [NONE, NONE]


def test_a_module_that_each_step_loads_takes_its_host_work_along() -> None:
    base = graph([{}, {"name": "cuModuleLoadData", "gap": 700.0, "own": 300.0}, {}], [{}, {"call": 2}])
    one = found(calls.propose, view(base))["compile_in_loop"]
    assert one.sentence == "1 call a step loads or compiles kernels, for 1 µs: cuModuleLoadData."
    assert (one.time_ns, one.count, one.title) == (1_000, 1, "Compile and load kernels before the loop")
    assert one.change is not None
    assert one.change(base, 0.0).c_gap.tolist() == [10, 0, 10]
    run = found(calls.propose, view(base, count=1, name="capture", reason="short"))
    assert run["start_up"].title == "Do not count what happens once"
    plans = graph(
        [{}, {"name": "cuModuleLoadData"}, {}], [{}, {"call": 2, "ns": 90.0, "name": "void vector_fft<float2>"}]
    )
    assert (one.do, found(calls.propose, view(plans))["compile_in_loop"].do[:18]) == ("", "Keep cuFFT's plans")


def busy_host(gap: float = 500_000.0, ranges: pd.DataFrame | None = None) -> View:
    """Eight launches; before the third, the host works."""
    calls_ = [{"gap": gap} if at == 2 else {} for at in range(8)]
    return view(graph(calls_, [{"name": "k"}] * 8), capture={} if ranges is None else {"ranges": ranges})


@pytest.mark.parametrize(("gap", "proposed"), [(100_000.0, False), (100_001.0, True)])
def test_host_work_of_more_than_100_us_is_of_its_own(gap: float, proposed: bool) -> None:
    one = found(host_work.propose, busy_host(gap))
    assert ("host_work" in one) is proposed
    if proposed:
        assert (one["host_work"].count, one["host_work"].time_ns) == (1, gap)
        assert one["host_work"].span == (25 + 5, 25 + 5 + gap)


@pytest.mark.parametrize(("each", "threads", "said"), [(MS / 4, 2, False), (MS / 3, 2, True), (MS / 3, 1, False)])
def test_threads_beside_each_other_may_take_longer_than_the_step(each: float, threads: int, *, said: bool) -> None:
    launch = {"launches": True, "own": each - 10.0}
    one = view(graph([launch | {"seq": at % threads} for at in range(4)], [{}] * 4))
    told = found(launches.propose, one)["launch_bound"].sentence
    assert told.startswith("The host's threads need, all together," if said else "The host needs")
    work = [{"gap": 2 * each} if at in (4, 5) else {} for at in range(16)]
    one = view(graph([call | {"seq": at % threads} for at, call in enumerate(work)], [{}] * 16))
    told = found(host_work.propose, one)["host_work"].sentence
    assert told.startswith("In all, the host's threads spend" if said else "The host works for")


def test_host_work_goes_and_short_gaps_stay() -> None:
    one = busy_host()
    change = found(host_work.propose, one)["host_work"].change
    assert change is not None
    assert change(one.graph, 0.5).c_gap.tolist() == [10, 10, 0, 10, 10, 10, 10, 10]


@pytest.mark.parametrize(
    ("name", "begin", "end", "kind", "about"),
    [
        ("read shard", 100, 400_000, "storage", "read shard"), ("next batch", 100, 400_000, "data_loader", "next batch"),
        ("score", 100, 400_000, "host_work", "score"), ("next batch", 100, 1_000, "host_work", "between launches"),  # beside it
        ("next batch", 0, 600_000, "host_work", "between launches"),  # the step itself
    ],
)  # fmt: skip
def test_a_range_around_host_work_names_its_kind(name: str, begin: int, end: int, kind: str, about: str) -> None:
    ranges = pd.DataFrame({"name": [name], "start_ns": [begin], "end_ns": [end], "pid": [1], "level": [0]})
    (one,) = found(host_work.propose, busy_host(ranges=ranges)).values()
    assert (one.kind, one.about) == (kind, about)


# Launches and waits


@pytest.mark.parametrize(
    ("count", "name", "proposed"),
    [(3, "cudaLaunchKernel", False), (4, "cudaLaunchKernel", True), (4, "cudaGraphLaunch", False)],
)
def test_four_launches_could_be_a_graph(count: int, name: str, proposed: bool) -> None:
    one = found(launches.propose, view(graph([{"name": name, "launches": True}] * count, [{"ns": 7.0}] * count)))
    assert ("launch_bound" in one) is proposed
    if proposed:
        assert (one["launch_bound"].count, one["launch_bound"].time_ns) == (4, 4 * 15)
        assert one["launch_bound"].after == ""


@pytest.mark.parametrize(("count", "title", "says"), [(1, "Launch many steps as one CUDA graph", "around many steps: a graph of one"),
                                                      (2, "Launch the step as one CUDA graph", "")])  # fmt: skip
def test_a_graph_of_one_launch_would_save_nothing(count: int, title: str, says: str) -> None:
    base = graph([{"launches": True}] * count, [{"ns": 7.0}] * count)
    one = found(launches.propose, view(base, count=16, wall=100))["launch_bound"]
    assert one.title == title
    assert says in one.do
    assert bool(one.do) == bool(says)


@pytest.mark.parametrize(("ns", "wall", "proposed"), [(31.0, 275, False), (30.0, 260, True), (31.0, 276, True)])
def test_a_host_that_is_far_ahead_of_a_full_gpu_needs_no_graph(ns: float, wall: int, proposed: bool) -> None:
    """Eight launches take the host 120 ns: less than half of 248, which are more than nine tenths of 275."""
    base = graph([{"launches": True}] * 8, [{"ns": ns}] * 8)
    assert ("launch_bound" in found(launches.propose, view(base, wall=wall))) is proposed


def test_host_work_of_its_own_is_no_launch() -> None:
    assert found(launches.propose, busy_host())["launch_bound"].time_ns == 7 * 15 + 5


@pytest.mark.parametrize(("name", "size", "waits"), [(D2H, 4_096.0, True), (D2H, 4_097.0, False), (H2D, 4.0, False)])
def test_a_value_that_is_read_holds_the_host(name: str, size: float, waits: bool) -> None:
    calls_ = [{}, {"name": "cudaMemcpy", "own": 50.0, "wait": OPERATION, "target": 1}]
    one = found(sync.propose, view(graph(calls_, [{}, copy(name, size)])))
    assert ("sync" in one) is waits
    if waits:
        assert (one["sync"].count, one["sync"].time_ns) == (1, 50)
        assert "to read a value back" in one["sync"].sentence


@pytest.mark.parametrize(("count", "repeats", "proposed"), [(1, 9, True), (4, 1, False), (5, 1, True)])
def test_synchronisations_of_a_loop_are_a_finding(count: int, repeats: int, proposed: bool) -> None:
    calls_ = [{}, *[{"name": "cudaDeviceSynchronize", "wait": STREAM, "target": 0, "own": 8.0}] * count]
    one = found(sync.propose, view(graph(calls_, [{}]), count=repeats))
    assert ("sync" in one) is proposed
    if proposed:
        assert (one["sync"].count, one["sync"].time_ns) == (count, 8 * count)
        assert "to synchronise" in one["sync"].sentence


@pytest.mark.parametrize(("fill", "makes"), [(0.0199, True), (0.02, False)])
def test_a_tiny_kernel_before_a_read_makes_the_value(fill: float, makes: bool) -> None:
    one = view(graph([{}] * 3, [{"fill": fill}, copy(D2H, 4.0), {"fill": 0.001}]))
    assert sync._makes(one, bools(1, of=3)).tolist() == [makes, False, False]


@pytest.mark.parametrize(("ns", "better"), [(124_000.0, True), (125_000.0, False)])
def test_only_a_step_whose_kernels_take_less_than_half_may_save_what_larger_kernels_do(ns: float, better: bool) -> None:
    base = graph([{}] * 4, [{"ns": ns, "fill": 0.1}] * 4)
    one = found(launches.propose, view(base, wall=1_000_000))["launch_bound"]
    assert (one.best_ns is not None) is better


# Kernels

SGEMM, MUL, ADD = (
    "ampere_sgemm_128x64_tn",
    "at::native::elementwise_kernel<MulFunctor>",
    "at::native::elementwise_kernel<AddFunctor>",
)


@pytest.mark.parametrize(
    ("name", "ns", "proposed"),
    [
        (SGEMM, 10_000.0, True), (SGEMM, 9_999.0, False), ("sgemm_tf32_tensorop", 90_000.0, False),
        ("cudnn::detail::dgrad_engine<float, (int)512>", 10_000.0, True), ("dgrad_engine<__half>", 90_000.0, False),
    ],
)  # fmt: skip
def test_products_in_fp32_of_a_hundredth_of_the_step_are_a_finding(name: str, ns: float, proposed: bool) -> None:
    base = graph([{}] * 2, [{"name": name, "ns": ns}, {}])
    one = found(kernels.propose, view(base))
    assert ("precision" in one) is proposed
    if proposed:
        change = one["precision"].change
        assert change is not None
        times = [change(base, share).o_duration[0] / ns for share in (0.0, 0.5, 1.0)]
        assert times == pytest.approx([0.6, 0.375, 0.15])
        assert ("cudnn.allow_tf32" in one["precision"].do) is ("dgrad" in name)
        assert one["precision"].most_ns == pytest.approx((1 - 1 / 16 + 0.02) * ns)  # a faster product takes time, too


@pytest.mark.parametrize(("name", "left"), [("NVIDIA H200", 67 / 989.5), ("NVIDIA A100-SXM4-40GB", 1 / 16), ("", 1 / 16), ("Tesla P100-PCIE-16GB", 1 / 16)])  # fmt: skip
def test_the_rates_of_a_gpu_leave_a_part_of_a_product(name: str, left: float) -> None:
    assert kernels._rates(find_device(name) if name else None) == pytest.approx(left, rel=0.01)


def test_convolutions_of_jax_need_no_switch_of_pytorch() -> None:
    ops = [{"name": "wgrad_alg0_engine<float, 128>", "ns": 10_000.0}, {"name": "loop_add_fusion", "ns": 10_000.0}]
    assert found(kernels.propose, view(graph([{}] * 2, ops)))["precision"].do == ""


def test_one_kernel_of_pytorch_tells_its_library() -> None:
    assert library_of(["nvjet_hsh", "at::native::elementwise_kernel"], [99.0, 1.0]) == "pytorch"
    assert library_of(["mine", "loop_add_fusion"], [99.0, 1.0]) == "cuda"


@pytest.mark.parametrize(
    ("names", "grids", "again"),
    [
        (["bfloat16_copy_kernel"] * 5, "8x1x1", 4), (["bfloat16_copy_kernel"] * 4, "8x1x1", 0),
        (["bfloat16_copy_kernel"] * 5, ["8x1x1"] * 4 + ["9x1x1"], 0), (["bfloat16_copy_kernel"] * 5 + ["sgd_step"], "8x1x1", 0),
    ],
)  # fmt: skip
def test_a_conversion_made_five_times_a_step_could_be_made_once(names: list[str], grids: Any, again: int) -> None:
    base = graph([{}] * len(names), [{"name": name, "ns": 10_000.0} for name in names])
    one = found(kernels.propose, view(base, grid=grids))
    assert ("repeated_casts" in one) is bool(again)
    if again:
        change = one["repeated_casts"].change
        assert change is not None
        assert (change(base, 1.0).o_duration == 0).sum() == again
        assert change(base, 1.0).o_duration[0] == 10_000


@pytest.mark.parametrize(
    ("name", "ns", "kind"),
    [("nchwToNhwcKernel", 50_000.0, "layout"), ("nchwToNhwcKernel", 49_999.0, None), ("direct_copy_kernel", 120_000.0, "redundant_copy"),
     ("direct_copy_kernel", 10_000.0, "redundant_copy"), ("direct_copy_kernel", 9_999.0, None)],
)  # fmt: skip
def test_kernels_that_only_move_data_could_go(name: str, ns: float, kind: str | None) -> None:
    base = graph([{}] * 2, [{"name": name, "ns": ns}, {"ns": 1e5}])
    one = found(kernels.propose, view(base))
    assert list(one) == ([kind] if kind else [])
    alone = graph([{}] * 2, [{"name": name, "ns": ns}, {"ns": ns / 4 - 10}])  # transposing is all that this does
    assert ("layout" in found(kernels.propose, view(alone))) is False
    if kind:
        change = one[kind].change
        assert change is not None
        assert [change(base, share).o_duration[0] for share in (0.0, 0.49, 0.5)] == [ns / 2, ns / 2, 0]
        assert one[kind].needed is (ns == 10_000.0)  # most programs need so few copies


def test_element_by_element_kernels_that_follow_each_other_fuse() -> None:
    """Three kernels of 30, 50 and 40 µs: at best the longest; at worst five of nine tensors are left, 66.7 µs."""
    base = graph(
        [{}] * 4,
        [{"name": name, "ns": ns} for name, ns in ((MUL, 30_000.0), (ADD, 50_000.0), (MUL, 40_000.0), ("gemm", 9.0))],
    )
    one = found(kernels.propose, view(base))["fuse"]
    assert (one.count, one.time_ns, one.title) == (3, 120_000, "Fuse 3 kernels into 1")
    assert one.change is not None
    times = [one.change(base, share).o_duration.tolist() for share in (0.0, 0.5, 1.0)]
    assert times[0] == pytest.approx([120_000 * 5 / 9, 0, 0, 9])
    assert times[1] == pytest.approx([(120_000 * 5 / 9 + 50_000) / 2, 0, 0, 9])
    assert times[2] == [50_000, 0, 0, 9]
    assert "fuse" not in found(kernels.propose, view(base, wall=12_000_001))


@pytest.mark.parametrize(
    ("name", "pointwise"),
    [
        (MUL, True),
        ("triton_poi_fused_add", False),
        ("cupy_add__float32_float32", True),
        ("cupy_sum__float32", False),
        ("gemm", False),
    ],
)
def test_element_by_element_kernels_are_those_that_nobody_fused(name: str, pointwise: bool) -> None:
    assert kernels._pointwise(name) is pointwise


@pytest.mark.parametrize(
    ("fill", "ns", "name", "kind"),
    [
        (0.24, 16_000.0, "rows", "small_grid"), (0.25, 16_000.0, "rows", None), (0.24, 15_000.0, "rows", None), (0.24, 16_000.0, SGEMM, "precision"),
    ],
)  # fmt: skip
def test_a_long_kernel_on_a_quarter_of_the_gpu_is_a_small_grid(
    fill: float, ns: float, name: str, kind: str | None
) -> None:
    base = graph([{}] * 2, [{"name": name, "ns": ns, "fill": fill}, {"ns": 5.0}])
    one = found(kernels.propose, view(base))
    assert list(one) == ([kind] if kind else [])
    if kind == "small_grid":
        assert "fills 24% of the GPU" in one[kind].sentence
        change = one[kind].change
        assert change is not None
        assert [change(base, share).o_duration[0] for share in (0.0, 0.5)] == [8_000, 16_000 * 0.24]


@pytest.mark.parametrize(("grid", "kinds"), [("49x1x1", ["small_grid"]), ("50x1x1", []), ("5x10x1", [])])
def test_blocks_on_three_of_eight_sms_are_no_small_grid(grid: str, kinds: list[str]) -> None:
    base = graph([{}] * 2, [{"name": "rows", "ns": 16_000.0, "fill": 0.1}, {"ns": 5.0}])
    assert list(found(kernels.propose, view(base, grid=grid))) == kinds


@pytest.mark.parametrize(("name", "by_hand"), [("attend", True), ("at::native::reduce_kernel", False)])
def test_a_kernel_of_ones_own_beside_those_of_pytorch_is_split_by_hand(name: str, *, by_hand: bool) -> None:
    ops = [{"name": name, "ns": 16_000.0, "fill": 0.1}, {"name": "at::native::vectorized_layer_norm_kernel", "ns": 5.0}]
    one = found(kernels.propose, view(graph([{}] * 2, ops), wall=20_000))["small_grid"]
    assert one.do.startswith("More blocks: split") is by_hand


def test_one_small_kernel_a_step_runs_beside_those_of_other_steps() -> None:
    base = graph([{}] * 4, [{"name": "rows", "ns": 20_000.0, "fill": 0.2} for _ in range(4)], steps=4)
    one = found(kernels.propose, view(base))["serial_streams"]
    assert one.title == "Run small kernels of several steps beside each other"
    assert one.sentence == "1 kernel a step fills at most 25% of the GPU, and runs alone for 20 µs."
    assert (one.better, one.most_ns) == ("", None)


@pytest.mark.parametrize(("fill", "kind"), [(0.2, "serial_streams"), (0.24, "serial_streams"), (0.2500001, None)])
def test_small_kernels_in_a_row_could_run_beside_each_other(fill: float, kind: str | None) -> None:
    base = graph([{}] * 4, [{"name": f"b{at}", "ns": 20_000.0, "fill": fill} for at in range(4)])
    one = found(kernels.propose, view(base))
    assert list(one) == ([kind] if kind else [])
    if kind:
        change = one[kind].change
        assert change is not None
        assert change(base, 1.0).o_duration.sum() == pytest.approx(20_000)
        assert change(base, 0.0).o_duration.sum() == pytest.approx(20_000 + 60_000 / 4)
        assert (one[kind].most_ns, one[kind].best_ns) == (pytest.approx(60_400), None)  # the longest takes 2 % less


@pytest.mark.parametrize(("apart", "kind"), [(9_999, "small_grid"), (10_000, "serial_streams")])
def test_kernels_of_two_streams_that_run_at_once_are_not_serial(apart: int, kind: str) -> None:
    ops = [{"name": f"b{at}", "ns": 20_000.0, "fill": 0.2, "stream": at % 2} for at in range(4)]
    base = graph([{}] * 4, ops)
    base = replace(base, o_start=np.array([0, apart, 100_000, 100_000 + apart]))
    one = found(kernels.propose, view(base))
    assert list(one) == [kind]
    if kind == "small_grid":  # of two that run at once, one counts
        assert one[kind].sentence == "2 launches a step fill 20% of the GPU on average, for 40 µs."
    assert list(found(kernels.propose, view(replace(base, stream_pid=np.array([1, 2]))))) == ["serial_streams"]


@pytest.mark.parametrize(
    ("own", "ns", "kind", "said"),
    [
        (3, 16_000.0, "serial_streams", "3 kernels a step fill at most 25% of the GPU each, and run one after another for 120 µs."),
        (1, 16_000.0, "small_grid", "1 launch a step fills 20% of the GPU on average, for 40 µs."),
        (1, 21_000.0, "small_grid", "1 launch a step fills 20% of the GPU on average, for 40 µs."),
        (1, 41_000.0, "small_grid", "1 launch a step fills 10% of the GPU on average, for 41 µs."),
    ],
)  # fmt: skip
def test_a_small_kernel_beside_a_longer_one_of_another_stream_does_not_count(
    own: int, ns: float, kind: str, said: str
) -> None:
    """The last kernel begins with the first one, on another stream, so the shorter one of both takes no time."""
    ops = [{"name": "row", "ns": 40_000.0, "fill": 0.2} for _ in range(own)]
    base = graph([{}] * (own + 1), [*ops, {"name": "beside", "ns": ns, "fill": 0.1, "stream": 1}])
    base = replace(base, o_start=np.array([*range(0, own * 40_000, 40_000), 0]))
    (one,) = found(kernels.propose, view(base)).values()
    assert (one.kind, one.sentence) == (kind, said)


# Tables of kernels and chains


def diagnosed(**more: Any) -> pd.DataFrame:
    base = {
        "kernel": "k",
        "rank": 1,
        "gain_low_frac": 0.1,
        "gain_bound_frac": 0.4,
        "defect": "uncoalesced_loads",
        "reason": "Why.",
        "sure_frac": 0.7,
    }
    return pd.DataFrame([base | more])


@pytest.mark.parametrize(
    ("more", "ns", "proposed"),
    [
        ({}, 5_000.0, True),
        ({}, 4_999.0, False),
        ({"rank": 2}, 5_000.0, False),
        ({"gain_bound_frac": 0.0}, 5_000.0, False),
    ],
)
def test_the_first_cause_of_a_kernel_is_a_change_of_the_step(more: dict[str, Any], ns: float, proposed: bool) -> None:
    base = graph([{}], [{"ns": ns}])
    one = found(counted.propose, view(base, counted=diagnosed(**more)))
    assert ("uncoalesced_loads" in one) is proposed
    if proposed:
        change = one["uncoalesced_loads"].change
        assert change is not None
        assert [change(base, share).o_duration[0] / ns for share in (0.0, 1.0)] == pytest.approx([0.9, 0.6])


@pytest.mark.parametrize(
    ("in_nsys", "in_ncu", "proposed"),
    [
        ("void histogram<4>(const float *, int *)", "histogram<(int)4>(const float *, int *)", True),
        ("histogram", "histogram(const float *, int *)", True),
        ("histogram", "scatter(const float *, int *)", False),
        # nobody edits a kernel of a library
        ("void at::native::elementwise_kernel<F>(int)", "elementwise_kernel<F>", False),
        ("sm80_xmma_gemm_f32f32", "sm80_xmma_gemm_f32f32", False),
    ],
)
def test_a_cause_meets_its_kernel_by_the_key_of_both_names(in_nsys: str, in_ncu: str, proposed: bool) -> None:
    base = graph([{}], [{"ns": 9_000.0, "name": in_nsys}])
    assert bool(list(counted.propose(view(base, counted=diagnosed(kernel=in_ncu))))) is proposed


@pytest.mark.parametrize(("sure", "said"), [(0.7, Confidence.LIKELY), (0.69, Confidence.UNSURE)])
def test_a_cause_is_likely_from_seven_tenths_on(sure: float, said: Confidence) -> None:
    (one,) = counted.propose(view(graph([{}], [{"ns": 9_000.0}]), counted=diagnosed(sure_frac=sure)))
    assert one.sure is said


def plan(**more: Any) -> pd.DataFrame:
    base = {"range": "mlp", "pattern": "norm", "kernels": "mul > reduce", "gain_ns": 5.0, "now_time_ns": 1000.0, "bound_time_ns": 250.0,
            "scope": "chain"}  # fmt: skip
    return pd.DataFrame([base | more])


def chain(ns: float = 5_000.0) -> View:
    return view(graph([{}] * 3, [{"name": MUL, "ns": ns}, {"name": "reduce_kernel", "ns": ns}, {"name": "gemm", "ns": 5.0}]),
                folded=np.array(["mlp", "mlp", "mlp"], object), plan=plan())  # fmt: skip


def test_a_chain_of_the_plan_is_one_kernel_of_its_bytes() -> None:
    """10 µs, of which the bytes need a quarter: at best 2.5 µs, at worst 1.6 times that."""
    one = chain()
    change = found(planned.propose, one)["fuse"].change
    assert change is not None
    assert change(one.graph, 1.0).o_duration.tolist() == [2_500, 0, 5]
    assert change(one.graph, 0.0).o_duration.tolist() == [4_000, 0, 5]
    assert (list(found(planned.propose, chain(1_249.0))), list(found(planned.propose, chain(1_250.0)))) == (
        [],
        ["fuse"],
    )


# Ranks


def two_ranks(first: float = 300_000.0, second: float = 100_000.0, *, talk: bool = True, **more: Any) -> View:
    """Two processes: a kernel each, then a collective of 50 µs. Calls take 15 ns."""
    collective = "ncclDevKernel_AllReduce" if talk else "k"
    ops = [
        {"ns": first},
        {"ns": 50_000.0, "name": collective},
        {"ns": second, "stream": 1},
        {"ns": 50_000.0, "stream": 1, "name": collective},
    ]
    base = graph(
        [{"seq": 0}, {"seq": 0}, {"seq": 1}, {"seq": 1}], ops, seq_pid=np.array([1, 2]), stream_pid=np.array([1, 2])
    )
    return view(base, **more)


@pytest.mark.parametrize(("first", "proposed"), [(103_000.0, True), (102_999.0, False)])
def test_a_rank_whose_launches_take_3_percent_longer_is_slow(first: float, proposed: bool) -> None:
    """Less, the same launches may take on another board of the same model."""
    one = two_ranks(first)
    slow = found(ranks.propose, one)
    assert ("slow_rank" in slow) is proposed
    if proposed:
        assert (slow["slow_rank"].about, slow["slow_rank"].time_ns) == ("Rank 0", 3_000)
        assert "more work on its GPU than the mean of the others" in slow["slow_rank"].sentence
        change = slow["slow_rank"].change
        assert change is not None
        assert change(one.graph, 0.0).o_duration.tolist() == pytest.approx([101_500, 50_000, 101_500, 50_000])


def test_a_rank_is_slow_only_if_another_one_waits_for_it() -> None:
    def table(waited: int) -> pd.DataFrame:
        return pd.DataFrame({"rank": ["rank 0"], "caused_waiting_ns": [waited], "longest_ns": [5_000], "last": [7], "collectives": [9],
                             "compute_over_mean": [1.5]})  # fmt: skip

    assert "slow_rank" not in found(ranks.propose, two_ranks(stragglers=table(89_999)))
    told = found(ranks.propose, two_ranks(stragglers=table(90_000)))["slow_rank"].sentence  # 1 % of nine steps of 1 ms
    assert "the last to start 7 of 9 collectives; the others wait 90 µs for it." in told


def test_collectives_move_beside_kernels_at_half_their_time_or_all() -> None:
    one = two_ranks(100_000.0)
    change = found(ranks.propose, one)["exposed_communication"].change
    assert change is not None
    assert change(one.graph, 0.9).o_duration.tolist() == [100_000, 25_000, 100_000, 25_000]
    assert change(one.graph, 1.0).o_stream.tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize(("second", "uneven"), [(200_000.0, True), (250_000.0, False)])
def test_processes_without_a_collective_are_uneven_below_three_quarters(second: float, uneven: bool) -> None:
    """First process 300 + 50 µs; 250 is below three quarters of 350, 300 is not."""
    one = two_ranks(300_000.0, second, talk=False)
    assert ranks.unlike(one) == ({1: 350_000.0, 2: 250_000.0} if uneven else {})
    slow = found(ranks.propose, one)
    assert ("slow_rank" in slow) is uneven
    if uneven:
        assert "1.17 times the mean" in slow["slow_rank"].sentence  # 350 over 300
        change = slow["slow_rank"].change
        assert change is not None
        assert change(one.graph, 0.0).o_duration.tolist() == pytest.approx(
            [300_000 * 6 / 7, 50_000 * 6 / 7, 200_000, 50_000]
        )


def test_exposed_communication_is_told_of_the_rank_with_most_of_it() -> None:
    """The second rank's collective of 50 µs runs beside 20 µs of its kernel; the first one's beside none."""
    ops = [
        {"ns": 300_000.0},
        {"ns": 50_000.0, "name": "ncclDevKernel_AllReduce"},
        {"ns": 320_000.0, "stream": 1},
        {"ns": 50_000.0, "stream": 1, "name": "ncclDevKernel_AllReduce"},
    ]
    calls_ = [{"seq": 0}, {"seq": 0}, {"seq": 1}, {"seq": 1}]
    base = graph(calls_, ops, seq_pid=np.array([1, 2]), stream_pid=np.array([1, 2]))
    base = replace(base, o_start=np.array([0, 300_000, 0, 300_000]))
    told = found(ranks.propose, view(base))["exposed_communication"]
    assert (told.count, told.time_ns, told.most_ns) == (1, 50_000, 50_000)
    assert "takes 50 µs on rank 0; no kernel computes meanwhile." in told.sentence
    assert "How much of it waits for another rank is not known. At most 50 µs fits beside kernels" in told.sentence


# Pauses


def paused(*extra: int, wall: int = MS, loads: list[tuple[str, int, int]] = (), steps: int = 10) -> View:  # type: ignore[assignment]
    """Steps of 1 ms, of which the GPU works for the first 600 µs; some last `extra` longer, after 200 µs more of work."""
    ends, ops, now = [], [], 0
    for at in range(steps):
        more = extra[at - steps // 2] if steps // 2 <= at < steps // 2 + len(extra) else 0
        ops += [{"ns": 600_000.0, "start": now, "call": 0}]
        ops += [{"ns": 200_000.0, "start": now + 700_000, "call": 0}] if more else []
        now += MS + more
        ends.append(now)
    calls_ = pd.DataFrame(loads, columns=["name", "start_ns", "end_ns"]).assign(pid=1)
    return view(graph([{}], ops), wall=wall, ends=ends, capture={"calls": calls_} if loads else {})


def test_a_pause_is_idle_time_beyond_the_usual() -> None:
    """The sixth of ten steps lasts 4 ms, and the GPU works for 0.8: 3.2 idle for 0.4. It stops at 5.9, until 9.0 ms."""
    (one,) = pause.propose(paused(3 * MS))
    assert (one.count, one.time_ns, one.lost_ns, one.span) == (1, 3_200_000, 2_800_000, (5_900_000, 9_000_000))
    assert one.title == "Find what stops the GPU for 2.8 ms"
    assert one.sentence.startswith("1 step of 10 let the GPU idle 2.8 ms longer than the others")
    (two,) = pause.propose(paused(3 * MS, 2 * MS))
    assert (two.count, two.lost_ns, two.title) == (2, 4_600_000, "Find what stops the GPU for up to 2.8 ms")
    assert two.sentence.startswith("2 steps of 10 let the GPU idle 4.6 ms longer than the others in all; ")


@pytest.mark.parametrize(
    ("extra", "wall", "found_"),
    [
        ((1_200_000,), MS, 0), ((1_200_001,), MS, 1),  # a millisecond more than usual
        ((2_200_000,), 4 * MS, 0), ((2_200_001,), 4 * MS, 1),  # half a step more
        ((3 * MS,) * 2, MS, 1), ((3 * MS,) * 3, MS, 0),  # at most a quarter of the steps
    ],
)  # fmt: skip
def test_a_pause_is_long_and_rare(extra: tuple[int, ...], wall: int, found_: int) -> None:
    assert len(list(pause.propose(paused(*extra, wall=wall)))) == found_


def test_four_steps_tell_a_pause_and_three_do_not() -> None:
    assert len(list(pause.propose(paused(3 * MS, steps=4)))) == 1
    assert list(pause.propose(paused(3 * MS, steps=3))) == []


@pytest.mark.parametrize(
    ("loads", "found_"),
    [
        ([("cudaMalloc", 6_100_000, 8_900_000)], 0), ([("cudaMalloc", 6_100_000, 7_000_000)], 1), ([("cudaEventQuery", 6_100_000, 8_900_000)], 1),
        ([("cuModuleLoadData", 6_100_000, 6_200_000)], 1),  # in the later half of the run
    ],
)  # fmt: skip
def test_time_in_calls_that_allocate_is_no_pause(loads: list[tuple[str, int, int]], found_: int) -> None:
    assert len(list(pause.propose(paused(3 * MS, loads=loads)))) == found_


# What a graph needs


@pytest.mark.parametrize(
    ("between", "times", "kinds"),
    [
        ({"name": "cudaMalloc"}, 2, "allocation"), ({"name": "cudaMalloc"}, 1, "allocation"), ({"name": "cuModuleLoadData"}, 2, "compile_in_loop"),
        ({"name": "cudaDeviceSynchronize"}, 2, "sync"), ({"name": "cudaEventRecord"}, 2, ""),
        ({"name": "cudaMemcpy", "wait": OPERATION, "target": 0, "copy": H2D}, 2, "pageable_copy|small_copies|repeated_copy"),
        ({"name": "cudaMemcpy", "wait": OPERATION, "target": 0, "copy": D2H}, 2, "sync"), ({"name": "cudaMemcpy", "copy": H2D}, 2, ""),
    ],
)  # fmt: skip
def test_calls_between_launches_that_a_capture_forbids(between: dict[str, Any], times: int, kinds: str) -> None:
    calls_, ops = [{}], [{"call": 0}]
    for _ in range(times):
        calls_ += [{key: value for key, value in between.items() if key != "copy"}, {}]
        ops += [copy(between["copy"], call=len(calls_) - 2)] if "copy" in between else []
        ops += [{"call": len(calls_) - 1}]
    assert launches._blockers(view(graph(calls_, ops))) == kinds


def test_a_step_that_records_its_graph_has_to_stop_that_first() -> None:
    calls_ = [{}, {"name": "cudaMalloc"}, {"name": "cudaGraphInstantiate"}, {}, {"name": "cudaMalloc"}, {}]
    assert (
        launches._blockers(view(graph(calls_, [{"call": 0}, {"call": 3}, {"call": 5}]))) == "graph_each_step|allocation"
    )


@pytest.mark.parametrize(
    ("busy", "own"), [(9_000.0, [18_000, 0, 54_000]), (40_000.0, [50_000, 0, 170_000]), (1_000.0, [7_000, 0, 6_000])]
)
def test_launches_before_host_work_take_as_long_as_their_kernels(busy: float, own: list[float]) -> None:
    """Two launches of 20 µs and 10 between them, then six after host work: at most 50 and 170 µs, at least the graph's 7."""
    base = graph([{"own": 20_000.0, "gap": 500_000.0 if at == 2 else 10_000.0} for at in range(8)], [{"ns": busy}] * 8)
    change = found(launches.propose, view(base, wall=999_999))["launch_bound"].change
    assert change is not None
    assert change(base, 0.5).c_own.tolist() == [*own, 0, 0, 0, 0, 0]
    half = found(launches.propose, view(base))["launch_bound"].change  # host work of half a step may run beside it
    assert half is not None
    assert half(base, 0.5).c_own.tolist() == [7_000, *[0] * 7]


@pytest.mark.parametrize(("share", "python"), [(0.0, 120_000.0), (1.0, 40_000.0), (0.5, 80_000.0)])
def test_a_jitted_step_costs_python_once_and_uploads_no_scalar(share: float, python: float) -> None:
    scalar = [copy(size=64.0, call=4), copy(size=65.0, call=5)]
    base = graph([{}] * 6, [*[{"name": "loop_add_fusion"}] * 4, *scalar], steps=2)
    change = (
        found(launches.propose, view(base))["launch_bound"].change
        if view(base).of_step(6) >= 4
        else launches.jitted(view(base))
    )
    assert change is not None
    changed = change(base, share)
    assert changed.c_gap[0] == 10 + 2 * python
    assert changed.o_duration[4:].tolist() == [0, 2_000]


# More of host work, ranks and chains


def test_host_work_adds_up_and_the_range_of_half_of_it_names_it() -> None:
    calls_ = [{"gap": 500_000.0} if at in (2, 6) else {} for at in range(10)]
    (one,) = host_work.propose(view(graph(calls_, [{}] * 10)))
    assert (one.count, one.time_ns) == (2, 1_000_000)
    begin = 500_035  # the third call begins here, after 500 µs of host work
    ranges = pd.DataFrame({"name": ["load"], "start_ns": [100], "end_ns": [begin - 200_000], "pid": [1], "level": [0]})
    (one,) = host_work.propose(view(graph(calls_, [{}] * 10), capture={"ranges": ranges}))
    assert one.about == "load"  # it holds the middle of one of two
    short = ranges.assign(end_ns=begin - 260_000)
    (one,) = host_work.propose(view(graph(calls_, [{}] * 10), capture={"ranges": short}))
    assert one.about == "between launches"


@pytest.mark.parametrize(("held", "about"), [(8, "load"), (9, "between launches")])
def test_a_range_with_more_than_four_fifths_of_the_launches_is_the_step(held: int, about: str) -> None:
    calls_ = [{"gap": 500_000.0} if at == 0 else {} for at in range(10)]
    ranges = pd.DataFrame(
        {"name": ["load"], "start_ns": [10], "end_ns": [500_000 + 15 * (held - 1) + 1], "pid": [1], "level": [0]}
    )
    (one,) = host_work.propose(view(graph(calls_, [{}] * 10), capture={"ranges": ranges}))
    assert one.about == about


@pytest.mark.parametrize(("at", "kind"), [(5, "data_loader"), (6, "host_work")])
def test_an_upload_within_four_calls_follows_host_work(at: int, kind: str) -> None:
    calls_ = [{"gap": 500_000.0} if place == 2 else {} for place in range(9)]
    ops = [copy(size=1e6) if place == at else {"name": "sgd"} for place in range(9)]
    assert list(found(host_work.propose, view(graph(calls_, ops)))) == [kind]


def test_uploads_follow_the_long_work_of_each_step() -> None:
    """Two steps: an upload follows the longest work of one alone, which is half of them."""
    calls_ = [{"gap": {2: 500_000.0, 9: 400_000.0}.get(place, 10.0)} for place in range(16)]
    ops = [copy(size=1e6) if place == 3 else {"name": "sgd"} for place in range(16)]
    assert list(found(host_work.propose, view(graph(calls_, ops, steps=2)))) == ["host_work"]


def test_host_work_of_three_ranks_is_even_below_one_and_a_half_times_the_next() -> None:
    def proposed(*gaps: float) -> bool:
        calls_ = [one for seq, gap in enumerate(gaps) for one in ({"gap": gap, "seq": seq}, {"seq": seq})]
        base = graph(
            calls_,
            [{"stream": at // 2} for at in range(6)],
            seq_pid=np.array([1, 2, 3]),
            stream_pid=np.array([1, 2, 3]),
        )
        return bool(found(host_work.propose, view(base)))

    assert (proposed(500_000.0, 400_000.0, 10.0), proposed(700_000.0, 400_000.0, 10.0)) == (True, False)
    assert proposed(10.0, 10.0, 500_000.0) is False


def test_a_rank_whose_host_works_longer_is_slow_on_its_host() -> None:
    """Host: 500 µs and 100 µs before the first launch, 400 more; 10 µs more before the second, too little; GPU: 10 µs more."""
    calls_ = [
        {"gap": 500_000.0, "seq": 0},
        {"gap": 20_000.0, "seq": 0},
        {"seq": 0},
        {"gap": 100_000.0, "seq": 1},
        {"gap": 10_000.0, "seq": 1},
    ]
    ops = [{"ns": 30_000.0}, {"ns": 20_000.0}, {"ns": 9_000.0, "name": "ncclDevKernel_AllReduce"}, {"ns": 40_000.0, "stream": 1},
           {"ns": 9_000.0, "stream": 1, "name": "ncclDevKernel_AllReduce"}]  # fmt: skip
    calls_[2]["gap"] = 0.0
    calls_[2]["own"] = 0.0
    base = graph(calls_, ops, seq_pid=np.array([1, 2]), stream_pid=np.array([1, 2]))
    one = found(ranks.propose, view(base))["slow_rank"]
    assert (one.time_ns, one.about) == (400_000, "Rank 0")
    assert one.sentence.startswith("The host of rank 0 works 400 µs longer in each step")
    assert one.change is not None
    changed = one.change(base, 0.0)
    assert changed.c_gap.tolist() == pytest.approx([100_000, 20_000, 0, 100_000, 10_000])
    assert changed.c_own.tolist() == base.c_own.tolist()
    assert changed.o_duration.tolist() == pytest.approx([24_000, 16_000, 9_000, 40_000, 9_000])


def test_uneven_processes_share_the_host_work_too() -> None:
    one = two_ranks(300_000.0, 200_000.0, talk=False)
    change = found(ranks.propose, one)["slow_rank"].change
    assert change is not None
    changed = change(one.graph, 0.0)
    assert changed.c_own.tolist() == pytest.approx([5 * 6 / 7] * 4)
    assert changed.c_gap.tolist() == pytest.approx([10 * 6 / 7] * 4)


@pytest.mark.parametrize(
    "more", [{"scope": "epilogue"}, {"gain_ns": np.nan}, {"now_time_ns": np.nan}, {"range": "attn"}]
)
def test_chains_without_a_gain_here_are_no_change(more: dict[str, Any]) -> None:
    one = chain()
    assert found(planned.propose, view(one.graph, folded=one.folded, plan=plan(**more))) == {}
    assert found(planned.propose, view(one.graph, folded=one.folded, plan=plan(range="attn + mlp")))["fuse"].count == 2


def test_a_chain_that_element_by_element_kernels_already_tell_is_no_second_change() -> None:
    ops = [{"name": MUL, "ns": 30_000.0}, {"name": ADD, "ns": 30_000.0}, {"name": "reduce_kernel", "ns": 59_000.0}, {}]
    rows = plan(kernels="mul > add > reduce")
    folded = np.array(["mlp"] * 4, object)
    assert found(planned.propose, view(graph([{}] * 4, ops), folded=folded, plan=rows)) == {}
    ops[2]["ns"] = 61_000.0
    one = found(planned.propose, view(graph([{}] * 4, ops), folded=folded, plan=rows))["fuse"]
    assert (one.count, one.time_ns) == (3, 121_000)
    assert "needs at least 30.2 µs" in one.sentence


def test_tables_without_rows_propose_nothing() -> None:
    base = graph([{}], [{"ns": 9_000.0}])
    for rule, name, rows in ((counted, "counted", diagnosed()), (planned, "plan", plan())):
        assert list(rule.propose(view(base))) == []
        assert list(rule.propose(view(base, **{name: rows.head(0)}))) == []


def test_a_cause_is_of_its_kernel_alone() -> None:
    base = graph([{}] * 3, [{"ns": 9_000.0}, {"ns": 9_000.0, "name": "other"}, copy(ns=9_000.0)])
    (one,) = counted.propose(view(base, counted=diagnosed()))
    assert (one.count, one.time_ns) == (1, 9_000)


@pytest.mark.parametrize(("share", "made"), [(0.5, 2.0), (1.0, 0.0)])
def test_without_the_read_the_kernel_that_makes_its_value_may_go(share: float, made: float) -> None:
    calls_ = [{}, {}, {"name": "cudaMemcpy", "own": 50.0, "wait": OPERATION, "target": 2, "tail": 3.0}]
    base = graph(calls_, [{}, {"fill": 0.001}, copy(D2H, 4.0, call=2)])
    change = found(sync.propose, view(base))["sync"].change
    assert change is not None
    changed = change(base, share)
    assert changed.o_duration.tolist() == [2, made, 0]
    assert changed.c_wait.tolist() == [NONE] * 3


def test_weights_uploaded_once_are_no_pageable_copies_besides() -> None:
    sizes = [7e4, 8e4, 9e4]
    ops = [*[copy(size=size, ns=50_000.0) for size in sizes], *[copy(D2H, 9e5, 50_000.0)]]
    one = found(copies.propose, view(graph([{}] * 4, ops), memory="Pageable -> Device"))
    assert list(one) == ["repeated_copy", "pageable_copy"]
    assert one["pageable_copy"].about == "copies to the host"


def test_a_cast_counts_by_its_own_name() -> None:
    names = [*["bfloat16_copy_kernel"] * 5, *["half_copy_kernel"] * 4, "k"]
    base = graph([{}] * 10, [{"name": name, "ns": 10_000.0} for name in names])
    one = found(kernels.propose, view(base, grid="8x1x1"))["repeated_casts"]
    assert (one.count, one.time_ns) == (5, 50_000)


def test_three_calls_are_named_and_the_first_is_the_subject() -> None:
    calls_ = [
        {},
        *[{"name": name, "own": 100.0} for name in ("cudaMalloc", "cudaFree", "cuMemAlloc_v2", "cudaHostAlloc")],
    ]
    one = found(calls.propose, view(graph(calls_, [{}])))["allocation"]
    assert one.about == "cuMemAlloc_v2"
    assert one.sentence.endswith("for 0.4 µs: cuMemAlloc_v2, cudaFree, cudaHostAlloc.")


def test_the_range_of_most_host_work_names_it_if_it_holds_half() -> None:
    """Host work of 500, 300 and 400 µs: range load holds the first, range score the second."""
    lengths = {2: 500_000.0, 5: 300_000.0, 8: 400_000.0}
    base = graph([{"gap": lengths.get(at, 10.0)} for at in range(12)], [{}] * 12)
    begin = [int(base.c_start[at] - base.c_gap[at]) for at in (2, 5, 8)]
    ranges = pd.DataFrame({"name": ["score", "load"], "start_ns": [begin[1], begin[0]], "end_ns": [begin[1] + 250_000, begin[0] + 400_000],
                           "pid": [1, 1], "level": [0, 0]})  # fmt: skip
    (one,) = host_work.propose(view(base, capture={"ranges": ranges}))
    assert one.about == "between launches"  # 500 of 1,200
    (one,) = host_work.propose(
        view(replace(base, c_gap=np.where(base.c_gap == 400_000, 10.0, base.c_gap)), capture={"ranges": ranges})
    )
    assert one.about == "load"


def test_uploads_after_two_of_three_stretches_of_host_work_are_batches() -> None:
    base = graph([{"gap": 500_000.0 + at if at in (2, 8, 14) else 10.0} for at in range(20)],
                 [copy(size=1e6) if at in (3, 9) else {"name": "sgd"} for at in range(20)], steps=3)  # fmt: skip
    assert list(found(host_work.propose, view(base))) == ["data_loader"]


@pytest.mark.parametrize(("share", "gap"), [(0.0, 90_000.0), (0.5, 60_000 + 1e5 / 27.5), (1.0, 52_000.0)])
def test_pages_that_the_host_waits_for_come_before_it(share: float, gap: float) -> None:
    """Of 100 µs of host work, pages move for 20 and 10 within 50: 30 to 50 µs, less 0.1 MB at 5 to 50 GB/s."""
    down = "[CUDA Unified Memory memcpy DtoH]"
    pages = [
        {"name": down, "kind": "migration", "bytes": 5e4, "ns": ns, "start": at, "call": -1}
        for at, ns in ((20_015, 20_000.0), (60_015, 10_000.0))
    ]
    base = graph([{}, {"gap": 100_000.0}], [{"call": 0}, *pages, {"call": 1}])  # in the order of their starts
    one = found(migration.propose, view(base))["migration"]
    assert "the host up to 50 µs." in one.sentence
    assert one.change is not None
    assert one.change(base, share).c_gap.tolist() == pytest.approx([10, gap])


def test_reductions_and_copies_join_runs_but_not_what_stays_apart() -> None:
    names = [MUL, ADD, "reduce_kernel", MUL, "gemm", "reduce_kernel", "reduce_kernel"]
    one = view(graph([{}] * 10, [*[{"name": name} for name in names], copy(D2D), {"name": ADD}, {"name": "gemm"}]))
    inside = bools(0, 1, 3, of=10)
    assert [rows.tolist() for rows in kernels.bridged_runs(one, inside, bools(of=10))] == [[0, 1, 2, 3]]
    assert [rows.tolist() for rows in kernels.bridged_runs(one, inside, bools(2, of=10))] == [[0, 1]]
    assert [rows.tolist() for rows in kernels.bridged_runs(one, bools(8, of=10), bools(of=10))] == [[5, 6, 7, 8]]


@pytest.mark.parametrize(
    ("fill", "count", "kind"), [(0.2, 5, "serial_streams"), (0.2, 6, "small_grid"), (0.125, 8, "serial_streams")]
)
def test_kernels_in_turn_fit_beside_each_other(fill: float, count: int, kind: str) -> None:
    base = graph([{}] * count, [{"name": "rows", "ns": 20_000.0, "fill": fill} for _ in range(count)])
    assert list(found(kernels.propose, view(base))) == [kind]


def test_a_copy_on_the_gpu_is_no_element_by_element_kernel() -> None:
    assert kernels._pointwise("elementwise_kernel<direct_copy_kernel>") is False
    assert kernels._pointwise("elementwise_kernel<some_new_functor>") is True


def test_host_work_of_half_the_step_in_two_parts_counts_whole() -> None:
    base = graph(
        [{"own": 20_000.0, "gap": 300_000.0 if at in (2, 5) else 10_000.0} for at in range(8)], [{"ns": 40_000.0}] * 8
    )
    change = found(launches.propose, view(base))["launch_bound"].change
    assert change is not None
    assert change(base, 0.5).c_own.tolist() == [50_000, 0, 80_000, 0, 0, 80_000, 0, 0]  # 3 · 20 + 2 · 10 of 120


def test_the_time_of_pauses_is_that_of_all() -> None:
    (two,) = pause.propose(paused(3 * MS, 2 * MS))
    assert two.time_ns == 3_200_000 + 2_200_000


def test_a_single_pause_is_as_long_as_no_profiler_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profiler writes its buffers now and then. The last step of a run may hold its end."""
    monkeypatch.setattr(pause, "ONCE_NS", 10.0 * MS)
    assert [len(list(pause.propose(paused(*extra)))) for extra in ((3 * MS,), (3 * MS, 3 * MS), (13 * MS,))] == [
        0,
        1,
        1,
    ]
    assert not list(pause.propose(paused(0, 0, 0, 0, 13 * MS)))


def test_values_in_fp64_may_be_narrower() -> None:
    for name, wide in (
        ("cupy_add__float64_float64_float64", True), ("void paths<double>(T1, int)", True), ("f(const double *, int)", True),
        ("void paths<double>(const float *, int)", False),  # it only adds in FP64, as far as a timeline tells
        ("sm90_xmma_gemm_f64f64_f64f64_f64_nt_n", False), ("f(const float *, double)", False),
    ):  # fmt: skip
        one = found(kernels.propose, view(graph([{}], [{"name": name, "ns": 2e5}])))
        assert ("precision" in one) is wide


@pytest.mark.parametrize(
    ("kernel", "first", "kind"),
    [
        ("at::native::sgd_kernel", H2D, "data_loader"), ("at::native::sgd_kernel", "at::native::fill", "pause"),
        ("sgd_kernel", H2D, "pause"),
    ],
)  # fmt: skip
def test_a_pause_every_so_many_steps_recurs_and_is_one_of_epochs_if_training_uploads_after_it(
    kernel: str, first: str, kind: str
) -> None:
    """Of 25 steps of 1 ms, the 5th, 10th, … last 20 ms longer, and a short pause stands between."""
    ends, ops, now = [], [], 0
    for at in range(25):
        more = 20 * MS if at % 5 == 4 else 2 * MS if at == 12 else 0
        ops += [
            {
                "name": first,
                "ns": 100_000.0,
                "start": now + more,
                "call": 0,
                "kind": "memcpy" if first == H2D else "kernel",
            }
        ]
        ops += [{"name": kernel, "ns": 500_000.0, "start": now + more + 100_000, "call": 0}]
        now += MS + more
        ends.append(now)
    (one,) = pause.propose(view(graph([{}], ops), ends=ends))
    assert (one.kind, one.title, one.count) == (kind, "Find what stops the GPU for 20 ms every 5 steps", 4.0)
    assert "this recurs every 5 steps, as an epoch does" in one.sentence
    assert ("persistent_workers=True" in one.do) is (kind == "data_loader")


def test_what_runs_between_the_first_steps_is_no_pause() -> None:
    """Between the second and the third of twelve steps, which do not follow each other, something is tried out."""
    ends = np.cumsum([MS] * 2 + [20 * MS] + [MS] * 9)
    ops = [{"start": end - MS, "ns": 600_000.0, "call": 0} for end in ends]
    one = view(graph([{}], ops), ends=ends)
    assert len(list(pause.propose(one))) == 1
    starts = one.step.phase.start_ns.copy()
    starts[2] += 19 * MS
    phase = replace(one.step.phase, start_ns=starts)
    again = replace(one, step=replace(one.step, phase=phase), steady=replace(one.steady, phases=(phase,)))
    assert not list(pause.propose(again))


@pytest.mark.parametrize(
    ("names", "fused"),
    [
        (["wrapped_multiply", "wrapped_sqrt"], True), (["loop_add_fusion", "loop_add_fusion"], True),
        (["loop_add_fusion", "loop_add_fusion_1"], False), (["wrapped_copy", "wrapped_transpose"], False),
    ],
)  # fmt: skip
def test_xla_fuses_nothing_between_calls_of_single_operations(names: list[str], fused: bool) -> None:
    """A compiled function numbers its kernels of one name."""
    runs = kernels.pointwise_runs(view(graph([{}] * 2, [{"name": name, "ns": 1e5} for name in names])))
    assert bool(runs) is fused


def test_a_graph_leaves_uploads_of_pageable_memory_out() -> None:
    calls_ = [{} if at % 3 else {"name": "cudaMemcpyAsync", "launches": True} for at in range(12)]
    ops = [copy(call=at) if at % 3 == 0 else {"call": at, "ns": 3_000.0} for at in range(12)]
    for memory, calls_left in (("Pageable -> Device", 8), ("Pinned -> Device", 1)):
        one = found(launches.propose, view(graph(calls_, ops), memory=memory))["launch_bound"]
        assert one.change is not None
        after = one.change(graph(calls_, ops), 1.0)
        assert (after.c_own > 0).sum() == calls_left


@pytest.mark.parametrize(
    ("names", "fused"),
    [
        (("add_bias(float *, int)", "apply_gelu(float *, int)"), True), (("clip_rows", "turn_rows"), True), (("clampKernel", "scaleKernel"), True),
        (("jacobi(float *)", "advect(float *)"), False), (("add_bias", "advect"), False), (("cells", "shade"), False),
        (("addresses", "rowdies"), False), (("gradient", "scale"), False),
        (("scale<0>", "scale<1>"), False),
    ],
)  # fmt: skip
def test_own_kernels_fuse_only_if_their_names_tell_of_work_on_each_element(names: tuple[str, ...], fused: bool) -> None:
    base = graph([{}] * len(names), [{"name": name, "ns": 100_000.0} for name in names])
    one = view(base, grid="64x1x1")
    assert ("fuse" in found(own_chain.propose, one)) is fused


@pytest.mark.parametrize("between", ["cudaEventRecord", "cudaDeviceSynchronize", "cudaGetLastError"])
def test_kernels_that_are_timed_one_by_one_are_no_chain(between: str) -> None:
    """As in STREAM."""
    names = ("copy_rows", "scale", "add", "mul_bias")
    calls_ = [{} if at % 2 == 0 else {"name": between, "launches": False} for at in range(2 * len(names))]
    ops = [{"name": name, "ns": 100_000.0, "call": 2 * at} for at, name in enumerate(names)]
    one = view(graph(calls_, ops), grid="64x1x1")
    assert ("fuse" in found(own_chain.propose, one)) is (between == "cudaGetLastError")


@pytest.mark.parametrize(("busy", "most"), [(900, 216.0), (899, None)])
def test_a_fused_kernel_of_a_busy_gpu_saves_what_its_parts_take_with_the_time_between(
    busy: int, most: float | None
) -> None:
    one = view(graph([{}] * 2, [{"ns": 100.0}, {"ns": 100.0, "start": 130}]), wall=1000)  # the first starts at 14
    one = replace(one, parts=replace(one.parts, busy_parts=(("gpu_busy", busy),)))
    assert one.taken([np.array([0, 1])]) == most


@pytest.mark.parametrize(("wall", "proposed"), [(6_000_000, True), (6_000_001, False)])
def test_aligned_products_take_the_measured_part_of_their_time(wall: int, proposed: bool) -> None:
    names = ["tensorop_bf16_s1688gemm_bf16_128x128_tn_align1", "bf16_s16816gemm_bf16_64x64_32x6_tn_align2", "k"]
    names.append("cutlass_80_tensorop_s1688gemm_128x256_32x3_tn_align1")  # TF32
    base = graph([{}] * 4, [{"name": name, "ns": 20_000.0} for name in names])
    one = found(alignment.propose, view(base, wall=wall)).get("alignment")
    assert (one is not None) is proposed
    if one is not None:
        assert (one.count, one.time_ns, one.most_ns) == (3, 60_000, pytest.approx(20_000 * (0.88 + 0.75 + 0.7)))
        assert one.change is not None
        assert one.change(base, 0.0).o_duration.tolist() == pytest.approx([8_000, 13_000, 20_000, 16_000])
        assert one.change(base, 1.0).o_duration.tolist() == pytest.approx([2_400, 5_000, 20_000, 6_000])
