"""Small ncu files of kernels near the peak of a unit: its name is the title, and no advice is about another unit."""

from pathlib import Path

import pytest

from analysis.capture.load import load
from analysis.pipeline import analyse
from analysis.show import document
from tests.cpu.test_cases_counters import raw

PEAK = "pct_of_peak_sustained"
DRAM, SM = f"gpu__dram_throughput.avg.{PEAK}_elapsed", f"sm__throughput.avg.{PEAK}_elapsed"
L2, L1 = f"lts__throughput.avg.{PEAK}_elapsed", f"l1tex__throughput.avg.{PEAK}_active"
TENSOR = f"sm__pipe_tensor_cycles_active.avg.{PEAK}_active"
OCCUPANCY = f"sm__warps_active.avg.{PEAK}_active"


def first(folder: Path, shares: dict[str, float], more: dict[str, tuple[str, str]] | None = None) -> dict[str, str]:
    """Return the first finding on one kernel with these percents."""
    values = {name: ("%", f"{share:.2f}") for name, share in shares.items()}
    raw(folder / "ncu.csv", {"gpu__time_duration.sum": ("us", "300.0"), **values, **(more or {})}, CC="8.6")
    return document(analyse(load([folder])).report)["findings"][0]


@pytest.mark.parametrize(
    ("shares", "title"),
    [
        ({DRAM: 30, SM: 25, L2: 96, L1: 60}, "L2 is busy at 96%"),
        ({DRAM: 70, SM: 25, L2: 82}, "L2 is busy at 82%"),
        ({DRAM: 30, SM: 45, L2: 40, L1: 91}, "L1, which holds shared memory, is busy at 91%"),
        ({L1: 88, SM: 50}, "L1, which holds shared memory, is busy at 88%"),
        ({DRAM: 93, SM: 25, L2: 50}, "DRAM is busy at 93%"),
        ({DRAM: 20, SM: 89, L2: 50}, "the SMs are busy at 89%"),
        ({DRAM: 20, SM: 89, TENSOR: 88}, "the tensor cores are busy at 88%"),
        ({DRAM: 20, TENSOR: 65, OCCUPANCY: 12}, "the tensor cores are busy at 65%"),
    ],
)
def test_the_title_names_the_unit_near_its_peak(tmp_path: Path, shares: dict[str, float], title: str) -> None:
    found = first(tmp_path, shares)
    assert title in found["title"]
    assert "warps" not in found["do"]
    assert "waits" not in found["sentence"]


@pytest.mark.parametrize(("occupancy", "said"), [(95.0, "most warps that fit are resident"), (30.0, "more warps or")])
def test_more_warps_are_no_advice_for_a_full_gpu(tmp_path: Path, occupancy: float, said: str) -> None:
    found = first(tmp_path, {DRAM: 20, SM: 25, L2: 30, OCCUPANCY: occupancy})
    assert "neither memory nor the SMs are busy" in found["title"]
    assert said in found["do"]


SPILLS = {
    "derived__local_spilling_requests": ("", "2,000,000"), "derived__local_spilling_requests_pct": ("%", "55.0"),
    "launch__registers_per_thread": ("register/thread", "40"),
}  # fmt: skip


def test_spilled_registers_come_before_a_low_throughput(tmp_path: Path) -> None:
    found = first(tmp_path, {DRAM: 20, SM: 25, L2: 30}, SPILLS)
    assert "registers are spilled: 55%" in found["title"]
    assert "2,000,000 requests of local memory spill registers" in found["sentence"]
    assert "with 40 registers a thread" in found["sentence"]
    assert "more warps" not in found["do"]


@pytest.mark.parametrize("requests", ["0", "n/a"])
def test_a_kernel_that_spills_nothing_has_another_reason(tmp_path: Path, requests: str) -> None:
    more = SPILLS | {"derived__local_spilling_requests": ("", requests)}
    assert "spilled" not in first(tmp_path, {DRAM: 20, SM: 25, L2: 30}, more)["title"]


HEADER = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
          "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name", "Rule Type",
          "Rule Description", "Estimated Speedup Type", "Estimated Speedup"]  # fmt: skip
LAUNCH = ["0", "7", "app", "127.0.0.1", "sift(float *)", "1", "7", "(128, 1, 1)", "(512, 1, 1)", "0", "8.6"]


def details(folder: Path, dram: float, kind: str) -> None:
    """Write a details page of a launch with a DRAM throughput and a rule that estimates 60 % for `kind`."""
    speed = "GPU Speed Of Light Throughput"
    rows = [
        [speed, "Duration", "us", "200.00"], [speed, "DRAM Throughput", "%", f"{dram:.2f}"],
        [speed, "Compute (SM) Throughput", "%", "15.00"],
    ]  # fmt: skip
    lines = [HEADER, *([*LAUNCH, *row, "", "", "", "", ""] for row in rows)]
    lines.append([*LAUNCH, "SourceCounters", "", "", "", "UncoalescedGlobalAccess", "OPT", "It is slow.", kind, "60.0"])
    (folder / "details.csv").write_text("".join(",".join(f'"{cell}"' for cell in line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("dram", "kind", "title"),
    [
        (90.0, "local", "DRAM is busy at 90%"),
        (97.0, "global", "DRAM is busy at 97%"),
        (40.0, "local", "UncoalescedGlobalAccess estimates 60%"),
    ],
)
def test_a_rule_of_a_part_is_no_title_near_a_peak(tmp_path: Path, dram: float, kind: str, title: str) -> None:
    details(tmp_path, dram, kind)
    found = document(analyse(load([tmp_path])).report)["findings"][0]
    assert title in found["title"]
    if dram > 80 and kind == "local":
        assert "60%" not in found["sentence"]


def test_the_kernel_that_can_win_more_comes_first(tmp_path: Path) -> None:
    for at, (name, time, dram) in enumerate([("fill", "900.0", "98.0"), ("hop", "300.0", "15.0")]):
        (tmp_path / str(at)).mkdir()
        values = {"gpu__time_duration.sum": ("us", time), DRAM: ("%", dram), SM: ("%", "10.0")}
        raw(tmp_path / str(at) / f"{at}.csv", values, ID=str(at), Kernel_Name=name, CC="8.6")
    titles = [one["title"] for one in document(analyse(load([tmp_path])).report)["findings"]]
    assert [title.split(":")[0] for title in titles[:2]] == ["hop", "fill"]
