"""Findings: why a kernel takes its time, what the host waits for, and names that stay apart."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from analysis.capture.model import RANGES_COLUMNS, Capture, as_table, empty_table
from analysis.capture.summaries import SUMMARIES
from analysis.diagnosis import findings
from analysis.diagnosis.claims import Claim
from analysis.diagnosis.copies import large_copies
from analysis.diagnosis.host import cpu_ranges, explain_call, host_waits
from analysis.diagnosis.hot import NO_CAUSE, hot_kernels
from analysis.facts import Facts
from analysis.formats import symbols
from analysis.formats.words import duration, share, tell_apart
from analysis.page import text
from analysis.tables.host import build_host
from tests.declared import STUDY_TABLES, TABLES, analyse

KERNEL = {
    "kernel": "k", "range": "step/a", "grid": "4096x1x1", "block": "256x1x1", "launches": 10, "nsys_time_ns": 5_000_000,
    "ncu_time_ns": None, "share_frac": 1.0, "registers": 32, "occupancy_theoretical_frac": None,
    "occupancy_achieved_frac": None, "tier": "timing",
}  # fmt: skip


def tables(*kernels: dict[str, Any], **others: list[dict[str, Any]]) -> dict[str, pd.DataFrame]:
    """The tables that reasons are taken from; rows of `others` may leave columns blank."""
    made = {"kernels": pd.DataFrame([{**KERNEL, **row} for row in kernels or ({},)])}
    for name in ("rules", "roofline", "stalls", "source", "counters"):
        rows = pd.DataFrame(others.get(name, []), columns=(TABLES | STUDY_TABLES)[name].column_names)
        made[name] = rows.assign(kernel="k", range="step/a") if len(rows) else rows
    host = pd.DataFrame(others.get("host", []), columns=["source", "call", "calls", "host_time_ns", "median_ns"])
    return {**made, "host": host}


def only(found: list[Claim]) -> Claim:
    (one,) = found
    return one


def told(claim: Claim) -> str:
    return f"{claim.sentence} {claim.do}".rstrip()


@pytest.mark.parametrize(
    ("rows", "headline", "said"),
    [
        (
            {"rules": [{"rule": "Occupancy", "type": "OPT", "speedup_frac": 0.66, "text": "ncu's words"}]},
            "k: ncu's rule Occupancy estimates 66%",
            "ncu's rule Occupancy estimates a speed-up of 66%: few warps are resident.",
        ),
        (
            {"rules": [{"rule": "SOLBottleneck", "type": "OPT", "launches": 1, "text": "Memory is more heavily used"}]},
            "k: memory is busier than arithmetic",
            "By ncu's rule SOLBottleneck memory is busier than arithmetic.",
        ),
        (
            {"roofline": [{"level": "dram", "bound": "memory", "roof_frac": 0.92}]},
            "k: reaches 92% of the DRAM bandwidth limit",
            "it is near that limit",
        ),
        (
            {"counters": [{"dram_throughput_frac": 0.12, "sm_throughput_frac": 0.09}]},
            "k: neither memory nor the SMs are busy (12%, 9.0%)",
            "DRAM is at 12% of its peak and the SMs at 9.0%: it waits",
        ),
        (
            {"counters": [{"dram_throughput_frac": 0.62, "sm_throughput_frac": 0.2}]},
            "k: DRAM is busy at 62%",
            "DRAM is at 62% of its peak and the SMs at 20%. Fewer bytes make it faster, or more independent work.",
        ),
        (
            {"counters": [{"dram_throughput_frac": 0.2, "sm_throughput_frac": 0.85}]},
            "k: the SMs are busy at 85%",
            "DRAM is at 20% of its peak and the SMs at 85%. Only fewer or cheaper instructions make it much faster.",
        ),
        (
            {"counters": [{"sectors_per_request_load": 32.0}]},
            "k: a load of a warp touches 32.0 sectors, and 4 to 16 are enough",
            "it is not coalesced",
        ),
        (
            {"counters": [{"threads_per_inst": 4.0}]},
            "k: 4.0 of a warp's 32 threads are active",
            "the others take another branch",
        ),
        (
            {"stalls": [{"reason": "long_scoreboard", "share_frac": 0.7}]},
            "k: 70% of its stalls are long_scoreboard",
            "Its warps wait for data of global or local memory (long_scoreboard): 70% of its stalls.",
        ),
        (
            {"source": [{"place": "k.cu:12", "share_frac": 0.4, "stall": "wait"}]},
            "k: 40% of its samples are at k.cu:12",
            "40% of its samples are at k.cu:12, most of them wait.",
        ),
    ],
)
def test_a_reason_comes_from_the_table_that_knows_it(rows, headline, said):
    found = only(hot_kernels(tables(**rows), "nsys"))
    assert found.title == headline
    assert said in told(found)
    assert told(found).startswith("10 launches take 5 ms by nsys, 500 µs each on average: 100% of the kernel")
    cited = {item.table for item in found.cells}
    assert cited == {"kernels", next(iter(rows))}


@pytest.mark.parametrize(
    ("row", "sm_count", "headline"),
    [
        ({"grid": "16x1x1"}, 132, "k: its grid of 16 blocks leaves SMs without work"),
        ({"grid": "1x1x1"}, None, "k: its grid of 1 block leaves SMs without work"),
        ({"grid": "16x1x1"}, None, f"k, 100% of the kernel time: {NO_CAUSE}"),
        ({"grid": "128x1x1"}, 132, f"k, 100% of the kernel time: {NO_CAUSE}"),
        ({"block": "1x1x1"}, 132, "k: its blocks of 1 thread leave lanes idle"),
        ({"registers": 255}, 132, "k: 255 registers a thread allow only 8 warps an SM"),
        ({"registers": 255, "occupancy_theoretical_frac": 0.125}, 132, "k: occupancy of 12% at most"),
        ({"registers": 255, "grid": "120x1x1", "block": "256x1x1"}, 132, f"k, 100% of the kernel time: {NO_CAUSE}"),
        (
            {"registers": 255, "grid": "264x1x1", "block": "256x1x1"},
            132,
            "k: 255 registers a thread allow only 8 warps an SM",
        ),
        ({"nsys_time_ns": 40_000}, 132, "k: 10 short launches, 4 µs each"),
    ],
)
def test_a_timeline_alone_knows_reasons(row, sm_count, headline):
    assert only(hot_kernels(tables(row), "nsys", sm_count=sm_count)).title == headline


def test_a_short_launch_is_held_against_the_call_that_launches_it():
    call = {"source": "CUDA API", "call": "cudaLaunchKernel", "calls": 10, "host_time_ns": 60_000, "median_ns": 5_500}
    found = only(hot_kernels(tables({"nsys_time_ns": 40_000}, host=[call]), "nsys"))
    assert "cudaLaunchKernel itself takes 5.5 µs of the host (median)" in told(found)


def test_a_kernel_that_graphs_launch_needs_no_graph():
    call = {"source": "CUDA API", "call": "cudaLaunchKernel", "calls": 10, "host_time_ns": 60_000, "median_ns": 5_500}
    given = tables({"nsys_time_ns": 40_000}, host=[call])
    for launches, advised in ((4, True), (6, False)):  # of 10
        graphed = pd.DataFrame({"kernel": ["k"], "launches": [launches]})
        said = told(only(hot_kernels({**given, "graphed": graphed}, "nsys")))
        assert ("capture them in a CUDA graph" in said, "cudaLaunchKernel" in said) == (advised, advised)
        assert ("CUDA graphs launch most of them already" in said) != advised


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("k", True),
        ("sm80_xmma_gemm_f32f32", True),
        ("nvjet_sm90_tst_64x8_64x16", False),
        ("sm90_xmma_gemm_bf16", False),
    ],
)
def test_products_with_asynchronous_copies_need_few_warps(name, named):
    found = only(hot_kernels(tables({"kernel": name, "registers": 168}), "nsys"))
    assert ("168 registers a thread allow only 12 warps an SM" in found.title) == named


def test_a_kernel_is_one_over_all_ranges_and_the_longest_is_always_named():
    rows = [{"range": f"step/{at}", "nsys_time_ns": 1_000_000} for at in range(6)]
    found = hot_kernels(tables(*rows, {"kernel": "other", "range": "step/a", "nsys_time_ns": 2_000_000}), "nsys")
    first = only(found)  # of the other one nothing is known, so it stays a row of the table
    assert first.title == f"k, 75% of the kernel time: {NO_CAUSE}"
    assert "60 launches take 6 ms by nsys, 100 µs each on average: 75% of the kernel time, over 6 ranges." in told(
        first
    )
    assert "`ncu -k regex:k -c 3 --set full -o kernels APP`" in told(first)


def test_less_than_a_hundredth_is_no_finding():
    rows = [{"grid": "1x1x1"}, {"kernel": "small", "grid": "1x1x1", "nsys_time_ns": 49_000}]
    assert len(hot_kernels(tables(*rows), "nsys")) == 1


def test_another_clock_and_another_vendor_are_named():
    amd = told(only(hot_kernels(tables(), "torch.profiler", vendor="AMD")))
    assert "by torch.profiler" in amd
    assert "rocprof-compute" in amd
    assert "ncu" not in amd.replace("launches", "")


def test_kernels_that_nobody_timed_are_still_explained():
    rows = {"nsys_time_ns": None, "registers": 255}
    found = only(hot_kernels(tables(rows), "nsys"))
    assert found.title == "k: 255 registers a thread allow only 8 warps an SM"
    assert "ncu saw 10 launches of it, and no file holds their time." in told(found)
    empty = tables(source=[{"place": "k.cu:12", "share_frac": 0.4, "stall": ""}])
    empty["kernels"] = empty["kernels"].head(0)
    assert only(hot_kernels(empty, "nsys")).title == "k: 40% of its samples are at k.cu:12"
    assert hot_kernels(tables() | {"kernels": empty["kernels"]}, "nsys") == []


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        ("ncclDevKernel_AllGather_RING_LL", "a collective, which waits for other GPUs"),
        ("cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_tn_align1>", "FP32 without tensor cores"),
        ("vectorized_elementwise_kernel<4, FillFunctor<float>>", "one pass over memory for a simple operation"),
    ],
)
def test_the_name_of_a_library_kernel_says_something(name, headline):
    assert only(hot_kernels(tables({"kernel": name}), "nsys")).title.endswith(headline)


# Copies -----------------------------------------------------------------------------------------------------------


COPY = {
    "device": "GPU (0)", "kind": "memcpy", "direction": "Host-to-Device", "memory": "Pageable -> Device", "count": 4,
    "bytes": 4_000_000_000, "time_ns": 1_000_000_000, "share_frac": 0.6, "rate_byte_per_s": 4e9, "link_frac": 0.0625,
    "overlapped_frac": 0.0,
}  # fmt: skip


def test_copies_say_what_holds_them_back():
    found = only(large_copies(pd.DataFrame([COPY])))
    assert found.title == "Copies host to device, 60% of the GPU operations' time: from or to pageable memory"
    assert "they reach 6.2% of the link's bandwidth" in told(found).replace("They", "they")
    near = told(only(large_copies(pd.DataFrame([{**COPY, "link_frac": 0.75}]))))
    assert "fewer bytes make it faster still" in near  # pinned memory would help too
    pinned = told(only(large_copies(pd.DataFrame([{**COPY, "memory": "Pinned -> Device", "link_frac": 0.75}]))))
    assert "only fewer bytes make it faster" in pinned
    small = only(large_copies(pd.DataFrame([{**COPY, "memory": "", "bytes": 4_000, "link_frac": None}])))
    assert small.title.endswith("small ones, 1,000 bytes each")
    moved = only(large_copies(pd.DataFrame([{**COPY, "kind": "migration", "memory": ""}])))
    assert moved.title.startswith("Migrations of unified memory host to device")
    assert large_copies(pd.DataFrame([{**COPY, "share_frac": 0.05}])) == []
    assert large_copies(pd.DataFrame([COPY]).head(0)) == []


def test_pageable_copies_have_a_time_to_win():
    row = pd.DataFrame([{**COPY, "link_frac": 0.25}])
    assert only(large_copies(row)).bound_ns == 750_000_000
    assert "at the link's bandwidth they would take 250 ms" in told(only(large_copies(row))).replace("At", "at")
    assert only(large_copies(row.assign(memory="Pinned -> Device"))).bound_ns is None


# The host -----------------------------------------------------------------------------------------------------------


def sums(report: str, *rows: tuple[str, int, int, int]) -> pd.DataFrame:
    """A summary of nsys from (name, count, total, longest), times in ns."""
    columns = {"name": [row[0] for row in rows], "file": ["f"] * len(rows)}
    for at, name in enumerate(("count", "total_ns", "max_ns"), 1):
        columns[name] = [row[at] for row in rows]
    return as_table(columns, {field.name: field.dtype for field in SUMMARIES[report]})


def test_the_host_table_holds_every_call_longest_first():
    host = build_host(Facts(
        Capture(summaries={
            "cuda_api_sum": sums("cuda_api_sum", ("cudaFree", 1, 1_000, 1_000), ("cudaMalloc", 2, 3_000, 2_500)),
            "osrt_sum": sums("osrt_sum", ("poll", 5, 10_000, 4_000)),
        })
    ))  # fmt: skip
    assert host["call"].tolist() == ["cudaMalloc", "cudaFree", "poll"]
    assert host["share_frac"].tolist() == [0.75, 0.25, 1.0]
    assert build_host(Facts(Capture())).empty


def test_ranges_are_summed_only_where_no_trace_has_them():
    nvtx = {"nvtx_sum": sums("nvtx_sum", ("load", 2, 2_000, 1_500))}
    assert build_host(Facts(Capture(summaries=nvtx)))["source"].tolist() == ["NVTX range"]
    ranges = pd.concat([empty_table(RANGES_COLUMNS), pd.DataFrame([{"name": "load", "path": "load"}])])
    assert build_host(Facts(Capture(summaries=nvtx, ranges=ranges))).empty


def test_a_report_of_sums_alone_says_where_the_process_waits():
    content, built = analyse(Capture(summaries={
        "osrt_sum": sums("osrt_sum", ("poll", 5, 10_000_000, 4_000_000), ("read", 900, 5_000_000, 9_000)),
        "nvtx_sum": sums("nvtx_sum", ("load", 3, 9_000_000, 8_000_000)),
    }))  # fmt: skip
    titles = [finding["title"] for finding in content["findings"]]
    assert titles == [
        "poll: threads sleep there until another thread or a device wakes them; idle helper threads always do",
        "load: one of 3 calls is 89% of its time",
        "read: the program uses files or sockets there",
    ]
    assert len(built["host"]) == 3


def test_one_long_call_among_many_is_said():
    found = host_waits(
        build_host(Facts(Capture(summaries={"cuda_api_sum": sums("cuda_api_sum", ("cudaMalloc", 3, 900, 880))})))
    )
    assert "One call takes 0.88 µs of that, and the others are short." in told(only(found))


@pytest.mark.parametrize(
    "name",
    ["cudaDeviceSynchronize", "cudaMallocManaged", "cudaMemcpyAsync", "cudaMemcpy", "cuLaunchKernel", "poll", "ioctl",
     "pthread_cond_timedwait", "fopen64", "pthread_mutex_lock", "mmap64", "usleep", "cuModuleLoadData", "sem_timedwait"],
)  # fmt: skip
def test_what_time_in_a_call_means_is_known(name):
    _, what, fix = explain_call(name)
    assert what
    assert fix


def test_nothing_is_said_of_a_call_that_nobody_knows():
    assert explain_call("frobnicate") is None


# A run without a GPU ------------------------------------------------------------------------------------------------


def cpu_run(*lengths: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """cpu_times.csv and the ranges of a program whose range `run/a` took so long each time, ns."""
    starts = [1_000_000 * at for at in range(len(lengths))]
    rows = {
        "range_id": range(len(lengths)),
        "parent_id": pd.array([pd.NA] * len(lengths), dtype="Int64"),
        "path": ["run/a"] * len(lengths),
        "start_ns": starts,
        "end_ns": [s + n for s, n in zip(starts, lengths, strict=True)],
    }
    times = pd.DataFrame(
        [("run/a", len(lengths), sum(lengths), 1.0)], columns=["range", "calls", "self_time_ns", "share_frac"]
    )
    return times, pd.DataFrame(rows)


def test_a_first_call_that_costs_more_is_found():
    found = only(cpu_ranges(*cpu_run(90_000, 10_000, 10_000, 10_000), None))
    assert found.title == "run/a: its first call takes 9 times the median"
    assert "it pays for a start" in told(found)


def test_steady_calls_are_steady_and_one_alone_needs_more_ranges():
    assert only(cpu_ranges(*cpu_run(10_000, 11_000, 10_000), None)).title == "run/a: 3 calls of 10 µs, none much longer"
    alone = only(cpu_ranges(*cpu_run(10_000), None, recorded="Put ranges into it."))
    assert alone.title == "run/a: the capture does not show what happens in it"
    assert told(alone).endswith("Put ranges into it.")


def test_a_range_whose_work_is_declared_has_a_rate():
    ops = pd.DataFrame([{"range": "run/a", "flops": 2_000_000.0, "minimum_bytes": 500_000.0}])
    found = only(cpu_ranges(*cpu_run(10_000, 10_000, 10_000), ops))
    assert found.title == "run/a: runs at 200 GFLOP/s and 50 GB/s"


# Words --------------------------------------------------------------------------------------------------------------


def test_names_that_are_cut_alike_show_their_difference():
    names = [
        f"set_microphysics_tendency_cache__FILE_ClimaAtmos_jl_src_cache_microphysics_cache_jl_L{n}" for n in (992, 1013)
    ]
    short = symbols.short_all(names, 60)
    assert [label[-5:] for label in short.values()] == ["L992", "L1013"] or all("L" in one for one in short.values())
    assert len(set(short.values())) == 2
    middles = [f"sm80_xmma_gemm_f32f32_f32_tn_n_tilesize{size}_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute{kind}_kernel"
               for size in ("64x256x8", "128x128x8") for kind in ("", "_split_k")]  # fmt: skip
    shown = symbols.short_all(middles, 60)
    assert len(set(shown.values())) == 4
    assert all("64x256" in shown[name] for name in middles[:2])
    assert max(map(len, shown.values())) <= 60
    assert symbols.short_all(["k", "other"]) == {"k": "k", "other": "other"}


def test_paths_stay_apart_too_and_equal_texts_are_numbered():
    paths = [f"{'a' * 40}/layer_{at}/{'b' * 40}" for at in range(3)]
    assert len(set(text.shorten_all(paths, 40).values())) == 3
    assert tell_apart(["x1", "x2"], lambda _: "x", 12, lambda _: "x") == {"x1": "x (1)", "x2": "x (2)"}
    assert symbols.short_all(["rc4<0>", "rc4<1>"]) == {"rc4<0>": "rc4<0>", "rc4<1>": "rc4<1>"}


@pytest.mark.parametrize(
    ("ns", "said"), [(3, "0.003 µs"), (4_700, "4.7 µs"), (1_711_000, "1.71 ms"), (999_700, "1000 µs"), (12e6, "12 ms"), (9.188e8, "919 ms"), (3e10, "30 s")]
)  # fmt: skip
def test_a_duration_has_a_unit(ns, said):
    assert duration(ns) == said


@pytest.mark.parametrize(
    ("frac", "said"), [(0.0004, "less than 0.1%"), (0.014, "1.4%"), (0.5, "50%"), (0.998, "99.8%"), (0.9999, "more than 99.9%"), (1, "100%")]
)  # fmt: skip
def test_a_share_is_never_rounded_to_nothing_or_all(frac, said):
    assert share(frac) == said


def test_a_cause_ends_with_the_commands_that_capture_its_launch_and_open_it() -> None:
    row = pd.Series(
        {
            "kernel": "slow", "range": "step/a", "defect": "uncoalesced_loads", "reason": "Its lanes are far apart.",
            "do": "Move them.", "doubt": "Wrong if: it moves them. Move them.", "evidence": "x = 1",
            "sure_frac": 0.9, "gain_bound_frac": 0.5, "time_to_win_ns": 2_000,
            "recapture": "ncu --set full --kernel-id '::regex:^slow$:2' ./app",
        }
    )  # fmt: skip
    found = findings._cause(row)
    assert found.sentence == "Its lanes are far apart. Wrong if: it moves them. Move them. It rests on x = 1."
    said = told(found)
    assert said.endswith(
        "Look closer: `ncu --set full --kernel-id '::regex:^slow$:2' ./app`, then `ncu-ui kernel.ncu-rep`."
    )
    assert "Look closer" not in told(findings._cause(row.copy().replace({row["recapture"]: pd.NA})))
