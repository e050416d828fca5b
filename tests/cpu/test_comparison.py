"""Two sides: what is aligned, where the time went, what is decided, and what a gate says."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import kernel_ledger
from analysis import compare as command
from analysis.comparison import align, runs, verdict
from analysis.comparison.compare import of_sides
from analysis.comparison.verdict import Floats
from analysis.formats.comparison import MIRROR, ROUNDS, TURNS, Basis, Match, Verdict
from tests.nsys_export import Export

DECIDED = (Verdict.FASTER, Verdict.SLOWER)


def capture(folder: Path, kernels: dict[str, int], *, gap: int = 10_000, gpu: str = "NVIDIA H200") -> Path:
    """Save a timeline of 8 steps: each kernel (name: ns) in the range `layer`, then the host works for `gap`."""
    folder.mkdir(exist_ok=True)
    export, at = Export(2025), 1_000_000
    export.gpu(name=gpu)
    for _ in range(8):
        begin, busy = at, at + 6_000
        for name, ns in kernels.items():
            export.launch(name, (at, at + 3_000), (busy, busy + ns))
            at, busy = at + 4_000, busy + ns
        export.push("layer", begin, at)
        at = max(at, busy) + gap
    export.save(folder / "x.sqlite")
    return folder


def rounds(path: Path, times: Floats, name: str = "k", *, turns: bool = True, place: int = 0) -> Path:
    """Write rounds.csv. Shape: (runs, kernels)."""
    rows = [
        (run, run + 1 if turns else 0, 2 * run + place, "step", "", f"{name}{kernel}", 1, ns)
        for run, own in enumerate(times)
        for kernel, ns in enumerate(own)
    ]
    path.write_text(ROUNDS.text(rows), encoding="utf-8")
    return path


def noisy(seed: int, runs: int, kernels: int, growth: float = 0.0, noise: float = 0.001) -> tuple[Floats, Floats]:
    random = np.random.default_rng(seed)
    drift = random.normal(0, 0.01, (runs, 1))  # of both sides of a round
    a, b = (100_000 * np.exp(drift + random.normal(0, noise, (runs, kernels))) for _ in range(2))
    return a, b * (1 + growth)


# Verdicts


@pytest.mark.slow
@pytest.mark.parametrize("paired", [True, False])
def test_two_equal_sides_are_hardly_ever_told_apart(paired: bool) -> None:
    alarms = 0
    for seed in range(100 if paired else 30):
        a, b = noisy(seed, 10, 8)
        alarms += any(one.verdict in DECIDED for one in verdict.judge(a, b, paired=paired))
    assert alarms <= 3  # 1 % of 100 is 1


@pytest.mark.parametrize(("growth", "paired", "runs"), [(0.01, True, TURNS), (0.05, True, 14), (0.05, False, 9)])
def test_a_slow_down_is_found_and_mirrored(growth: float, paired: bool, runs: int) -> None:
    a, b = noisy(7, runs, 5, growth)
    there, back = verdict.judge(a, b, paired=paired), verdict.judge(b, a, paired=paired)
    assert {one.verdict for one in there} == {Verdict.SLOWER}
    for one, other in zip(there, back, strict=True):
        assert other.verdict is MIRROR[one.verdict]
        assert one.low is not None
        assert one.high is not None
        assert other.high is not None
        assert one.low < 1 + growth < one.high
        assert other.high == pytest.approx(1 / one.low)


def test_an_unsure_verdict_says_how_many_runs_decide_it() -> None:
    a, b = noisy(3, TURNS, 1, 0.01, noise=0.015)
    (unsure,) = verdict.judge(a, b, paired=True)
    assert unsure.verdict is Verdict.UNSURE
    assert unsure.more
    more_a, more_b = noisy(3, TURNS + 2 * unsure.more, 1, 0.01, noise=0.015)
    assert verdict.judge(more_a, more_b, paired=True)[0].verdict is Verdict.SLOWER


# Alignment


def items(*rows: tuple[str, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["layer", "kernel"])


def aligned(a: pd.DataFrame, b: pd.DataFrame) -> set[tuple[str, Match, tuple[str, ...], tuple[str, ...]]]:
    found = align.align(a, b)
    assert sorted(row for one in found for row in one.a) == list(range(len(a)))
    assert sorted(row for one in found for row in one.b) == list(range(len(b)))
    return {(one.layer, one.match, one.a_names, one.b_names) for one in found}


def test_kernels_align_by_range_name_and_ordinal_then_by_their_place() -> None:
    a = items(
        ("h.*/attn", "gemm"), ("h.*/attn", "scale"), ("h.*/attn", "softmax"), ("h.*/attn", "gemm"), ("h.*", "old")
    )
    b = items(("h.*/attn", "gemm"), ("h.*/attn", "fused"), ("h.*/attn", "gemm"), ("h.*/mlp", "new"))
    assert aligned(a, b) == {
        ("h.*/attn", Match.NAME, ("gemm",), ("gemm",)),
        ("h.*/attn", Match.REPLACED, ("scale", "softmax"), ("fused",)),
        ("h.*", Match.REPLACED, ("old",), ("new",)),  # A has no range h.*/mlp
    }


def test_a_kernel_that_one_side_launches_more_often_is_one_row() -> None:
    assert aligned(items(("", "k")), items(("", "k"), ("", "k"), ("", "other"))) == {
        ("", Match.NAME, ("k",), ("k",)),
        ("", Match.ONLY_B, (), ("other",)),
    }


# Captures


def test_the_waterfall_of_two_captures_adds_up_and_names_what_changed(tmp_path: Path) -> None:
    a = capture(tmp_path / "a", {"scale": 20_000, "softmax": 50_000, "gemm": 100_000})
    b = capture(tmp_path / "b", {"fused": 30_000, "gemm": 110_000}, gap=40_000)
    (step,) = kernel_ledger.compare(a, b).steps
    assert step.a_ns is not None
    assert step.b_ns is not None
    assert sum(bar.ns for bar in step.waterfall) == step.b_ns - step.a_ns
    by_name = {bar.what: bar for bar in step.waterfall}
    assert by_name["scale + softmax"].ns == -40_000
    assert by_name["scale + softmax"].cause.startswith("replaced by fused")
    assert by_name["gemm"].ns == 10_000
    assert abs(by_name["residual"].ns) <= 5
    assert sum(bar.ns for bar in step.waterfall if bar.layer == "host") == pytest.approx(26_000, abs=2_000)
    assert step.judged.verdict is Verdict.UNSURE
    assert "make ab" in step.judged.why


@pytest.mark.slow
def test_several_captures_a_side_are_samples(tmp_path: Path) -> None:
    a = [capture(tmp_path / f"a{run}", {"k": 100_000 + 10 * run}) for run in range(6)]
    b = [capture(tmp_path / f"b{run}", {"k": 150_000 + 10 * run}) for run in range(6)]
    found = kernel_ledger.compare(a, b)
    assert found.a.runs == found.b.runs == 6
    assert not found.paired
    assert found.judged.verdict is Verdict.SLOWER


def test_identical_files_are_the_same_everywhere(tmp_path: Path) -> None:
    a = capture(tmp_path / "a", {"k": 100_000})
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.sqlite").write_bytes((a / "x.sqlite").read_bytes())
    found = kernel_ledger.compare(a, tmp_path / "b")
    rows = [row.judged for step in found.steps for row in step.rows]
    assert {one.verdict for one in rows if one} == {Verdict.SAME}
    assert found.judged.basis is Basis.FILES


@pytest.mark.slow
def test_another_gpu_is_named_first_and_withholds_every_verdict(tmp_path: Path) -> None:
    a = [capture(tmp_path / f"a{run}", {"k": 100_000}) for run in range(6)]
    b = [capture(tmp_path / f"b{run}", {"k": 200_000}, gpu="NVIDIA H100") for run in range(6)]
    found = kernel_ledger.compare(a, b)
    assert found.differences[0].name == "GPU"
    assert found.differences[0].decides
    assert found.judged.verdict is Verdict.UNSURE
    assert found.judged.why.startswith("withheld: GPU")


# Rounds, tables, and the command


CENSUS = "op,source,kernel,sm,nvcc,registers,stack_bytes,spill_bytes,shared_bytes,local_instructions,instructions,code_bytes\n"


def census(path: Path, registers: int = 40, spills: int = 0) -> Path:
    path.write_text(f"{CENSUS}softmax,v01.cu,softmax_v01,90,13.0,{registers},0,{spills},0,0,100,1600\n")
    return path


def test_a_census_decides_without_times(tmp_path: Path) -> None:
    before, after = census(tmp_path / "a.csv"), census(tmp_path / "b.csv", 48, 16)
    row = kernel_ledger.compare(before, after).steps[0].rows[0]
    assert row.judged is not None
    assert (row.judged.verdict, row.judged.basis) == (Verdict.SLOWER, Basis.EXACT)
    assert {one.name for one in row.quantities if one.differs} == {"registers", "spill_bytes"}
    assert kernel_ledger.compare(after, before).judged.verdict is Verdict.FASTER


GATE = '[[rule]]\nname = "{name}"\nmetric = "{metric}"\n{limit}\n'


@pytest.mark.parametrize(
    ("limit", "metric", "code"),
    [
        ("most = 64", "registers", 0), ("most = 44", "registers", 4), ("most_growth = 0.0", "spill_bytes", 4),
        ("most_growth = 0.0\nkernel = 'gelu*'", "registers", 2), ("most = 1", "dram_bytes", 2), ("most = 1", "speed", 2),
        ("most = 1\nleast = 1", "registers", 2),
    ],
)  # fmt: skip
def test_a_gate_passes_fails_or_matches_nothing(
    tmp_path: Path, limit: str, metric: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = census(tmp_path / "a.csv"), census(tmp_path / "b.csv", 48, 16)
    rules = tmp_path / "gate.toml"
    rules.write_text(GATE.format(name="rule", metric=metric, limit=limit))
    junit, sarif = tmp_path / "j.xml", tmp_path / "s.json"
    given = ["--gate", str(rules), "--junit", str(junit), "--sarif", str(sarif), str(before), "--", str(after)]
    assert command.main(given) == code
    said = capsys.readouterr()
    if code == 2:
        assert said.err.count("\n") == 1
        assert "Traceback" not in said.err
        return
    case = ElementTree.parse(junit).getroot()[0]
    assert [one.tag for one in case] == (["failure"] if code else [])
    results = json.loads(sarif.read_text("utf-8"))["runs"][0]["results"]
    assert len(results) == (code == 4)
    if results:
        assert results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "kernels/softmax/v01.cu"


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("nowhere", "nowhere", "no such file"),
        ("a.csv", "b.csv", "no number above zero"),
        ("a2.csv", "c.csv", "in common"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path, a: str, b: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    times = np.full((2, 1), 1000.0)
    rounds(tmp_path / "a.csv", times * np.nan)
    rounds(tmp_path / "a2.csv", times)
    rounds(tmp_path / "b.csv", times)
    census(tmp_path / "c.csv")
    code = command.main([str(tmp_path / a), "--", str(tmp_path / b)])
    out = capsys.readouterr()
    assert code == 3
    assert out.out == ""
    assert out.err.count("\n") == 1
    assert said in out.err or "one kind" in out.err


def test_every_form_shows_the_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = capture(tmp_path / "a", {"scale<1>": 20_000, "gemm": 100_000})
    b = capture(tmp_path / "b", {"<script>fused": 30_000, "gemm": 110_000})
    page, comment = tmp_path / "c.html", tmp_path / "c.md"
    assert command.main(["--html", str(page), str(a), "--", str(b), "--markdown", str(comment)]) == 0
    out = capsys.readouterr().out
    for text in (out, page.read_text("utf-8"), comment.read_text("utf-8")):
        assert "gemm" in text
        assert "UNSURE" in text
        assert "+10 µs" in text
    assert "<script>fused" not in page.read_text("utf-8")
    assert command.main(["--json", str(a), "--", str(b)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "comparison"
    assert document["steps"][0]["waterfall"]


def test_a_side_without_counters_is_named(tmp_path: Path) -> None:
    times = noisy(4, TURNS, 2)
    sides = [runs.read([rounds(tmp_path / f"{place}.csv", own, place=place)]) for place, own in enumerate(times)]
    counted = replace(sides[0], runs=(replace(sides[0].runs[0], counted=True), *sides[0].runs[1:]))
    assert any("1.csv has no counters" in note for note in of_sides(counted, sides[1]).notes)
