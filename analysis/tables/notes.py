"""Write the notes of a report, which a reader needs to understand it, in the order of the page."""

from typing import Any

import pandas as pd

from analysis.capture.model import Capture
from analysis.formats.report import Missing, Reason
from analysis.formats.words import count_of, duration
from analysis.tables import attribution, layers, nsys_sums
from analysis.tables.declare import Facts, part


def nsys_equality(capture: Capture, gpu_ops: pd.DataFrame, ranges: pd.DataFrame) -> tuple[int, int]:
    """Return (number of ranges with the same kernel time as in nsys' own report, number of ranges)."""
    if not len(capture.nsys_range_sums) or not len(ranges):
        return 0, 0
    sums = nsys_sums.range_sums(gpu_ops, ranges, capture.start_end_ranges)
    return layers.check_against_nsys(sums, capture.nsys_range_sums)


@part("missing")
def _unequal_sums(facts: Facts) -> Missing | None:
    equal, compared = facts.nsys_equality
    if equal == compared:
        return None
    return Missing(
        Reason.CONTRADICTION,
        f"kernel time of {compared - equal} of {compared} ranges",
        "it differs from nsys' own sums (nvtx_kern_sum), so the exports are not of one whole capture",
        "export all reports again from the same .nsys-rep",
    )


@part("note")
def _equal_sums(facts: Facts) -> str | None:
    equal, compared = facts.nsys_equality
    if not compared:
        return None
    return f"Kernel time per range equals nsys' own nvtx_kern_sum to the nanosecond in {equal} of {compared} ranges."


@part("note")
def _whose_clock(facts: Facts) -> str | None:
    if facts.capture.clock != "torch":
        return None
    return "The timeline is a trace of torch.profiler: its times stand where columns are named after nsys."


@part("note")
def _unattributed(facts: Facts) -> str | None:
    return attribution.explain_unattributed(facts.launches, facts.ranges)


@part("note")
def _graphs(facts: Facts) -> str | None:
    if len(facts.placed[0]) <= len(facts.ranges):
        return None
    return (
        f"Rows of layers.csv marked {layers.GRAPH_MARK.strip()} are kernels of CUDA graphs, shown in the ranges in "
        "which the graph was recorded, below the range that launched it."
    )


@part("note")
def _siblings(facts: Facts) -> str | None:
    joined = facts.joined
    count = int((joined.launches["counters_from"] == "sibling").sum()) if len(joined.launches) else 0
    if not count:
        return None
    return f"{count} kernels carry the counters of a sibling: the same kernel, grid and block in a range of its kind."


@part("note")
def _rates(facts: Facts) -> list[str]:
    return timing_notes(facts.capture.timing)


@part("note")
def _calls(facts: Facts) -> list[str]:
    return api_notes(facts.capture.summaries)


@part("note")
def _decimal_commas(facts: Facts) -> str | None:
    names = sorted({file.name for file in facts.capture.files if file.decimal_comma})
    return f"Read with a decimal comma, as the numbers prove or --locale says: {', '.join(names)}." if names else None


@part("note")
def _counters(facts: Facts) -> list[str]:
    return counter_notes({"traffic": facts.traffic, "roofline": facts.roofline}, facts.ncu)


def timing_notes(timing: dict[str, Any] | None) -> list[str]:
    """Return one sentence for each rate that was measured with no profiler attached."""
    notes = []
    for name, rate in ((timing or {}).get("tokens_per_s") or {}).items():
        value = rate.get("p50") if isinstance(rate, dict) else rate
        if isinstance(value, int | float):
            spread = (
                f" (p5 {rate['p5']:,.1f}, p95 {rate['p95']:,.1f})" if isinstance(rate, dict) and "p5" in rate else ""
            )
            notes.append(f"{name}: {value:,.1f} tokens/s without a profiler{spread}.")
    return notes


def api_notes(summaries: dict[str, pd.DataFrame]) -> list[str]:
    """Return one sentence on the time in CUDA API calls, which shows what the launching thread waits for."""
    calls = summaries.get("cuda_api_sum")
    if calls is None or calls.empty:
        return []
    total = int(calls["total_ns"].sum())
    parts = []
    for call in calls.sort_values("total_ns", ascending=False, kind="stable").head(3).to_dict("records"):
        median = "" if pd.isna(call["median_ns"]) else f", median {duration(call['median_ns'])}"
        many = count_of(call["count"], "call")
        parts.append(f"{call['name']} {duration(call['total_ns'])} ({many}{median})")
    named = "; ".join(parts)
    return [f"CUDA API calls took {duration(total)} with nsys attached (cuda_api_sum), most of it in {named}."]


def counter_notes(tables: dict[str, pd.DataFrame], ncu: dict[str, Any] | None) -> list[str]:
    """Return the notes that a reader needs to understand byte counts and roofs."""
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
            f"{len(above)} rows of the roofline stand above their {worst.get('roof_from', 'measured')} roof, "
            f"at most {worst['roof_frac']:.2f} "
            f"times ({worst['range']}, {worst['level']}): "
            "a launch alone, as ncu replays it, may run cooler than a sustained micro-kernel, or be served by a cache."
        )
    return notes
