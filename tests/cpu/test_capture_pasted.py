"""What people paste into reports: Markdown pages, tables without rulers, and output of other tools, which is named."""

import re
from pathlib import Path

import pytest

from analysis.capture.load import load
from analysis.formats.errors import InputError

API = """\
[5/8] Executing 'cuda_api_sum' stats report

 Time (%)  Total Time (ns)  Num Calls    Avg (ns)     Med (ns)    Min (ns)  Max (ns)  StdDev (ns)        Name
 --------  ---------------  ---------  ------------  -----------  --------  --------  -----------  ----------------
     75.0        3,000,000          3   1,000,000.0  1,000,000.0   1000000   1000000          0.0  cudaMalloc
     25.0        1,000,000        100      10,000.0     10,000.0     10000     10000          0.0  cudaLaunchKernel
"""
KERNELS = """\
[6/8] Executing 'cuda_gpu_kern_sum' stats report

 Time (%)  Total Time (ns)  Instances  Avg (ns)  Med (ns)  Min (ns)  Max (ns)  StdDev (ns)              Name
 --------  ---------------  ---------  --------  --------  --------  --------  -----------  ---------------------------
    100.0          5000000        100   50000.0   50000.0     50000     50000          0.0  void fold<int>(float *, T1)
"""
NCU = """\
  spin(float *) (64, 1, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 8.9
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    Duration                         us        20.50
    DRAM Throughput                   %        31.25
    ----------------------- ----------- ------------
"""


def without_rulers(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if "----" not in line)


def collapsed(text: str) -> str:
    return "\n".join(re.sub(" +", " ", line).strip() for line in text.split("\n"))


def as_markdown_table(text: str) -> str:
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.split("\n") if "  " in line and "----" not in line]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:], ""])


def put(folder: Path, text: str, name: str = "text.txt") -> Path:
    (folder / name).write_text(text, "utf-8")
    return folder / name


@pytest.mark.parametrize("form", [str, without_rulers, collapsed, as_markdown_table])
def test_tables_of_nsys_are_found_in_every_form(tmp_path: Path, form) -> None:
    capture = load([put(tmp_path, form(API) + "\n" + form(KERNELS))])
    assert capture.summaries["cuda_api_sum"][["name", "count", "total_ns"]].to_numpy().tolist() == [
        ["cudaMalloc", 3, 3_000_000], ["cudaLaunchKernel", 100, 1_000_000],
    ]  # fmt: skip
    assert capture.nsys_kernel_sums[["kernel", "instances", "total_ns"]].to_numpy().tolist() == [
        ["void fold<int>(float *, T1)", 100, 5_000_000]
    ]


@pytest.mark.parametrize("fence", ["```", "~~~", "````"])
@pytest.mark.parametrize("head", ["# Slow kernel\n\n", "", "**Hi**, my kernel is slow:\n"])
def test_a_page_is_read_block_by_block(tmp_path: Path, fence: str, head: str) -> None:
    blocks = (API, "./tool --fast\n", KERNELS, NCU)
    text = head + "".join(f"Some words.\n{fence}text\n{block}{fence}\n\n## More\n" for block in blocks)
    capture = load([put(tmp_path, text, "page.md")])
    assert capture.nsys_kernel_sums["instances"].tolist() == [100]
    assert capture.summaries["cuda_api_sum"]["count"].tolist() == [3, 100]
    assert capture.counters[["name", "gpu__time_duration.sum"]].to_numpy().tolist() == [["spin(float *)", 20_500]]
    assert all(file.name.startswith("page.md, line ") for file in capture.files)


@pytest.mark.parametrize(
    "form",
    [
        without_rulers,
        collapsed,
        lambda text: re.sub("  +", "\t", text),
        lambda text: re.sub("^", "> ", text, flags=re.M),
    ],
)
def test_metrics_of_ncu_are_found_in_every_form(tmp_path: Path, form) -> None:
    """A line that is no metric of ncu stands between two that are."""
    text = NCU.replace("    DRAM", "    Made Up Number           us         3.00\n    DRAM")
    capture = load([put(tmp_path, form(text))])
    found = capture.counters[["name", "gpu__time_duration.sum"]].to_numpy().tolist()
    assert found == [["spin(float *)", 20_500]]
    assert capture.counters.filter(like="gpu__dram_throughput").to_numpy().tolist() == [[31.25]]
    assert any("Made Up Number" in one.what or one.what == "line 7 of text.txt" for one in capture.missing)


def test_a_log_of_nsys_that_failed_beside_exports_is_told(tmp_path: Path) -> None:
    put(tmp_path, "Importer error status: Importation failed.\n", "nsys.log")
    put(tmp_path, KERNELS)
    (told,) = [one.what for one in load([tmp_path]).missing if one.reason == "unread"]
    assert told.startswith("nsys.log: ")
    assert "could not import" in told


def test_two_runs_on_a_page_are_two_and_a_block_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    text = "".join(
        f"```\n{block}```\n" for block in (NCU, NCU.replace("20.50", "12.25"), KERNELS, KERNELS.replace("100", "90"))
    )
    capture = load([put(tmp_path, text, "page.md")])
    assert capture.counters["gpu__time_duration.sum"].tolist() == [20_500, 12_250]
    assert capture.counters["file"].nunique() == 2
    assert capture.nsys_kernel_sums["instances"].tolist() == [100]
    assert [one.what for one in capture.missing if "block" in one.what] == ["the block of page.md from line 29 on"]


def test_a_page_in_a_folder_is_no_capture(tmp_path: Path) -> None:
    put(tmp_path, f"# Tool\n```\n{KERNELS}```\n", "README.md")
    put(tmp_path, KERNELS.replace("5000000", "7000000").replace("50000", "70000"))
    assert load([tmp_path]).nsys_kernel_sums["total_ns"].tolist() == [7_000_000]


@pytest.mark.parametrize("page", ["# Tool\n```\n{}```\n", "# Tool\n\nSome words.\n\n{}\n## More\n"])
def test_a_page_that_is_all_a_folder_holds_is_read(tmp_path: Path, page: str) -> None:
    put(tmp_path, page.format(KERNELS), "README.md")
    put(tmp_path, "int main() {}\n", "tool.cu")
    assert load([tmp_path]).nsys_kernel_sums["total_ns"].tolist() == [5_000_000]
    put(tmp_path, page.format(KERNELS).replace("100", "90"), "other.md")
    with pytest.raises(InputError, match="the page itself by its name"):
        load([tmp_path])


def test_rows_that_an_edit_moved_and_dots_for_rows_are_read(tmp_path: Path) -> None:
    text = (
        KERNELS
        + "     0.0             40          1      40.0  40.0        40        40          0.0  a::spin()\n......\n"
    )
    capture = load([put(tmp_path, text)])
    assert capture.nsys_kernel_sums["total_ns"].tolist() == [5_000_000, 40]
    capture = load([put(tmp_path, NCU.replace("    DRAM Thr", "    ...\n    DRAM Thr"))])
    assert capture.counters.filter(like="gpu__dram_throughput").to_numpy().tolist() == [[31.25]]


def test_a_table_without_ruler_beside_one_with_a_ruler_is_read(tmp_path: Path) -> None:
    second = without_rulers(API).replace("Name\n", "Name\n\n---\n\n")
    capture = load([put(tmp_path, f"{KERNELS}\n{second}")])
    assert capture.nsys_kernel_sums["total_ns"].tolist() == [5_000_000]
    assert capture.summaries["cuda_api_sum"]["count"].tolist() == [3, 100]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("-----\n   Name    Self CPU %   Self CPU   CPU total %   CPU total   # of Calls\n-----\n aten::mm  60.00%\n",
         "key_averages"),
        ("==77== NVPROF is profiling process 77, command: ./tool\n", "nvprof"),
        ("            Type  Time(%)      Time  Calls  Avg  Min  Max  Name\n GPU activities:   90.00%  9ms  3  3ms\n", "nvprof"),
        ('"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n', "nvprof"),
        ('[{"children": [], "frame": {"name": "ROOT", "type": "function"}, "metrics": {"count": 0, "time (ns)": 0}}]',
         "Proton"),
        ("12.5 ROOT\n├─ 10.0 fold\n└─ 2.5 spin\n\nLegend (Metric: time/ms (inc) Min: 2.50 Max: 12.50)\n", "Proton"),
        ('"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"fold.kd",3,300,100,100.0\n', "rocprof"),
        ('"Kind","Agent_Id","Queue_Id","Kernel_Id","Kernel_Name"\n"KERNEL_DISPATCH",1,1,5,"fold"\n', "rocprof"),
        ("Processing [a.sqlite] with [gpu_gaps.py]...\n\n ** GPU Gaps (gpu_gaps):\n\nThe following are ranges where the "
         "GPU is idle.\n\n Row#  Duration (ns)  Start (ns)  PID  Device ID\n ----  -------------\n 1  900  100  7  0\n",
         "nsys analyze"),
        ("Row#,Duration (ns),Start (ns),PID,Device ID,Context ID\n1,900,100,7,0,1\n", "nsys analyze"),
        ("Duration (ns),Start (ns),Src Kind,Dst Kind,Bytes (MB),PID\n900,100,Pageable,Device,1.0,7\n", "nsys analyze"),
        ("   Start  Duration            Grid Size      Block Size     Regs*\n9.1ms  3us   (8 1 1)\n", "nvprof"),
        ('"Start","Duration","Grid X","Grid Y"\ns,us,,\n1,2,8,1\n', "nvprof"),
        ('"Device","Kernel","Invocations","Metric Name","Metric Description","Min"\n"V100","fold",1,"ipc"\n', "nvprof"),
        ("248.000 ROOT\n├─ 20.0 fold\n└─ 8.0 spin\n", "Proton"),
        ('"Domain","Function","Process_Id","Thread_Id"\n"HIP","hipMalloc",1,1\n', "rocprof"),
        ("Generating 'a.qdstrm'\nImporter error status: Importation failed.\n", "could not import"),
        ("Profiler ran for 12.5 ms, capturing 400 events.\n\nHost-side activity: calling CUDA APIs took 7 ms\n", "CUDA.jl"),
        ("| NVIDIA-SMI 560.35   Driver Version: 560.35   CUDA Version: 12.6 |\n", "nvidia-smi"),
    ],
)  # fmt: skip
def test_output_of_other_tools_is_named_with_the_way_out(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError, match=named) as error:
        load([put(tmp_path, text)])
    assert str(error.value).count(";") == 1
    assert "no table of nsys or ncu" not in str(error.value)


GPU = """\
[6/8] Executing 'cuda_gpu_sum' stats report

 Time (%)  Total Time (ns)  Instances   Avg (ns)   Med (ns)   Min (ns)  Max (ns)  StdDev (ns)   Category             Operation
 --------  ---------------  ---------  ----------  ---------  --------  --------  -----------  -----------  ----------------------------
     60.0        3,000,000          3  1,000,000.0  1000000.0   1000000   1000000          0.0  CUDA_KERNEL  void fold<int>(float *, T1)
     40.0        2,000,000          4    500,000.0   500000.0    500000    500000          0.0  MEMORY_OPER  [CUDA memcpy Host-to-Device]
"""


@pytest.mark.parametrize("form", [str, without_rulers, as_markdown_table])
def test_the_sum_of_kernels_and_copies_gives_both(tmp_path: Path, form) -> None:
    capture = load([put(tmp_path, form(GPU))])
    sums = capture.nsys_kernel_sums[["kernel", "instances", "total_ns"]].to_numpy().tolist()
    assert sums == [["void fold<int>(float *, T1)", 3, 3_000_000]]
    copies = capture.summaries["cuda_gpu_mem_time_sum"]
    assert copies[["name", "count", "total_ns"]].to_numpy().tolist() == [["[CUDA memcpy Host-to-Device]", 4, 2_000_000]]
    with_kernels = load([tmp_path / "text.txt", put(tmp_path, KERNELS, "kernels.txt")])
    assert with_kernels.nsys_kernel_sums["instances"].tolist() == [100]


def without_header(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if re.match(" *[0-9]", line)) + "\n"


@pytest.mark.parametrize(
    "form",
    [
        str,
        collapsed,
        lambda text: re.sub(r"^ *(.*?) *$", lambda line: f"| {re.sub(r' {2,}', ' | ', line[1])} |", text, flags=re.M),
        lambda text: re.sub(" {2,}", ",", text.replace(",", "")).replace("\n,", "\n").removeprefix(","),
    ],
)
def test_rows_without_a_header_are_told_by_their_names(tmp_path: Path, form) -> None:
    api, kernels, gpu = (form(without_header(table).rstrip("\n")) for table in (API, KERNELS, GPU))
    capture = load([put(tmp_path, f"My numbers:\n{api}\n\n")])
    assert capture.summaries["cuda_api_sum"]["total_ns"].tolist() == [3_000_000, 1_000_000]
    assert load([put(tmp_path, f"{kernels}\n")]).nsys_kernel_sums["total_ns"].tolist() == [5_000_000]
    capture = load([put(tmp_path, gpu)])
    assert capture.nsys_kernel_sums["total_ns"].tolist() == [3_000_000]
    (lacking,) = [one.what for one in load([put(tmp_path, gpu.split("\n")[0] + "\n")]).missing if one.reason == "cut"]
    assert lacking.endswith("lacks rows: their shares sum to 60.0 %")


@pytest.mark.parametrize(
    "row", ["100.0 5000000 99 50000.0 50000.0 50000 50000 0.0 fold(int)", "100.0 5.5 1 5.5 5.5 5.5 5.5 0.0 fold(int)",
            "100.0 5 1 5.0 5.0 5 5 0.0 words", "1 2 3 4 5 6 7 8 9"]
)  # fmt: skip
def test_other_numbers_are_no_rows(tmp_path: Path, row: str) -> None:
    with pytest.raises(InputError, match="no table of nsys or ncu"):
        load([put(tmp_path, row)])
