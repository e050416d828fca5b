"""slow_rank, exposed_communication: what ranks wait for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.capture.model import IntArray
from analysis.diagnosis.step_rules.view import Proposal, View
from analysis.formats.collectives import communicates
from analysis.formats.words import count_of, duration
from analysis.replay import changes
from analysis.replay.graph import Bools, Graph

LEAST = 0.01  # of the step
ALIKE = 0.5  # of the names of kernels at least, processes of one program share
EVEN = 0.75  # of the longest process: above this, the work of processes counts as even
HIDDEN = 0.5  # of a collective at least can run beside kernels of the step


def propose(view: View) -> Iterator[Proposal]:
    """Propose equal work for the ranks, and collectives beside kernels."""
    talks = np.array([communicates(name) for name in view.names], bool)
    if not talks.any():
        yield from _unlike(view)
        return
    count, time = view.of_step(np.count_nonzero(talks)), view.time(talks)
    places = _places(view.graph)
    if len(np.unique(places[view.graph.o_stream])) > 1:
        yield from _uneven(view, talks, places)

    def beside(base: Graph, share: float) -> Graph:
        if share >= 1.0:
            return changes.move(base, talks, "communication")
        return changes.scale(base, talks, HIDDEN)

    yield Proposal(
        kind="exposed_communication", about="collectives", title="Communicate beside the kernels",
        sentence=f"{count_of(round(count), 'collective a step takes', 'collectives a step take')} {duration(time)} on "
        f"the GPUs of each process.{_exposed(view)}",
        change=beside, count=count, time_ns=time,
        wrong_if="the kernels that follow need all results at once",
    )  # fmt: skip


def unlike(view: View) -> dict[int, float]:
    """Return the GPU time of each process of a step by pid, ns; {} unless the same kernels take uneven time in them.

    Their host waits for each other without a collective on the GPU, as with gloo or MPI.
    """
    pids = view.graph.stream_pid[view.graph.o_stream]
    own = {int(pid): view.kernels & (pids == pid) for pid in np.unique(pids[view.kernels])}
    times = {pid: float(view.graph.o_duration[rows].sum()) / view.graph.steps for pid, rows in own.items()}
    names = [set(view.names[rows]) for rows in own.values()]
    if len(times) < 2 or len(set.intersection(*names)) < ALIKE * len(set.union(*names)):
        return {}
    return times if min(times.values()) < EVEN * max(times.values()) else {}


def _unlike(view: View) -> Iterator[Proposal]:
    """Propose equal work for processes whose hosts wait for each other: all host work shrinks as the slowest's does."""
    times = unlike(view)
    if not times:
        return
    slow = max(times, key=lambda pid: times[pid])
    left = float(np.mean(list(times.values()))) / times[slow]
    work = float(view.graph.c_gap[view.graph.seq_pid[view.graph.c_seq] == slow].sum()) / view.graph.steps

    def equal(base: Graph, share: float) -> Graph:
        even = changes.host(base, left)
        mine = base.stream_pid[base.o_stream] == slow
        return changes.scale(replace(even, c_own=even.c_own * left), mine, left)

    yield Proposal(
        kind="slow_rank", about=f"Process {slow}", title="Give the ranks equal work",
        sentence=f"The kernels of process {slow} take {duration(times[slow])} in each step, {1 / left:.2f} times the "
        "mean of all processes that run the same kernels.",
        change=equal, count=1.0, time_ns=work * (1 - left), wrong_if="the processes do not wait for each other",
    )  # fmt: skip


def _exposed(view: View) -> str:
    """Return a sentence on the rank whose communication is exposed for longest; "" if no table tells."""
    if view.overlap is None or view.overlap.empty:
        return ""
    sums = view.overlap.groupby("rank", sort=False)[["exposed_ns", "exposed_transfer_ns"]].sum(min_count=1)
    rank = str(sums["exposed_ns"].astype(float).idxmax())
    row = sums.loc[rank]
    told = f" In the capture, no kernel computes during {duration(float(row['exposed_ns']))} of {rank}'s communication"
    if pd.isna(row["exposed_transfer_ns"]):
        return f"{told}; how much of it waits for another rank is not known."
    waits = float(row["exposed_ns"] - row["exposed_transfer_ns"])
    return f"{told}: it waits for another rank for {duration(waits)}, and transfers for the rest."


def _places(graph: Graph) -> IntArray:
    """Return a number for each stream that those of one process on one GPU share."""
    keys = list(zip(graph.stream_pid.tolist(), graph.stream_devices, strict=True))
    return np.array([keys.index(key) for key in keys], dtype=np.int64)


def _uneven(view: View, talks: Bools, places: IntArray) -> Iterator[Proposal]:
    """Propose to take from the slowest rank what it has more to do than the others, on its GPU and its host.

    Several GPUs of one process share its host.
    """
    graph = view.graph
    place, of_call = places[graph.o_stream], graph.seq_pid[graph.c_seq]
    pids = {int(one): int(graph.stream_pid[one]) for one in np.unique(place)}
    alone = len(set(pids.values())) == len(pids)
    host_ns = graph.c_gap + graph.c_own
    own = {
        one: (
            float(graph.o_duration[(place == one) & ~talks].sum()) / graph.steps,
            float(host_ns[of_call == pid].sum()) / graph.steps if alone else 0.0,
        )
        for one, pid in pids.items()
    }
    slow = max(own, key=lambda one: sum(own[one]))
    others = [each for one, each in own.items() if one != slow]
    gpu, host = (max(own[slow][side] - max(each[side] for each in others), 0.0) for side in (0, 1))
    if gpu + host < LEAST * view.step.told_ns:
        return
    rank = view.capture.process_ranks.get(pids[slow]) if alone else None
    device = graph.stream_names[slow].rpartition("/")[0]
    name = f"Rank {rank}" if rank is not None else f"Process {pids[slow]}" if alone else device

    def equal(base: Graph, share: float) -> Graph:
        mine = (place == slow) & ~talks
        faster = changes.scale(base, mine, 1 - gpu / max(own[slow][0], 1.0))
        left = np.where(alone & (of_call == pids[slow]), 1 - host / max(own[slow][1], 1.0), 1.0)
        return replace(faster, c_gap=faster.c_gap * left, c_own=faster.c_own * left)

    waited = _waited_for(view, name)
    if waited is not None and waited["caused_waiting_ns"] < LEAST * view.step.step_ns * view.step.phase.count:
        return  # it works longer, but nobody waits for it
    where = "on its host" if host > gpu else "on its GPU"
    yield Proposal(
        kind="slow_rank", about=name, title="Give the ranks equal work",
        sentence=f"{name} works {duration(gpu + host)} longer in each step, {where}; the others wait for it."
        f"{_late(waited)}",
        change=equal, count=1.0, time_ns=gpu + host, wrong_if="the ranks' GPUs or clocks differ",
    )  # fmt: skip


def _waited_for(view: View, name: str) -> pd.Series | None:
    """Return the row of stragglers.csv on a rank; None if the table does not tell."""
    if view.stragglers is None or view.stragglers.empty:
        return None
    own = view.stragglers[view.stragglers["rank"].str.lower() == name.lower()]
    return own.iloc[0] if len(own) else None


def _late(row: pd.Series | None) -> str:
    """Return a sentence on how often a rank is the last, and what that costs the others; "" if no table tells."""
    if row is None:
        return ""
    waits, longest = (duration(float(row[name])) for name in ("caused_waiting_ns", "longest_ns"))
    return (
        f" In the capture it is the last to start {int(row['last'])} of "
        f"{count_of(int(row['collectives']), 'collective')}; the others wait {waits} for it, {longest} of that in one. "
        f"It computes {float(row['compute_over_mean']):.2f} times as long as the mean of all ranks."
    )
