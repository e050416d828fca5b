"""Hostile names go through every form of the answer: it parses, and no terminal, editor or Markdown obeys them."""

import json
import re
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from markdown_it import MarkdownIt
from msgspec import structs

from analysis.api import Analysis, analyse
from analysis.formats.report import Finding, Saving, SourceLine
from analysis.page.markdown import render_issue
from analysis.show import FORMS, show_report
from tests.browser.test_hostile import NAMES, hostile

pytestmark = pytest.mark.slow
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def made() -> Analysis:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.pipeline.draw", lambda built, **_: (built.report, {}))
        found = analyse(hostile())
    findings = [
        Finding(
            id=name, rank=1 + at, kind="unknown", title=name, sentence=name, do=name, saves_ns=Saving(None, 10.0),
            source=[SourceLine(name, 1, "c")],
        )
        for at, name in enumerate(NAMES)
    ]  # fmt: skip
    told = structs.replace(found.report, findings=findings, notes=list(NAMES), title=NAMES[15])
    return replace(found, without_figures=told, drawn=lambda: (told, {}))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_answer_is_sound(made: Analysis, form: Any, capsys: pytest.CaptureFixture[str]) -> None:
    show_report(made.report, made.tables, form, ["report.html"], "")
    text = capsys.readouterr().out
    plain = COLOUR.sub("", text) if form == "screen" else text
    wild = {sign for sign in plain if unicodedata.category(sign) in ("Cc", "Cs") and sign != "\n"}
    assert wild == set()
    if form in ("json", "agent", "ledger", "ledger-2", "sarif"):  # the ledger is read as YAML, of which JSON is a part
        assert isinstance(json.loads(text), dict)
    if form == "editor":
        assert len(text.splitlines()) == len(NAMES)
        assert all(re.fullmatch(r".*:1: warning: .+", line) for line in text.splitlines())


def test_markdown_runs_no_markup_of_a_name(made: Analysis) -> None:
    issues = [render_issue(made.report, one) for one in made.report.findings]
    for text in (made._texts()["report.md"], *issues):
        shown = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)
        assert "globalThis" in "".join(issues)
        assert not re.search(r"<(?:script|svg|iframe|style)|</(?:script|style)|onerror=[^&]*>", shown)
        assert not re.search(r"(?:href|src)=\"(?:javascript|data):", shown)
        assert "\x1b" not in text


def test_the_page_lets_nothing_in(made: Analysis) -> None:
    page = made._texts()["report.html"]
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";") if rule.strip())
    assert rules["default-src"] == "'none'"
    assert not {"'unsafe-eval'", "*", "http:", "https:"} & set(policy[1].split())
