"""Build the waterfall from a step of A to that of B: bars in whole ns that add up exactly."""

from collections.abc import Sequence

import numpy as np

from analysis.comparison.runs import StepOf
from analysis.formats import symbols
from analysis.formats.comparison import Bar, Match, Row
from analysis.formats.report import PartKind
from analysis.formats.words import duration, signed

SHOWN = 0.0005  # of the step: smaller bars are one bar
TOLD = 0.1  # of the longest bar: the sentence names no shorter one


def waterfall(
    a: Sequence[StepOf], b: Sequence[StepOf], rows: Sequence[Row], total_a: int, total_b: int, kernels: bool
) -> list[Bar]:
    """Return bars that add up to total_b - total_a: rows, what the GPU waits for, overlap, and the residual."""
    if not rows:
        return [Bar("the whole", "", total_b - total_a, "nothing is known of its parts")]
    bars = []
    for place, row in enumerate(rows):
        ns = round(row.b_ns or 0.0) - round(row.a_ns or 0.0)
        names = row.a or row.b
        what = " + ".join(symbols.short(name) for name in names[:3]) + (" …" if len(names) > 3 else "")
        bars.append(Bar(what, row.layer, ns, row.cause, place))
    if not kernels:
        idle_a, idle_b = _mean_parts(a), _mean_parts(b)
        if {*idle_a} == {"other"} or {*idle_b} == {"other"}:  # what one side waits for is unknown
            idle_a, idle_b = ({"other": sum(idle.values())} for idle in (idle_a, idle_b))
        for part in dict.fromkeys([*idle_a, *idle_b]):
            ns = round(idle_b.get(part, 0.0)) - round(idle_a.get(part, 0.0))
            bars.append(Bar(PartKind(part).said, "host", ns, f"the GPU waits {'longer' if ns > 0 else 'less'}"))
        bars.append(Bar("overlap of kernels", "", round(_overlap(b)) - round(_overlap(a)), "they run together"))
    floor = SHOWN * max(total_a, total_b)
    small = [bar for bar in bars if abs(bar.ns) < floor]
    kept = sorted((bar for bar in bars if abs(bar.ns) >= floor), key=lambda bar: -abs(bar.ns))
    rest = sum(bar.ns for bar in small)
    if small:
        kept.append(Bar(f"{len(small)} smaller differences", "", rest, f"each below {SHOWN:.2%} of the step"))
    residual = total_b - total_a - sum(bar.ns for bar in kept)
    return [*kept, Bar("residual", "", residual, "rounding, and launches that not every run has")]


def _overlap(steps: Sequence[StepOf]) -> float:
    """Return how much longer the GPU is busy than its kernels take together, below zero if they overlap; ns."""
    return float(np.mean([(one.busy_ns or 0.0) - float(one.items["time_ns"].sum()) for one in steps]))


def _mean_parts(steps: Sequence[StepOf]) -> dict[str, float]:
    parts = dict.fromkeys(part for step in steps for part in step.idle_ns)
    return {part: float(np.mean([step.idle_ns.get(part, 0.0) for step in steps])) for part in parts}


def said(a: int, b: int, bars: Sequence[Bar]) -> str:
    """Return "+1.31 ms (4.2 ms → 5.5 ms): softmax replaced by fused (−1.42 ms); …"."""
    told = [bar for bar in bars if bar.what != "residual" and bar.ns][:3]
    told = [bar for bar in told if abs(bar.ns) >= TOLD * abs(told[0].ns)]
    parts = "; ".join(f"{bar.what}{_because(bar)} ({signed(bar.ns)})" for bar in told)
    return f"{signed(b - a)} ({duration(a)} → {duration(b)})" + (f": {parts}" if parts else "")


def _because(bar: Bar) -> str:
    if not bar.cause or bar.row is None:
        return ""
    return f"{' ' if bar.cause.startswith(Match.REPLACED) else ', '}{bar.cause.split(';')[0]}"
