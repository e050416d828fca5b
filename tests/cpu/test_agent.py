"""The forms of a report for programs: the document of agents, kernel_ledger.yaml, and lines for editors."""

import json
from pathlib import Path

import msgspec
import pandas as pd
import pytest
from msgspec import structs

from analysis import pipeline
from analysis.capture.load import load
from analysis.diagnosis.lines import with_lines
from analysis.formats import schema
from analysis.formats.agent import MOST_CHARACTERS, AgentReport
from analysis.formats.report import Cell, Finding, KernelRow, Report, SourceLine
from analysis.page import agent
from tests.checkout import ROOT

EXAMPLE = ROOT / "reports" / "h200-gpt2-fp32" / "captures"
BOUNDS = ("compute", "memory", "latency", "balanced", "comm")


@pytest.fixture(scope="module")
def example() -> pipeline.Built:
    return pipeline.analyse(load([EXAMPLE]))


def read(text: str) -> AgentReport:
    return msgspec.json.decode(text, type=AgentReport)


def test_the_committed_schema_of_the_document_is_that_of_its_structs() -> None:
    committed = Path(schema.__file__).parents[1] / "agent.schema.json"
    assert committed.read_text(encoding="utf-8") == schema.render("agent") + "\n"


def test_the_document_says_what_the_report_says(example: pipeline.Built) -> None:
    report, document = example.report, read(agent.render_agent(example.report))
    assert [one.id for one in document.findings] == [one.id for one in report.findings]
    assert [one.do for one in document.findings] == [one.do for one in report.findings]
    assert [one.name for one in document.kernels] == [one.short for one in report.kernels]
    assert len(report.kernels) > 10
    assert 0.5 < sum(one.frac or 0.0 for one in document.kernels) <= len(report.steps)
    assert agent.render_agent(report) == agent.render_agent(report)


def test_a_long_report_fits_and_says_what_it_leaves_out(example: pipeline.Built) -> None:
    first, row = example.report.findings[0], example.report.kernels[0]
    long: Report = structs.replace(
        example.report,
        findings=[structs.replace(first, id=f"f{place}", rank=place) for place in range(1, 60)],
        kernels=[structs.replace(row, short=f"{'kernel' * 8}{place}", ns=float(1000 - place)) for place in range(400)],
    )
    text = agent.render_agent(long)
    document = read(text)
    assert len(text) <= MOST_CHARACTERS
    assert document.left_out.kernels == 400 - len(document.kernels) > 0
    assert document.left_out.kernels_ns == sum(1000 - place for place in range(len(document.kernels), 400))
    assert document.left_out.findings == 59 - len(document.findings)
    assert document.findings[0].id == "f1"
    assert document.findings[0].cells


def test_an_unknown_number_is_left_out_or_null_and_never_zero(example: pipeline.Built) -> None:
    unknown = KernelRow("k", "k", "", None, float("nan"), None)
    text = agent.render_agent(structs.replace(example.report, kernels=[unknown]))
    assert json.loads(text)["kernels"] == [{"name": "k", "step": "", "launches": None, "ns": None, "frac": None}]


def test_the_ledger_answers_both_questions_for_every_large_kernel(example: pipeline.Built) -> None:
    ledger = json.loads(agent.render_ledger(example.report, example.tables))
    assert ledger["version"] == 1
    coverage = ledger["coverage"]
    assert coverage["enumerated_share_pct"] + coverage["other_share_pct"] == pytest.approx(100, abs=0.1)
    assert coverage["enumerated_share_pct"] == pytest.approx(
        sum(one["share_pct"] for one in ledger["kernels"]), abs=0.1
    )
    ids = {one.id for one in example.report.findings}
    labels = [one["kernel"] for one in ledger["kernels"]]
    assert len(set(labels)) == len(labels)
    for row in ledger["kernels"]:
        assert (row["ncu"]["bound"] if isinstance(row["ncu"], dict) else row["bound"]) in BOUNDS
        assert " -> THIS -> " in row["fusion"]["neighbors"]
        for question in ("faster", "fusion"):
            answer = row[question]
            assert (answer["ref"] in ids) == (answer["disposition"] == "item")
            assert answer["ref"].strip()


def test_a_finding_points_to_the_hottest_lines_of_its_kernel(example: pipeline.Built) -> None:
    source = pd.DataFrame(
        {
            "kernel": ["a", "a", "a", "b"],
            "place": ["dir/a.cu:12", "SASS 7", "dir/model.py:3", "b.cu:1"],
            "share_frac": [0.6, 0.2, 0.04, 1.0],
        }
    )
    about = [Cell("kernels", {"kernel": "a", "range": "x"}, "nsys_time_ns", 5)]
    first = structs.replace(example.report.findings[0], title="slow", do="Pad it.", kind="unknown", cells=about)
    found: list[Finding] = with_lines([first], source)
    assert found[0].source == [SourceLine("dir/a.cu", 12, "CUDA")]
    shown = agent.render_editor(structs.replace(example.report, findings=found))
    assert shown == "dir/a.cu:12: warning: slow. Pad it. [unknown]"
