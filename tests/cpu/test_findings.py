"""Findings: why a kernel takes its time, what the host waits for, and names that stay apart."""

from typing import Any

import pandas as pd
import pytest

from analysis.capture.model import RANGES_COLUMNS, Capture, as_table, empty_table
from analysis.capture.summaries import SUMMARIES
from analysis.diagnosis import findings
from analysis.diagnosis.claims import Claim
from analysis.diagnosis.host import explain_call
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


def test_a_kernel_is_one_over_all_ranges_and_the_longest_is_always_named():
    rows = [{"range": f"step/{at}", "nsys_time_ns": 1_000_000} for at in range(6)]
    found = hot_kernels(tables(*rows, {"kernel": "other", "range": "step/a", "nsys_time_ns": 2_000_000}), "nsys")
    first = only(found)  # of the other one nothing is known, so it stays a row of the table
    assert first.title == f"k, 75% of the kernel time: {NO_CAUSE}"
    assert "60 launches take 6 ms by nsys, 100 µs each on average: 75% of the kernel time, over 6 ranges." in told(
        first
    )
    assert "`ncu -k regex:k -c 3 --set full -o kernels APP`" in told(first)


def test_another_clock_and_another_vendor_are_named():
    amd = told(only(hot_kernels(tables(), "torch.profiler", vendor="AMD")))
    assert "by torch.profiler" in amd
    assert "rocprof-compute" in amd
    assert "ncu" not in amd.replace("launches", "")


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
        "load: one of 3 calls is 89% of its time",
        "read: the program uses files or sockets there",
    ]
    assert len(built["host"]) == 3


def test_a_report_of_sleeping_threads_alone_says_that_nothing_limits_the_program():
    summaries = {
        "osrt_sum": sums("osrt_sum", ("sem_wait", 1, 11_000_000, 11_000_000), ("poll", 5, 9_000_000, 4_000_000))
    }
    content, _ = analyse(Capture(summaries=summaries))
    (found,) = content["findings"]
    assert found["title"] == "Nothing here limits the program: threads sleep in sem_wait and poll"


@pytest.mark.parametrize(
    "name",
    ["cudaDeviceSynchronize", "cudaMallocManaged", "cudaMemcpyAsync", "cudaMemcpy", "cuLaunchKernel", "poll", "ioctl",
     "pthread_cond_timedwait", "fopen64", "pthread_mutex_lock", "mmap64", "usleep", "cuModuleLoadData", "sem_timedwait"],
)  # fmt: skip
def test_what_time_in_a_call_means_is_known(name):
    _, what, fix = explain_call(name)
    assert what
    assert fix


# A run without a GPU ------------------------------------------------------------------------------------------------


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
    ("ns", "said"), [(3, "0.003 µs"), (4_700, "4.7 µs"), (1_711_000, "1.71 ms"), (999_400, "999 µs"), (999_700, "1 ms"), (999_700_000, "0.9997 s"), (12e6, "12 ms"), (9.188e8, "919 ms"), (3e10, "30 s")]
)  # fmt: skip
def test_a_duration_has_a_unit(ns, said):
    assert duration(ns) == said


@pytest.mark.parametrize(
    ("frac", "said"), [(0.0004, "less than 0.1%"), (0.014, "1.4%"), (0.5, "50%"), (0.998, "99.8%"), (0.9999, "more than 99.9%"), (1, "100%")]
)  # fmt: skip
def test_a_share_is_never_rounded_to_nothing_or_all(frac, said):
    assert share(frac) == said


@pytest.mark.parametrize(("number", "said"), [
    ("stall_drain = 155.124", "stall_drain = 155.1 warp/inst (warps that wait for stores to leave at the end)"),
    ("sectors_per_request_load = 16.6667", "sectors_per_request_load = 16.67 sector/request (coalescing of global loads)"),
    ("global_load_requests = 1.25829e+07",
     "global_load_requests = 12,582,900 (requests of global loads to L1, one a warp and instruction)"),
    ("dram_read_bytes = 7.34274e+08", "dram_read_bytes = 734.3 MB (bytes that came from DRAM)"),
    ("shared_wavefront_frac = 0.9882", "shared_wavefront_frac = 99% (passes through shared memory, of their peak)"),
    ("duration_ns = 1500", "duration_ns = 1.5 µs (time of one replay pass, other kernels excluded)"),
    ("dram roof_frac = 0.91", "dram roof_frac = 91%"), ("sampled_kernels.sm = 0.3", "sampled_kernels.sm = 30%"),
    ("waits_drain z_score = 2.5", "waits_drain z_score = 2.5"),
    ("occupancy_theoretical_frac (derived) = 0.5",
     "occupancy_theoretical_frac (derived) = 50% (warps that fit an SM by registers, shared memory and block size, of the most it holds)"),
])  # fmt: skip
def test_a_number_behind_a_cause_has_its_unit_and_the_words_of_the_catalogue(number: str, said: str) -> None:
    assert findings._in_words(number) == said


def test_a_cause_ends_with_the_commands_that_capture_its_launch_and_open_it() -> None:
    row = pd.Series(
        {
            "kernel": "slow", "range": "step/a", "rank": 1, "defect": "uncoalesced_loads", "reason": "Its lanes are far apart.",
            "do": "Move them.", "doubt": "Wrong if: it moves them. Move them.", "evidence": "x = 1",
            "sure_frac": 0.9, "gain_bound_frac": 0.5, "least_to_win_ns": 900, "time_to_win_ns": 2_000,
            "recapture": "ncu --set full --kernel-id '::regex:^slow$:2' ./app",
        }
    )  # fmt: skip
    found = findings._cause(row)
    assert found.sentence == "Its lanes are far apart. Wrong if: it moves them. Move them. It rests on x = 1."
    said = told(found)
    assert said.endswith(
        "Look closer: `ncu --set full --kernel-id '::regex:^slow$:2' ./app`, then `ncu-ui kernel.ncu-rep`."
    )
    first = "ncu --set full --kernel-id ::regex:k:1 --launch-count 1 ./app"
    other = findings._cause(row.copy().replace({row["recapture"]: first.replace(":1", ":2")}), first=first)
    assert told(other).endswith("Look closer: the command of finding 1, with `--kernel-id ::regex:k:2`.")
    assert "Look closer" not in told(findings._cause(row.copy().replace({row["recapture"]: pd.NA})))
