"""Point from a finding about a kernel to the kernel's hottest source lines."""

from collections.abc import Sequence

import pandas as pd
from msgspec import structs

from analysis.formats.report import Finding, SourceLine
from analysis.tables.listing import language_of

MOST = 3  # lines of a finding
LEAST = 0.05  # of the kernel's samples: a line with less is not worth a look


def with_lines(findings: Sequence[Finding], source: pd.DataFrame) -> list[Finding]:
    """Return the findings, each with the hottest lines of the kernel that it cites; `source` is source.csv."""
    lines = lines_of(source)
    return [
        structs.replace(one, source=next((lines[name] for name in _named(one) if name in lines), []))
        for one in findings
    ]


def lines_of(source: pd.DataFrame) -> dict[str, list[SourceLine]]:
    """Return the hottest lines of each kernel of source.csv."""
    if source.empty:
        return {}
    hot = source[(source["share_frac"] >= LEAST) & ~source["place"].str.startswith("SASS ")]
    return {str(kernel): _lines(rows) for kernel, rows in hot.groupby("kernel", sort=False)}


def _named(finding: Finding) -> list[str]:
    """Return the kernel that a finding cites; a finding on a step names it as what its change is about."""
    return [str(one.row[name]) for name in ("kernel", "about") for one in finding.cells if name in one.row]


def _lines(rows: pd.DataFrame) -> list[SourceLine]:
    places = (str(place).rpartition(":") for place in rows["place"].head(MOST))
    return [SourceLine(file, int(line), language_of(file)) for file, _, line in places]
