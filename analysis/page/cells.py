"""Format the cells of README tables (milliseconds, microseconds, counts, per cent), and the tables themselves.

An unknown value becomes `text.MISSING`.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.formats import symbols
from analysis.page import markdown, text


def kernel(name: Any) -> str:
    """Shorten a kernel's name to its function, at most 56 letters. A copy or an ATen operation keeps its name."""
    plain = text.clean(name)
    return plain if plain.startswith(("Mem", "[CUDA ", "aten::")) else symbols.short(plain, 56)


def rows(table: pd.DataFrame, *counts: str) -> Any:
    """Iterate over the rows as named tuples. The columns `counts` are called `instances` there."""
    # a tuple has a method `count`, which hides a column of that name
    renamed = table.rename(columns=dict.fromkeys(counts, "instances")) if counts else table
    return renamed.itertuples(index=False)


def keys(table: pd.DataFrame, row: pd.Series) -> dict[str, str]:
    """Name a row of a table for a finding: its first one to four columns, as few as make it unique, without blanks."""
    first = table.iloc[:, :4].astype(object)
    texts = first.where(first.notna(), "").astype(str)
    own = texts.loc[row.name]
    counts = (count for count in range(1, 5) if (texts.iloc[:, :count] == own[:count]).all(axis=1).sum() == 1)
    return {str(name): value for name, value in own[: next(counts, 4)].items() if value}


def rate(row: Any) -> str:
    """Format tokens per second with their 5th and 95th percentile: `1,250 (1,198 – 1,301)`."""
    if text.is_missing(row.tokens_per_s):
        return text.MISSING
    return f"{row.tokens_per_s:,.0f} ({row.tokens_per_s_p5:,.0f} – {row.tokens_per_s_p95:,.0f})"


def ms(ns: Any, digits: int = 3) -> str:
    """Format nanoseconds as milliseconds, without the unit."""
    return text.MISSING if text.is_missing(ns) else f"{float(ns) / 1e6:,.{digits}f}"


def us(ns: Any) -> str:
    """Format nanoseconds as microseconds with two decimals, without the unit."""
    return text.MISSING if text.is_missing(ns) else f"{float(ns) / 1e3:,.2f}"


def count(value: Any) -> str:
    """Format a whole number with commas between thousands."""
    return text.MISSING if text.is_missing(value) else f"{int(value):,}"


def percent(frac: Any) -> str:
    """Format a share of 0 to 1 as per cent with one decimal, without the sign."""
    return text.MISSING if text.is_missing(frac) else f"{float(frac) * 100:.1f}"


def table(headers: list[str], body: list[list[str]], left: int = 1) -> str:
    """Return a Markdown table. The first `left` columns are aligned left, the others right."""
    return markdown.table_of(headers, body, ["left"] * left + ["right"] * (len(headers) - left))
