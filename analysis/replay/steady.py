"""Find the steady steps of a capture: the launches that repeat, apart from start-up and from slow steps.

A step begins at an anchor: a launch (or the start of a range) that recurs so that the launches between two occurrences
resemble those between the next two. The score of an anchor is the share of all launches in such stretches. Of anchors
with nearly the best score the one with most occurrences wins, so a layer inside a step loses (the odd stretch at each
end of the step costs it) and so does every second step.
"""

import re
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.capture.model import UP, Capture, IntArray
from analysis.formats.distinct import coded, holds

Floats = npt.NDArray[np.float64]

MOST_PHASES = 4
MOST_ANCHORS = 48
MOST_STRETCHES = 4_096  # whether stretches repeat only after some is decided from this many at the end of the run
MOST_LAUNCHES = 30_000  # the anchor is chosen from this many launches at the end of the run
ALIKE = 0.75  # share of launches that two steps of one phase have in common
WHOLE = 0.95  # the same of the first and the last step
MARKED = 0.35  # score from which a range whose name says step begins the steps
REPEATS = 0.15  # of the operations: what less of them repeats is no step
PERIODIC = 0.9  # share of stretches that are like the one a period later
NEARLY = 0.004  # scores that differ by less are equal
SLOW = 1.5  # times the median: a slow step, or one of start-up if no other came before it
BESIDE = 0.1  # of the main phase's time: smaller phases are not reported
EARLY = 0.25  # the same of phases that end before the main one begins, in time or launches: these are start-up
LEAST_LAUNCHES = 4  # of a step before the main phase: what repeats with fewer uploads, or tries out kernels
MOST_WARM_UPS = 4  # a phase before the main one that has fewer steps warms it up
MANY = 8  # processes; of more, the rows of all are found at once
FEW = 4  # repeats; what repeats less often builds something, if something else repeats more often
ENDS = 0.25  # of its own length: a phase that stops earlier than this before the end is not what the run does
_AT_ONCE = 1 << 20  # launches to look at together: more take much memory
_DENSE = 8  # counts for each launch, up to which all are counted at once
_COLUMNS = ["kind", "name", "start_ns", "duration_ns", "api_start_ns", "api_end_ns", "pid", "correlation_id"]
_NAMED = re.compile(r"step|iter|batch|token|decode|prefill|generate|forward|epoch", re.IGNORECASE)
_OPERATOR = re.compile(
    r"^\w+::\w|^(NCCL|CCCL|cuBLAS|cuDNN|TSL|XlaModule)\b|#"
)  # ranges of a framework's operators, which begin no step
MOST_TRIED = 64  # launches between two such kernels at most
_TUNING = re.compile(r"stream_executor::gpu::|RedzoneAllocatorKernel|DelayKernel")
_LOADS = re.compile(r"cu(da)?(Module|Library|Link|KernelGetFunction|FuncGet|ModuleGetLoading|GetProcAddress|Init)")
_ALLOCATES = re.compile(r"cu(da)?(Mem)?(Malloc|Alloc|Free|HostAlloc|HostRegister|Create|Map)")
_WAITS = re.compile(r"(cu|hip)(da)?(Device|Stream|Event|Ctx|Thread)Synchronize")
_GRAPHS = re.compile(r"cu(da)?Graph(?!Launch)|cu(da)?StreamBeginCapture|cu(da)?StreamEndCapture")


@dataclass(frozen=True)
class Phase:
    """Steps that repeat. Shape: one entry for each step, in order. Units: ns on the capture's clock."""

    name: str
    pid: int
    marker: str  # name of the range that begins a step, '' if launches tell
    start_ns: IntArray  # on the host: the end of the call before its first launch
    end_ns: IntArray
    gpu_start_ns: IntArray
    gpu_end_ns: IntArray
    wall_ns: IntArray  # from the end of the step before to its own, on host and GPU
    launches: int  # median
    first: int  # leading steps that count as start-up
    slow: IntArray  # positions of slow steps after these

    @property
    def steady(self) -> IntArray:
        """Positions of the steps that are neither start-up nor slow."""
        rest = np.arange(self.first, len(self.start_ns))
        return rest[~np.isin(rest, self.slow)]

    @property
    def count(self) -> int:
        """Number of steady steps."""
        return len(self.steady)

    def quantiles(self) -> tuple[int, int, int]:
        """Return the 5th percentile, the median and the 95th percentile of the wall time of steady steps, ns."""
        low, middle, high = np.quantile(self.wall_ns[self.steady], [0.05, 0.5, 0.95])
        return int(low), int(middle), int(high)


@dataclass(frozen=True)
class Steady:
    """What repeats in a capture. Without a phase, `reason` says why in one sentence."""

    phases: tuple[Phase, ...] = ()
    start_up_ns: tuple[int, int] = (0, 0)
    start_up_parts: tuple[tuple[str, int], ...] = ()  # name, ns; largest first
    reason: str = ""


@dataclass(frozen=True)
class _Launches:
    """Launches and synchronisations of one process in order. Shape: (n,) each; a graph is one launch."""

    symbol: IntArray
    host_ns: IntArray  # when the call began; when the operation began, if no call is known
    before_ns: IntArray  # end of the call before it
    returned_ns: IntArray  # when the call returned
    launched_ns: IntArray  # when the last launch up to here returned
    gpu_start_ns: IntArray
    gpu_end_ns: IntArray
    wait: int  # symbol of a synchronisation
    weight: IntArray  # operations that it launched, 1 for a synchronisation
    tunes: npt.NDArray[np.bool_]  # a kernel that XLA runs around one that it tries out


class _Whole:
    """What the searches for the steps of each process need of the whole capture."""

    def __init__(self, capture: Capture, split: bool = False) -> None:
        """`split`: look for the rows of all processes at once, which takes memory."""
        self.ops, self.split = _operations(capture), split
        self.calls = capture.calls if capture.calls is not None and len(capture.calls) else None
        self.ranges = capture.ranges
        self._rows: dict[str, dict[int, IntArray]] = {}

    @cached_property
    def works(self) -> IntArray:
        """Starts of kernels."""
        works = self.ops["start_ns"].to_numpy(np.int64)[(self.ops["kind"] == "kernel").to_numpy(bool)]
        return np.sort(works, kind="stable")  # which takes no time where they are in order, as in most captures

    @cached_property
    def loads(self) -> IntArray:
        """Starts of calls that load modules."""
        if self.calls is None:
            return np.zeros(0, np.int64)
        return np.sort(self.calls.loc[holds(self.calls["name"], _LOADS.match), "start_ns"].to_numpy(np.int64))

    @cached_property
    def begin(self) -> int:
        return min(int(rows["start_ns"].min()) for rows in (self.ops, self.calls) if rows is not None)

    def rows(self, table: str, pid: int) -> IntArray:
        """Return the rows of a process in `ops`, `calls` or `ranges`; all of them, if it is not known."""
        pids = getattr(self, table)["pid"]
        if pid < 0:
            return np.arange(len(pids))
        if not self.split:
            return np.flatnonzero(pids.to_numpy(dtype=np.int64, na_value=-1) == pid)
        if table not in self._rows:
            numbers = pids.to_numpy(dtype=np.int64, na_value=-1)
            order = np.argsort(numbers, kind="stable")
            first = np.flatnonzero(np.diff(numbers[order], prepend=-2))
            self._rows[table] = dict(zip(numbers[order[first]].tolist(), np.split(order, first[1:]), strict=True))
        return self._rows[table].get(pid, np.zeros(0, np.int64))


_FOUND: dict[int, dict[int | None, Steady]] = {}  # by capture, while it is there, and process
_WHOLE: dict[int, _Whole] = {}  # of captures of many processes


def find(capture: Capture, pid: int | None = None) -> Steady:
    """Return the steady phases of a process; by default of that with the most GPU time, with its start-up."""
    if id(capture) not in _FOUND:
        for kept in (_FOUND, _WHOLE):
            weakref.finalize(capture, kept.pop, id(capture), None)
        _FOUND[id(capture)] = {}
    known = _FOUND[id(capture)]
    if pid not in known:
        known[pid] = _find(capture, pid, _whole_of(capture, pid))
    return known[pid]


def _whole_of(capture: Capture, pid: int | None) -> _Whole:
    if id(capture) in _WHOLE:
        return _WHOLE[id(capture)]
    many = pid is not None and capture.gpu_ops["pid"].nunique() > MANY
    whole = _Whole(capture, many)
    if many:
        _WHOLE[id(capture)] = whole
    return whole


def _find(capture: Capture, named: int | None, whole: _Whole) -> Steady:
    ops = whole.ops
    if ops.empty:
        return Steady(reason="No GPU operation was recorded, so no step can be found.")
    pid = busiest(ops) if named is None else named
    launches = _launches(whole, pid)
    found: list[Phase] = []
    left = _working(launches)
    marks = _marks(whole, pid, launches)
    while len(left) >= 2 and len(found) < MOST_PHASES:
        phase, used = _phase(launches, left, marks, pid)
        if phase is None:
            break
        left = left[~used]
        found.append(phase)
    if not found:
        return Steady(reason=_why_not(launches), start_up_ns=(0, 0))
    found.sort(key=lambda one: -int(one.wall_ns[one.steady].sum()))
    works = whole.works
    lasting = [one for one in found if _lasts(one, launches)] or found[:1]
    main = next((one for one in lasting if _works(one, works)), lasting[0])  # uploads of weights repeat, too
    later = (one for one in found if one.start_ns[0] >= main.end_ns[-1] and EARLY * one.launches > main.launches)
    main = next(later, main)
    if main.count < FEW and (often := [one for one in found if _replaces(one, main, launches, works)]):
        found = [one for one in found if one is not main]
        main = often[0]
    found.sort(key=lambda one: one is not main)
    names: list[str] = []
    kept = [
        one
        for one in found
        if one is main
        or (_beside(one, main, whole.loads) and (one.marker or (_works(one, works) and not _sets_up(one, main, ops))))
    ]
    for place, one in enumerate(kept):
        name = one.name or ("step" if not place else f"phase {place + 1}")
        names.append(name if name not in names else f"{name} ({place + 1})")
    found = [replace(one, name=name) for one, name in zip(kept, names, strict=True)]
    begin = min(whole.begin, int(launches.host_ns.min()))
    until = min(int(one.start_ns[one.steady[0]]) for one in found)
    return Steady(tuple(found), (begin, max(until, begin)), _parts(capture, begin, until) if named is None else ())


def _operations(capture: Capture) -> pd.DataFrame:
    """Return the operations that a call launched, with no more columns than are needed: ten million have no copy."""
    ops = capture.gpu_ops[_COLUMNS]
    moved = (ops["kind"] == "migration").to_numpy(bool)
    return ops[~moved] if moved.any() else ops


def _working(launches: _Launches) -> IntArray:
    """Return the launches that are not a part of trying out kernels: XLA sets and checks buffers around each try."""
    tunes = np.flatnonzero(launches.tunes)
    if not len(tunes):
        return np.arange(len(launches.symbol))
    begins = np.insert(tunes[1:][np.diff(tunes) > MOST_TRIED], 0, tunes[0])
    ends = np.append(tunes[:-1][np.diff(tunes) > MOST_TRIED], tunes[-1])
    busy = np.zeros(len(launches.symbol) + 1, np.int64)
    np.add.at(busy, begins, 1)
    np.add.at(busy, ends + 1, -1)
    return np.flatnonzero(np.cumsum(busy)[:-1] == 0)


def _lasts(phase: Phase, launches: _Launches) -> bool:
    """Return whether the run ends with the phase: uploads and tuning that repeat for long are start-up all the same."""
    until = int(launches.gpu_end_ns.max())
    left = until - int(phase.gpu_end_ns[-1])
    usual = min(3, len(phase.start_ns) / 2) * float(np.median(phase.wall_ns))
    return bool(left <= max(ENDS * (until - int(phase.gpu_start_ns[0])), usual))


def _replaces(phase: Phase, few: Phase, launches: _Launches, works: IntArray) -> bool:
    """Return whether a phase is the steady one, and `few`, which repeats hardly ever, builds or tries out something.

    The run ends with the phase, or with `few` that only copies results. The phase has kernels (`works`: their starts),
    and begins after `few` or launches more.
    """
    after, more = phase.start_ns[0] >= few.end_ns[-1], phase.count * phase.launches > few.count * few.launches
    often = phase.count >= max(FEW, 2 * few.count) and _works(phase, works)
    return bool(often and (after or more) and (_lasts(phase, launches) or not _works(few, works)))


def _works(phase: Phase, works: IntArray) -> bool:
    """Return whether most steps have kernels: what only copies is no step of a program. `works`: starts of kernels."""
    held = np.searchsorted(works, phase.gpu_end_ns) > np.searchsorted(works, phase.gpu_start_ns)
    return bool(held.mean() > 0.5)


def _beside(phase: Phase, main: Phase, loads: IntArray) -> bool:
    """Return whether a phase is one of its own: no start-up before the main one begins, and no small part of the run.

    `loads`: starts of calls that load modules. Steps that do so before the main phase begins warm it up.
    """
    took, whole = int(phase.wall_ns[phase.steady].sum()), int(main.wall_ns[main.steady].sum())
    if took < BESIDE * whole:
        return False
    if phase.end_ns[-1] > main.start_ns[main.steady[0]] or phase.marker:
        return True
    loading = np.searchsorted(loads, phase.end_ns) > np.searchsorted(loads, phase.start_ns)
    large = phase.launches >= max(EARLY * main.launches, LEAST_LAUNCHES) and took >= EARLY * whole
    return bool(large and phase.count >= MOST_WARM_UPS and loading.mean() < 0.5)


def _sets_up(phase: Phase, main: Phase, ops: pd.DataFrame) -> bool:
    """Return whether a phase before the main one copies for longer than it computes, as where layers get weights."""
    if phase.end_ns[-1] > main.start_ns[main.steady[0]]:
        return False
    begun = ops["start_ns"].to_numpy(np.int64)
    own = ops[
        (begun >= phase.gpu_start_ns[0]) & (begun < phase.gpu_end_ns[-1]) & (ops["pid"] == phase.pid).fillna(False)
    ]
    took = own["duration_ns"].groupby(own["kind"]).sum()
    return bool(took.get("kernel", 0) < took.get("memcpy", 0))


def busiest(ops: pd.DataFrame) -> int:
    sums = ops.dropna(subset=["pid"]).groupby("pid")["duration_ns"].sum()
    return int(sums.idxmax()) if len(sums) else -1


def _why_not(launches: _Launches) -> str:
    count = len(launches.symbol)
    if count < 4:
        return f"The capture holds only {count} launches, so nothing repeats."
    return "No sequence of launches repeats, so there is no steady step; capture more steps."


def _columns(whole: _Whole, pid: int) -> tuple[list[IntArray], IntArray, pd.Index]:
    """Return columns of the launches and synchronisations of a process, the ends of its calls, and names of operations.

    The columns, not yet in order: a number of the name, begin and end on the host, begin and end on the GPU, and the
    correlation id.
    """
    ops = whole.ops.drop(columns=["kind", "pid"]).iloc[whole.rows("ops", pid)]
    code, names = pd.factorize(ops["name"])
    start = ops["start_ns"].to_numpy(np.int64)
    end = start + ops["duration_ns"].to_numpy(np.int64)
    host, host_end = (ops[one].fillna(ops["start_ns"]).to_numpy(np.int64) for one in ("api_start_ns", "api_end_ns"))
    correlation = ops["correlation_id"].to_numpy(dtype=np.int64, na_value=-1)
    ends, waits = host_end, (start[:0], start[:0])
    if (calls := whole.calls) is not None:
        own = whole.rows("calls", pid)
        begin, until = (calls[name].to_numpy(np.int64)[own] for name in ("start_ns", "end_ns"))
        ends = until if len(own) else ends
        waiting = holds(calls["name"].iloc[own], _WAITS.match).to_numpy()
        waits = begin[waiting], until[waiting]
    of_waits = (len(names), *waits, waits[1], 0, -1)
    more, columns = len(waits[0]), [code, host, host_end, start, end, correlation]
    return [np.append(one, np.full(more, of)) for one, of in zip(columns, of_waits, strict=True)], ends, names


def _launches(whole: _Whole, pid: int) -> _Launches:
    """Return the launches and synchronisations of a process in order, and the end of the call before each."""
    columns, ends, names = _columns(whole, pid)
    ends = np.sort(ends, kind="stable")
    _, host, _, start, *_ = columns
    order = np.argsort(host, kind="stable")
    if ((np.diff(host[order]) == 0) & (np.diff(start[order]) < 0)).any():
        order = np.lexsort((start, host))
    del host, start
    for at, column in enumerate(columns):  # one by one: of ten million launches, each takes much memory
        columns[at] = column[order]
    code, host, host_end, start, end, correlation = columns
    fresh = np.ones(len(code), bool)
    fresh[1:] = (correlation[1:] != correlation[:-1]) | (correlation[1:] < 0)
    first = np.flatnonzero(fresh)
    gpu_end = np.maximum.reduceat(end, first) if len(first) else end
    place = np.searchsorted(ends, host[first], side="right") - 1
    before = np.where(place >= 0, ends[np.maximum(place, 0)], host[first])
    launched = np.maximum.accumulate(np.where(code[first] < len(names), host_end[first], 0))
    weight = np.diff(np.append(first, len(code)))
    tunes = np.array([*(bool(_TUNING.search(str(name))) for name in names), False])[code[first]]
    # a graph is no launch of its first kernel
    pair = code[first] * 3 + np.minimum(weight, 2)
    kind = (np.cumsum(np.bincount(pair) > 0) - 1)[pair] if len(pair) else pair
    symbol = np.where(weight > 1, len(names) + 1 + kind, code[first])
    return _Launches(
        symbol, host[first], before, host_end[first], launched, start[first], gpu_end, len(names), weight, tunes
    )


def _marks(whole: _Whole, pid: int, launches: _Launches) -> list[tuple[str, IntArray, int, IntArray]]:
    """Return name, starts, level and ends of each range path that recurs in the process."""
    ranges = whole.ranges.iloc[whole.rows("ranges", pid)] if pid >= 0 else whole.ranges
    if ranges.empty:
        return []
    path, thread = coded(ranges["path"])[0], pd.factorize(ranges["tid"])[0]
    number = pd.factorize((thread + 1) * (int(path.max()) + 1) + path)[0]
    start, end = (ranges[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    order = np.lexsort((start, number))
    first = np.unique(number, return_index=True)[1]
    bounds = np.searchsorted(number[order], np.arange(1, len(first)))
    found = []
    names, levels = ranges["name"].to_numpy(object)[first], ranges["level"].to_numpy()[first]
    for name, level, rows in zip(names, levels, np.split(order, bounds), strict=True):
        if 2 <= len(rows) <= len(launches.symbol) and not _OPERATOR.search(str(name)):
            found.append((str(name), start[rows], int(level), end[rows]))
    found.sort(key=lambda one: (one[2], len(one[1])))
    return found[: MOST_ANCHORS * 2]


def _similar(edges: IntArray, symbol: IntArray) -> tuple[Floats, IntArray]:
    """Return how much each stretch between two edges resembles its better neighbour (0–1), and the lengths."""
    length = edges[1:] - edges[:-1]
    width = int(symbol.max()) + 1
    stretch = np.repeat(np.arange(len(length)), length)
    inside = stretch * width + symbol[edges[0] : edges[-1]]
    if len(length) * width <= _DENSE * len(inside):
        held = np.bincount(inside, minlength=len(length) * width).reshape(-1, width)
        shared = np.minimum(held[1:], held[:-1]).sum(axis=1)
        alike = 2 * shared / np.maximum(length[:-1] + length[1:], 1)
        return _better(alike), length
    keys, counts = np.unique(inside, return_counts=True)
    at = np.minimum(np.searchsorted(keys, keys + width), len(keys) - 1)
    both = np.where(keys[at] == keys + width, np.minimum(counts, counts[at]), 0)
    shared = np.bincount(keys // width, weights=both, minlength=len(length))[:-1]
    return _better(2 * shared / np.maximum(length[:-1] + length[1:], 1)), length


def _better(alike: Floats) -> Floats:
    """Return the larger one of the values on both sides of each stretch; before the first and after the last is 0."""
    found = np.zeros(len(alike) + 1)
    found[1:] = alike
    np.maximum(found[:-1], alike, out=found[:-1])
    return found


def _median(values: IntArray) -> float:
    """Return the median of whole numbers, in a tenth of the time that np.median takes for few."""
    half = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, half)[half])
    low, high = np.partition(values, (half - 1, half))[half - 1 : half + 1].tolist()
    return float((low + high) / 2)


def _edges(place: IntArray, total: int) -> IntArray:
    """Return the edges of the stretches: the anchors, and one usual length before the first and after the last."""
    usual = int(_median(place[1:] - place[:-1])) if len(place) > 1 else total
    before = place[:0] if place[0] < usual else place[:1] - usual
    return np.concatenate([before, place, [min(total, int(place[-1]) + usual)]])


def _score(place: IntArray, symbol: IntArray, held: IntArray) -> float:
    """Return the share of the weight in stretches that are alike. `held`: the weight before each launch, and of all."""
    edges = _edges(place, len(symbol))
    alike, _ = _similar(edges, symbol)
    upto = held[edges]
    inside = upto[1:] - upto[:-1]
    return float((alike**3 * inside)[alike >= ALIKE].sum() / held[-1])  # a stretch that differs a little costs much


def _begin(launches: _Launches, left: IntArray, place: IntArray) -> IntArray:
    """Return where steps begin: at the launch of the period before which the host launches nothing for longest."""
    usual = int(np.median(np.diff(place))) if len(place) > 1 else 1
    quiet = launches.host_ns - np.insert(launches.launched_ns, 0, launches.host_ns[:1])[:-1]
    pause, symbol = quiet[left], launches.symbol[left]
    best, found = 2.0 * float(np.median(pause[place])), 0
    if symbol[place[0]] == launches.wait:
        best = -1.0
    for offsets, at in _aligned(place, usual, len(left)):
        middle = np.median(pause[at], axis=1)
        alike = (symbol[at] == symbol[at[:, :1]]).all(axis=1)
        middle[~alike | (symbol[at[:, 0]] == launches.wait)] = -np.inf
        for row in np.flatnonzero(~alike & (pause[at].max(axis=1) > best)).tolist():
            usually = np.bincount(symbol[at[row]]).argmax()
            pauses = pause[at[row][symbol[at[row]] == usually]]
            if usually != launches.wait and len(pauses) >= 0.8 * at.shape[1]:
                middle[row] = np.median(pauses)
        if middle.max(initial=best) > best:
            best, found = float(middle.max()), int(offsets[middle.argmax()])
    at = place + found
    if found and place[0] + found - usual >= 0:
        at = np.insert(at, 0, at[0] - usual)
    return at[at < len(left)]


def _aligned(place: IntArray, usual: int, total: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield offsets of a period, and the launches that are so far after each of at least two anchors, in parts."""
    first = 1
    for count in range(len(place), 1, -1):
        if first >= usual:
            break
        until = min(usual, total - int(place[count - 1]))  # from there on, the last of these anchors has no such launch
        while first < until:
            offsets = np.arange(first, min(until, first + max(_AT_ONCE // count, 1)))
            yield offsets, offsets[:, None] + place[:count]
            first = int(offsets[-1]) + 1


def _whole(place: IntArray, symbol: IntArray) -> IntArray:
    """Return every k-th anchor if the stretches between them repeat only after k of them: layers of one step."""
    length = np.diff(np.append(place, len(symbol)))[:-1]
    sums = np.insert(np.cumsum(symbol.astype(np.float64) ** 2), 0, 0)
    of_length, of_sum = (pd.factorize(one)[0] for one in (length, sums[place[1:]] - sums[place[:-1]]))
    kind = pd.factorize(of_length * (int(of_sum.max(initial=0)) + 1) + of_sum)[0]
    late = kind[len(kind) // 4 :][-MOST_STRETCHES:]
    if len(late) < 6:
        return place
    alone = float((late[1:] == late[:-1]).mean())
    for period in range(2, len(late) // 2):
        if float((late[period:] == late[:-period]).mean()) >= max(PERIODIC, alone + 0.05):
            rare = np.bincount(late)[late]
            odd = int(np.argmin(rare[-period:])) + len(kind)
            return place[(odd + 1) % period :: period]
    return place


def _places(symbol: IntArray, first: bool) -> tuple[IntArray, IntArray]:
    """Return the positions of each symbol, or of the `first` of each run of it, and where those of each begin."""
    order = np.argsort(symbol, kind="stable")
    if first:
        order = order[np.insert(symbol[1:] != symbol[:-1], 0, True)[order]]
    return order, np.flatnonzero(np.diff(symbol[order], prepend=-1))


def _anchors(symbol: IntArray) -> list[tuple[IntArray, bool]]:
    """Return positions of the launches that recur most evenly, for each number of occurrences.

    True: of the first of each run of equal launches, such as 40 small copies.
    """
    (every, begin), (heads, head_begin) = _places(symbol, False), _places(symbol, True)
    counts, head_counts = np.diff(begin, append=len(every)), np.diff(head_begin, append=len(heads))
    fewer = head_counts < counts
    alone, places = len(begin), np.append(every, heads)
    begin = np.append(begin, len(every) + head_begin[fewer])
    counts = np.append(counts, head_counts[fewer])
    chosen: list[tuple[float, int]] = []
    for count in np.unique(counts[counts >= 2]).tolist():
        same = np.flatnonzero(counts == count)
        apart = np.diff(places[begin[same, None] + np.arange(count)])
        spread = apart.std(axis=1) / apart.mean(axis=1) if count > 2 else np.zeros(len(same))
        chosen += sorted(zip(spread.tolist(), same.tolist(), strict=True))[:6]
    best = [number for _, number in sorted(chosen)[:MOST_ANCHORS]]
    return [(places[begin[number] : begin[number] + counts[number]], number >= alone) for number in best]


def _phase(
    launches: _Launches, left: IntArray, marks: list[Any], pid: int
) -> tuple[Phase | None, npt.NDArray[np.bool_]]:
    """Return the phase with the best anchor among the launches that are left, and which of these it uses."""
    symbol, host = launches.symbol[left], launches.host_ns[left]
    window = symbol[-MOST_LAUNCHES:]
    skipped = len(symbol) - len(window)
    gap = (launches.host_ns - launches.before_ns)[left][skipped:]
    held = np.insert(np.cumsum(launches.weight[left][skipped:]), 0, 0)
    tried = [
        (_score(place, window, held), _median(gap[place]), len(place), "", place, first)
        for place, first in _anchors(window)
    ]
    most = max((one[0] for one in tried), default=0.0)
    for name, start, level, _ in marks:
        place = np.searchsorted(host, start)
        place = place[np.append(True, place[1:] != place[:-1]) & (place < len(symbol)) & (place >= skipped)] - skipped
        if len(place) < 2:
            continue
        score = _score(place, window, held)
        if (level <= 1 and _NAMED.search(name) and score >= MARKED) or score >= most - 0.05 > 0:
            tried.append((score + 1.0 - 0.1 * level, np.inf, len(place), name, place, False))
    if not tried or (best := max(one[0] for one in tried)) < REPEATS:
        return None, np.zeros(len(left), bool)
    near = [one for one in tried if one[0] >= best - NEARLY]
    most = max(one[2] for one in near)
    near = [one for one in near if one[2] >= 0.9 * most]
    chosen = max(near, key=lambda one: (one[1], one[0]))
    if chosen[3]:
        starts = np.concatenate([start for name, start, *_ in marks if name == chosen[3]])
        place = np.unique(np.searchsorted(host, starts))
        place = place[place < len(symbol)]
    else:
        each = symbol == window[chosen[4][0]]
        if chosen[5]:
            each[1:] &= ~each[:-1].copy()
        place = _whole(np.flatnonzero(each), symbol)
        place = _begin(launches, left, place)
    return _steps(launches, left, place, chosen[3], pid, marks)


def _steps(
    launches: _Launches, left: IntArray, place: IntArray, marker: str, pid: int, marks: list[Any]
) -> tuple[Phase | None, npt.NDArray[np.bool_]]:
    """Return the phase of the steps that begin at `place` (positions in `left`)."""
    symbol = launches.symbol[left]
    edges = _edges(place, len(symbol))
    alike, length = _similar(edges, symbol)
    usual = float(np.median(length[alike >= ALIKE])) if (alike >= ALIKE).any() else 0.0
    good = (alike >= ALIKE) & (length >= 0.5 * usual) & (length <= 2 * usual)
    good = _of_one_kind(edges, symbol, launches.host_ns[left], good)
    used = np.zeros(len(left), bool)
    good[[0, -1]] &= alike[[0, -1]] >= WHOLE  # start-up and the end of the program may cut into these
    if good.sum() < 2:
        return None, used
    first, last = left[edges[:-1][good]], left[edges[1:][good] - 1]
    used[edges[0] : edges[-1]] = np.repeat(good, np.diff(edges))
    total = len(launches.symbol)
    after = np.minimum(last + 1, total - 1)
    start = launches.before_ns[first]
    followed = np.append(first[1:] == last[:-1] + 1, False)
    end = np.where(followed, launches.before_ns[after], launches.returned_ns[last])
    if marker:
        starts = np.sort(np.concatenate([one[1] for one in marks if one[0] == marker]))
        at = np.searchsorted(starts, launches.host_ns[first], side="right") - 1
        own = np.where(at >= 0, starts[np.maximum(at, 0)], start)
        start = np.where((own >= launches.before_ns[np.maximum(first - 1, 0)]) & (at >= 0), own, start)
        end = np.maximum(np.where(followed, np.append(start[1:], 0), end), start + 1)
    gpu_start = launches.gpu_start_ns[first]
    around = np.stack([first, last + 1], axis=1).ravel()
    gpu_end = np.maximum.reduceat(np.append(launches.gpu_end_ns, 0), around)[::2]
    finish = np.maximum(end, gpu_end)
    follows = np.append(False, first[1:] == last[:-1] + 1)
    wall = np.where(follows, finish - np.append(0, finish[:-1]), finish - start)
    wall = np.maximum(wall, 1)
    # a step that follows no other counts by the host alone if its GPU work lags behind
    wall = np.where(follows, wall, np.maximum(np.minimum(wall, np.maximum(end - start, 1)), 1))
    if len(wall) == 2 and SLOW * wall[1] < wall[0] and 2 * (end - launches.returned_ns[last])[0] > wall[0] - wall[1]:
        first, last, start, end, gpu_start, gpu_end, wall = (
            one[:1] for one in (first, last, start, end, gpu_start, gpu_end, wall)
        )  # the first ends with host work, and no step after the second tells how long its own takes
    middle = float(np.median(wall[len(wall) // 2 :]))
    lead = 0
    while lead < len(wall) // 2 and wall[lead] > SLOW * middle:
        lead += 1
    slow = np.flatnonzero(wall > SLOW * float(np.median(wall[lead:])))
    name = marker or _name(launches, first, last, marks)
    return Phase(
        name, pid, marker, start, end, gpu_start, gpu_end, wall, int(np.median(_count(launches, first, last))), lead,
        slow[slow >= lead],
    ), used  # fmt: skip


def _of_one_kind(
    edges: IntArray, symbol: IntArray, host: IntArray, good: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return the stretches of the kind that takes most time: a synchronisation may end steps of two kinds.

    A kind that occurs only twice counts only without others: the first two steps load modules, which takes long.
    """
    length = np.diff(edges)
    stretch = np.repeat(np.arange(len(length)), length)
    inside = symbol[edges[0] : edges[-1]]
    took = np.diff(np.append(host, host[-1:])[np.minimum(edges, len(host))]).astype(float)
    left, best, chosen = good.copy(), (False, -1.0), good
    size = int(symbol.max()) + 1
    keys, held = np.unique(stretch * size + inside, return_counts=True)
    stretch_of, symbol_of = keys // size, keys % size
    for _ in range(MOST_PHASES):
        if not left.any():
            break
        rows = np.flatnonzero(left)
        first = int(rows[np.argsort(took[rows])[len(rows) // 2]])
        counts = np.bincount(inside[edges[first] - edges[0] : edges[first + 1] - edges[0]], minlength=size)
        shared = np.bincount(stretch_of, weights=np.minimum(held, counts[symbol_of]), minlength=len(length))
        same = left & (2 * shared / np.maximum(length + length[first], 1) >= ALIKE)
        weight = bool(same.sum() > 2), float(took[same].sum())
        if weight > best and same.sum() >= 2:
            best, chosen = weight, same
        left &= ~same
    return chosen


def _count(launches: _Launches, first: IntArray, last: IntArray) -> IntArray:
    """Return the number of launches of each step."""
    held = np.insert(np.cumsum(launches.symbol != launches.wait), 0, 0)
    return held[last + 1] - held[first]


def _name(launches: _Launches, first: IntArray, last: IntArray, marks: list[Any]) -> str:
    """Return the name of the outermost range that begins once a step and holds most of its launches; '' if none."""
    for name, start, _, end in marks:
        begin, until = np.searchsorted(launches.host_ns, start), np.searchsorted(launches.host_ns, end)
        held = np.concatenate([[0], np.cumsum(until - begin)])
        inside = held[np.searchsorted(begin, last, side="right")] - held[np.searchsorted(begin, first)]
        count = np.searchsorted(begin, last, side="right") - np.searchsorted(begin, first)
        if np.median(count) == 1 and np.median(inside) >= 0.5 * np.median(last - first + 1):
            return str(name)
    return ""


def _parts(capture: Capture, begin: int, until: int) -> tuple[tuple[str, int], ...]:
    """Return the largest parts of the start-up, ns: calls that load, allocate or build graphs, uploads and kernels.

    Parts may overlap (a kernel may run while the host loads a module), so their sum is no share of the whole.
    """
    found: dict[str, int] = {}
    if capture.calls is not None:
        calls = capture.calls[(capture.calls["start_ns"] >= begin) & (capture.calls["start_ns"] < until)]
        code = calls["name"].cat.codes if hasattr(calls["name"], "cat") else pd.factorize(calls["name"])[0]
        names = calls["name"].cat.categories if hasattr(calls["name"], "cat") else pd.factorize(calls["name"])[1]
        sums = np.bincount(code, weights=(calls["end_ns"] - calls["start_ns"]), minlength=len(names))
        for name, ns in zip(names, sums, strict=True):
            part = (
                "kernel loading" if _LOADS.match(str(name))
                else "allocation" if _ALLOCATES.match(str(name))
                else "building graphs" if _GRAPHS.match(str(name))
                else ""
            )  # fmt: skip
            if part:
                found[part] = found.get(part, 0) + int(ns)
    ops = capture.gpu_ops
    early = ops[(ops["start_ns"] >= begin) & (ops["start_ns"] < until)]
    copies = early[early["kind"] == "memcpy"].groupby("name", observed=True)["duration_ns"].sum()
    found["uploads"] = int(sum(ns for name, ns in copies.items() if re.search(UP, str(name))))
    found["kernels"] = int(early.loc[early["kind"] == "kernel", "duration_ns"].sum())
    ranked = sorted(found.items(), key=lambda item: -item[1])
    return tuple((name, ns) for name, ns in ranked if ns > 0)
