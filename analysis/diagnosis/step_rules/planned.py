"""fuse: chains of the fusion plan, such as the parts of a norm, that are no mere row of element by element kernels."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.diagnosis.step_rules.kernels import pointwise_runs
from analysis.diagnosis.step_rules.view import Proposal, View
from analysis.formats import symbols
from analysis.formats.words import count_of, duration
from analysis.fusion.opmap import kind_of_kernel
from analysis.replay import changes
from analysis.replay.graph import Bools, Graph
from analysis.tables.attribution import UNATTRIBUTED

LEAST = 0.0025  # of the step; the launches that go may save more
MOST = 4  # chains, those with the largest gain
SLOWER = 1.6  # times the bound: of built kernels, few take longer


def propose(view: View) -> Iterator[Proposal]:
    """Propose one kernel for each chain of the plan."""
    plan = view.plan
    if plan is None or plan.empty:
        return
    _, known = pointwise_runs(view)
    ranges = set(view.paths[view.kernels])
    rows = plan[plan["gain_ns"].notna() & plan["now_time_ns"].notna() & (plan["scope"] != "epilogue")]
    rows = rows[rows["range"].str.split(" + ", regex=False).map(lambda own: bool(ranges & set(own))).astype(bool)]
    for _, row in rows.sort_values("gain_ns", ascending=False).head(MOST).iterrows():
        ops = _operations(view, row)
        runs = changes.neighbours(view.graph, ops)
        inside = np.zeros(len(ops), bool)
        for one in runs:
            inside[one] = True
        time = view.time(inside)
        if view.share(time) < LEAST or view.time(inside & known) > 0.5 * time:
            continue
        factor = min(float(row["bound_time_ns"]) / max(float(row["now_time_ns"]), 1.0), 1.0)

        def fused(base: Graph, part: float, runs: list[np.ndarray] = runs, factor: float = factor) -> Graph:
            spent, others = base.o_duration.copy(), np.zeros(len(base.o_start), bool)
            for one in runs:
                whole = spent[one].sum()
                least = min(whole, changes.KERNEL_FLOOR_NS)
                spent[one[0]] = max(whole * min(factor * (SLOWER - part * (SLOWER - 1)), 1.0), least)
                others[one[1:]] = True
            return changes.drop(replace(base, o_duration=spent), others, share=part)

        inner = max(str(row["range"]).split(" + "), key=len)
        count = view.of_step(np.count_nonzero(inside))
        bound, shortest = time * factor, min(view.of_step(len(runs)) * changes.KERNEL_FLOOR_NS, time)
        least = duration(shortest) if shortest > bound else f"{duration(bound)} for its bytes"
        fewer = count_of(round(count - view.of_step(len(runs))), "launch goes", "launches go")
        yield Proposal(
            kind="fuse", about=f"{row['pattern']} in {inner}", title=f"Fuse {row['pattern']} in {inner}",
            sentence=(
                f"{count_of(round(count), 'launch a step takes', 'launches a step take')} {duration(time)}. One kernel "
                f"for each chain needs at least {least}, and {fewer}."
            ),
            do="torch.compile the function, or a fused kernel" if view.library == "pytorch" else "",
            change=fused, count=count, time_ns=time, placed=True,
            wrong_if="the fused kernel moves as many bytes as its parts",
        )  # fmt: skip


def _operations(view: View, row: pd.Series) -> Bools:
    """Return the kernels of a chain in its ranges."""
    kinds, ranges = str(row["kernels"]).split(" > "), str(row["range"]).split(" + ")
    known = {name: kind_of_kernel(symbols.key(name)) in kinds for name in set(view.names)}
    there = np.isin(view.paths, [*ranges, ""] if UNATTRIBUTED in ranges else ranges)
    return np.asarray(np.array([known[name] for name in view.names], bool) & there)
