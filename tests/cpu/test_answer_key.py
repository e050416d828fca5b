"""The answer key: its declarations, what was measured, its captures and its scores."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from analysis import api, pipeline
from analysis.diagnosis.built import further
from analysis.formats import packed
from analysis.formats.report import Finding, Report, kinds
from tests.checkout import loaded

KEY = Path(__file__).resolve().parents[1] / "answer_key"


@pytest.fixture(scope="module")
def score() -> Any:
    return loaded("tests/answer_key/score.py")


def test_every_program_has_its_declaration_times_and_capture(score: Any) -> None:
    for name in (*score.SETS, score.PAPER):
        declared, known = score.declared(name), score.truths(name)
        assert set(declared) == {path.stem for path in (KEY / name).iterdir() if path.suffix in (".py", ".cu")}
        ran = {program for program, one in declared.items() if not one.get("uncaptured")}
        assert ran <= {program for program, _ in known} <= set(declared)
        assert {program for program, _ in score.captured(name, "", "")} == ran


def test_captures_are_packed_without_a_loss(score: Any, tmp_path: Path) -> None:
    pack, name = score.pack, "tensor_parallel-h100"  # two processes: it has cuda_kern_exec_trace
    files = dict(pack.parts(KEY / "blind_screen", name))
    pack.columns.write({name: pack.packed_files(files.items())}, tmp_path / pack.ARCHIVE)
    assert set(pack.read(tmp_path)[name]["a/cuda_kern_exec_trace.csv"]) == {"kernel", "call", "queued"}
    assert dict(pack.parts(tmp_path, name)) == files


def test_captures_name_no_machine(score: Any, tmp_path: Path) -> None:
    score.unpack("tuned", "norm_few_blocks", "h100", tmp_path)
    texts = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.csv")]
    assert len(texts) == 4
    assert not any(word in text for text in texts for word in ("/root", "/tmp", "/opt"))


def named_ns(sentence: str) -> float:
    """Return the sum of the times that a sentence names, ns."""
    units = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9}
    return sum(
        float(time.replace(",", "")) * units[unit] for time, unit in re.findall(r"([\d.,]+) (ns|µs|ms|s)\b", sentence)
    )


def saves_more_than_it_names(finding: Finding) -> bool:
    """Return whether a finding on a step saves more than measured fixes of what its sentence names, and does not say so."""
    ends = [one.high for one in (finding.saves_ns, finding.later and finding.later.saves_ns) if one and one.high]
    if (
        not ends
        or finding.scope == "program"
        or kinds()[finding.kind]["part"] == "clean"
        or finding.kind.endswith("_roof")
    ):
        return False
    return max(ends) > 1.01 * further(finding.kind) * named_ns(finding.sentence) and "high end" not in finding.sentence


@pytest.mark.slow
def test_no_finding_saves_more_than_its_sentence_names(score: Any, tmp_path: Path) -> None:
    folders = [score.unpack("tuned", *place, tmp_path) for place in score.captured("tuned", "", "")]
    reports = {
        str(path): pipeline.analyse(one, api.declared(one)).report for path in folders for one in [api.load(path)]
    }
    written = KEY.parents[1].glob("reports/*/report.json*")
    reports |= {str(path): msgspec.json.decode(packed.read_bytes(path), type=Report) for path in written}
    told = [(name, one) for name, report in reports.items() for one in report.findings]
    assert len(told) > 100
    assert [(name, one.title, one.sentence) for name, one in told if saves_more_than_it_names(one)] == []


def test_saving_is_the_median_of_rounds_and_a_wide_interval_does_not_count(score: Any) -> None:
    known = score.truth({"block": 2, "a": [0.002, 0.004, 0.002], "b": [0.001, 0.002, 0.001]})
    assert (known.a_ms, known.saving, known.low, known.high) == (2.0, 0.5, 0.5, 0.5)
    assert known.counts
    assert not score.truth({"block": 2, "a": [0.002, 0.002, 0.002], "b": [0.001, 0.002, 0.0005]}).counts


def test_first_look_is_never_written_again(score: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "HERE", tmp_path)
    (tmp_path / "tuned").mkdir()
    score.save([{"looked": "one"}], "tuned", "replay")
    score.save([{"looked": "two"}], "tuned", "replay")
    assert (tmp_path / "tuned/replay_first_look.csv").read_text(encoding="utf-8").split() == ["looked", "one"]
    assert (tmp_path / "tuned/replay_latest.csv").read_text(encoding="utf-8").split() == ["looked", "two"]


@pytest.mark.parametrize("program", ["score", "measured"])
def test_readme_shows_the_tables_that_the_program_prints(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = loaded(f"tests/answer_key/{program}.py")
    module.main(["--sets"] if program == "score" else ["sets"])
    readme = (KEY / "README.md").read_text(encoding="utf-8")
    assert [line for line in capsys.readouterr().out.splitlines() if line not in readme] == []


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("kernels_3", 50),
        ("kernels_4", 48),
        ("kernels_5", 47),
        ("kernels_6", 60),
        ("kernels_7", 75),
        ("kernels_8", 75),
        ("kernels_9", 68),
        ("kernels_10", 72),
        ("kernels_11", 76),
        ("kernels_12", 84),
        ("kernels_13", 88),
        ("kernels_14", 88),
        ("kernels_15", 72),
        ("kernels_clean", 138),
    ],
)
def test_kernels_declare_known_causes_and_enough_clean_ones(name: str, least: int) -> None:
    """The truth of a set stands in its sources, before any capture: name, cause, causes that are as right."""
    found = [
        one
        for path in (KEY / name).glob("*.cu")
        for one in re.findall(r'push_back\(\{"(\w+)", "(\w+)", "([\w|]*)"', path.read_text(encoding="utf-8"))
    ]
    assert len({kernel for kernel, _, _ in found}) == len(found) >= least
    assert {cause for _, *causes in found for one in causes for cause in filter(None, one.split("|"))} <= set(kinds())
    assert sum(cause in ("none_at_roof", "launch_latency") for _, cause, _ in found) >= 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "full", "default", "clean", "traps"),
    [
        ("kernels", 34, 34, (8, 8), (5, 5)),
        ("kernels_2", 34, 44, (10, 10), (0, 5)),
        ("kernels_3", 17, 30, (0, 9), (0, 7)),
        ("kernels_4", 32, 31, (9, 9), (6, 6)),
        ("kernels_5", 28, 27, (8, 8), (5, 5)),
        ("kernels_6", 40, 39, (1, 13), (4, 4)),
        ("kernels_7", 9, 49, (19, 19), (7, 7)),
        ("kernels_8", 53, 52, (14, 14), (7, 7)),
        ("kernels_9", 41, 47, (11, 12), (5, 6)),
        ("kernels_10", 49, 47, (13, 12), (8, 8)),
        ("kernels_11", 51, 49, (12, 12), (7, 7)),
        ("kernels_12", 57, 56, (13, 13), (8, 8)),
        ("kernels_13", 27, 53, (7, 15), (0, 8)),
        ("kernels_14", 48, 58, (12, 14), (5, 9)),
        ("kernels_15", 48, 47, (12, 12), (9, 9)),
    ],
)
def test_causes_of_unseen_kernels_stay_as_right_as_they_were(
    name: str, full: int, default: int, clean: tuple[int, int], traps: tuple[int, int]
) -> None:
    rows = loaded("tests/answer_key/kernels/score.py").score(name)
    right = rows.groupby(["metrics", "kind"])["right"].sum().to_dict()
    assert right["full", "defect"] >= full
    assert right["default", "defect"] >= default
    assert (right.get(("full", "clean"), 0), right["default", "clean"]) == clean  # not all clean ones have all metrics
    assert (right.get(("full", "trap"), 0), right["default", "trap"]) == traps


@pytest.mark.slow
def test_kernels_have_causes_on_a_gpu_without_dram_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    score = loaded("tests/answer_key/kernels/score.py")
    whole = score.load

    def of_gb10(paths: list[Path]) -> Any:
        read = whole(paths)
        dram = [name for name in read.counters if "dram" in name]
        return replace(read, counters=read.counters.drop(columns=dram).assign(cc="12.1"))

    monkeypatch.setattr(score, "load", of_gb10)
    rows = score.score("kernels_15")
    right = rows[rows["metrics"] == "full"].groupby("kind")["right"].sum()
    assert right["defect"] >= 34  # with DRAM counters 36: an H200's counts do not fit the rates of a 12.1
    assert (right["clean"], right["trap"]) == (12, 9)  # none is advised


def test_changes_become_delays_and_slopes_become_savings() -> None:
    """A change is asked for as delays; what these showed and what it takes away say what it saves."""
    measured = loaded("tests/answer_key/measured.py")
    assert measured.asked(["--drop", "copy_kernel|cudaFree"])[:4] == ["--host", "cudaFree", "--kernel", "copy_kernel"]
    assert measured.asked(["--scale", "gemm=0.5"]) == ["--kernel", "gemm", "--remove", "gemm"]
    assert measured.asked(["--host", "load batch=0"]) == ["--host", "load batch", "--virtual-host", "load batch"]

    def row(change: str, slope: float, width: float = 0.02, **more: Any) -> dict[str, Any]:
        known = {"change": change, "target": "k", "slope": slope, "low": slope - width / 2, "high": slope + width / 2}
        return known | {"step_ns": 1e6, "per_step": 4} | more

    def saves(change: list[str], *rows: dict[str, Any], of: Any = None, replay: float | None = 0.1) -> float | None:
        found = {"idle_step_ns": 1e6, "targets": list(rows)}
        return measured.predicted(found, change, of or taken, replay)  # type: ignore[no-any-return]

    taken = measured.Gone(gpu=4e5, host=0.0, staged=0.0, step=1.2e6, bare=1e6, alone=9e5, most=0.5)
    drop = ["--drop", "k"]
    assert saves(drop, row("delay", 1.0), row("remove", 0.6)) == pytest.approx(0.4)
    assert saves(drop, row("delay", 1.0), row("remove", 0.2)) == pytest.approx(0.21)
    assert saves(drop, row("delay", 1.0), row("remove", -0.2)) == pytest.approx(0.01)
    assert saves(drop, row("delay", 0.0), row("remove", 0.05)) == 0
    assert saves(drop, row("delay", 0.0), row("remove", 0.2)) == pytest.approx(0.19)  # it slows what runs beside it
    assert saves(["--scale", "k=0.5"], row("delay", 0.2), row("remove", 0.3)) == pytest.approx(0.145)
    assert saves(["--merge", "k"], row("delay", 0.7)) == saves(drop, row("delay", 0.7)) == 0.1
    assert saves(drop, row("delay", 0.6, width=0.4), row("remove", 0.2)) == pytest.approx(0.19)
    calls = measured.Gone(gpu=0.0, host=3e5, staged=3e5, step=1.2e6, bare=1e6, alone=6e5, most=0.25)
    for part, won in ((2e5, 0.2), (3e5, 0.25)):
        assert saves(["--drop", "cudaFree"], row("host", 1.0, part_ns=part), of=calls) == pytest.approx(won)
    assert saves(["--stream", "k=s"], row("delay", 1.0)) is None
    half = measured.Gone(gpu=8e5, host=0.0, staged=0.0, step=2.4e6, bare=2e6, alone=1.8e6, most=0.5)
    assert saves(drop, row("delay", 1.0), row("remove", 0.6), of=half) == pytest.approx(0.4)
    host = [row("host", 0.9, width=0.5), row("virtual-host", 0.5, part_ns=4e5)]
    assert saves(["--host", "k=0.5"], *host) == pytest.approx(0.1)
    for slope, said, won in ((1.0, 0.1, 0.504), (1.0, 0.6, 0.6), (1.0, 0.7, 0.63), (0.0, 0.1, 0.0)):
        host = [row("host", slope), row("virtual-host", 0.8, part_ns=9e5)]
        assert saves(["--host", "k=0.3"], *host, replay=said) == pytest.approx(won)
    for alone, won in ((6e5, 0.3), (8e5, 0.2), (9.5e5, 0.1)):  # pauses go as far as the GPU's own path leaves them
        apart = replace(taken, gpu=1e5, pauses=2e5, alone=alone)
        assert saves(["--merge", "k"], row("delay", 1.0), of=apart, replay=0.4) == pytest.approx(won)
