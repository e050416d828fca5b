"""Compare deterministic quantities exactly, decide by them where time cannot, and name causes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from msgspec import structs

from analysis.formats.comparison import Basis, Judged, Match, Quantity, Verdict
from analysis.tables.groups import DIFFER_BYTES
from analysis.tables.selftest import LIMITS


@dataclass(frozen=True)
class Exact:
    """A deterministic quantity.

    better: -1 if less is better, 1 if more is, 0 if neither. share: the relative tolerance; least: the absolute one.
    summed: whether a step has the sum over its launches, else the largest. work: whether equal work needs it equal.
    """

    name: str
    said: str
    better: int
    share: float = 0.0
    least: float = 0.0
    summed: bool = True
    work: bool = False


EXACT = (
    Exact("launches", "launches", -1, share=1e-9),
    Exact("inst_executed", "instructions", -1, share=0.001, work=True),
    Exact("inst_issued", "issued instructions", -1, share=0.01, work=True),
    Exact("dram_bytes", "DRAM bytes", -1, share=LIMITS["byte"], least=DIFFER_BYTES, work=True),
    Exact("local_bytes", "bytes of local memory", -1, share=LIMITS["byte"], least=DIFFER_BYTES),
    Exact("spill_bytes", "spilled bytes a thread", -1, summed=False, work=True),
    Exact("stack_bytes", "stack bytes a thread", -1, summed=False),
    Exact("local_instructions", "local instructions", -1, summed=False, work=True),
    Exact("registers", "registers a thread", 0, summed=False),
    Exact("shared_bytes", "shared bytes a block", 0, summed=False),
    Exact("instructions", "instructions of the code", 0, summed=False),
    Exact("code_bytes", "bytes of code", 0, share=0.1, summed=False),
    Exact("occupancy_theoretical_frac", "occupancy", 1, share=1e-6, summed=False),
)  # fmt: skip
RAN = ("inst_executed", "inst_issued", "dram_bytes")  # what ncu counts of a launch
_LOWER = {"l2_hit_frac": "L2 hit rate", "l1_hit_frac": "L1 hit rate", "occupancy_achieved_frac": "achieved occupancy"}
CONTRADICTS = 0.05  # a time that differs by more against the exact verdict leaves it UNSURE
POINTS = 0.02  # a smaller change of a rate is no cause
CLOCK = 0.03  # share by which an SM clock may differ


def total(items: pd.DataFrame, one: Exact | str) -> float | None:
    """Return a quantity of some launches of a step; None if it is not known of all of them."""
    name = one if isinstance(one, str) else one.name
    if name not in items or items.empty:
        return None
    values = items[name].to_numpy(float)
    if not np.isfinite(values).all():
        return None
    launches = items["launches"].to_numpy(float) if "launches" in items else np.ones(len(items))
    if isinstance(one, str):
        return float(np.average(values, weights=launches))
    if name == "launches":
        return float(launches.sum())
    return float((values * launches).sum()) if one.summed else float(values.max())


def compare(a: pd.DataFrame, b: pd.DataFrame, match: Match) -> list[Quantity]:
    """Return every deterministic quantity that both sides know. Shape: items of a step.

    What a kernel has (registers, spills) is compared only of the same kernel.
    """
    found = []
    for one in EXACT:
        if not one.summed and match is not Match.NAME:
            continue
        mine, other = total(a, one), total(b, one)
        if mine is None or other is None:
            continue
        least = one.least
        if one.name == "launches" and not (mine.is_integer() and other.is_integer()):
            least = 1.0  # the steps of a side differ, so only more than a launch is a difference
        differs = abs(other - mine) > max(one.share * max(abs(mine), abs(other)), least)
        worse = ((other > mine) == (one.better < 0)) if differs and one.better else None
        found.append(Quantity(one.name, mine, other, differs, worse))
    if any(one.name == "inst_executed" for one in found):  # issued ones say the same, less exactly
        found = [one for one in found if one.name != "inst_issued"]
    return found


def decide(judged: Judged, found: Sequence[Quantity]) -> Judged:
    """Return the verdict, by exact quantities if time could not decide and they tell the work of both sides."""
    work = {one.name for one in EXACT if one.work}
    if judged.verdict is not Verdict.UNSURE or not any(one.name in work for one in found):
        return judged
    worse = [one for one in found if one.worse]
    better = [one for one in found if one.worse is False]
    if worse and better:
        return judged
    verdict = Verdict.SLOWER if worse else Verdict.FASTER if better else Verdict.SAME
    differs = [one for one in found if one.differs]
    if verdict is Verdict.SAME and differs and not any(one.name in RAN for one in found):  # only the code is known
        return structs.replace(judged, why=f"the code differs: {_told(differs)}; only times tell whether that matters")
    away = float(np.log(judged.ratio)) if judged.ratio else 0.0
    if {Verdict.SLOWER: -away, Verdict.FASTER: away, Verdict.SAME: abs(away)}[verdict] > CONTRADICTS:
        return judged
    why = _told(worse or better) or "equal instructions and bytes"
    return Judged(verdict, Basis.EXACT, judged.ratio, judged.low, judged.high, judged.samples, why=why)


def _told(found: Sequence[Quantity]) -> str:
    words = {one.name: one.said for one in EXACT}
    return ", ".join(f"{words[one.name]} {number(one.a)} → {number(one.b)}" for one in found)


def number(value: float | None) -> str:
    """Return a number in a few digits."""
    if value is None:
        return "?"
    for limit, one, unit in ((1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if abs(value) >= limit:
            return f"{value / one:.4g}{unit}"
    return f"{value:.4g}"


def cause(a: pd.DataFrame, b: pd.DataFrame, match: Match, found: Sequence[Quantity], names: Sequence[str]) -> str:
    """Return why a row's time differs: what of the work differs, the largest change first; '' if nothing is known."""
    if match is Match.ONLY_A:
        return "only A has it"
    if match is Match.ONLY_B:
        return "only B has it"
    told: list[tuple[float, str]] = []
    words = {one.name: one.said for one in EXACT}
    for one in found:
        if one.differs and one.a is not None and one.b is not None:
            size = abs(np.log(one.b / one.a)) if one.a and one.b else np.inf
            text = f"{'more' if one.b > one.a else 'fewer'} {words[one.name]}: {number(one.a)} → {number(one.b)}"
            told.append((float(size), text))
    for name, said in _LOWER.items():
        mine, other = total(a, name), total(b, name)
        if mine is not None and other is not None and abs(other - mine) >= POINTS:
            text = f"{'higher' if other > mine else 'lower'} {said}: {mine:.0%} → {other:.0%}"
            told.append((abs(other - mine), text))
    told += _sampled(a, b, found)
    mine, other = total(a, "sm_clock_hz"), total(b, "sm_clock_hz")
    if mine and other and abs(other / mine - 1) > CLOCK:
        told.append((abs(float(np.log(other / mine))), f"SM clock {mine / 1e6:.0f} → {other / 1e6:.0f} MHz"))
    for name in ("grid", "block"):
        if match is Match.NAME and name in a and name in b and sorted(set(a[name])) != sorted(set(b[name])):
            told.append((0.0, f"another {name}: {_few(a[name])} → {_few(b[name])}"))
    parts = [text for _, text in sorted(told, key=lambda item: -item[0])[:3]]
    if match is Match.REPLACED:
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        parts.insert(0, f"replaced by {', '.join(names[:2])}{more}")
    return "; ".join(parts)


def _sampled(a: pd.DataFrame, b: pd.DataFrame, found: Sequence[Quantity]) -> list[tuple[float, str]]:
    """Return what samples of the running program say of DRAM reads, if they differ by more than their errors."""
    mine, other = total(a, "sampled_read_bytes"), total(b, "sampled_read_bytes")
    errors = (total(a, "sampled_error_bytes") or 0.0) + (total(b, "sampled_error_bytes") or 0.0)
    if not mine or not other or abs(other - mine) <= errors or any(one.name == "dram_bytes" for one in found):
        return []
    size = abs(float(np.log(other / mine)))
    if size <= LIMITS["byte"]:
        return []
    what = f"{'more' if other > mine else 'fewer'} DRAM bytes read a launch, sampled"
    return [(size, f"{what}: {number(mine)} → {number(other)}")]


def _few(values: pd.Series) -> str:
    unique = [str(one) for one in dict.fromkeys(values)]
    return ", ".join(unique[:2]) + (" …" if len(unique) > 2 else "")


def clock_of(items: pd.DataFrame) -> float | None:
    """Return the mean SM clock of the launches with counters, Hz; None without."""
    values = items["sm_clock_hz"].dropna() if "sm_clock_hz" in items else pd.Series(dtype=float)
    return float(values.mean()) if len(values) else None
