"""ncu raw pages of every year, NVTX cells, crashes, damage and messages."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.capture.load import load
from analysis.capture.ncu_csv import push_pop_path
from analysis.formats.errors import InputError

NVTX = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
START_STOP = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
HEAD_2022 = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream"]
HEAD = [
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
]
HEAD_NVTX = [*HEAD[:4], NVTX, START_STOP, *HEAD[4:]]
IDENTITY = ["{id}", "99", "app", "127.0.0.1", "void k<4>(float *)", "1", "7", "(16, 16, 1)", "(4, 1, 2)", "0", "9.0"]
METRICS = ["dram__bytes_read.sum", "gpu__time_duration.sum", "launch__func_cache_config", "smsp__inst_issued.sum"]
UNITS = ["Mbyte", "us", "", "inst"]


def line(cells: list[str]) -> str:
    """A row as ncu writes it: every field in quotes, inner ones doubled."""
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells) + "\n"


def page(rows: list[list[str]], head: list[str] = HEAD, units: list[str] = UNITS, metrics: list[str] = METRICS) -> str:
    """A raw page from data rows."""
    return line(head + metrics) + line([""] * len(head) + units) + "".join(line(row) for row in rows)


def kernel(ncu_id: int, *values: str) -> list[str]:
    """Identity cells and values of one launch."""
    return [cell.format(id=ncu_id) for cell in IDENTITY] + list(values)


GOOD = kernel(0, "0.200960", "2.880000", "CachePreferNone", "26,112")


def put(folder: Path, text: str, name: str = "x") -> Path:
    (folder / name).write_bytes(text.encode())
    return folder


def test_identity_and_metrics_in_base_units(tmp_path: Path) -> None:
    capture = load([put(tmp_path, page([GOOD]))])
    row = capture.counters.iloc[0]
    assert (row["ncu_id"], row["pid"], row["name"], row["file"]) == (0, 99, "void k<4>(float *)", "x")
    assert (row["grid"], row["block"], row["cc"], row["path"]) == ("4x1x2", "16x16x1", "9.0", "")
    assert row["dram__bytes_read.sum"] == 200_960.0
    assert row["gpu__time_duration.sum"] == 2880.0
    assert row["smsp__inst_issued.sum"] == 26_112.0
    assert "launch__func_cache_config" not in capture.counters
    assert capture.counter_units == {
        "dram__bytes_read.sum": "byte",
        "gpu__time_duration.sum": "ns",
        "smsp__inst_issued.sum": "inst",
    }


def test_units_of_2022_and_the_older_identity_columns(tmp_path: Path) -> None:
    row = [
        "3",
        "99",
        "app",
        "127.0.0.1",
        "k",
        "2022-Jan-01 00:00:00",
        "1",
        "7",
        "200960",
        "0.002880",
        "CachePreferNone",
        "5",
    ]
    text = page([row], head=HEAD_2022, units=["byte", "msecond", "", "inst"])
    counters = load([put(tmp_path, text)]).counters
    assert counters[["ncu_id", "grid", "block", "cc"]].iloc[0].tolist() == [3, "", "", ""]
    assert counters["gpu__time_duration.sum"].tolist() == [2880.0]


@pytest.mark.parametrize("wrap", ["crlf", "bom", "utf16", "live"])
def test_junk_progress_lines_and_encodings(tmp_path: Path, wrap: str) -> None:
    text = page([GOOD, kernel(1, *GOOD[-4:])])
    live = (
        "==PROF== Connected to process 99 (/usr/bin/app)\n  theoretical: 32.26 TFLOP/s, 672.0 GB/s\n\n"
        "==PROF== Disconnected from process 99\n" + text + "done, 3 s\n==PROF== Disconnected from process 99\n"
    )
    raw = {
        "crlf": text.replace("\n", "\r\n").encode(),
        "bom": ("\ufeff==PROF== Connected to process 1 (C:\\app.exe)\n" + text).replace("\n", "\r\n").encode(),
        "utf16": text.replace("\n", "\r\n").encode("utf-16"),
        "live": live.encode(),
    }[wrap]
    (tmp_path / "x").write_bytes(raw)
    capture = load([tmp_path])
    assert capture.counters["ncu_id"].tolist() == [0, 1]
    assert capture.counters["dram__bytes_read.sum"].tolist() == [200_960.0] * 2


@pytest.mark.parametrize("cell", ["", "n/a", "nan", "-nan", "no data", "inf"])
def test_a_missing_value_stays_missing(tmp_path: Path, cell: str) -> None:
    capture = load([put(tmp_path, page([GOOD, kernel(1, cell, "2.880000", "", "7")]))])
    values = capture.counters["dram__bytes_read.sum"].tolist()
    assert values[0] == 200_960.0
    assert math.isnan(values[1])


def test_instances_behind_a_value_are_left_out(tmp_path: Path) -> None:
    capture = load([put(tmp_path, page([kernel(0, "1.500000", "2.0", "", "5916528 (IMAD: 1125008; DFMA: 884736)")]))])
    assert capture.counters["smsp__inst_issued.sum"].tolist() == [5_916_528.0]


def test_locale_of_a_german_shell(tmp_path: Path) -> None:
    capture = load([put(tmp_path, page([kernel(0, "0,200960", "2,880000", "", "27.595.520")]))])
    assert capture.counters.iloc[0][["dram__bytes_read.sum", "smsp__inst_issued.sum"]].tolist() == [
        200_960.0,
        27_595_520.0,
    ]


def test_an_ambiguous_locale_is_refused(tmp_path: Path) -> None:
    text = page([kernel(0, "12", "117.344", "", "5")], units=["byte", "ns", "", "inst"])
    with pytest.raises(InputError, match=r"117\.344 .* 117344"):
        load([put(tmp_path, text)])


def test_an_unknown_unit_names_its_column(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x, column dram__bytes_read\.sum.*furlong"):
        load([put(tmp_path, page([GOOD], units=["furlong", "us", "", "inst"]))])


def entry(name: str, message: str = "", domain: str = "<default domain>", payload: str = "none:none") -> str:
    """A push/pop entry as Python nvtx (with a message) or torch.cuda.nvtx (without) leaves it."""
    tail = f"RGB:0xff:REGISTERED:{message}" if message else "none:none:none:none"
    return f'"{domain}:{name}:{payload}:{tail}"'


@pytest.mark.parametrize(
    ("cell", "path"),
    [
        ("", ""),
        ("1711", ""),
        (f"1711  {entry('run', 'run')}  {entry('h.0', 'h.0')} ", "run/h.0"),
        (f"1711  {entry('run')}  {entry('h.0')}", "run/h.0"),
        (f"1711  {entry('a:b:c', 'a:b:c')}", "a:b:c"),
        (f"1711  {entry('none:none', 'none:none')}", "none:none"),
        (
            f"1711  {entry('a:none:none:RGB:0xff:REGISTERED:a', 'a:none:none:RGB:0xff:REGISTERED:a')}",
            "a:none:none:RGB:0xff:REGISTERED:a",
        ),
        (f"1711  {entry(chr(123) + chr(34) + 'op' + chr(34) + ': 1, 2}')}  {entry('x')}", '{"op": 1, 2}/x'),
        (f"1711  {entry('mm, [1, 2]', 'mm, [1, 2]')}", "mm, [1, 2]"),
        (f"1711  {entry('inner', 'inner', domain='torch')}", "torch:inner"),
        (f"1711  {entry('x', 'other message')}", "x"),
        (f"1711  {entry('p', payload='UNSIGNED_INT64:7')}", "p"),
        (f"1711  {entry('mine')}  1712  {entry('other thread')}", "mine"),
    ],
)
def test_push_pop_cells(cell: str, path: str) -> None:
    assert push_pop_path(cell) == path


@given(
    st.lists(
        st.text("abc.:,'\"[]{}_/ 0", min_size=1, max_size=12).filter(lambda n: n.strip() == n), min_size=1, max_size=5
    )
)
def test_repeated_messages_make_every_name_readable(names: list[str]) -> None:
    if any('" ' in name or name.endswith('"') for name in names):
        return  # a quote before a blank looks like the end of an entry; only then the cell itself is ambiguous
    cell = "7  " + "  ".join(entry(name, name) for name in names)
    assert push_pop_path(cell) == "/".join(names)


def test_the_nvtx_columns_may_stand_anywhere(tmp_path: Path) -> None:
    cell = f"99  {entry('fwd', 'fwd')}  {entry('h.0', 'h.0')} "
    first = [*GOOD[:4], cell, "", *GOOD[4:]]
    last = [*GOOD, cell, ""]
    text = page([first], head=HEAD_NVTX)
    assert load([put(tmp_path, text)]).counters["path"].tolist() == ["fwd/h.0"]
    text = page([last], metrics=[*METRICS, NVTX, START_STOP], units=[*UNITS, "", ""])
    assert load([put(tmp_path, text)]).counters["path"].tolist() == ["fwd/h.0"]


def test_the_display_name_is_the_device(tmp_path: Path) -> None:
    text = page([[*GOOD, "NVIDIA H200"]], metrics=[*METRICS, "device__attribute_display_name"], units=[*UNITS, ""])
    assert load([put(tmp_path, text)]).counters["device"].tolist() == ["NVIDIA H200"]


def test_a_cut_last_row_is_dropped_and_named(tmp_path: Path) -> None:
    text = page([GOOD, kernel(1, *GOOD[-4:])])
    capture = load([put(tmp_path, text[:-30])])
    assert capture.counters["ncu_id"].tolist() == [0]
    assert any("cut off after 1 complete rows" in gap.what for gap in capture.missing)


def test_a_cut_first_row_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cut off after 0 complete rows"):
        load([put(tmp_path, page([GOOD])[:-30])])


def test_damage_inside_is_refused(tmp_path: Path) -> None:
    text = page([GOOD, GOOD[:9], kernel(2, *GOOD[-4:])])
    with pytest.raises(InputError, match=r"x: line 4 has 9 fields where the header has 15"):
        load([put(tmp_path, text)])


def test_an_id_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ID 0 stands in lines 3 and 4"):
        load([put(tmp_path, page([GOOD, GOOD]))])


def test_a_page_without_units_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="units"):
        load([put(tmp_path, line(HEAD + METRICS) + line(GOOD))])


def test_a_page_without_kernel_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column 'Kernel Name'"):
        load([put(tmp_path, page([GOOD]).replace("Kernel Name", "Kernel Gone"))])


def test_crashed_launches_become_a_gap(tmp_path: Path) -> None:
    text = "==ERROR== LaunchFailed\n" + page([GOOD, kernel(1, "nan", "nan", "", "nan")])
    capture = load([put(tmp_path, text)])
    assert capture.counters["ncu_id"].tolist() == [0]
    assert any("1 of 2 kernels" in gap.what and "LaunchFailed" in gap.why for gap in capture.missing)


def test_only_crashed_launches_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 of 1 kernels"):
        load([put(tmp_path, page([kernel(0, "nan", "nan", "", "nan")]))])


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access …\n",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        (
            "==PROF== Connected to process 1 (/usr/bin/nvidia-smi)\n==PROF== Disconnected from process 1\n",
            "profiled no kernel",
        ),
        ("==ERROR== Option '--section .*X.*' did not match any section.\n", "did not match any section"),
        ("==PROF== Connected\n==ERROR== The application returned an error code (9).\n", "error code (9)"),
        ("==ERROR== The driver resource was unavailable. Ensure …\n", "other profiler"),
    ],
)
def test_a_file_of_messages_says_why_there_are_no_counters(tmp_path: Path, log: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        load([put(tmp_path, log)])
    assert says in str(caught.value)
    assert str(caught.value).startswith("x: ")
    put(tmp_path, page([GOOD]), name="y")
    capture = load([tmp_path])
    assert len(capture.counters) == 1
    assert any(says in gap.why + gap.do for gap in capture.missing)


def test_a_summary_is_refused_with_the_way_out(tmp_path: Path) -> None:
    tail = ["Invocations", "Section Name", "Metric Name", "Metric Unit", "Minimum", "Maximum", "Average"]
    put(tmp_path, line([*HEAD[1:5], *HEAD[7:], *tail]) + line(["a"] * (8 + len(tail))))
    with pytest.raises(InputError, match="--page raw"):
        load([tmp_path])
    with pytest.raises(InputError, match="--page raw"):
        load([tmp_path / "x"])
    put(tmp_path, page([GOOD]), name="y")
    assert len(load([tmp_path]).counters) == 1


def test_several_files_keep_their_ids_apart(tmp_path: Path) -> None:
    put(tmp_path, page([GOOD]), name="a")
    put(tmp_path, page([kernel(0, "1.000000", "2.0", "", "5")], units=["Kbyte", "ms", "", "inst"]), name="b")
    counters = load([tmp_path]).counters
    assert counters["file"].tolist() == ["a", "b"]
    assert counters["dram__bytes_read.sum"].tolist() == [200_960.0, 1000.0]
    assert counters["gpu__time_duration.sum"].tolist() == [2880.0, 2e6]
