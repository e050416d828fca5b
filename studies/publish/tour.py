"""Render the generated parts of docs/tour.md: what a report says about a decode step, and what a CUDA graph changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from msgspec import convert
from tabulate import tabulate

from analysis.formats.report import Finding
from analysis.page import markdown
from analysis.page.text import number, percent

STEP = "gpt2/decode"
SETTINGS = {"eager": "eager", "static+compile": "static cache and `torch.compile`", "graph": "CUDA graph"}
DTYPE = "float32"
Tables = Mapping[str, pd.DataFrame]


def render_parts(report: Mapping[str, Any], tables: Tables, layers: Tables) -> dict[str, str]:
    """Return {name of a part: its Markdown text}.

    Shape: `report` and `tables` come from the run with counters, `layers` from the run with the baseline.
    Raises: KeyError if the run has no step STEP or the baseline lacks a setting of SETTINGS.
    """
    step = tables["gaps"].set_index("step").loc[STEP]
    plan = tables["fusion"]
    plan = plan[plan["step"] == STEP].dropna(subset=["gain_ns"])
    return {
        "findings": _findings(report),
        "trust": _trust(report),
        "step": _step(step),
        "kernels": _kernels(tables, step),
        "plan": _plan(plan, step),
        "fix": _fix(layers["baseline"]),
        "next": _next(layers["bottlenecks"]),
    }


def _findings(report: Mapping[str, Any]) -> str:
    listed = convert(report["findings"][:2], list[Finding])
    lines = [f"{one.rank}. {one.title} ({markdown.saves(one)})" for one in listed]
    return "\n".join(["```text", *lines, "```"])


def _trust(report: Mapping[str, Any]) -> str:
    equality, coverage = report["nsys_equality"], report["coverage"]
    return "\n".join(
        [
            f"- {report['trust']['sentence']}",
            f"- In {equality['equal']} of {equality['compared']} ranges, kernel time equals nsys' own sum to the ns.",
            f"- {coverage['matched']} of {coverage['seen']} kernels that ncu had to count have counters.",
        ]
    )


def _step(step: pd.Series) -> str:
    each = step["bare_wall_ns"] / step["launches"]
    rows = [
        ["with nsys attached", "`wall_ns`", number(step["wall_ns"], "ns")],
        ["without a profiler", "`bare_wall_ns`", number(step["bare_wall_ns"], "ns")],
        ["GPU, from a filled queue", "`bare_gpu_ns`", number(step["bare_gpu_ns"], "ns")],
        ["GPU busy", "`busy_ns`", number(step["busy_ns"], "ns")],
        ["launches", "`launches`", number(step["launches"])],
    ]
    table = tabulate(rows, ["what", "column of gaps.csv", "value"], tablefmt="github", disable_numparse=True)
    return (
        f"{table}\n\nThe GPU is busy {percent(step['busy_ns'] / step['bare_wall_ns'])} of the step. The host needs "
        f"{number(each, 'ns')} for each launch, and the GPU waits for it. The verdict is *{step['verdict']}*."
    )


def _kernels(tables: Tables, step: pd.Series) -> str:
    roofs = tables["roofline"]
    roofs = roofs[roofs["range"].fillna("").str.startswith(f"{STEP}/") & (roofs["level"] == "dram")]
    best = roofs.loc[roofs["roof_frac"].astype(float).idxmax()]
    below = int((roofs["roof_frac"].astype(float) < 0.5).sum())
    return (
        f"{below} of {len(roofs)} kinds of kernel in the step reach less than half of the DRAM roof. The best is in "
        f"`{best['range']}` with {percent(best['roof_frac'])}. All kernels together take "
        f"{number(step['busy_ns'], 'ns')}, so kernels of zero time would still leave "
        f"{number(step['bare_wall_ns'] - step['busy_ns'], 'ns')} of waiting."
    )


def _plan(plan: pd.DataFrame, step: pd.Series) -> str:
    return (
        f"The plan lists {len(plan)} chains in `{STEP}`. Together they win {number(plan['gain_ns'].sum(), 'ns')} of a "
        f"step that takes {number(step['bare_wall_ns'], 'ns')}."
    )


def _fix(baseline: pd.DataFrame) -> str:
    rows = baseline[baseline["dtype"] == DTYPE].set_index("setting")
    table = [
        [
            said,
            number(rows.loc[name, "tokens_per_s"]),
            number(rows.loc[name, "token_p50_ns"], "ns"),
            number(rows.loc[name, "launches_per_token"]),
            percent(rows.loc[name, "busy_frac"]),
        ]
        for name, said in SETTINGS.items()
    ]
    headers = ["Hugging Face GPT-2, float32", "tokens/s", "a token, p50", "launches a token", "GPU busy"]
    return tabulate(table, headers, tablefmt="github", disable_numparse=True)


def _next(bottlenecks: pd.DataFrame) -> str:
    rows = bottlenecks[(bottlenecks["setting"] == "graph") & (bottlenecks["dtype"] == DTYPE)]
    answers = rows.set_index("question")["answer"]
    return "\n".join(f"> {answers[name]}" for name in ("what limits a token", "share of the bandwidth floor"))
