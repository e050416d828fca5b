"""Write the accounting's sentences and tables."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.diagnosis.claims import Claim, cell
from analysis.formats.words import count_of
from analysis.page import cells, markdown, text
from analysis.tables.declare import part, section


@part("findings", 2)
def _findings(accounting: pd.DataFrame, accounting_use: pd.DataFrame) -> list[Claim] | None:
    """Return findings: the predictions that hold, and the best use of the GPU."""
    judged = accounting[accounting["verdict"].isin(["holds", "misses"])]
    if judged.empty:
        return None
    held = judged[judged["verdict"] == "holds"]
    worst = judged.loc[judged["error_frac"].astype(float).abs().idxmax()]
    found: list[Claim] = [
        Claim(
            kind="result",
            title=f"The accounting: {len(held)} of {count_of(len(judged), 'prediction')} hold",
            sentence=f"The largest error is {float(worst['error_frac']):+.2%}: {worst['quantity']} of "
            f"{worst['model']}, {worst['workload']}, where {float(worst['within_frac']):.0%} was allowed.",
            cells=(cell("accounting", cells.keys(accounting, worst), "error_frac", float(worst["error_frac"])),),
        )
    ]
    used = accounting_use.dropna(subset=["mfu_frac"])
    if len(used):
        best = used.loc[used["mfu_frac"].astype(float).idxmax()]
        found.append(
            Claim(
                kind="result",
                title=f"{best['model']}, {best['workload']}, {best['dtype']}: MFU {float(best['mfu_frac']):.1%}",
                sentence=f"The step takes {float(best['time_ns']) / 1e6:.3f} ms; at the datasheet's rate its "
                f"products alone would take {float(best['compute_ns']) / 1e6:.3f} ms.",
                bound_ns=float(best["time_ns"]) - float(best["compute_ns"]),
                cells=(cell("accounting_use", cells.keys(accounting_use, best), "mfu_frac", float(best["mfu_frac"])),),
            )
        )
    return found


@part("title", 2)
def _title(accounting_steps: list[Claim], gpu: str | None) -> str | None:
    """Return the report's title for a run with an accounting."""
    return f"The accounting against {gpu or 'a CPU'}" if accounting_steps else None


def _number(value: Any, unit: str) -> str:
    if text.is_missing(value):
        return text.MISSING
    return f"{float(value):,.0f} {'' if unit == '1' else unit}".strip()


@section("accounting")
def show_accounting(accounting: pd.DataFrame) -> str:
    """Return every prediction, all digits."""
    body = [
        [
            markdown.escape(row.model),
            markdown.escape(row.workload),
            row.dtype,
            text.MISSING if text.is_missing(row.checkpointed) or not row.checkpointed else row.checkpointed,
            markdown.escape(row.quantity),
            _number(row.predicted, row.unit),
            _number(row.measured, row.unit),
            text.MISSING if text.is_missing(row.error_frac) else f"{float(row.error_frac):+.3%}",
            text.MISSING if text.is_missing(row.within_frac) else f"{float(row.within_frac):.0%}",
            text.MISSING if text.is_missing(row.verdict) or not row.verdict else row.verdict,
        ]
        for row in accounting.itertuples(index=False)
    ]
    headers = [
        "model",
        "step",
        "dtype",
        "checkpoints",
        "quantity",
        "predicted",
        "measured",
        "error",
        "allowed",
        "verdict",
    ]
    return markdown.table_of(headers, body, ["left"] * 5 + ["right"] * 4 + ["left"])


@section("accounting_use")
def show_use(accounting_use: pd.DataFrame) -> str:
    """Return time, MFU and bandwidth of each step."""
    body = [
        [
            markdown.escape(row.model),
            markdown.escape(row.workload),
            row.dtype,
            text.MISSING if text.is_missing(row.checkpointed) or not row.checkpointed else row.checkpointed,
            cells.ms(row.time_ns),
            cells.ms(row.compute_ns),
            cells.ms(row.memory_ns),
            cells.percent(row.mfu_frac),
            cells.percent(row.bandwidth_frac),
        ]
        for row in accounting_use.itertuples(index=False)
    ]
    headers = [
        "model",
        "step",
        "dtype",
        "checkpoints",
        "time (ms)",
        "compute roof (ms)",
        "memory roof (ms)",
        "MFU (%)",
        "bandwidth (%)",
    ]
    return cells.table(headers, body, left=4)


def render_accounting(tables: dict[str, pd.DataFrame], folder: str) -> str:
    """Return the accounting's part of its README; `folder` is the run's path from there."""
    parts = [
        show_accounting(tables["accounting"]),
        f"![error of each prediction]({folder}/figures/accounting_errors.png)",
        show_use(tables["accounting_use"]),
        f"All tables: [{folder.rpartition('/')[2]}]({folder}/report.md).",
    ]
    return "\n\n".join(parts)
