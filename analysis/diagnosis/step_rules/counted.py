"""The causes that counters tell of single kernels, as changes of the step."""

from collections.abc import Iterator

import numpy as np

from analysis.diagnosis.judge import all_rules
from analysis.diagnosis.step_rules.view import Proposal, View
from analysis.formats import symbols
from analysis.formats.report import Confidence, kinds
from analysis.formats.words import count_of, duration
from analysis.replay import changes
from analysis.replay.graph import Bools, Graph

LEAST = 0.005  # of the step: what a shorter kernel could save is not worth a look


def propose(view: View) -> Iterator[Proposal]:
    """Propose to make a kernel faster, by the share of its time that its first cause explains."""
    rows = view.counted
    if rows is None or rows.empty:
        return
    wrong_if = {rule.defect: rule.wrong_if for rule in all_rules()}
    first = rows[(rows["rank"] == 1) & (rows["gain_bound_frac"].astype(float) > 0)]
    for kernel, own in first.groupby("kernel", sort=False):
        ops = view.kernels & (view.keys == symbols.key(str(kernel)))
        time = view.time(ops)
        if view.share(time) < LEAST or any(map(symbols.is_closed, {str(kernel), *view.names[ops]})):
            continue
        row = own.iloc[0]
        low, high = (float(own[end].astype(float).fillna(0.0).mean()) for end in ("gain_low_frac", "gain_bound_frac"))

        def faster(base: Graph, share: float, ops: Bools = ops, low: float = low, high: float = high) -> Graph:
            return changes.scale(base, ops, 1 - low - share * (high - low))

        name, count, kind = symbols.short(str(kernel)), view.of_step(np.count_nonzero(ops)), str(row["defect"])
        yield Proposal(
            kind=kind, about=name, title=f"Make {name} faster",
            sentence=f"{count_of(count, 'launch a step takes', 'launches a step take')} {duration(time)}. "
            f"{kinds()[kind]['what']}",
            change=faster, count=count, time_ns=time, most_ns=high * time, wrong_if=wrong_if.get(kind, ""),
            sure=Confidence.LIKELY if float(row["sure_frac"]) >= 0.7 else Confidence.UNSURE,
        )  # fmt: skip
