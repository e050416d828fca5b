"""Why each kernel takes its time: the reasons of the findings, for all kernels that take most of it."""

from __future__ import annotations

import pandas as pd

from analysis.capture.model import Capture
from analysis.diagnosis.hot import reasons_of_each
from analysis.hardware.devices import Device
from analysis.tables.declare import Column, fact, table

MOST_KERNELS = 100  # with most time; the rest takes little of it


@fact("sm_count")
def _sm_count(capture: Capture, device: Device | None) -> int | None:
    """Multiprocessors of the GPU, None where unknown."""
    gpu = (capture.manifest or {}).get("gpu") or {}
    return gpu.get("sm_count") or (device.sm_count if device else None)


@table(
    "diagnosis",
    question="What is known of why each kernel takes its time?",
    order=196,
    optional=True,
    columns=(
        Column("kernel", "", "kernel name, over all its ranges", "key"),
        Column("reason", "", "what a table says of it, the strongest first", "row", style="prose"),
        Column("evidence", "", "the cells that the reason rests on, in base units", "row", style="prose"),
    ),
)
def build_diagnosis(
    kernels: pd.DataFrame, rules: pd.DataFrame, roofline: pd.DataFrame, stalls: pd.DataFrame, source: pd.DataFrame,
    host: pd.DataFrame, counters: pd.DataFrame, sm_count: int | None,
) -> pd.DataFrame | None:  # fmt: skip
    """Return diagnosis.csv: the reasons of the MOST_KERNELS kernels with most time; None without any."""
    known = {"kernels": kernels, "rules": rules, "roofline": roofline, "stalls": stalls, "source": source, "host": host,
             "counters": counters}  # fmt: skip
    counted = set(counters["kernel"])
    rows = [
        {
            "kernel": name,
            "reason": f"{reason.said[0].upper()}{reason.said[1:]}.",
            "evidence": "; ".join(
                f"{str(one['table']).removesuffix('.csv')}.{one['column']} = {one['value']}" for one in reason.cells
            )
            or pd.NA,
            "tier": "counters" if name in counted else "timing",
        }
        for name, reasons in reasons_of_each(known, sm_count=sm_count, most=MOST_KERNELS)
        for reason in reasons
    ]
    return pd.DataFrame(rows) if rows else None
