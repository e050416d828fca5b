"""Choose the steady steps of a capture that the report judges."""

from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.replay.spans import spans
from analysis.replay.steady import Phase, Steady
from analysis.tables.declare import Facts
from analysis.tables.slack import phases

SEVERAL = 3  # repeats of a phase within one step of the program: they are parts of the step, such as its layers
MOST = 0.8  # of the repeats


def steady_of(facts: Facts) -> Steady:
    """Return the steady steps of a capture; where nothing repeats, its steps by their ranges, else the whole of it."""
    steady, steps = facts.once(phases), facts.step_ranges
    kept = tuple(one for one in steady.phases if one.marker or not _is_part(one, steps))
    if kept := kept or (steady.phases if len(steps) < SEVERAL else ()):
        return replace(steady, phases=kept)
    judged = steps[~steps.index.isin(list(facts.set_up))]
    root, within_root, _ = str(next(iter(steps["path"]), "")).partition("/")
    if within_root:  # other outermost ranges hold variants of the program
        judged = judged[judged["path"].str.startswith(f"{root}/")]
    reason = steady.reason or "What repeats are parts of the steps, and the steps differ."
    return spans(facts.capture, judged, reason)


def within(phase: Phase, ranges: pd.DataFrame) -> np.ndarray:
    """Return how many repeats of a phase begin within each range."""
    starts = np.sort(phase.start_ns)
    begin, end = (ranges[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    return np.asarray(np.searchsorted(starts, end) - np.searchsorted(starts, begin))


def _is_part(phase: Phase, step_ranges: pd.DataFrame) -> bool:
    """Return whether a phase that only launches tell is what the steps of the program consist of."""
    counts = within(phase, step_ranges)
    return bool(counts[counts >= SEVERAL].sum() >= MOST * len(phase.start_ns))
