"""Cells in the units that everybody prints: milliseconds, microseconds, counts, per cent; and tables of them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.formats import symbols
from analysis.page import markdown, text


def kernel(name: Any) -> str:
    """A kernel's function, or a copy as its tool names it."""
    plain = text.clean(name)
    return plain if plain.startswith(("Mem", "[CUDA ", "aten::")) else symbols.short(plain, 56)


def rows(table: pd.DataFrame, *counts: str) -> Any:
    # a tuple has a method `count`, which hides a column of that name
    renamed = table.rename(columns=dict.fromkeys(counts, "instances")) if counts else table
    return renamed.itertuples(index=False)


def place(table: pd.DataFrame, row: pd.Series) -> str:
    """What names a row of a table in a finding's evidence: its first columns, one to four, as few as tell it apart."""
    first = table.iloc[:, :4].astype(object)
    texts = first.where(first.notna(), "").astype(str)
    leads = [texts.iloc[:, :count].agg(" ".join, axis=1) for count in range(1, texts.shape[1] + 1)]
    named = [lead[row.name] for lead in leads if sum((other == lead[row.name]).sum() for other in leads) == 1]
    return str(named[0] if named else leads[-1][row.name])


def rate(row: Any) -> str:
    if text.is_missing(row.tokens_per_s):
        return text.MISSING
    return f"{row.tokens_per_s:,.0f} ({row.tokens_per_s_p5:,.0f} – {row.tokens_per_s_p95:,.0f})"


def ms(ns: Any, digits: int = 3) -> str:
    return text.MISSING if text.is_missing(ns) else f"{float(ns) / 1e6:,.{digits}f}"


def us(ns: Any) -> str:
    return text.MISSING if text.is_missing(ns) else f"{float(ns) / 1e3:,.2f}"


def count(value: Any) -> str:
    return text.MISSING if text.is_missing(value) else f"{int(value):,}"


def percent(frac: Any) -> str:
    return text.MISSING if text.is_missing(frac) else f"{float(frac) * 100:.1f}"


def table(headers: list[str], body: list[list[str]], left: int = 1) -> str:
    return markdown.table_of(headers, body, ["left"] * left + ["right"] * (len(headers) - left))
