"""Render the layer profile as Markdown: the customary tables in their usual shape and units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.page import cells, markdown, text
from analysis.tables.declare import section

BY_NSYS = "% by nsys"  # header of the share by nsys, beside the share by events


@section("layer_profile")
def levels(layer_profile: pd.DataFrame) -> list[str]:
    """Return one table for each level and profile: Avg (ms), Total (ms), Count, per cent of the base."""
    blocks = []
    for (setting, _), rows in layer_profile.groupby(["profile", "level"], sort=False):
        base = markdown.escape(rows["base"].iloc[0])
        body = [
            [
                markdown.escape(r.component),
                cells.ms(r.avg_ns, 4),
                cells.ms(r.total_ns),
                cells.count(r.instances),
                cells.percent(r.share_frac),
                *([cells.percent(r.nsys_share_frac)] if rows["nsys_share_frac"].notna().any() else []),
            ]
            for r in cells.rows(rows, "count")
        ]
        headers = [markdown.escape(setting), "Avg (ms)", "Total (ms)", "Count", f"% of {base}"]
        headers += [BY_NSYS] if rows["nsys_share_frac"].notna().any() else []
        blocks.append(cells.table(headers, body))
    return blocks


def levels_side_by_side(profile: pd.DataFrame, names: Mapping[str, str]) -> list[str]:
    """Return one table for each level, with the profiles side by side; `names` maps a profile to its heading."""
    blocks = []
    settings = [name for name in names if name in set(profile["profile"])]
    for _, rows in profile.groupby("level", sort=False):
        by_setting = {name: rows[rows["profile"] == name].set_index("component") for name in settings}
        by_nsys = [BY_NSYS] if rows["nsys_share_frac"].notna().any() else []
        headers = ["component"]
        for name in settings:
            headers += [f"{names[name]}: Avg (ms)", "Count", f"% of {rows['base'].iloc[0]}", *by_nsys]
        body = []
        for component in dict.fromkeys(rows["component"]):
            line = [component]
            for of in by_setting.values():
                if component in of.index:
                    row = of.loc[component]
                    line += [cells.ms(row["avg_ns"], 4), cells.count(row["count"]), cells.percent(row["share_frac"])]
                    line += [cells.percent(row["nsys_share_frac"])] if by_nsys else []
                else:
                    line += [text.MISSING] * (3 + len(by_nsys))
            body.append(line)
        blocks.append(cells.table(headers, body))
    return blocks


@section("layer_tokens")
def tokens(layer_tokens: pd.DataFrame) -> str:
    """Return the table per token: average forward pass, all blocks, throughput."""
    headers = ["profile", "forward pass, GPU (ms)", "all blocks, GPU (ms)", "wall (ms)", "tokens/s (p5 – p95)"]
    body = [
        [
            markdown.escape(r.profile),
            cells.ms(r.forward_avg_ns),
            cells.ms(r.blocks_avg_ns),
            cells.ms(r.token_ns),
            cells.rate(r),
        ]
        for r in cells.rows(layer_tokens)
    ]
    return cells.table(headers, body)


@section("layer_instrument")
def instrument(layer_instrument: pd.DataFrame) -> str:
    headers = ["profile", "attached", "events", "forward pass (ms)", "over nothing", "launching (ms)"]
    body = [
        [
            markdown.escape(r.profile),
            markdown.escape(r.attached),
            cells.count(r.events),
            cells.ms(r.forward_ns),
            text.number(r.over_nothing_frac, "frac"),
            cells.ms(r.launch_ns),
        ]
        for r in cells.rows(layer_instrument)
    ]
    return cells.table(headers, body, left=2)


@section("layer_agreement")
def agreement(layer_agreement: pd.DataFrame) -> str:
    headers = ["profile", "level", "component", "events, as read (µs)", "own (µs)", "events (µs)", "nsys (µs)"]
    headers += ["difference (µs)", "difference", "within 2 %", "within 2 µs"]
    body = [
        [
            markdown.escape(r.profile),
            markdown.escape(r.level),
            markdown.escape(r.component),
            *(cells.us(value) for value in (r.read_ns, r.own_ns, r.event_ns, r.nsys_ns, r.difference_ns)),
            text.number(r.difference_frac, "frac"),
            r.within_frac,
            r.within_ns,
        ]
        for r in cells.rows(layer_agreement)
    ]
    return cells.table(headers, body, left=3)


@section("component_kernels")
def component_kernels(component_kernels: pd.DataFrame) -> str:
    headers = ["profile", "component", "kernel", "source", "self (µs)", "count", "average (µs)"]
    body = [
        [
            markdown.escape(r.profile),
            markdown.escape(r.component),
            markdown.escape(cells.kernel(r.kernel)),
            markdown.escape(r.source),
            cells.us(r.self_ns),
            cells.count(r.instances),
            cells.us(r.avg_ns),
        ]
        for r in cells.rows(component_kernels, "count")
    ]
    return cells.table(headers, body, left=4)


@section("component_launches")
def component_launches(component_launches: pd.DataFrame) -> str:
    headers = ["profile", "component", "of the forward pass", "GPU a call (µs)", "CPU a call (µs)", "CUDA API calls"]
    headers += ["in the API a call (µs)", "launches, nsys", "in launches a call, nsys (µs)"]
    body = [
        [
            markdown.escape(r.profile),
            markdown.escape(r.component),
            text.number(r.forward_share_frac, "frac"),
            cells.us(r.gpu_ns),
            cells.us(r.cpu_ns),
            cells.count(r.api_calls),
            cells.us(r.api_ns),
            cells.count(r.nsys_launches),
            cells.us(r.nsys_api_ns),
        ]
        for r in cells.rows(component_launches)
    ]
    return cells.table(headers, body, left=2)


def render_layers(report: dict[str, Any], tables: dict[str, pd.DataFrame], folder: str) -> str:
    """Return the layer profile and the components run alone, for reports/README.md.

    Shape: `report` and `tables` of the committed run with the profiles; `folder` of that run, relative to the README.
    """
    conditions = {row["name"]: row["value"] for row in report["conditions"]}
    agreement = [note for note in report["notes"] if note.startswith("Events and nsys agree")]
    settings = {"no_cache, float32": "no cache", "cache, float32": "KV cache"}
    profile, first = tables["layer_profile"], tables["layer_tokens"].iloc[0]
    parts = [
        f"**Where a token goes**, GPT-2 124M from scratch, fp32, batch 1, {first['prompt_tokens']:.0f} prompt tokens, "
        f"then {first['new_tokens']:.0f} new ones, {first['runs']:.0f} runs on an {conditions['GPU']}: GPU time "
        "by CUDA events. We measure what the events add and subtract it, so the time between components may be "
        "slightly negative. The nsys shares come from a run of their own, of the first tokens alone. Without a cache "
        f"those tokens have other shapes than the average pass. All tables: [{folder}]({folder}/report.md).",
        *levels_side_by_side(profile, settings),
        *agreement,
        tokens(tables["layer_tokens"]),
        f"![components of each level as shares of it]({folder}/figures/levels.png)",
        f"**The five heaviest components alone**, 50 calls each ([their kernels]({folder}/report.md)).",
        component_launches(tables["component_launches"]),
    ]
    return "\n\n".join(parts)
