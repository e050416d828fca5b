"""Outputs in the shapes that people publish, with invented numbers: the first finding names the limit."""

import json
from pathlib import Path

import pytest

from analysis.capture.load import load
from analysis.pipeline import analyse

API = "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
KERNELS = API.replace("Num Calls", "Instances")
COPIES = KERNELS.replace("Instances", "Count").replace("Name", "Operation")


def rows(*given: tuple[str, int, int, int]) -> str:
    """Return the rows of a summary: (name, calls, total, longest), times in ns."""
    total = sum(ns for _, _, ns, _ in given)
    return "".join(
        f"{100 * ns / total:.1f},{ns},{n},{ns / n:.1f},{min(ns // n, most):.1f},{min(ns // n, most)},{most},0.0,{name}\n"
        for name, n, ns, most in sorted(given, key=lambda one: -one[2])
    )


def titles(folder: Path, *tables: str) -> list[str]:
    (folder / "stats.txt").write_text("\n".join(tables), "utf-8")
    return [one.title for one in analyse(load([folder])).report.findings]


def test_a_blocking_copy_that_waits_for_kernels_is_not_blamed(tmp_path: Path) -> None:
    found = titles(
        tmp_path,
        API + rows(("cudaMemcpy", 600, 7_000_000_000, 90_000_000), ("cudaLaunchKernel", 3000, 20_000_000, 90_000)),
        KERNELS + rows(("march(float *)", 200, 4_200_000_000, 22_000_000), ("sort(int *)", 200, 2_700_000_000, 14_000_000)),
    )  # fmt: skip
    assert found[0].startswith("march")
    assert not any("cudaMemcpy" in one for one in found)


def test_copies_over_the_link_come_before_a_kernel_shorter_than_all_of_them(tmp_path: Path) -> None:
    found = titles(
        tmp_path,
        API + rows(("cudaMalloc", 3, 81_000_000, 80_900_000), ("cudaMemcpy", 3, 3_100_000, 2_200_000)),
        KERNELS + rows(("invert(float *)", 1, 1_200_000, 1_200_000)),
        COPIES + rows(("[CUDA memcpy Device-to-Host]", 1, 1_100_000, 1_100_000), ("[CUDA memcpy Host-to-Device]", 2, 700_000, 350_000)),
    )  # fmt: skip
    assert [one.split(",")[0].split(":")[0] for one in found] == [
        "Copies device to host", "Copies host to device", "invert", "cudaMalloc",
    ]  # fmt: skip
    assert found[-1] == "cudaMalloc: the first call sets CUDA up, once"


def test_many_short_launches_come_before_copies_that_take_as_long(tmp_path: Path) -> None:
    found = titles(
        tmp_path,
        KERNELS + rows(("relax(int *)", 4000, 4_800_000, 2_000)),
        COPIES + rows(("[CUDA memcpy Host-to-Device]", 2, 2_700_000, 1_400_000), ("[CUDA memcpy Device-to-Host]", 2, 2_600_000, 1_350_000)),
    )  # fmt: skip
    assert found[0].startswith("relax: 4,000 short launches")


@pytest.mark.parametrize("direction", ["Host-to-Device", "Device-to-Device"])
def test_many_short_copies_are_told_from_times_alone(tmp_path: Path, direction: str) -> None:
    (found,) = titles(tmp_path, COPIES + rows((f"[CUDA memcpy {direction}]", 9000, 6_300_000, 9_000)))
    assert found.endswith("small ones, 0.7 µs each")


def test_copies_of_known_size_and_unknown_memory_say_what_to_do(tmp_path: Path) -> None:
    sizes = "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n"
    name = "[CUDA memcpy Host-to-Device]"
    (tmp_path / "sizes.csv").write_text(f"{sizes}500.000,2,250.000,250.000,250.000,250.000,0.000,{name}\n", "utf-8")
    (tmp_path / "times.csv").write_text(COPIES + rows((name, 2, 90_000_000, 46_000_000)), "utf-8")
    (found,) = analyse(load([tmp_path])).report.findings
    assert found.title.endswith("at 5.56 GB/s")
    assert found.do.startswith("Copy less")


def test_sleeping_threads_are_no_finding_beside_calls_of_cuda(tmp_path: Path) -> None:
    found = titles(
        tmp_path,
        "** OS Runtime Summary (osrt_sum):\n\n" + API + rows(("poll", 80, 9_000_000_000, 400_000_000)),
        "** CUDA API Summary (cuda_api_sum):\n\n" + API + rows(("cudaLaunchKernel", 900_000, 5_000_000_000, 9_000_000)),
    )
    assert [one.split(":")[0] for one in found] == ["cudaLaunchKernel"]


def test_bank_conflicts_are_told_without_a_time(tmp_path: Path) -> None:
    metric = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
    found = titles(
        tmp_path,
        "  flip(float *, const float *) (64, 64, 1)x(32, 8, 1), Context 1, Stream 7, Device 0, CC 8.0\n"
        "    Section: Command line profiler metrics\n"
        + "".join(
            f"    {line}\n"
            for line in (
                f"{'-' * len(metric)} ----------- ------------", f"{'Metric Name':{len(metric)}} Metric Unit Metric Value",
                f"{'-' * len(metric)} ----------- ------------", f"{metric}                1,015,808",
                f"{'-' * len(metric)} ----------- ------------",
            )
        ),
    )  # fmt: skip
    assert found == ["flip: 1,015,808 bank conflicts in shared memory, 31 a warp"]


def test_operations_of_2020_are_named_in_a_column_of_another_name(tmp_path: Path) -> None:
    head = "Time(%)  Total Time  Operations    Average   Minimum   Maximum  Name              \n"
    ruler = "-------  ----------  ----------  ---------  --------  --------  ------------------\n"
    row = "  100.0    90000000           2  45000000.0  42000000  48000000  [CUDA memcpy HtoD]\n"
    found = titles(tmp_path, f"CUDA Memory Operation Statistics (nanoseconds)\n\n{head}{ruler}{row}")
    assert found[0].startswith("Copies host to device")


def test_a_trace_of_the_cpu_tells_the_operators_inside_a_mark(tmp_path: Path) -> None:
    def of(category: str, name: str, start: int, length: int) -> dict[str, object]:
        return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": 7, "ts": start, "dur": length, "args": {}}

    events = [of("user_annotation", "forward", 0, 1000)]
    events += [of("cpu_op", "aten::conv2d", at, 180) for at in (10, 210, 410, 610)]
    events.append(of("cpu_op", "aten::relu", 800, 20))
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}), "utf-8")
    findings = analyse(load([tmp_path])).report.findings
    assert [one.title.split(":", 1)[0] for one in findings[:2]] == ["forward/aten", "forward"]
    assert findings[1].title == "forward: the time outside the ranges in it"
    assert not any("torch.profiler" in one.sentence for one in findings)
