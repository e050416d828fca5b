"""Build rank_steps.csv: what each rank waits, sends and could hide in each steady step."""

import numpy as np
import pandas as pd

from analysis.capture.model import IntArray
from analysis.diagnosis.steady_of import steady_of
from analysis.formats import intervals
from analysis.replay.steady import Phase
from analysis.tables.declare import Column, Facts, table
from analysis.tables.ranks import RANK


@table(
    "rank_steps",
    question="How long does each rank wait in each step, how late is it itself, and what could kernels hide?",
    title="Ranks step by step",
    columns=(
        Column("step", "number of the step, from 1, with those of the start-up", "key", "1"),
        RANK,
        Column("steady", "yes, or no for a step of the start-up and for one far from the median", "row"),
        Column("collectives", "collectives that the step launches", "timing", "1"),
        Column("late_ns", "sum, over the collectives that it starts last, of the time since the first start", "timing"),
        Column("waiting_ns", "time that its collectives wait for the last rank; blank if unknown", "timing"),
        Column("exposed_ns", "communication beside which no kernel computes on its GPU", "timing"),
        Column("exposed_transfer_ns", "exposed_ns without waiting; blank if unknown", "timing"),
        Column("room_ns", "time in which its kernels compute and nothing communicates", "timing"),
        Column("hideable_ns",
            "the smaller of exposed_transfer_ns and room_ns: no other size of buckets, no other order and no prefetch "
            "can hide more", "timing"),
    ),
)  # fmt: skip
def build_rank_steps(facts: Facts) -> pd.DataFrame | None:
    """Return rank_steps.csv, in the order of steps and ranks; None without a steady step or without collectives."""
    phase = next(iter(facts.once(steady_of).phases), None) if facts.has_timeline and not facts.held_back else None
    rows = facts.matched.rows
    rows = rows[rows["collective"] >= 0] if len(rows) else rows
    if phase is None or len(phase.start_ns) < 2 or rows.empty:
        return None
    rows = pd.concat([rows, facts.exposed], axis=1, join="inner").assign(
        time_ns=rows["end_ns"] - rows["start_ns"], late_ns=_lateness(rows)
    )
    rows = rows.assign(step=_step_of(rows, phase, facts))
    rows = rows[rows["step"] >= 0]
    if rows.empty:
        return None
    summed = ["late_ns", "waiting_ns", "exposed_ns", "exposed_waiting_ns"]
    groups = rows.groupby(["step", "place"])
    found = groups[summed].sum(min_count=1).assign(collectives=groups.size(), hidden=groups["time_ns"].sum())
    found = found.reset_index()
    found["hidden"] -= found["exposed_ns"]
    room = _computing(facts, phase)[found["step"].to_numpy(np.int64), found["place"].to_numpy(np.int64)]
    found["room_ns"] = (room - found["hidden"]).clip(lower=0)
    found["exposed_transfer_ns"] = found["exposed_ns"] - found["exposed_waiting_ns"]
    found["hideable_ns"] = found[["exposed_transfer_ns", "room_ns"]].astype("Float64").min(axis=1, skipna=False)
    found["steady"] = np.where(np.isin(found["step"], phase.steady), "yes", "no")
    found["rank"] = facts.rank_places["label"].to_numpy()[found["place"]]
    found = found.drop(columns=["place", "exposed_waiting_ns", "hidden"])
    whole = [name for name in found if name.endswith("_ns")]
    found = found.astype(dict.fromkeys(whole, "Float64")).round(dict.fromkeys(whole, 0))
    return found.assign(step=found["step"] + 1, tier="timing").astype(dict.fromkeys(whole, "Int64"))


def _lateness(rows: pd.DataFrame) -> pd.Series:
    """Return for each row how much later than the first its rank starts, ns: 0 unless it is the last, NA unknown."""
    start = rows["aligned_start_ns"]
    first = start.groupby(rows["collective"]).transform("min")
    last = start.groupby(rows["collective"]).transform("max")
    late = (start - first).where(start == last, 0).astype("Int64")
    return late.where(rows["last_start_ns"].notna())


def _step_of(rows: pd.DataFrame, phase: Phase, facts: Facts) -> IntArray:
    """Return the number of the step that launched each row's collective, from 0; -1 for none. Shape: (rows,).

    The process whose steps these are tells it: so no clock of another rank matters.
    """
    pid = facts.rank_places["pid"].fillna(-1).to_numpy(np.int64)[rows["place"].to_numpy(np.int64)]
    own = rows[pid == phase.pid]
    launched = own["launched_ns"].to_numpy(np.int64)
    at = np.searchsorted(phase.start_ns, launched, side="right") - 1
    until = np.append(phase.start_ns[1:], max(phase.end_ns[-1], phase.gpu_end_ns[-1]))
    step = np.where((at >= 0) & (launched < until[at]), at, -1)
    known = pd.Series(step, own["collective"].to_numpy()).groupby(level=0).first()
    return rows["collective"].map(known).fillna(-1).to_numpy(np.int64)


def _computing(facts: Facts, phase: Phase) -> IntArray:
    """Return how long each place computes in each step, ns. Shape: (steps, places)."""
    edges = np.append(phase.gpu_start_ns, phase.gpu_end_ns[-1]).astype(np.int64)
    offsets = facts.matched.clocks["offset_ns"].to_numpy(np.int64)
    places = len(facts.rank_places)
    spans = [*facts.computing, *[intervals.union(edges[:0], edges[:0])] * (places - len(facts.computing))]
    return np.stack([np.diff(intervals.before(edges + offsets[one], spans[one])) for one in range(places)], axis=1)
