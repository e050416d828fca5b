"""The forms of a report for programs: the document of agents, kernel_ledger.yaml, lines for editors, SARIF, issues."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pandas as pd
import pytest
from msgspec import convert, structs

from analysis import pipeline
from analysis.capture.load import load
from analysis.diagnosis.lines import with_lines
from analysis.formats import packed
from analysis.formats.agent import MOST_CHARACTERS, AgentReport
from analysis.formats.errors import InputError, UsageError
from analysis.formats.report import (
    Cell,
    Disposition,
    Finding,
    KernelRow,
    Program,
    Report,
    SourceLine,
)
from analysis.page import agent, editor, ledger, markdown
from analysis.show import find_finding
from tests.checkout import ROOT, loaded
from tests.nsys_export import Export

EXAMPLE = ROOT / "reports" / "h200-gpt2-fp32" / "captures"
COMMITTED = [*(ROOT / "reports").glob("*/report.json*"), *(ROOT / "examples").glob("*/*/report.json.xz")]
BOUNDS = ("compute", "memory", "latency", "balanced", "comm")
QUESTIONS = {"elimination": "why_it_runs", "faster": "", "fusion": "neighbors", "overlap": "concurrent_with"}


@pytest.fixture(scope="module")
def example() -> pipeline.Built:
    return pipeline.analyse(load([EXAMPLE]))


def read(text: str) -> AgentReport:
    return msgspec.json.decode(text, type=AgentReport)


@pytest.mark.slow
def test_the_document_says_what_the_report_says(example: pipeline.Built) -> None:
    report, document = example.report, read(agent.render_agent(example.report, example.tables))
    assert [one.id for one in document.findings] == [one.id for one in report.findings]
    assert [one.do for one in document.findings] == [one.do for one in report.findings]
    assert [one.name for one in document.kernels] == [one.short for one in report.kernels]
    assert len(report.kernels) > 10
    assert 0.5 < sum(one.frac or 0.0 for one in document.kernels) <= len(report.steps)
    assert agent.render_agent(report, example.tables) == agent.render_agent(report, example.tables)


@pytest.mark.slow
def test_every_finding_that_asks_for_a_change_says_how_to_check_it(example: pipeline.Built) -> None:
    asked = [one for one in read(agent.render_agent(example.report, example.tables)).findings if one.do]
    assert len(asked) > 3
    assert all(one.check.startswith("python analysis/") for one in asked)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parent.name)
def test_the_document_of_each_committed_run_fits_and_leaves_nothing_out(path: Path) -> None:
    report = convert(json.loads(packed.read_bytes(path)), Report)
    text = agent.render_agent(report, {})
    document = read(text)
    assert len(text) <= MOST_CHARACTERS
    grouped = [kernel for group in document.groups for kernel in group.kernels]
    assert len(document.kernels) + len(grouped) == len(report.kernels)
    assert len(document.findings) + document.left_out.findings == len(report.findings)
    assert not document.left_out.findings or path.parent.name == "h200-training"  # four ways of a step: too much
    if report.steps:
        assert all(one.disposition is not None for one in document.kernels)


def many_kernels(folder: Path) -> Path:
    """Save five steps of 5,000 kernels in one stream: 180 of 50 µs each (0.55 % of a step), the others of 10 ns."""
    export = Export(2025)
    export.gpu()
    at = 1_000_000
    for _ in range(5):
        for number in range(5_000):
            ns = 50_000 if number < 180 else 10
            name = f"void lib::fused_epilogue_kernel<lib::Traits<float, {number}, 64, 128>, true>(float*, int)"
            export.launch(name, (at, at + 5), (at + 10, at + 10 + ns))
            at += ns + 12
    return export.save(folder / "x.sqlite")


@pytest.mark.slow
def test_a_capture_of_5000_kernels_fits_with_every_large_kernel_and_its_disposition(tmp_path: Path) -> None:
    built = pipeline.analyse(load([many_kernels(tmp_path)]))
    assert built.tables["kernels"]["kernel"].nunique() == 5_000
    (step,) = built.report.steps
    text = agent.render_agent(built.report, built.tables)
    document = read(text)
    assert len(text) <= MOST_CHARACTERS
    assert document.left_out.kernels == 0
    named = {one.name: one.disposition for one in document.kernels}
    named |= {name: group.disposition for group in document.groups for name in group.kernels}
    assert len(named) == 180 == len(built.report.kernels)
    assert set(named.values()) <= set(Disposition)
    assert document.left_out.details == 180 - len(document.kernels)
    assert all(group.step == step.name for group in document.groups)
    (share,) = {round(frac or 0.0, 5) for group in document.groups for frac in group.kernels.values()}
    assert share == pytest.approx(50_000 / step.wall_ns.p50, abs=1e-5)


@pytest.mark.slow
def test_ids_stay_the_same_in_another_order_of_the_rows(tmp_path: Path) -> None:
    texts = []
    for order in (1, -1):
        folder = tmp_path / str(order)
        folder.mkdir()
        export = Export(2025)
        export.gpu()
        for start in range(1_000_000, 9_000_000, 1_000_000)[::order]:
            for name, call, ran in (
                ("direct_copy_kernel", (start, start + 5_000), (start + 6_000, start + 56_000)),
                ("second", (start + 6_000, start + 11_000), (start + 57_000, start + 107_000)),
            )[::order]:
                export.launch(name, call, ran)
        built = pipeline.analyse(load([export.save(folder / "x.sqlite")]))
        texts.append(agent.render_agent(built.report, built.tables))
    assert read(texts[0]).findings
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_a_document_that_is_too_long_keeps_the_kernels_and_then_says_what_it_leaves_out(
    example: pipeline.Built,
) -> None:
    first, row = example.report.findings[0], example.report.kernels[0]
    wordy = structs.replace(first, sentence="word " * 80)
    long: Report = structs.replace(
        example.report,
        findings=[structs.replace(wordy, id=f"f{place}", rank=place) for place in range(1, 60)],
        kernels=[structs.replace(row, short=f"{'kernel' * 8}{place}", frac=1 / (place + 2)) for place in range(900)],
    )
    text = agent.render_agent(long, {})
    document = read(text)
    assert len(text) <= MOST_CHARACTERS
    left, grouped = document.left_out, sum(len(one.kernels) for one in document.groups)
    assert left.kernels == 900 - len(document.kernels) - grouped > 0
    assert left.details == grouped
    assert left.kernels_frac == pytest.approx(1 / (900 - left.kernels + 2), rel=1e-5)  # the largest of the smallest
    assert [one.id for one in document.findings] == [f"f{place}" for place in range(1, 60 - left.findings)]
    assert document.findings[0].cells


@pytest.mark.slow
def test_a_hostile_text_cannot_make_the_document_longer(example: pipeline.Built) -> None:
    report: Report = structs.replace(
        example.report,
        program=Program(command="é\x1b" * 50_000, versions={"torch" * 900: "2" * 9_000}),
        findings=[structs.replace(one, sentence="x" * 20_000) for one in example.report.findings],
    )
    text = agent.render_agent(report, {})
    assert len(text) <= MOST_CHARACTERS
    assert len(read(text).kernels) + sum(len(one.kernels) for one in read(text).groups) == len(report.kernels)


def test_an_unknown_number_is_left_out_or_null_and_never_zero(example: pipeline.Built) -> None:
    unknown = KernelRow("k", "k", "", None, float("nan"), None)
    text = agent.render_agent(structs.replace(example.report, kernels=[unknown]), {})
    assert json.loads(text)["kernels"] == [{"name": "k", "step": "", "launches": None, "ns": None, "frac": None}]


def test_a_kernel_has_its_hottest_lines(example: pipeline.Built) -> None:
    source = pd.DataFrame({"kernel": [example.report.kernels[0].name], "place": ["a.cu:12"], "share_frac": [0.6]})
    first = read(agent.render_agent(example.report, {"source": source})).kernels[0]
    assert first.source == [SourceLine("a.cu", 12, "CUDA")]


# --- a reader that follows rules, and sees the document alone ---


def causes(document: Any) -> tuple[str, set[str]]:
    """Return the cause that the first finding outside the start-up names, and all that findings name."""
    kinds = [one["kind"] for one in document["findings"] if one.get("scope", "program") != "start-up"]
    return next(iter(kinds), "nothing"), set(kinds)


@pytest.fixture(scope="module")
def score() -> ModuleType:
    return loaded("tests/answer_key/score.py")


@pytest.mark.slow
def test_the_document_alone_names_as_many_causes_as_the_report(score: ModuleType, tmp_path: Path) -> None:
    programs = ("captions_loader", "cupy_albedo", "gc_translate", "loader_hidden", "nbody_clean", "scratch_pool")
    declared, found = score.declared("blind_screen_2"), []
    for program in programs:
        folder = score.unpack("blind_screen_2", program, "h100", tmp_path)
        built = pipeline.analyse(load([folder]))
        right = {declared[program]["cause"], *declared[program].get("accept", [])}
        whole = causes(msgspec.to_builtins(structs.replace(built.report, tables=[]), enc_hook=str))
        alone = causes(json.loads(agent.render_agent(built.report, built.tables)))
        found.append((whole[0] in right, alone[0] in right, len(right & whole[1]), len(right & alone[1])))
    first, first_alone, any_of, any_alone = (sum(column) for column in zip(*found, strict=True))
    assert first >= 4  # the reader finds causes at all
    assert first_alone >= first
    assert any_alone >= any_of


# --- kernel_ledger.yaml ---


def misfits_of_ledger(document: dict[str, Any]) -> Iterator[str]:
    """Yield what breaks a rule of the form, as the readers of TensorRT-LLM check them at the commits named in ledger.py."""
    coverage, models = document["coverage"], {one["id"]: one for one in document["models"]}
    shares = coverage["enumerated_share_pct"], coverage["other_share_pct"]
    if abs(sum(shares) - 100) > 2 or min(*shares, coverage["min_share_pct"]) < 0:
        yield "coverage"
    if abs(sum(row["share_pct"] for row in document["kernels"]) - shares[0]) > 0.5:
        yield "coverage and rows"
    if document["version"] == 2 and not 0 < coverage["gpu_busy_pct"] <= 100:
        yield "gpu_busy_pct"
    if not document["source"].strip() or not document["kernels"] or document["model_revisions"] != []:
        yield "source, kernels, model_revisions"
    labels = [row["kernel"] for row in document["kernels"]]
    if len(set(labels)) != len(labels) or len(models) != len(document["models"]):
        yield "labels"
    if sorted(row["model"] for row in document["kernels"]) != sorted(models):  # each of scope kernel
        yield "models of rows"
    for row in document["kernels"]:
        yield from misfits_of_row(row)
    for model in models.values():
        yield from misfits_of_model(model)


def misfits_of_row(row: dict[str, Any]) -> Iterator[str]:
    if not row["kernel"].strip() or not row["full_name"].strip() or row["share_pct"] < 0:
        yield "row"
    ncu = row["ncu"]
    if (ncu if isinstance(ncu, dict) else row)["bound"] not in BOUNDS or not ncu:
        yield "bound"
    if isinstance(ncu, dict):
        numbers = [ncu[name] for name in ("duration_us", "sm_sol_pct", "mem_sol_pct", "occupancy_pct")]
        if any(one is not None and one < 0 for one in numbers) or (None in numbers and not ncu["note"].strip()):
            yield "ncu"
    for question, field in QUESTIONS.items():
        answer = row[question]
        if answer["disposition"] not in ("item", "dismissed") or not answer["ref"].strip():
            yield question
        if field and answer["disposition"] == "dismissed" and not answer[field].strip():
            yield field


def misfits_of_model(model: dict[str, Any]) -> Iterator[str]:
    if model["scope"] != "kernel" or not model["operating_point"] or not model["derivation"].strip():
        yield "model"
    if not all(one.strip() for one in (*model["evidence"], *model["assumptions"], *model["measurement_evidence"])):
        yield "evidence"
    times = [model["predicted_ms"], model["measured_ms"]]
    if any(one is not None and one < 0 for one in times) or not model["evidence"]:
        yield "times"
    if (None in times or times[0] != times[1]) and not (model["unexplained"].strip() and model["next_test"].strip()):
        yield "unexplained"


@pytest.mark.parametrize("version", [1, 2])
def test_the_ledger_keeps_every_rule_of_its_readers(example: pipeline.Built, version: int) -> None:
    document = json.loads(ledger.render_ledger(example.report, example.tables, version))
    assert document["version"] == version
    assert list(misfits_of_ledger(document)) == []
    document["kernels"][0]["fusion"] = {"disposition": "dismissed", "ref": "", "neighbors": " "}
    document["models"][0]["evidence"] = []
    assert list(misfits_of_ledger(document)) == ["fusion", "neighbors", "times"]


def test_the_ledger_answers_each_question_with_the_disposition_of_the_kernel(example: pipeline.Built) -> None:
    rows = {
        row["full_name"]: row for row in json.loads(ledger.render_ledger(example.report, example.tables))["kernels"]
    }
    of = {"elimination": "remove", "faster": "faster", "fusion": "fuse", "overlap": "overlap"}
    known = {one.name: one for one in reversed(example.report.kernels)}
    items = 0
    for name in rows.keys() & known.keys():
        for question, disposition in of.items():
            item = known[name].disposition == disposition and known[name].finding is not None
            assert (rows[name][question]["disposition"] == "item") == item, (name, question)
            assert (rows[name][question]["ref"] == known[name].finding) == item
            items += item
    assert items > 0


def test_the_gpu_is_busy_for_the_union_of_its_operations() -> None:
    # 0 to 10 and 5 to 20 overlap; 30 to 40: 30 of 40 ns
    rows = pd.DataFrame({"start_ns": [5, 30, 0], "extent_ns": [15, 10, 10]})
    assert ledger._busy_pct(rows) == 75.0


def test_a_capture_without_kernels_has_no_ledger(example: pipeline.Built) -> None:
    with pytest.raises(InputError, match="no kernels"):
        ledger.render_ledger(example.report, {})
    with pytest.raises(InputError, match="no timeline"):
        ledger.render_ledger(example.report, {"kernels": example.tables["kernels"]}, 2)


# --- editors and scanners ---


def with_source(report: Report) -> Report:
    """Return a report whose only finding cites kernel `a`, whose hottest line is dir/a.cu:12."""
    source = pd.DataFrame(
        {
            "kernel": ["a", "a", "a", "b"],
            "place": ["dir/a b.cu:12", "SASS 7", "dir/model.py:3", "b.cu:1"],
            "share_frac": [0.6, 0.2, 0.04, 1.0],
        }
    )
    about = [Cell("kernels", {"kernel": "a", "range": "x"}, "nsys_time_ns", 5)]
    first = structs.replace(report.findings[0], title="slow", do="Pad it.", kind="unknown", cells=about)
    found: list[Finding] = with_lines([first], source)
    return structs.replace(report, findings=found)


def test_a_finding_points_to_the_hottest_lines_of_its_kernel(example: pipeline.Built) -> None:
    report = with_source(example.report)
    assert report.findings[0].source == [SourceLine("dir/a b.cu", 12, "CUDA")]
    assert editor.render_editor(report) == "dir/a b.cu:12: warning: slow. Pad it. [unknown]"


def test_sarif_has_a_rule_for_each_kind_and_a_result_for_each_finding(example: pipeline.Built) -> None:
    (run,) = json.loads(editor.render_sarif(example.report))["runs"]
    rules = [one["id"] for one in run["tool"]["driver"]["rules"]]
    assert rules == sorted({one.kind for one in example.report.findings})
    assert [one["ruleId"] for one in run["results"]] == [one.kind for one in example.report.findings]
    for one, finding in zip(run["results"], example.report.findings, strict=True):
        assert rules[one["ruleIndex"]] == one["ruleId"]
        assert one["partialFingerprints"] == {"finding/v1": finding.id}
        assert (one["kind"] == "fail") == (one["level"] != "none")  # SARIF 2.1.0, 3.27.10
        assert 0 <= one.get("rank", 0) <= 100
        assert one["message"]["text"]


def test_sarif_points_to_a_line(example: pipeline.Built) -> None:
    (run,) = json.loads(editor.render_sarif(with_source(example.report)))["runs"]
    (place,) = run["results"][0]["locations"]
    assert place == {"physicalLocation": {"artifactLocation": {"uri": "dir/a%20b.cu"}, "region": {"startLine": 12}}}


# --- an issue ---


def test_an_issue_keeps_commands_and_says_what_ran_where(example: pipeline.Built) -> None:
    command = r"python train.py --only 'h.*_[0-9]|x' `date`"
    finding = structs.replace(example.report.findings[0], do=r"Run `ncu -k 'regex:^a_b|c\.d$'` again.", check=command)
    report = structs.replace(example.report, program=structs.replace(example.report.program, command=command))
    said = markdown.render_issue(report, finding)
    assert said.startswith(f"**{finding.title}** ({finding.kind.replace('_', ' ')}, saves ")
    assert r"`ncu -k 'regex:^a_b|c\.d$'`" in said
    assert f"**Check:** `` {command} ``" in said
    assert f"Command: `` {command} ``" in said
    for known in ("NVIDIA H200", "driver 580", "cuda 13.0", "torch 2.11.0", f"Finding `{finding.id}`"):
        assert known in said


def test_a_finding_is_found_by_its_id_or_rank_alone(example: pipeline.Built) -> None:
    second = example.report.findings[1]
    assert find_finding(example.report, second.id) == find_finding(example.report, "2") == second
    with pytest.raises(UsageError, match="is no finding of this report, by rank and id: 1: "):
        find_finding(example.report, second.id[:-1])


def test_a_kernel_has_one_short_name_in_every_view(tmp_path: Path) -> None:
    names = [
        f"void lib::{'deep::' * 20}fused_epilogue_kernel<{'lib::Traits<float, 64, 128>, ' * 20}{number}>(float*)"
        for number in range(40)
    ]
    export = Export(2025)
    export.gpu()
    for place, name in enumerate(names):
        export.launch(name, (place * 100_000, place * 100_000 + 5), (place * 100_000 + 10, place * 100_000 + 90_000))
    built = pipeline.analyse(load([export.save(tmp_path / "x.sqlite")]))
    short = {one.short for one in built.report.kernels}
    assert len(short) == 40
    assert max(map(len, short)) <= 60
    page = markdown.render_markdown(built.report, built.tables)
    table = page.partition("## Kernels")[2].partition("\n## ")[0] or page
    assert all(
        line.count("fused_epilogue_kernel") <= 1 and len(line) < 400 for line in table.splitlines() if "|" in line
    )
    in_table = {one for one in short if markdown.escape(one) in page}
    assert len(in_table) >= markdown.TOP
    assert len(page) < 37_000
