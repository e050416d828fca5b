"""Find in the layer profiler's numbers the way down to the costliest part, gaps between parts, and unsteady runs."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.diagnosis.claims import Claim, cell
from analysis.formats import symbols
from analysis.formats.report import Cell
from analysis.formats.words import count_of, duration, share
from analysis.tables.declare import part
from studies.layers.tables import BETWEEN

MOST = 5
GAPS_MATTER = 0.2  # share of a level between its components, or of a token outside the forward pass
UNSTEADY = 1.5  # the fastest runs over the slowest (p95 over p5)


@part("findings", 2)
def _findings(
    layer_profile: pd.DataFrame, layer_tokens: pd.DataFrame, component_launches: pd.DataFrame,
    component_kernels: pd.DataFrame,
) -> list[Claim] | None:  # fmt: skip
    found = find(layer_profile, layer_tokens, component_launches, component_kernels)
    return found or None


def find(profile: pd.DataFrame, tokens: pd.DataFrame, launches: pd.DataFrame, kernels: pd.DataFrame) -> list[Claim]:
    """Return the findings of a run of the layer profiler, or of its heaviest components run alone."""
    found = [one for _, row in tokens.iterrows() for one in (_outside(row), _unsteady(row)) if one]
    found.sort(key=lambda one: -(one.bound_ns or 0.0))
    found += [_way_down(str(name), rows) for name, rows in profile.groupby("profile", sort=False)]
    found += [one for _, row in launches.iterrows() for one in (_launching(row) or _inside(row, kernels),) if one]
    return found[:MOST]


def _finding(title: str, sentence: str, cells: list[Cell], win: float | None = None) -> Claim:
    return Claim(kind="result", title=title, sentence=sentence, bound_ns=win, cells=tuple(cells))


def _way_down(name: str, rows: pd.DataFrame) -> Claim:
    """Return the finding on each level's largest component, from the top down, and on the gaps between components."""
    steps, cells, between = [], [], 0.0
    for level, inside in rows.groupby("level", sort=False):
        base = inside[inside["component"] == inside["base"]]
        parts = inside[(inside["component"] != inside["base"]) & (inside["component"] != BETWEEN)]
        if base.empty or parts.empty:
            continue
        row = parts.sort_values("share_frac", ascending=False, kind="stable").iloc[0]
        whole = duration(float(base["avg_ns"].iloc[0]))
        steps.append(
            (str(row["component"]), f"of {row['base']} ({whole}) {row['component']} takes {share(row['share_frac'])}")
        )
        cells.append(
            cell(
                "layer_profile",
                {"profile": name, "level": level, "component": row["component"]},
                "share_frac",
                float(row["share_frac"]),
            )
        )
        rest = inside.loc[inside["component"] == BETWEEN, "share_frac"]
        between = max(between, float(rest.max()) if len(rest) else 0.0)
    told = "; ".join(said for _, said in steps)
    lost = (
        f"Up to {share(between)} of a level lies between its components: time of the host, which faster components do "
        "not win back."
        if between >= GAPS_MATTER
        else f"Between the components lies {share(max(between, 0.0))} of a level at most."
    )
    deepest = " > ".join(component for component, _ in steps)
    return _finding(f"{name}: most of the time is in {deepest}", f"{told[:1].upper()}{told[1:]}. {lost}", cells)


def _outside(row: Any) -> Claim | None:
    """Return the finding on a token that takes much longer than its forward pass."""
    whole, forward = float(row["token_ns"]), float(row["forward_avg_ns"])
    if whole - forward < GAPS_MATTER * whole:
        return None
    on_gpu = "CUDA" in str(row["clock"])
    why = (
        "the GPU waits for the host, which launches too slowly: capture the pass in a CUDA graph"
        if on_gpu
        else "choosing the next token and handling the cache"
    )
    return _finding(
        f"{row['profile']}: {share(1 - forward / whole)} of a token lies outside the forward pass",
        f"A token takes {duration(whole)} of wall time and its forward pass {duration(forward)}; the rest is what "
        f"happens around it: {why}.",
        [
            cell("layer_tokens", {"profile": row["profile"]}, name, float(row[name]))
            for name in ("token_ns", "forward_avg_ns")
        ],
        whole - forward,
    )


def _unsteady(row: Any) -> Claim | None:
    """Return the finding on runs that differ too much for a meaningful mean."""
    slow, fast = row["tokens_per_s_p5"], row["tokens_per_s_p95"]
    if pd.isna(slow) or pd.isna(fast) or not slow or fast / slow < UNSTEADY:
        return None
    name = str(row["profile"])
    runs = "the runs" if pd.isna(row["runs"]) else count_of(int(row["runs"]), "run")
    return _finding(
        f"{name}: the runs are unsteady, the fastest {fast / slow:.1f} times the slowest",
        f"The slowest of {runs} reach {slow:,.1f} and the fastest {fast:,.1f} tokens/s "
        "(p5, p95): something else used the machine, or its clock changed. Compare medians, and measure again when it "
        "is quiet.",
        [
            cell("layer_tokens", {"profile": name}, column, float(row[column]))
            for column in ("tokens_per_s_p5", "tokens_per_s_p95")
        ],
    )


def _launching(row: Any) -> Claim | None:
    """Return the finding on a component whose launch takes the host longer than its run takes the GPU."""
    if pd.isna(row["gpu_ns"]) or pd.isna(row["cpu_ns"]) or row["cpu_ns"] <= row["gpu_ns"]:
        return None
    gpu, cpu = float(row["gpu_ns"]), float(row["cpu_ns"])
    return _finding(
        f"{row['profile']}, {row['component']}: launching takes {cpu / gpu:.1f} times as long as running",
        f"A call takes the host {duration(cpu)} and the GPU {duration(gpu)}: alone it is bound by launches, so faster "
        "kernels win nothing; fewer of them, or a CUDA graph, do.",
        [cell("component_launches", {part: row[part] for part in ("profile", "rank", "component")}, name,
              float(row[name])) for name in ("cpu_ns", "gpu_ns")],
        cpu - gpu,
    )  # fmt: skip


def _inside(row: Any, kernels: pd.DataFrame) -> Claim | None:
    """Return the finding on the kernel (on a CPU: operator) with the largest share of a component run alone."""
    within = kernels[(kernels["profile"] == row["profile"]) & (kernels["component"] == row["component"])]
    within = within[within["source"] == within["source"].iloc[0]] if len(within) else within
    total = float(within["self_ns"].sum()) if len(within) else 0.0
    if not total:
        return None
    most = within.sort_values("self_ns", ascending=False, kind="stable").iloc[0]
    name = str(most["kernel"])
    component = f"{row['profile']}, {row['component']}"
    place = {"profile": row["profile"], "component": row["component"], "kernel": name}
    return _finding(
        f"{component}: mostly {symbols.short(name, 60)}",
        f"Run alone, {share(float(most['self_ns']) / total)} of its time is in {symbols.short(name, 60)}, "
        f"{count_of(int(most['count']), 'launch', 'launches')} of {duration(float(most['avg_ns']))}; "
        f"{count_of(len(within) - 1, 'other takes', 'others take')} the rest.",
        [cell("component_kernels", place, column, float(most[column])) for column in ("self_ns", "count")],
    )
