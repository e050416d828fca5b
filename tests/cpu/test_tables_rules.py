"""What ncu says and the hottest lines, as tables of the report."""

import pandas as pd
import pytest

from analysis import pipeline
from analysis.capture.model import COUNTERS_COLUMNS, RULES, SOURCE_LINES, Capture, as_table, dtypes
from analysis.facts import Facts
from analysis.page.html import render_html
from analysis.page.markdown import render_markdown
from analysis.tables.conditions import list_conditions
from analysis.tables.rules import build_rules
from analysis.tables.source import MOST, build_source
from tests.declared import DECLARED, analyse


def rules(*rows: dict) -> pd.DataFrame:
    """Rule rows; what is not given is of launch 0."""
    usual = {
        "file": "f", "ncu_id": 0, "kernel": "void k<(int)4>(float *)", "path": "", "section": "Occupancy",
        "section_title": "", "rule": "R", "type": "OPT", "text": "said", "speedup_type": "global", "speedup_pct": None,
    }  # fmt: skip
    table = {field.name: [(usual | row)[field.name] for row in rows] for field in RULES}
    return as_table(table, dtypes(RULES))


def lines(*rows: dict) -> pd.DataFrame:
    """Source lines; what is not given is of the first launch, without samples."""
    usual = {"file": "f", "block": 0, "kernel": "k", "source_file": "k.cu", "line": 1, "text": "I", "stall": ""}
    table = {field.name: [(usual | row).get(field.name) for row in rows] for field in SOURCE_LINES}
    return as_table(table, dtypes(SOURCE_LINES))


def counters(*paths: str) -> pd.DataFrame:
    names = ["void k<(int)4>(float *)"] * len(paths)
    return as_table(
        {"ncu_id": list(range(len(paths))), "file": ["f"] * len(paths), "name": names, "path": list(paths)},
        COUNTERS_COLUMNS,
    )


def test_launches_of_a_folded_layer_share_a_row() -> None:
    said = "12.5% of 100 sectors in {} requests"
    capture = Capture(
        counters=counters("gpt2/h.0", "gpt2/h.1"),
        rules=rules(
            {"ncu_id": 0, "text": said.format(7), "speedup_pct": 3.0},
            {"ncu_id": 1, "text": said.format(1_234), "speedup_pct": 12.5},
            {"ncu_id": 1, "text": "another message of the rule"},
        ),
    )
    table = build_rules(Facts(capture))
    assert table["range"].tolist() == ["gpt2/h.*"] * 2
    assert table["launches"].tolist() == [2, 1]
    assert table["speedup_frac"].tolist()[0] == 0.125
    assert table["text"].tolist() == [said.format(1_234), "another message of the rule"]
    assert table["kernel"].unique().tolist() == ["k<4>"]


def test_what_could_be_improved_comes_first_by_its_estimate() -> None:
    capture = Capture(
        rules=rules(
            {"rule": "info", "type": "INF", "speedup_type": ""},
            {"rule": "part", "speedup_type": "local", "speedup_pct": 90.0},
            {"rule": "whole", "speedup_pct": 40.0},
            {"rule": "unknown"},
            {"rule": "old", "type": "WRN", "speedup_type": ""},
        )
    )
    assert build_rules(Facts(capture))["rule"].tolist() == ["whole", "unknown", "part", "old", "info"]


def test_a_report_and_its_page_say_a_thing_once() -> None:
    capture = Capture(rules=rules({"speedup_pct": 3.7786}, {"file": "g", "speedup_pct": 3.779}))
    assert build_rules(Facts(capture))["launches"].tolist() == [1]


def test_samples_add_up_by_line_and_launch() -> None:
    capture = Capture(
        source_lines=lines(
            {"instruction": 0, "samples": 6, "stall": "wait", "stall_samples": 4, "inst_executed": 10,
             "sectors_global": 24, "sectors_global_ideal": 8},
            {"instruction": 1, "samples": 2, "stall": "barrier", "stall_samples": 2, "inst_executed": 10},
            {"instruction": 2, "samples": 4, "line": 2, "inst_executed": 10},
            {"instruction": 2, "samples": 4, "line": 3, "inst_executed": 10},  # the same instruction under another line
            {"instruction": 0, "samples": 8, "block": 1, "stall": "wait", "stall_samples": 8, "inst_executed": 10},
            {"instruction": None, "samples": 8, "text": "x = y[i];"},
        )
    )  # fmt: skip
    table = build_source(Facts(capture))
    assert table["place"].tolist() == ["k.cu:1", "k.cu:2"]
    assert table["samples"].tolist() == [16, 4]
    assert table["share_frac"].tolist() == [0.8, 0.2]
    assert table["text"].tolist() == ["x = y[i];", "I"]
    first = table.iloc[0]
    assert (first["stall"], first["stall_frac"], first["inst_executed"], first["sectors_over_ideal"]) == (
        "wait", 0.75, 30, 3.0,
    )  # fmt: skip


def test_without_lines_instructions_stand_alone_and_only_the_hottest() -> None:
    rows = [{"instruction": at, "samples": at, "source_file": "", "line": None} for at in range(30)]
    table = build_source(Facts(Capture(source_lines=lines(*rows))))
    assert len(table) == MOST
    assert table["place"].tolist()[:2] == ["SASS 29", "SASS 28"]


def test_one_file_for_each_kernel() -> None:
    page = {"instruction": 0, "samples": 5, "source_file": "", "line": None, "file": "page"}
    table = build_source(Facts(Capture(source_lines=lines(page, {"instruction": 0, "samples": 5, "file": "report"}))))
    assert table[["place", "samples"]].to_numpy().tolist() == [["k.cu:1", 5]]


@pytest.mark.parametrize("kind", ["rules", "source_lines"])
def test_pages_show_what_ncu_says_as_evidence(kind: str) -> None:
    hostile = "<script>alert(1)</script> | `x`"
    given = {
        "rules": rules({"text": hostile, "speedup_pct": 12.5}),
        "source_lines": lines({"instruction": 0, "samples": 5, "text": hostile}),
    }[kind]
    made = pipeline.analyse(Capture(**{kind: given}), DECLARED)
    markdown, html = render_markdown(made.report, made.tables), render_html(made.report, made.tables, {})
    assert {"rules": "What ncu says (its own rules)", "source_lines": "Hottest source lines"}[kind] in markdown
    assert "<script>alert" not in markdown
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)" in html
    # ncu's words are no finding of ours
    assert not any("script" in str(finding) for finding in made.report.findings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "gap", "page"),
    [
        ("rules", "what ncu's own rules say", "--page details"),
        ("source", "the hottest source lines", "--page source --print-source cuda,sass"),
    ],
)
def test_an_empty_table_of_ncu_is_a_named_gap_where_there_are_counters(table: str, gap: str, page: str) -> None:
    def gaps(capture: Capture) -> dict[str, str]:
        return {found["what"]: found["do"] for found in analyse(capture)[0]["missing"]}

    assert page in gaps(Capture(counters=counters("a")))[gap]
    assert gap not in gaps(Capture())
    evidence = {
        "rules": {"rules": rules({"text": "slow", "speedup_pct": 12.5})},
        "source": {"source_lines": lines({"instruction": 0, "samples": 5, "text": "x"})},
    }[table]
    assert gap not in gaps(Capture(counters=counters("a"), **evidence))


@pytest.mark.parametrize(
    ("manifest", "commit"),
    [
        ({"git_sha": "abc", "git_dirty": True}, "abc, with uncommitted changes"),
        ({"git_sha": "abc", "git_dirty": False}, "abc"),
        ({"git_sha": "abc"}, "abc"),
        ({"git_dirty": True}, None),
    ],
)
def test_the_commit_says_that_files_were_changed(manifest: dict[str, object], commit: str | None) -> None:
    rows = {row["name"]: row["value"] for row in list_conditions(Capture(manifest=manifest), None, None)}
    assert rows.get("commit") == commit


def test_the_card_is_a_condition_where_it_is_known() -> None:
    for gpu, card in (({"name": "NVIDIA H200", "card": "1b2c3d4e"}, "1b2c3d4e"), ({"name": "NVIDIA H200"}, None)):
        rows = {row["name"]: row["value"] for row in list_conditions(Capture(manifest={"gpu": gpu}), None, None)}
        assert rows.get("card") == card
