"""Judge from the timeline why a step takes its time: why the GPU idles, and what does not run in parallel.

A *window* is a step, or an outermost range if there are no steps. Its idle time consists of gaps between GPU
operations. What the host did in a gap names the cause of the gap. Each rule explains a share of the window; the largest
comes first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.capture.model import Capture
from analysis.diagnosis.evidence import product
from analysis.tables.copies import WORK

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FEW = 5  # what happens less often is not a loop
SMALL_BYTES = 65_536  # a smaller copy takes no longer than its launch: 1.3 µs at 50 GB/s
AWAY_NS = 200_000  # the host makes no CUDA call for so long: the time of a hundred launches
LOADING_NS = 1_000_000  # loading a compiled module from a file takes less
PINNED_BYTES_PER_NS = 50.0  # the datasheet of PCIe 5 x16 says 64 GB/s, and copies reach 50 to 55
LEAST = 0.1  # of the window: a cause that explains less is left out
OFTEN = 10  # kernels: a host that waits after so few never gets ahead, so the wait also causes the pauses for launches
SM_THREADS, SM_REGISTERS = 2048, 65_536  # of all architectures for data centres since Volta
FULL_GPU = 0.5  # of threads and registers, mean over time: below this, another kernel fits at the same time
SAME_WORK = 0.75  # of the longest process: above this, the work of processes counts as even
_LOADS = re.compile(r"cu(Module|Library)Load|cuLink")
_INSTANTIATES = re.compile(r"cu(da)?GraphInstantiate")
ALLOCATES = re.compile(r"cu(da)?(Mem)?(Malloc|Alloc|Free|Create|Map|Release|Unmap|Host)")
_CONVERTS = re.compile(r"copy_kernel|CopyKernel|[Cc]onvert|LoadWithCast|_cast_|Cast<|to_copy")


@dataclass(frozen=True)
class Window:
    """One stretch of the timeline and what happened in it. Units: ns. The tables are sorted by start.

    `busy_until` is when the last operation ends that started before the window: until then, the GPU does not idle.
    """

    name: str
    begin: int
    end: int
    ops: pd.DataFrame
    waits: pd.DataFrame
    setups: pd.DataFrame
    sm_count: int | None
    busy_until: int = 0

    @property
    def wall(self) -> int:
        return self.end - self.begin

    def copies(self, *, of: str = "") -> pd.DataFrame:
        """Return the copies. `of` is a part of the memory's name, such as "Pageable"."""
        rows = self.ops[self.ops["kind"] == "memcpy"]
        return rows[rows["memory"].astype(str).str.contains(of, regex=False)] if of else rows

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """Return the kernels, and the CUDA graphs that nsys timed as a whole."""
        return self.ops[self.ops["kind"].isin(WORK)]

    @cached_property
    def gaps(self) -> tuple[Ints, Ints, Ints]:
        """Return begin and end of each stretch without a GPU operation, and the operation before it, -1 for none."""
        start = self.ops["start_ns"].to_numpy(np.int64)
        stop = np.minimum(start + self.ops["duration_ns"].to_numpy(np.int64), self.end)
        until = np.maximum.accumulate(np.r_[min(max(self.begin, self.busy_until), self.end), stop])
        after = np.r_[start, self.end]
        place = np.flatnonzero(after > until)
        return until[place], after[place], place - 1

    @cached_property
    def fault(self) -> dict[str, float]:
        """Return the idle time by the defect that causes it, ns."""
        begin, end, before = self.gaps
        codes = [
            (holds(self.setups, _LOADS, begin, end) & (end - begin > LOADING_NS), "compile_in_window"),
            (holds(self.setups, _INSTANTIATES, begin, end), "graph_each_step"),
            (holds(self.setups, ALLOCATES, begin, end), "allocation_in_loop"),
            (self.away, "data_loader"),
            (self._after_copy(before), "small_copies" if len(self.copies()) > len(self.kernels) else "item_in_loop"),
            (ends_in(self.waits, begin, end), "synchronise_each_op"),
        ]
        names = np.select([rows for rows, _ in codes], [name for _, name in codes], "launch_bound")
        return {str(name): float((end - begin)[names == name].sum()) for name in np.unique(names)}

    def idle(self, defect: str, times: int) -> float:
        """Return the share of the window in which the GPU idles because of this defect, which occurs `times` times.

        If it occurs every few kernels, it also causes the pauses for launches, because it empties the queue each time.
        """
        own = self.fault.get(defect, 0.0)
        follow = self.fault.get("launch_bound", 0.0) if times >= FEW and len(self.kernels) <= OFTEN * times else 0.0
        return (own + follow * (own > 0)) / self.wall

    @cached_property
    def once(self) -> float:
        """Return the idle time in ns of host pauses that belong to no loop, though the window has one.

        A data loader delays each batch. In a window that copies FEW batches or more, fewer pauses are something else,
        such as the profiler that writes its buffers.
        """
        if self.batches < FEW or np.count_nonzero(self.away) >= FEW:
            return 0.0
        return self.fault.get("data_loader", 0.0)

    @property
    def batches(self) -> int:
        """Return how often large copies begin after other work: the tensors of one batch follow each other."""
        large = (self.ops["kind"] == "memcpy") & (self.ops["bytes"].astype("Float64").fillna(0) > SMALL_BYTES)
        return int(np.count_nonzero(np.diff(np.r_[False, large.to_numpy(bool)].astype(np.int8)) == 1))

    @cached_property
    def away(self) -> Bools:
        """Return whether the host makes no CUDA call during most of each gap. Shape: (gaps,)."""
        begin, end, _ = self.gaps
        calls = pd.concat(
            [
                self.waits[["start_ns", "end_ns"]],
                self.setups[["start_ns", "end_ns"]],
                self.ops[["api_start_ns", "api_end_ns"]].dropna().set_axis(["start_ns", "end_ns"], axis=1),
            ]
        ).astype(np.int64).sort_values("start_ns")  # fmt: skip
        returned = np.r_[np.int64(0), np.maximum.accumulate(calls["end_ns"].to_numpy(np.int64))]
        starts = np.r_[calls["start_ns"].to_numpy(np.int64), np.iinfo(np.int64).max]
        first, last = np.searchsorted(starts, begin), np.searchsorted(starts, end)
        longest = np.zeros(len(begin), dtype=np.int64)
        for row in range(len(begin)):
            calm_from = np.maximum(returned[first[row] : last[row] + 1], begin[row])
            calm_to = np.minimum(starts[first[row] : last[row] + 1], end[row])
            longest[row] = max(int((calm_to - calm_from).max()), 0)
        return (longest > AWAY_NS) & (longest > (end - begin) / 2)

    def _after_copy(self, before: Ints) -> Bools:
        """Return whether the operation before each gap is a small copy. Shape: (gaps,)."""
        small = (self.ops["kind"] == "memcpy") & (self.ops["bytes"].astype("Float64").fillna(np.inf) <= SMALL_BYTES)
        return np.r_[small.to_numpy(bool), False][before]


def holds(calls: pd.DataFrame, name: re.Pattern[str], begin: Ints, end: Ints) -> Bools:
    """Return whether each stretch overlaps a call whose name matches. Shape: `begin` and `end` (stretches,)."""
    rows = calls[calls["name"].map({one: bool(name.match(str(one))) for one in calls["name"].unique()}).astype(bool)]
    starts = np.sort(rows["start_ns"].to_numpy(np.int64))
    stops = np.sort(rows["end_ns"].to_numpy(np.int64))
    return np.asarray(np.searchsorted(starts, end) > np.searchsorted(stops, begin))


def ends_in(calls: pd.DataFrame, begin: Ints, end: Ints) -> Bools:
    """Return whether some call returns within each stretch. Shape: `begin` and `end` (stretches,)."""
    stops = np.sort(calls["end_ns"].to_numpy(np.int64))
    return np.asarray(np.searchsorted(stops, end) > np.searchsorted(stops, begin))


# ----------------------------------------------------------------------------------------------------------- the rules


@dataclass(frozen=True)
class TimelineRule:
    """A rule that recognises one defect in a window.

    `share`: the share of the window that it explains, which bounds the gain of the cure. `counts`: the evidence.
    """

    defect: str
    share: Callable[[Window], float]
    counts: Callable[[Window], dict[str, float]]
    sure: float
    because: str
    refuted: str


def _idle(defect: str) -> Callable[[Window], float]:
    return lambda window: window.fault.get(defect, 0.0) / window.wall


def _of_launches(window: Window) -> float:
    """Return the share of pauses for launches; 0 if something that empties the queue every few kernels causes them."""
    share = window.fault.get("launch_bound", 0.0) / window.wall
    often = {"item_in_loop": len(window.copies()), "synchronise_each_op": _syncs(window),
             "allocation_in_loop": _named(window.setups, ALLOCATES)}  # fmt: skip
    return 0.0 if any(window.idle(name, times) > share + LEAST for name, times in often.items()) else share


def _named(calls: pd.DataFrame, name: re.Pattern[str]) -> int:
    return int(calls["name"].astype(str).str.match(name).sum())


def _pageable(window: Window) -> float:
    rows = window.copies(of="Pageable")
    rows = rows[rows["bytes"].astype("Float64").fillna(0) > SMALL_BYTES]
    lost = rows["duration_ns"].astype(float) - rows["bytes"].astype(float) / PINNED_BYTES_PER_NS
    return float(lost.clip(lower=0).sum()) / window.wall


def _not_overlapped(window: Window) -> float:
    """Return the shorter of the times of large copies and of kernels, without the overlap, as a share of the window."""
    copies = window.copies()
    copies = copies[copies["bytes"].astype("Float64").fillna(0) > SMALL_BYTES]
    if copies.empty or window.kernels.empty or _pageable(window) > LEAST:
        return 0.0
    both = _union(window.kernels) + _union(copies) - _union(pd.concat([window.kernels, copies]))
    return (min(_union(copies), _union(window.kernels)) - both) / window.wall


def _union(ops: pd.DataFrame) -> int:
    """Return the time in which at least one of the operations runs, ns."""
    ops = ops.sort_values("start_ns")
    start = ops["start_ns"].to_numpy(np.int64)
    stop = np.maximum.accumulate(start + ops["duration_ns"].to_numpy(np.int64))
    return int(np.maximum(stop - np.maximum(start, np.r_[np.int64(0), stop[:-1]]), 0).sum()) if len(ops) else 0


def _one_stream(window: Window) -> float:
    kernels = window.kernels[window.kernels["kind"] == "kernel"]
    if len(kernels) < FEW or kernels["stream"].nunique() > 1 or not window.sm_count:
        return 0.0
    threads = product(kernels["grid"]) * product(kernels["block"]) / window.sm_count
    held = threads * kernels["registers"].astype("Float64").fillna(0).to_numpy(np.float64) / SM_REGISTERS
    filled = np.minimum(np.maximum(threads / SM_THREADS, held), 1.0)
    weight = kernels["duration_ns"].to_numpy(np.float64)
    mean = float(np.nansum(filled * weight) / weight.sum())
    return weight.sum() / window.wall * (1 - mean) if mean < FULL_GPU else 0.0


def _conversions(window: Window) -> pd.DataFrame:
    """Return the kernels that only convert types and that run at least FEW times with the same grid."""
    names = window.kernels["name"].unique()
    rows = window.kernels[window.kernels["name"].isin([one for one in names if _CONVERTS.search(str(one))])]
    often = rows.groupby(["name", "grid"])["name"].transform("size")
    return rows[often >= FEW]


def _casts(window: Window) -> float:
    rows = _conversions(window)
    once = rows.groupby(["name", "grid"])["duration_ns"].mean().sum() if len(rows) else 0.0
    return (float(rows["duration_ns"].sum()) - float(once)) / window.wall


def _ranks(window: Window) -> float:
    if window.kernels["pid"].nunique() < 2:
        return 0.0
    work = window.kernels.groupby("pid")["duration_ns"].sum().astype(float)
    return float(1 - work.mean() / work.max()) if work.min() < SAME_WORK * work.max() else 0.0


def _loading(window: Window) -> float:
    """Return the share of idle time in which the host does something else, without what even processes would save.

    While the busiest process works on its host, the others wait for it. Even work would shorten just this idle time.
    """
    return max(_idle("data_loader")(window) - window.once / window.wall - _ranks(window), 0.0)


def _syncs(window: Window) -> int:
    return _named(window.waits, re.compile(r"cu(da)?(Ctx|Device|Stream|Event)Synchronize"))


TIMELINE_RULES: tuple[TimelineRule, ...] = (
    TimelineRule(
        "rank_waits", _ranks, lambda w: {"processes": w.kernels["pid"].nunique()}, 0.85,
        "The GPU times of the processes in one window differ by a quarter or more.",
        "The processes do not wait for each other.",
    ),
    TimelineRule(
        "compile_in_window", _idle("compile_in_window"), lambda w: {"modules loaded": _named(w.setups, _LOADS)}, 0.9,
        "The program loads a module while the GPU idles for a millisecond or more. So it compiles or reads the module.",
        "The same window takes as long when the program runs it again.",
    ),
    TimelineRule(
        "graph_each_step",
        lambda w: _idle("graph_each_step")(w) * (_named(w.setups, _INSTANTIATES) >= 3),
        lambda w: {"graphs instantiated": _named(w.setups, _INSTANTIATES)}, 0.9,
        "The program instantiates graphs three times or more while the GPU idles.", "Each graph is a different one.",
    ),
    TimelineRule(
        "allocation_in_loop",
        lambda w: w.idle("allocation_in_loop", _named(w.setups, ALLOCATES)) * (_named(w.setups, ALLOCATES) >= FEW),
        lambda w: {"allocations and releases": _named(w.setups, ALLOCATES)}, 0.85,
        "The program allocates or frees memory five times or more while the GPU idles.",
        "These calls happen before the first step.",
    ),
    TimelineRule(
        "data_loader", _loading, lambda w: {"idle_ns": w.fault.get("data_loader", 0.0)}, 0.85,
        "The GPU idles while the host makes no CUDA call for 0.2 ms or longer. So the host does something else. "
        "Idle time that even work of all processes would save counts as rank_waits. Fewer than five pauses do not "
        "count in a window with five batches of large copies or more: a loader delays each batch.",
        "The host spends the time between calls in the framework itself.",
    ),
    TimelineRule(
        "small_copies", _idle("small_copies"), lambda w: {"copies": len(w.copies())}, 0.85,
        "The GPU idles after copies of at most 64 KB, and the window has more copies than kernels.",
        "The copies depend on each other.",
    ),
    TimelineRule(
        "item_in_loop", lambda w: w.idle("item_in_loop", len(w.copies())),
        lambda w: {"copies": len(w.copies()), "kernels": len(w.kernels)}, 0.85,
        "The GPU idles after copies of at most 64 KB, with kernels between them. So the program reads a value back.",
        "The program needs the value to continue.",
    ),
    TimelineRule(
        "synchronise_each_op",
        lambda w: w.idle("synchronise_each_op", _syncs(w)) * (_syncs(w) >= FEW),
        lambda w: {"synchronisations": _syncs(w), "kernels": len(w.kernels)}, 0.85,
        "The GPU idles after the host has waited for it, without a copy to the host.",
        "Without the waits, the GPU idles as long.",
    ),
    TimelineRule(
        "launch_bound", _of_launches, lambda w: {"kernels": len(w.kernels), "mean_ns": _mean_ns(w)}, 0.85,
        "The GPU idles between kernels while the host is busy launching the next one.",
        "A CUDA graph of the same kernels takes as long.",
    ),
    TimelineRule(
        "pageable_copies", _pageable, lambda w: {"copies": len(w.copies(of="Pageable"))}, 0.9,
        "Copies from or to pageable memory take longer than the link needs for pinned memory.",
        "The file states the wrong kind of memory for the copies.",
    ),
    TimelineRule(
        "copies_not_overlapped", _not_overlapped, lambda w: {"copies": len(w.copies()), "kernels": len(w.kernels)}, 0.7,
        "Large copies and kernels run one after the other. The longer of the two could overlap the shorter.",
        "Each kernel needs the copy before it, and no copy can start earlier.",
    ),
    TimelineRule(
        "default_stream", _one_stream,
        lambda w: {"kernels": len(w.kernels), "streams": w.kernels["stream"].nunique()}, 0.5,
        "The kernels of one stream use less than half of the GPU's threads and registers on average. So other kernels "
        "could run at the same time.",
        "Each kernel needs the result of the one before.",
    ),
    TimelineRule(
        "repeated_casts", _casts, lambda w: {"conversions": len(_conversions(w))}, 0.7,
        "A kernel that only converts types runs five times or more on tensors of one shape.",
        "The tensors have different values each time.",
    ),
)  # fmt: skip


def _mean_ns(window: Window) -> float:
    return float(window.kernels["duration_ns"].mean()) if len(window.kernels) else 0.0


@dataclass(frozen=True)
class TimelineVerdict:
    """One cause of one window. `gain` is the largest share of the wall time that the cure can win."""

    rank: int
    rule: TimelineRule
    gain: float
    cells: tuple[tuple[str, float], ...]


def judge_window(window: Window) -> list[TimelineVerdict]:
    """Return the causes that explain at least LEAST of a window without its stray pauses, sorted by share x `sure`."""
    if window.wall <= 0 or window.ops.empty:
        return []
    found = [(min(rule.share(window), 0.999), rule) for rule in TIMELINE_RULES]
    least = LEAST * (1 - window.once / window.wall)
    found = sorted((one for one in found if one[0] >= least), key=lambda one: -one[0] * one[1].sure)
    return [
        TimelineVerdict(rank, rule, share, tuple(rule.counts(window).items()))
        for rank, (share, rule) in enumerate(found, start=1)
    ]


def windows(capture: Capture, ranges: pd.DataFrame, sm_count: int | None) -> Iterator[Window]:
    """Yield one window for each of `ranges`, with what happened in it. Shape: `ranges` start_ns, end_ns, path."""
    ops = capture.gpu_ops.sort_values("start_ns", kind="stable")
    starts = ops["start_ns"].to_numpy(np.int64)
    ended = np.r_[0, np.maximum.accumulate(starts + ops["duration_ns"].to_numpy(np.int64))]
    empty = pd.DataFrame({"start_ns": [], "end_ns": [], "name": []})
    waits, setups = ((empty if one is None else one).sort_values("start_ns") for one in (capture.waits, capture.setups))
    for row in ranges.itertuples():
        begin, end = int(row.start_ns), int(row.end_ns)
        inside = slice(*np.searchsorted(starts, (begin, end)))
        yield Window(
            str(row.path),
            begin,
            end,
            ops.iloc[inside],
            _within(waits, begin, end),
            _within(setups, begin, end),
            sm_count,
            int(ended[inside.start]),
        )


def _within(calls: pd.DataFrame, begin: int, end: int) -> pd.DataFrame:
    return calls[(calls["end_ns"] > begin) & (calls["start_ns"] < end)]
