"""Programs of several ranks: hand-built timelines with known answers, and identities for any."""

import csv
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import counting, nsys_extras
from analysis.capture import ncu_csv, ours
from analysis.capture.load import load
from analysis.capture.model import GPU_OPS_COLUMNS, Capture, as_table
from analysis.diagnosis.findings import findings_of
from analysis.diagnosis.rank_costs import build_rank_costs
from analysis.facts import Facts
from analysis.formats.errors import InputError
from analysis.formats.ranges import WARM_UP
from analysis.formats.ranks import NCCL_CALLS, PROCESS_RANKS
from analysis.formats.report import Missing
from analysis.page.links import plot_links
from analysis.page.timeline import plot_timeline
from analysis.tables.join import join, prepare_counters
from analysis.tables.operations import build_operations
from harness.instrument import process_ranks
from tests.declared import missing_of, notes_of, page
from tests.nsys_export import Export
from tests.rank_programs import measured_links

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096>)"
GENERIC = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096>)"
COMM = 0xABCDEF0123456789
STEP = 1_000_000
ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@dataclass
class Ranks:
    """An export of two ranks, of which the second computes 100 µs longer in each of `steps` steps.

    `said`: whether NCCL's calls have their payload, `entered`: whether the capture holds ncclCommInitRank, `lead`: by
    how many ns the first rank is recorded before the second, for which its first collective waits.
    """

    said: bool = True
    entered: bool = True
    steps: int = 4
    late: int = 100_000
    lead: int = 0
    ranks: tuple[int, ...] = (0, 1)
    kernel: str = ALL_REDUCE
    call: str = "ncclAllReduce"
    era: int = 2025

    def export(self) -> Export:
        export = Export(self.era)
        for rank in self.ranks:
            export.gpu(rank)
        for rank in self.ranks:
            self.add(export, rank)
        return export

    def add(self, export: Export, rank: int, *, world: int = 2, shift: int = 0) -> None:
        place: dict[str, Any] = {"pid": 10 * (rank + 1), "tid": 10 * (rank + 1)}
        export.domain("NCCL", 3, **place)
        if self.entered:
            export.nccl("ncclCommInitRank", 1 + shift, 2 + shift, **place, comm=COMM, ranks=world, rank=rank)
        for step in range(self.steps):
            ahead = self.lead if rank == 0 and step == 0 else 0
            at = step * STEP + 1000 + shift + self.lead - ahead
            late = self.late * rank
            export.push("step", at, at + 900_000, **place)
            export.launch("gemm", (at + 1000, at + 2000), (at + 10_000, at + 200_000 + late), **place, device=rank)
            fields = {"comm": COMM, "bytes": 1 << 20} if self.said else {}
            export.nccl(self.call, at + 2100, at + 4000, **place, **fields)
            run = (at + 200_000 + late, at + 400_000 + ahead)
            export.launch(self.kernel, (at + 2500, at + 3500), run, **place, device=rank)


def world_of(export: Export, tmp_path: Path, **more: Any) -> Facts:
    return Facts(replace(load([export.save(tmp_path / "x.sqlite")]), **more))


def gap_of(world: Facts, beginning: str) -> Missing | None:
    return next((gap for gap in missing_of(world) if gap.what.startswith(beginning)), None)


# Who is who -------------------------------------------------------------------------------------------------------


def test_every_rank_has_its_row_with_compute_exposed_communication_and_idle_time(tmp_path: Path) -> None:
    tables = world_of(Ranks().export(), tmp_path)
    ranks = tables.ranks.set_index("rank")
    wall = 3 * STEP + 390_000
    shown = [
        "process_rank",
        "rank_from",
        "device",
        "wall_ns",
        "compute_ns",
        "communication_ns",
        "exposed_ns",
        "waiting_ns",
    ]
    assert ranks[shown].to_numpy().tolist() == [
        [0, "NCCL", "NVIDIA H200 (0)", wall, 760_000, 800_000, 800_000, 400_000],
        [1, "NCCL", "NVIDIA H200 (1)", wall, 1_160_000, 400_000, 400_000, 0],
    ]
    assert ranks["kernels"].tolist() == [8, 8]
    assert ranks["idle_ns"].tolist() == [wall - 1_560_000] * 2
    assert ranks["skew_ns"].fillna(-1).tolist() == [-1, 0]
    assert any("A skew of at most 0 µs remains (rank 1" in note for note in notes_of(tables))
    assert gap_of(tables, "which of") is None
    assert gap_of(tables, "the captures of") is None


def test_a_rank_that_the_profiler_records_first_does_not_wait_for_the_others(tmp_path: Path) -> None:
    """The same program as without a lead: compute, waiting, idle time and the time of each rank stay."""
    apart, together = (world_of(Ranks(lead=lead).export(), tmp_path) for lead in (5_000_000, 0))
    names = ["wall_ns", "compute_ns", "communication_ns", "exposed_ns", "waiting_ns", "copies_ns", "idle_ns"]
    assert apart.ranks[names].to_numpy().tolist() == together.ranks[names].to_numpy().tolist()
    pd.testing.assert_frame_equal(apart.stragglers, together.stragglers)
    pd.testing.assert_frame_equal(apart.overlap, together.overlap)
    said = "The profiler began to record the ranks up to 5 ms apart."
    assert any(note.startswith(said) for note in notes_of(apart))
    assert not any("began to record" in note for note in notes_of(together))


def test_waiting_in_a_warm_up_counts_nowhere(tmp_path: Path) -> None:
    """The second rank begins the warm-up 5 ms late, since its profiler takes longer; the steps after it are as before."""
    export = Ranks(steps=2).export()
    begin = 10 * STEP
    for rank in (0, 1):
        place: dict[str, Any] = {"pid": 10 * (rank + 1), "tid": 10 * (rank + 1)}
        at = begin + 5 * STEP * rank
        export.push(WARM_UP, at, begin + 6 * STEP, **place)
        export.nccl("ncclAllReduce", at + 2100, at + 4000, **place, comm=COMM, bytes=1 << 20)
        export.launch(
            ALL_REDUCE, (at + 2500, at + 3500), (at + 10_000, begin + 5 * STEP + 60_000), **place, device=rank
        )
    with_it = world_of(export, tmp_path)
    without = world_of(Ranks(steps=2).export(), tmp_path)
    assert with_it.ranks["waiting_ns"].tolist() == without.ranks["waiting_ns"].tolist()
    assert with_it.ranks["communication_ns"].tolist() == [450_000, 250_000]  # 50 µs of transfer more
    pd.testing.assert_frame_equal(
        with_it.stragglers.drop(columns="compute_ns"), without.stragglers.drop(columns="compute_ns")
    )
    judged = with_it.collectives.set_index("range")["waiting_ns"]
    assert judged["step"] == without.collectives["waiting_ns"].sum()
    assert pd.isna(judged[WARM_UP])


def test_without_names_ranks_follow_the_order_of_processes_and_the_report_says_so(tmp_path: Path) -> None:
    tables = world_of(Ranks(entered=False).export(), tmp_path)
    assert tables.ranks["rank_from"].tolist() == ["order of processes"] * 2
    assert gap_of(tables, "which of 2 processes is which rank")


def test_processes_that_do_not_communicate_are_no_ranks(tmp_path: Path) -> None:
    export = Export()
    for pid in (1, 2):
        export.launch("k", (0, 5), (10, 20), pid=pid, device=pid)
    tables = world_of(export, tmp_path)
    assert tables.ranks["process_rank"].isna().all()
    assert tables.ranks["rank"].tolist() == ["GPU 1", "GPU 2"]
    assert tables.collectives.empty


def test_the_figure_of_the_timeline_and_the_page_name_the_ranks(tmp_path: Path) -> None:
    text = page(load([Ranks().export().save(tmp_path / "x.sqlite")]))
    assert "rank 0" in text
    assert "## Collectives" in text


# Collectives ------------------------------------------------------------------------------------------------------


def test_bytes_are_nccl_s_and_bandwidth_is_that_of_nccl_tests(tmp_path: Path) -> None:
    tables = world_of(Ranks().export(), tmp_path, ceilings=measured_links([1 << 20, 1 << 22], 50_000))
    row = tables.collectives.iloc[0]
    assert row[["kind", "range", "ranks", "bytes", "bytes_from", "count"]].tolist() == [
        "all_reduce",
        "step",
        2,
        1 << 20,
        "NCCL",
        4,
    ]
    assert row[["time_ns", "waiting_ns", "transfer_ns", "transfer_p50_ns"]].tolist() == [
        1_200_000,
        400_000,
        800_000,
        100_000,
    ]
    assert row["bus_byte_per_s"] == pytest.approx((1 << 20) * 1.0 / 100e-6)
    assert row["roof_frac"] == pytest.approx(0.5)


def test_a_gather_counts_what_a_rank_has_at_its_end(tmp_path: Path) -> None:
    tables = world_of(Ranks(kernel=ALL_GATHER, call="ncclAllGather").export(), tmp_path)
    row = tables.collectives.iloc[0]
    assert (row["kind"], row["bytes"]) == ("all_gather", 2 << 20)
    assert row["bus_byte_per_s"] == pytest.approx((2 << 20) * 0.5 / 100e-6)


@pytest.mark.parametrize("era", [2022, 2023])
def test_bytes_that_nobody_says_are_not_guessed(era: int, tmp_path: Path) -> None:
    tables = world_of(Ranks(said=False, entered=False, era=era).export(), tmp_path)
    row = tables.collectives.iloc[0]
    assert pd.isna(row["bytes"])
    assert pd.isna(row["bus_byte_per_s"])
    assert (row["ranks"], row["waiting_ns"]) == (2, 400_000)


def test_a_payload_as_text_says_the_same(tmp_path: Path) -> None:
    export = Ranks(said=False, entered=False, era=2023).export()
    for row in export.rows["NVTX_EVENTS"]:
        if row["text"] == "ncclAllReduce":
            row["jsonText"] = '{"NCCL communicator ID": "12,345", "Message size [bytes]": "4,096"}'
    tables = world_of(export, tmp_path)
    assert tables.collectives["bytes"].tolist() == [4096]


def test_a_damaged_payload_is_no_payload(tmp_path: Path) -> None:
    export = Ranks(entered=False).export()
    for row in export.rows["NVTX_EVENTS"]:
        if row.get("binaryData"):
            row["binaryData"] = row["binaryData"][:40]
    tables = world_of(export, tmp_path)
    assert tables.collectives["bytes"].isna().all()


def test_the_call_tells_what_a_generic_kernel_does(tmp_path: Path) -> None:
    tables = world_of(Ranks(kernel=GENERIC).export(), tmp_path)
    assert tables.collectives["kind"].tolist() == ["all_reduce"]


def test_a_group_that_launches_one_kernel_has_the_bytes_of_its_calls(tmp_path: Path) -> None:
    export = Export(2025)
    for rank in (0, 1):
        place: dict[str, Any] = {"pid": 10 + rank, "tid": 10 + rank}
        export.domain("NCCL", 3, **place)
        export.nccl("ncclGroupStart", 10, 11, **place)
        for call in (0, 1):
            export.nccl("ncclAllReduce", 20 + 5 * call, 22 + 5 * call, **place, comm=COMM, bytes=100)
        export.nccl("ncclGroupEnd", 40, 60, **place)
        export.launch(ALL_REDUCE, (45, 50), (100, 200), **place, device=rank)
    tables = world_of(export, tmp_path)
    assert tables.collectives["bytes"].tolist() == [200]


# Exposed or overlapped --------------------------------------------------------------------------------------------


def test_communication_beside_a_kernel_that_computes_is_not_exposed(tmp_path: Path) -> None:
    export = Ranks().export()
    for rank in (0, 1):
        export.launch("gemm2", (5000, 5100), (301_000, 381_000), pid=10 * (rank + 1), tid=99, device=rank, stream=8)
    tables = world_of(export, tmp_path)
    overlap = tables.overlap.set_index("rank")
    assert overlap["overlapped_ns"].tolist() == [80_000, 80_000]
    assert overlap["exposed_ns"].tolist() == [720_000, 320_000]
    assert overlap["exposed_waiting_ns"].tolist() == [400_000, 0]  # the overlap lies behind the start of rank 1
    assert tables.ranks["exposed_ns"].tolist() == [720_000, 320_000]


def test_the_rank_that_all_others_wait_for(tmp_path: Path) -> None:
    tables = world_of(Ranks().export(), tmp_path)
    first = tables.stragglers.iloc[0]
    assert (first["rank"], first["last"], first["collectives"], first["last_frac"]) == ("rank 1", 4, 4, 1.0)
    assert (first["caused_waiting_ns"], first["behind_mean_ns"]) == (400_000, 200_000)
    assert first["compute_over_mean"] == pytest.approx(1160 / 960)


def test_copies_between_gpus_are_communication(tmp_path: Path) -> None:
    export = Export()
    for device in (0, 1):
        export.launch("k", (0, 5), (10, 100), device=device)
    for at in (200, 400):
        export.memcpy(at, at + 100, export.call(at - 50, at - 40, name="cudaMemcpyPeerAsync"), 1000, 10)
    tables = world_of(export, tmp_path)
    row = tables.collectives.iloc[0]
    assert (row["kind"], row["bytes"], row["count"], row["bus_byte_per_s"]) == (
        "peer_copy",
        1000,
        2,
        pytest.approx(1e10),
    )
    assert tables.ranks["communication_ns"].tolist() == [200, 0]
    assert tables.ranks["process_rank"].isna().all()


# What does not fit ------------------------------------------------------------------------------------------------


def test_a_rank_without_a_capture_is_a_gap_and_waiting_stays_blank(tmp_path: Path) -> None:
    export = Export(2025)
    for rank in (0, 1):
        Ranks().add(export, rank, world=4)
    tables = world_of(export, tmp_path)
    assert gap_of(tables, "the captures of 2 of 4 ranks")
    row = tables.collectives.iloc[0]
    assert row[["waiting_ns", "transfer_ns", "bus_byte_per_s"]].isna().all()
    assert tables.stragglers.empty


def test_ranks_with_different_programs_are_a_gap(tmp_path: Path) -> None:
    export = Export(2025)
    Ranks().add(export, 0)
    Ranks(kernel=ALL_GATHER, call="ncclAllGather").add(export, 1)
    tables = world_of(export, tmp_path)
    gap = gap_of(tables, "waiting and transfer of the collectives from number 1 on")
    assert gap
    assert "all_reduce on rank 0, all_gather on rank 1" in gap.why
    assert tables.collectives["waiting_ns"].isna().all()


def test_a_collective_that_the_window_cut_off_leaves_the_others_matched(tmp_path: Path) -> None:
    export = Export(2025)
    Ranks(steps=5).add(export, 0)
    Ranks(steps=4).add(export, 1, shift=STEP)
    tables = world_of(export, tmp_path)
    assert gap_of(tables, "the partners of 1 collective")
    assert tables.stragglers["collectives"].tolist() == [4, 4]
    assert tables.ranks["waiting_ns"].tolist() == [400_000, 0]


def test_clocks_that_cannot_be_aligned_are_a_gap(tmp_path: Path) -> None:
    export = Export(2025)
    Ranks(late=0).add(export, 0)
    for step in range(4):
        Ranks(late=0, steps=1, entered=step == 0).add(export, 1, shift=step * STEP + (-1) ** step * 300_000)
    tables = world_of(export, tmp_path)
    gap = gap_of(tables, "which rank waits for which")
    assert gap
    assert "rank 1 by 300 µs" in gap.why
    assert tables.ranks["waiting_ns"].isna().all()
    assert tables.ranks["exposed_ns"].tolist() == [800_000, 800_000]  # that needs no other rank's clock
    found = next(one for one in tables.once(findings_of) if one.kind == "exposed_communication")
    assert "How much of it waits for another rank is not known" in found.sentence


# Identities -------------------------------------------------------------------------------------------------------

OPS = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 200), st.sampled_from(["k", ALL_REDUCE, "[CUDA memset]"]), st.sampled_from([0, 1])),
    min_size=2, max_size=30,
)  # fmt: skip


@settings(max_examples=25)
@given(OPS)
def test_the_parts_of_any_timeline_add_up(rows: list[tuple[int, int, str, int]]) -> None:
    frame = pd.DataFrame(rows, columns=["start_ns", "duration_ns", "name", "rank"]).sort_values("start_ns")
    kind = frame["name"].map({"k": "kernel", ALL_REDUCE: "kernel", "[CUDA memset]": "memset"})
    columns = {
        **frame.drop(columns="rank"), "kind": kind, "device": frame["rank"].astype(str), "pid": frame["rank"] + 1,
        "tid": [1] * len(frame), "api_start_ns": frame["start_ns"] - 5, "api_end_ns": frame["start_ns"] - 4,
    }  # fmt: skip
    world = Facts(Capture(gpu_ops=as_table(columns, GPU_OPS_COLUMNS)))
    ranks = world.ranks
    if len(ranks):
        assert (ranks[["compute_ns", "exposed_ns", "copies_ns", "idle_ns"]].sum(axis=1) == ranks["wall_ns"]).all()
        assert (ranks["exposed_ns"] <= ranks["communication_ns"]).all()
    collectives = world.collectives.dropna(subset=["waiting_ns"])
    assert (collectives["transfer_ns"] >= 0).all()
    assert (collectives["waiting_ns"] + collectives["transfer_ns"] <= collectives["time_ns"]).all()


# Findings and pictures --------------------------------------------------------------------------------------------


def test_exposed_transfer_and_the_straggler_say_what_the_tables_of_ranks_tell(tmp_path: Path) -> None:
    found = {one.kind: one for one in world_of(Ranks().export(), tmp_path).once(findings_of)}
    exposed, slow = found["exposed_communication"].sentence, found["slow_rank"]
    assert "takes 200 µs on rank 0; no kernel computes meanwhile. 100 µs of it waits for another rank." in exposed
    assert slow.cells[0].row["about"] == "Rank 1"
    assert slow.sentence.startswith(
        "Rank 1 has 100 µs more work on its GPU than the mean of the others in each step, in range step"
    )
    assert "It is the last to start 3 of 3 collectives, in all 100 µs late in each step" in slow.sentence


def test_a_rank_that_works_longer_while_nobody_waits_for_it_is_no_finding(tmp_path: Path) -> None:
    """The second rank computes longer beside its collectives, and starts each as early as the first."""
    export = Ranks(late=0).export()
    for step in range(4):
        at = step * STEP + 420_000
        export.launch("own", (at, at + 1000), (at + 10_000, at + 400_000), pid=20, tid=20, device=1)
    found = world_of(export, tmp_path).once(findings_of)
    assert "slow_rank" not in {one.kind for one in found}


def test_each_call_that_allocates_and_copies_weights_again_is_a_cost(tmp_path: Path) -> None:
    export = Export()
    for step in range(5):
        at = step * STEP
        export.push("step", at, at + 900_000)
        for device in (0, 1):
            begin = at + 400_000 * device
            export.call(begin + 1000, begin + 101_000, name="cudaMalloc_v3020")
            corr = export.call(begin + 101_000, begin + 102_000, name="cudaMemcpyAsync_v3020")
            export.memcpy(begin + 110_000, begin + 210_000, corr, 1_000_000, 1, device=device, memory=(0, 2))
            export.launch("k", (begin + 211_000, begin + 212_000), (begin + 220_000, begin + 230_000), device=device)
    world = world_of(export, tmp_path)
    costs = world.once(build_rank_costs).set_index(["cause", "rank"])
    assert costs["count"].tolist() == [9, 5, 5, 5, 5]
    repeated = costs.loc[("repeated_copies", "GPU 0")]
    assert (repeated["time_ns"], repeated["bytes"], repeated["win_ns"], repeated["range"]) == (
        500_000,
        5_000_000,
        400_000,
        "step",
    )
    pageable = costs.loc[("pageable_copies", "GPU 1")]
    assert pageable["win_ns"] == 5 * (
        100_000 - 1_000_000 / 50
    )  # pinned memory moves 50 GB/s where no link was measured
    allocations = costs.xs("allocation_in_loop").iloc[0]
    assert (allocations["time_ns"], allocations["win_ns"]) == (900_000, 900_000)
    assert "allocation" in {one.kind for one in world.once(findings_of)}


@pytest.mark.parametrize(("kernels_between", "found"), [(True, 2), (False, 0)])
def test_without_ranges_only_copies_between_kernels_are_repeated(
    tmp_path: Path, kernels_between: bool, found: int
) -> None:
    """Eight weights of one size that are loaded once, one after the other, are no loop."""
    export = Export()
    for number in range(8):
        for device in (0, 1):
            at = number * STEP
            corr = export.call(at, at + 10, name="cudaMemcpyAsync_v3020")
            export.memcpy(at + 20, at + 100_020, corr, 1_000_000, 1, device=device, memory=(0, 2))
            if kernels_between or number == 7:
                export.launch("k", (at + 20, at + 30), (at + 200_000, at + 300_000), device=device)
    assert world_of(export, tmp_path).once(build_rank_costs).cause.eq("repeated_copies").sum() == found


def test_copies_behind_kernels_cost_nothing(tmp_path: Path) -> None:
    export = Export()
    for step in range(5):
        at = step * STEP
        for device in (0, 1):
            export.launch("k", (at, at + 10), (at + 100_000, at + 300_000), device=device)
            corr = export.call(at + 20, at + 30, name="cudaMemcpyAsync_v3020")
            export.memcpy(at + 110_000, at + 210_000, corr, 1_000_000, 1, device=device, memory=(0, 2))
    assert world_of(export, tmp_path).once(build_rank_costs).win_ns.eq(0).all()


def test_the_lanes_of_the_timeline_name_the_rank(tmp_path: Path) -> None:
    world = world_of(Ranks().export(), tmp_path)
    assert set(world.once(build_operations)["lane"]) == {"rank 0 stream 7", "rank 1 stream 7"}


def test_the_pictures_of_links_and_of_the_timeline(tmp_path: Path) -> None:
    world = world_of(Ranks().export(), tmp_path, ceilings=measured_links([1 << 20], 9e4))
    times, sizes = plot_timeline(world, ""), plot_links(world, "")
    assert times is not None
    assert sizes is not None
    texts = [text.get_text() for text in times.axes[0].get_yticklabels()]
    assert texts == ["rank 0, NVIDIA H200 (0)", "rank 1, NVIDIA H200 (1)"]
    rings = [line for line in sizes.axes[0].lines if line.get_marker() == "o"]
    assert [float(line.get_xdata()[0]) for line in rings] == [1 << 20]


# The CSV files of `make profile` ----------------------------------------------------------------------------------


def csv_of(folder: Path, *, calls: str = "", ranks: str = "") -> Capture:
    """What nsys stats exports of two ranks with a copy each, whose correlation ids are the same."""
    rows = [("gemm", 100, 50), (ALL_REDUCE, 200, 100)]
    trace, launches, api = [], [], []
    for rank in (0, 1):
        pid, device = 50 - rank, f"NVIDIA H200 ({rank})"
        for at, (name, start, length) in enumerate(rows):
            trace.append(f'{start},{length},{at},1,1,1,32,1,1,32,0,0,,,,,"{device}",1,7,"{name}"')
            launches.append(
                f'{start - 20},5,,,{start},{length},{length + 20},{pid},{pid},{rank},cudaLaunchKernel,1 1 1,32 1 1,"{name}"'
            )
        trace.append(f'400,10,9,,,,,,,,,,1000,,Pageable,Device,"{device}",1,7,[CUDA memcpy Host-to-Device]')
        api.append(f"{350 + rank},5,cudaMemcpyAsync,0,9,{pid},{pid}")
    heads = {
        "trace": "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (B),"
        "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name",
        "launches": "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),Total Dur (ns),"
        "PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name",
        "api": "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid",
    }
    for name, lines in (("trace", trace), ("launches", launches), ("api", api)):
        (folder / f"{name}.csv").write_text("\n".join([heads[name], *lines]) + "\n")
    for name, text in (("calls", calls), ("ranks", ranks)):
        if text:
            (folder / f"{name}.csv").write_text(text)
    return load([folder])


def test_copies_of_csv_exports_belong_to_the_rank_of_their_gpu(tmp_path: Path) -> None:
    noted = PROCESS_RANKS.text([{"pid": 50, "process_rank": 0, "ranks": 2}, {"pid": 49, "process_rank": 1, "ranks": 2}])
    capture = csv_of(tmp_path, ranks=noted)
    copies = capture.gpu_ops[capture.gpu_ops["kind"] == "memcpy"].sort_values("pid")
    assert copies[["pid", "api_start_ns"]].to_numpy().tolist() == [[49, 351], [50, 350]]
    ranks = Facts(capture).ranks
    assert ranks[["rank", "rank_from", "device", "copies_ns"]].to_numpy().tolist() == [
        ["rank 0", "environment", "NVIDIA H200 (0)", 10], ["rank 1", "environment", "NVIDIA H200 (1)", 10],
    ]  # fmt: skip


def test_the_calls_that_the_export_keeps_have_the_bytes(tmp_path: Path) -> None:
    export = Export(2025)
    for rank in (0, 1):
        place: dict[str, Any] = {"pid": 50 - rank, "tid": 50 - rank}
        export.domain("NCCL", 3, **place)
        export.nccl("ncclCommInitRank", 1, 2, **place, comm=COMM, ranks=2, rank=rank)
        export.nccl("ncclAllReduce", 170, 190, **place, comm=COMM, bytes=4096)
    text = nsys_extras.nccl_calls(export.save(tmp_path / "x.sqlite"))
    assert text.splitlines()[:3] == [
        NCCL_CALLS.header,
        f"49,49,1,2,ncclCommInitRank,,{COMM:x},1,2",
        f"49,49,170,190,ncclAllReduce,4096,{COMM:x},,",
    ]
    (tmp_path / "csv").mkdir()
    world = Facts(csv_of(tmp_path / "csv", calls=text))
    assert world.collectives[["bytes", "bytes_from", "ranks"]].to_numpy().tolist() == [[4096, "NCCL", 2]]
    assert world.ranks["rank_from"].tolist() == ["NCCL", "NCCL"]


def test_an_export_without_nccl_has_no_calls(tmp_path: Path) -> None:
    export = Export()
    export.launch("k", (0, 1), (2, 3))
    assert nsys_extras.nccl_calls(export.save(tmp_path / "x.sqlite")) == ""


def test_ranks_that_processes_noted_become_a_file(tmp_path: Path) -> None:
    for pid, rank in ((9, 1), (8, 0)):
        noted = {"pid": pid, "process_rank": rank, "ranks": 2, "local_rank": None}
        (tmp_path / f"rank-{pid}.json").write_text(json.dumps(noted))
    assert process_ranks.main([str(tmp_path), "--out", str(tmp_path)]) == 0
    assert (tmp_path / PROCESS_RANKS.name).read_text() == f"{PROCESS_RANKS.header}\n8,0,2,\n9,1,2,\n"


# One capture a rank -----------------------------------------------------------------------------------------------


def save_each(folder: Path, *, names: tuple[str, str] = ("a0", "a1"), entered: bool = True) -> None:
    """A file a rank, the second on a clock that is 7 ms ahead; both have the same process id and GPU number."""
    for rank, name in enumerate(names):
        export = Ranks(ranks=(), entered=entered).export()
        Ranks(entered=entered).add(export, rank, shift=7_000_000 * rank)
        for rows in export.rows.values():
            for row in rows:
                for column in ("globalTid", "globalPid"):
                    if row.get(column):
                        row[column] = export.gtid(5, 5 if column == "globalTid" else 0)
                if "deviceId" in row:
                    row["deviceId"] = 0
        export.gpu(0)
        export.save(folder / f"{name}.sqlite")


def test_one_capture_a_rank_is_one_timeline(tmp_path: Path) -> None:
    save_each(tmp_path)
    capture = load([tmp_path])
    assert sorted(capture.process_ranks.values()) == [0, 1]
    world = Facts(capture)
    ranks = world.ranks
    assert ranks[["rank", "rank_from", "waiting_ns", "compute_ns"]].to_numpy().tolist() == [
        ["rank 0", "NCCL", 400_000, 760_000], ["rank 1", "NCCL", 0, 1_160_000],
    ]  # fmt: skip
    assert ranks["device"].tolist() == ["NVIDIA H200 (0) of a0.sqlite", "NVIDIA H200 (0) of a1.sqlite"]
    assert ranks["offset_ns"].fillna(-1).tolist() == [-1, 7_000_000]
    assert ranks["skew_ns"].fillna(-1).tolist() == [-1, 0]
    assert world.collectives["waiting_ns"].tolist() == [400_000]
    assert world.gpu_ops["path"].eq("").sum() == 0


def test_ranks_of_files_without_them_are_in_their_names(tmp_path: Path) -> None:
    save_each(tmp_path, names=("trace_rank1", "trace_rank0"), entered=False)
    ranks = Facts(load([tmp_path])).ranks
    assert ranks[["rank_from", "compute_ns"]].to_numpy().tolist() == [
        ["file names", 1_160_000],
        ["file names", 760_000],
    ]


def test_captures_whose_clocks_cannot_be_aligned_are_one_sentence(tmp_path: Path) -> None:
    Ranks(ranks=(0,), late=0).export().save(tmp_path / "a.sqlite")
    export = Export(2025)
    for step in range(4):
        Ranks(steps=1, late=0).add(export, 1, shift=step * STEP + (-1) ** step * 300_000)
    export.save(tmp_path / "b.sqlite")
    with pytest.raises(InputError, match=r"a\.sqlite and b\.sqlite .* clocks cannot be aligned: .* end 300 µs apart"):
        load([tmp_path])


def test_captures_of_different_programs_are_one_sentence(tmp_path: Path) -> None:
    Ranks(ranks=(0,)).export().save(tmp_path / "a.sqlite")
    Ranks(ranks=(1,), kernel=ALL_GATHER, call="ncclAllGather").export().save(tmp_path / "b.sqlite")
    with pytest.raises(InputError, match="whose collectives differ: number 1 is all_reduce and all_gather"):
        load([tmp_path])


def test_two_captures_of_one_rank_are_one_sentence(tmp_path: Path) -> None:
    Ranks(ranks=(0,)).export().save(tmp_path / "a.sqlite")
    Ranks(ranks=(0,), late=1).export().save(tmp_path / "b.sqlite")
    export = Ranks(ranks=(0,)).export()
    export.launch("other", (1, 2), (3, 4), pid=10)
    export.save(tmp_path / "b.sqlite")
    with pytest.raises(InputError, match="name one rank twice"):
        load([tmp_path])


def test_the_traces_of_torch_a_file_a_rank(tmp_path: Path) -> None:
    for rank in (0, 1):
        events: list[dict[str, Any]] = []
        for step in range(3):
            at, corr = 1000.0 * step + 5 * rank, step + 1
            call = {"ph": "X", "pid": 100, "tid": 100, "args": {"correlation": corr}}
            events.append({**call, "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "ts": at, "dur": 2})
            said = {
                "Collective name": "_allgather_base",
                "In msg nelems": 512,
                "Out msg nelems": 1024,
                "Group size": 2,
                "dtype": "BFloat16",
            }
            args = {"correlation": corr, "device": rank, "stream": 7, "Process Group Name": "0", **said}
            events.append(
                {"ph": "X", "cat": "kernel", "name": ALL_GATHER, "ts": at + 10, "dur": 100 - 5 * rank, "args": args}
            )
        document = {"traceEvents": events, "distributedInfo": {"rank": rank, "world_size": 2}}
        (tmp_path / f"worker{rank}.json").write_text(json.dumps(document))
    world = Facts(load([tmp_path]))
    assert world.ranks[["rank", "rank_from"]].to_numpy().tolist() == [
        ["rank 0", "torch.profiler"],
        ["rank 1", "torch.profiler"],
    ]
    row = world.collectives.iloc[0]
    assert row[["kind", "ranks", "bytes", "bytes_from", "count", "waiting_ns"]].tolist() == [
        "all_gather", 2, 2048, "torch.profiler", 3, 15_000,
    ]  # fmt: skip


# What ncu may replay ----------------------------------------------------------------------------------------------


def test_ncu_gets_kernels_of_one_gpu_that_compute_and_no_memory_is_restored(tmp_path: Path) -> None:
    export = Ranks().export()
    export.launch("void ns::act<float>(float *)", (500, 600), (700, 800), pid=20, tid=20, device=1)
    export.launch("void ns::act<float>(float *)", (500, 600), (700, 800), pid=10, tid=10, device=0)
    export.save(tmp_path / "x.sqlite")
    table, selection = counting.plan(tmp_path, 1000.0)
    assert (selection["device"], selection["replay"]) == (0, "application")
    assert selection["kernels"] == "(^|[^0-9])(3act|4gemm)|^(act|gemm)$"
    assert selection["replayed"] <= 5
    launches, _ = counting.launches_of(tmp_path)
    rows = [int(row) for line in csv.DictReader(table.splitlines()) for row in line["replayed"].split()]
    chosen = launches.iloc[rows]
    assert set(chosen["device"].astype(str)) == {"NVIDIA H200 (0)"}
    assert not chosen["name"].str.contains("nccl").any()
    pattern = re.compile(selection["kernels"])
    assert all(pattern.search(name) for name in ("_Z4gemmPf", "_ZN2ns3actIfEEvPT_", "gemm"))
    nccl = "_Z35ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE"
    assert not any(pattern.search(name) for name in (nccl, "_Z5gemm2Pf", "_Z14gemm_with_more", "my_gemm"))
    assert "no collective" in counting.said(selection)


def test_ranks_that_call_their_gpu_alike_cannot_be_replayed_alone(tmp_path: Path) -> None:
    export = Ranks(ranks=()).export()
    for rank in (0, 1):
        Ranks().add(export, rank)
    for row in export.rows["CUPTI_ACTIVITY_KIND_KERNEL"]:
        row["deviceId"] = 0
    export.save(tmp_path / "x.sqlite")
    with pytest.raises(InputError, match="all call their GPU 0, so ncu cannot replay one rank alone"):
        counting.plan(tmp_path, 60.0)


def test_a_program_of_collectives_alone_has_nothing_to_replay(tmp_path: Path) -> None:
    export = Export(2025)
    for rank in (0, 1):
        export.launch(ALL_REDUCE, (0, 5), (10, 100), pid=rank + 1, device=rank)
    export.save(tmp_path / "x.sqlite")
    _, selection = counting.plan(tmp_path, 60.0)
    assert selection["replayed"] == 0


def test_counters_of_one_rank_belong_to_its_launches(tmp_path: Path) -> None:
    Ranks().export().save(tmp_path / "x.sqlite")
    launches, _ = counting.launches_of(tmp_path)
    rows = np.flatnonzero((launches["pid"] == 10) & (launches["name"] == "gemm"))
    counted = pd.DataFrame({"file": "f", "ncu_id": range(len(rows)), "path": "step", "name": "gemm"})
    counted = prepare_counters(counted.assign(grid="1x1x1", block="32x1x1", pid=1, device="0", cc="9.0"))
    found = join(launches, counted, [], planned=rows).launches
    assert found.loc[rows, "counters_from"].tolist() == ["measured"] * 4
    assert (found.drop(rows)["counters_from"] == "").all()


# What NCCL leaves open ---------------------------------------------------------------------------------------------


def test_a_range_that_nccl_leaves_open_encloses_nothing() -> None:
    rows = [
        (0, 0, 0, 10, pd.NA, "push", "NCCL:ncclCommInitRankConfig"),
        (0, 0, 0, 20, 90, "push", "step"),
        (0, 0, 0, 30, 50, "push", "NCCL:ncclAllReduce"),
        (0, 0, 0, 60, pd.NA, "push", "open"),
    ]
    names = ["process", "process_rank", "thread", "start_ns", "end_ns", "style", "name"]
    frame = pd.DataFrame(rows, columns=names).astype({"start_ns": "Int64", "end_ns": "Int64"})
    read = ours.bare_ranges(frame, "bare_ranges.csv")
    assert read["path"].tolist() == ["step", "step/NCCL:ncclAllReduce", "step/open"]


def test_ncu_prints_the_range_that_nccl_leaves_open_for_every_kernel() -> None:
    entries = [
        f'"{domain}:{name}:none:none:none:none:none:none"'
        for domain, name in (
            ("<default domain>", "step"),
            ("NCCL", "ncclCommInitRankConfig"),
            ("NCCL", "ncclAllReduce"),
        )
    ]
    assert ncu_csv.push_pop_path(f"7  {'  '.join(entries)}") == "step/NCCL:ncclAllReduce"
    assert ncu_csv.push_pop_path(f"7  {'  '.join(entries[:2])}") == "step"


def whole_program() -> Export:
    """Two ranks whose capture begins before NCCL does; NCCL leaves the range of ncclCommInitRankConfig open."""
    export = Ranks(entered=False).export()
    for rank in (0, 1):
        place: dict[str, Any] = {"pid": 10 * (rank + 1), "tid": 10 * (rank + 1)}
        export.nccl("ncclCommInitRankConfig", 1, 2, **place, comm=COMM, ranks=2, rank=rank)
        export.rows["NVTX_EVENTS"][-1]["end"] = None
    return export


def test_in_a_timeline_of_the_whole_program_too(tmp_path: Path) -> None:
    world = world_of(whole_program(), tmp_path)
    assert set(world.gpu_ops["path"]) == {"step", "step/NCCL:ncclAllReduce"}
    assert world.ranks[["rank", "rank_from"]].to_numpy().tolist() == [["rank 0", "NCCL"], ["rank 1", "NCCL"]]
    assert world.collectives[["range", "ranks", "bytes"]].to_numpy().tolist() == [["step", 2, 1 << 20]]
    assert gap_of(world, "the end of") is None  # nobody but NCCL can close it
    pd.testing.assert_frame_equal(world.ranks, world_of(Ranks().export(), tmp_path).ranks)


def test_a_range_of_the_program_that_stays_open_encloses_what_follows(tmp_path: Path) -> None:
    export = Ranks().export()
    export.push("open", 500, None, pid=10, tid=10)
    world = world_of(export, tmp_path)
    assert set(world.gpu_ops["path"].str.partition("/")[0]) == {"step", "open"}
    assert gap_of(world, "the end of 1 NVTX ranges")


def test_in_the_csv_reports_of_nsys_such_a_range_lasts_to_the_last_event(tmp_path: Path) -> None:
    head = (
        "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild,RangeId,ParentId,"
    )
    rows = [
        (10, 900, 700, "NCCL:ncclCommInitRank", 0, 2, 1, "", ":1"),
        (20, 320, 90, ":step", 1, 1, 2, 1, ":1:2"),
        (30, 120, 0, "NCCL:ncclAllReduce", 2, 0, 3, 2, ":1:2:3"),
        (400, 800, 0, ":step", 1, 0, 4, 1, ":1:4"),
    ]
    lines = [
        f"{start},{end},{end - start},{inside},{end - start - inside},{name},7,7,{level},{children},{number},{parent},"
        f"{stack},{'--' * level}{name}"
        for start, end, inside, name, level, children, number, parent, stack in rows
    ]
    (tmp_path / "pushpop.csv").write_text("\n".join([f"{head}RangeStack,NameTree", *lines]) + "\n")
    (tmp_path / "sums.csv").write_text(
        "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),"
        "Kernel Name\n" + "".join(
            f"{name},PushPop,7,7,1,1,50,50.0,50.0,50,50,0.0,gemm\n" for name in ("NCCL:ncclCommInitRank", ":step")
        )
    )  # fmt: skip
    (tmp_path / "launches.csv").write_text(
        "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),Total Dur (ns),"
        "PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name\n"
        "410,5,,,500,50,140,7,7,0,cudaLaunchKernel,1 1 1,32 1 1,gemm\n"
    )
    world = Facts(load([tmp_path]))
    assert world.ranges["path"].tolist() == ["step", "step/NCCL:ncclAllReduce", "step"]
    assert world.ranges["level"].tolist() == [0, 1, 0]
    assert any("to the nanosecond in 1 of 1 ranges" in note for note in notes_of(world))


# A profile of two ranks, made by `make profile CMD='torchrun …'` on two H200s -----------------------------------------


def test_a_recorded_profile_of_two_ranks_has_counters_bare_times_and_bytes() -> None:
    world = Facts(load([ROOT / "tests/cpu/data/profile/ranks/captures"]))
    joined = world.joined
    assert joined.matched == 28
    steps = world.gaps
    assert len(steps) == 8
    assert steps["bare_wall_ns"].notna().all()
    collectives = world.collectives
    assert set(collectives["kind"]) >= {"all_reduce", "all_gather"}
    assert collectives["bytes"].notna().all()
    assert collectives["bytes_from"].eq("NCCL").all()
    ranks = world.ranks
    assert ranks["wall_ns"].max() / ranks["wall_ns"].min() == pytest.approx(1, abs=1e-3)


def test_ranks_of_other_processes_name_no_rank() -> None:
    """The recorded profile noted the processes of its run without a profiler, as `make profile` did then."""
    capture = load([ROOT / "tests/cpu/data/profile/ranks/captures"])
    assert capture.process_ranks == {}
    assert capture.ranks_from == ""
    world = Facts(capture)
    assert world.ranks["rank_from"].tolist() == ["order of processes"] * 2
    assert any("nor the ranks of its processes" in gap.why for gap in missing_of(world))
