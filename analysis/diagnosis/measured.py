"""Hold findings against what the running program showed: how much its step grows when a part of it is delayed.

The replay is asked the same question. A saving that it predicted is multiplied by measured over replayed slope.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from msgspec.structs import astuple

from analysis.capture.model import Capture
from analysis.diagnosis.claims import Claim
from analysis.formats import symbols
from analysis.formats.measured import CALLS, MEASURED, Intervention
from analysis.formats.report import Measured, Saving, kind_of
from analysis.formats.words import share
from analysis.replay.changes import scale
from analysis.replay.simulate import step_ns

HIDDEN = 0.05  # a part whose slope is surely below: a faster one wins nothing
LONGER = 1.1  # what the replay is asked: operations that take so many times as long, as measure-fix delays a step
APART = 0.2  # slopes that differ by more, beside their interval, contradict each other


@dataclass(frozen=True)
class Settled:
    """The claims that are left, in their order, and a sentence about each that the experiment refuted, by its id."""

    claims: list[Claim]
    hidden: Mapping[str, str] = field(default_factory=dict)


def settle(claims: Sequence[Claim], capture: Capture) -> Settled:
    """Return the claims with what was measured of each; those without an experiment are unchanged."""
    document = capture.of(MEASURED.kind)
    rows = [one for one in document["targets"] if one["slope"] is not None] if document else []
    kept: list[Claim] = []
    hidden: dict[str, str] = {}
    for claim in claims:
        if claim.later is not None and claim.later.after in hidden:
            continue
        found = _measured(claim, capture, rows)
        if found is None:
            kept.append(claim)
        elif found.high < HIDDEN:
            hidden[claim.id] = f"{claim.title}: hidden, since the step grows by {_told(found)} of a delay of it."
        else:
            kept.append(_settled(claim, found))
    if any(one.measured for one in kept) and len({one.scope for one in kept}) == 1:
        kept.sort(key=lambda one: (one.later is not None, -(one.saves_frac.middle or 0.0)))
    return Settled(kept, hidden)


def _measured(claim: Claim, capture: Capture, rows: Sequence[dict[str, Any]]) -> Measured | None:
    """Return the slope of the operations or calls of a claim, by their time; None if most of it was not delayed."""
    if pattern := CALLS.get(kind_of(claim.kind)):
        calls = [
            one
            for one in rows
            if one["change"] == Intervention.HOST and any(map(re.compile(pattern).search, one["names"]))
        ]
        return _slope(calls[0]) if calls else None
    if claim.ops is None or not len(claim.ops) or not rows:
        return None
    ops, delays = capture.gpu_ops.iloc[claim.ops], [one for one in rows if one["change"] == Intervention.DELAY]
    times = ops["duration_ns"].groupby(ops["name"].map(lambda name: symbols.demangled_key(str(name)))).sum()
    slopes, weights = [], []
    for key, ns in times.items():
        fits = [one for one in delays if key in map(symbols.demangled_key, one["names"])]
        if fits:
            slopes.append(astuple(_slope(fits[0])))
            weights.append(float(ns))
    if sum(weights) < 0.5 * float(times.sum()) or not sum(weights):
        return None
    return Measured(*np.average(np.array(slopes), axis=0, weights=weights).tolist())


def _slope(row: dict[str, Any]) -> Measured:
    return Measured(row["slope"], row["low"], row["high"])


def _settled(claim: Claim, found: Measured) -> Claim:
    """Return a claim with its measured slope, and the saving that follows."""
    said = f" Measured: the step grows by {_told(found)} of a delay of it."
    saves, of = claim.saves_ns, claim.saves_frac
    if claim.replays is not None:
        before, about = claim.replays.before, claim.replays.about
        added = float(before.graph.o_duration[about].sum()) * (LONGER - 1) / before.graph.steps
        if added > 0:
            slope = round((step_ns(scale(before.graph, about, LONGER)) - before.step_ns) / added, 9)
            apart = max(found.low - slope, slope - found.high, 0.0) > APART
            said += f" The replay says {share(slope)}" + (", which contradicts it." if apart else ".")
            if slope > HIDDEN:
                saves = None if saves is None else _times(saves, found, slope)
                of = _times(of, found, slope)
    return replace(claim, sentence=claim.sentence + said, measured=found, saves_ns=saves, saves_frac=of)


def _times(saving: Saving, found: Measured, slope: float) -> Saving:
    low = None if saving.low is None else saving.low * max(found.low, 0.0) / slope
    return Saving(low, None if saving.high is None else saving.high * found.high / slope)


def _told(found: Measured) -> str:
    return f"{share(found.slope)} ({share(found.low)} to {share(found.high)})"
