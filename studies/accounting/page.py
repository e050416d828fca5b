"""The accounting in words."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.formats.words import count_of
from analysis.tables.declare import part


@part("findings", 20)
def _findings(accounting: pd.DataFrame, accounting_use: pd.DataFrame) -> list[dict[str, Any]] | None:
    """What held of the accounting, and the best use of the GPU."""
    judged = accounting[accounting["verdict"].isin(["holds", "misses"])]
    if judged.empty:
        return None
    held = judged[judged["verdict"] == "holds"]
    worst = judged.loc[judged["error_frac"].astype(float).abs().idxmax()]
    found: list[dict[str, Any]] = [
        {
            "title": f"The accounting: {len(held)} of {count_of(len(judged), 'prediction')} hold",
            "sentence": f"The largest error is {float(worst['error_frac']):+.2%}: {worst['quantity']} of "
            f"{worst['model']}, {worst['workload']}, where {float(worst['within_frac']):.0%} was allowed.",
            "time_to_win_ns": None,
            "evidence": [
                {"table": "accounting", "row": str(worst["model"]), "column": "error_frac",
                 "value": float(worst["error_frac"])}
            ],
        }
    ]  # fmt: skip
    used = accounting_use.dropna(subset=["mfu_frac"])
    if len(used):
        best = used.loc[used["mfu_frac"].astype(float).idxmax()]
        found.append(
            {
                "title": f"{best['model']}, {best['workload']}, {best['dtype']}: MFU {float(best['mfu_frac']):.1%}",
                "sentence": f"The step takes {float(best['time_ns']) / 1e6:.3f} ms; at the datasheet's rate its "
                f"products alone would take {float(best['compute_ns']) / 1e6:.3f} ms.",
                "time_to_win_ns": float(best["time_ns"]) - float(best["compute_ns"]),
                "evidence": [
                    {"table": "accounting_use", "row": str(best["model"]), "column": "mfu_frac",
                     "value": float(best["mfu_frac"])}
                ],
            }
        )  # fmt: skip
    return [{"rank": rank, **finding} for rank, finding in enumerate(found, 1)]
