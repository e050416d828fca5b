"""Under which conditions the numbers were taken: a number without them is not believed."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from analysis.capture.model import Capture
from studies.sweep import calls as sweep_calls


def gpu_name(capture: Capture) -> str | None:
    """Return the GPU as the manifest names it, else as nsys or ncu do, None for a run without one."""
    gpu = (capture.manifest or {}).get("gpu") or {}
    if gpu.get("name"):
        return str(gpu["name"])
    for frame in (capture.gpu_ops, capture.counters):
        # ncu prints the device's number where nsys prints its name
        names = [name for name in frame["device"].dropna().unique() if name and not str(name).isdigit()]
        if names:
            return re.sub(r" \(\d+\)$", "", str(names[0]))  # nsys adds the device's number
    if capture.sweep_rows is not None:
        swept = [name for name in capture.sweep_rows["gpu"].unique() if name]
        return str(swept[0]) if swept else None
    return capture.session.get("gpu")


def compute_capability(capture: Capture) -> str | None:
    """Return the compute capability as `9.0`, None if no file says it."""
    gpu = (capture.manifest or {}).get("gpu") or {}
    if gpu.get("compute_capability"):
        return str(gpu["compute_capability"])
    values = [value for value in capture.counters["cc"].dropna().unique() if value]
    return str(values[0]) if values else capture.session.get("cc")


def title(capture: Capture, gpu: str | None) -> str:
    """Return the report's title."""
    workloads = (capture.manifest or {}).get("workloads") or []
    if capture.sweep_rows is not None:
        return f"Configuration sweep on {gpu}" if gpu else "Configuration sweep, compiled only"
    what = "GPT-2" if any(str(w.get("range", "")).startswith("gpt2") for w in workloads) else "Capture"
    by_layer = ", layer by layer" if capture.layer_profile else ""
    if gpu:
        return f"{what} on {gpu}{by_layer}"
    return f"{what} on the CPU{by_layer}" if capture.clock == "cpu" else f"{what}{by_layer}"


_CONTROLS = ("cache_control", "clock_control", "replay_mode")


def ncu_status(tools: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What the status files of ncu say: of several captures the first, with all that the others were taken under."""
    found = [tool for tool in tools if tool.get("tool") == "ncu"]
    together = {key: ", ".join(dict.fromkeys(tool[key] for tool in found if tool.get(key))) for key in _CONTROLS}
    return found[0] | together if found else None


def list_conditions(capture: Capture, gpu: str | None, ncu: dict[str, Any] | None) -> list[dict[str, str]]:
    """Return name and value of every condition that is known; what is unknown has no row."""
    manifest = capture.manifest or {}
    calls: list[tuple[str, Any]] = []
    if capture.sweep_rows is not None:  # its rows are of several calls, and the manifest is of one of them
        calls = [*sweep_calls.list_calls(capture)]
        manifest = {name: manifest.get(name) for name in ("nsys", "ncu")} | sweep_calls.list_shared(capture)
    names = [f"{w.get('name')} {w.get('dtype', '')}".strip() for w in manifest.get("workloads") or []]
    card = (manifest.get("gpu") or {}).get("card")
    workload = ", ".join(dict.fromkeys(names))
    rows: list[tuple[str, Any]] = [("GPU", gpu), ("card", card), ("workload", workload), *calls]
    clocks = manifest.get("clocks") or {}
    rows += sweep_calls.list_spans(clocks)
    rows.append(("throttling", ", ".join(clocks.get("throttle_reasons") or [])))
    known = capture.session | {name: value for name, value in manifest.items() if value}
    rows += [(name, known.get(name)) for name in ("driver", "cuda", "torch", "nsys", "ncu")]
    source = (manifest.get("weights") or {}).get("source")
    rows.append(("weights", f"random, seed {manifest.get('seed')}" if source == "random" else source))
    for key in _CONTROLS:
        rows.append((f"ncu {key.replace('_', ' ')}", (ncu or {}).get(key) or capture.session.get(key)))
    commit = manifest.get("git_sha")
    changed = ", with uncommitted changes" if commit and manifest.get("git_dirty") is True else ""
    rows += [("locale", manifest.get("locale")), ("commit", f"{commit or ''}{changed}")]
    return [{"name": name, "value": str(value)} for name, value in rows if value]


def coverage_sentence(matched: int, seen: int, total: int, how: str, *, has_counters: bool, has_times: bool) -> str:
    """Return how much of the timeline has counters, and how it was matched."""
    if not has_times and not has_counters:
        return "No ncu counters, and nothing was timed: everything here is of tier static."
    if not has_counters:
        return "No ncu counters: everything here is of tier timing."
    if not total:
        return "No nsys timeline: counters stand alone, without the kernels' time in the running program."
    share = f" ({matched / seen:.1%})" if seen else ""
    return f"{matched} of {seen} kernels{share} have counters; the timeline holds {total}. {how}"


def timing_notes(timing: dict[str, Any] | None) -> list[str]:
    """Return one sentence for each rate that was measured with no tool attached."""
    notes = []
    for name, rate in ((timing or {}).get("tokens_per_s") or {}).items():
        value = rate.get("p50") if isinstance(rate, dict) else rate
        if isinstance(value, int | float):
            spread = (
                f" (p5 {rate['p5']:,.1f}, p95 {rate['p95']:,.1f})" if isinstance(rate, dict) and "p5" in rate else ""
            )
            notes.append(f"{name}: {value:,.1f} tokens/s without a tool{spread}.")
    return notes


def api_notes(summaries: dict[str, pd.DataFrame], largest: int = 3) -> list[str]:
    """Return one sentence on the time in CUDA API calls: what the launching side of the program waits for."""
    calls = summaries.get("cuda_api_sum")
    if calls is None or calls.empty:
        return []
    total = int(calls["total_ns"].sum())
    parts = []
    for call in calls.sort_values("total_ns", ascending=False, kind="stable").head(largest).to_dict("records"):
        median = "" if pd.isna(call["median_ns"]) else f", median {call['median_ns'] / 1e3:,.1f} µs"
        parts.append(f"{call['name']} {call['total_ns'] / 1e6:,.2f} ms ({call['count']:,} calls{median})")
    named = "; ".join(parts)
    return [f"CUDA API calls took {total / 1e6:,.2f} ms with nsys attached (cuda_api_sum), most of it in {named}."]


def counter_notes(tables: dict[str, pd.DataFrame], ncu: dict[str, Any] | None) -> list[str]:
    """Return what a reader must know to read byte counts and roofs rightly."""
    notes = []
    traffic, roofline = tables["traffic"], tables["roofline"]
    if (traffic["measured_over_minimum"] < 0.99).any():
        flushed = (
            " ncu flushes the caches before each kernel, so reads are cold."
            if (ncu or {}).get("cache_control") == "all"
            else ""
        )
        notes.append(
            "Measured DRAM bytes may lie below the minimum: what a kernel writes last stays in L2 when it ends."
            + flushed
        )
    above = roofline[roofline["roof_frac"] > 1.02]
    if len(above):
        worst = above.sort_values("roof_frac").iloc[-1]
        notes.append(
            f"{len(above)} rows of the roofline stand above their measured roof, at most {worst['roof_frac']:.2f} "
            f"times ({worst['range']}, {worst['level']}): "
            "a launch alone, as ncu replays it, may run cooler than a sustained micro-kernel, or be served by a cache."
        )
    return notes
