"""slow_rank, exposed_communication: what ranks wait for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.diagnosis.step_rules.view import Proposal, View
from analysis.formats.collectives import communicates
from analysis.formats.words import count_of, duration
from analysis.replay import changes


def propose(view: View) -> Iterator[Proposal]:
    """Propose equal work for the ranks, and collectives beside kernels."""
    graph = view.graph
    talks = np.array([communicates(name) for name in view.names], bool)
    if not talks.any():
        return
    count, time = view.of_step(np.count_nonzero(talks)), view.time(talks)
    process = graph.stream_pid[graph.o_stream]
    pids = np.unique(process)
    if len(pids) > 1:
        work = {int(pid): view.of_step(graph.o_duration[(process == pid) & ~talks].sum()) for pid in pids}
        slow = max(work, key=lambda pid: work[pid])
        rank = view.capture.process_ranks.get(slow)
        name = f"Rank {rank}" if rank is not None else f"Process {slow}"
        more = work[slow] - min(work.values())
        yield Proposal(
            kind="slow_rank", about=name, title="Give the ranks equal work",
            sentence=f"{name} works {duration(more)} longer in each step, and the others wait for it in collectives.",
            change=lambda base, share: changes.equalise_ranks(base), count=1.0, time_ns=more,
            wrong_if="the ranks' GPUs or clocks differ",
        )  # fmt: skip
    yield Proposal(
        kind="exposed_communication", about="collectives", title="Communicate beside the kernels",
        sentence=f"{count_of(round(count), 'collective')} a step take {duration(time)} of the ranks' GPUs in all.",
        change=lambda base, share: changes.move(base, talks, "communication", 1.0), count=count, time_ns=time,
        wrong_if="the kernels that follow need all results at once",
    )  # fmt: skip
