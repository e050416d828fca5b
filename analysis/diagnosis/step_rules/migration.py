"""migration: pages of unified memory move when a kernel, or the host, touches them.

A kernel waits while its pages come, and so does the host: what it does while pages move to it is no work of its own.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from analysis.capture.model import UP
from analysis.diagnosis.step_rules.copies import PINNED, size_of
from analysis.diagnosis.step_rules.view import Proposal, View
from analysis.formats.words import count_of, duration
from analysis.replay import changes
from analysis.replay.changes import KERNEL_FLOOR_NS
from analysis.replay.graph import Floats, Graph

MAPPED = (5e9, 50e9)  # byte/s of a prefetch to the host: it maps each page of 4 KB anew, in 0.1 to 0.8 µs


def propose(view: View) -> Iterator[Proposal]:
    """Propose to prefetch: one copy of all pages before the kernel, or before the host, that touches them."""
    moved = view.migrates
    if not moved.any():
        return
    size, time, count = view.of_step(view.bytes[moved].sum()), view.time(moved), view.of_step(np.count_nonzero(moved))
    seen = view.step.graph  # with the times of the timeline, on which migrations and what waits for them overlap
    of_kernels = _like_others(view, *view.waits_for_pages(seen.o_start, seen.o_end, moved & view.named(UP)))
    of_gaps = view.waits_of_host

    def prefetched(base: Graph, share: float) -> Graph:
        least, most, came = of_kernels
        rate = PINNED[0] + share * (PINNED[1] - PINNED[0])
        gone = np.where(view.kernels, least + share * (most - least), 0.0)
        busy = np.maximum(base.o_duration - gone, np.minimum(base.o_duration, KERNEL_FLOOR_NS)) + came / rate * 1e9
        least, most, came = of_gaps
        rate = MAPPED[0] + share * (MAPPED[1] - MAPPED[0])
        part = np.minimum((least + share * (most - least)) / np.maximum(seen.c_gap, 1.0), 1.0)
        gap = np.minimum(base.c_gap * (1 - part) + came / rate * 1e9, base.c_gap)
        busy = np.where(view.kernels, np.minimum(busy, base.o_duration), base.o_duration)
        return changes.drop(replace(base, o_duration=busy, c_gap=gap), moved)

    kernels_ns, host_ns = view.of_step(of_kernels[1][view.kernels].sum()), view.of_step(of_gaps[1].sum())
    waits = f"; kernels wait up to {duration(kernels_ns)} for them, the host up to {duration(host_ns)}"
    if not kernels_ns + host_ns:
        waits = "; nothing tells how long kernels wait meanwhile"
    yield Proposal(
        kind="migration", about="unified memory", title="Prefetch unified memory",
        sentence=(
            f"{count_of(count, 'migration of unified memory moves', 'migrations of unified memory move')} "
            f"{size_of(size)} in {duration(time)}{waits}."
        ),
        change=prefetched, count=count, time_ns=time, bytes=size, wrong_if="each step touches other pages",
    )  # fmt: skip


def _like_others(view: View, least: Floats, most: Floats, came: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the waits of kernels: at most until each takes as long as others of its name, which waited for none."""
    longest = most.copy()
    for name in set(view.names[view.kernels & (came > 0)]):
        same = view.kernels & (view.names == name)
        calm = view.step.graph.o_duration[same & (came == 0)]
        if len(calm):
            rows = same & (came > 0)
            longest[rows] = np.maximum(most[rows], view.step.graph.o_duration[rows] - np.median(calm))
    return least, longest, came
