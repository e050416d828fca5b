"""pageable_copy, small_copies, repeated_copy, copies_not_overlapped, copy_bound: copies between host and GPU."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from analysis.diagnosis.step_rules.view import MANY, SMALL, Proposal, View
from analysis.formats.words import count_of, duration
from analysis.replay import changes
from analysis.replay.graph import Bools, Graph

MUCH = 0.2  # of a step: what kernels add to has to be cleared, so most sets are needed
LEAST = 0.01  # of the step: shorter copies only wait for a GPU that others use, if they wait
LARGE = 1e5  # bytes of a step; below, pinning changes nothing
PINNED = (20e9, 50e9)  # byte/s of a pinned copy: PCIe generations 4 and 5 with 16 lanes
FULL, HALF = 0.9, 0.5  # of the step: copies that take as much limit it; of the bytes: what narrower types leave
EIGHTH = 0.125  # of the bytes: what numbers of 8 bytes leave that are bytes, or masks, instead
WEIGHTS = 3  # large uploads of different sizes that are the same in each step: weights, not a batch


def propose(view: View) -> Iterator[Proposal]:
    """Propose what to do with the copies of a step."""
    up, down = view.to_gpu(), view.to_host()
    yield from _sets(view)
    repeated = _weights(view, up)
    if repeated:
        yield _repeated(view, up)
    yield from _small(view, up, "to the GPU")
    yield from _small(view, view.packable, "to the host")
    for ops, way in ((up, "to the GPU"), (down, "to the host")):
        if not (repeated and way == "to the GPU"):
            yield from _pageable(view, ops, way)
    yield from _staged(view, up)
    yield from _exposed(view, up | down)
    for ops, way in ((up, "to the GPU"), (down, "to the host")):
        yield from _bound(view, ops, way)


def _sets(view: View) -> Iterator[Proposal]:
    sets = np.asarray(view.graph.o_kind == "memset")
    size, time = view.of_step(view.bytes[sets].sum()), view.time(sets)
    if view.share(time) < MUCH:
        return
    count = view.of_step(np.count_nonzero(sets))
    rate = f", {size / time:,.0f} GB/s" if size else ""
    yield Proposal(
        kind="redundant_copy", about="sets of memory", title="Set less memory",
        sentence=f"{count_of(count, 'set of memory a step takes', 'sets of memory a step take')} "
        f"{duration(time)}{rate}.",
        change=lambda base, share: changes.drop(base, sets, share=share), count=count, time_ns=time, bytes=size,
        wrong_if="a kernel that adds to this memory needs it cleared",
        do="Set less, or let the kernel that follows write these values.",
    )  # fmt: skip


def _weights(view: View, up: Bools) -> bool:
    """Return whether the uploads look like weights: several sizes above SMALL, the same in each step.

    A step that does not repeat shows no size twice.
    """
    large = up & (view.bytes > SMALL)
    sizes, counts = np.unique(view.bytes[large], return_counts=True)
    steady = counts % view.graph.steps == 0
    return bool(view.repeats and len(sizes) and steady.all() and counts.sum() >= WEIGHTS * view.graph.steps)


def _repeated(view: View, up: Bools) -> Proposal:
    size, time = view.of_step(view.bytes[up].sum()), view.time(up)
    count = view.of_step(np.count_nonzero(up))
    return Proposal(
        kind="repeated_copy",
        about="copies to the GPU",
        title="Upload once what stays the same",
        sentence=(
            f"Each step uploads the same {count_of(count, 'copy', 'copies')}, {size_of(size)} in {duration(time)}."
        ),
        change=lambda base, share: changes.drop(base, up),
        count=count,
        time_ns=time,
        bytes=size,
        wrong_if="the bytes differ from step to step: a timeline shows sizes only",
    )


def _small(view: View, ops: Bools, way: str) -> Iterator[Proposal]:
    small = ops & (view.bytes <= SMALL)
    count = view.of_step(np.count_nonzero(small))
    if count < MANY:
        return
    time, after = view.time(small), view.synchronised(small)
    size = view.of_step(view.bytes[small].sum())
    moves = f"move {size_of(size)} in" if size else "take"  # nsys rounds the smallest to 0.000 MB
    yield Proposal(
        kind="small_copies",
        about=f"small copies {way}",
        title="Pack small copies into one",
        sentence=(
            f"{count_of(count, 'copy', 'copies')} of at most 64 KB a step {moves} {duration(time)}; "
            "each pays for a call of its own."
        ),
        change=lambda base, share: changes.remove_waits(
            changes.batch_copies(base, small, share), after | view.waiting(small)
        ),
        count=count,
        time_ns=time,
        bytes=size,
        wrong_if="each copy needs the result of the one before",
    )


def _pageable(view: View, ops: Bools, way: str) -> Iterator[Proposal]:
    pageable = ops & view.pageable
    size, time = view.of_step(view.bytes[pageable].sum()), view.time(pageable)
    if size < LARGE or not time:
        return
    rate = size / time * 1e9
    own_calls, after = view.calls_of(pageable), view.synchronised(pageable)

    def change(base: Graph, share: float) -> Graph:
        target = PINNED[0] + share * (PINNED[1] - PINNED[0])
        faster = changes.scale(base, pageable, min(1.0, rate / target))
        own = np.where(own_calls, np.minimum(faster.c_own, 10_000.0), faster.c_own)
        own = np.where(after, own * (1 - share), own)
        return replace(changes.remove_waits(faster, after | view.waiting(pageable)), c_own=own)

    count = view.of_step(np.count_nonzero(pageable))
    yield Proposal(
        kind="pageable_copy", about=f"copies {way}", title=f"Copy {way} from pinned memory" if "GPU" in way
        else f"Copy {way} into pinned memory",
        sentence=(
            f"{count_of(count, f'copy a step {way} uses', f'copies a step {way} use')} pageable memory: "
            f"{size_of(size)} in {duration(time)}, {rate / 1e9:,.1f} GB/s, and the host waits."
        ),
        change=change, count=count, time_ns=time, bytes=size, wrong_if="the memory is pinned already",
    )  # fmt: skip


def _staged(view: View, up: Bools) -> Iterator[Proposal]:
    time, size = view.of_step(view.staging.sum()), view.of_step(view.bytes[up].sum())
    if not time:
        return
    count = view.of_step(np.count_nonzero(view.staging))
    yield Proposal(
        kind="pageable_copy", about="staged copies to the GPU", title="Upload from pinned memory, or once",
        sentence=(
            f"Before {count_of(count, 'upload')} a step, the host works for {duration(time)}, about as long as "
            f"a copy of {size_of(size)} into pinned memory takes."
        ),
        change=lambda base, share: changes.host(base, 0.0, np.where(view.staging > 0, base.c_gap, 0.0)),
        count=count, time_ns=time, bytes=size, wrong_if="the host computes these bytes in that time",
    )  # fmt: skip


def _exposed(view: View, ops: Bools) -> Iterator[Proposal]:
    pinned = ops & np.array(["Pageable" not in str(memory) for memory in view.memory], bool)
    size, time = view.of_step(view.bytes[pinned].sum()), view.time(pinned)
    if size < LARGE or view.share(time) < LEAST:
        return
    count = view.of_step(np.count_nonzero(pinned))
    yield Proposal(
        kind="copies_not_overlapped",
        about="copies of pinned memory",
        title="Copy beside the kernels",
        sentence=f"{count_of(count, 'copy a step moves', 'copies a step move')} {size_of(size)} in {duration(time)}.",
        change=lambda base, share: changes.overlap_copies(base, pinned),
        count=count,
        time_ns=time,
        bytes=size,
        wrong_if="the kernels of the same step need these bytes, and no step can copy ahead",
    )


def _bound(view: View, ops: Bools, way: str) -> Iterator[Proposal]:
    """Propose half as many bytes where one direction of the link works for nearly the whole step."""
    time, size = view.time(ops), view.of_step(view.bytes[ops].sum())
    if view.share(time) < FULL or size / max(time, 1.0) < PINNED[0] / 1e9:
        return
    count = view.of_step(np.count_nonzero(ops))
    yield Proposal(
        kind="copy_bound", about=f"bytes {way}", title=f"Copy fewer bytes {way}",
        sentence=f"{count_of(count, f'copy a step {way} takes', f'copies a step {way} take')} {duration(time)} "
        f"for {size_of(size)}, as fast as the link. The saving is that of half the bytes, or of an eighth.",
        change=lambda base, share: changes.scale(base, ops, HALF), count=count, time_ns=time, bytes=size, lossy=True,
        best_ns=(1 - EIGHTH) * min(time, view.step.told_ns),
        wrong_if="every byte is needed in full precision",
    )  # fmt: skip


def size_of(size: float) -> str:
    """Return bytes in words."""
    if size < 1e3:
        return count_of(size, "byte")
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} KB"
