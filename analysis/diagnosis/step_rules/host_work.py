"""host_work, data_loader, storage: the host does other work between launches, and the GPU runs out of work."""

import re
from collections.abc import Iterator

import numpy as np

from analysis.diagnosis.step_rules.view import FEW, SMALL, Proposal, View, unlike
from analysis.formats.words import duration
from analysis.replay import changes
from analysis.replay.graph import Bools, Floats, Graph

WHOLE = 0.8  # of the launches: a range that holds more is the step, and says nothing about a part of it
OFTEN = 0.5  # reads a step
UNEVEN = 1.5  # times the next rank's host work
ROUNDS, ROUND = 5, 6  # rounds of one sequence of kernels in a step, and kernels of a round: fewer may be layers
_STORAGE = re.compile(r"read|disk|shard|file|storage|open|mmap|h5|parquet|load_file", re.IGNORECASE)
_LOADER = re.compile(r"batch|data|loader|input|augment|collate|tokeni|next|prefetch|fetch|load", re.IGNORECASE)


def propose(view: View) -> Iterator[Proposal]:
    """Propose to do the long host work of a step beside it."""
    gaps = np.where(
        view.compiling | view.once | view.recording | (view.staging > 0), 0.0, view.long_gaps
    )  # a compiler's time belongs to its calls
    if not gaps.any() or _of_one_rank(view) or unlike(view):
        return
    graph = view.graph
    work = view.of_step(gaps.sum())
    where = range_around(view, view.long_gaps)
    kind = kind_of_work(view, gaps > 0, where)
    long = gaps > 0
    inside = f" in range {where}" if where else ""

    part = gaps / np.maximum(graph.c_gap, 1.0)

    def change(base: Graph, share: float) -> Graph:
        return changes.host(base, 0.0, part * base.c_gap)

    at = int(np.argmax(gaps))
    begin = int(graph.c_start[at] - graph.c_gap[at])
    yield Proposal(
        kind=kind,
        about=where or "between launches",
        title=_TITLES[kind],
        sentence=f"{_idle_calls(view, kind, work)}{inside}.",
        change=change,
        count=view.of_step(np.count_nonzero(long)),
        time_ns=work,
        wrong_if="this work needs the results of the same step",
        span=(begin, int(graph.c_start[at])),
        what_if=f"--host '{re.escape(where)}=0'" if where else "",  # all of the step's is more than this
    )


def _idle_calls(view: View, kind: str, work: float) -> str:
    """Return how long the host makes no CUDA call, in words. Several threads may take longer than the step."""
    if kind == "sync":
        return (
            f"The host makes no CUDA call for {duration(work)} of each step, most of it to wait for values of the GPU"
        )
    if view.is_sum_of_threads(work):
        return f"In all, the host's threads spend {duration(work)} of each step without a CUDA call"
    return f"The host works for {duration(work)} of each step without a CUDA call"


_TITLES = {
    "host_work": "Do the host's work beside the GPU's",
    "data_loader": "Prepare the next batch beside the step",
    "storage": "Read ahead of the step",
    "sync": "Read values of the GPU less often",
    "pause": "Find what stops the GPU every so many rounds",
}


def range_around(view: View, gaps: Floats) -> str:
    """Return the name of the innermost range that covers most of this host work; '' without one. Shape: (calls,)."""
    graph, ranges = view.graph, view.capture.ranges
    if ranges.empty:
        return ""
    covered: dict[str, float] = {}
    begin, end = ranges["start_ns"].to_numpy(np.int64), ranges["end_ns"].to_numpy(np.int64)
    level, names = ranges["level"].to_numpy(np.int64), ranges["name"].to_numpy(object)
    for call in np.flatnonzero(gaps):
        until = float(graph.c_start[call])
        middle = until - graph.c_gap[call] / 2
        around = np.flatnonzero((begin <= middle) & (end >= middle))
        if len(around):
            name = str(names[around[np.argmax(level[around])]])
            covered[name] = covered.get(name, 0.0) + float(graph.c_gap[call])
    if not covered:
        return ""
    best = max(covered, key=lambda name: covered[name])
    _, held, _ = changes.in_ranges(view.capture, graph, f"^{re.escape(best)}$")
    whole = np.count_nonzero(held & graph.c_launches) > WHOLE * np.count_nonzero(graph.c_launches)
    return best if covered[best] >= gaps.sum() / 2 and not whole else ""


def kind_of_work(view: View, long: Bools, where: str) -> str:
    """Return data_loader if uploads follow the work of a loop, and what the name of its range says."""
    if _waits(view):
        return "sync"
    if where and _STORAGE.search(where):
        return "storage"
    if not where and now_and_then(view, long):
        return "pause"
    if where:
        return "data_loader" if _LOADER.search(where) else "host_work"
    graph = view.graph
    uploads = view.calls_of(view.to_gpu())
    heavy = np.flatnonzero(long)[np.argsort(graph.c_gap[long])[::-1]]
    heavy = heavy[: max(1, round(view.graph.steps)) if view.repeats else None]
    follows = [uploads[call : call + 4].any() for call in heavy]
    loops = view.trains if view.repeats else len(heavy) >= FEW
    return "data_loader" if loops and np.mean(follows) > 0.5 else "host_work"


def now_and_then(view: View, long: Bools) -> bool:
    """Return whether the step is many rounds of one sequence of kernels, and the longest work stands in one of them.

    Then a round is what the program repeats, and the host stops it every so often, as to list neighbours or to log.
    """
    names, steps = view.names[view.kernels], view.graph.steps
    own = names[: len(names) // steps]
    _, counts = np.unique(own.astype(str), return_counts=True)
    rounds = int(np.gcd.reduce(counts)) if len(own) else 0
    size = len(own) // max(rounds, 1)
    if not view.repeats or rounds < ROUNDS or size < ROUND or (own[size:] != own[:-size]).any():
        return False
    gaps = np.sort(view.graph.c_gap[long])[::-1]
    return bool(gaps[:steps].sum() > WHOLE * gaps.sum())


def _waits(view: View) -> bool:
    """Return whether the host reads small values and most of its work follows a queued host function: XLA waits so."""
    if view.library != "jax" or view.of_step(np.count_nonzero(view.to_host() & (view.bytes <= SMALL))) < OFTEN:
        return False
    after = view.next_call[view.called(r"cu(da)?LaunchHostFunc")]
    waits = np.zeros(len(view.long_gaps), bool)
    waits[after[after >= 0]] = True
    return bool(view.long_gaps[waits].sum() > view.long_gaps.sum() / 2)


def _of_one_rank(view: View) -> bool:
    """Return whether one of several ranks has most of the long host work: then that rank is the cause."""
    of_call = view.graph.seq_pid[view.graph.c_seq]
    sums = sorted(float(view.long_gaps[of_call == pid].sum()) for pid in np.unique(view.graph.seq_pid))
    return len(sums) > 1 and sums[-1] > UNEVEN * sums[-2]
