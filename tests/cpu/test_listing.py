"""The listing of a kernel's source: lines and instructions with their sums, in every language, side by side."""

from pathlib import Path

import pandas as pd
import pytest

from analysis.capture.load import load
from analysis.facts import Facts
from analysis.tables.listing import build_listing, language_of

ROOT = Path(__file__).resolve().parents[2]
# One launch with two lines: line 7 has the instructions 0 and 2, line 9 has 1. The page repeats none.
PAGE = """"File Path","/tmp/torchinductor/{file}"
"Function Name","{kernel}"
"Line No","Source","Address","Source","Warp Stall Sampling (All Samples)","Warp Stall Sampling (Not-issued Samples)","Instructions Executed","Thread Instructions Executed","L2 Theoretical Sectors Global","L2 Theoretical Sectors Global Ideal","stall_long_scoreboard","stall_wait"
"7","x = tl.load(p)","-","-","12","9","20","640","64","16","9","3"
"","","0x0","LDG.E R2, [R4]","3","2","10","320","64","16","1","2"
"","","0x20","FADD R1, R2, R2","9","7","10","320","-","-","8","1"
"9","tl.store(q, x)","-","-","4","4","10","320","8","8","-","4"
"","","0x10","STG.E [R6], R1","4","4","10","320","8","8","-","4"
"""


def rows_of(tmp_path: Path, file: str, kernel: str) -> pd.DataFrame:
    path = tmp_path / "source.csv"
    path.write_text(PAGE.format(file=file, kernel=kernel))
    return build_listing(Facts(load([path])))


@pytest.mark.parametrize(
    ("file", "language"), [("fused.cu", "CUDA"), ("triton_add.py", "Python"), ("kernel.ptx", "PTX")]
)
def test_lines_come_in_order_and_then_the_instructions(tmp_path: Path, file: str, language: str) -> None:
    rows = rows_of(tmp_path, file, "triton_poi_fused_add_0")
    assert rows["language"].tolist() == [language, language, "SASS", "SASS", "SASS"]
    assert rows["file"].unique().tolist() == [file]
    assert rows["line"].tolist() == [7, 9, 7, 9, 7]
    assert rows["instruction"].fillna(-1).tolist() == [-1, -1, 0, 1, 2]
    assert rows["text"].tolist()[:3] == ["x = tl.load(p)", "tl.store(q, x)", "LDG.E R2, [R4]"]


def test_a_line_has_the_sums_of_its_instructions(tmp_path: Path) -> None:
    line = rows_of(tmp_path, "a.cu", "k").iloc[0]
    assert line["samples"] == 3 + 9
    assert line["share_frac"] == pytest.approx(12 / 16)
    assert line["inst_executed"] == 20
    assert line["l2_bytes"] == 64 * 32
    assert line["sectors_over_ideal"] == 4.0
    assert line["stall"] == "long_scoreboard"  # its largest stall is that of instruction 2, with 8 samples


def test_the_ptx_of_a_line_has_the_sums_of_what_it_became(tmp_path: Path) -> None:
    path, page = tmp_path / "ncu_source.csv", PAGE.format(file="a.cu", kernel="k").splitlines()
    ptx = [None, None, "PTX", "", "ld.global.f32 %f1, [%rd1];", "ld.global.f32 %f1, [%rd1];", "", "{"]
    path.write_text(
        "".join(f'{row},"{one}"\n' if one is not None else f"{row}\n" for row, one in zip(page, ptx, strict=True))
    )
    rows = build_listing(Facts(load([path])))
    assert rows["language"].tolist() == ["CUDA", "CUDA", "PTX", "SASS", "SASS", "SASS"]
    one = rows.iloc[2]  # instructions 0 and 2, of line 7; a brace is no instruction
    assert (one["text"], one["file"], one["line"], one["instruction"]) == ("ld.global.f32 %f1, [%rd1];", "a.cu", 7, 0)
    assert (one["samples"], one["inst_executed"], one["l2_bytes"]) == (12, 20, 64 * 32)


def test_an_inlined_instruction_counts_for_the_line_of_the_users_file(tmp_path: Path) -> None:
    """The page lists FADD under a line of CUDA's header first; the kernel begins in a.cu."""
    page = PAGE.format(file="a.cu", kernel="k")
    head, rows = page.splitlines()[:3], page.splitlines()[3:]
    header = head[0].replace("a.cu", "device_functions.hpp")
    inlined = [header, *head[1:], rows[0].replace('"7"', '"99"'), rows[2]]
    (tmp_path / "s.csv").write_text("\n".join([*inlined, *page.splitlines()]) + "\n")
    rows = build_listing(Facts(load([tmp_path / "s.csv"])))
    lines = rows[rows["language"] == "CUDA"]
    assert lines[["file", "line", "samples"]].to_numpy().tolist() == [["a.cu", 7, 12], ["a.cu", 9, 4]]


def test_a_line_that_ncu_could_not_open_has_no_text(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(
        PAGE.format(file="a.cu", kernel="k").replace("tl.store(q, x)", "<Unable to open source file>")
    )
    assert build_listing(Facts(load([tmp_path / "s.csv"])))["text"].tolist()[:2] == ["x = tl.load(p)", ""]


def test_a_number_that_was_not_counted_stays_unknown(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "a.cu", "k")
    assert rows.iloc[4]["text"] == "FADD R1, R2, R2"
    assert pd.isna(rows.iloc[4]["l2_bytes"])
    assert pd.isna(rows.iloc[4]["sectors_over_ideal"])


def test_without_a_source_page_there_is_no_listing() -> None:
    assert len(build_listing(Facts(load([ROOT / "reports/h200-lectures/captures/ncu_raw.csv"])))) == 0


@pytest.mark.slow
def test_committed_kernels_have_their_cuda_beside_their_sass() -> None:
    rows = build_listing(Facts(load([ROOT / "kernels/specimens/captures/development"])))
    found = rows[rows["kernel"] == "add_bias"]
    assert found["language"].value_counts().to_dict() == {"SASS": 39, "CUDA": 4}  # addresses 0x0 to 0x260
    hottest = found[found["language"] == "CUDA"].dropna(subset="samples").sort_values("samples").iloc[-1]
    assert (hottest["file"], hottest["line"], hottest["samples"]) == ("clean.cu", 156, 25)
    assert hottest["text"] == "out[i] = x[i] + bias[i % columns];"


def test_a_language_is_told_by_the_suffix() -> None:
    assert [language_of(name) for name in ("a.cu", "a.cuh", "b.py", "c.ptx")] == ["CUDA", "CUDA", "Python", "PTX"]
