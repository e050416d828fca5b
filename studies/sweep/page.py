"""Write the sweep as Markdown: what was fastest and why, its times at other shapes, and what was left out."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.page import cells, markdown, text
from analysis.tables.declare import section
from studies.sweep.tables import is_slower

_AT_OTHER_SHAPES = (
    "The default's time over that of the best combinations at the other shapes (p5 – p95 of the rounds); what is "
    "slower at one of them is not recommended:"
)


def _other_shapes(rows: pd.DataFrame) -> str:
    """Return a line for each kernel, dtype and combination, with slower shapes in bold."""

    def cell(r: Any) -> str:
        if text.is_missing(r.versus_default):
            return f"{r.shape} {r.verdict}"
        said = f"{r.shape} {r.versus_default:.3f} ({r.versus_default_p5:.3f} – {r.versus_default_p95:.3f})"
        return f"**{said}**" if is_slower(r) else said

    groups = rows.groupby(["op", "variant", "dtype", "combination"], sort=False)
    body = [
        [
            markdown.escape(f"{op} {variant} {dtype}"),
            markdown.escape(combination),
            "yes" if of["mark"].str.contains("recommended").any() else "no",
            ", ".join(cell(r) for r in cells.rows(of)),
        ]
        for (op, variant, dtype, combination), of in groups
    ]
    return markdown.table_of(["kernel", "combination", "recommended", "at"], body, ["left"] * 4)


@section("sweep_best")
def fastest(sweep_best: pd.DataFrame) -> str:
    """Return the fastest and the slowest combination of each kernel, with the reason."""
    headers = ["kernel", "tried", "rounds", "call", "default", "fastest", "default's time over it"]
    headers += ["recommended", "why"]
    body = [
        [
            markdown.escape(f"{r.op} {r.variant} {r.dtype} {r.shape}"),
            cells.count(r.combinations),
            cells.count(r.samples),
            markdown.escape(r.calls),
            markdown.escape(r.default),
            markdown.escape(r.fastest),
            text.MISSING if text.is_missing(r.versus_default) else f"{r.versus_default:.3f}",
            markdown.escape(r.recommended) or text.MISSING,
            markdown.escape(r.evidence),
        ]
        for r in cells.rows(sweep_best)
    ]
    return markdown.table_of(headers, body, ["left", "right", "right", *["left"] * 6])


@section("sweep_shapes")
def other_shapes(sweep_shapes: pd.DataFrame) -> list[str]:
    """Return the times of the best combinations at the other shapes of their source."""
    return [_AT_OTHER_SHAPES, _other_shapes(sweep_shapes)]


@section("sweep")
def left_out(sweep: pd.DataFrame) -> list[str]:
    """Return the combinations that were left out, by reason, and those that were compiled and not timed."""
    blocks = []
    rows = sweep[sweep["reason"].ne("") | ~sweep["verdict"].isin(["timed", "built"])]
    if len(rows):
        groups = rows.groupby(["op", "variant", "combination", "verdict", "reason"], sort=False).size()
        listed = [[*map(markdown.escape, key)] for key in groups.index[: markdown.TOP]]
        headers = ["op", "variant", "combination", "left out", "why"]
        blocks += [f"Left out ({len(groups)}):", markdown.table_of(headers, listed, ["left"] * 5)]
    built = sweep[sweep["verdict"].eq("built") & sweep["reason"].eq("")]
    if len(built):
        headers = ["op", "variant", "combination", "registers", "shared memory", "threads", "occupancy", "limiter"]
        body = [
            [
                *(markdown.escape(value) for value in (r.op, r.variant, r.combination)),
                *(cells.count(value) for value in (r.registers, r.shared_bytes, r.block_threads)),
                text.number(r.occupancy_theoretical_frac, "frac"),
                markdown.escape(r.limiter),
            ]
            for r in cells.rows(built.head(3 * markdown.TOP))
        ]
        align = [*["left"] * 3, *["right"] * 4, "left"]
        blocks += ["Compiled and not timed (no GPU):", markdown.table_of(headers, body, align)]
    return blocks
