"""One fixture for every report and every year of nsys: headers, spellings, consoles, locales, framing, interleaving."""

from pathlib import Path

import pandas as pd
import pytest

from analysis.capture.load import load
from analysis.capture.model import Capture, dtypes
from analysis.capture.nsys_csv import operation, split_range
from analysis.capture.nsys_numbers import read_file
from analysis.capture.nsys_reports import REPORTS, parse_header
from analysis.capture.summaries import SUMMARIES
from analysis.capture.text import AmbiguousNumbersError, locale_style
from analysis.formats.errors import InputError, LedgerError, UsageError
from analysis.report import build
from analysis.tables.notes import api_notes
from tests.declared import analyse

STATS = "Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns)"
NEW = f"Time (%),Total Time (ns),{{count}},{STATS},{{last}}\n"
Y2021 = "Time(%),Total Time (ns),{count},Average (ns),Minimum (ns),Maximum (ns),StdDev (ns),{last}\n"
Y2020 = "Time(%),Total Time (ns),{count},Average,Minimum,Maximum,{last}\n"
KERNELS = NEW.format(count="Instances", last="Name")
ROWS = {
    NEW: "75.0,900,3,300.0,300.0,200,400,100.0,{a}\n25.0,300,1,300.0,300.0,300,300,0.0,{b}\n",
    Y2021: "75.0,900,3,300.0,200,400,100.0,{a}\n25.0,300,1,300.0,300,300,0.0,{b}\n",
    Y2020: "75.0,900,3,300.0,200,400,{a}\n25.0,300,1,300.0,300,300,{b}\n",
}


def put(folder: Path, text: str | bytes, name: str = "f.dat") -> Path:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / name


def read(folder: Path, text: str | bytes, locale: str = "") -> Capture:
    return load([put(folder, text)], style=locale_style(locale) if locale else None)


def with_kernels(text: str) -> str:
    """A file that can be analysed alone, since a summary of calls cannot."""
    return f"{KERNELS}{ROWS[NEW].format(a='k', b='l')}\n{text}"


# ------------------------------------------------------------------------------------------------ headers by year


@pytest.mark.parametrize("style", [NEW, Y2021, Y2020], ids=["2022 and later", "2021", "2020"])
@pytest.mark.parametrize(
    ("report", "count", "last", "a", "b"),
    [
        ("cuda_gpu_kern_sum", "Instances", "Name", '"void k<1, 2>(int)"', "l"),
        ("cuda_api_sum", "Num Calls", "Name", "cudaLaunchKernel_v7000", "cuLaunchKernelEx"),
        ("osrt_sum", "Num Calls", "Name", "pthread_cond_wait", "poll"),
        ("cuda_gpu_mem_time_sum", "Count", "Operation", "[CUDA memcpy HtoD]", "[CUDA memset]"),
        ("cuda_gpu_mem_time_sum", "Operations", "Operation", "[CUDA memcpy Host-to-Device]", "[CUDA memset]"),
        ("nvtx_sum", "Instances", "Style,Range", "PushPop,:fwd", "StartEnd,other:bwd"),
        ("nvtx_range_sum", "Instances", "Range", ":fwd", "other:bwd"),
    ],
)
def test_summaries_of_every_year(
    tmp_path: Path, style: str, report: str, count: str, last: str, a: str, b: str
) -> None:
    text = style.format(count=count, last=last) + ROWS[style].format(a=a, b=b)
    table = read_file(text.encode(), "f")[0]
    assert table.report == report
    if report == "cuda_gpu_kern_sum":
        sums = read(tmp_path, text).nsys_kernel_sums
        assert sums[["kernel", "instances", "total_ns"]].to_numpy().tolist() == [
            ["void k<1, 2>(int)", 3, 900],
            ["l", 1, 300],
        ]
        return
    summary = read(tmp_path, with_kernels(text)).summaries[report]
    assert dict(summary.dtypes.astype(str)) == dict(dtypes(SUMMARIES[report]))
    assert summary[["count", "total_ns", "mean_ns", "min_ns", "max_ns"]].iloc[0].tolist() == [3, 900, 300.0, 200, 400]
    assert summary["median_ns"].isna().all() == (style != NEW)
    assert summary["stddev_ns"].isna().all() == (style == Y2020)
    names = {
        "cuda_api_sum": ["cudaLaunchKernel", "cuLaunchKernelEx"],
        "cuda_gpu_mem_time_sum": ["[CUDA memcpy Host-to-Device]", "[CUDA memset]"],
        "nvtx_sum": ["fwd", "other:bwd"],
        "nvtx_range_sum": ["fwd", "other:bwd"],
    }
    assert summary["name"].tolist() == names.get(report, [a, b])


def test_the_2022_kernel_sum_has_grids(tmp_path: Path) -> None:
    text = NEW.format(count="Instances", last="GridXYZ,BlockXYZ,Name") + ROWS[NEW].format(
        a="  64    2    1, 128    1    1,k", b="4096    1    1, 256    1    1,k"
    )
    sums = read(tmp_path, text).nsys_kernel_sums
    assert sums["grid"].tolist() == ["64x2x1", "4096x1x1"]
    assert sums["block"].tolist() == ["128x1x1", "256x1x1"]


@pytest.mark.parametrize(("unit", "size"), [("MB", "4.194"), ("B", "4194304"), ("KiB", "4096.000"), ("", "4096.000")])
def test_sizes_in_every_unit_and_without_one(tmp_path: Path, unit: str, size: str) -> None:
    of = f" ({unit})" if unit else ""
    text = f"Total{of},Count,Avg{of},Med{of},Min{of},Max{of},StdDev{of},Operation\n{size},1,{size},{size},{size},{size},0{'.000' * (unit != 'B')},[CUDA memcpy DtoH]\n"
    capture = read(tmp_path, with_kernels(text))
    summary = capture.summaries["cuda_gpu_mem_size_sum"]
    known = {"MB": 4_194_000, "B": 4_194_304, "KiB": 4_194_304}
    if unit:
        assert summary[["total_bytes", "mean_bytes", "max_bytes"]].iloc[0].tolist() == [known[unit]] * 3
    else:
        assert summary["total_bytes"].isna().all()
        assert any("without a unit" in gap.why for gap in capture.missing)
    assert summary["name"].tolist() == ["[CUDA memcpy Device-to-Host]"]


def test_kern_exec_sum(tmp_path: Path) -> None:
    phases = ",".join(f"{p}{s} (ns)" for p in "TAQK" for s in ("Avg", "Med", "Min", "Max", "StdDev"))
    numbers = ",".join("500.0,500.0,400,600,1.5" for _ in "TAQK")
    text = f"PID,TID,DevId,Count,QCount,{phases},API Name,Kernel Name\n11,22,0,2,1,{numbers},cudaLaunchKernel,k\n"
    row = read(tmp_path, with_kernels(text)).summaries["cuda_kern_exec_sum"].iloc[0]
    assert row[["name", "api_name", "pid", "device", "count", "queued"]].tolist() == [
        "k",
        "cudaLaunchKernel",
        11,
        "0",
        2,
        1,
    ]
    assert row[["whole_mean_ns", "api_min_ns", "queue_max_ns", "kernel_stddev_ns"]].tolist() == [500.0, 400, 600, 1.5]


PROJ_TRACE = (
    "Name,Projected Start (ns),Projected Duration (ns),Orig Start (ns),Orig Duration (ns),Style,PID,TID,NumGPUOps,Lvl,"
    "NumChild,RangeId,ParentId,RangeStack\n"
    ":fwd,1000,500,900,300,PushPop,11,22,3,0,1,3,{none},:3\n"
    '":a, b",1100,100,950,30,PushPop,11,22,1,1,0,4,3,:3:4\n'
)


@pytest.mark.parametrize("none", ["", "None"], ids=["2023 and later", "2022"])
def test_projected_ranges(tmp_path: Path, none: str) -> None:
    trace = read(tmp_path, with_kernels(PROJ_TRACE.format(none=none))).summaries["nvtx_gpu_proj_trace"]
    assert trace["name"].tolist() == ["fwd", "a, b"]
    assert trace[["start_ns", "duration_ns", "gpu_operations", "level"]].iloc[0].tolist() == [1000, 500, 3, 0]
    assert trace["parent_id"].isna().tolist() == [True, False]


def test_projected_sums(tmp_path: Path) -> None:
    text = (
        "Range,Style,Total Proj Time (ns),Total Range Time (ns),Range Instances,Proj Avg (ns),Proj Med (ns),"
        "Proj Min (ns),Proj Max (ns),Proj StdDev (ns),Total GPU Ops,Avg GPU Ops,Avg Range Lvl,Avg Num Child\n"
        ":fwd,PushPop,600,900,2,300.0,300.0,200,400,141.4,10,5.0,0.0,9.0\n"
    )
    row = read(tmp_path, with_kernels(text)).summaries["nvtx_gpu_proj_sum"].iloc[0]
    assert row[["name", "projected_ns", "range_ns", "count", "gpu_operations"]].tolist() == ["fwd", 600, 900, 2, 10]


def test_api_trace_spellings(tmp_path: Path) -> None:
    gpu = (
        "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
        "Throughput (MBps),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n"
        "1000,500,7,64,2,1,128,1,1,32,0.000,0.000,None,None,None,None,A100 (0),1,7,k\n"
    )
    api = (
        "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n"
        '400,90,cudaLaunchKernel_v7000,0,7,11,22,20,"python3, main"\n'
    )
    ops = read(tmp_path, f"{gpu}\n{api}").gpu_ops
    assert ops[["api_start_ns", "api_end_ns", "pid", "tid", "registers"]].iloc[0].tolist() == [400, 490, 11, 22, 32]
    assert ops["bytes"].isna().all()


def test_every_declared_header_is_found_again() -> None:
    """The union of all columns, with units where they have one, is told as the report that it declares."""

    def told(line: str) -> str:
        header = parse_header(line)
        assert header is not None
        return header.report.name

    for report in REPORTS:
        line = ",".join(f"{name} (ns)" if "Time" in name and name != "Time" else name for name in report.columns)
        assert {told(line.replace(",", delimiter)) for delimiter in ",;\t"} == {report.name}
    assert told("\ufeff" + KERNELS) == "cuda_gpu_kern_sum"
    assert told('"Time (%)","Total Time (ns)","Num Calls","Avg (ns)","Min (ns)","Max (ns)","Name"') == "cuda_api_sum"
    for line in ("", ",,,,,", "a,b,c,d,e", "Start (ns),Duration (ns),Name", "x" * 3000 + ",,,,,"):
        assert parse_header(line) is None


def test_the_report_says_where_the_calls_spend_their_time(tmp_path: Path) -> None:
    text = NEW.format(count="Num Calls", last="Name") + ROWS[NEW].format(a="cudaLaunchKernel", b="cudaMalloc")
    (note,) = api_notes(read(tmp_path, with_kernels(text)).summaries)
    assert "cudaLaunchKernel 0.9 µs (3 calls, median 0.3 µs); cudaMalloc" in note
    assert api_notes({}) == []


# ---------------------------------------------------------------------------------------- names of operations, kernels


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("HtoD", "Host-to-Device"),
        ("DtoH", "Device-to-Host"),
        ("DtoD", "Device-to-Device"),
        ("PtoP", "Peer-to-Peer"),
        ("HtoA", "Host-to-Array"),
    ],
)
def test_copies_have_one_name(old: str, new: str) -> None:
    assert operation(f"[CUDA memcpy {old}]") == f"[CUDA memcpy {new}]" == operation(f"[CUDA memcpy {new}]")
    assert operation("[CUDA memset]") == "[CUDA memset]"


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("attn/void gemm<float, (int)4>(float *, int)", "void gemm<float, (int)4>(float *, int)"),
        ("a/b/void k(int)", "void k(int)"),
        ("f(x, y)/k", "k"),
        ("attn/gemm", "gemm"),
        ("attn/_Z4gemmIfLi4EEvPT_i", "_Z4gemmIfLi4EEvPT_i"),
        ("void gemm<float>(float *)", "void gemm<float>(float *)"),
        ("void k<lambda at /home/x.cu:12>(int)", "void k<lambda at /home/x.cu:12>(int)"),
        ("bool ns::operator/(T1, T2)", "bool ns::operator/(T1, T2)"),
        ("/k", "/k"),
        ("", ""),
    ],
)
def test_ranges_before_kernel_names_are_taken_off(printed: str, name: str) -> None:
    assert split_range(printed)[1] == name


GPU = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
)
EXEC = (
    "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),Total Dur (ns),"
    "PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name\n"
)


@pytest.mark.parametrize("name", ["gemm", "_Z4gemmIfEvPT_", "attn/void gemm<float>(float *)", "attn/gemm"])
def test_base_mangled_and_range_names_still_find_their_launch(tmp_path: Path, name: str) -> None:
    """`:base`, `:mangled` and `:nvtx-name` change the name in one report; the launch is found all the same."""
    gpu = f"{GPU}1000,500,7,64,2,1,128,1,1,32,0.000,0.000,,,,,H200 (0),1,,7,{name}\n"
    launch = f"{EXEC}400,90,490,510,1000,500,1100,11,22,0,cudaLaunchKernel,  64    2    1, 128    1    1,void gemm<float>(float *)\n"
    put(tmp_path, gpu, "a")
    put(tmp_path, launch, "b")
    ops = load([tmp_path]).gpu_ops
    assert ops["tid"].tolist() == [22]


def test_a_trace_that_lacks_kernels_of_the_sum_is_told(tmp_path: Path) -> None:
    row = "{},500,7,64,2,1,128,1,1,32,0.000,0.000,,,,,H200 (0),1,,7,k\n"
    sums = KERNELS + "100.0,1000,2,500.0,500.0,500,500,0.0,k\n"
    whole = read(tmp_path, GPU + row.format(1000) + row.format(2000) + "\n" + sums)
    assert not any("counts" in gap.what for gap in whole.missing)
    cut = read(tmp_path, GPU + row.format(1000) + "\n" + sums)
    assert any("lists 1 with 500 ns" in gap.what and "counts 2 with 1,000 ns" in gap.what for gap in cut.missing)


def test_rows_of_two_captures_in_one_trace_of_ranges_are_refused(tmp_path: Path) -> None:
    head = (
        "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild,RangeId,ParentId,"
        "RangeStack,NameTree\n"
    )
    with pytest.raises(InputError, match="occurs twice"):
        read(tmp_path, head + "100,900,800,0,800,:a,11,22,0,0,3,,:3,:a\n100,900,800,0,800,:b,12,22,0,0,3,,:3,:b\n")
    capture = read(tmp_path, head + "100,900,800,0,800,:a,11,22,1,0,3,2,:2:3,--:a\n")
    assert any("the ranges around 1 ranges" in gap.what for gap in capture.missing)


def test_small_copies_in_megabytes_are_told(tmp_path: Path) -> None:
    row = "1000,500,7,,,,,,,,,,{},,Pageable,Device,H200 (0),1,,7,[CUDA memcpy HtoD]\n"
    small = read(tmp_path, GPU + row.format("0.001"))
    assert any("to the byte" in gap.what and "mem=B" in gap.do for gap in small.missing)
    assert small.gpu_ops["name"].tolist() == ["[CUDA memcpy Host-to-Device]"]
    assert not any("to the byte" in gap.what for gap in read(tmp_path, GPU + row.format("4.194")).missing)
    exact = read(tmp_path, GPU.replace("Bytes (MB)", "Bytes (B)") + row.format("1000"))
    assert not any("to the byte" in gap.what for gap in exact.missing)


# ------------------------------------------------------------------------------------------------------ the console


def console(rows: list[list[str]], header: list[str], numbers: int) -> str:
    """A table as `nsys stats --format column` prints it."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join(cell.center(width) for cell, width in zip(header, widths, strict=True)),
        "  ".join("-" * w for w in widths),
    ]
    for row in rows:
        lines.append(
            "  ".join(
                c.rjust(w) if i < numbers else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
            )
        )
    return "".join(f" {line}\n" for line in lines)


HEAD_2024 = [
    "Time (%)",
    "Total Time (ns)",
    "Instances",
    "Avg (ns)",
    "Med (ns)",
    "Min (ns)",
    "Max (ns)",
    "StdDev (ns)",
    "Name",
]
HEAD_2021 = ["Time(%)", "Total Time (ns)", "Num Calls", "Average", "Minimum", "Maximum", "StdDev", "Name"]
HEAD_2020 = ["Time(%)", "Total Time (ns)", "Instances", "Average", "Minimum", "Maximum", "Name"]
LONG = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_c…"


@pytest.mark.parametrize(
    ("big", "mean", "ten"),
    [
        ("1,346,714,824", "673,357,412.0", "10.5"),
        ("1346714824", "673357412.0", "10.5"),
        ("13,4671,4824", "6,7335,7412.0", "10.5"),  # groups of four, nsys 2024.6
        ("1.346.714.824", "673.357.412,0", "10,5"),
        ("1\u202f346\u202f714\u202f824", "673\u202f357\u202f412,0", "10,5"),
    ],
    ids=["en", "C", "four", "de", "fr"],
)
def test_console_tables_in_every_locale(tmp_path: Path, big: str, mean: str, ten: str) -> None:
    point = ten[2]
    low = big.replace("824", "823") if big.endswith("824") else big.replace("4824", "4823")
    del low
    rows = [
        [f"89{point}5", big, "2", mean, mean, mean.split(point)[0], mean.split(point)[0], f"0{point}0", LONG],
        [
            ten,
            "157998386",
            "1",
            f"157998386{point}0",
            f"157998386{point}0",
            "157998386",
            "157998386",
            f"0{point}0",
            "k(int)",
        ],
    ]
    capture = read(
        tmp_path, " ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n" + console(rows, HEAD_2024, 8) + "\n"
    )
    assert capture.nsys_kernel_sums["total_ns"].tolist() == [1_346_714_824, 157_998_386]
    assert capture.nsys_kernel_sums["kernel"].tolist() == [LONG, "k(int)"]
    assert any("1 names of f.dat are cut" in gap.what for gap in capture.missing)


def test_consoles_of_2020_and_2021(tmp_path: Path) -> None:
    text = (
        "Exporting [/opt/x/gpukernsum.py] to console... \n\nCUDA Kernel Statistics:\n\n"
        + console([["100.0", "900", "3", "300.0", "200", "400", "saxpy(int, float)"]], HEAD_2020, 6)
        + "\n\nExporting [/opt/x/cudaapisum.py] to console... \n\nCUDA API Statistics:\n\n"
        + console([["100.0", "900", "3", "300.0", "200", "400", "1.0", "cudaMalloc"]], HEAD_2021, 7)
        + "\n\nExporting [/opt/x/gpumemsizesum.py] to console... \n\n CUDA Memory Operation Statistics (by size in KiB):\n\n"
        + console([["4096.000", "1", "4096.000", "4096.000", "4096.000", "[CUDA memcpy HtoD]"]], ["Total", "Operations", "Average", "Minimum", "Maximum", "Operation"], 5)
        + "\n\nExporting [/opt/x/osrtsum.py] to console... SKIPPED: x.sqlite does not contain OS data.\n"
    )  # fmt: skip
    capture = read(tmp_path, text)
    assert capture.nsys_kernel_sums["kernel"].tolist() == ["saxpy(int, float)"]
    assert capture.summaries["cuda_api_sum"]["total_ns"].tolist() == [900]
    assert capture.summaries["cuda_gpu_mem_size_sum"]["total_bytes"].tolist() == [4_194_304]


def test_boxed_tables(tmp_path: Path) -> None:
    """`nsys stats --format table`, as nsys 2022.4 prints it."""
    ruler = (
        "+----------+-----------------+-----------+----------+----------+----------+----------+-------------+------+\n"
    )
    text = (
        ruler
        + "| Time (%) | Total Time (ns) | Instances | Avg (ns) | Med (ns) | Min (ns) | Max (ns) | StdDev (ns) | Name |\n"
        + ruler
        + "|     75.0 |             900 |         3 |    300.0 |    300.0 |      200 |      400 |       100.0 | a|b  |\n"
        + "|     25.0 |             300 |         1 |    300.0 |    300.0 |      300 |      300 |         0.0 | k…   |\n"
        + ruler
    )
    capture = read(tmp_path, " ** CUDA GPU Kernel Summary (gpukernsum):\n\n" + text)
    assert capture.nsys_kernel_sums["kernel"].tolist() == ["a|b", "k…"]
    with pytest.raises(InputError, match="interleaved"):
        read(tmp_path, text.replace("|     25.0 |", "|     25.0 x"))


def test_a_console_row_between_the_columns_is_refused(tmp_path: Path) -> None:
    text = console([["100.0", "900", "3", "300.0", "200", "400", "k"]] * 2, HEAD_2020, 6)
    lines = text.split("\n")
    lines[3] = " 100.0 cudaMalloc of another rank, written into the table of this one"
    with pytest.raises(InputError, match="interleaved"):
        read(tmp_path, "\n".join(lines))


# ----------------------------------------------------------------------------------------- several reports, several ranks


def test_a_file_with_all_reports_most_of_them_skipped(tmp_path: Path) -> None:
    skipped = "".join(
        f"Processing [x.sqlite] with [/opt/nvidia/{name}.py]... \nSKIPPED: x.sqlite does not contain CUDA trace data.\n\n"
        for name in ("nvtx_sum", "cuda_api_sum", "cuda_gpu_kern_sum")
    )
    calls = NEW.format(count="Num Calls", last="Name") + ROWS[NEW].format(a="poll", b="read")
    text = f"Generating SQLite file x.sqlite from x.nsys-rep\n{skipped}Processing [x.sqlite] with [osrt_sum.py]... \n{calls}\n"
    alone = load([put(tmp_path, text, "alone")])
    assert list(alone.summaries) == ["osrt_sum"]
    assert alone.gpu_ops.empty
    read(tmp_path, text)
    put(tmp_path, with_kernels(""), "k")
    assert load([tmp_path]).summaries["osrt_sum"]["name"].tolist() == ["poll", "read"]


def test_calls_of_cuda_and_of_the_system_have_one_header(tmp_path: Path) -> None:
    head = NEW.format(count="Num Calls", last="Name")
    text = (
        f"{head}{ROWS[NEW].format(a='cudaMalloc', b='cuLaunchKernel')}\n{head}{ROWS[NEW].format(a='poll', b='read')}\n"
    )
    assert set(read(tmp_path, with_kernels(text)).summaries) == {"cuda_api_sum", "osrt_sum"}
    twice = f"{head}{ROWS[NEW].format(a='cudaMalloc', b='cuLaunchKernel')}\n" * 2
    with pytest.raises(InputError, match=r"two different files of the nsys report cuda_api_sum|second table"):
        read(tmp_path, with_kernels(twice))


TITLE = " ** {} ({}):\n\n"
TABLE = KERNELS + ROWS[NEW].format(a="k", b="l")


@pytest.mark.parametrize(
    "text",
    [
        TABLE + "\n" + TABLE,
        TITLE.format("CUDA API Summary", "cuda_api_sum") + TITLE.format("CUDA GPU Kernel Summary", "cuda_gpu_kern_sum") + TABLE,
        TITLE.format("CUDA API Summary", "cuda_api_sum") + TABLE,
        TABLE + "\nfrom rank 1\n" + "60.0,900,3,300.0,300.0,200,400,100.0,k\n",
        KERNELS + ROWS[NEW].format(a="k", b="l") * 2,
        KERNELS + "75.0,900,3,300.0,300.0,200,400,100.0,k\n25.0,600,1,600.0,600.0,600,600,0.0,l\n",
        TABLE.replace("25.0,300", "rank 1 says hello\n25.0,300"),
        TABLE.replace("25.0,300,1", "25.0,30075.0,900,1"),
    ],
    ids=["two tables", "two titles", "another title", "rows behind the end", "shares of 200 %", "shares of others", "a line within", "half lines"],
)  # fmt: skip
def test_output_of_several_ranks_is_refused_and_not_mixed(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"interleaved|several runs|mixes several"):
        read(tmp_path, text)


def test_application_output_around_a_table_does_no_harm(tmp_path: Path) -> None:
    text = (
        "step 1, loss 2.5, time 3\n" * 1300
        + "Processing [x] with [y]... \n\n"
        + TABLE
        + "\nDone, in 5 s\n\nGenerated:\n    /tmp/x.nsys-rep\n"
    )
    assert read(tmp_path, text).nsys_kernel_sums["kernel"].tolist() == ["k", "l"]


def test_missing_rows_of_a_summary_are_told(tmp_path: Path) -> None:
    capture = read(tmp_path, KERNELS + ROWS[NEW].format(a="k", b="l").split("\n")[0] + "\n")
    assert any("shares sum to 75.0 %" in gap.what for gap in capture.missing)


# ------------------------------------------------------------------------------------------- locales, encodings, units


def test_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    text = (
        KERNELS.replace(",", ";")
        + "75,0;900;3;300,0;300,0;200;400;100,0;void k<1, 2>(int)\n25,0;300;1;300,0;300,0;300;300;0,0;l\n"
    )
    sums = read(tmp_path, text).nsys_kernel_sums
    assert sums[["kernel", "total_ns"]].to_numpy().tolist() == [["void k<1, 2>(int)", 900], ["l", 300]]
    tabs = TABLE.replace(",", "\t")
    assert read(tmp_path, tabs).nsys_kernel_sums["total_ns"].tolist() == [900, 300]


def test_what_stays_open_is_refused_with_both_readings_and_decided_by_the_option(tmp_path: Path) -> None:
    text = GPU.replace("(ns)", "(us)") + "1.500,2.250,7,64,2,1,128,1,1,32,,,,,,,H200 (0),1,,7,k\n"
    with pytest.raises(AmbiguousNumbersError) as caught:
        read(tmp_path, text)
    assert caught.value.readings == ("1.5", "1500")
    assert read(tmp_path, text, "C").gpu_ops["start_ns"].tolist() == [1500]
    assert read(tmp_path, text, "de").gpu_ops["start_ns"].tolist() == [1_500_000]
    with pytest.raises(UsageError, match="--locale xx"):
        build([tmp_path], tmp_path / "out", locale="xx")


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.replace("\n", "\r\n").encode("utf-16"),
        lambda text: text.replace("\n", "\r\n").encode("utf-16-le"),
        lambda text: text.encode("utf-16-be"),
        lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.rstrip("\n").encode(),
    ],
    ids=["mark", "UTF-16 LE", "no mark LE", "no mark BE", "UTF-16 BE", "CRLF", "no last line end"],
)
def test_every_encoding(tmp_path: Path, encode: object) -> None:
    text = KERNELS + ROWS[NEW].format(a="void π<1, 2>(int)".join('""'), b="k()")
    sums = read(tmp_path, encode(text)).nsys_kernel_sums  # type: ignore[operator]
    assert sums["kernel"].tolist() == ["void π<1, 2>(int)", "k()"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("Total Time (ns)", "Total Time (us)"), "in ns and us"),
        (("Total Time (ns)", "Total Time (MB)"), "in MB and ns"),
        (("Total Time (ns),Instances", "Instances,Total Time (ns)"), "in an order that no nsys prints"),
        (("Med (ns)", "Avg (ns)"), "in an order that no nsys prints"),
        (("900,3", "9000,3"), "Total Time is not Avg times"),
        (("300.0,300.0,200", "300.0,500.0,200"), "Med is not between"),
        (("900,3", "-900,-3"), "Total Time"),
        (("900,3,300.0", "900,3.5,300.0"), "Instances"),
        (("900,3", "9e30,3"), "Total Time"),
    ],
)
def test_damage_is_named(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    assert change[0] in TABLE
    with pytest.raises(InputError, match=said) as caught:
        read(tmp_path, TABLE.replace(*change))
    assert "\n" not in str(caught.value)
    assert "again" in str(caught.value) or "nsys stats" in str(caught.value)


def test_a_column_that_nobody_knows_is_told(tmp_path: Path) -> None:
    text = TABLE.replace("Name", "Mood,Name").replace(",k\n", ",good,k\n").replace(",l\n", ",bad,l\n")
    capture = read(tmp_path, text)
    assert capture.nsys_kernel_sums["total_ns"].tolist() == [900, 300]
    assert any("column Mood" in gap.what for gap in capture.missing)


def test_a_last_row_without_line_end_needs_an_end_that_proves_itself(tmp_path: Path) -> None:
    whole = with_kernels(PROJ_TRACE.format(none="")).rstrip("\n")
    assert len(read(tmp_path, whole).summaries["nvtx_gpu_proj_trace"]) == 2
    assert len(read(tmp_path, whole[:-1]).summaries["nvtx_gpu_proj_trace"]) == 1
    without_ids = whole.replace("RangeId,ParentId,", "").replace(",3,,:3", ",:3").replace(",4,3,:3:4", ",:3:4")
    assert len(read(tmp_path, without_ids).summaries["nvtx_gpu_proj_trace"]) == 1


@pytest.mark.slow
def test_no_bytes_of_a_table_make_a_traceback(tmp_path: Path) -> None:
    whole = (TABLE + "\n" + PROJ_TRACE.format(none="")).encode()
    for place in range(0, len(whole), 11):
        for byte in (b"\0", b'"', b"\xff", b"\r", b"-"):
            try:
                capture = read(tmp_path, whole[:place] + byte + whole[place + 1 :])
            except LedgerError:
                continue
            assert isinstance(capture.nsys_kernel_sums, pd.DataFrame)


# ------------------------------------------------------------------------------------------------- logs of real programs


def _run_of(number: int, total: int) -> str:
    return (
        f"step {number}\nGenerating '/tmp/nsys-report-{number}a.qdstrm'\n[1/8] [0%] report{number}.nsys-rep\n"
        f"Generating SQLite file r{number}.sqlite from r{number}.nsys-rep\n\n ** CUDA API Summary (cuda_api_sum):\n\n"
        " Time (%)  Total Time (ns)  Num Calls    Avg (ns)       Med (ns)    Min (ns)   Max (ns)  StdDev (ns)    Name   \n"
        " --------  ---------------  ---------  ------------  ------------  ---------  ---------  -----------  ----------\n"
        f"    100.0  {total:15}  {1:9}  {total:10}.0  {total:10}.0  {total:9}  {total:9}  {0:9}.0  cudaMalloc\n\n"
    )


def test_a_log_of_several_runs_is_read_up_to_the_second(tmp_path: Path) -> None:
    capture = load([put(tmp_path, _run_of(1, 1234) + _run_of(2, 5678) + _run_of(3, 91), "log")])
    assert capture.summaries["cuda_api_sum"]["total_ns"].tolist() == [1234]
    assert capture.missing[0].what == "2 further runs of nsys in log"
    assert len(load([put(tmp_path, _run_of(1, 1234), "one")]).missing) == len(capture.missing) - 1


def test_the_decimal_comma_that_was_decided_is_said(tmp_path: Path) -> None:
    text = NEW.format(count="Instances", last="Name") + "100.5,5000000,2,2500000,5,2500000,5,2400000,2600000,1,5,k\n"
    text = (
        text.replace(",", ";").replace("100.5", "100,0").replace("2500000;5", "2.500.000,5").replace(";1;5;k", ";1,5;k")
    )
    capture = load([put(tmp_path, text, "de")])
    assert "Read with a decimal comma, as the numbers prove or --locale says: de." in analyse(capture)[0]["notes"]


KERNELS_2020 = """\
Generating CUDA API Statistics...
CUDA API Statistics (nanoseconds)

Time(%)      Total Time       Calls         Average         Minimum         Maximum  Name
-------  --------------  ----------  --------------  --------------  --------------  ----------
  100.0            3200           3          1066.7             780            1410  cuInit

Generating CUDA Kernel Statistics...
CUDA Kernel Statistics (nanoseconds)

Time(%)      Total Time   Instances         Average         Minimum         Maximum  Name
-------  --------------  ----------  --------------  --------------  --------------  ----------
  100.0           58366           6          9727.7            2784           17215  k
"""


def test_the_unit_of_2020_stands_in_the_title(tmp_path: Path) -> None:
    capture = load([put(tmp_path, KERNELS_2020, "log")])
    assert capture.nsys_kernel_sums[["kernel", "instances", "total_ns"]].values.tolist() == [["k", 6, 58366]]
    assert capture.summaries["cuda_api_sum"]["count"].tolist() == [3]
    with pytest.raises(InputError, match="in no unit"):
        load([put(tmp_path, KERNELS_2020.replace(" (nanoseconds)", ":"), "none")])


def test_a_trace_of_2021_with_starts_in_seconds_is_no_timeline(tmp_path: Path) -> None:
    trace = """\
CUDA Kernel & Memory Operations Trace:

 Start(sec)  Duration(nsec)  CorrId  GrdX  GrdY  GrdZ  BlkX  BlkY  BlkZ  Reg/Trd  StcSMem  DymSMem  Bytes  Thru(MB/s)  SrcMemKd  DstMemKd  Device  Ctx  Strm  Name
 ----------  --------------  ------  ----  ----  ----  ----  ----  ----  -------  -------  -------  -----  ----------  --------  --------  ------  ---  ----  ----
   0,000000           1.632      19                                                                 552.9…      7,000  Pinned    Device    G (0)     1    13  k
Report file moved to "/home/alice/report2.qdrep"
"""
    capture = load([put(tmp_path, KERNELS_2020 + "\n" + trace, "log")])
    assert capture.gpu_ops.empty
    assert capture.nsys_kernel_sums["total_ns"].tolist() == [58366]
    assert any(gap.what == "the timeline of log" for gap in capture.missing)


def titles(tmp_path: Path, text: str) -> list[str]:
    """The titles of the findings of a file, and the names of its gaps."""
    content, _ = analyse(load([put(tmp_path, text, "x.csv")]))
    return [one["title"] for one in content["findings"]] + [gap["what"] for gap in content["missing"]]


def test_launches_and_their_mean_times_are_kernel_totals(tmp_path: Path) -> None:
    phases = ",".join(f"{p}{s} (ns)" for p in "TAQK" for s in ("Avg", "Med", "Min", "Max", "StdDev"))
    header = f"PID,TID,DevId,Count,QCount,{phases},API Name,Kernel Name\n"
    rows = "".join(
        f"11,{tid},0,{count},1,{','.join('9.0,9.0,9,9,1.5' for _ in 'TAQ')},{mean},500.0,400,600,1.5,cuLaunchKernel,{name}\n"
        for tid, count, mean, name in ((1, 3, 500.3, "k"), (2, 2, 250.0, "k"), (1, 1, 400.0, "m"))
    )
    sums = load([put(tmp_path, header + rows, "x.csv")]).nsys_kernel_sums
    assert sums[["kernel", "instances", "total_ns"]].to_numpy().tolist() == [["k", 5, 2001], ["m", 1, 400]]
    assert titles(tmp_path, header + rows)[0].startswith("k: 5 short launches")


def test_sums_by_range_alone_show_the_range_with_most_and_name_what_is_left_out(tmp_path: Path) -> None:
    header = "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Kernel Name\n"
    rows = [("step", 1, 4, "gemm"), ("step", 1, 2, "relu"), ("step/h.0", 1, 3, "gemm"), ("other", 2, 5, "copy")]
    text = header + "".join(
        f":{name},PushPop,11,{tid},2,{count},{count}000,1000.0,1000.0,1000,1000,0.0,{kernel}\n"
        for name, tid, count, kernel in rows
    )
    capture = load([put(tmp_path, text, "x.csv")])
    assert capture.nsys_kernel_sums[["kernel", "total_ns"]].to_numpy().tolist() == [["gemm", 4000], ["relu", 2000]]
    found = titles(tmp_path, text)
    assert found[0].startswith("gemm: 4 short launches")
    assert "kernels outside the range step" in found


def test_a_trace_of_calls_alone_says_where_the_host_waits(tmp_path: Path) -> None:
    text = (
        "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n100,500,cudaMalloc,0,1,11,22,20,a\n"
        "700,90000,cudaStreamSynchronize_v3020,0,2,11,22,20,a\n99700,10000,cudaStreamSynchronize_v3020,0,3,11,22,20,a\n"
    )
    calls = load([put(tmp_path, text, "x.csv")]).summaries["cuda_api_sum"]
    assert calls[["name", "count", "total_ns"]].to_numpy().tolist() == [
        ["cudaStreamSynchronize", 2, 100_000],
        ["cudaMalloc", 1, 500],
    ]
    assert "cudaStreamSynchronize" in titles(tmp_path, text)[0]
