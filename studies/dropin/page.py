"""Render the lines of the READMEs about our attention inside Hugging Face's GPT-2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.page import cells

OURS = "kernel_ledger"
ATTENTIONS = {OURS: "ours", "sdpa": "sdpa", "eager": "eager", "kernel_ledger_softmax": "fused softmax"}
MODES = {"graph": "CUDA graph", "compile+graph": "compiled, CUDA graph", "eager": "kernel by kernel"}
HEADERS = ("step", "dtype", "batch", "context")


def _pair(settings: Sequence[Mapping[str, Any]], mode: str, batch: int) -> tuple[Any, Any] | None:
    """Return the rows of our attention and of sdpa in bfloat16 at a context of 1024 tokens; None unless both exist."""
    found = {
        row["attention"]: row
        for row in settings
        if (row["mode"], row["dtype"], row["batch"], row["context_tokens"]) == (mode, "bfloat16", batch, 1024)
    }
    return (found[OURS], found["sdpa"]) if {OURS, "sdpa"} <= found.keys() else None


def _times(row: Mapping[str, Any]) -> str:
    low, middle, high = (row[f"token_time_p{q}_ns"] / 1e3 for q in (5, 50, 95))
    return f"{middle:.0f} µs ({low:.0f} – {high:.0f})"


def render_dropin(settings: Sequence[Mapping[str, Any]], place: str) -> str:
    """Return a table of a decode step with each attention: a row for each mode, dtype, batch and context."""
    cases: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    for row in settings:
        case = tuple(row[name] for name in ("mode", "dtype", "batch", "context_tokens"))
        cases.setdefault(case, {})[row["attention"]] = row
    body = []
    for (mode, dtype, batch, context), found in sorted(cases.items(), key=lambda case: _order(*case[0])):
        times = [_times(found[name]) if name in found else "" for name in ATTENTIONS]
        both = {OURS, "sdpa"} <= found.keys()
        ratio = f"{found['sdpa']['token_time_p50_ns'] / found[OURS]['token_time_p50_ns']:.2f}×" if both else ""
        same = found[OURS]["same_text"] if OURS in found else None
        said = "" if same is None else "yes" if same else "no"
        body.append([MODES[mode], dtype, str(batch), str(context), *times, ratio, said])
    return (
        f"{cells.table([*HEADERS, *ATTENTIONS.values(), 'sdpa / ours', 'text as eager'], body, left=2)}\n\n"
        "Time of one decode step of GPT-2 124M: median (5th – 95th percentile). Kernel by kernel, the host limits "
        "every step. Blank: that attention does not run there. In bfloat16, texts may differ where two logits are "
        f"nearly equal. The weights are random. [Every setting, its tokens/s, and what did not run]({place})."
    )


def _order(mode: str, dtype: str, batch: int, context: int) -> tuple[int, str, int, int]:
    return list(MODES).index(mode), dtype, batch, context


def render_line(settings: Sequence[Mapping[str, Any]]) -> str:
    """Return the line of README.md on a decode step of batch 1; "" if that was not measured in a CUDA graph."""
    said = [
        f"{what} {pair[0]['token_time_p50_ns'] / 1e3:.0f} and {pair[1]['token_time_p50_ns'] / 1e3:.0f} µs"
        for mode, what in (("graph", "in a CUDA graph"), ("compile+graph", "compiled"), ("eager", "kernel by kernel"))
        if (pair := _pair(settings, mode, 1))
    ]
    if not _pair(settings, "graph", 1):
        return ""
    place = "reports/README.md#our-attention-in-transformers"
    return (
        "**Our attention inside Hugging Face's GPT-2**, and PyTorch's sdpa. A decode step (bfloat16, batch 1, T 1024) "
        f"takes {', '.join(said)}. ([All settings, with their spread]({place}).)"
    )
