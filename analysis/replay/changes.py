"""Change a graph: each function takes a graph and returns another one. `share` is the uncertain part of a change.

`share` (0 to 1) says how much of what a change may save besides the certain part it does save: host work around a
dropped launch, the fused part of merged kernels, large gaps inside a captured graph. 0 and 1 bound the saving.
"""

import itertools
import re
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.capture.model import UP, Capture, IntArray
from analysis.formats import intervals
from analysis.formats.collectives import communicates
from analysis.replay.graph import ALLOCATION, NONE, Bools, Floats, Graph, rows_by

GRAPH_LAUNCH_NS = 7_000.0  # cudaGraphLaunch, seen with nsys attached
GRAPH_NODE_NS = 450.0  # from the end of a node to the start of the next
HOST_WORK_NS = 100_000.0  # PyTorch and Python need 5 to 30 µs for one launch, more under a profiler
FEW_LAUNCHES = 4
KERNEL_FLOOR_NS = 1_500.0  # no kernel takes less
COPY_FLOOR_NS = 2_000.0  # what each copy costs besides its bytes: 0.8 µs up, 1.5 to 2.4 µs down
COLLECTIVE_FLOOR_NS = 15_000.0  # what each collective costs besides its bytes
STAGING_BYTES_PER_NS = (2.5, 8.0)  # so fast a host copies pageable memory: at least, at most
LEADS = 48  # calls at most that prepare a launch
RESUMES_NS = 100_000  # after an upload of another thread has begun, a thread may have waited for it
TOGETHER_NS = 5_000.0  # between a copy and the synchronisation that the same call of a library makes
PINNED = 0.6  # factor up to which a copy can only be one from pinned memory
_SYNC = re.compile(r"\w*(Stream|Event|Device)Synchronize")
_XLA_UPLOAD = re.compile(r"cuMemcpyHtoDAsync")  # JAX stages what it uploads in pinned memory itself
_XLA_CALLBACK = "cuLaunchHostFunc"


def operations(graph: Graph, pattern: str) -> Bools:
    """Return which operations have a name in which the pattern is found, or a call with such a name."""
    search = re.compile(pattern).search
    known = {name: bool(search(str(name))) for name in set(graph.o_name)}
    found = np.array([known[name] for name in graph.o_name], bool)
    called = calls(graph, pattern)
    return found | (called[np.maximum(graph.o_call, 0)] & (graph.o_call >= 0)) if len(called) else found


def calls(graph: Graph, pattern: str) -> Bools:
    """Return which calls have a name in which the pattern is found."""
    search = re.compile(pattern).search
    known = {name: bool(search(str(name))) for name in set(graph.c_name)}
    return np.array([known[name] for name in graph.c_name], bool)


def drop(graph: Graph, ops: Bools, called: Bools | None = None, share: float = 1.0) -> Graph:
    """Leave out operations and calls, with the host work that leads to their launches."""
    gone = np.zeros(len(graph.c_start), bool) if called is None else called.copy()
    if len(gone):
        kept = np.bincount(graph.o_call[(graph.o_call >= 0) & ~ops], minlength=len(gone)) > 0
        some = np.bincount(graph.o_call[(graph.o_call >= 0) & ops], minlength=len(gone)) > 0
        gone |= some & ~kept
        gone |= _reads(graph, ops, gone)
    zero = np.zeros(len(ops))
    return replace(
        _without_calls(graph, gone, share),
        o_duration=np.where(ops, 0.0, graph.o_duration),
        o_after=np.where(ops, np.where(np.isfinite(graph.o_after), zero, graph.o_after), graph.o_after),
        o_lag=np.where(ops, 0.0, graph.o_lag),
        o_group=np.where(ops, -1, graph.o_group),
    )


def _reads(graph: Graph, ops: Bools, gone: Bools) -> Bools:
    """Return the synchronisations that only wait for a dropped copy: the next call, right after it or a download."""
    found, copies, downs = (np.zeros(len(gone), bool) for _ in range(3))
    known = np.flatnonzero(ops & (graph.o_call >= 0) & (graph.o_kind == "memcpy"))
    down = ["Device-to-Host" in str(name) or "DtoH" in str(name) for name in graph.o_name[known]]
    copies[graph.o_call[known]] = True
    downs[graph.o_call[known[np.array(down, bool)]]] = True
    order = np.argsort(graph.c_seq, kind="stable")
    row, following = order[:-1], order[1:]
    near = (downs[row] | (graph.c_gap[following] < TOGETHER_NS)) & (graph.c_seq[row] == graph.c_seq[following])
    after = following[copies[row] & gone[row] & near]
    found[[at for at in after.tolist() if _SYNC.match(str(graph.c_name[at]))]] = True
    return found


def _without_calls(graph: Graph, gone: Bools, share: float) -> Graph:
    """Leave out calls, the small calls that prepare them, and `share` of the host work before them."""
    if not gone.any():
        return graph
    own, gap = graph.c_own.copy(), graph.c_gap.copy()
    limit = usual_gap(graph)
    weighty = graph.c_launches | (graph.c_wait != NONE)
    dropped, room, least = gone.copy(), np.maximum(limit, _staging(graph, 0)), _staging(graph, 1)
    sure, idle = np.where(gone, least, 0.0), np.zeros(len(graph.seq_pid), bool)
    for seq, rows in enumerate(rows_by(graph.c_seq, len(graph.seq_pid))):
        if not gone[rows].any():
            continue
        drops, stage, filled = False, 0.0, 0.0
        for row in [*rows[::-1].tolist(), *rows[::-1][:LEADS].tolist()]:  # the first one's buffer is filled at the end
            if gone[row]:
                drops = graph.c_launches[row] or bool(ALLOCATION.match(str(graph.c_name[row])))
                stage, filled = room[row], least[row]
            elif drops and not weighty[row]:
                dropped[row], room[row], sure[row] = True, stage, filled
            else:
                drops = False
        launching = rows[graph.c_launches[rows]]
        idle[seq] = len(launching) > 0 and bool(gone[launching].all())
    lost = np.where(dropped, np.maximum(np.minimum(gap, room) * share, np.minimum(gap, sure)), 0.0)
    if idle.any() and not idle.all():  # threads whose only work was to launch what goes
        lost = np.maximum(lost, _resumed(graph, gone, idle))
        dropped |= idle[graph.c_seq]
        lost = np.where(idle[graph.c_seq], gap, lost)
    for row in np.flatnonzero(gone & ~graph.c_launches).tolist():  # the way back from such a call
        after = np.flatnonzero(graph.c_seq[row + 1 : row + 64] == graph.c_seq[row])
        if len(after) and not dropped[row + 1 + after[0]]:
            lost[row + 1 + after[0]] = min(max(gap[row + 1 + after[0]] - limit / 5, 0.0), limit) * share
    return replace(
        graph,
        c_own=np.where(dropped, 0.0, own),
        c_gap=gap - lost,
        c_wait=np.where(dropped, NONE, graph.c_wait),
        c_tail=np.where(dropped, 0.0, graph.c_tail),
        c_launches=graph.c_launches & ~dropped,
    )


def _resumed(graph: Graph, gone: Bools, idle: Bools) -> Floats:
    """Return the part of each gap in which its thread waited for the uploads of threads that only copy, ns."""
    found = np.zeros(len(gone))
    uploads = np.flatnonzero(gone & graph.c_launches & idle[graph.c_seq])
    begin = np.array([graph.c_start[one] - graph.c_gap[graph.c_seq == graph.c_seq[one]].max() for one in uploads])
    for row in np.flatnonzero(~idle[graph.c_seq] & (graph.c_gap > RESUMES_NS)).tolist():
        at, pid = graph.c_start[row], graph.seq_pid[graph.c_seq[row]]
        near = (at - RESUMES_NS <= graph.c_start[uploads]) & (graph.c_start[uploads] <= at)
        near &= graph.seq_pid[graph.c_seq[uploads]] == pid
        if near.any():
            found[row] = min(float(graph.c_gap[row]), float(at - begin[near].min()))
    return found


def _staging(graph: Graph, end: int) -> Floats:
    """Return how long the host may take (`end` 0) or takes at least (1) to stage the copy of each call, ns.

    Shape: (calls,). JAX stages its uploads in pinned memory, and so do threads that only copy; elsewhere, the work
    before a copy prepares its data.
    """
    found = np.zeros(len(graph.c_start))
    rows = np.flatnonzero((graph.o_call >= 0) & (graph.o_kind == "memcpy") & (graph.o_bytes > 0))
    main = np.bincount(graph.c_seq[graph.c_launches]).argmax() if graph.c_launches.any() else 0
    call = graph.o_call[rows]
    staged = np.array([bool(_XLA_UPLOAD.match(str(name))) for name in graph.c_name[call]], bool)
    rows = rows[(graph.c_seq[call] != main) | (staged & bool((graph.c_name == _XLA_CALLBACK).any()))]
    np.add.at(found, graph.o_call[rows], graph.o_bytes[rows] / STAGING_BYTES_PER_NS[end])
    return found


def usual_gap(graph: Graph) -> float:
    """Return the longest host work before a launch that still belongs to the launch, ns."""
    gaps = [np.zeros(0)]
    for rows in rows_by(graph.c_seq, len(graph.seq_pid)):
        gaps.append(np.diff(np.cumsum(graph.c_gap[rows])[graph.c_launches[rows]]))
    between = np.concatenate(gaps)
    return max(5 * float(np.median(between)), 30_000.0) if len(between) else 30_000.0


def host_work_ns(graph: Graph) -> float:
    """Return the least host work before a call that is work of its own, ns: shorter is what the launch needs.

    A step of few launches does not tell how far apart launches usually are.
    """
    if np.count_nonzero(graph.c_launches) < FEW_LAUNCHES * graph.steps:
        return HOST_WORK_NS
    return max(HOST_WORK_NS, min(usual_gap(graph), 3 * HOST_WORK_NS))


def scale(graph: Graph, ops: Bools, factor: float | Floats, share: float = 0.0) -> Graph:
    """Multiply the duration of operations, as by another data type's rate, or by roof time over their own time.

    Only pinned memory makes copies of pageable memory much faster. With share 1 the host no longer waits for these.
    """
    each = np.broadcast_to(np.asarray(factor, dtype=np.float64), len(ops))
    scaled = replace(graph, o_duration=np.where(ops, graph.o_duration * each, graph.o_duration))
    copies = ops & (graph.o_call >= 0) & (graph.o_kind == "memcpy")
    if not copies.any():
        return scaled
    scaled = _less_staging(scaled, copies, each, share)
    pinned = copies & _uploads(graph) & (each <= PINNED)
    if share < 0.5 or not pinned.any():
        return scaled
    gone, waits = np.zeros(len(graph.c_start), bool), graph.c_wait.copy()
    gone[graph.o_call[pinned]] = True
    waits[gone] = NONE
    return replace(scaled, c_wait=np.where(_reads(graph, pinned, gone), NONE, waits))


def _uploads(graph: Graph) -> Bools:
    return np.array([bool(re.search(UP, str(name))) for name in graph.o_name], bool)


def _less_staging(graph: Graph, copies: Bools, factor: Floats, share: float) -> Graph:
    """Scale what the host does for each byte of these copies: it empties a buffer after, or fills one before."""
    gap, left = graph.c_gap.copy(), np.ones(len(graph.c_start))
    left[graph.o_call[copies]] = factor[copies]
    tail = np.minimum(graph.c_tail, TOGETHER_NS) + np.maximum(graph.c_tail - TOGETHER_NS, 0.0) * left
    least, most = _staging(graph, 1), _staging(graph, 0)
    weighty = graph.c_launches | (graph.c_wait != NONE)
    for row in np.flatnonzero((most > 0) & (left != 1)).tolist():
        mine = np.flatnonzero(graph.c_seq == graph.c_seq[row])
        place = int(np.searchsorted(mine, row))
        before = np.roll(mine, -place)[:0:-1][:LEADS]  # the first one's buffer is filled at the end
        count = int(np.argmax(weighty[before])) if weighty[before].any() else len(before)
        rows = np.append(before[:count], row)
        longest = int(rows[np.argmax(graph.c_gap[rows])])
        seen = float(graph.c_gap[longest])
        staged = min(least[row], seen) * (1 - share) + min(most[row], seen) * share
        gap[longest] = max(gap[longest] - staged * (1 - left[row]), 0.0)
    return replace(graph, c_tail=tail, c_gap=gap)


def split(graph: Graph, ops: Bools) -> Graph:
    """Spread kernels with few blocks over the whole GPU."""
    faster = np.maximum(graph.o_duration * graph.o_fill, np.minimum(graph.o_duration, KERNEL_FLOOR_NS))
    return replace(graph, o_duration=np.where(ops & (graph.o_kind == "kernel"), faster, graph.o_duration))


def merge(graph: Graph, ops: Bools, share: float = 1.0) -> Graph:
    """Make one operation of matching neighbours on a stream; of each repeat, if several names repeat (a b a b).

    It takes as long as all of them (share 0) to as long as the longest (share 1), as where the others' data stays on
    the chip. The bytes of copies stay.
    """
    duration = graph.o_duration.copy()
    others = np.zeros(len(ops), bool)
    for rows in _repeats(graph, neighbours(graph, ops)):
        whole, longest = duration[rows].sum(), duration[rows].max()
        if (graph.o_kind[rows] == "memcpy").all():
            longest = max(longest, whole - np.minimum(duration[rows[1:]], COPY_FLOOR_NS).sum())
        floor = (len(rows) - 1) * KERNEL_FLOOR_NS * 0.5
        duration[rows[0]] = max(longest, whole - floor) * (1 - share) + longest * share
        others[rows[1:]] = True
    return drop(replace(graph, o_duration=duration), others, share=share)


def neighbours(graph: Graph, ops: Bools) -> list[IntArray]:
    """Return the runs of at least two matching operations that follow each other on their stream within a step."""
    runs, most = [], max(round(len(graph.o_start) / graph.steps), 2)
    for rows in rows_by(graph.o_stream, len(graph.stream_names)):
        edges = np.flatnonzero(np.diff(ops[rows].astype(np.int8), prepend=0, append=0))
        long = np.diff(edges)[::2] > 1
        for begin, end in zip(edges[::2][long].tolist(), edges[1::2][long].tolist(), strict=True):
            cuts = [*range(begin, end, most), end]
            runs += [rows[low:high] for low, high in itertools.pairwise(cuts) if high - low > 1]
    return runs


def _repeats(graph: Graph, runs: list[IntArray]) -> list[IntArray]:
    """Split each run whose names repeat with a period of at least two into its repeats."""
    found: list[IntArray] = []
    for rows in runs:
        names = graph.o_name[rows]
        periods = (one for one in range(1, len(rows) // 2 + 1) if (names[one:] == names[:-one]).all())
        period = next(periods, 1)
        found += np.split(rows, range(period, len(rows), period)) if period > 1 else [rows]
    return found


def batch_copies(graph: Graph, ops: Bools, share: float = 1.0) -> Graph:
    """Make one copy of neighbours: the bytes stay, what each copy costs besides them goes."""
    duration = graph.o_duration.copy()
    others = np.zeros(len(ops), bool)
    for rows in neighbours(graph, ops):
        least = float(duration[rows].min())
        duration[rows[0]] = duration[rows].sum() - share * (len(rows) - 1) * min(least, KERNEL_FLOOR_NS)
        others[rows[1:]] = True
    return drop(replace(graph, o_duration=duration), others, share=share)


def move(graph: Graph, ops: Bools, name: str, share: float = 1.0) -> Graph:
    """Move operations to another stream. With share 0 each still waits for what ran before it on its old stream."""
    names, free, pid = list(graph.stream_names), graph.stream_free, graph.stream_pid
    stream, dep, gap = graph.o_stream.copy(), graph.o_dep.copy(), graph.o_dep_gap.copy()
    for owner in np.unique(graph.stream_pid[graph.o_stream[ops]]):
        mine = ops & (graph.stream_pid[graph.o_stream] == owner)
        for device in {names[one].rpartition("/")[0] for one in np.unique(graph.o_stream[mine])}:
            on = mine & np.array([names[one].rpartition("/")[0] == device for one in graph.o_stream], bool)
            title = f"{device}/{name}"
            known = [one for one, own in enumerate(names) if own == title and pid[one] == owner]
            if not known:
                names.append(title)
                free, pid = np.append(free, 0.0), np.append(pid, owner)
            if share < 0.5:
                before = _before_on_stream(graph)
                alone = on & (before >= 0) & (dep < 0)
                dep, gap = np.where(alone, before, dep), np.where(alone, 1_500.0, gap)
            stream[on] = known[0] if known else len(names) - 1
    after = np.where(ops, np.minimum(np.where(np.isfinite(graph.o_after), graph.o_after, 0.0), 2_000.0), graph.o_after)
    moved = ops if graph.o_moved is None else ops | graph.o_moved
    return replace(
        graph, o_stream=stream, o_dep=dep, o_dep_gap=gap, o_after=after, o_moved=moved, stream_names=tuple(names),
        o_before=np.where(ops, -1, graph.o_before), stream_free=free, stream_pid=pid,
    )  # fmt: skip


def _before_on_stream(graph: Graph) -> IntArray:
    before = np.full(len(graph.o_start), -1, np.int64)
    for rows in rows_by(graph.o_stream, len(graph.stream_names)):
        before[rows[1:]] = rows[:-1]
    return before


def overlap_copies(graph: Graph, ops: Bools) -> Graph:
    """Run copies on a stream of their own from pinned memory: the host no longer waits for them."""
    moved = move(graph, ops, "copies")
    waits = graph.c_wait.copy()
    waits[graph.o_call[ops & (graph.o_call >= 0)]] = NONE
    return replace(moved, c_wait=waits)


def remove_waits(graph: Graph, called: Bools) -> Graph:
    """Leave the calls where they are, but do not wait in them."""
    return replace(graph, c_wait=np.where(called, NONE, graph.c_wait), c_tail=np.where(called, 0.0, graph.c_tail))


def capture_graph(graph: Graph, called: Bools, share: float = 1.0) -> Graph:
    """Launch runs of calls as one CUDA graph each; a call that blocks ends a run.

    Host work inside a run goes; with share 0, long stretches of it stay.
    """
    own, gap, lag, after = graph.c_own.copy(), graph.c_gap.copy(), graph.o_lag.copy(), graph.o_after.copy()
    limit = usual_gap(graph)
    inside = called & (graph.c_wait == NONE)
    first = np.zeros(len(own), bool)
    order = np.argsort(graph.o_call, kind="stable")
    called_by = graph.o_call[order]
    for rows in rows_by(graph.c_seq, len(graph.seq_pid)):
        for part in np.split(rows, np.flatnonzero(np.diff(inside[rows].astype(int))) + 1):
            if not len(part) or not inside[part[0]] or graph.c_launches[part].sum() < 2:
                continue
            gap[part[1:]] = np.where(gap[part[1:]] > limit, gap[part[1:]] * (1 - share), 0.0)
            own[part] = 0.0
            own[part[0]] = GRAPH_LAUNCH_NS
            first[part[0]] = True
            low, high = np.searchsorted(called_by, part), np.searchsorted(called_by, part, side="right")
            held = high - low
            begins = np.sort(order[np.repeat(low + held - np.cumsum(held), held) + np.arange(held.sum())])
            lag[begins] = GRAPH_LAUNCH_NS
            after[begins[1:]] = np.minimum(after[begins[1:]], GRAPH_NODE_NS)
    return replace(graph, c_own=own, c_gap=gap, o_lag=lag, o_after=after)


def host(graph: Graph, factor: float, covered: Floats | None = None) -> Graph:
    """Multiply the host work between calls. Shape: `covered` (calls,) the part of each gap that is meant, ns."""
    meant = graph.c_gap if covered is None else np.minimum(covered, graph.c_gap)
    return replace(graph, c_gap=graph.c_gap - meant * (1 - factor))


def launch_faster(graph: Graph, called: Bools, factor: float) -> Graph:
    """Multiply the time of the host in calls that launch and do not wait, as where fewer launches do the same."""
    meant = called & graph.c_launches & (graph.c_wait == NONE)
    return replace(graph, c_own=np.where(meant, graph.c_own * factor, graph.c_own))


def equalise_ranks(graph: Graph, host: bool = True) -> Graph:
    """Give all ranks the same work: between two collectives, each takes the mean of all. `host`: also of host work.

    A rank is a process, or a GPU of one process with several, whose host work stays.
    """
    place = places(graph)[graph.o_stream]
    works = ~collectives(graph)
    keys = place * (_between(graph, place).max(initial=0) + 1) + _between(graph, place)
    sums = np.bincount(keys[works], weights=graph.o_duration[works], minlength=int(keys.max(initial=0)) + 1)
    table = pd.Series(sums[keys], index=_between(graph, place))
    ranks = np.unique(place)
    mean = table.groupby([table.index, place]).first().groupby(level=0).sum().reindex(table.index) / max(len(ranks), 1)
    factor = np.where(table > 0, mean.to_numpy() / np.maximum(table.to_numpy(), 1.0), 1.0)
    duration = np.where(works, graph.o_duration * factor, graph.o_duration)
    of_call = graph.seq_pid[graph.c_seq] if len(graph.c_seq) else np.zeros(0, np.int64)
    gaps = {int(pid): float(graph.c_gap[of_call == pid].sum()) for pid in np.unique(graph.stream_pid[graph.o_stream])}
    mean_gap = float(np.mean(list(gaps.values()))) if gaps else 0.0
    left = np.array([mean_gap / gaps[pid] if host and gaps.get(pid) else 1.0 for pid in of_call.tolist()])
    return replace(graph, o_duration=duration, c_gap=graph.c_gap * left if len(left) else graph.c_gap)


def places(graph: Graph) -> IntArray:
    """Return a number for each stream that those of one process on one GPU share."""
    first: dict[tuple[int, str], int] = {}
    keys = enumerate(zip(graph.stream_pid.tolist(), graph.stream_devices, strict=True))
    return np.array([first.setdefault(key, at) for at, key in keys], dtype=np.int64)


def _between(graph: Graph, place: IntArray) -> IntArray:
    """Return the number of collectives that began on its rank before each operation. Shape: (operations,)."""
    found = np.zeros(len(graph.o_start), np.int64)
    for one in np.unique(place):
        own = place == one
        found[own] = np.searchsorted(np.sort(graph.o_start[own & (graph.o_group >= 0)]), graph.o_start[own])
    return found


def collectives(graph: Graph) -> Bools:
    """Return which operations are collectives."""
    known = {name: communicates(str(name)) for name in set(graph.o_name)}
    return np.array([known[name] for name in graph.o_name], bool)


def kernels_ns(graph: Graph) -> float:
    """Return the time of a step in kernels of the stream with most of it, without collectives, ns."""
    kept = (graph.o_kind == "kernel") & ~collectives(graph)
    return float(np.bincount(graph.o_stream[kept], graph.o_duration[kept]).max(initial=0.0)) / graph.steps


def bucket(graph: Graph, ops: Bools, size: int, share: float = 1.0) -> Graph:
    """Make one collective of each `size` of these in a row, or of a step: the last one carries the bytes of all."""
    duration, gone = graph.o_duration.copy(), np.zeros(len(graph.o_start), bool)
    ranked = np.flatnonzero(ops & (graph.o_group >= 0))  # without the waiting of a rank: the shortest of all
    least = np.full(graph.o_group.max(initial=-1) + 1, np.inf)
    np.minimum.at(least, graph.o_group[ranked], duration[ranked])
    duration[ranked] = least[graph.o_group[ranked]]
    for stream in np.unique(graph.o_stream[ops]):
        rows = np.flatnonzero(ops & (graph.o_stream == stream))
        most = min(size, max(len(rows) // graph.steps, 1))
        for place in range(0, len(rows) - most + 1, most):
            part = rows[place : place + most]
            duration[part[-1]] = max(
                duration[part].sum() - share * (most - 1) * COLLECTIVE_FLOOR_NS, duration[part].max()
            )
            gone[part[:-1]] = True
    return drop(replace(graph, o_duration=duration), gone, share=share)


def in_ranges(capture: Capture, graph: Graph, pattern: str) -> tuple[Floats, Bools, int]:
    """Return the part of each host gap inside ranges whose name matches, which calls these hold, and their number.

    Shape: (calls,) ns, (calls,). The pattern `.*` means everything, time outside every range included.
    """
    if pattern in (".*", "^.*$", ""):
        return graph.c_gap.copy(), np.ones(len(graph.c_gap), bool), 1
    ranges = capture.ranges
    search = re.compile(pattern).search
    known = {name: bool(search(str(name))) for name in ranges["name"].unique()}
    first = min(graph.start_ns, int((graph.c_start - graph.c_gap).min(initial=graph.start_ns)))
    within = (ranges["start_ns"] < graph.end_ns) & (ranges["end_ns"] > first)
    chosen = ranges[ranges["name"].map(known).astype(bool) & within] if len(ranges) else ranges
    covered, held = np.zeros(len(graph.c_gap)), np.zeros(len(graph.c_gap), bool)
    for pid, own in chosen.groupby("pid"):
        begin = own["start_ns"].to_numpy(np.int64)
        spans = intervals.union(begin, own["end_ns"].to_numpy(np.int64) - begin)
        rows = np.flatnonzero(graph.seq_pid[graph.c_seq] == pid)
        start = graph.c_start[rows]
        covered[rows] = intervals.covered(start - graph.c_gap[rows], start, spans)
        held[rows] = intervals.covered(start, start + 1, spans) > 0
    return covered, held, len(chosen)
