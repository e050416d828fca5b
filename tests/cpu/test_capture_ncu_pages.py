"""ncu's other pages: details of every header, source, session, several tables in a file, live output."""

import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.capture import ncu, ncu_csv, ncu_source
from analysis.capture.load import load
from analysis.capture.units import base_unit
from analysis.facts import Facts
from analysis.formats import paths
from analysis.formats.errors import InputError

ANCIENT = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream"]
HEAD = [
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
    "Device", "CC",
]  # fmt: skip
METRIC = ["Section Name", "Metric Name", "Metric Unit", "Metric Value"]
RULE = ["Rule Name", "Rule Type", "Rule Description"]
SPEEDUP = ["Estimated Speedup Type", "Estimated Speedup"]
NVTX = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
START_STOP = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
KERNEL = "void k<4>(float *, int)"


def line(cells: list[str], end: str = "") -> str:
    """A row as ncu writes it: every field in quotes, inner ones doubled."""
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells) + end + "\n"


def who(ncu_id: int = 0, name: str = KERNEL, ancient: bool = False) -> list[str]:
    """The identity cells of a row."""
    if ancient:
        return [str(ncu_id), "99", "app", "secret-host", name, "2020-May-10 20:00:32", "1", "7"]
    return [str(ncu_id), "99", "app", "secret-host", name, "1", "7", "(256, 1, 1)", "(64, 2, 1)", "0", "8.6"]


def put(folder: Path, text: str, name: str = "x") -> Path:
    (folder / name).write_bytes(text.encode())
    return folder / name


# ------------------------------------------------------------------------------------------------------------- details


@pytest.mark.parametrize(
    ("columns", "ancient", "rules"),
    [
        (12, True, []),
        (15, True, RULE),
        (15, False, []),
        (18, False, RULE),
        (20, False, [*RULE, *SPEEDUP]),
        (21, False, [*RULE, *SPEEDUP]),
    ],
)
@pytest.mark.parametrize("padded", [False, True], ids=["ragged", "padded"])
def test_every_header_from_12_to_21_columns(
    tmp_path: Path, columns: int, ancient: bool, rules: list[str], padded: bool
) -> None:
    item = ["Body Item Label"] if columns == 21 else []
    head = [*(ANCIENT if ancient else HEAD), METRIC[0], *item, *METRIC[1:], *rules]
    assert len(head) == columns
    rest = [""] * len(rules) if padded else []
    end = "," if rules and not padded else ""
    blank = [""] * len(item)
    text = line(head)
    text += line(
        [*who(ancient=ancient), "GPU Speed Of Light Throughput", *blank, "Duration", "usecond", "31.87", *rest], end
    )
    text += line(
        [*who(ancient=ancient), "Launch Statistics", *blank, "Registers Per Thread", "register/thread", "34", *rest],
        end,
    )
    if rules:
        said = ["SOLBottleneck", "OPT", "Memory is used more than Compute, see (kernel fusion) 80%", "global", "3.779"]
        text += line([*who(ancient=ancient), "SpeedOfLight", *blank, "", "", "", *said[: len(rules)]])
    capture = load([put(tmp_path, text)])
    row = capture.counters.iloc[0]
    assert (row["gpu__time_duration.sum"], row["launch__registers_per_thread"]) == (31_870.0, 34.0)
    assert (row["grid"], row["cc"]) == (("", "") if ancient else ("64x2x1", "8.6"))
    assert len(capture.rules) == bool(rules)
    assert capture.details["metric"].tolist() == ["gpu__time_duration.sum", "launch__registers_per_thread"]
    if rules:
        typeless = line([*who(ancient=ancient), "Occupancy", *blank, "", "", "", "R", "", "text", "", ""][: len(head)])
        assert load([put(tmp_path, text + typeless)]).rules["type"].tolist() == ["OPT", ""]
        rule = capture.rules.iloc[0]
        assert (rule["section"], rule["section_title"]) == ("SpeedOfLight", "GPU Speed Of Light Throughput")
        assert (rule["rule"], rule["type"], rule["ncu_id"]) == ("SOLBottleneck", "OPT", 0)
        assert pd.isna(rule["speedup_pct"]) if len(rules) == 3 else rule["speedup_pct"] == 3.779


def details(*rows: list[str], head: list[str] = HEAD, more: list[str] = [], end: str = "") -> str:  # noqa: B006
    """A details page of metric rows."""
    return line([*head, *METRIC, *more]) + "".join(line(row, end) for row in rows)


def test_labels_stand_for_raw_names_only_where_that_is_known(tmp_path: Path) -> None:
    text = details(
        [*who(), "GPU Speed Of Light Throughput", "Memory Throughput", "%", "88.35"],
        [*who(), "Memory Workload Analysis", "Memory Throughput", "Gbyte/second", "535.22"],
        [*who(), "Memory Workload Analysis", "A New Label", "%", "1.50"],
        [*who(), "Memory Workload Analysis", "L2 Hit Rate", "byte", "7"],
        [*who(), "Command line profiler metrics", "dram__bytes_read.sum", "Mbyte", "25.17"],
        [*who(), "Launch Statistics", "Function Cache Configuration", "", "CachePreferNone"],
        [*who(), "Source Counters", "stall_wait", "", "3"],
    )
    capture = load([put(tmp_path, text)])
    row = capture.counters.iloc[0]
    assert row["gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"] == 88.35
    assert row["dram__bytes.sum.per_second"] == 535.22e9
    assert row["dram__bytes_read.sum"] == 25_170_000.0
    kept = capture.details[capture.details["metric"] == ""]
    assert kept["label"].tolist() == ["A New Label", "L2 Hit Rate", "stall_wait"]
    assert "lts__t_sector_hit_rate.pct" not in capture.counters
    assert capture.details["text"].tolist()[5] == "CachePreferNone"
    gaps = {gap.what: gap for gap in capture.missing}
    assert "two decimals" in gaps["all digits of the counters of 1 launch"].why
    assert "3 metrics of the details page (A New Label, L2 Hit Rate, stall_wait)" in gaps


def test_both_names_and_body_items(tmp_path: Path) -> None:
    head = [*HEAD, "Section Name", "Body Item Label", *METRIC[1:]]
    chart = "GPU Speed Of Light Roofline Chart"
    text = line(head) + "".join(
        line([*who(), *row])
        for row in (
            [chart, "Single Precision Roofline", "SM Frequency", "cycle/nsecond", "1.03"],
            [chart, "Double Precision Roofline", "SM Frequency", "cycle/nsecond", "1.04"],
            ["Occupancy", "", "Achieved Occupancy (sm__warps_active.avg.pct_of_peak_sustained_active)", "%", "76.44"],
        )
    )
    capture = load([put(tmp_path, text)])
    assert capture.counters.iloc[0]["sm__warps_active.avg.pct_of_peak_sustained_active"] == 76.44
    assert capture.details["item"].tolist() == ["Single Precision Roofline", "Double Precision Roofline", ""]
    assert capture.details["metric"].tolist()[:2] == ["", ""]


def test_a_rule_table_between_the_rows_is_no_row(tmp_path: Path) -> None:
    row = [*who(), "NUMA Affinity", "CPU Affinity", "", "2 (0-15; 0-15)"]
    text = details(row, more=[*RULE, *SPEEDUP], end=",")
    text += '    The system does not have any NVLink connections.\n\n"GPU ID","GPU Name"\n"0","Quadro"\n"1","RTX"\n'
    text += line([*who(), "Launch Statistics", "Grid Size", "", "128"], ",")
    capture = load([put(tmp_path, text)])
    assert capture.details["label"].tolist() == ["CPU Affinity", "Grid Size"]
    assert capture.counters["launch__grid_size"].tolist() == [128.0]


def test_nan_of_a_crashed_kernel_is_named_and_never_zero(tmp_path: Path) -> None:
    crashed = [*who(1, "sigma_gpp")[:7], "(0, 0, 0)", "(0, 0, 0)", "0", "8.9"]
    text = "==ERROR== LaunchFailed\n==ERROR== The application returned an error code (9).\n" + details(
        [*who(), "Command line profiler metrics", "dram__bytes.sum", "byte", "1,024"],
        [*crashed, "Command line profiler metrics", "dram__bytes.sum", "byte", "nan"],
        [*crashed, "Command line profiler metrics", "flop_count_hp.sum", "", "n/a"],
    )
    capture = load([put(tmp_path, text)])
    assert capture.counters[["ncu_id", "dram__bytes.sum"]].to_numpy().tolist() == [[0, 1024]]
    gap = next(gap for gap in capture.missing if "no value in any metric" in gap.what)
    assert gap.what.startswith("1 of 2 kernels")
    assert "LaunchFailed" in gap.why
    assert "sigma_gpp" in gap.why


def test_a_german_details_page(tmp_path: Path) -> None:
    section = "Command line profiler metrics"
    text = details(
        [*who(), section, "gpu__time_duration.sum", "ns", "117.344"],
        [*who(), section, "dram__bytes_read.sum", "byte", "27.595.520"],
        [*who(), section, "sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "65,77"],
    )
    row = load([put(tmp_path, text)]).counters.iloc[0]
    assert row[["gpu__time_duration.sum", "dram__bytes_read.sum"]].tolist() == [117_344.0, 27_595_520.0]


def test_the_better_page_wins_and_the_other_fills_what_it_lacks(tmp_path: Path) -> None:
    put(tmp_path, details([*who(), "Command line profiler metrics", "dram__bytes_read.sum", "Gbyte", "0.13"],
                          [*who(), "Occupancy", "Achieved Occupancy", "%", "76.44"]), "a")  # fmt: skip
    raw = line([*HEAD, "dram__bytes_read.sum"]) + line([""] * len(HEAD) + ["byte"]) + line([*who(), "128,500,000"])
    put(tmp_path, raw, "b")
    capture = load([tmp_path])
    from analysis.tables.join import prepare_counters

    row = prepare_counters(capture.counters).iloc[0]
    assert len(prepare_counters(capture.counters)) == 1
    assert not any("all digits" in gap.what for gap in capture.missing)
    assert row["dram__bytes_read.sum"] == 128_500_000.0
    assert row["sm__warps_active.avg.pct_of_peak_sustained_active"] == 76.44


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (details([*who(), "S", "a__b.sum", "furlong", "1"]), r"line 2.*furlong"),
        (details([*who(), "S", "a__b.sum", "byte", "1"], [*who(0, "other"), "S", "c__d.sum", "byte", "1"]), r"ID 0 is"),
        (details([*who(), "S", "a__b.sum", "byte", "1"], [*who(), "S", "a__b.sum", "byte", "900"]), r"is 900 where"),
        (details([*who()[:9], "S"], [*who(), "S", "a__b.sum", "byte", "1"]), r"line 2 has 10 fields"),
        (details([*who(), "S", "a__b.sum", "byte", "1"]).replace("Metric Value", "Metric"), "no column 'Metric Value'"),
        (details([*who(), "S", "a__b.sum", "byte", '1"']).replace('"",', '",'), ""),
    ],
)
def test_damage_in_details_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = put(tmp_path, text)
    if says:
        with pytest.raises(InputError, match=says):
            load([path])


def test_a_cut_details_page_keeps_what_is_whole(tmp_path: Path) -> None:
    text = details([*who(), "S", "a__b.sum", "byte", "10"], [*who(), "S", "c__d.sum", "byte", "20"])
    capture = load([put(tmp_path, text[:-4])])
    assert "c__d.sum" not in capture.counters
    assert any("middle of a row" in gap.what for gap in capture.missing)


# ------------------------------------------------------------------------------------------- live output, several tables


def test_ranges_of_the_details_page_in_both_forms(tmp_path: Path) -> None:
    stack = '7  "<default domain>:fwd:none:none:none:none:none:none"  "torch:h.0:none:none:RGB:0xff:REGISTERED:h.0" '
    head = [*HEAD[:4], NVTX, START_STOP, *HEAD[4:]]
    row = [*who()[:4], stack, "", *who()[4:], "S", "dram__bytes_read.sum", "byte", "1"]
    assert load([put(tmp_path, details(row, head=head))]).counters["path"].tolist() == ["fwd/torch:h.0"]
    head = [*HEAD, "Domain", "Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"]
    for domain, path in (("<default domain>", "fwd"), ("torch", "torch:fwd")):
        row = [*who(), domain, "fwd:none:none:none:none:none:none", "S", "dram__bytes_read.sum", "byte", "1"]
        assert load([put(tmp_path, details(row, head=head))]).counters["path"].tolist() == [path]


def test_live_output_among_progress_and_the_programs_own_lines(tmp_path: Path) -> None:
    section = "Command line profiler metrics"
    rows = [line([*who(at), section, "dram__bytes_read.sum", "byte", str(at + 1)]) for at in range(3)]
    text = (
        "==PROF== Connected to process 99 (/home/someone/app)\n  theoretical: 32.26 TFLOP/s, 672.0 GB/s\n"
        "==WARNING== Unable to access something\n nstart,nend            2            3\n\n"
        "==PROF== Disconnected from process 99\n"
        + line([*HEAD, *METRIC])
        + rows[0]
        + 'step 1, loss 3.2\n==PROF== Profiling "k" - 1: 0%....100% - 3 passes\n'
        + rows[1]
        + "3 iterations, 2 left, no quotes: "
        + rows[2]
        + "done\n==PROF== Disconnected from process 99\n"
    )
    assert load([put(tmp_path, text)]).counters["dram__bytes_read.sum"].tolist() == [1.0, 2.0, 3.0]


def test_several_tables_in_one_file(tmp_path: Path) -> None:
    raw = line([*HEAD, "gpu__time_duration.sum"]) + line([""] * len(HEAD) + ["us"]) + line([*who(), "31.872000"])
    more = line([*HEAD, "dram__bytes_read.sum"]) + line([""] * len(HEAD) + ["Mbyte"]) + line([*who(), "4.195712"])
    rule = line([*HEAD, *METRIC, *RULE, *SPEEDUP]) + line([*who(), "Occupancy", "", "", "", "R", "INF", "said", "", ""])
    source = (
        line(["Kernel Name", KERNEL], ",") + line(["Address", "Source", "# Samples"]) + line(["0x10", " EXIT ", "5"])
    )
    session = 'Session Info\n"Session Attribute","Value"\n"Host Name","secret-host"\n"CUDA Version","12.3"\n'
    capture = load([put(tmp_path, raw + "\n" + more + "bye\n" + rule + source + "\n" + session)])
    from analysis.tables.join import prepare_counters

    row = prepare_counters(capture.counters).iloc[0]
    assert row[["gpu__time_duration.sum", "dram__bytes_read.sum"]].tolist() == [31_872.0, 4_195_712.0]
    assert capture.rules["text"].tolist() == ["said"]
    assert capture.source_lines["samples"].tolist() == [5.0]
    assert capture.session == {"cuda": "12.3"}
    assert [file.kind for file in capture.files] == ["ncu raw", "ncu details", "ncu source", "ncu session"]


def test_instances_are_a_table(tmp_path: Path) -> None:
    names = ["sass__inst_executed_per_opcode", "inst_executed", "PM.Triage.x__y.sum", "nvlink__names"]
    cells = ["7 (IMAD: 4; STG.E: 3)", "7 (5; 2)", "(0; 3)", "2 (0: Quadro; 1: RTX)"]
    text = line([*HEAD, *names]) + line([""] * (len(HEAD) + 4)) + line([*who(), *cells])
    capture = load([put(tmp_path, text)])
    row = capture.counters.iloc[0]
    assert row[names[:2]].tolist() == [7.0, 7.0]
    assert pd.isna(row[names[2]])
    got = capture.metric_instances[["metric", "instance", "value"]].to_numpy().tolist()
    assert got == [
        [names[0], "IMAD", 4.0], [names[0], "STG.E", 3.0], [names[1], "0", 5.0], [names[1], "1", 2.0],
        [names[2], "0", 0.0], [names[2], "1", 3.0],
    ]  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- source

SASS = [
    "Address",
    "Source",
    "Warp Stall Sampling (All Samples)",
    "Instructions Executed",
    "stall_long_sb",
    "stall_wait",
]
MIXED = ["Line No", "Source", *SASS]


def test_a_sass_page_has_a_block_for_each_launch(tmp_path: Path) -> None:
    block = line(["Kernel Name", KERNEL], ",") + line(SASS)
    block += line(["0x7f10", " LDG.E R2, [R4.64] ", "9", "32", "7", "2"]) + line(
        ["0x7f20", " EXIT ", "-", "32", "0", "0"]
    )
    capture = load([put(tmp_path, block + block)])
    lines = capture.source_lines
    assert lines["block"].tolist() == [0, 0, 1, 1]
    assert lines["instruction"].tolist() == [0, 1, 0, 1]
    assert lines["text"].tolist()[:2] == ["LDG.E R2, [R4.64]", "EXIT"]
    assert lines["stall"].tolist()[:2] == ["long_scoreboard", ""]
    assert lines["samples"].isna().tolist() == [False, True, False, True]


def by_group() -> str:
    """The page of ncu 2025.3.1 with `--metrics group:…` instead of the section SourceCounters."""
    head = ["Line No", "Source", "Address", "Source", "group:smsp__pcsamp_warp_stall_reasons"]
    text = line(["File Path", "/home/someone/k.cu"]) + line(["Function Name", KERNEL]) + line(head)
    return text + line(["20", "x = y;", "-", "-", "31"]) + line(["", "", "0x7f10", "  LDG ", "31"])


def test_samples_that_were_asked_for_by_the_name_of_their_group(tmp_path: Path) -> None:
    lines = load([put(tmp_path, by_group())]).source_lines
    assert lines["samples"].tolist() == [31.0, 31.0]
    assert lines["stall"].tolist() == ["", ""]


def mixed(path: str = "/home/someone/src/k.cu") -> str:
    """A cuda,sass block whose source text has quotes that ncu does not double."""
    text = line(["File Path", path]) + line(["Function Name", KERNEL]) + line(MIXED)
    text += '"12","printf("a,","b");\r","-","-","9","64","7","2"\n'
    text += line(["", "", "0x7f10", " LDG.E R2, [R4.64] ", "6", "32", "5", "1"])
    text += line(["", "", "...", "...", "-", "-", "-", "-"])
    text += line(["", "", "0x7f30", " CALL ", "3", "32", "2", "1"])
    return (
        text
        + line(["13", "}", "-", "-", "3", "32", "2", "1"])
        + line(["", "", "0x7f30", " CALL ", "3", "32", "2", "1"])
    )


def test_source_and_sass_with_quotes_ellipses_and_paths(tmp_path: Path) -> None:
    capture = load([put(tmp_path, mixed() + mixed("C:\\Users\\someone\\inline.h"))])
    lines = capture.source_lines
    assert set(lines["source_file"]) == {"k.cu", "inline.h"}
    assert lines["block"].unique().tolist() == [0]
    assert lines["line"].tolist()[:5] == [12, 12, 12, 13, 13]
    assert lines["text"].tolist()[0] == 'printf("a,","b");'
    assert lines["instruction"].tolist()[:5] == [pd.NA, 0, 1, pd.NA, 1]
    assert "someone" not in lines.to_csv()
    from analysis.tables.source import build_source

    table = build_source(Facts(capture))
    assert table["place"].tolist() == ["k.cu:12"]
    assert table["samples"].tolist() == [9]


def test_the_same_file_again_is_the_next_launch(tmp_path: Path) -> None:
    lines = load([put(tmp_path, mixed() + mixed())]).source_lines
    assert lines["block"].unique().tolist() == [0, 1]


def test_a_listing_without_counts_is_a_gap(tmp_path: Path) -> None:
    listing = line(["File Name", "/home/someone/k.cu"]) + line(["Line No", "Source"]) + '"1","#include "x.h""\n'
    capture = load([put(tmp_path, mixed() + listing), put(tmp_path, listing, "y")])
    assert any("source text alone" in gap.why for gap in capture.missing)


def test_damage_in_a_source_page(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 5"):
        load([put(tmp_path, mixed().replace('"0x7f10"', '"0x7f10","9"'))])
    with pytest.raises(InputError, match=r"'six' is not a number"):
        load([put(tmp_path, mixed().replace('"6"', '"six"'))])


# ------------------------------------------------------------------------------------------------- session and privacy

SESSION = """Launch Settings
"Launch Attribute","Value"
"Profiler Command Line","/home/someone/ncu --set full --clock-control none --cache-control=all -o /tmp/x ./app --set secret "

Session Info
"Session Attribute","Value"
"Created","2023-Oct-24 18:55:50"
"Host Name","secret-host"
"Host OS","Linux - #86"
"Target Name","secret-host"
"CUDA Version","12.3"
"Display Driver Version","545.19"
"Nsight Compute Target","2023.3.0.0 (build 33266684) (public-release)"

Processes
"Process Id","Process Name"
"3662588","/home/someone/secret-app"

Device Attributes
"Device Attribute","Device 0","Device 1"
"display_name","NVIDIA RTX A4500","Quadro"
"compute_capability_major","8","6"
"compute_capability_minor","6","1"
"multiprocessor_count","56","4"
"max_gpu_frequency_khz","1650000","1"
"""


def test_of_a_session_page_only_what_is_safe_is_kept(tmp_path: Path) -> None:
    put(tmp_path, SESSION, "session")
    put(tmp_path, details([*who(), "S", "dram__bytes.sum", "byte", "1"]), "details")
    capture = load([tmp_path])
    assert capture.session == {
        "set": "full", "clock_control": "none", "cache_control": "all", "date": "2023-10-24", "cuda": "12.3",
        "driver": "545.19", "ncu": "2023.3.0.0 (build 33266684) (public-release)", "gpu": "NVIDIA RTX A4500",
        "sm_count": "56", "max_gpu_frequency_khz": "1650000", "cc": "8.6",
    }  # fmt: skip
    everything = repr(capture.session) + "".join(
        getattr(capture, name).to_csv() for name in ("counters", "details", "rules", "source_lines", "metric_instances")
    )
    assert "secret" not in everything
    assert "someone" not in everything
    status = {"kind": "tool-status", "schema_version": 1, "tool": "ncu", "status": "ok", "date": "2026-01-02"}
    (tmp_path / "ncu.json").write_text(json.dumps(status), encoding="utf-8")
    assert load([tmp_path]).session["date"] == "2026-01-02"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("see /home/me/a/k.cu line 3", "see k.cu line 3"),
        ("see C:\\Users\\me\\k.cu:3", "see k.cu:3"),
        ("in '~/src/app/k.cuh'", "in 'k.cuh'"),
        (
            "rules (https://docs.nvidia.com/cuda/index.html#x) and 1/2",
            "rules (https://docs.nvidia.com/cuda/index.html#x) and 1/2",
        ),
        ("inst/cycle, L1/TEX", "inst/cycle, L1/TEX"),
    ],
)
def test_paths_are_reduced_to_names(text: str, plain: str) -> None:
    assert paths.without_paths(text) == plain
    assert ncu_source.base_name("/a/b/k.cu") == ncu_source.base_name("D:\\x\\k.cu") == "k.cu"


# ---------------------------------------------------------------------------------------------------------- properties

OLD_AND_NEW = [
    ("nsecond", "ns", 1.0), ("usecond", "us", 1e3), ("msecond", "ms", 1e6), ("second", "s", 1e9), ("Kbyte", "KB", 1e3),
    ("Gbyte/second", "Gbyte/s", 1e9), ("cycle/nsecond", "Ghz", 1e9), ("cycle/usecond", "Mhz", 1e6), ("cycle/second", "hz", 1.0),
    ("warp/issue", "warp/issue", 1.0), ("sector/usecond", "sector/us", 1e6), ("Kbyte/block", "Kbyte/block", 1e3), ("%", "%", 1.0), ("", "", 1.0),
]  # fmt: skip


@pytest.mark.slow
@given(st.sampled_from(OLD_AND_NEW), st.integers(0, 10**9))
def test_units_round_trip_in_both_spellings(unit: tuple[str, str, float], millionths: int) -> None:
    old, new, factor = unit
    assert base_unit(old, "x")[1] == base_unit(new, "x")[1]
    scale, base = base_unit(new, "x")
    assert scale == pytest.approx(factor, rel=1e-12)
    assert base_unit(base, "x") == (1.0, base)
    text = f"{millionths // 10**6}.{millionths % 10**6:06d}"  # as auto units print it
    page = line([*HEAD, "a__b.sum"]) + line([""] * len(HEAD) + [old]) + line([*who(), text])
    value = ncu.read_pages(page, "x").counters[0]["a__b.sum"].iloc[0]
    assert value == pytest.approx(millionths / 10**6 * factor, rel=1e-15)


@given(st.lists(st.text('ab",\\ {}<>é', max_size=8), min_size=1, max_size=6))
def test_quoted_rows_come_back(cells: list[str]) -> None:
    assert ncu_csv.split_row(line(cells).rstrip("\n")) == cells


# -------------------------------------------------------------------------------------------------- structural damage

WHOLE = {
    "raw": line([*HEAD, "dram__bytes_read.sum", "gpu__time_duration.sum"])
    + line([""] * len(HEAD) + ["Mbyte", "us"])
    + line([*who(), "25.170000", "31.870000"])
    + line([*who(1, "other"), "1.500000", "7.000000"]),
    "details": line([*HEAD, *METRIC, *RULE, *SPEEDUP])
    + line([*who(), "GPU Speed Of Light Throughput", "Duration", "usecond", "31.87"], ",")
    + line([*who(), "Occupancy", "", "", "", "R", "OPT", "said, so", "global", "31.07"])
    + line([*who(1, "other"), "S", "dram__bytes_read.sum", "Mbyte", "1.50"], ","),
    "source": mixed() + mixed(),
}


def numbers(text: str) -> dict[tuple[object, ...], float]:
    """Every number that the readers give for a text, by what it is said to be of."""
    parts = ncu.read_pages(text, "x")
    found: dict[tuple[object, ...], float] = {}
    for frame in [*parts.counters, *parts.rounded]:
        named = [name for name in frame if "__" in name]
        for _, row in frame.iterrows():
            found |= {(row["ncu_id"], name): row[name] for name in named if row[name] == row[name]}
    for frame in parts.rules:
        known = frame.dropna(subset="speedup_pct")
        found |= {(row["ncu_id"], row["rule"], row["section"]): row["speedup_pct"] for _, row in known.iterrows()}
    for frame in parts.source_lines:
        for name in ("samples", "inst_executed", "stall_samples"):
            for _, row in frame.dropna(subset=name).iterrows():
                found[(row["block"], str(row["instruction"]), str(row["line"]), row["text"], name)] = row[name]
    return found


@pytest.mark.slow
@given(st.sampled_from(sorted(WHOLE)), st.sampled_from(["cut", "quote", "comma", "cell", "blank", "line"]), st.data())
def test_damage_never_gives_another_number(kind: str, damage: str, data: st.DataObject) -> None:
    text = WHOLE[kind]
    lines = text.split("\n")
    if damage == "cut":
        damaged = text[: data.draw(st.integers(0, len(text)))]
    elif damage in ("quote", "comma"):
        places = [at for at, sign in enumerate(text) if sign == {"quote": '"', "comma": ","}[damage]]
        at = data.draw(st.sampled_from(places))
        damaged = text[:at] + text[at + 1 :]
    else:
        row = data.draw(st.integers(0, len(lines) - 1))
        cells = lines[row].split('","')
        at = data.draw(st.integers(0, len(cells) - 1))
        if damage == "line":
            del lines[row]
        elif damage == "cell":
            del cells[at]
        else:
            cells.insert(at, "")
        if damage != "line":
            lines[row] = '","'.join(cells)
        damaged = "\n".join(lines)
    try:
        found = numbers(damaged)
    except InputError:
        return
    whole = numbers(text)
    assert {key: value for key, value in found.items() if whole.get(key, value) != value} == {}
    # a number never moves to another metric or launch; source text alone may differ, which is no number
    if kind != "source":
        assert set(found) <= set(whole)
