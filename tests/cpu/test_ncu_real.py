"""The readers of ncu against NVIDIA's own tool and the reports that it ships; skipped where there is none.

Needs ncu and its samples (Debian's non-free `nsight-compute`, installed, or unpacked with `dpkg -x` into the folder that
KERNEL_LEDGER_NSIGHT names) and, for the binary reports, the package ncu-report. None of NVIDIA's files is in this
repository.
"""

import ctypes
import functools
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.capture import ncu, ncu_details, ncu_rep
from analysis.capture.load import load
from analysis.hardware import metrics

ROOT = Path(os.environ.get("KERNEL_LEDGER_NSIGHT", "/"))
NCU = next(iter(sorted(ROOT.glob("usr/lib/nsight-compute/ncu"))), None)
SAMPLES = sorted((ROOT / "usr/share/doc/nsight-compute/examples").glob("*/*.ncu-rep"))

needs_ncu = pytest.mark.skipif(NCU is None, reason="no ncu of Debian's nsight-compute (KERNEL_LEDGER_NSIGHT)")
needs_samples = pytest.mark.skipif(
    NCU is None or not SAMPLES or not ncu_rep.installed(), reason="no ncu with sample reports, or no ncu-report package"
)
each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)


@functools.cache
def run(*arguments: str) -> str:
    """What ncu prints."""
    assert NCU is not None
    done = subprocess.run([NCU, *arguments], capture_output=True, check=False, env=os.environ | {"LC_ALL": "C"})
    return done.stdout.decode("utf-8", errors="replace")


@functools.cache
def page(sample: Path, name: str, *arguments: str) -> ncu.Parts:
    return ncu.read_pages(run("--import", str(sample), "--csv", "--page", name, *arguments), "page")


@functools.cache
def report(sample: Path) -> ncu.Parts:
    return ncu.read_binary(sample, "report")


@needs_samples
@each_sample
@pytest.mark.parametrize("units", ["auto", "base"])
def test_the_raw_page_and_the_report_have_the_same_values(sample: Path, units: str) -> None:
    csv, binary = page(sample, "raw", "--print-units", units), report(sample)
    one, other = csv.counters[0].iloc[0], binary.counters[0].iloc[0]
    assert (one["name"], one["grid"] or other["grid"]) == (other["name"], other["grid"])
    names = [name for name in csv.units[0][1] if name in binary.units[0][1]]
    assert len(names) > 700
    printed, exact = one[names].astype(float), other[names].astype(float)
    # 6 decimals of a scaled value or 2 of any other: half a step of the last digit, at least of a hundredth
    apart = (printed - exact).abs() > np.maximum(0.0051, 1e-5 * exact.abs())
    assert list(printed[apart].index) == []
    # what the page leaves blank the report does not invent: texts alone differ
    blank = printed.isna() & exact.notna() & (exact != 0)
    assert list(printed[blank].index) == []
    counts = [name for name in names if name.endswith(".sum") and exact[name] == round(exact[name])]
    if units == "base":
        assert (printed[counts] == exact[counts]).all()


@needs_samples
@each_sample
def test_the_details_page_and_the_report_say_the_same(sample: Path) -> None:
    parts, binary = page(sample, "details"), report(sample)
    exact = binary.counters[0].iloc[0]
    for metric, value in parts.rounded[0].iloc[0].items():
        if "__" in str(metric):
            assert value == pytest.approx(exact[metric], rel=0.01, abs=0.0051), metric
    said = ["section", "rule", "type", "text", "speedup_type"]
    pages, reports = (frame[said].sort_values(said, ignore_index=True) for frame in (parts.rules[0], binary.rules[0]))
    pd.testing.assert_frame_equal(pages, reports)
    rounded = sorted(parts.rules[0]["speedup_pct"].dropna().astype(float))
    assert rounded == pytest.approx(sorted(binary.rules[0]["speedup_pct"].dropna().astype(float)), rel=5e-4)


@needs_samples
@each_sample
def test_the_labels_are_those_of_ncu(sample: Path) -> None:
    if "--print-metric-name" not in run("--help"):
        pytest.skip("this ncu prints no names (older than 2022.4)")
    shown = page(sample, "details", "--print-metric-name", "label-name").details
    for _, row in shown[0].iterrows():
        section = ncu_details.SECTIONS.get(row["section"], row["section"])
        known = ncu_details.LABELS.get((section, row["label"]))
        if known:
            assert known == (row["metric"], row["unit"])


@needs_samples
@each_sample
@pytest.mark.parametrize("view", ["sass", "cuda,sass"])
def test_the_source_page_and_the_report_count_the_same(sample: Path, view: str) -> None:
    parts = page(sample, "source", "--print-source", view)
    if not parts.source_lines:
        pytest.skip("this ncu has no such view")
    lines = parts.source_lines[0]
    lines = lines[lines["instruction"].notna()].drop_duplicates("instruction").set_index("instruction").sort_index()
    exact = report(sample).source_lines[0]
    exact = exact[exact["instruction"].notna()].set_index("instruction").sort_index()
    counted = [
        "samples",
        "samples_not_issued",
        "inst_executed",
        "thread_inst_executed",
        "sectors_global",
        "stall_samples",
    ]
    numbers = lines[counted].astype(float).fillna(0)
    assert (numbers.loc[exact.index] == exact[counted].astype(float).fillna(0)).all(axis=None)
    assert (lines["stall"].loc[exact.index] == exact["stall"]).all()
    assert numbers.drop(exact.index)[["samples", "inst_executed"]].sum().sum() == 0  # padding behind the code
    total = report(sample).counters[0]["smsp__pcsamp_sample_count"].iloc[0]
    assert exact["samples"].sum() == total


@needs_samples
@each_sample
def test_nothing_of_the_machine_gets_into_the_model(sample: Path) -> None:
    capture = load([sample])
    for name in ("counters", "rules", "source_lines", "metric_instances"):
        assert "/usr/local" not in getattr(capture, name).to_csv()


ORACLES = {
    # facts of the samples that ncu 2024.1.1 ships
    "addConstDouble3": {"sectors_per_request_load": 24.0, "l1_hit_frac": 0.6366, "coalescing_frac": 1 / 3},
    "addConstDouble": {"sectors_per_request_load": 8.0, "coalescing_frac": 1.0},
    "transposeCoalesced": {"shared_ways_load": 32.16, "bank_conflicts_load": 65_011_712.0, "shared_ideal_frac": 0.0606},
    "sobelFloat": {"flops_fp32": 48_232_449.0, "flops": 48_232_449.0},  # 1.51 TFLOP/s
    "transposeNoBankConflicts": {"bank_conflicts_load": 0.0, "shared_ideal_frac": 1.0},
}


@needs_samples
@each_sample
def test_the_catalogue_gives_the_known_numbers(sample: Path) -> None:
    frame, units = report(sample).counters[0], report(sample).units[0][1]
    raw, row = frame.iloc[0], metrics.derive(frame, units).iloc[0]
    for column, value in ORACLES.get(sample.stem, {}).items() if "2024.1.1" in run("--version") else ():
        assert row[column] == pytest.approx(value, rel=2e-3), column
    assert row["dram_read_bytes"] == 32 * raw["dram__sectors_read.sum"]
    moved = row["dram_read_bytes"] + row["dram_write_bytes"]
    assert moved / row["duration_ns"] * 1e9 == pytest.approx(raw["dram__bytes.sum.per_second"], rel=1e-6)
    limits = {name: row[f"occupancy_limit_{name}"] for name in ("registers", "shared_mem", "warps", "blocks")}
    assert row["occupancy_limiter"].split("+") == [name for name in limits if limits[name] == min(limits.values())]
    warps = min(limits.values()) * row["block_size"] / 32
    assert row["occupancy_theoretical_frac"] == pytest.approx(warps / 48, rel=1e-6)  # 48 warps an SM on 8.6
    samples = [row[f"sample_{reason}"] for reason in metrics.samples().all_reasons()]
    assert np.nansum(samples) == raw["smsp__pcsamp_sample_count"]
    stalls = [row[f"stall_{reason}"] for reason in metrics.catalogue()[1].all_reasons()]
    assert np.nansum(stalls) == pytest.approx(row["warp_cycles_per_issue"], rel=0.05)
    uniform = raw["smsp__sass_average_branch_targets_threads_uniform.pct"]
    assert pd.isna(row["branch_efficiency_frac"]) if uniform == 0 else row["branch_efficiency_frac"] == uniform / 100


@needs_ncu
@pytest.mark.parametrize(("cc", "chip"), sorted(metrics.verified()["chips"].items()))
def test_every_name_of_the_catalogue_is_one_of_ncu(cc: str, chip: str) -> None:
    if "2024.1.1" not in run("--version"):
        pytest.skip("the names were verified with ncu 2024.1.1")
    listed = {words[0] for line in run("--query-metrics", "--chips", chip).splitlines() if (words := line.split())}
    assert len(listed) > 500
    unlisted = tuple(metrics.verified()["unlisted"] + metrics.verified()["renamed"])
    arch = metrics.architecture(cc)
    wanted = {
        name for column in metrics.catalogue()[0] for way in column.ways if way.holds_on(arch) for name in way.needed()
    } | set(metrics.capture_metrics(cc, deep=True))
    assert {name for name in wanted if not name.startswith(unlisted) and name.split(".")[0] not in listed} == set()


@functools.cache
def library() -> ctypes.CDLL:
    """Return NVIDIA's library of metrics, which needs no GPU. Each function takes fields of 8 bytes (nvperf_host.h)."""
    package = ncu_rep.package()
    assert package is not None
    found = ctypes.CDLL(str(Path(package.__file__).parent / "libnvperf_host.so"))
    asked(found, "NVPW_InitializeHost", 0)
    return found


def asked(of: ctypes.CDLL, function: str, *fields: Any) -> Any:
    """Return the fields after a call: its size and NULL stand before them."""
    given = (ctypes.c_uint64 * (2 + len(fields)))(8 * (2 + len(fields)), 0, *fields)
    assert of[function](given) == 0, function
    return given[2:]


@functools.cache
def known(chip: str) -> set[str]:
    """Return the metrics of a chip, without what follows the first dot."""
    name = ctypes.create_string_buffer(chip.encode())
    *_, size = asked(library(), "NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize", ctypes.addressof(name), 0, 0)
    scratch = ctypes.create_string_buffer(size)
    given = ctypes.addressof(scratch), size, ctypes.addressof(name), 0, 0, 0, 0
    *_, evaluator = asked(library(), "NVPW_CUDA_MetricsEvaluator_Initialize", *given)
    found: set[str] = set()
    for kind in range(3):  # counters, ratios, throughputs
        *_, names, begin, count = asked(library(), "NVPW_MetricsEvaluator_GetMetricNames", evaluator, kind, 0, 0, 0)
        starts = (ctypes.c_uint64 * count).from_address(begin)
        found |= {ctypes.string_at(names + start).decode() for start in starts}
    return found


@pytest.mark.slow
@pytest.mark.skipif(not ncu_rep.installed(), reason="the package ncu-report is not installed")
@pytest.mark.parametrize(
    ("cc", "chip"), sorted((metrics.verified()["chips"] | metrics.verified()["by_library"]).items())
)
def test_a_capture_asks_for_what_the_newest_library_knows(cc: str, chip: str) -> None:
    columns = [column.name for column in metrics.catalogue()[0]]
    wanted = {*metrics.capture_metrics(cc, deep=True), *metrics.column_metrics(cc, columns)}
    unlisted = tuple(metrics.verified()["unlisted"])
    bases = {name.split(".")[0] for name in wanted if not name.startswith(unlisted)}
    assert len(bases) > 60
    assert bases - known(chip.upper()) == set()


@pytest.mark.slow
@pytest.mark.skipif(not ncu_rep.installed(), reason="the package ncu-report is not installed")
@pytest.mark.parametrize("cc", metrics.verified()["by_library"])
def test_every_name_that_is_read_is_one_of_some_chip(cc: str) -> None:
    chips = {**metrics.verified()["chips"], **metrics.verified()["by_library"]}.values()
    unlisted = tuple(metrics.verified()["unlisted"])
    arch = metrics.architecture(cc)
    ways = [way for column in metrics.catalogue()[0] for way in column.ways if way.holds_on(arch)]
    bases = {name.split(".")[0] for way in ways for name in way.needed() if not name.startswith(unlisted)}
    assert len(bases) > 60
    assert bases - set().union(*(known(chip.upper()) for chip in chips)) == set()
