"""fuse: chains of the fusion plan, such as the parts of a norm, that are no mere row of element by element kernels."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from analysis.diagnosis.step_rules.kernels import planned_chains
from analysis.diagnosis.step_rules.view import Proposal, View
from analysis.formats.words import count_of, duration
from analysis.replay import changes
from analysis.replay.graph import Graph

SLOWER = 1.6  # times the bound: of built kernels, few take longer


def propose(view: View) -> Iterator[Proposal]:
    """Propose one kernel for each chain of the plan."""
    for chain in view.asked(planned_chains):
        row, time = chain.row, view.time(chain.inside)
        factor = min(float(row["bound_time_ns"]) / max(float(row["now_time_ns"]), 1.0), 1.0)

        def fused(base: Graph, part: float, runs: list[np.ndarray] = chain.runs, factor: float = factor) -> Graph:
            spent, others = base.o_duration.copy(), np.zeros(len(base.o_start), bool)
            for one in runs:
                whole = spent[one].sum()
                least = min(whole, changes.KERNEL_FLOOR_NS)
                spent[one[0]] = max(whole * min(factor * (SLOWER - part * (SLOWER - 1)), 1.0), least)
                others[one[1:]] = True
            return changes.drop(replace(base, o_duration=spent), others, share=part)

        inner = max(str(row["range"]).split(" + "), key=len)
        count = view.of_step(np.count_nonzero(chain.inside))
        bound, shortest = time * factor, min(view.of_step(len(chain.runs)) * changes.KERNEL_FLOOR_NS, time)
        least = duration(shortest) if shortest > bound else f"{duration(bound)} for its bytes"
        taken = view.taken(chain.runs)
        fewer = count_of(round(count - view.of_step(len(chain.runs))), "launch goes", "launches go")
        yield Proposal(
            kind="fuse", about=f"{row['pattern']} in {inner}", title=f"Fuse {row['pattern']} in {inner}",
            sentence=(
                f"{count_of(count, 'launch a step takes', 'launches a step take')} {duration(time)}. One kernel "
                f"for each chain needs at least {least}, and {fewer}."
            ),
            do="torch.compile the function, or a fused kernel" if view.library == "pytorch" else "",
            change=fused, count=count, time_ns=time, most_ns=None if taken is None else taken - bound, placed=True,
            wrong_if="the fused kernel moves as many bytes as its parts",
        )  # fmt: skip
