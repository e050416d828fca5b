"""Roofs of GPUs from their attributes: data centre, workstation, GeForce, laptops and Jetson, 6.0 to 12.1."""

import csv
import math
import re
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.capture.load import load
from analysis.capture.model import Capture
from analysis.diagnosis.limits import find_limits
from analysis.formats.errors import InputError
from analysis.hardware.devices import Attributes, architectures, derive_device
from analysis.report import build
from analysis.show import document
from analysis.tables.conditions import attributes, other_gpu

# name | cc | SMs | SM clock MHz | memory clock MHz | bus bits | GB/s | TFLOP/s or TOP/s by format: as NVIDIA states them
# (datasheets and whitepapers named in architectures.toml, product pages of GeForce and Jetson), dense, FP32 accumulation.
# The clocks are the boost clocks behind the stated rates.
GPUS = """
Tesla P100-SXM2-16GB                | 6.0  | 56  | 1480 | 715   | 4096 | 732  | fp32 10.6  fp64 5.3
Tesla P40                           | 6.1  | 30  | 1531 | 3615  | 384  | 347  | fp32 11.8
NVIDIA GeForce GTX 1080 Ti          | 6.1  | 28  | 1582 | 5505  | 352  | 484  | fp32 11.3
NVIDIA Tegra X2                     | 6.2  | 2   | 1300 | 1866  | 128  | 59.7 | fp32 0.665
Tesla V100-SXM2-16GB-LS             | 7.0  | 80  | 1530 | 877   | 4096 | 900  | fp32 15.7  fp64 7.8  fp16 125
Xavier                              | 7.2  | 8   | 1377 | 2133  | 256  | 137  | fp32 1.41  fp16 11.3  int8 22.6
Tesla T4G                           | 7.5  | 40  | 1590 | 5001  | 256  | 320  | fp32 8.1  fp16 65  int8 130
NVIDIA GeForce RTX 2080 Ti          | 7.5  | 68  | 1545 | 7000  | 352  | 616  | fp32 13.4  fp16 53.8  int8 215
Quadro RTX 6000                     | 7.5  | 72  | 1770 | 7001  | 384  | 672  | fp32 16.3  fp16 130.5  int8 261
NVIDIA GeForce GTX 1650             | 7.5  | 14  | 1665 | 4001  | 128  | 128  | fp32 2.98
NVIDIA A100-SXM4-40GB-X             | 8.0  | 108 | 1410 | 1215  | 5120 | 1555 | fp32 19.5  fp64 9.7  fp64_tensor 19.5  tf32 156  bf16 312  int8 624
NVIDIA A30                          | 8.0  | 56  | 1440 | 1215  | 3072 | 933  | fp32 10.3  fp64 5.2  tf32 82  bf16 165  int8 330
NVIDIA GeForce RTX 3080             | 8.6  | 68  | 1710 | 9501  | 320  | 760  | fp32 29.8  tf32 29.8  bf16 59.5  int8 238
NVIDIA RTX A6000                    | 8.6  | 84  | 1800 | 8001  | 384  | 768  | fp32 38.7  tf32 77.4  bf16 154.8
NVIDIA GeForce RTX 3080 Laptop GPU  | 8.6  | 48  | 1710 | 7001  | 256  | 448  | fp32 21.0
NVIDIA RTX A5500 Laptop GPU         | 8.6  | 58  | 1500 | 7001  | 256  | 448  | fp32 22.3
Orin                                | 8.7  | 16  | 1300 | 3200  | 256  | 204.8 | fp32 5.32  int8 85
NVIDIA GeForce RTX 4080             | 8.9  | 76  | 2505 | 11201 | 256  | 717  | fp32 48.7  tf32 48.7  bf16 97.5  fp8 195  int8 390
NVIDIA RTX 6000 Ada Generation      | 8.9  | 142 | 2505 | 10001 | 384  | 960  | fp32 91.1  bf16 364  fp8 728
NVIDIA GeForce RTX 4060 Laptop GPU  | 8.9  | 24  | 2370 | 8001  | 128  | 256  | fp32 14.6
NVIDIA H100 80GB HBM2e              | 9.0  | 114 | 1755 | 1593  | 5120 | 2039 | fp32 51  fp64 25.6  tf32 400  bf16 800  fp8 1600
NVIDIA GH200 480GB                  | 9.0  | 132 | 1980 | 2619  | 6144 | 4000 | fp32 67  fp64 34  fp64_tensor 67
NVIDIA B200-X                       | 10.0 | 148 | 1965 | 3996  | 8192 | 8000 | fp32 75  fp64 37  bf16 2250  fp8 4500  fp4 9000
NVIDIA B300 SXM6 AC                 | 10.3 | 148 | 1920 | 3996  | 8192 | 8000 | fp32 73  fp64 1.2  bf16 2250  fp8 4500
NVIDIA Thor                         | 11.0 | 20  | 1575 | 4266  | 256  | 273  | fp32 8.06  fp8 517  fp4 1035
NVIDIA GeForce RTX 5080             | 12.0 | 84  | 2617 | 15001 | 256  | 960  | fp32 56.3  tf32 56.3  bf16 112.6  fp4 900  int8 450
NVIDIA RTX PRO 6000 Blackwell Server Edition | 12.0 | 188 | 2600 | 14001 | 512 | 1792 | fp32 125  bf16 500  fp4 2000
NVIDIA GB10                         | 12.1 | 48  | 2520 | 4266  | 256  | 273  | fp32 31  fp4 500
"""
LISTED = [[cell.strip() for cell in line.split("|")] for line in GPUS.strip().splitlines()]


@pytest.mark.parametrize(("name", "cc", "sms", "clock", "memory", "bus", "dram", "rates"), LISTED, ids=lambda one: one)
def test_rates_follow_from_attributes(
    name: str, cc: str, sms: str, clock: str, memory: str, bus: str, dram: str, rates: str
) -> None:
    known = Attributes(cc, int(sms), float(clock) * 1e6, float(memory) * 1e6, float(bus))
    device = derive_device(name, known)
    assert device is not None
    assert device.dram_bytes_per_s == pytest.approx(float(dram) * 1e9, rel=0.03)
    words = rates.split()
    for form, stated in zip(words[::2], words[1::2], strict=True):
        assert device.rate(form) == pytest.approx(float(stated) * 1e12, rel=0.07), form
    assert device.derived[0].startswith("DRAM 2 x ")
    limits = find_limits(device, None)
    assert limits is not None
    assert limits.sm_clock_hz == pytest.approx(float(clock) * 1e6)


def test_boards_without_tensor_cores_have_no_rates_of_theirs() -> None:
    for name, cc in (("NVIDIA GeForce GTX 1660 Ti", "7.5"), ("NVIDIA T1000", "7.5"), ("Tesla P40", "6.1")):
        device = derive_device(name, Attributes(cc, 24, 1.5e9))
        assert device is not None
        assert (device.rate("fp16"), device.rate("int8"), device.rate("fp8")) == (None, None, None)


def test_what_is_not_stated_is_unknown() -> None:
    assert derive_device("NVIDIA X", Attributes()) is None
    assert derive_device("NVIDIA X", Attributes("5.2", 16, 1.2e9)) is None  # no rates of this architecture
    some = derive_device("NVIDIA X", Attributes("8.6", 20, None, 7e9, 128))
    assert some is not None
    assert some.fp32_flop_per_s is None
    clocked = derive_device("NVIDIA X", Attributes("8.6", 20, 1.5e9))
    assert clocked is not None
    assert math.isnan(clocked.dram_bytes_per_s)


def test_every_architecture_names_its_source() -> None:
    assert all(len(one["source"]) > 20 and one["fp32_lanes"] in (64, 128) for one in architectures().values())


# ------------------------------------------------------------------------------------------------- what files state

IDENTITY = {
    "ID": "0", "Process ID": "3", "Process Name": "tool", "Host Name": "127.0.0.1", "Kernel Name": "sweep_floor(float *)",
    "Context": "1", "Stream": "7", "Block Size": "(256, 1, 1)", "Grid Size": "(4096, 1, 1)", "Device": "0", "CC": "8.9",
}  # fmt: skip
MEASURED = {"gpu__time_duration.sum": ("us", "100.0"), "dram__bytes_read.sum": ("Mbyte", "12.0"),
            "dram__bytes_write.sum": ("Mbyte", "12.0")}  # fmt: skip
LAPTOP = {
    "device__attribute_display_name": ("", "NVIDIA GeForce RTX 4050 Laptop GPU"),
    "device__attribute_multiprocessor_count": ("", "20"), "device__attribute_max_gpu_frequency_khz": ("khz", "2370000"),
    "device__attribute_max_mem_frequency_khz": ("khz", "8001000"),
    "device__attribute_global_memory_bus_width": ("bit", "96"), "device__attribute_l2_cache_size": ("byte", "12582912"),
}  # fmt: skip


def raw(path: Path, values: dict[str, tuple[str, str]], **identity: str) -> None:
    named = IDENTITY | identity
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow([*named, *values])
        writer.writerow([*[""] * len(named), *(unit for unit, _ in values.values())])
        writer.writerow([*named.values(), *(value for _, value in values.values())])


def test_a_report_of_an_unlisted_gpu_has_roofs_and_says_where_they_come_from(tmp_path: Path) -> None:
    raw(tmp_path / "ncu.csv", LAPTOP | MEASURED)
    made = build([tmp_path], tmp_path / "out")
    report, tables = document(made.report), made.tables
    dram = tables["roofline"].set_index("level").loc["dram"]
    assert dram["bandwidth_frac"] == pytest.approx(240e9 / 192.024e9)  # an impossible figure stays as it is
    assert dram["roof_from"] == "derived"
    roofs = tables["roof_lines"].set_index("roof")
    assert roofs.loc["fp32", "datasheet_flop_per_s"] == 20 * 128 * 2 * 2.37e9
    assert roofs.loc["dram", "datasheet_byte_per_s"] == 2 * 8.001e9 * 96 / 8
    assert "2 x 8,001 MHz x 96 bit / 8 = 192 GB/s" in str(report["notes"])
    assert not any("device table" in one["why"] for one in report["missing"])
    assert "no rule has thresholds" not in tables["diagnosis"].to_csv()


@pytest.mark.parametrize(
    ("unit", "values"),
    [
        ("khz", ("2370000", "8001000")), ("Mhz", ("2370.0", "8001.0")), ("Ghz", ("2.37", "8.001")),
        ("", ("2370000", "8001000")),
    ],
)  # fmt: skip
def test_clocks_are_read_in_every_unit(tmp_path: Path, unit: str, values: tuple[str, str]) -> None:
    changed = dict(LAPTOP)
    for name, value in zip(("gpu", "mem"), values, strict=True):
        changed[f"device__attribute_max_{name}_frequency_khz"] = (unit, value)
    raw(tmp_path / "ncu.csv", changed | MEASURED)
    known = attributes(load([tmp_path / "ncu.csv"]))
    assert (known.clock_hz, known.memory_clock_hz) == (pytest.approx(2.37e9), pytest.approx(8.001e9))


def test_the_peak_follows_from_ncus_percents(tmp_path: Path) -> None:
    raw(tmp_path / "ncu.csv", MEASURED | {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "80.0")})
    known = attributes(load([tmp_path / "ncu.csv"]))
    assert known.dram_bytes_per_s == pytest.approx(300e9)
    low = MEASURED | {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "5.0")}
    raw(tmp_path / "ncu.csv", low)
    assert attributes(load([tmp_path / "ncu.csv"])).dram_bytes_per_s is None


def test_attributes_that_contradict_the_name_win_and_the_report_says_so(tmp_path: Path) -> None:
    raw(tmp_path / "ncu.csv", LAPTOP | MEASURED | {"device__attribute_display_name": ("", "NVIDIA H200")})
    made = build([tmp_path], tmp_path / "out")
    report, tables = document(made.report), made.tables
    assert tables["roof_lines"].set_index("roof").loc["dram", "datasheet_byte_per_s"] == 2 * 8.001e9 * 96 / 8
    assert any("has compute capability 9.0" in one["why"] for one in report["missing"])


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ({"name": "NVIDIA H200"}, "its name is NVIDIA GeForce RTX 4050 Laptop GPU there and NVIDIA H200 in the manifest"),
        ({"compute_capability": "9.0"}, "CC is 8.9 there and 9.0 in the manifest"),
        ({"sm_count": 132}, "device__attribute_multiprocessor_count is 20 there and 132 in the manifest"),
        ({"name": "GeForce RTX 4050 Laptop GPU", "compute_capability": "8.9", "sm_count": 20}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_counters_of_another_gpu_than_the_manifests_are_named(gpu: dict[str, Any], said: str) -> None:
    stated = {
        "device": ["NVIDIA GeForce RTX 4050 Laptop GPU"],
        "cc": ["8.9"],
        "device__attribute_multiprocessor_count": [20.0],
    }
    assert other_gpu(Capture(manifest={"gpu": gpu}, counters=pd.DataFrame(stated))) == said


def test_a_column_that_stands_twice_must_have_the_same_values(tmp_path: Path) -> None:
    raw(tmp_path / "ncu.csv", MEASURED)
    lines = (tmp_path / "ncu.csv").read_text().splitlines()
    name, (unit, value) = next(iter(MEASURED.items()))
    twice = [f'{line},"{cell}"' for line, cell in zip(lines, (name, unit, value), strict=True)]
    (tmp_path / "ncu.csv").write_text("\n".join(twice) + "\n")
    assert len(load([tmp_path / "ncu.csv"]).counters) == 1
    (tmp_path / "ncu.csv").write_text("\n".join([*twice[:2], f'{lines[2]},"{value}1"']) + "\n")
    with pytest.raises(InputError, match=f"column {re.escape(name)} stands twice, with different values"):
        load([tmp_path / "ncu.csv"])


def test_a_session_page_states_the_gpu(tmp_path: Path) -> None:
    raw(tmp_path / "ncu.csv", MEASURED)
    (tmp_path / "session.csv").write_text(
        '"Device Attribute","Device 0"\n"display_name","NVIDIA RTX 4000 SFF Ada Generation"\n'
        '"multiprocessor_count","48"\n"max_gpu_frequency_khz","1560000"\n"max_mem_frequency_khz","7001000"\n'
        '"global_memory_bus_width","160"\n'
    )
    known = attributes(load([tmp_path]))
    assert (known.sm_count, known.clock_hz, known.memory_clock_hz, known.bus_bits) == (48, 1.56e9, 7.001e9, 160)


def test_a_sqlite_export_states_the_gpu_that_ran(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.sqlite") as db:
        db.executescript(
            "CREATE TABLE StringIds (id INTEGER, value TEXT); INSERT INTO StringIds VALUES (1, 'sweep_floor');"
            "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER, clockRate INTEGER, memoryBandwidth "
            "INTEGER, l2CacheSize INTEGER, computeMajor INTEGER, computeMinor INTEGER);"
            "INSERT INTO TARGET_INFO_GPU VALUES (1, 'NVIDIA RTX A2000', 26, 1200000000, 288048000000, 3145728, 8, 6),"
            "(0, 'NVIDIA GeForce GT 710', 1, 954000000, 14400000000, 524288, 3, 5);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, demangledName INTEGER,"
            "shortName INTEGER, correlationId INTEGER, streamId INTEGER, globalPid INTEGER, gridX INTEGER, gridY INTEGER,"
            "gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, registersPerThread INTEGER);"
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 9000, 1, 1, 1, 1, 7, 0, 64, 1, 1, 128, 1, 1, 32);"
        )
    db.close()
    capture = load([tmp_path / "a.sqlite"])
    known = attributes(capture)
    assert (known.cc, known.sm_count, known.clock_hz, known.dram_bytes_per_s) == ("8.6", 26, 1.2e9, 288_048_000_000)
    device = derive_device("NVIDIA RTX A2000", known)
    assert device is not None
    assert device.fp32_flop_per_s == 26 * 128 * 2 * 1.2e9


def test_a_torch_trace_states_the_gpu(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(
        '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA GeForce RTX 4070 Laptop GPU", "numSms": 36,'
        ' "computeMajor": 8, "computeMinor": 9, "totalGlobalMem": 8585216000}], "traceEvents": [{"ph": "X", "cat": '
        '"kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 9, "args": {"device": 0, "stream": 7}}]}'
    )
    known = attributes(load([tmp_path / "trace.json"]))
    assert (known.cc, known.sm_count, known.memory_bytes) == ("8.9", 36, 8585216000)
