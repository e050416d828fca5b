"""What a rule on a steady step sees, and what it proposes."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, SupportsFloat, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.capture.model import DOWN, UP, Capture
from analysis.diagnosis.step_likelihood import chances
from analysis.diagnosis.vocabulary import library_of
from analysis.formats import intervals, symbols
from analysis.formats.collectives import communicates
from analysis.formats.report import Confidence
from analysis.hardware.devices import Device
from analysis.replay.changes import host_work_ns, neighbours
from analysis.replay.decompose import Decomposition
from analysis.replay.graph import NONE, Bools, Floats, Graph
from analysis.replay.savings import Step
from analysis.replay.spans import WHOLE_RUN
from analysis.replay.steady import Steady

Change = Callable[[Graph, float], Graph]
Told = TypeVar("Told")
Paths: TypeAlias = npt.NDArray[np.object_] | pd.Categorical

LOADS = re.compile(r"cu(da)?(Module(Load|Get)|LibraryLoad|LibraryGet|Link)|nvrtc")
COMPILES = 0.5  # calls of a step that load a module, or map memory; fewer are no part of it
FEW = 5  # what happens less often in a step that does not repeat is no loop
MANY = 4  # small copies of a step that one copy could replace
STAGES = (1.5, 16.0)  # byte/ns: so fast one thread copies memory
SMALL = 65_536.0  # bytes; the time of a smaller copy is that of its launch
ALIKE = 0.5  # of the names of kernels at least, processes of one program share
FULL = 0.9  # of a step: if the GPU works for more, the rest may be what the profiler costs the host
EVEN = 0.75  # of the longest process: above this, the work of processes counts as even
TRIMS_NS = 50_000.0  # a wait returns much sooner after the end of what it waits for, and a pool serves much faster
GRAPHS = r"cu(da)?(GraphInstantiate|GraphExecDestroy|StreamBeginCapture|StreamEndCapture)"
_NOT_AROUND = re.compile(r"\(\?<?!(?:[^()]|\([^()]*\))*\)")  # a part of a pattern: not before or after this
SYNCHRONISES = r"(cu|hip)(da)?((Device|Ctx|Thread|Stream|Event)Synchronize|(Stream|Event)Query)"


@dataclass(frozen=True)
class Proposal:
    """One change that a rule proposes, with what it saw. Units: of one step; ns, bytes.

    `about` names the rows of the timeline that it is about. `wrong_if` is what would refute it and was not seen.
    `change` is None for what is only worth knowing. `lost_ns`: time outside the steps, such as a pause of the run.
    `after`: kinds of other changes, separated by |, without which this one cannot be made. `what_if`: arguments of
    what_if.py that replay about the same. `do`: what to do, if it is not what advice.toml says of the kind. `lossy`:
    the results change, so only the user can say whether it may be done. `placed`: the title names a range. `most_ns`:
    more than that it cannot save, such as what its operations take. `built_ns`: more than that, or than its replay, it
    does not save as it is built. `best_ns`: what it saves if it is built better than `change`, `better` says how.
    `cause` tells causes of one kind apart.
    `needed`: most programs need what it leaves out, so it saves at most what its replay says.
    """

    kind: str
    about: str
    title: str
    sentence: str
    change: Change | None
    count: float
    time_ns: float
    bytes: float | None = None
    wrong_if: str = ""
    sure: Confidence = Confidence.LIKELY
    span: tuple[int, int] | None = None
    lost_ns: float | None = None
    after: str = ""
    what_if: str = ""
    do: str = ""
    lossy: bool = False
    placed: bool = False
    most_ns: float | None = None
    built_ns: float | None = None
    best_ns: float | None = None
    better: str = ""
    cause: str = ""
    needed: bool = False


class Names:
    """Texts to look for patterns in. RE2 reads a long text in a tenth of the time of Python, which checks the rest."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self._odd = np.array([not (text.isascii() and text.isprintable()) for text in texts], bool)  # no \w for RE2
        self._read = pa.array(np.where(self._odd, "", np.array(texts, object)), pa.string())

    def found(self, pattern: str | re.Pattern[str]) -> Bools:
        """Return in which texts the pattern is found."""
        asked = re.compile(pattern)
        wider = _NOT_AROUND.sub("", asked.pattern)  # finds the same texts and more, and RE2 can read it
        try:
            maybe = pc.match_substring_regex(self._read, wider, ignore_case=bool(asked.flags & re.IGNORECASE))
            found = maybe.to_numpy(zero_copy_only=False) | self._odd
        except pa.ArrowInvalid:
            found, wider = np.ones(len(self.texts), bool), ""
        again = self._odd if wider == asked.pattern else found.copy()
        found[again] = [bool(asked.search(self.texts[row])) for row in np.flatnonzero(again)]
        return np.asarray(found)


@dataclass(frozen=True)
class View:
    """One steady step. Shapes: as in `Graph`; masks over its operations or calls.

    `counted`: diagnosis.csv. `plan`: fusion.csv. `folded`: range of each row of gpu_ops, `unfolded` with its numbers.
    `stragglers`: the table of ranks, of the whole capture. `roofline`: roofline.csv.
    `expected`: how long each row of gpu_ops that is a collective takes on a sound link.
    """

    capture: Capture
    steady: Steady
    step: Step
    parts: Decomposition
    counted: pd.DataFrame | None = None
    plan: pd.DataFrame | None = None
    folded: Paths | None = None
    unfolded: Paths | None = None
    stragglers: pd.DataFrame | None = None
    roofline: pd.DataFrame | None = None
    expected: Floats | None = None
    device: Device | None = None

    @property
    def graph(self) -> Graph:
        return self.step.told

    @cached_property
    def _known(self) -> dict[Callable[["View"], Any], Any]:
        return {}

    def asked(self, told: Callable[["View"], Told]) -> Told:
        """Return what `told` says of the step, asked once."""
        if told not in self._known:
            self._known[told] = told(self)
        found: Told = self._known[told]
        return found

    def inside(self, runs: Sequence[npt.NDArray[np.int64]]) -> Bools:
        """Return which operations these runs have."""
        found = np.zeros(len(self.names), bool)
        found[np.concatenate([np.zeros(0, np.int64), *runs])] = True
        return found

    def taken(self, runs: Sequence[npt.NDArray[np.int64]]) -> float | None:
        """Return the time of one step from the first to the last operation of each run, ns, which is all they can save.

        None if the GPU idles for a part of the step: then the host may need longer for them.
        """
        if self.share(dict(self.parts.busy_parts).get("gpu_busy", 0)) < FULL:
            return None
        graph = self.step.graph
        return self.of_step(sum(float(graph.o_end[rows].max() - graph.o_start[rows].min()) for rows in runs))

    @property
    def repeats(self) -> bool:
        """Whether the step is one of several: what happens in a single one may never happen again."""
        return self.step.phase.count > 1

    @property
    def is_run(self) -> bool:
        """Whether the whole capture stands for the step, with its start-up."""
        return bool(self.steady.reason) and not self.repeats and self.step.phase.name == WHOLE_RUN

    def of_step(self, amount: SupportsFloat) -> float:
        """Return the part of an amount of the window that one step of one process has: of several, their mean."""
        return float(amount) / self.graph.steps / self.ranks

    def is_sum_of_threads(self, host_ns: float) -> bool:
        """Return whether this time of the host in a step is longer than the step: threads beside each other add up."""
        return host_ns > self.step.step_ns and len(self.graph.seq_pid) > self.ranks

    def of_rank(self, amount: SupportsFloat) -> float:
        """Return the part that one step has of an amount of a single process, or of a single one of its GPUs."""
        return float(amount) / self.graph.steps

    @cached_property
    def ranks(self) -> int:
        """Number of processes of the step."""
        return max(len(np.unique(self.graph.seq_pid)), 1)

    @cached_property
    def names(self) -> npt.NDArray[np.object_]:
        """Name of each operation."""
        return np.array([str(name) for name in self.graph.o_name], dtype=object)

    @cached_property
    def kernels(self) -> Bools:
        return np.asarray(self.graph.o_kind == "kernel")

    @cached_property
    def talks(self) -> Bools:
        """Return which operations are collectives, which other GPUs take part in."""
        return self.each(communicates, bool)

    @cached_property
    def bytes(self) -> Floats:
        """Bytes of each copy or set, 0 if unknown."""
        return self.capture.gpu_ops["bytes"].iloc[self.graph.o_row].to_numpy(dtype=np.float64, na_value=0.0)

    @cached_property
    def memory(self) -> npt.NDArray[np.object_]:
        """Memory of each copy, such as `Pageable -> Device`."""
        return self.capture.gpu_ops["memory"].iloc[self.graph.o_row].astype(object).to_numpy(object)

    @cached_property
    def pageable(self) -> Bools:
        """Which operations copy from or to pageable memory."""
        return np.array(["Pageable" in str(memory) for memory in self.memory], bool)

    @cached_property
    def paths(self) -> npt.NDArray[np.object_]:
        """Folded range of each operation, '' if unknown."""
        return self._of_ops(self.folded)

    @cached_property
    def placed(self) -> npt.NDArray[np.object_]:
        """Range of each operation with its numbers, such as h.3/attn, '' if unknown."""
        return self._of_ops(self.unfolded)

    def _of_ops(self, paths: Paths | None) -> npt.NDArray[np.object_]:
        rows = self.graph.o_row
        return np.full(len(rows), "", object) if paths is None else np.asarray(paths[rows], object)

    def called(self, pattern: str) -> Bools:
        """Return which calls have a name that begins with the pattern."""
        return of_each(self.graph.c_name, lambda name: bool(re.match(pattern, name)), bool)

    @cached_property
    def _distinct(self) -> tuple[npt.NDArray[np.intp], Names]:
        """The place of each operation's name among those that differ, and these."""
        codes, names = pd.factorize(self.names)
        return codes, Names(names.tolist())

    def each(self, told: Callable[[str], object], kind: type) -> npt.NDArray[Any]:
        """Return what `told` says of the name of each operation, asked once for each that differs."""
        codes, names = self._distinct
        return np.array([told(name) for name in names.texts], kind)[codes]

    def named(self, pattern: str | re.Pattern[str]) -> Bools:
        """Return which operations have a name in which the pattern is found."""
        codes, names = self._distinct
        return names.found(pattern)[codes]

    @cached_property
    def keys(self) -> npt.NDArray[np.object_]:
        """Key of each operation's name, which nsys and ncu share: nsys may leave out the parameters that ncu prints."""
        return self.each(symbols.key, object)

    def to_gpu(self) -> Bools:
        """Return which operations are copies from the host."""
        return self._copied(UP)

    def to_host(self) -> Bools:
        """Return which operations are copies to the host."""
        return self._copied(DOWN)

    def _copied(self, way: str) -> Bools:
        found = np.asarray(self.graph.o_kind == "memcpy")
        found[found] = of_each(self.names[found], lambda name: bool(re.search(way, name)), bool)
        return found

    def time(self, ops: Bools) -> float:
        """Return the time of operations in one step, ns."""
        return self.of_step(self.graph.o_duration[ops].sum())

    def most(self, ops: Bools) -> str:
        """Return the name that takes most of the time of these operations."""
        sums = pd.Series(self.graph.o_duration[ops]).groupby(self.names[ops]).sum()
        return str(sums.idxmax()) if len(sums) else ""

    def share(self, ns: float) -> float:
        """Return a time of one step over the step."""
        return ns / self.parts.wall_ns if self.parts.wall_ns else 0.0

    @cached_property
    def compiles(self) -> Bools:
        """Which calls load or link a module."""
        return self.called(LOADS.pattern)

    @cached_property
    def compiling(self) -> Bools:
        """Which calls stand between the last kernel and a call that loads a module: host work before them compiles.

        Uploads may come between: a program that compiles for each shape makes its data first.
        """
        found = self.compiles.copy()
        if self.of_step(np.count_nonzero(found)) < COMPILES:
            return np.zeros(len(found), bool)
        launches = self.calls_of(self.kernels)
        for seq in range(len(self.graph.seq_pid)):
            rows = np.flatnonzero(self.graph.c_seq == seq)
            follows = False
            for row in [*rows[::-1].tolist(), *rows[::-1].tolist()]:  # what compiles may begin in the step before
                follows = bool(self.compiles[row]) or (follows and not launches[row])
                found[row] |= follows
        return found

    @cached_property
    def trims(self) -> Bools:
        """Which waits last on after the GPU is done while a pool gives its memory back.

        Only if the allocations show it: then they map memory anew in each step, which takes long.
        """
        late = (self.graph.c_wait != NONE) & (self.graph.c_tail > TRIMS_NS)
        maps = self.called(r"cu(da)?(Mem)?(Malloc|Alloc)\w*Async") & (self.graph.c_own > TRIMS_NS)
        return late & np.bool_(self.of_step(np.count_nonzero(maps)) >= COMPILES)

    @cached_property
    def recording(self) -> Bools:
        """Which calls record a CUDA graph: all between two launches that have a call that builds graphs among them."""
        builds, found = self.called(GRAPHS), np.zeros(len(self.graph.c_start), bool)
        for seq in range(len(self.graph.seq_pid)) if builds.any() else ():
            rows = np.flatnonzero(self.graph.c_seq == seq)
            for part in np.split(rows, np.flatnonzero(self.graph.c_launches[rows])):
                if builds[part].any():
                    found[part] = True
        return found & ~self.graph.c_launches

    @cached_property
    def migrates(self) -> Bools:
        """Which operations are migrations of unified memory."""
        return np.asarray(self.graph.o_kind == "migration")

    def waits_for_pages(
        self, begin: npt.NDArray[Any], end: npt.NDArray[Any], moved: Bools
    ) -> tuple[Floats, Floats, Floats]:
        """Return how long each stretch at least and at most waits for these migrations, ns, and the bytes that come.

        At least while they move; at most until the last one has come, because each fault costs time besides its bytes.
        """
        start, took = self.step.graph.o_start[moved], self.step.graph.o_duration[moved].astype(np.int64)
        stop, size = np.maximum.accumulate(start + took), np.append(0.0, np.cumsum(self.bytes[moved]))
        low, high = begin.astype(np.int64), end.astype(np.int64)
        least = intervals.covered(low, high, intervals.union(start, took)).astype(float)
        first, last = np.searchsorted(start, low), np.searchsorted(start, high)
        begun, ended = np.append(start, 0)[first], np.append(0, stop)[last]
        most = np.where(last > first, np.minimum(ended, high) - begun, 0.0)
        return least, np.maximum(most, least), size[last] - size[first]

    @cached_property
    def waits_of_host(self) -> tuple[Floats, Floats, Floats]:
        """How long the host waits for pages before each call: see `waits_for_pages`. Shape: (calls,) each."""
        seen = self.step.graph
        return self.waits_for_pages(seen.c_start - seen.c_gap, seen.c_start, self.migrates & self.named(DOWN))

    @cached_property
    def packable(self) -> Bools:
        """Which operations are small copies to the host that directly follow another one: one copy could bring all."""
        found = np.zeros(len(self.graph.o_start), bool)
        for rows in neighbours(self.graph, self.to_host() & (self.bytes <= SMALL)):
            if len(rows) >= MANY:
                found[rows] = True
        return found

    @cached_property
    def batches(self) -> int:
        """How often large copies begin after other work."""
        large = ((self.graph.o_kind == "memcpy") & (self.bytes > SMALL))[np.argsort(self.graph.o_start, kind="stable")]
        return int(np.count_nonzero(np.diff(large.astype(np.int8), prepend=0) == 1))

    @cached_property
    def once(self) -> Bools:
        """Which long gaps of the host belong to no loop, though a step that does not repeat has one of batches."""
        long = (self.long_gaps > 0) & ~self.compiling
        few = not self.repeats and np.count_nonzero(long) < FEW <= self.batches
        return long & np.bool_(few)

    @cached_property
    def staging(self) -> Floats:
        """Host work in which CuPy copies what it uploads into pinned memory of its own. Shape: (calls,). Units: ns.

        The longest work since the call before that launched, if a host copies about as many bytes in that time.
        """
        graph, found = self.graph, np.zeros(len(self.graph.c_start))
        if not self.named(r"^_?cupy").any():
            return found
        for row in np.flatnonzero(self.to_gpu() & (graph.o_call >= 0) & (self.bytes > SMALL)).tolist():
            mine = np.flatnonzero(graph.c_seq == graph.c_seq[graph.o_call[row]])
            place = int(np.searchsorted(mine, graph.o_call[row]))
            before = mine[:place][graph.c_launches[mine[:place]]]
            since = mine[(mine > (before[-1] if len(before) else -1)) & (mine <= graph.o_call[row])]
            longest = int(since[np.argmax(graph.c_gap[since])])
            if STAGES[0] <= self.bytes[row] / max(graph.c_gap[longest], 1.0) <= STAGES[1]:
                found[longest] = graph.c_gap[longest]
        return found

    @cached_property
    def long_gaps(self) -> Floats:
        """Host work before each call that is longer than a launch needs, else 0. Shape: (calls,). Units: ns.

        While pages of unified memory move to the host, it waits for them, and does no work.
        """
        gap = self.graph.c_gap
        if self.migrates.any():
            gap = gap * (1 - np.minimum(self.waits_of_host[1] / np.maximum(self.step.graph.c_gap, 1.0), 1.0))
        return np.where(gap > host_work_ns(self.graph), gap, 0.0)

    @cached_property
    def trains(self) -> bool:
        """Whether the step has the kernels of a backward pass or an optimiser."""
        return bool(self.named(r"(?i)backward|adam|sgd|multi_tensor|nll_loss|optimi[sz]er|dgrad|wgrad").any())

    @cached_property
    def next_call(self) -> npt.NDArray[np.int64]:
        """The call after each of its thread, -1 for none."""
        found = np.full(len(self.graph.c_start), -1, np.int64)
        for seq in range(len(self.graph.seq_pid)):
            rows = np.flatnonzero(self.graph.c_seq == seq)
            found[rows[:-1]] = rows[1:]
        return found

    def calls_of(self, ops: Bools) -> Bools:
        """Return which calls made these operations; the call of some is not known."""
        found = np.zeros(len(self.graph.c_start), bool)
        found[self.graph.o_call[ops & (self.graph.o_call >= 0)]] = True
        return found

    def synchronised(self, ops: Bools) -> Bools:
        """Return the synchronisations that directly follow the calls of operations, as a framework adds them."""
        found = np.zeros(len(self.graph.c_start), bool)
        after = self.next_call[self.calls_of(ops)]
        found[after[after != -1]] = True
        return found & self.called(SYNCHRONISES)

    def waiting(self, ops: Bools) -> Bools:
        """Return the calls of operations in which the host waits for them."""
        return self.calls_of(ops) & (self.graph.c_wait != NONE)

    @cached_property
    def graphed(self) -> float:
        """Share of the kernels that CUDA graphs launch."""
        called = np.array(["GraphLaunch" in str(name) for name in self.graph.c_name], bool)
        of = self.graph.o_call[self.kernels & (self.graph.o_call >= 0)]
        whole = self.graph.o_kind == "graph"
        return float(called[of].mean()) if len(of) else float(whole.any())

    @cached_property
    def likely(self) -> Mapping[str, float]:
        """How likely each cause is, by what steps of known causes look like."""
        return chances(self)

    @cached_property
    def library(self) -> str:
        """pytorch, jax, cupy or cuda: the library that launches most of the GPU's time, by the names of kernels."""
        return library_of(self.names[self.kernels], self.graph.o_duration[self.kernels])


def of_each(names: Collection[object], told: Callable[[str], object], kind: type) -> npt.NDArray[Any]:
    """Return what `told` says of each name, asked once for each that differs."""
    known = {name: told(str(name)) for name in set(names)}
    return np.array([known[name] for name in names], kind)


def unlike(view: View) -> dict[int, float]:
    """Return the GPU time of each process of a step by pid, ns; {} unless the same kernels take uneven time in them.

    Their host waits for each other without a collective on the GPU, as with gloo or MPI.
    """
    pids = view.graph.stream_pid[view.graph.o_stream]
    own = {int(pid): view.kernels & (pids == pid) for pid in np.unique(pids[view.kernels])}
    times = {pid: view.of_rank(view.graph.o_duration[rows].sum()) for pid, rows in own.items()}
    names = [set(view.names[rows]) for rows in own.values()]
    if len(times) < 2 or len(set.intersection(*names)) < ALIKE * len(set.union(*names)):
        return {}
    return times if min(times.values()) < EVEN * max(times.values()) else {}
