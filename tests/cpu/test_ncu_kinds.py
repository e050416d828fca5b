"""Every kind of ncu file gets a limit, or a sentence that names the metric that lacks."""

from pathlib import Path

import pytest

from analysis.capture.load import load
from analysis.diagnosis.each import tables_of_kernels
from analysis.diagnosis.hot import hot_kernels
from analysis.facts import Facts
from tests.cpu import test_capture_ncu_console as console
from tests.cpu import test_capture_ncu_pages as pages
from tests.cpu.test_capture_ncu_rep import Metric, launch, package  # noqa: F401 - a fixture
from tests.cpu.test_cases_counters import BUSY, COUNTED, FP8, FP64, INSTRUCTIONS, INT8, SCALAR, raw
from tests.cpu.test_hardware_derived import LISTED

pytestmark = pytest.mark.slow

Values = dict[str, tuple[str, str]]
PEAK = "pct_of_peak_sustained"
DRAM, SM = f"gpu__dram_throughput.avg.{PEAK}_elapsed", f"sm__throughput.avg.{PEAK}_elapsed"
TIME = {"gpu__time_duration.sum": ("us", "100.0")}
A100 = {"device__attribute_display_name": ("", "NVIDIA A100-SXM4-40GB")}
BYTES = {"dram__bytes_read.sum": ("Mbyte", "20"), "dram__bytes_write.sum": ("Mbyte", "20")}
CYCLES = {"sm__cycles_elapsed.avg": ("cycle", "100000"), "sm__cycles_elapsed.avg.per_second": ("cycle/nsecond", "1.0")}
SPEED = {DRAM: ("%", "30"), SM: ("%", "25"), f"lts__throughput.avg.{PEAK}_elapsed": ("%", "91")}
LACKS = f"no usable value of {DRAM} and {SM}"
L2 = "L2 is busy at 91%"


def first(folder: Path) -> str:
    """Return title, sentence and advice of the first finding."""
    found, *_ = hot_kernels(tables_of_kernels(Facts(load([folder]))), "ncu")
    return f"{found.title}\n{found.sentence}\n{found.do}"


def per_issue(name: str, *reasons: str) -> Values:
    return {name.format(reason): ("", str(9 - at)) for at, reason in enumerate(reasons)}


OF_WARPS = "smsp__warp_issue_stalled_{}_per_warp_active.pct"
LISTS: dict[str, tuple[Values, str]] = {
    "speed of light": (TIME | SPEED, L2),
    "speed of light without a time": (SPEED, L2),
    "names of 2019": (TIME | {f"dram__throughput.avg.{PEAK}_elapsed": ("%", "85")}, "DRAM is busy at 85%"),
    "a roofline by cycles, 2020": (
        CYCLES | SCALAR | COUNTED | {"dram__bytes.sum": ("Mbyte", "30"), "lts__t_bytes.sum": ("Mbyte", "60")},
        "19% of the datasheet's DRAM",
    ),
    "a duration alone": (TIME, LACKS),
    "cycles alone": ({"gpc__cycles_elapsed.max": ("cycle", "9")}, LACKS),
    "bytes": (TIME | BYTES, f"26% of the DRAM bandwidth. Its nearest limit is unknown, because the file has {LACKS}"),
    "bytes without a time": (BYTES, LACKS),
    "sectors": (TIME | {f"dram__sectors_{op}.sum": ("sector", "2000000") for op in ("read", "write")}, "82% of the datasheet's"),
    "rates": (TIME | {f"dram__bytes_{op}.sum.per_second": ("Gbyte/second", "640") for op in ("read", "write")}, "82% of the"),
    "stalls": (
        per_issue("smsp__average_warps_issue_stalled_{}_per_issue_active.ratio", "long_scoreboard", "wait"),
        LACKS,
    ),
    "a stall of warps without its scale": (TIME | per_issue(OF_WARPS, "long_scoreboard"), LACKS),
    "stalls of warps": (TIME | per_issue(OF_WARPS, "long_scoreboard", "wait", "selected"), "53% of its stalls"),
    "stalls of warps and their cycles": (
        TIME | per_issue(OF_WARPS, "long_scoreboard", "wait") | {"smsp__average_warp_latency_per_inst_issued.ratio": ("", "20")},
        "53% of its stalls",
    ),
    "occupancy": (TIME | {f"sm__warps_active.avg.{PEAK}_active": ("%", "30")}, LACKS),
    "hit rates": (TIME | {"lts__t_sector_hit_rate.pct": ("%", "50")}, LACKS),
    "links": (TIME | {"nvltx__bytes.sum": ("Mbyte", "20")}, LACKS),
    "sectors of a request": (
        {"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": ("sector/request", "32")},
        "32.0 sectors",
    ),
    "no number": ({"launch__func_cache_config": ("", "CachePreferNone")}, LACKS),
    "tensor cores": (TIME | INSTRUCTIONS | BUSY, "the tensor cores are busy at 63%"),
    "FP8": (TIME | SCALAR | COUNTED | FP8 | INSTRUCTIONS, LACKS),
    "INT8": (TIME | SCALAR | COUNTED | INT8 | INSTRUCTIONS, LACKS),
    "FP64": (TIME | SCALAR | COUNTED | FP64 | INSTRUCTIONS, LACKS),
    "an uncounted type": (TIME | SCALAR | COUNTED | INSTRUCTIONS | BUSY, "the tensor cores are busy at 63%"),
    "a time of nan": (SPEED | {"gpu__time_duration.sum": ("us", "nan")}, L2),
    "a time of 0": (SPEED | {"gpu__time_duration.sum": ("us", "0")}, L2),
    "a time below 0": (SPEED | {"gpu__time_duration.sum": ("us", "-5")}, L2),
    "a share of nan": (TIME | SPEED | {DRAM: ("%", "nan")}, L2),
    "a share below 0": (TIME | {DRAM: ("%", "-30"), SM: ("%", "25")}, f"no usable value of {DRAM}:"),
    "a share beyond the peak": (TIME | {DRAM: ("%", "140"), SM: ("%", "25")}, f"no usable value of {DRAM}:"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_of_metrics_gets_a_limit_or_names_what_lacks(tmp_path: Path, kind: str) -> None:
    values, said = LISTS[kind]
    raw(tmp_path / "ncu.csv", A100 | values, CC="8.0")
    assert said in first(tmp_path)


def _details(*rows: tuple[str, str, str], ancient: bool = False) -> str:
    section = "GPU Speed Of Light" if ancient else "GPU Speed Of Light Throughput"
    lines = [[*pages.who(ancient=ancient), section, *row] for row in rows]
    return pages.details(*lines, head=pages.ANCIENT if ancient else pages.HEAD)


US, OLD_TIME = ("Duration", "us", "20.00"), ("Duration", "nsecond", "89920")
BLOCK = "  scale(float *) (6400, 2, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.6\n"
TOP = console.PROCESS + BLOCK
FILES: dict[str, tuple[str, str]] = {
    "details": (_details(("DRAM Throughput", "%", "90.00"), US), "DRAM is busy at 90%"),
    "details of 2021": (_details(("SOL DRAM", "%", "90.00"), ("SM [%]", "%", "11.0"), OLD_TIME, ancient=True), "DRAM is busy at 90%"),
    "details of 2020": (_details(("SOL FB", "%", "36.47"), ("SOL L2", "%", "93.61"), OLD_TIME, ancient=True), "L2 is busy at 94%"),
    "L1 of 2020": (_details(("SOL TEX", "%", "91.33"), OLD_TIME, ancient=True), "L1, which holds shared memory, is busy at 91%"),
    "memory of 2020": (
        _details(("Memory [%]", "%", "36.47"), ("SM [%]", "%", "22.48"), OLD_TIME, ancient=True), "memory system is at 36% of its peak",
    ),
    "details with a time alone": (_details(US), LACKS),
    "metrics in rows": (pages.details([*pages.who(), "Command line profiler metrics", DRAM, "%", "90"]), "DRAM is busy at 90%"),
    "console": (TOP + console.SPEED, f"no usable value of {SM}"),
    "console near a peak": (TOP + console.SPEED.replace("60.05", "93.05"), "DRAM is busy at 93%"),
    "console of 2022": (console.OLD.replace(" 5.15", "95.15"), LACKS),
    "summary of the console": (console.SUMMARY.replace(" 2.07", "20.70"), LACKS),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_a_page_gets_a_limit_or_names_what_lacks(tmp_path: Path, kind: str) -> None:
    text, said = FILES[kind]
    (tmp_path / "ncu.txt").write_text(text, encoding="utf-8")
    assert said in first(tmp_path)


PLAIN = {f"launch__block_dim_{axis}": Metric(16.0) for axis in "xyz"}
PLAIN |= {f"smsp__pcsamp_warps_issue_stalled_{one}": Metric(0, "warp") for one in ("wait", "long_scoreboard")}
PLAIN |= {"smsp__pcsamp_sample_count": Metric(0)}


@pytest.mark.parametrize(("metrics", "said"), [({}, LACKS), ({DRAM: Metric(90.0, "%")}, "DRAM is busy at 90%")])
def test_a_report_of_ncu_gets_a_limit_or_names_what_lacks(package, metrics, said):  # noqa: F811 - the fixture
    assert said in first(package([launch(metrics=PLAIN | metrics)]))


@pytest.mark.parametrize(("name", "cc", "sms", "clock", "memory", "bus", "dram", "rates"), LISTED, ids=lambda one: one)
def test_every_gpu_has_its_limit(
    tmp_path: Path, name: str, cc: str, sms: str, clock: str, memory: str, bus: str, dram: str, rates: str
) -> None:
    """A kernel whose bytes fill 90 % of the DRAM bandwidth that NVIDIA states of its GPU; ncu counts none of an Orin's."""
    stated = {
        "display_name": name, "multiprocessor_count": sms, "max_gpu_frequency_khz": f"{float(clock) * 1e3:.0f}",
        "max_mem_frequency_khz": f"{float(memory) * 1e3:.0f}", "global_memory_bus_width": bus,
    }  # fmt: skip
    moved, unit, names = float(dram) * 1e9 * 100e-6 * 0.9, "byte", ("dram__bytes_read.sum", "dram__bytes_write.sum")
    if cc in ("8.7", "11.0", "12.1"):
        names = tuple(f"lts__t_sectors_srcunit_tex_op_{one}.sum" for one in ("read_lookup_miss", "write"))
        moved, unit = moved / 32, "sector"
    values = TIME | dict(zip(names, ((unit, f"{moved:.0f}"), (unit, "0")), strict=True))
    raw(
        tmp_path / "ncu.csv", {f"device__attribute_{key}": ("", value) for key, value in stated.items()} | values, CC=cc
    )
    assert "% of the DRAM bandwidth limit: it is near that limit" in first(tmp_path), rates
