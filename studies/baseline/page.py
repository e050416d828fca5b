"""Render the baseline as Markdown: settings side by side, the limit of a token, operators, and published figures."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from analysis.page import cells, markdown, text
from analysis.tables.declare import section

MAX_OPERATORS = 15  # rows of the operator table on a page; the CSV has the rest
MOST_OPERATORS = 8  # in reports/README.md


@section("baseline")
def write_baseline(baseline: pd.DataFrame) -> str:
    headers = ["setting", "tokens/s (p5 – p95)", "p50 (ms)", "p95 (ms)", "kernels a token", "launches a token"]
    headers += ["GPU busy", "of the floor"]
    body = [
        [
            markdown.escape(f"{r.setting}, {r.dtype}"),
            markdown.escape(r.reason) if not text.is_missing(r.reason) else cells.rate(r),
            cells.ms(r.token_p50_ns),
            cells.ms(r.token_p95_ns),
            text.number(r.kernels_per_token),
            text.number(r.launches_per_token),
            text.number(r.busy_frac, "frac"),
            text.number(r.floor_frac, "frac"),
        ]
        for r in cells.rows(baseline)
    ]
    return cells.table(headers, body)


@section("bottlenecks")
def write_bottlenecks(bottlenecks: pd.DataFrame) -> str:
    lines = []
    for (setting, dtype), rows in bottlenecks.groupby(["setting", "dtype"], sort=False):
        answers = " ".join(markdown.escape(answer) for answer in (rows["answer"].iloc[-1], *rows["answer"].iloc[:-1]))
        lines.append(f"- **{markdown.escape(f'{setting}, {dtype}')}**: {answers}")
    return "\n".join(lines)


@section("baseline_operators")
def write_operators(baseline_operators: pd.DataFrame) -> str:
    """Return the table of the heaviest operators and kernels of the first setting."""
    first = baseline_operators.iloc[0]
    of = baseline_operators[
        (baseline_operators["setting"] == first["setting"]) & (baseline_operators["dtype"] == first["dtype"])
    ].head(MAX_OPERATORS)
    headers = [f"{first['setting']}, {first['dtype']}", "kind", "Self CPU (ms)", "CPU total (ms)", "Self CUDA (ms)"]
    headers += ["CUDA total (ms)", "calls", "share of its kind"]
    body = [
        [
            markdown.escape(cells.kernel(r.name) if r.kind == "kernel" else text.shorten(r.name, 56)),
            markdown.escape(r.kind),
            *(cells.ms(value) for value in (r.self_cpu_ns, r.cpu_ns, r.self_cuda_ns, r.cuda_ns)),
            cells.count(r.calls),
            text.number(r.share_frac, "frac"),
        ]
        for r in cells.rows(of)
    ]
    return cells.table([markdown.escape(name) for name in headers], body, left=2)


@section("published")
def write_published(published: pd.DataFrame) -> str:
    headers = ["figure", "unit", "published", "on", "how", "here", "here by"]
    body = [
        [
            *(markdown.escape(value) for value in (r.figure, r.unit, r.theirs, r.their_machine, r.their_setting)),
            text.number(r.ours),
            markdown.escape(r.our_clock),
        ]
        for r in cells.rows(published)
    ]
    return cells.table(headers, body, left=5)


def render_baseline(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the published figures beside the layer profile, and the baseline, for reports/README.md.

    Shape: `tables` of the committed run with the profiles.
    """
    limits = tables["bottlenecks"][tables["bottlenecks"]["question"] == "what limits a token"]
    parts = [
        "**Beside what two student projects published**",
        write_published(tables["published"]),
        "**The same weights in Hugging Face transformers**: `generate()` with each attention, one decode step as a "
        "CUDA graph, a static cache with the compiler. The floor is one read of all weights at the copy speed of "
        "this GPU.",
        write_baseline(tables["baseline"]),
        write_operators(tables["baseline_operators"].head(MOST_OPERATORS)),
        "\n".join(f"- {row.setting}, {row.dtype}: {row.answer}" for row in limits.itertuples(index=False)),
    ]
    return "\n\n".join(parts)
