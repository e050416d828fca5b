"""nsys exports of every year, whole, damaged and hostile."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.capture import nsys_csv
from analysis.capture.load import load
from analysis.capture.model import API_CALLS_COLUMNS, GPU_OPS_COLUMNS, as_table, nest, nest_ranges
from analysis.formats.errors import InputError
from tests.clock import within

GPU = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
)
GPU_2022 = GPU.replace("MB/s", "MBps").replace("GreenCtx,", "")
EXEC = (
    "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),Total Dur (ns),"
    "PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name\n"
)
PUSHPOP = (
    "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild,RangeId,ParentId,"
    "RangeStack,NameTree\n"
)
KERNEL = '"void ns::softmax<(int)4, float>(float *, int)"'
ROW = f"1000,500,7,64,2,1,128,1,1,32,0.000,0.000,,,,,NVIDIA H200 (0),1,,7,{KERNEL}\n"
COPY = "2000,700,8,,,,,,,,,,4.194,6337.593,Pageable,Device,NVIDIA H200 (0),1,,7,[CUDA memcpy Host-to-Device]\n"
LAUNCH = f"400,90,,,1000,500,1100,11,22,0,cudaLaunchKernel,  64    2    1, 128    1    1,{KERNEL}\n"
RANGES = (
    "100,900,800,300,500,:fwd,11,22,0,1,3,,:3,:fwd\n"
    "200,500,300,0,300,:h.0,11,22,1,0,9,3,:3:9,--:h.0\n"
)  # fmt: skip


def put(folder: Path, **files: str) -> Path:
    """Writes files whose names say nothing of their kind."""
    for name, text in files.items():
        (folder / f"{name}.dat").write_bytes(text.encode())
    return folder


def test_both_traces_give_kernels_with_their_launch(tmp_path: Path) -> None:
    capture = load([put(tmp_path, a=GPU + ROW + COPY, b=EXEC + LAUNCH, c=PUSHPOP + RANGES)])
    kernel, copy = capture.gpu_ops.to_dict("records")
    assert kernel["name"] == KERNEL.strip('"')
    assert (kernel["grid"], kernel["block"], kernel["registers"], kernel["stream"]) == ("64x2x1", "128x1x1", 32, 7)
    assert (kernel["api_start_ns"], kernel["api_end_ns"], kernel["pid"], kernel["tid"]) == (400, 490, 11, 22)
    assert (copy["kind"], copy["bytes"], copy["grid"]) == ("memcpy", 4_194_000, "")
    assert (kernel["memory"], copy["memory"]) == ("", "Pageable -> Device")
    assert capture.gpu_ops["api_start_ns"].isna().tolist() == [False, True]
    assert capture.ranges["path"].tolist() == ["fwd", "fwd/h.0"]
    assert capture.ranges["parent_id"].tolist()[1] == 3
    assert not capture.missing


def test_2022_has_no_colons_no_green_contexts_and_prints_none(tmp_path: Path) -> None:
    row = f"1000,500,7,64,2,1,128,1,1,32,0.000,0.000,None,None,None,None,A100 (0),1,7,{KERNEL}\n"
    ranges = "100,900,800,300,500,fwd,11,22,0,1,3,None,:3,fwd\n200,500,300,0,300,h.0,11,22,1,0,9,3,:3:9,--h.0\n"
    launch = LAUNCH.replace("400,90,,,", "400,90,None,None,")
    capture = load([put(tmp_path, a=GPU_2022 + row, b=EXEC + launch, c=PUSHPOP + ranges)])
    assert capture.gpu_ops["registers"].tolist() == [32]
    assert capture.gpu_ops["bytes"].isna().all()
    assert capture.ranges["path"].tolist() == ["fwd", "fwd/h.0"]


def test_one_trace_alone_works_and_names_what_is_missing(tmp_path: Path) -> None:
    only_gpu, only_exec = tmp_path / "g", tmp_path / "e"
    only_gpu.mkdir()
    only_exec.mkdir()
    capture = load([put(only_gpu, a=GPU + ROW)])
    assert capture.gpu_ops["pid"].isna().all()
    assert any("cuda_kern_exec_trace" in gap.why for gap in capture.missing)
    capture = load([put(only_exec, b=EXEC + LAUNCH)])
    assert capture.gpu_ops[["grid", "tid"]].iloc[0].tolist() == ["64x2x1", 22]
    assert capture.gpu_ops["registers"].isna().all()
    assert any("cuda_gpu_trace" in gap.why for gap in capture.missing)


def test_equal_kernels_at_one_nanosecond_are_paired_once(tmp_path: Path) -> None:
    second = LAUNCH.replace("400,90", "450,20").replace("11,22", "12,23").replace(",1100,", ",1050,")
    capture = load([put(tmp_path, a=GPU + ROW + ROW, b=EXEC + LAUNCH + second)])
    assert capture.gpu_ops["pid"].tolist() == [11, 12]


def test_a_kernel_without_launch_is_a_gap_and_other_captures_are_refused(tmp_path: Path) -> None:
    other = ROW.replace("1000,500", "9000,500")
    capture = load([put(tmp_path, a=GPU + ROW + other, b=EXEC + LAUNCH)])
    assert any("1 of 2 kernels" in gap.what for gap in capture.missing)
    put(tmp_path, a=GPU + other)
    with pytest.raises(InputError, match="different captures"):
        load([tmp_path])


def test_quotes_inside_names_are_kept(tmp_path: Path) -> None:
    hostile = '"void softmax(float*, "q", int)"'
    row = ROW.replace(KERNEL, hostile)
    name = '":{"op": "mm", "n": 3}"'
    ranges = f"100,900,800,300,500,{name},11,22,0,1,3,,:3,{name}\n"
    capture = load([put(tmp_path, a=GPU + row + COPY, b=EXEC + LAUNCH.replace(KERNEL, hostile), c=PUSHPOP + ranges)])
    assert capture.gpu_ops["name"].tolist()[0] == 'void softmax(float*, "q", int)'
    assert capture.gpu_ops["tid"].tolist()[0] == 22
    assert capture.ranges["name"].tolist() == ['{"op": "mm", "n": 3}']
    assert capture.ranges["tid"].tolist() == [22]


@pytest.mark.parametrize("name", ["a,b", 'f("x,y",1)', "x:y", "<script>", "=1+1", "π/2", "None", '"', 'say "hi"'])
def test_hostile_range_names_do_not_move_columns(tmp_path: Path, name: str) -> None:
    cell = f'":{name}"' if "," in name else f":{name}"
    tree = cell
    ranges = f"100,900,800,300,500,{cell},11,22,0,1,3,,:3,{tree}\n" + RANGES.replace(":3", ":5").replace(",3,", ",5,")
    capture = load([put(tmp_path, a=GPU + ROW, b=EXEC + LAUNCH, c=PUSHPOP + ranges)])
    assert name in capture.ranges["name"].tolist()
    assert set(capture.ranges["pid"]) == {11}


@pytest.mark.parametrize("group", [",", ".", "\u202f"])
def test_whole_numbers_of_every_locale(tmp_path: Path, group: str) -> None:
    start = f"1{group}000{group}000"
    row = ROW.replace("1000,500", f'"{start}","628{group}032"')
    capture = load([put(tmp_path, a=GPU + row)])
    assert capture.gpu_ops[["start_ns", "duration_ns"]].iloc[0].tolist() == [1_000_000, 628_032]


def test_a_single_point_in_a_whole_number_groups(tmp_path: Path) -> None:
    capture = load([put(tmp_path, a=GPU + ROW.replace("1000,500", "628.032,500") + ROW)])
    assert capture.gpu_ops["start_ns"].tolist() == [1000, 628_032]


def test_sizes_follow_their_own_decimal_sign(tmp_path: Path) -> None:
    german = COPY.replace("4.194,6337.593", '"4,194","6.337,593"')
    capture = load([put(tmp_path, a=GPU + german)])
    assert capture.gpu_ops["bytes"].tolist() == [4_194_000]
    exact = GPU.replace("Bytes (MB)", "Bytes (B)") + COPY.replace("4.194,", "4194304,")
    assert load([put(tmp_path, a=exact)]).gpu_ops["bytes"].tolist() == [4_194_304]


def test_other_time_units_become_nanoseconds(tmp_path: Path) -> None:
    text = GPU.replace("Start (ns),Duration (ns)", "Start (us),Duration (us)") + ROW.replace("1000,500", "1.500,0.5")
    assert load([put(tmp_path, a=text)]).gpu_ops[["start_ns", "duration_ns"]].iloc[0].tolist() == [1500, 500]


@pytest.mark.parametrize("keep", [3, 20, 60, len(ROW) - 9])
def test_a_cut_last_row_is_dropped_and_named(tmp_path: Path, keep: int) -> None:
    capture = load([put(tmp_path, a=GPU + ROW + COPY + ROW[:keep])])
    assert len(capture.gpu_ops) == 2
    assert any("cut off after 2 complete rows" in gap.what and "a.dat" in gap.what for gap in capture.missing)


def test_a_file_without_its_last_newline_is_whole(tmp_path: Path) -> None:
    text = (GPU + ROW + COPY).rstrip("\n")
    capture = load([put(tmp_path, a=text)])
    assert len(capture.gpu_ops) == 2
    assert not any("cut off" in gap.what for gap in capture.missing)


def test_a_name_cut_short_is_seen(tmp_path: Path) -> None:
    capture = load([put(tmp_path, a=GPU + COPY + COPY[:-14])])
    assert len(capture.gpu_ops) == 1


def test_a_name_that_may_be_cut_is_kept_and_named(tmp_path: Path) -> None:
    capture = load([put(tmp_path, a=GPU + COPY + ROW.replace(KERNEL, "sm80_xmma_ge").rstrip("\n"))])
    assert "sm80_xmma_ge" in capture.gpu_ops["name"].tolist()
    assert any("may be cut short" in gap.what for gap in capture.missing)
    capture = load([put(tmp_path, a=GPU + COPY + ROW.replace(KERNEL, "void k<a").rstrip("\n"))])
    assert len(capture.gpu_ops) == 1


@pytest.mark.parametrize("field", [0, 1, 9])
def test_a_number_beyond_64_bits_is_refused(tmp_path: Path, field: int) -> None:
    cells = ROW.split(",")
    cells[field] = "9" * 30
    with pytest.raises(InputError, match="64-bit number"):
        load([put(tmp_path, a=GPU + ",".join(cells))])


def test_the_tables_of_two_runs_in_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="second table of cuda_gpu_trace"):
        load([put(tmp_path, a=f"Processing [x] with [a.py]... \n{GPU}{ROW}\n{GPU}{COPY}")])


def test_a_table_ends_where_the_next_report_begins(tmp_path: Path) -> None:
    time = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns)"
    text = (
        f" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n{time},Name\n100.0,500,1,500.0,500.0,500,500,0.0,k\n\n"
        f"Processing [x] with [b.py]... \n\n{time},Range\n100.0,900,1,900.0,900.0,900,900,0.0,:fwd\n\n"
        "Generated:\n    /tmp/x.nsys-rep\n"
    )
    assert load([put(tmp_path, a=text)]).nsys_kernel_sums["kernel"].tolist() == ["k"]


def test_damage_inside_names_line_and_fields(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.dat: line 3 has 4 fields .* 21 columns"):
        load([put(tmp_path, a=GPU + ROW + "17,oops,3,4\n" + ROW)])


def test_two_files_of_one_report_are_refused_and_copies_are_not(tmp_path: Path) -> None:
    put(tmp_path, a=GPU + ROW, b=GPU + ROW)
    assert len(load([tmp_path]).gpu_ops) == 1
    put(tmp_path, b=GPU + COPY)
    with pytest.raises(InputError, match=r"a\.dat and b\.dat"):
        load([tmp_path])


def test_range_sums_keep_kernels_outside_any_range(tmp_path: Path) -> None:
    text = (
        "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),"
        "Kernel Name\n"
        f":fwd,PushPop,11,22,1,2,900,450.0,450.0,400,500,1.0,{KERNEL}\n"
        f",,11,22,0,1,70,70.0,70.0,70,70,0.0,{KERNEL}\n"
    )
    sums = load([put(tmp_path, a=text)]).nsys_range_sums
    assert sums["name"].tolist() == ["fwd", ""]
    assert sums["total_ns"].tolist() == [900, 70]


def test_a_range_in_another_of_its_name_adds_its_kernels_twice(tmp_path: Path) -> None:
    """nsys adds a kernel for each range around it, and counts it once: the mean is of what it added."""
    header = (
        "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),"
        "Kernel Name\n"
    )
    row = f":prefill,PushPop,11,22,{{}},{{}},{{}},11045.2,8624.0,7840,15040,2885.3,{KERNEL}\n"
    sums = load([put(tmp_path, a=header + row.format(5, 92, 2032318))]).nsys_range_sums
    assert sums[["kernel_instances", "total_ns"]].to_numpy().tolist() == [[92, 2032318]]
    for instances, count, total in ((5, 92, 2032318 + 500), (5, 185, 2032318), (1, 92, 2032318), (5, 36, 2032318)):
        with pytest.raises(InputError, match="Total Time is not Avg times Kern Inst"):
            load([put(tmp_path, a=header + row.format(instances, count, total))])


def test_graph_launches_are_warned_about(tmp_path: Path) -> None:
    api = (
        "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
        "100.0,500,1,500.0,500.0,500,500,0.0,cudaGraphLaunch_v10000\n"
    )
    capture = load([put(tmp_path, a=GPU + ROW, b=api)])
    assert any("--cuda-graph-trace=node" in gap.do for gap in capture.missing)


def test_ranges_without_ids_are_nested_by_time(tmp_path: Path) -> None:
    text = (
        "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl\n"
        "200,500,300,0,300,:b,11,22,1\n100,900,800,300,500,:a,11,22,0\n"
        "500,600,100,0,100,:c,11,22,1\n100,150,50,0,50,:other,11,23,0\n"
    )
    ranges = load([put(tmp_path, a=GPU + ROW, b=text)]).ranges
    assert ranges["path"].tolist() == ["a", "a/b", "a/c", "other"]
    assert ranges["level"].tolist() == [0, 1, 1, 0]


def test_no_range_at_all_is_a_gap(tmp_path: Path) -> None:
    capture = load([put(tmp_path, a=GPU + ROW, b=EXEC + LAUNCH, c=PUSHPOP)])
    assert any("NVTX" in gap.why for gap in capture.missing)


@pytest.mark.slow
def test_300_000_launches_load_in_seconds(tmp_path: Path) -> None:
    count = 300_000
    with (tmp_path / "a").open("w") as gpu, (tmp_path / "b").open("w") as exec_:
        gpu.write(GPU)
        exec_.write(EXEC)
        for i in range(count):
            start = 1000 + 2000 * i
            name = f'"void ns::kernel_{i % 40}<(int)4, float>(float *, int)"'
            gpu.write(f"{start},500,{i},64,2,1,128,1,1,32,0.000,0.000,,,,,NVIDIA H200 (0),1,,7,{name}\n")
            exec_.write(
                f"{start - 600},90,,,{start},500,1100,11,22,0,cudaLaunchKernel,  64    2    1, 128    1    1,{name}\n"
            )
    capture = within(20, lambda: load([tmp_path]))  # about 3 s on two idle cores; a row-by-row reader needs a minute
    assert len(capture.gpu_ops) == count
    assert capture.gpu_ops["tid"].notna().all()


def test_copies_find_their_call_by_correlation_id_unless_two_processes_share_it():
    ops = as_table(
        {
            "start_ns": [10, 20, 30],
            "duration_ns": [1, 1, 1],
            "kind": ["memcpy", "memset", "kernel"],
            "correlation_id": [1, 2, 3],
            "api_start_ns": pd.array([pd.NA, pd.NA, 25], dtype="Int64"),
        },
        GPU_OPS_COLUMNS,
    )
    calls = as_table(
        {
            "api_start_ns": [5, 6, 7, 8],
            "api_end_ns": [6, 7, 8, 9],
            "pid": [1, 1, 2, 1],
            "tid": [1, 1, 2, 1],
            "correlation_id": [1, 2, 2, 3],
        },
        API_CALLS_COLUMNS,
    )
    filled = nsys_csv.fill_from_calls(ops, calls)
    assert filled["api_start_ns"].tolist() == [5, pd.NA, 25]
    assert filled["tid"].tolist()[:2] == [1, pd.NA]


def test_thousands_of_ranges_that_overlap_or_nest_are_read_in_turn() -> None:
    """Ranges that nobody closes: 3,000 that each end later than the one before, then 3,000 that each end earlier."""
    start, thread = np.arange(3000), np.zeros(3000, np.int64)
    parent, level = nest(thread, start, start + 10_000)
    assert set(parent.tolist()) == {-1}
    assert set(level.tolist()) == {0}
    parent, level = nest(thread, start, 10_000 - start)
    assert parent.tolist() == [-1, *range(2999)]
    assert level.tolist() == list(range(3000))
    ranges = nest_ranges(
        pd.DataFrame({"range_id": start, "start_ns": start, "end_ns": 10_000 - start, "pid": 1, "tid": 1, "name": "r"})
    )
    depth = ranges["path"].str.count("/")
    assert depth.tolist() == [*range(1000), *[999] * 2000]
    parent, _ = nest(start // 1500, start, start + np.where(start % 2, 10, 20_000))
    assert parent[[1, 2, 3, 1501]].tolist() == [0, -1, 2, 1500]
