"""slow_rank, exposed_communication: what ranks wait for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from analysis.diagnosis.step_rules.view import Proposal, View
from analysis.formats.collectives import communicates
from analysis.formats.words import count_of, duration
from analysis.replay import changes
from analysis.replay.graph import Bools, Graph

LEAST = 0.01  # of the step
HIDDEN = 0.5  # of a collective at least can run beside kernels of the step


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
        yield from _uneven(view, talks)

    def beside(base: Graph, share: float) -> Graph:
        if share >= 1.0:
            return changes.move(base, talks, "communication")
        return changes.scale(base, talks, HIDDEN)

    yield Proposal(
        kind="exposed_communication", about="collectives", title="Communicate beside the kernels",
        sentence=f"{count_of(round(count), 'collective')} a step take {duration(time)} of the ranks' GPUs in all.",
        change=beside, count=count, time_ns=time,
        wrong_if="the kernels that follow need all results at once",
    )  # fmt: skip


def _uneven(view: View, talks: Bools) -> Iterator[Proposal]:
    """Propose to take from the slowest rank what it has more to do than the others, on its GPU and its host."""
    graph = view.graph
    process = graph.stream_pid[graph.o_stream]
    of_call = graph.seq_pid[graph.c_seq]
    own = {
        int(pid): (
            view.of_step(graph.o_duration[(process == pid) & ~talks].sum()),
            view.of_step((graph.c_gap + graph.c_own)[of_call == pid].sum()),
        )
        for pid in np.unique(process)
    }
    slow = max(own, key=lambda pid: sum(own[pid]))
    others = [each for pid, each in own.items() if pid != slow]
    gpu, host = (max(own[slow][side] - max(each[side] for each in others), 0.0) for side in (0, 1))
    if gpu + host < LEAST * view.step.told_ns:
        return
    rank = view.capture.process_ranks.get(slow)
    name = f"Rank {rank}" if rank is not None else f"Process {slow}"

    def equal(base: Graph, share: float) -> Graph:
        mine = (process == slow) & ~talks
        faster = changes.scale(base, mine, 1 - gpu / max(own[slow][0], 1.0))
        left = np.where(of_call == slow, 1 - host / max(own[slow][1], 1.0), 1.0)
        return replace(faster, c_gap=faster.c_gap * left, c_own=faster.c_own * left)

    where = "on its host" if host > gpu else "on its GPU"
    yield Proposal(
        kind="slow_rank", about=name, title="Give the ranks equal work",
        sentence=f"{name} works {duration(gpu + host)} longer in each step, {where}; the others wait for it.",
        change=equal, count=1.0, time_ns=gpu + host, wrong_if="the ranks' GPUs or clocks differ",
    )  # fmt: skip
