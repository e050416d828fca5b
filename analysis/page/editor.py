"""Write findings for editors and code scanners: lines such as `file:line: warning: …`, and SARIF 2.1.0."""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from analysis.formats.errors import plain
from analysis.formats.place import ledger_version
from analysis.formats.report import Confidence, Finding, Report, SourceLine, kinds
from analysis.page import text
from analysis.page.markdown import saves

HOME = "https://github.com/kernel-ledger/kernel-ledger"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Confidence.SURE: "warning", Confidence.LIKELY: "warning", Confidence.UNSURE: "note"}
_NO_ADVICE = ("nothing", "unknown")  # kinds of findings that ask for no change


def render_editor(report: Report) -> str:
    """Return `file:line: warning: message` for each source line of a finding, as compilers print them."""
    return "\n".join(_lines(report.findings))


def _lines(findings: list[Finding]) -> Iterator[str]:
    for one in findings:
        for line in one.source:
            message = " ".join(f"{one.title}. {one.do}".split())
            yield plain(f"{line.file}:{line.line}: warning: {message} [{one.kind}]")


def render_sarif(report: Report) -> str:
    """Return the findings as a log in SARIF 2.1.0: one rule a kind, one result a finding, with or without a line."""
    used = sorted({one.kind for one in report.findings})
    rules = [
        {
            "id": kind,
            "shortDescription": {"text": kinds()[kind]["title"]},
            "fullDescription": {"text": kinds()[kind]["what"]},
            "help": {"text": kinds()[kind]["cure"] or kinds()[kind]["what"]},
        }
        for kind in used
    ]
    driver = {"name": "kernel-ledger", "version": ledger_version(), "informationUri": HOME, "rules": rules}
    results = [_result(one, report, used.index(one.kind)) for one in report.findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, allow_nan=False)


def _result(finding: Finding, report: Report, rule: int) -> dict[str, Any]:
    gain = saves(finding, report)
    said = (finding.title, finding.sentence, finding.do, f"It {gain}" if gain else "")
    message = " ".join(f"{text.clean(one).rstrip('.')}." for one in said if one)
    check = f" Check: {text.clean(finding.check)}" if finding.check else ""
    found: dict[str, Any] = {
        "ruleId": finding.kind,
        "ruleIndex": rule,
        "level": "none" if finding.kind in _NO_ADVICE else _LEVELS[finding.confidence],
        "kind": "informational" if finding.kind in _NO_ADVICE else "fail",
        "message": {"text": f"{message}{check}"},
        "partialFingerprints": {"finding/v1": text.clean(finding.id)},
    }
    if (middle := finding.saves_frac.middle) is not None:
        found["rank"] = round(100 * min(max(middle, 0.0), 1.0), 2)
    return found | ({"locations": [_location(one) for one in finding.source]} if finding.source else {})


def _location(line: SourceLine) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(line.file)}, "region": {"startLine": max(line.line, 1)}}
    return {"physicalLocation": place}


def _uri(file: str) -> str:
    """Return a path as a reference of RFC 3986."""
    path = text.clean(file).replace("\\", "/")
    if re.match(r"[A-Za-z]:/", path):
        return f"file:///{quote(path, safe='/:')}"
    return f"file://{quote(path)}" if path.startswith("/") else quote(path)
