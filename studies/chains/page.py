"""Compare the fusion plan of four chains with the ready-made kernels that fuse them."""

from __future__ import annotations

import pandas as pd

from analysis.fusion.plan import BYTES_GOAL, TIME_GOAL
from studies.chains.read import predictions


def render_chains(found: pd.DataFrame) -> str:
    """Return the Markdown table of `read.compare`, with the number of chains that hold."""
    known = found.dropna(subset=["holds"])
    told = (
        f"**{int(known['holds'].sum())} of {len(known)}** ready-made kernels stay within the limits: bytes within "
        f"{BYTES_GOAL:.0%} of the plan, and time within {TIME_GOAL:.0%}."
    )
    lines = [
        "| chain | fused by | bytes: plan, measured | time: plan, measured | holds | why |",
        "|---|---|---|---|---|---|",
    ]
    for (name, one), row in zip(predictions().items(), found.itertuples(), strict=True):
        moved = _pair(row.planned_bytes, row.measured_bytes, row.bytes_error_frac, 1e6, "MB")
        time = _pair(row.planned_time_ns, row.measured_time_ns, row.time_error_frac, 1e3, "µs")
        holds = "" if row.holds is None else "yes" if row.holds else "**no**"
        holds = f"{holds}, by time alone" if holds and pd.isna(row.measured_bytes) else holds
        lines.append(f"| {name} | {one.by} | {moved} | {time} | {holds} | {row.why} |")
    return "\n\n".join([told, "\n".join(lines)])


def _pair(plan: float | None, measured: float | None, error: float | None, unit: float, name: str) -> str:
    """Return `537, 524 MB (-2.4 %)`, with a dash for what is unknown."""
    values = ["–" if one is None or pd.isna(one) else f"{one / unit:,.0f}" for one in (plan, measured)]
    return f"{', '.join(values)} {name}" + ("" if error is None or pd.isna(error) else f" ({100 * error:+.1f} %)")
