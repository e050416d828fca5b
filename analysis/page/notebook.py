"""Show an answer in a notebook or at a Python prompt: what ran, its steps, and the findings that save most."""

from collections.abc import Sequence
from typing import Any

from analysis.formats.report import Finding, Report
from analysis.formats.words import duration, share
from analysis.page import first, jinja, markdown, text

FINDINGS = 5
LONGEST = 400  # letters of a text


class Figure(str):
    """A figure as SVG text, which a notebook shows as a picture."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Figure of {len(self):,} letters"

    def _repr_svg_(self) -> str:
        return str(self)


def plain(report: Report, tables: Sequence[str], figures: Sequence[str]) -> str:
    """Return the answer as a few lines of text."""
    lines = [report.title or "Analysis", first.program_line(report)]
    lines += [first.step_line(step, None) for step in report.steps]
    for one in report.findings[:FINDINGS]:
        gain = markdown.saves(one, report)
        lines.append(f"{one.rank}. {one.title}{f' ({gain})' if gain else ''}")
    return "\n".join(text.shorten(line, LONGEST) for line in (*lines, _rest(report, tables, figures)) if line)


def html(report: Report, tables: Sequence[str], figures: Sequence[str]) -> str:
    """Return the same as HTML, a few kB long and without a script."""
    return jinja.template("notebook.html.j2").render(
        title=_short(report.title or "Analysis"),
        alarm=markdown.UNTRUSTED_SENTENCE if markdown.is_untrusted(report) else "",
        ran=_short(first.program_line(report)),
        steps=[
            {
                "line": _short(first.step_line(step, None)),
                "verdict": first.verdict(step),
                "parts": [
                    {"said": f"{label} {duration(ns)} {share(frac)}", "width": f"{frac:.2%}", "colour": colour}
                    for label, colour, ns, frac in first.rows(step)
                ],
            }
            for step in report.steps[:FINDINGS]
        ],
        findings=[_finding(one, report) for one in report.findings[:FINDINGS]],
        rest=_short(_rest(report, tables, figures)),
    )


def _finding(one: Finding, report: Report) -> dict[str, Any]:
    said = {"title": one.title, "saves": markdown.saves(one, report), "sentence": one.sentence, "do": one.do}
    return {name: _short(value) for name, value in said.items()} | {"rank": one.rank}


def _rest(report: Report, tables: Sequence[str], figures: Sequence[str]) -> str:
    """Return what else there is, and how to see it."""
    more = len(report.findings) - FINDINGS
    said = [f"{more} more findings" if more > 0 else "", f"missing: {len(report.missing)}" if report.missing else ""]
    said += [f"tables: {', '.join(tables)}" if tables else "", f"figures: {', '.join(figures)}" if figures else ""]
    return "; ".join(one for one in said if one) + '; save("FOLDER") writes the page'


def _short(value: str) -> str:
    return text.shorten(value, LONGEST)
