"""slow_link: collectives that take much longer than the link between the GPUs needs for their bytes."""

from collections.abc import Iterator

import numpy as np

from analysis.capture.model import IntArray
from analysis.diagnosis.step_rules.ranks import LEAST, place_name, waits_of
from analysis.diagnosis.step_rules.view import Proposal, View
from analysis.formats import intervals
from analysis.formats.words import count_of, duration
from analysis.replay import changes
from analysis.replay.graph import Bools, Floats, Graph

TIMES = 2.0  # as long as on a sound link: kernels that run beside a collective take bandwidth, too
FEW = 4  # channels: NCCL uses 16 or more over NVLink


def propose(view: View) -> Iterator[Proposal]:
    """Propose a sound link for the collectives that take TIMES as long as on one."""
    graph = view.graph
    if view.expected is None or not view.talks.any():
        return
    places = changes.places(graph)
    alone = graph.o_duration - waits_of(view, places) - _of_others(graph, view.talks, places) / 2
    expected = np.where(view.talks, view.expected[graph.o_row], np.nan)
    slow = view.talks & (alone > TIMES * expected)
    place = places[graph.o_stream]
    lost = np.bincount(place[slow], (alone - expected)[slow], minlength=1)
    most = int(lost.argmax())
    mine = slow & (place == most)
    if view.of_rank(lost[most]) < LEAST * view.step.told_ns:
        return
    left = float(expected[slow].sum() / alone[slow].sum())
    count = view.of_rank(np.count_nonzero(mine))
    grids = view.capture.gpu_ops["grid"].iloc[graph.o_row[mine]].astype(str)
    channels = sorted({int(grid.partition("x")[0]) for grid in grids if grid.partition("x")[0].isdigit()})
    few = f" They run with {count_of(channels[-1], 'channel')}." if channels and channels[-1] <= FEW else ""
    name, takes = place_name(view, places, most), view.of_rank(alone[mine].sum())

    def sound(base: Graph, share: float) -> Graph:
        return changes.scale(base, slow, left)

    yield Proposal(
        kind="slow_link", about="links between GPUs", title="Use the whole link between the GPUs",
        sentence=f"{count_of(count, 'collective a step takes', 'collectives a step take')} "
        f"{duration(takes)} on {name} without waiting; their bytes need "
        f"{duration(view.of_rank(expected[mine].sum()))} over a sound link.{few}",
        change=sound, count=count, time_ns=view.of_rank(lost[most]), most_ns=takes,
        wrong_if="the GPUs are connected by less than the NVLink of their datasheet",
    )  # fmt: skip


def _of_others(graph: Graph, talks: Bools, places: IntArray) -> Floats:
    """Return how long each collective shares the link with another one of its GPU, as of a second communicator, ns."""
    found = np.zeros(len(talks))
    for one in np.unique(places[graph.o_stream[talks]]):
        rows = np.flatnonzero(talks & (places[graph.o_stream] == one))
        begin, end = intervals.in_order(graph.o_start[rows], graph.o_duration[rows].astype(np.int64))
        several = intervals.union(begin[1:], np.minimum(end[1:], np.maximum.accumulate(end)[:-1]) - begin[1:])
        found[rows] = intervals.covered(graph.o_start[rows], graph.o_end[rows].astype(np.int64), several)
    return found
