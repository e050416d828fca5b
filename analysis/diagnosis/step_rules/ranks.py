"""slow_rank, exposed_communication: what ranks wait for."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.capture.model import IntArray
from analysis.diagnosis.rank_cause import Cause, Late, find_late, held_up, starts_of
from analysis.diagnosis.step_rules.host_work import kind_of_work, range_around
from analysis.diagnosis.step_rules.view import Proposal, View, of_each, unlike
from analysis.formats import intervals
from analysis.formats.collectives import TOGETHER, kind_of
from analysis.formats.words import begin, count_of, duration
from analysis.replay import changes
from analysis.replay.graph import Bools, Floats, Graph

LEAST = 0.01  # of the step
HIDDEN = 0.5  # of a collective at least can run beside kernels of the step
MANY = 8  # collectives of a rank in a step, of which each takes little more than it costs besides its bytes
BETWEEN = 2  # kernels between two collectives that one could replace
SMALL_NS = 2 * changes.COLLECTIVE_FLOOR_NS
_TITLES = {
    Cause.MORE_WORK: "Give the ranks equal work",
    Cause.OWN_WORK: "Share what only one rank does",
    Cause.SLOW_GPU: "Make the slow GPU as fast as the others",
    Cause.HOST: "Let no rank launch late",
}
_DO = {
    Cause.OWN_WORK: "Move it behind the step, share it among the ranks, or do it every N steps",
    Cause.SLOW_GPU: "Compare clocks, power and temperature of the GPUs (nvidia-smi -q -d PERFORMANCE,CLOCK)",
    Cause.HOST: "Look at what its host does then: loading of data, logging, other processes on its cores, CPU affinity",
}


def propose(view: View) -> Iterator[Proposal]:
    """Propose equal work for the ranks, and collectives beside kernels."""
    talks = view.talks
    if not talks.any():
        yield from _unlike(view)
        return
    places = changes.places(view.graph)
    if len(np.unique(places[view.graph.o_stream])) > 1:
        yield from _uneven(view, talks, places)
    yield from _exposed(view, talks, places)
    yield from _small(view, talks, places)


def _unlike(view: View) -> Iterator[Proposal]:
    """Propose equal work for processes whose hosts wait for each other: all host work shrinks as the slowest's does."""
    times = unlike(view)
    if not times:
        return
    slow = max(times, key=lambda pid: times[pid])
    left = float(np.mean(list(times.values()))) / times[slow]
    work = view.of_rank(view.graph.c_gap[view.graph.seq_pid[view.graph.c_seq] == slow].sum())

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


def _exposed(view: View, talks: Bools, places: IntArray) -> Iterator[Proposal]:
    """Propose collectives beside kernels, and say of the rank with most exposed communication what could be hidden."""
    graph = view.graph
    place = places[graph.o_stream]
    waits = waits_of(view, places)
    found: dict[int, tuple[float, float, float]] = {}
    for one in np.unique(place[talks]).tolist():
        spans = [
            intervals.union(graph.o_start[rows], graph.o_duration[rows].astype(np.int64))
            for rows in ((place == one) & talks, (place == one) & ~talks & view.kernels)
        ]
        both = int(intervals.covered(*spans[0], spans[1]).sum())
        bare, room = (view.of_rank(intervals.length(span) - both) for span in spans)
        found[one] = bare, room, min(view.of_rank(waits[talks & (place == one)].sum()), bare)
    most = max(found, key=lambda one: found[one][0])
    own = talks & (place == most)
    count, time = view.of_rank(np.count_nonzero(own)), view.of_rank(graph.o_duration[own].sum())
    bare, room, waiting = found[most]

    def beside(base: Graph, share: float) -> Graph:
        if share >= 1.0:
            # what each sends has to exist first: else no rank would wait for a slower one
            return changes.move(base, talks, "communication", 0.0 if len(found) > 1 else 1.0)
        return changes.scale(base, talks, HIDDEN)

    name = place_name(view, places, most) if len(found) > 1 else "the GPU"
    waited = f" {duration(waiting)} of it waits for another rank." if waiting >= LEAST * view.step.told_ns else ""
    if len(found) > 1 and starts_of(view, places).empty:
        waited = " How much of it waits for another rank is not known."
    fits = min(bare - waiting, room)
    during = "meanwhile" if duration(bare) == duration(time) else f"during {duration(bare)} of that"
    yield Proposal(
        kind="exposed_communication", about="collectives", title="Communicate beside the kernels",
        sentence=f"{count_of(count, 'collective a step takes', 'collectives a step take')} "
        f"{duration(time)} on {name}; no kernel computes {during}.{waited} At most "
        f"{duration(fits)} fits beside kernels that compute while nothing communicates.",
        change=beside, count=count, time_ns=time, most_ns=fits,
        wrong_if="the kernels that follow need all results at once",
    )  # fmt: skip


def waits_of(view: View, places: IntArray) -> Floats:
    """Return how long each collective waits for the last rank, ns; 0 where the starts are not known."""
    graph, starts = view.graph, starts_of(view, places)
    found = np.zeros(len(graph.o_start))
    if len(starts):
        behind = starts.rsub(starts.max(axis=1), axis=0).stack()
        rows = np.flatnonzero(graph.o_group >= 0)
        keys = pd.MultiIndex.from_arrays([graph.o_group[rows], places[graph.o_stream[rows]]])
        found[rows] = np.minimum(behind.reindex(keys).fillna(0.0).to_numpy(), graph.o_duration[rows])
    return found


def _small(view: View, talks: Bools, places: IntArray) -> Iterator[Proposal]:
    """Propose one collective for many small ones, such as the buckets of DDP."""
    graph = view.graph
    alone = graph.o_duration - waits_of(view, places)
    together = of_each(view.names, lambda name: kind_of(name) in TOGETHER, bool)  # a message is needed at once
    small = _in_a_row(graph, talks & (alone <= SMALL_NS) & together)
    small |= together & (graph.o_group >= 0) & np.isin(graph.o_group, graph.o_group[small])  # on all ranks or on none
    counts = np.bincount(places[graph.o_stream[small]], minlength=1) / graph.steps
    if counts.max() < MANY:
        return
    most = int(counts.argmax())
    time = view.of_rank(alone[small & (places[graph.o_stream] == most)].sum())
    name = place_name(view, places, most)

    def bucket(base: Graph, share: float) -> Graph:
        return changes.bucket(base, small, MANY if share < 0.5 else MANY**2, share)  # buckets of 25 MB hold as many

    yield Proposal(
        kind="exposed_communication", about="small collectives", title="Send fewer, larger collectives",
        sentence=f"{begin(name)} runs {counts[most]:.0f} collectives a step of at most "
        f"{duration(SMALL_NS)} without waiting, for {duration(time)} in all. Such a time is what a collective costs "
        "besides its bytes.",
        change=bucket, count=float(counts[most]), time_ns=time, what_if=f"--bucket 'nccl={MANY}'",
        do="larger buckets (bucket_cap_mb of DistributedDataParallel), or one call for a flat tensor",
        wrong_if="the results of each are needed before the next is sent",
    )  # fmt: skip


def _in_a_row(graph: Graph, small: Bools) -> Bools:
    """Return which of these follow each other on their stream, with BETWEEN other operations at most: averaging.

    Kernels that run between two collectives on their stream use the first and make what the second sends.
    """
    found = np.zeros(len(small), bool)
    for stream in np.unique(graph.o_stream[small]):
        rows = np.flatnonzero(graph.o_stream == stream)
        at = np.flatnonzero(small[rows])
        near = np.diff(at) <= BETWEEN + 1
        found[rows[at[:-1][near]]] = found[rows[at[1:][near]]] = True
    return found


def place_name(view: View, places: IntArray, place: int) -> str:
    """Return the name of a place as the tables of ranks have it: its rank, or its GPU for one process with several."""
    graph = view.graph
    stream = int(np.flatnonzero(places == place)[0])
    pids = sorted({int(one) for one in graph.stream_pid[np.unique(graph.o_stream)]})
    if len(pids) < len(np.unique(places[graph.o_stream])):
        return graph.stream_devices[stream]
    pid = int(graph.stream_pid[stream])
    return f"rank {view.capture.process_ranks.get(pid, pids.index(pid))}"


def _uneven(view: View, talks: Bools, places: IntArray) -> Iterator[Proposal]:
    """Propose equal work for the rank for which the others wait.

    Several GPUs of one process share its host.
    """
    graph = view.graph
    place, of_call = places[graph.o_stream], graph.seq_pid[graph.c_seq]
    pids = {int(one): int(graph.stream_pid[np.flatnonzero(places == one)[0]]) for one in np.unique(place)}
    alone = len(set(pids.values())) == len(pids)
    longer, held = held_up(view)
    host = {one: longer.get(pid, 0.0) if alone else 0.0 for one, pid in pids.items()}
    late = find_late(view, talks, places, host)
    if late is None:
        return
    more = max(late.host_ns if late.cause == Cause.HOST else late.gpu_ns, 0.0)
    least = LEAST * view.step.told_ns
    if more < least or (late.of and late.late_ns < least):
        return
    name = place_name(view, places, late.place)
    waited = _waited_for(view, name)
    enough = LEAST * view.step.step_ns * view.step.phase.count
    if not late.of and waited is not None and waited["caused_waiting_ns"] < enough:
        return  # it works longer, but nobody waits for it
    mine = (place == late.place) & ~talks
    before = view.of_rank(graph.o_duration[mine if late.ops is None else late.ops].sum())
    left = max(1 - late.gpu_ns / before, 0.0) if before and late.gpu_ns > 0 else 1.0
    held &= of_call == pids[late.place]
    host_left = max(1 - late.host_ns / view.of_rank(graph.c_gap[held].sum()), 0.0) if held.any() else 1.0

    def equal(base: Graph, share: float) -> Graph:
        shared = late.cause == Cause.MORE_WORK  # the others take what it no longer does
        if shared:
            even = changes.equalise_ranks(base, host=False)
        else:
            even = changes.scale(base, mine if late.ops is None else late.ops, left)
        return replace(even, c_gap=even.c_gap * np.where(held, host_left, 1.0))

    title, doing = begin(name), _of_host(view, of_call == pids[late.place])
    yield Proposal(
        kind="slow_rank", about=title, title=_TITLES[late.cause], sentence=_told(title, late, more, waited, doing),
        change=equal, count=1.0, time_ns=more, do=_DO.get(late.cause, ""), cause=late.cause,
        wrong_if="the work cannot be split otherwise" if late.cause == Cause.MORE_WORK else "the ranks' clocks differ",
    )  # fmt: skip


def _told(name: str, late: Late, more: float, waited: pd.Series | None, doing: str) -> str:
    """Return what is known of the cause in words."""
    where = f", in range {late.range}" if late.range else ""
    kernel = f", {duration(late.kernel_ns)} of it in {late.kernel}" if late.kernel else ""
    cards = f" The GPUs are different models: {', '.join(late.models)}." if late.models else ""
    told = {
        Cause.MORE_WORK: f"{name} has {duration(more)} more work on its GPU than the mean of the others in each step"
        f"{where}{kernel}; shared equally, the step waits for the mean.",
        Cause.OWN_WORK: f"{name} runs kernels that the others do not: {duration(more)} more on its GPU in each step"
        f"{where}{kernel}.",
        Cause.SLOW_GPU: f"Every kernel of {name.lower()} takes about {late.factor:.2f} times as long as on the others, "
        f"with the same grids: {duration(more)} in each step. Its GPU is slower, or its clock is lower.",
        Cause.HOST: f"The host of {name.lower()} works {duration(more)} longer in each step than the mean of the others"
        f"{doing}. Its GPU has no more work.",
    }[late.cause]
    if not late.of:
        return told + cards + _late(waited)
    waits = "the ranks wait for each other in turns" if late.in_turns else "the others wait for it"
    return (
        f"{told}{cards} It is the last to start {late.last} of {count_of(late.of, 'collective')}, in all "
        f"{duration(late.late_ns)} late in each step; {waits}."
    )


def _of_host(view: View, mine: Bools) -> str:
    """Return as a clause what the host of a rank does for long: its range, and whether it loads data."""
    gaps = np.where(mine, view.long_gaps, 0.0)
    if not gaps.any():
        return ""
    where = range_around(view, gaps)
    loads = " before it copies data to the GPU" if kind_of_work(view, gaps > 0, where) == "data_loader" else ""
    return f", in range {where}{loads}" if where else f",{loads}" if loads else ""


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
    return (
        f" In the capture it is the last to start {int(row['last'])} of "
        f"{count_of(int(row['collectives']), 'collective')}; the others wait "
        f"{duration(float(row['caused_waiting_ns']))} for it."
    )
