"""Show what a store of captures answers: as text, and as a page with the components of a report."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from tabulate import tabulate

from analysis.page.html import plain_table, render_tables
from analysis.page.text import RANGE_HEAD, cell, clean, label_of, shorten

ROWS = 50  # of a table; the store has all
WIDEST = 60
_BARS = 24  # histograms on the page


@dataclass(frozen=True)
class Answer:
    """An answer to a question: its rows, and what they are in a sentence."""

    name: str
    title: str
    says: str
    rows: pd.DataFrame


def _cells(rows: pd.DataFrame) -> list[list[str]]:
    return [
        [shorten(cell(value, str(name)), WIDEST, RANGE_HEAD) for name, value in zip(rows.columns, row, strict=True)]
        for row in rows.head(ROWS).itertuples(index=False)
    ]


def text(answer: Answer) -> str:
    """Return an answer as plain text."""
    heads = [label_of(str(name)) for name in answer.rows.columns]
    body = tabulate(_cells(answer.rows), heads, disable_numparse=True) if len(answer.rows) else "nothing"
    more = f"\n… {len(answer.rows) - ROWS:,} more" if len(answer.rows) > ROWS else ""
    return f"{answer.title}\n\n{body}{more}\n" if answer.title else f"{body}{more}"


def html(title: str, said: str, answers: Sequence[Answer]) -> str:
    """Return the page of a store: every answer as a table, histograms as bars."""
    tables = [(plain_table(one.name, one.says, one.rows, {}), one.rows) for one in answers]
    bars = [bar for one in answers if one.name == "histogram" for bar in _histograms(one.rows)]
    return render_tables("fleet.html.j2", title, tables, said=said, answers=answers, bars=bars)


def _histograms(rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the bars of each step, host group and rank. Columns: step, host_group, rank, from_ns, steps."""
    groups = rows.groupby(["step", "host_group", "rank"], dropna=False, sort=False)
    for (step, group, rank), bins in list(groups)[:_BARS]:
        most = max(int(bins["steps"].max()), 1)
        place = f"{shorten(step, WIDEST, RANGE_HEAD)}{f', {clean(group)}' if group else ''}"
        bars = [
            {"title": f"{steps:,} steps from {cell(ns, 'from_ns')}", "height": 100 * steps / most, "x": i}
            for i, (ns, steps) in enumerate(zip(bins["from_ns"], bins["steps"], strict=True))
        ]
        low, high = (cell(ns, "from_ns") for ns in (bins["from_ns"].min(), bins["from_ns"].max()))
        name = place + ("" if pd.isna(rank) else f", rank {int(rank)}")
        yield {"name": name, "bars": bars, "low": low, "high": high}
