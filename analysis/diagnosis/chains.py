"""Find the launches of each chain of the fusion plan in a step."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.diagnosis.step_rules.view import View
from analysis.formats import symbols
from analysis.fusion.opmap import kind_of_kernel
from analysis.replay import changes
from analysis.replay.graph import Bools
from analysis.tables.attribution import UNATTRIBUTED

LEAST = 0.0025  # of the step; the launches that go may save more
MOST = 4  # chains, those with the largest gain


@dataclass(frozen=True)
class Chain:
    """A row of fusion.csv with its launches: positions of each run, and a mask of all."""

    row: pd.Series
    runs: list[np.ndarray]
    inside: Bools


def planned(view: View, pointwise: Bools) -> list[Chain]:
    """Return the chains of the plan that are no mere rows of element by element kernels, those with most gain first.

    A launch belongs to one chain: to that with most kernels. `pointwise`: the kernels of such rows.
    """
    plan = view.plan
    if plan is None or plan.empty:
        return []
    ranges = set(view.paths[view.kernels])
    rows = plan[plan["gain_ns"].notna() & plan["now_time_ns"].notna() & (plan["scope"] != "epilogue")]
    rows = rows[rows["range"].str.split(" + ", regex=False).map(lambda own: bool(ranges & set(own))).astype(bool)]
    rows = rows.sort_values("gain_ns", ascending=False).head(MOST)
    kind = view.each(lambda name: kind_of_kernel(symbols.key(name)), object)
    taken, found = np.zeros(len(view.names), bool), dict[int, Chain]()
    for at in sorted(range(len(rows)), key=lambda at: -len(_kinds(rows.iloc[at]))):
        row = rows.iloc[at]
        runs = _runs(view, row, kind, taken)
        inside = view.inside(runs)
        time = view.time(inside)
        if view.share(time) >= LEAST and view.time(inside & pointwise) <= 0.5 * time:
            taken |= inside
            found[at] = Chain(row, runs, inside)
    return [found[at] for at in sorted(found)]


def _kinds(row: pd.Series) -> list[str]:
    return str(row["kernels"]).split(" > ")


def _runs(view: View, row: pd.Series, kind: np.ndarray, taken: Bools) -> list[np.ndarray]:
    """Return the runs of a chain in its ranges: its kinds of kernels in order, else all neighbours of its kinds."""
    kinds, ranges = _kinds(row), str(row["range"]).split(" + ")
    there = np.isin(view.paths, [*ranges, ""] if UNATTRIBUTED in ranges else ranges)
    runs = changes.neighbours(view.graph, np.isin(kind, kinds) & there & ~taken)
    size, exact = len(kinds), list[np.ndarray]()
    for rows in runs:
        at = 0
        while at + size <= len(rows):
            whole = kind[rows[at : at + size]].tolist() == kinds
            exact += [rows[at : at + size]] if whole else []
            at += size if whole else 1
    return exact or runs
