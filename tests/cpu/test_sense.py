"""Every kind of file gives a report that makes sense: the fixtures of the readers, and the committed runs."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from analysis import pipeline
from analysis.capture.load import load
from analysis.formats.errors import LedgerError
from analysis.page.markdown import render_markdown
from tests import committed, sense
from tests.declared import DECLARED
from tests.fuzz.seeds import Seed, seeds

ROOT = Path(__file__).parents[2]
SEEDS = {seed.name: seed for seed in seeds()}
# Files that hold nothing to report on by themselves; each is refused with a sentence.
PARTS = {
    "ncu log", "ops", "layer_events", "dataflow", "manifest", "timing", "ceilings",
    "tool-status", "sweep", "torch list", "nsys-rep", "junk", "count_plan", "selftest", "nccl_calls", "process_ranks",
    "dropin", "graph_kernels", "inductor",
}  # fmt: skip


def made_of(path: Path) -> tuple[pipeline.Report, str]:
    made = pipeline.analyse(load([path]), DECLARED)
    return made, render_markdown(made.content, made.tables, made.sections())


def written(seed: Seed, folder: Path) -> Path:
    path = folder / f"{seed.name.replace(' ', '_')}.x"
    path.write_bytes(seed.data)
    return path


@pytest.mark.parametrize("name", sorted(SEEDS.keys() - PARTS))
def test_the_report_of_a_kind_of_file_makes_sense(name, tmp_path):
    assert sense.problems(*made_of(written(SEEDS[name], tmp_path))) == []


@pytest.mark.parametrize("name", sorted(SEEDS.keys() & PARTS))
def test_a_file_that_is_a_part_of_something_is_refused_with_a_sentence(name, tmp_path):
    with pytest.raises(LedgerError, match=r"; .*\.$"):
        made_of(written(SEEDS[name], tmp_path))


@pytest.mark.parametrize("place", sorted(path.parent.name for path in ROOT.glob("reports/*/report.json")))
def test_the_committed_reports_make_sense(place):
    """As they stand there: content, tables and page, without building them again."""
    folder = ROOT / "reports" / place
    content = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    files = {entry["name"]: folder / entry["file"] for entry in content["tables"]}
    assert {name for name, file in files.items() if not file.is_file()} <= {committed.LEFT_OUT}
    columns = {entry["name"]: [one["name"] for one in entry["columns"]] for entry in content["tables"]}
    tables = {
        name: pd.read_csv(file, low_memory=False) if file.is_file() else pd.DataFrame(columns=columns[name])
        for name, file in files.items()
    }
    assert sense.problems_of(content, tables, (folder / "report.md").read_text(encoding="utf-8"), "nsys") == []


# What the check itself sees -----------------------------------------------------------------------------------------

FINDING = {
    "rank": 1, "title": "k: 3 short launches, 2 µs each", "time_to_win_ns": None,
    "sentence": "3 launches take 6 µs by nsys. A launch runs for 2 µs.",
    "evidence": [{"table": "kernels.csv", "row": "k", "column": "nsys_time_ns", "value": 6000}],
}  # fmt: skip
KERNELS = pd.DataFrame({"kernel": ["k", "k"], "range": ["a", "b"], "nsys_time_ns": [4000, 2000], "tier": "timing"})
COLUMNS = [{"name": "kernel", "evidence": "key"}, {"name": "range", "evidence": "key"},
           {"name": "nsys_time_ns", "evidence": "timing"}, {"name": "tier", "evidence": "row"}]  # fmt: skip
PAGE = "# A report\n\n## Kernels\n\n| kernel | ns |\n|---|---|\n| k | 1 |\n| l | 2 |\n"


def seen(page: str = PAGE, clock: str = "nsys", kernels: pd.DataFrame = KERNELS, **changed: object) -> list[str]:
    content = {
        "title": "Capture", "findings": [FINDING], "gaps": [], "trust": {}, "coverage": {},
        "tables": [{"name": "kernels", "columns": COLUMNS}], **changed,
    }  # fmt: skip
    return sense.problems_of(content, {"kernels": kernels}, page, clock)


def test_a_good_report_has_no_problem():
    assert seen() == []


@pytest.mark.parametrize(
    ("finding", "said"),
    [
        ({"title": "k takes 62% of the kernel time"}, "only restates a share"),
        ({"sentence": "3 launches take 6 µs by nsys."}, "only restates a share"),
        ({"title": "k: waits, 0% of the time"}, "is of nothing"),
        ({"sentence": "It takes 6 µs. The longest is 7, the shortest 2 µs."}, "the number 7 has no unit"),
        ({"evidence": []}, "cites no cell"),
        ({"evidence": [{**FINDING["evidence"][0], "value": 5000}]}, "cites 5000 of kernels.nsys_time_ns"),
        ({"evidence": [{**FINDING["evidence"][0], "column": "nothing"}]}, "which is not there"),
    ],
)
def test_a_finding_without_sense_is_seen(finding, said):
    assert any(said in problem for problem in seen(findings=[{**FINDING, **finding}]))


def test_what_else_makes_no_sense_is_seen():
    assert seen(findings=[]) == ["there are times and no finding"]
    assert "have the title" in seen(findings=[FINDING, FINDING])[0]
    assert "is empty" in seen(page="# A\n\n## Kernels\n\n## Files\n\nx\n")[0]
    assert "print the same" in seen(page=PAGE.replace("| l | 2 |", "| k | 1 |"))[0]
    assert "without a value" in seen(kernels=KERNELS.assign(nsys_time_ns=pd.NA), findings=[FINDING])[-1]
    assert "lacks what, why or fix" in seen(gaps=[{"what": "a", "why": "b", "fix": ""}])[0]
    assert "stands there 2 times" in seen(gaps=[{"what": "a", "why": "b", "fix": "c"}] * 2)[0]
    assert "said to be by nsys" in seen(clock="torch")[0]
    assert "the title says CPU" in seen(title="Capture on the CPU")[0]
    counted = KERNELS.assign(tier="counters")
    assert "has some" in seen(kernels=counted, trust={"sentence": "This report holds no hardware counters."})[0]


def test_the_program_counts_outcomes_and_writes_them(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "nsys"
    folder.mkdir()
    written(SEEDS["nsys sums"], folder)
    written(SEEDS["junk"], folder)
    out = tmp_path / "out.csv"
    monkeypatch.setattr("sys.argv", ["sense", str(tmp_path), "--csv", str(out)])
    assert sense.main() == 0
    assert pd.read_csv(out)["outcome"].tolist() == ["refused", "reasons"]
    assert "reasons" in capsys.readouterr().out
