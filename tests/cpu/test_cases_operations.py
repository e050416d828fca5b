"""Small timelines and sums of sets and migrations, which are no copies: they use no link and no pinned memory."""

from pathlib import Path
from typing import Any

import pytest

from analysis.capture.load import load
from analysis.diagnosis.copies import large_copies
from analysis.pipeline import analyse
from analysis.show import document

TRACE = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n"
)


def trace(folder: Path, name: str, memory: str, mb: float, *, each_ns: int = 500_000) -> None:
    """Write a timeline of eight operations of this name, each between two kernels."""
    rows, at = [], 1_000_000
    for number in range(8):
        rate = mb * 1e9 / each_ns
        rows.append(
            f"{at},{each_ns},{number * 2 + 1},,,,,,,,,,{mb:.3f},{rate:.3f},{memory},NVIDIA H200 (0),1,7,{name}\n"
        )
        at += each_ns + 5_000
        rows.append(f"{at},200000,{number * 2 + 2},64,1,1,128,1,1,32,0.000,0.000,,,,,NVIDIA H200 (0),1,7,lay_bricks\n")
        at += 205_000
    (folder / "trace.csv").write_text(TRACE + "".join(rows))


def about_copies(folder: Path) -> tuple[dict[str, Any], str]:
    """Return the largest row of copies.csv, and what the report and the rules of copies say."""
    made = analyse(load([folder]))
    copies = made.tables["copies"]
    said = [*document(made.report)["findings"], *large_copies(copies)]
    return dict(copies.iloc[0]), " ".join(map(str, said))


@pytest.mark.parametrize("mb", [2.0, 900.0])
def test_a_set_writes_the_memory_of_the_gpu_and_uses_no_link(tmp_path: Path, mb: float) -> None:
    trace(tmp_path, "[CUDA memset]", "Device,", mb)
    row, said = about_copies(tmp_path)
    assert (row["kind"], row["link_frac"]) == ("memset", pytest.approx(mb * 1e6 / 500e-6 / 4.8e12, rel=0.01))
    assert said
    assert "link" not in said.replace("link_frac", "")
    assert "Set less" in said
    assert "Nothing saves" not in said
    assert "pinned" not in said


@pytest.mark.parametrize(
    "name",
    ["[CUDA Unified Memory memcpy HtoD]", "[CUDA memcpy Unified Host-to-Device]", "[CUDA Unified memcpy HtoD]"],
)
def test_migrations_of_a_trace_are_no_copies(tmp_path: Path, name: str) -> None:
    trace(tmp_path, name, "Pageable,Device", 0.5)
    row, said = about_copies(tmp_path)
    assert (row["kind"], row["direction"]) == ("migration", "Host-to-Device")
    assert "cudaMemPrefetchAsync" in said
    for wrong in ("pinned memory", "larger pieces", "combine them"):
        assert wrong not in said


def test_migrations_of_sums_are_no_copies(tmp_path: Path) -> None:
    (tmp_path / "time.csv").write_text(
        "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation\n"
        "75.0,3000000,300,10000.0,10000.0,10000,10000,0.0,[CUDA Unified Memory memcpy DtoH]\n"
        "25.0,1000000,10,100000.0,100000.0,100000,100000,0.0,[CUDA memset]\n"
    )
    (tmp_path / "kernels.csv").write_text(
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
        "100.0,4000000,10,400000.0,400000.0,400000,400000,0.0,lay_bricks\n"
    )
    tables = analyse(load([tmp_path])).tables
    assert tables["copies"][["kind", "count"]].to_numpy().tolist() == [["migration", 300], ["memset", 10]]


@pytest.mark.parametrize(
    ("memory", "mb", "advice", "wrong"),
    [
        ("Pinned,Device", 0.2, "larger pieces are faster", "pinned memory"),
        ("Pageable,Device", 400.0, "pinned memory is faster", "larger pieces"),
        ("Pinned,Device", 400.0, "look at the link", "faster"),
    ],
)
def test_a_slow_copy_gets_only_advice_that_it_does_not_follow(
    tmp_path: Path, memory: str, mb: float, advice: str, wrong: str
) -> None:
    trace(tmp_path, "[CUDA memcpy Host-to-Device]", memory, mb, each_ns=int(mb * 1e6 / 6e9 * 1e9))
    said = " ".join(map(str, large_copies(analyse(load([tmp_path])).tables["copies"])))
    assert advice in said
    assert wrong not in said.replace("pinned memory copies faster", "")


@pytest.mark.parametrize(("long_ns", "idles"), [(9_990_000, False), (2_000_000, True)])
def test_a_gpu_that_runs_what_an_earlier_range_queued_does_not_idle(tmp_path: Path, long_ns: int, idles: bool) -> None:
    """A kernel begins before each step and runs through it; in the step, a short kernel follows."""
    rows, ranges, calls = [], [], []
    for step in range(6):
        at = 1_000_000 + step * 10_000_000
        for number, (start, length, name) in enumerate([(at, long_ns, "long_haul"), (at + long_ns, 5_000, "tidy")]):
            correlation = 2 * step + number + 1
            rows.append(
                f"{start},{length},{correlation},64,1,1,128,1,1,32,0.000,0.000,,,,,NVIDIA H200 (0),1,7,{name}\n"
            )
            launched = at - 60_000 if number == 0 else at + 40_000
            calls.append(f"{launched},5000,cudaLaunchKernel,0,{correlation},9,9,20,main\n")
        ranges.append(f"{at + 20_000},{at + 9_998_000},9978000,0,9978000,:step,9,9,0,0,{step + 1},,:{step + 1},:step\n")
    (tmp_path / "trace.csv").write_text(TRACE + "".join(rows))
    (tmp_path / "api.csv").write_text(
        "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n" + "".join(calls)
    )
    (tmp_path / "ranges.csv").write_text(
        "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild,RangeId,ParentId,"
        "RangeStack,NameTree\n" + "".join(ranges)
    )
    tables = analyse(load([tmp_path])).tables
    causes = set(tables["step_diagnosis"]["defect"]) if "step_diagnosis" in tables else set()
    assert bool(causes & {"launch_bound", "host_work", "data_loader", "sync"}) == idles
