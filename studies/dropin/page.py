"""Render the lines of the READMEs about our attention inside Hugging Face's GPT-2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

OURS = "kernel_ledger"


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
    """Return a line for each batch size: a decode step in a CUDA graph, and the same step launched kernel by kernel."""
    lines = []
    for mode, what in (
        ("graph", "One decode step of GPT-2 124M in a CUDA graph, bfloat16, T 1024, p50 (p5 – p95)"),
        ("eager", "The same step launched kernel by kernel, which the host limits"),
    ):
        said = [
            f"- batch {batch}: {_times(pair[0])}, {pair[0]['tokens_per_s']:.0f} tokens/s; with sdpa {_times(pair[1])}, "
            f"{pair[1]['tokens_per_s']:.0f} tokens/s"
            for batch in (1, 8)
            if (pair := _pair(settings, mode, batch))
        ]
        if said:
            lines.append(f"{what}:\n\n" + "\n".join(said))
    return "\n\n".join([*lines, f"The weights are random. [Every setting, and what did not run]({place})."])


def render_line(settings: Sequence[Mapping[str, Any]]) -> str:
    """Return the line of README.md on a decode step of batch 1; "" if that was not measured in a CUDA graph."""
    pair, eager = _pair(settings, "graph", 1), _pair(settings, "eager", 1)
    if pair is None:
        return ""
    launched = f" Launched kernel by kernel it takes {_times(eager[0])}, with sdpa {_times(eager[1])}." if eager else ""
    return (
        "**Our attention inside Hugging Face's GPT-2**, bfloat16, batch 1, T 1024. A decode step in a CUDA graph "
        f"takes {_times(pair[0])}, with PyTorch's sdpa {_times(pair[1])}.{launched} "
        "([All settings](reports/README.md#our-attention-in-transformers).)"
    )
