"""The layer profile in reports/README.md, with the baseline beside it."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.page import profiles

MOST_OPERATORS = 8


def render_layers(report: dict[str, Any], tables: dict[str, pd.DataFrame], folder: str) -> str:
    """Return the layer profile, the baseline, and what others published beside it.

    Shape: `report` and `tables` of the committed run with the profiles; `folder` that run, relative to the README.
    """
    conditions = {row["name"]: row["value"] for row in report["conditions"]}
    agreement = [note for note in report["notes"] if note.startswith("Events and nsys agree")]
    settings = {"no_cache, float32": "no cache", "cache, float32": "KV cache"}
    profile, tokens = tables["layer_profile"], tables["layer_tokens"].iloc[0]
    limits = tables["bottlenecks"][tables["bottlenecks"]["question"] == "what limits a token"]
    parts = [
        f"**Where a token goes**, GPT-2 124M from scratch, fp32, batch 1, {tokens['prompt_tokens']:.0f} prompt tokens, "
        f"then {tokens['new_tokens']:.0f} new ones, {tokens['runs']:.0f} runs on an {conditions['GPU']}: GPU time "
        "by CUDA events, what the events add measured and taken off (so what lies between components may come out "
        "slightly negative). The shares by nsys are of a run of its own under that tool, of the first tokens alone: "
        f"without a cache those are of other shapes than the average pass. All tables: [{folder}]({folder}/report.md).",
        *profiles.levels_side_by_side(profile, settings),
        *agreement,
        profiles.tokens(tables["layer_tokens"]),
        f"![components of each level as shares of it]({folder}/figures/levels.png)",
        f"**The five heaviest components alone**, 50 calls each ([their kernels]({folder}/report.md)).",
        profiles.component_launches(tables["component_launches"]),
        "**Beside what two student projects published**",
        profiles.published(tables["published"]),
        "**The same weights in Hugging Face transformers**, generate() with each attention, one decode step as a CUDA "
        "graph, static cache with compiler; the floor is reading the weights once at the copy speed of this GPU.",
        profiles.baseline(tables["baseline"]),
        profiles.operators(tables["baseline_operators"].head(MOST_OPERATORS)),
        "\n".join(f"- {row.setting}, {row.dtype}: {row.answer}" for row in limits.itertuples(index=False)),
    ]
    return "\n\n".join(parts)
