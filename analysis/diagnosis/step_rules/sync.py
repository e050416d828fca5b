"""sync: the host waits for the GPU within the step, and the GPU then waits for the host."""

from collections.abc import Iterator

import numpy as np

from analysis.capture.model import DOWN
from analysis.diagnosis.step_rules.view import FEW, SYNCHRONISES, Proposal, View
from analysis.formats.words import duration
from analysis.replay import changes
from analysis.replay.graph import NONE, Bools, Graph

SCALAR = 0.02  # of the GPU at most is filled by a kernel that makes only a value to be read
SMALL = 4096.0  # bytes; a longer copy is not only a value that is read
LARGE = 1e5  # bytes; after such a copy, the host waits for results that it works on


def propose(view: View) -> Iterator[Proposal]:
    """Propose not to wait: for values that are read back, and in explicit synchronisations."""
    graph = view.graph
    waits = (graph.c_wait != NONE) & view.called(SYNCHRONISES) & ~view.synchronised(view.to_gpu())
    waits &= ~view.synchronised(view.packable) & ~view.synchronised(view.to_host() & (view.bytes >= LARGE))
    waits &= not (view.migrates & view.named(DOWN)).any()  # the host waits before it touches what kernels wrote
    reads = view.to_host() & (view.bytes <= SMALL) & ~view.packable
    small = view.waiting(reads)
    waits |= small | view.synchronised(reads)
    waits &= ~view.trims  # the host waits for the driver there
    if np.count_nonzero(waits) < (1 if view.repeats else FEW):
        return

    made = _makes(view, reads)

    def change(base: Graph, share: float) -> Graph:
        read = changes.drop(base, reads | (made & np.bool_(share >= 1.0)), small, share)
        return (
            changes.drop(read, np.zeros(len(reads), bool), waits, share) if share else changes.remove_waits(read, waits)
        )

    count = view.of_step(np.count_nonzero(waits))
    blocked = view.of_step((graph.c_end - graph.c_start)[waits].sum())
    by = "read a value back" if small.any() else "synchronise"
    calls = sorted({str(name) for name in graph.c_name[waits]})
    yield Proposal(
        kind="sync",
        about=calls[0],
        title="Wait for the GPU less often",
        sentence=(
            f"The host waits {'once' if count < 1.5 else f'{count:.0f} times'} in each step, for {duration(blocked)} "
            f"in all, to {by}. Nothing is queued meanwhile, so the GPU then waits for the next launch."
        ),
        change=change,
        count=count,
        time_ns=blocked,
        wrong_if="the host needs the value to decide what to launch next",
    )


def _makes(view: View, reads: Bools) -> Bools:
    """Return the small kernels directly before a read on its stream: what they compute may only be for the host."""
    graph, found = view.graph, np.zeros(len(reads), bool)
    for stream in np.unique(graph.o_stream[reads]):
        rows = np.flatnonzero(graph.o_stream == stream)
        before = rows[:-1][reads[rows[1:]]]
        found[before[view.kernels[before] & (graph.o_fill[before] < SCALAR)]] = True
    return found
