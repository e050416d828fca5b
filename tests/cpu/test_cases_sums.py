"""Small sums of nsys whose kernel names hold ranges, alone and beside the same sums without ranges."""

from pathlib import Path

import pytest

from analysis.capture.load import load
from analysis.formats.errors import InputError
from analysis.pipeline import analyse

HEADER = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"


def sums(path: Path, *rows: tuple[str, int, int]) -> None:
    """Write cuda_gpu_kern_sum: (name, launches, ns of each)."""
    total = sum(count * each for _, count, each in rows)
    path.write_text(
        HEADER
        + "".join(
            f'{100 * count * each / total:.1f},{count * each},{count},{each}.0,{each}.0,{each},{each},0.0,"{name}"\n'
            for name, count, each in sorted(rows, key=lambda row: -row[1] * row[2])
        )
    )


BLUR, SHARPEN = "void blur<int>(float *, T1)", "sharpen(const float *, int)"


def places(folder: Path) -> dict[tuple[str, str], tuple[int, int]]:
    """Return (kernel, range) -> (launches, ns) of kernels.csv."""
    tables = analyse(load([folder])).tables
    rows = tables["kernels"].fillna({"range": ""})
    return {(one.kernel, one.range): (int(one.launches), int(one.nsys_time_ns)) for one in rows.itertuples()}


@pytest.mark.parametrize(
    ("ranges", "shown"),
    [
        (("load", "store"), ("load", "store")),
        ((":load", "io:store"), ("load", "io:store")),
        (("epoch/load", "epoch/store a/b"), ("epoch/load", "epoch/store a/b")),
        (("tile.0", "tile.1"), ("tile.*", "tile.*")),
    ],
)
def test_prefixes_of_kernel_names_are_ranges(tmp_path: Path, ranges: tuple[str, str], shown: tuple[str, str]) -> None:
    one, other = ranges
    sums(tmp_path / "sums.csv", (f"{one}/{BLUR}", 10, 400), (f"{other}/{SHARPEN}", 30, 100))
    assert places(tmp_path) == {("blur<int>", shown[0]): (10, 4_000), ("sharpen", shown[1]): (30, 3_000)}


def test_a_kernel_in_two_ranges_has_two_rows_and_one_outside_has_none(tmp_path: Path) -> None:
    sums(tmp_path / "sums.csv", (f"load/{BLUR}", 10, 400), (f"store/{BLUR}", 20, 100), (SHARPEN, 5, 100))
    assert places(tmp_path) == {
        ("blur<int>", "load"): (10, 4_000), ("blur<int>", "store"): (20, 2_000), ("sharpen", "outside every range"): (5, 500),
    }  # fmt: skip


def test_names_without_ranges_have_none(tmp_path: Path) -> None:
    sums(tmp_path / "sums.csv", (BLUR, 10, 400), ("Vector operator/<float>(float)", 5, 100))
    assert {place for _, place in places(tmp_path)} == {""}


def test_both_forms_of_one_report_in_a_folder_are_one_capture(tmp_path: Path) -> None:
    sums(tmp_path / "a.csv", (BLUR, 30, 200), (SHARPEN, 5, 100))
    sums(tmp_path / "b.csv", (f"load/{BLUR}", 10, 200), (f"store/{BLUR}", 20, 200), (f"store/{SHARPEN}", 5, 100))
    assert places(tmp_path)[("blur<int>", "store")] == (20, 4_000)
    assert load([tmp_path / "b.csv", tmp_path / "a.csv"]).nsys_kernel_sums["range"].tolist() == [
        "store",
        "load",
        "store",
    ]


def test_two_forms_of_different_captures_are_refused(tmp_path: Path) -> None:
    sums(tmp_path / "a.csv", (BLUR, 30, 201))
    sums(tmp_path / "b.csv", (f"load/{BLUR}", 30, 200))
    with pytest.raises(InputError, match="two different files of the nsys report cuda_gpu_kern_sum"):
        load([tmp_path])


@pytest.mark.parametrize(
    ("calls", "in_all", "once"),
    [
        ({"cudaMalloc": (400, 200, 400), "cudaFree": (401, 42, 583_000)}, "96.8 ms in all", "583 ms"),
        ({"cuMemAlloc_v2": (90, 300, 700), "cuMemFree_v2": (90, 100, 200)}, "36 ms in all", ""),
        ({"cudaMalloc": (60, 500, 90_000), "cudaFree": (60, 100, 210)}, "35.5 ms in all", "90 ms"),
    ],
)
def test_allocation_in_the_loop_is_one_finding_without_the_first_call(
    tmp_path: Path, calls: dict[str, tuple[int, int, int]], in_all: str, once: str
) -> None:
    rows = {"cuModuleLoadData": (30, 8_300, 9_000, 249_000)}
    for name, (count, each, longest) in calls.items():
        first = longest > 20 * each
        rows[name] = count, each, longest, (count - first) * each + longest * first
    lines = ["Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"]
    whole = sum(total for *_, total in rows.values())
    for name, (count, each, longest, total) in rows.items():
        times = f"{total}000,{count},{total * 1000 / count:.1f},{each}000.0,1000,{longest}000,0.0"
        lines.append(f"{100 * total / whole:.1f},{times},{name}")
    (tmp_path / "cuda_api_sum.csv").write_text("\n".join(lines) + "\n")
    first, *others = analyse(load([tmp_path])).report.findings
    assert first.kind == "allocation"
    assert in_all in first.sentence
    assert (f"takes {once} to set CUDA up, once" in first.sentence) == bool(once)
    assert not [one for one in others if one.kind == "allocation"]
