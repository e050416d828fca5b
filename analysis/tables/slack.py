"""Say how much later the launches of a kernel could end, and for how much of a step the step waits for them."""

import numpy as np
import pandas as pd

from analysis.formats import symbols
from analysis.replay.decompose import Decomposition, decompose
from analysis.replay.savings import Step, step
from analysis.replay.steady import Steady, find
from analysis.tables.attribution import fold_paths, or_outside
from analysis.tables.declare import Facts

KEY = ["kernel", "range", "grid", "block"]


def phases(facts: Facts) -> Steady:
    """Return the start-up and the steady phases of the capture."""
    return find(facts.capture)


def first_step(facts: Facts) -> tuple[Step, Decomposition] | None:
    """Return the replay of the steady step with most time, and its parts."""
    found = facts.once(phases).phases
    if not found:
        return None
    replayed = step(facts.capture, found[0])
    return replayed, decompose(replayed.told_run, replayed.told_ns)


def slack(facts: Facts) -> pd.DataFrame:
    """Return slack_ns and critical_frac by KEY, for the kernels of the steady step with most time."""
    found = facts.once(first_step)
    if found is None:
        return pd.DataFrame(columns=["slack_ns", "critical_frac"], index=pd.MultiIndex.from_arrays([[]] * 4, names=KEY))
    rows = found[1].operations
    ops = facts.gpu_ops.loc[rows.index]
    kernels = (ops["kind"] == "kernel").to_numpy(bool)
    ops, rows = ops[kernels], rows[kernels]
    names = ops["name"].astype(object)
    folded = or_outside(fold_paths(ops["path"]))
    keyed = pd.DataFrame(
        {
            "kernel": names.map({name: symbols.key(str(name)) for name in names.unique()}).to_numpy(object),
            "range": folded.to_numpy(object),
            "grid": ops["grid"].to_numpy(object),
            "block": ops["block"].to_numpy(object),
            "slack_ns": rows["slack_ns"].to_numpy(np.float64),
            "critical_frac": rows["critical_frac"].to_numpy(np.float64),
        }
    )
    groups = keyed.groupby(KEY, sort=False)
    return pd.DataFrame({"slack_ns": groups["slack_ns"].median(), "critical_frac": groups["critical_frac"].sum()})
