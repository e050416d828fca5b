"""What ncu prints on the console: blocks of every year, rules, NVTX, summaries, failed launches, logs and damage."""

from pathlib import Path

import pytest

from analysis.capture import ncu_console
from analysis.capture.load import load
from analysis.formats.errors import InputError

LOG = """\
[3/8] the program's own output
==PROF== Connected to process 4711 (/home/alice/app)
==PROF== Profiling "scale" - 3: 0%....50%....100% - 9 passes
==PROF== Profiling "a_kernel_with_a_l..." - 4 (2/2): 0%....50%....100% - 9 passes
==PROF== Disconnected from process 4711
"""
SPEED = """\
    Section: GPU Speed Of Light Throughput
    ----------------------- ------------- ------------
    Metric Name               Metric Unit Metric Value
    ----------------------- ------------- ------------
    SM Frequency            cycle/nsecond         1.38
    Elapsed Cycles                  cycle    6,549,535
    Duration                      usecond        12.75
    DRAM Throughput                     %        60.05
    ----------------------- ------------- ------------

"""
RULES = """\
    OPT   This workload exhibits low compute throughput. See
          /home/alice/ncu/sections/SpeedOfLight.py for more.
    ----- --------------------------------------------------------------------------------------------------------------
    OPT   Est. Local Speedup: 79.48%
          Every scheduler is capable of issuing one instruction per cycle.

    Section: Occupancy
    WRN   Est. Speedup: 4.686%
          Registers limit the occupancy.
"""
PROCESS = "[4711] app@127.0.0.1\n"
SCALE = "  void scale<4>(float *, int) (64, 2, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.6\n"
LONG = "  a_kernel_with_a_long_name (1, 1, 1)x(32, 1, 1), Context 1, Stream 7, Device 0, CC 8.6\n"
NEW = LOG + PROCESS + SCALE + SPEED + RULES + "\n" + LONG + SPEED.replace("12.75", "24.25")
OLD = """\
==PROF== Profiling "naive" - 0: 0%....50%....100% - 5 passes
[17] task@127.0.0.1
  naive(int, const double *, double *), 2022-Jun-08 15:09:54, Context 1, Stream 7

    NVTX Push/Pop Stack for Thread 17:
     <default domain>
        <0,step>
            REGISTERED: step
        <1,h.0: attn>
    NVTX Start/End Ranges:
     <default domain>
        <0,whole>
    Section: Command line profiler metrics
    ---------------------------------------------------------------------- --------------- ------------------------------
    gpu__time_duration.sum                                                         usecond                           5.15
    launch__block_size                                                                                                128
    launch__shared_mem_per_block_dynamic                                       Kbyte/block                          81.92
    smsp__average_warps_issue_stalled_long_scoreboard_not_issued_per_issue_active.ratio inst                         0.25
    ---------------------------------------------------------------------- --------------- ------------------------------

"""
SUMMARY = """\
[7] app@127.0.0.1
  add(float *) (2, 2, 2)x(8, 8, 8), Device 0, CC 8.9, Invocations 4
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- -------- -------- --------
    Metric Name             Metric Unit  Minimum  Maximum  Average
    ----------------------- ----------- -------- -------- --------
    Elapsed Cycles                cycle 4,374.00 5,139.00 4,661.00
    Duration                         us     1.95     2.27     2.07
    ----------------------- ----------- -------- -------- --------
"""
FAILED = """\
==PROF== Profiling "render": 0%
==ERROR== LaunchFailed
[5] app@127.0.0.1
  render(int) (0, 0, 0)x(0, 0, 0), Context 1, Stream 7, Device 0, CC 8.9
    Section: GPU Speed Of Light Throughput
    ----------------------- ------------ ------------
    Metric Name              Metric Unit Metric Value
    ----------------------- ------------ ------------
    SM Frequency            cycle/second      (!) nan
    Duration                     nsecond      (!) nan
    ----------------------- ------------ ------------

    ERR   Rule Bottleneck returned an error: Metric launch__waves_per_multiprocessor not found

"""


def put(folder: Path, text: str, name: str = "ncu.txt", encoding: str = "utf-8") -> Path:
    (folder / name).write_text(text, encoding=encoding)
    return folder / name


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_launches_with_their_sections_and_rules(tmp_path: Path, encoding: str) -> None:
    capture = load([put(tmp_path, NEW.replace("\n", "\r\n") if encoding == "utf-16" else NEW, encoding=encoding)])
    counters = capture.counters
    assert list(counters["name"]) == ["void scale<4>(float *, int)", "a_kernel_with_a_long_name"]
    assert list(counters["ncu_id"]) == [0, 1]
    assert list(counters["grid"]) == ["64x2x1", "1x1x1"]
    assert list(counters["cc"]) == ["8.6", "8.6"]
    assert list(counters["pid"]) == [4711, 4711]
    assert list(counters["gpu__time_duration.sum"]) == [12750, 24250]
    assert list(counters["gpc__cycles_elapsed.max"]) == [6549535, 6549535]
    assert capture.counter_units["gpu__time_duration.sum"] == "ns"
    assert list(capture.rules["type"]) == ["OPT", "OPT", "WRN"]
    assert list(capture.rules["speedup_type"]) == ["", "local", "global"]
    assert capture.rules["speedup_pct"].fillna(0).tolist() == [0, 79.48, 4.686]
    assert list(capture.rules["section"]) == ["SpeedOfLight", "SpeedOfLight", "Occupancy"]
    assert capture.rules["text"][0] == "This workload exhibits low compute throughput. See SpeedOfLight.py for more."
    assert "alice" not in str(capture)
    assert [file.kind for file in capture.files] == ["ncu console"]


def test_a_block_of_2022_has_a_date_nvtx_ranges_and_a_table_without_titles(tmp_path: Path) -> None:
    capture = load([put(tmp_path, OLD)])
    row = capture.counters.iloc[0]
    assert row["name"] == "naive(int, const double *, double *)"
    assert (row["grid"], row["path"]) == ("", "step/h.0: attn")
    assert row["gpu__time_duration.sum"] == 5150
    assert row["launch__shared_mem_per_block_dynamic"] == 81920
    # a name that is longer than its column
    assert row["smsp__average_warps_issue_stalled_long_scoreboard_not_issued_per_issue_active.ratio"] == 0.25


def test_a_process_glued_to_its_first_launch_keeps_both(tmp_path: Path) -> None:
    counters = load([put(tmp_path, NEW.replace(PROCESS, PROCESS[:-1]))]).counters
    assert list(counters["name"]) == ["void scale<4>(float *, int)", "a_kernel_with_a_long_name"]
    assert list(counters["pid"]) == [4711, 4711]


def test_several_runs_in_one_log_are_all_read(tmp_path: Path) -> None:
    capture = load([put(tmp_path, NEW + NEW)])
    assert list(capture.counters["ncu_id"]) == [0, 1, 2, 3]
    assert len(capture.rules) == 6


def test_a_summary_stands_for_its_launches_and_says_so(tmp_path: Path) -> None:
    capture = load([put(tmp_path, SUMMARY)])
    assert list(capture.counters["gpu__time_duration.sum"]) == [2070] * 4
    assert capture.missing[0].what == "4 launches of ncu.txt one by one"


def test_a_file_of_failed_launches_is_refused_with_the_failure(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="LaunchFailed"):
        load([put(tmp_path, FAILED)])


def test_a_failed_launch_beside_good_ones_is_a_gap(tmp_path: Path) -> None:
    capture = load([put(tmp_path, NEW + FAILED)])
    assert len(capture.counters) == 2
    assert any("1 of 3 kernels" in gap.what and "render" in gap.why for gap in capture.missing)
    assert "ERR" not in set(capture.rules["type"])


def test_metrics_that_do_not_exist_are_told(tmp_path: Path) -> None:
    text = SPEED.replace("1.38", " n/a").replace("6,549,535", "      n/a").replace("12.75", "  n/a")
    with pytest.raises(InputError, match="ncu knows no such metric"):
        load([put(tmp_path, PROCESS + SCALE + text.replace("60.05", "  n/a"))])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LOG, "progress of 2 launches and none of their values"),
        (LOG + "==PROF== Report: /home/alice/out/my.ncu-rep\n", "`ncu --import my.ncu-rep --csv --page raw`"),
        ("==PROF== Connected to process 1 (/bin/true)\n", "ncu profiled no kernel"),
    ],
)
def test_a_log_without_values_names_its_launches_and_the_report(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match="holds no counters") as error:
        load([put(tmp_path, text)])
    assert said in str(error.value)
    assert "alice" not in str(error.value)


def test_output_inside_a_table_is_refused(tmp_path: Path) -> None:
    mixed = NEW.replace("    Duration ", "step 3 done\n    Duration ", 1)
    with pytest.raises(InputError, match="mixed with that of ncu"):
        load([put(tmp_path, mixed)])


def test_a_file_that_ends_within_a_table_is_told(tmp_path: Path) -> None:
    capture = load([put(tmp_path, NEW[: NEW.rindex("    DRAM")])])
    assert any("cut off" in gap.what for gap in capture.missing)
    assert capture.counters["gpu__time_duration.sum"].tolist() == [12750, 24250]


def test_a_line_that_is_none_of_ncu_is_told(tmp_path: Path) -> None:
    capture = load([put(tmp_path, NEW.replace("    WRN   Est.", "    WRN;   Est."))])
    assert len(capture.rules) == 2
    assert any("neither of a table nor of a rule" in gap.why for gap in capture.missing)


def test_an_absurd_number_of_launches_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sums up more than"):
        load([put(tmp_path, SUMMARY.replace("Invocations 4", "Invocations 4000000000"))])


def test_prose_that_mentions_sections_is_no_console_output() -> None:
    assert not ncu_console.holds(b"Section: one\n  a, Context 1, Stream 7\n")
    assert ncu_console.holds(NEW.encode())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Context 1, Stream 7, Device 0, CC 8.6\n", "Context 1, Stream 7, Device 0; CC 8.6\n", "beginning of a launch"),
        ("    Section: Occupancy\n", SPEED.partition("\n")[2], "a second table"),
    ],
)
def test_a_damaged_line_moves_no_number_to_another_launch(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load([put(tmp_path, NEW.replace(old, new, 1))])


SECTION = """\
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    Duration                         us {time:>12}
    DRAM Throughput                   % {percent:>12}
    ----------------------- ----------- ------------

    OPT   Look at the caches first.

    Section: Launch Statistics
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    Block Size                                   128
    Waves Per SM                                0.50
    ----------------------- ----------- ------------

"""
FULL = "(64, 2, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 8.9"
NAMES = ["void rotate<float, 4>(const float *, float *, int)", "fold(double *)"]


def pasted(*heads: str) -> str:
    sections = (SECTION.format(time=time, percent=percent) for time, percent in (("20.50", "31.25"), ("8.25", "72.00")))
    return "[77] tool@127.0.0.1\n" + "".join(head + section for head, section in zip(heads, sections, strict=True))


@pytest.mark.parametrize(
    ("heads", "names", "grid"),
    [
        ([f"  {name} {FULL}\n" for name in NAMES], NAMES, "64x2x1"),
        ([f"  {name}\n  {FULL}\n" for name in NAMES], NAMES, "64x2x1"),
        ([f"  {name}\n{FULL}\n" for name in NAMES], NAMES, "64x2x1"),
        ([f"  {name} {FULL[:31]}\n{FULL[31:]}\n" for name in NAMES], NAMES, "64x2x1"),  # hard wrap of a terminal
        ([f"  {NAMES[0][:28]}\n  {NAMES[0][28:]} {FULL}\n", f"  {NAMES[1]} {FULL}\n"], NAMES, "64x2x1"),
        ([f"  {NAMES[0].replace(' *, ', ' *,@ ')} {FULL}\n".replace("@", "\n  "), f"  {NAMES[1]} {FULL}\n"], NAMES,
         "64x2x1"),
        ([f"  {name} {FULL.partition(', Context')[0]}\n" for name in NAMES], NAMES, "64x2x1"),
        ([f"  {name} {FULL.replace('Context 1, Stream 7, ', '')}\n" for name in NAMES], NAMES, "64x2x1"),
        ([f"  {name}, Context 1, Stream 7\n" for name in NAMES], NAMES, ""),
        ([f"  {name}\n" for name in NAMES], NAMES, ""),
        (["", ""], ["unnamed kernel 1", "unnamed kernel 2"], ""),
    ],
)  # fmt: skip
def test_a_launch_is_found_by_any_form_of_its_line(
    tmp_path: Path, heads: list[str], names: list[str], grid: str
) -> None:
    capture = load([put(tmp_path, pasted(*heads))])
    counters = capture.counters
    assert list(counters["name"]) == names
    assert list(counters["grid"]) == [grid] * 2
    assert list(counters["gpu__time_duration.sum"]) == [20500, 8250]
    assert list(counters["launch__waves_per_multiprocessor"]) == [0.5, 0.5]
    lost = [gap.what for gap in capture.missing if gap.what.startswith("name, grid and block")]
    assert lost == (["name, grid and block of 2 of 2 launches of ncu.txt"] if "unnamed" in names[0] else [])


def test_lost_lines_of_launches_take_their_names_from_the_progress(tmp_path: Path) -> None:
    progress = "".join(f'==PROF== Profiling "{name}" - {at}: 0%....100% - 8 passes\n' for at, name in enumerate("ab"))
    assert list(load([put(tmp_path, progress + pasted("", ""))]).counters["name"]) == ["a", "b"]


def test_launches_that_only_the_progress_names_are_told(tmp_path: Path) -> None:
    progress = "".join(f'==PROF== Profiling "{name}" - {at}: 0%....100% - 8 passes\n' for at, name in enumerate("abc"))
    capture = load([put(tmp_path, progress + pasted(*(f"  {name} {FULL}\n" for name in NAMES)))])
    assert "1 of 3 launches of ncu.txt" in [gap.what for gap in capture.missing]


@pytest.mark.parametrize("lost", ["rulers", "indent", "quoted", "blanks", "all"])
def test_the_tables_are_found_without_rulers_and_without_indentation(tmp_path: Path, lost: str) -> None:
    lines = pasted(*(f"  {name} {FULL}\n" for name in NAMES)).split("\n")
    if lost in ("rulers", "all"):
        lines = [line for line in lines if "----" not in line]
    if lost in ("indent", "all"):
        lines = [line.lstrip() for line in lines]
    if lost in ("blanks", "all"):
        lines = [line for line in lines if line.strip()]
    if lost == "quoted":
        lines = [f"> {line}" for line in lines]
    capture = load([put(tmp_path, "\n".join([*lines, ""]))])
    assert list(capture.counters["name"]) == NAMES
    assert list(capture.counters["gpu__time_duration.sum"]) == [20500, 8250]
    assert list(capture.counters["launch__block_size"]) == [128, 128]
    assert list(capture.rules["text"]) == ["Look at the caches first."] * 2
