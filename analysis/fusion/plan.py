"""Plan fusions: chains of neighbouring memory-bound kernels, with bytes and time before and after.

With a recorded dataflow (dataflow.csv), a chain is a run of operations without a matrix product between them. Each
operation reads a result of an earlier one, or the same tensor as its neighbour. The fused kernel reads every tensor
from outside once. It writes once every result that an operation outside reads or that outlives the chain. It need not
read elements that a mask discards. Without a dataflow, only chains with a known pattern of kernel names are planned.
Their sizes come from counters, copies, or grid, block and kernel name. An uncertain chain has no gain.

The bound on the time after is the bytes after over the measured roof, plus the shortest kernel of the capture. The roof
is L2's if the working set fits there, else DRAM's at this mix of reads and writes. The gain is the time now less this
bound. Each launch saved adds the time that this GPU idles between two queued kernels.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import accumulate, groupby
from itertools import chain as joined

import numpy as np
import pandas as pd

from analysis.formats import symbols
from analysis.formats.ranges import STEP, is_step
from analysis.formats.views import holds
from analysis.fusion import opmap
from analysis.tables.attribution import fold_paths
from analysis.tables.copies import WITHIN, direction_of
from analysis.tables.declare import Column, Facts, part, table
from analysis.tables.layers import GRAPH_MARK, place_recorded
from analysis.tables.roofline import dram_roof

MOST_LAUNCHES = 20_000  # the plan of a longer capture covers its first so many operations
FAR_BEYOND_L2 = 4  # little traffic of a working set of so many times L2 stays in L2
MOVED = ("dram_read_bytes", "dram_write_bytes", "l2_read_bytes", "l2_write_bytes")
NO_DATAFLOW = "no dataflow.csv records which tensors these kernels share"

Key = tuple[int, int, int]  # storage, offset, bytes


@dataclass(frozen=True)
class Operand:
    """A tensor that an operation reads or writes. Its memory was freed before operation `freed`.

    `begin`: where it begins in its storage; `axes`: (stride, size) of each axis, longest stride first. Units: bytes.
    """

    storage: int
    offset: int
    bytes: int
    elements: int
    masked_frac: float
    freed: float
    begin: int = 0
    axes: tuple[tuple[int, int], ...] = ()

    @property
    def key(self) -> Key:
        return self.storage, self.offset, self.bytes


@dataclass
class Node:
    """An operation. `rows` are its launches in the timeline; None if they are unknown or ambiguous."""

    number: int
    path: str
    call: int
    op: str
    reads: list[Operand] = field(default_factory=list)
    writes: list[Operand] = field(default_factory=list)
    rows: list[int] | None = None
    bound: str = ""

    @property
    def name(self) -> str:
        return opmap.plain_name(opmap.base_name(self.op))

    @property
    def is_scalar(self) -> bool:
        """Whether each of its tensors has one element: these may be on the host."""
        return all(operand.elements == 1 for operand in (*self.reads, *self.writes))

    @property
    def makes_state(self) -> bool:
        """Whether it makes the state of an optimiser, as only the first step does."""
        return self.name in opmap.FILLS and _OPTIMISER.fullmatch(self.path) is not None

    @property
    def is_product(self) -> bool:
        return self.name in opmap.PRODUCTS

    @property
    def is_memory_bound(self) -> bool:
        known = self.name in opmap.ELEMENTWISE or self.name in opmap.MOVES or self.name in opmap.REDUCTIONS
        return known and self.bound != "compute" and not self.makes_state


@dataclass(frozen=True)
class Candidate:
    """One occurrence of something to fuse. Units: bytes; NaN where unknown.

    rows      launches in the timeline; None if unknown
    epilogue  a matrix product takes over the work, so no kernel remains
    now, read, write  bytes from shapes: before, and after by direction
    """

    pattern: str
    paths: tuple[str, ...]
    kernels: tuple[str, ...]
    rows: tuple[int, ...] | None
    launches: int
    now: float
    read: float
    write: float
    bound_bytes: float
    notes: tuple[str, ...] = ()
    epilogue: bool = False

    @property
    def after(self) -> float:
        return self.read + self.write

    @property
    def step(self) -> str:
        return step_of(self.paths[0])


@dataclass(frozen=True)
class Machine:
    """The limits of a fused kernel: roofs in byte/s, the shortest kernel and the gap between queued kernels in ns."""

    roofs: pd.DataFrame
    l2_rate: float
    dram_sheet: float
    l2_bytes: float
    shortest_ns: float
    gap_ns: float
    at_mix: dict[float, float] = field(default_factory=dict)  # cache: share of reads -> DRAM rate

    def rate(self, read: float, write: float) -> tuple[float, str]:
        """Return (byte/s, name of the roof) for this traffic: the measured roof, else the datasheet's DRAM rate."""
        if read + write <= self.l2_bytes and np.isfinite(self.l2_rate):
            return self.l2_rate, "L2, where it all fits"
        share = round(read / (read + write), 4) if read + write > 0 else 0.5  # unknown bytes have no bound, at any rate
        if share not in self.at_mix:
            self.at_mix[share] = float(dram_roof(self.roofs, share))
        rate = self.at_mix[share]
        return (rate, "DRAM") if np.isfinite(rate) else (self.dram_sheet, "DRAM by the datasheet")


# The timeline ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """The GPU operations in launch order, one array a column: float64 with NaN for unknown numbers, else objects."""

    path: np.ndarray
    call: np.ndarray
    folded: np.ndarray
    place: np.ndarray
    label: np.ndarray
    kernel: np.ndarray
    grid: np.ndarray
    block: np.ndarray
    duration_ns: np.ndarray
    dram_read_bytes: np.ndarray
    dram_write_bytes: np.ndarray
    l2_read_bytes: np.ndarray
    l2_write_bytes: np.ndarray

    def __len__(self) -> int:
        return len(self.path)

    @cached_property
    def dram_bytes(self) -> np.ndarray:
        return np.asarray(self.dram_read_bytes + self.dram_write_bytes)

    @cached_property
    def l2_bytes(self) -> np.ndarray:
        return np.asarray(self.l2_read_bytes + self.l2_write_bytes)

    def rows_of(self, keys: Sequence[object]) -> dict[object, list[int]]:
        """Return the key -> its rows in launch order; `keys` has one key a row."""
        found: dict[object, list[int]] = defaultdict(list)
        for row, key in enumerate(keys):
            found[key].append(row)
        return found


def prepare_work(gpu_ops: pd.DataFrame, ranges: pd.DataFrame, measured: pd.DataFrame) -> Work:
    """Return every GPU operation in launch order, with the instance of its range, its kind of work and its counters.

    Shape: `gpu_ops` as in `Capture`, in launch order, with `owner` (index of `ranges`) and `path`; `measured` from
    kernels.measured_launches, whose rows are its kernels.
    """
    calls = ranges.sort_values("start_ns", kind="stable").groupby("path").cumcount()
    owner = gpu_ops["owner"].to_numpy(np.int64)
    names = {name: (symbols.key(name), opmap.kind_of_kernel(name)) for name in gpu_ops["name"].unique()}
    kind = gpu_ops["kind"].to_numpy(object)
    is_kernel = kind == "kernel"
    # ncu sees no copies, and nsys gives their bytes: a copy reads and writes them once, a set only writes
    moved = gpu_ops["bytes"].astype("Float64").to_numpy(float, na_value=np.nan)
    has_counters = len(measured) == int(is_kernel.sum()) and {"dram_read_bytes", "l2_read_bytes"} <= set(measured)
    bytes_ = {}
    for name in MOVED:
        copied = np.where(kind == "memset", 0.0 if "read" in name else moved, moved)
        bytes_[name] = np.where(is_kernel, np.nan, copied)
        if has_counters:
            bytes_[name][is_kernel] = measured[name].to_numpy(float, na_value=np.nan)
    places = gpu_ops.groupby(["device", "stream"], dropna=False, sort=False).ngroup()
    return Work(
        path=gpu_ops["path"].to_numpy(object),
        call=calls.reindex(owner).fillna(0).to_numpy(np.int64),
        folded=fold_paths(gpu_ops["launched"] if "launched" in gpu_ops else gpu_ops["path"]).to_numpy(object),
        place=places.to_numpy(np.int64),
        label=np.where(is_kernel, gpu_ops["name"].map({name: kind for name, (_, kind) in names.items()}), kind),
        kernel=gpu_ops["name"].map({name: key for name, (key, _) in names.items()}).to_numpy(object),
        grid=gpu_ops["grid"].to_numpy(object),
        block=gpu_ops["block"].to_numpy(object),
        duration_ns=gpu_ops["duration_ns"].to_numpy(float),
        **bytes_,
    )


def by_process(gpu_ops: pd.DataFrame, measured: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the GPU operations of one process after another, each in launch order, and their counters likewise.

    Two ranks launch at the same time, so neighbours in time may belong to different programs. Shape: both in launch
    order; `measured` has a row for each kernel, or none.
    """
    if gpu_ops["pid"].nunique() < 2:
        return gpu_ops, measured
    order = gpu_ops["pid"].argsort(kind="stable").to_numpy()
    is_kernel = gpu_ops["kind"].eq("kernel").to_numpy()
    if len(measured) == int(is_kernel.sum()):
        number = np.cumsum(is_kernel) - 1
        measured = measured.iloc[number[order][is_kernel[order]]].reset_index(drop=True)
    return gpu_ops.iloc[order].reset_index(drop=True), measured


def measure_machine(gpu_ops: pd.DataFrame, roofs: pd.DataFrame, l2_bytes: float | None) -> Machine:
    """Return the roofs, with the shortest kernel of this timeline and the gap between its kernels."""
    kernels = gpu_ops[gpu_ops["kind"] == "kernel"]
    shortest = float(kernels["duration_ns"].min()) if len(kernels) else np.nan
    ran = gpu_ops.sort_values("start_ns", kind="stable")
    end = (ran["start_ns"] + ran["duration_ns"]).shift()
    gap = ran["start_ns"] - end
    queued = (ran["api_end_ns"].astype("Float64") < end).fillna(False) & (ran["stream"] == ran["stream"].shift())
    queued &= ran["device"].astype(str) == ran["device"].astype(str).shift()
    gaps = gap[queued.to_numpy(bool, na_value=False) & (gap >= 0).to_numpy()]
    level = roofs.set_index("name")
    l2_rate, sheet = float(level.loc["l2", "measured"]), float(level.loc["dram", "datasheet"])
    idle = float(gaps.median()) if len(gaps) else 0.0
    return Machine(roofs, l2_rate, sheet, float(l2_bytes or np.nan), shortest, idle)


def _bytes(value: float) -> str:
    unit, name = next(((unit, name) for unit, name in ((1e9, "GB"), (1e6, "MB")) if value >= unit), (1e3, "kB"))
    return f"{value / unit:,.4g} {name}"


@lru_cache(4096)
def step_of(path: str) -> str:
    """Return the path up to its step (a range with the name of a step); '' outside of steps."""
    parts = path.split("/")
    place = next((place for place, part in enumerate(parts) if is_step(part)), None)
    return "" if place is None else "/".join(parts[: place + 1])


# Operations --------------------------------------------------------------------------------------------------


def read_nodes(dataflow: pd.DataFrame) -> list[Node]:
    """Return the operations of dataflow.csv in the order of the program."""
    nodes: list[Node] = []
    columns = [
        "range", "call", "ordinal", "op", "operand", "storage", "offset", "bytes", "shape", "strides", "masked_frac",
        "freed",
    ]  # fmt: skip
    frame = dataflow[columns].astype({"masked_frac": float, "freed": "Float64"})
    last: object = None
    for path, call, ordinal, op, operand, storage, offset, size, shape, strides, masked, freed in frame.itertuples(
        index=False, name=None
    ):
        if (path, call, ordinal) != last:
            last = (path, call, ordinal)
            nodes.append(Node(len(nodes), path, int(call), op))
        elements, begin, axes = _layout(int(offset), shape, strides, int(size))
        dies = np.nan if pd.isna(freed) else float(freed)
        tensor = Operand(int(storage), int(offset), int(size), elements, float(masked), dies, begin, axes)
        (nodes[-1].reads if operand.startswith("in") else nodes[-1].writes).append(tensor)
    return nodes


def _layout(offset: int, shape: str, strides: str, size: int) -> tuple[int, int, tuple[tuple[int, int], ...]]:
    """Return the number of elements, and the begin and the axes of an Operand, in bytes.

    Shape: `offset`, `shape` and `strides` as in dataflow.csv, in elements; `size` is the bytes of distinct elements.
    """
    sizes, steps = ([int(axis) for axis in str(text).split("x") if axis] for text in (shape, strides))
    axes = [(step, axis) for step, axis in zip(steps, sizes, strict=False) if step and axis > 1]
    distinct = int(np.prod([axis for _, axis in axes], dtype=np.int64))
    item = size // max(distinct, 1)
    ordered = sorted(((step * item, axis) for step, axis in axes), reverse=True)
    return int(np.prod(sizes, dtype=np.int64)), offset * item, tuple(ordered)


def repeat_nodes(nodes: Sequence[Node], ranges: pd.DataFrame) -> list[Node]:
    """Repeat the recorded operations of a step for each instance of the step in the timeline.

    A step is not repeated if its instances differ in their number of ranges, or if it has too many operations.
    """
    seen = ranges["path"].value_counts().to_dict() if len(ranges) else {}
    recorded: dict[str, int] = defaultdict(int)
    for path, call in {(node.path, node.call) for node in nodes}:
        recorded[path] = max(recorded[path], call + 1)
    odd = {step_of(path) for path, calls in recorded.items() if seen.get(path) != calls * seen.get(step_of(path), 1)}
    found: list[Node] = []
    storages = 1 + max((one.storage for node in nodes for one in (*node.reads, *node.writes)), default=0)
    for step, members in groupby(nodes, lambda node: step_of(node.path)):
        own = list(members)
        times = seen.get(step, 1) if step and step not in odd else 1
        times = min(times, max(MOST_LAUNCHES // len(own), 1))
        for again in range(times):
            found += [
                _repeated(node, len(found) + at, again, recorded[node.path], storages) for at, node in enumerate(own)
            ]
    return found


def _repeated(node: Node, number: int, again: int, calls: int, storages: int) -> Node:
    """Return the operation in a later instance of its step, with separate memory and shifted operation numbers."""

    def moved(operand: Operand) -> Operand:
        return replace(operand, storage=operand.storage + again * storages, freed=operand.freed + number - node.number)

    reads, writes = ([moved(one) for one in some] for some in (node.reads, node.writes))
    return Node(number, node.path, node.call + again * calls, node.op, reads, writes)


def assign_launches(nodes: Sequence[Node], work: Work, bound_of: Mapping[tuple[str, str], str]) -> None:
    """Give each operation its launches, if the order inside its range instance allows exactly one assignment.

    Shape: `bound_of` (kernel, folded range) -> memory | compute, from the roofline.
    """
    places = work.rows_of(list(zip(work.path, work.call, strict=True))) if nodes else {}
    inside: dict[tuple[str, int], list[Node]] = defaultdict(list)
    for node in nodes:
        inside[node.path, node.call].append(node)
    for key, members in inside.items():
        rows = places.get(key)
        if rows is None:
            continue
        kinds = [str(work.label[row]) for row in rows]
        assigned = opmap.assign_some([node.op for node in members], kinds, _absent(members))
        for node, taken in zip(members, assigned or [], strict=bool(assigned)):
            node.rows = [rows[place] for place in taken]
            bounds = {bound_of.get((work.kernel[row], work.folded[row]), "") for row in node.rows}
            node.bound = "compute" if bounds == {"compute"} else ""


def place_graphs(gpu_ops: pd.DataFrame, ranges: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Put the kernels of CUDA graphs into the ranges in which their graph was recorded, below each launch of it.

    The column `launched` keeps the path of the launch. Shape: as in `plan`; `owner` is a position in `ranges`.
    """
    if "recorded" not in gpu_ops or not (gpu_ops["recorded"] >= 0).any():
        return gpu_ops, ranges
    placed, ops = place_recorded(ranges, gpu_ops)
    paths, owner = placed["path"].to_numpy(object), ops["owner"].to_numpy(np.int64)
    return ops.assign(launched=gpu_ops["path"], path=np.where(owner >= 0, paths[owner], "")), placed


def nodes_of_graphs(nodes: Sequence[Node], paths: Iterable[str]) -> list[Node]:
    """Return the operations once more for each graph that was recorded among them, with memory of their own.

    Shape: `paths` of the timeline; those of a graph hold GRAPH_MARK behind the path of its launch.
    """
    storages = 1 + max((one.storage for node in nodes for one in (*node.reads, *node.writes)), default=0)
    graphs = dict.fromkeys(
        (before + mark, after.split("/")[0])
        for before, mark, after in (path.partition(GRAPH_MARK) for path in paths)
        if before and mark
    )
    found: list[Node] = []
    for place, (prefix, root) in enumerate(graphs, start=1):
        for node in nodes:
            if f"{node.path}/".startswith(f"{root}/"):
                again = _repeated(node, len(nodes) + len(found), place, 0, storages)
                again.path = f"{prefix}{node.path}"
                found.append(again)
    return found


def _absent(members: Sequence[Node]) -> list[frozenset[int]]:
    """Return sets of places of operations that may have launched nothing in this instance of a range.

    An optimiser counts its steps on the host, and makes its state in its first step alone.
    """
    if not members or not _OPTIMISER.fullmatch(members[0].path):
        return []
    small = {place for place, node in enumerate(members) if node.is_scalar}
    fills = {place for place, node in enumerate(members) if node.makes_state} - small
    return [frozenset(places) for places in (small, fills) if places]


@dataclass(frozen=True)
class _Readers:
    """Storage -> the operations that read it."""

    of: Mapping[int, list[int]]

    @classmethod
    def among(cls, nodes: Iterable[Node]) -> _Readers:
        found: dict[int, list[int]] = defaultdict(list)
        for node in nodes:
            for storage in {operand.storage for operand in node.reads}:
                found[storage].append(node.number)
        return cls(found)

    def outside(self, storage: int, first: int, last: int) -> bool:
        return any(number > last for number in self.of.get(storage, ()) if not first <= number <= last)

    def inside(self, storage: int, first: int, last: int) -> bool:
        return any(first < number <= last for number in self.of.get(storage, ()))


def _read_bytes(node: Node, place: int) -> int:
    """Return bytes of the input that the operation needs; for a gather, the rows that it takes."""
    if node.name in opmap.GATHERS and place == 0 and node.writes:
        return min(node.reads[0].bytes, node.writes[0].bytes)
    return node.reads[place].bytes


def bytes_now(node: Node) -> int:
    """Return bytes that the operation moves, from its shapes; `masked_fill` first copies its input."""
    moved = sum(_read_bytes(node, place) for place in range(len(node.reads))) + sum(w.bytes for w in node.writes)
    return moved + (2 * node.writes[0].bytes if opmap.base_name(node.op) == "masked_fill" and node.writes else 0)


def bytes_after(chain: Sequence[Node], readers: _Readers) -> tuple[float, float, list[str]]:
    """Return (bytes read, bytes written, notes) of the chain as one kernel."""
    first, last = chain[0].number, chain[-1].number
    made: set[int] = set()
    reads: dict[Key, float] = {}
    views: dict[Key, Operand] = {}
    for node in chain:
        for place, operand in enumerate(node.reads):
            views[operand.key] = operand
            if operand.storage not in made:
                reads[operand.key] = max(reads.get(operand.key, 0.0), _read_bytes(node, place))
        made |= {operand.storage for operand in node.writes}
    notes = []
    needless, why = _masked_out(chain, reads)
    for key, size in needless.items():
        reads[key] -= size
    notes += why
    writes: dict[Key, float] = {}
    gone: set[int] = set()
    for node in chain:
        for place, operand in enumerate(node.writes):
            views[operand.key] = operand
            outlives = np.isnan(operand.freed) or operand.freed > last + 1
            unread = not readers.inside(operand.storage, node.number, last)
            if readers.outside(operand.storage, first, last) or outlives or (unread and place == 0):
                writes[operand.key] = operand.bytes
            else:
                gone.add(operand.storage)
    if gone:
        notes.append(f"saves {len(gone)} tensor{'s' * (len(gone) > 1)} that nothing else reads")
    return _once(reads, views), _once(writes, views), notes


def _once(sizes: Mapping[Key, float], views: Mapping[Key, Operand]) -> float:
    """Return the bytes of some views, without those of a view that another view of its storage holds.

    So a tensor and its two halves are one tensor. Shape: `sizes` needed bytes of each of the `views`.
    """
    storages: dict[int, list[Key]] = defaultdict(list)
    for key in sizes:
        storages[key[0]].append(key)
    total = 0.0
    for keys in storages.values():
        kept: list[Key] = []
        for key in sorted(keys, key=lambda one: -one[2]):
            if not any(holds(views[other], views[key]) for other in kept):
                kept.append(key)
        total += sum(sizes[key] for key in kept)
    return total


def _masked_out(chain: Sequence[Node], reads: Mapping[Key, float]) -> tuple[dict[Key, float], list[str]]:
    """Return bytes of each input that a mask discards before any operation other than an elementwise one reads them."""
    for place, node in enumerate(chain):
        if node.name not in opmap.ELEMENTWISE:
            break
        masks = [operand for operand in node.reads if not np.isnan(operand.masked_frac)]
        if node.name != "masked_fill" or not masks or not node.reads:
            continue
        frac, elements = masks[0].masked_frac, node.reads[0].elements
        later = {operand.key for other in chain[place + 1 :] for operand in other.reads}
        found = {
            operand.key: reads[operand.key] * frac
            for other in chain[: place + 1]
            for operand in other.reads
            if operand.elements == elements and operand.key in reads and operand.key not in later
        }
        if frac and found:
            return found, [f"{frac:.0%} of its input is masked out (recorded) and need not be read"]
    return {}, []


def _connected(chain: Sequence[Node], node: Node) -> bool:
    """Return whether the operation reads a result of the chain, or shares an input with its range's neighbour.

    Neighbours of an optimiser are connected if they update tensors of one size.
    """
    written = {operand.storage for member in chain for operand in member.writes}
    if written & {operand.storage for operand in node.reads}:
        return True
    before = chain[-1]
    if (before.path, before.call) != (node.path, node.call):
        return False
    shared = {operand.storage for operand in before.reads} & {operand.storage for operand in node.reads}
    return bool(shared) or _same_update(before, node)


def _same_update(before: Node, node: Node) -> bool:
    """Return whether two operations of an optimiser work element by element on tensors of one size.

    One loop over these elements does both, as the fused optimisers do, even if they share no tensor.
    """
    both = before.name in opmap.ELEMENTWISE and node.name in opmap.ELEMENTWISE
    sizes = {one.elements for one in (*before.writes, *node.writes)}
    return both and len(sizes) == 1 and _OPTIMISER.fullmatch(node.path) is not None


def find_chains(nodes: Sequence[Node], work: Work) -> Iterator[list[Node]]:
    """Return runs of neighbouring memory-bound operations that share tensors; a single operation is a run of one.

    Shape: `nodes` in the order of the program.
    """
    chain: list[Node] = []
    for node in nodes:
        fits = (
            bool(chain)
            and node.is_memory_bound
            and step_of(node.path) == step_of(chain[0].path)
            and node.path.split("/")[0] == chain[0].path.split("/")[0]
            and len({int(work.place[row]) for one in (*chain, node) for row in one.rows or []}) <= 1
            and _connected(chain, node)
        )
        if fits:
            chain.append(node)
            continue
        if chain:
            yield chain
        chain = [node] if node.is_memory_bound else []
    if chain:
        yield chain


# Names -------------------------------------------------------------------------------------------------------

_GELU = "manual GELU in eight operations"
_MANUAL_GELU = sorted(["mul", "pow", "mul", "add", "mul", "tanh", "add", "mul"])
_SOFTMAX = ("softmax", "_softmax", "_safe_softmax")
_LAYER_NORM = ("native_layer_norm", "layer_norm")


def name_pattern(names: Sequence[str]) -> str:
    """Return the known name of a chain of operations (or kinds of kernels), else the list of its parts."""
    return _pattern(tuple(names))


@lru_cache(maxsize=1 << 12)
def _pattern(names: tuple[str, ...]) -> str:
    words = [word for word in names if word not in ("memcpy", "memset")]
    if words and words[-1] in _SOFTMAX:
        before = set(words[:-1])
        if before <= {"mul", "div", "masked_fill", "where", "add", "copy"} and before & {"masked_fill", "where", "add"}:
            return "scale + mask + softmax" if before & {"mul", "div"} else "mask + softmax"
    if sorted(words) == _MANUAL_GELU:
        return _GELU
    if words == ["add", "gelu"]:
        return "bias + GELU"
    if len(words) == 2 and words[0] == "add" and words[1] in _LAYER_NORM:
        return "residual + LayerNorm"
    if len(words) > 1 and set(words) <= {"copy", "clone", "cat"}:
        return "QKV split and permute" if len(words) in (2, 3) and "cat" not in words else "copies"
    return " + ".join(_plain(word) for word in _with_known_parts(words))


# Consecutive operations -> their name, and a ready-made kernel for them.
_COMPILE, _FUSED = "torch.compile makes one kernel of it", "the optimiser's fused=True, or foreach=True"
_KNOWN_PARTS = (
    (
        re.compile(r"((to_)?copy )?(pow|square|mul) mean add rsqrt mul ((to_)?copy )?(mul )?((to_)?copy )?"),
        "RMSNorm",
        "torch.nn.functional.rms_norm",
    ),
    (re.compile(r"(mul )?neg cat (mul )+add |(mul )?cat (mul )+add "), "rotary embedding", _COMPILE),
    (re.compile(r"silu mul "), "SwiGLU", _COMPILE),
    (
        re.compile(r"(?:native_|cudnn_|_native_)?batch_norm(?:_\w+)? (add )?relu "),
        "BatchNorm + ReLU",
        f"{_COMPILE}; in inference, the convolution can include the norm",
    ),
    (re.compile(r"(mul )?lerp mul addcmul sqrt div add addcdiv "), "Adam update", _FUSED),
    (re.compile(r"((to_)?copy ){2,}"), "casts", f"keep the tensors in one type, or {_COMPILE}"),
)
_READY = {name: how for _, name, how in _KNOWN_PARTS} | {
    _GELU: 'torch.nn.functional.gelu(approximate="tanh"); in transformers, activation_function="gelu_pytorch_tanh"'
}
_OPTIMISER = re.compile(r"step (?!backward)\w+")  # an automatic range
_SOFTMAX_NAMES = ("scale + mask + softmax", "mask + softmax")


def _with_known_parts(words: Sequence[str]) -> list[str]:
    """Return the words with known runs of operations replaced by a name: add, copy, pow, mean … gives add, RMSNorm."""
    left = [_plain(word) for word in words]
    for pattern, name, _ in _KNOWN_PARTS:
        text, words, left = " ".join([*left, ""]), left, []
        if not pattern.search(text):
            left = words
            continue
        starts, at = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist(), 0
        while at < len(words):
            found = pattern.match(text, starts[at])
            left.append(name if found else words[at])
            at += found[0].count(" ") if found else 1
    return left


def ready_made(pattern: str, path: str) -> str:
    """Return a ready-made fusion of a chain; '' if none is known. `pattern` comes from name_pattern.

    Only programs with automatic ranges get one. An author who named ranges by hand also chose the operations.
    """
    if not path.startswith(STEP):
        return ""
    if _OPTIMISER.fullmatch(path):
        return f"ready-made: {_FUSED}"
    if pattern in _SOFTMAX_NAMES:
        return "ready-made: torch.nn.functional.scaled_dot_product_attention, which includes the products"
    found = [how for name, how in _READY.items() if name in pattern.split(" + ") or pattern.startswith(name)]
    return "; ".join(f"ready-made: {how}" for how in dict.fromkeys(found))


def spelled_out(kinds: Sequence[str]) -> tuple[str, str]:
    """Return the operation that kernels of these kinds spell out, and what makes one kernel of it; ('', '') if none."""
    pattern = name_pattern(kinds)
    return (pattern, _READY[pattern]) if pattern in _READY else ("", "")


def _plain(word: str) -> str:
    return {"native_layer_norm": "LayerNorm", "layer_norm": "LayerNorm", "clone": "copy"}.get(word, word.strip("_"))


def scope_of(paths: Sequence[str]) -> str:
    """Return the relation between the ranges of a chain."""
    unique = list(dict.fromkeys(paths))
    if len(unique) == 1:
        return "one range"
    if len({path.rpartition("/")[0] for path in unique}) == 1:
        return "sibling ranges"
    shortest = min(unique, key=len)
    return "nested ranges" if all((path + "/").startswith(shortest + "/") for path in unique) else "neighbouring ranges"


# Candidates from a dataflow ----------------------------------------------------------------------------------


def chain_candidate(chain: Sequence[Node], readers: _Readers, work: Work) -> Candidate:
    """Return what fusing the chain into one kernel changes."""
    read, write, notes = bytes_after(chain, readers)
    certain = all(node.rows is not None for node in chain)
    rows = tuple(row for node in chain for row in node.rows or ()) if certain else None
    names = [node.name for node in chain]
    pattern = name_pattern(names)
    if way := ready_made(pattern, chain[0].path):
        notes = [*notes, way]
    return Candidate(
        pattern=pattern,
        paths=tuple(node.path for node in chain),
        kernels=tuple(str(work.label[row]) for row in rows) if rows else tuple(names),
        rows=rows,
        launches=len(rows) if rows is not None else len(chain),
        now=float(sum(bytes_now(node) for node in chain)),
        read=read,
        write=write,
        bound_bytes=read + write,
        notes=tuple(notes),
    )


_EPILOGUES = {
    "gelu": ("GELU", "the library's product has this epilogue (cuBLASLt GELU_BIAS, torch._addmm_activation)"),
    "relu": ("ReLU", "the library's product has this epilogue (cuBLASLt RELU_BIAS)"),
    "add": ("residual", "the library's product adds a matrix itself (beta = 1)"),
    "clone": ("permute", "the library's product can write that layout itself (strides of its result)"),
    "copy": ("permute", "the library's product can write that layout itself (strides of its result)"),
    "argmax": (
        "argmax",
        "no library has this epilogue: a matrix product of your own could keep each tile's best value",
    ),
}


def epilogue_candidate(product: Node, node: Node, readers: _Readers, work: Work) -> Candidate | None:
    """Return the operation as the epilogue of the preceding matrix product; None if that is impossible."""
    if node.name not in _EPILOGUES or not product.writes:
        return None
    result = product.writes[0]
    wanted = [operand for operand in node.reads if operand.storage == result.storage]
    if not wanted or readers.outside(result.storage, product.number, node.number):
        return None
    if np.isnan(result.freed) or result.freed > node.number + 1:
        return None
    others = float(sum(operand.bytes for operand in node.reads if operand.storage != result.storage))
    out = float(sum(operand.bytes for operand in node.writes))
    name, how = _EPILOGUES[node.name]
    what = "logits + argmax" if node.name == "argmax" else f"{name} behind a matrix product"
    if node.name == "gelu" and "addmm" in product.name:
        what = "bias + GELU behind a matrix product"
    rows = tuple(node.rows) if node.rows is not None else None
    return Candidate(
        pattern=what,
        paths=(product.path, node.path),
        kernels=("matrix", *(str(work.label[row]) for row in rows or ())) if rows else ("matrix", node.name),
        rows=rows,
        launches=len(rows) if rows is not None else 1,
        now=2.0 * result.bytes + others + out,
        read=others,
        write=out,
        bound_bytes=max(others + out - result.bytes, 0.0),
        notes=(how, "the product itself may become slower"),
        epilogue=True,
    )


def from_dataflow(nodes: Sequence[Node], work: Work) -> list[Candidate]:
    """Return every chain of two or more operations, and single operations that can be an epilogue."""
    readers = _Readers.among(nodes)
    found = []
    for chain in find_chains(nodes, work):
        before = nodes[chain[0].number - 1] if chain[0].number else None
        product = before if before is not None and before.is_product and before.path.split("/")[0] else None
        if len(chain) > 1:
            candidate = chain_candidate(chain, readers, work)
            if product and epilogue_candidate(product, chain[0], readers, work):
                how = _EPILOGUES[chain[0].name][1]
                note = f"instead, its first operation could be part of the product before it: {how}"
                candidate = replace(candidate, notes=(*candidate.notes, note))
            found.append(candidate)
        elif product and step_of(product.path) == step_of(chain[0].path):
            alone = epilogue_candidate(product, chain[0], readers, work)
            found += [alone] if alone else []
    return found


# Candidates from kernels alone -------------------------------------------------------------------------------

_MEMORY_KINDS = frozenset((
    "softmax", "layer_norm", "gelu", "masked_fill", "cat", "copy", "argmax", "reduce", "gather", "mul", "add", "div",
    "pow", "where", "fill", "tanh", "sub", "exp", "sigmoid", "silu", "relu", "neg", "rsqrt", "memcpy",
))  # fmt: skip
# Kinds in launch order with a known dataflow -> (kernels whose reads remain, kernels whose writes remain).
_KNOWN_RUNS: tuple[tuple[re.Pattern[str], tuple[list[int], list[int]]], ...] = (
    (re.compile(r"(?:mul |div )?(?:(?:memcpy |copy )?masked_fill |add |where )softmax "), ([0], [-1])),
    (re.compile(r"mul pow mul add mul tanh add mul |pow mul add mul tanh add mul mul "), ([0], [-1])),
    (re.compile(r"add layer_norm "), ([0], [0, -1])),
    (re.compile(r"add gelu "), ([0], [-1])),
)


@dataclass(frozen=True)
class Size:
    """Bytes that a kernel reads and writes: least, most, and their source."""

    read: tuple[float, float]
    write: tuple[float, float]
    how: str


def size_of(work: Work, row: int, a_thread: Mapping[str, int]) -> Size | None:
    """Return the bytes of one launch, from counters, the copy's size, or grid, block and name; None if unknown."""
    read, write, kernel = work.l2_read_bytes[row], work.l2_write_bytes[row], work.kernel[row]
    if np.isfinite(read) and np.isfinite(write):
        return Size((read, read), (write, write), "copies" if work.label[row] == "memcpy" else "L2 (ncu)")
    count = opmap.element_count(kernel, work.grid[row], work.block[row], a_thread.get(kernel))
    item, tensors = opmap.item_bytes(kernel), opmap.pointers(kernel)
    if count is None or item is None:
        return None
    low, high = count[0] * item, count[1] * item
    # the name of an index kernel does not tell how many tensors it reads; count the one that it must read
    inputs = (tensors or 2) - 1
    return Size((low * inputs, high * inputs), (low, high), "grid and block")


def elements_a_thread(work: Work) -> dict[str, int]:
    """Return vectorized kernel -> elements a thread, for kernels with a measured launch.

    It is a constant of the compiled kernel, so one measured launch is enough for all.
    """
    found: dict[str, int] = {}
    for row in np.flatnonzero(work.l2_write_bytes > 0):
        kernel = str(work.kernel[row])
        item = None if kernel in found or not kernel.startswith("vectorized_e") else opmap.item_bytes(kernel)
        for each in opmap.ELEMENTS_A_THREAD if item else ():
            count = opmap.element_count(kernel, work.grid[row], work.block[row], each)
            if count and item and count[0] <= work.l2_write_bytes[row] / item <= count[1]:
                found.setdefault(kernel, each)
    return found


def from_kernels(work: Work, covered: set[tuple[str, int]]) -> list[Candidate]:
    """Return runs of neighbouring memory-bound kernels in ranges without a recorded dataflow.

    A known pattern fixes the dataflow; any other run is listed without a gain. A copy ends a run, because no kernel can
    take over a copy from or to the host.
    """
    a_thread = elements_a_thread(work)
    usable = np.array([label in _MEMORY_KINDS for label in work.label], dtype=bool) & (work.path != "")
    moved = {name for name in set(work.kernel[work.label == "memcpy"]) if direction_of(name) != WITHIN}
    usable &= ~np.isin(work.kernel, list(moved))
    step = {path: step_of(path) for path in set(work.path)}
    found: list[Candidate] = []
    run: list[int] = []

    paths, places, calls = work.path.tolist(), work.place.tolist(), work.call.tolist()

    def together(row: int, other: int) -> bool:
        a, b = paths[row], paths[other]
        if other != row + 1 or places[row] != places[other]:
            return False
        return a == b or (step[a] == step[b] and scope_of([a, b]) != "neighbouring ranges")

    for row in np.flatnonzero(usable).tolist():
        if (paths[row], calls[row]) in covered:
            continue
        if run and not together(run[-1], row):
            found += _split_run(run, work, a_thread)
            run = []
        follows = work.label[row] == "argmax" and row and work.label[row - 1] == opmap.MATRIX
        if follows and step[work.path[row - 1]] == step[work.path[row]]:
            found += _split_run(run, work, a_thread)
            found.append(_argmax_of_product(row, work))
            run = []
        else:
            run.append(row)
    return found + _split_run(run, work, a_thread)


def _argmax_of_product(row: int, work: Work) -> Candidate:
    read, write = float(work.l2_read_bytes[row]), float(work.l2_write_bytes[row])
    unknown = () if np.isfinite(read) else ("size unknown: it has no counters",)
    return Candidate(
        pattern="logits + argmax",
        paths=(work.path[row - 1], work.path[row]),
        kernels=(opmap.MATRIX, "argmax"),
        rows=(row,),
        launches=1,
        now=2 * read,
        read=read * 0,
        write=write,
        bound_bytes=read * 0,
        notes=(_EPILOGUES["argmax"][1], *unknown),
        epilogue=True,
    )


def _split_run(run: list[int], work: Work, a_thread: Mapping[str, int]) -> list[Candidate]:
    """Return the known patterns of a run, and the rest between them."""
    if len(run) < 2:
        return []
    found, left = [], 0
    for at, end, remain in _known_parts(tuple(work.label[run])):
        found += _unknown_run(run[left:at], work)
        found.append(_known_run(run[at:end], work, a_thread, *remain))
        left = end
    return [*found, *_unknown_run(run[left:], work)]


@lru_cache(256)
def _known_parts(labels: tuple[str, ...]) -> list[tuple[int, int, tuple[list[int], list[int]]]]:
    """Return where the known patterns of a run begin and end, and what remains of each; layers repeat their runs."""
    words = [f"{label} " for label in labels]
    starts, text = [0, *accumulate(map(len, words))], "".join(words)
    found, at = [], 0
    while at < len(labels):
        matches = [(pattern.match(text, starts[at]), remain) for pattern, remain in _KNOWN_RUNS]
        best = max(((m.end(), remain) for m, remain in matches if m), default=None, key=lambda item: item[0])
        end = at + 1 if best is None else starts.index(best[0])
        if best is not None:
            found.append((at, end, best[1]))
        at = end
    return found


def _kernel_candidate(run: Sequence[int], work: Work, **values: object) -> Candidate:
    kinds = [str(work.label[row]) for row in run]
    fields: dict[str, object] = {
        "pattern": name_pattern(kinds),
        "paths": tuple(work.path[row] for row in run),
        "kernels": tuple(kinds),
        "rows": tuple(run),
        "launches": len(run),
        **dict.fromkeys(("now", "read", "write", "bound_bytes"), np.nan),
        **values,
    }
    return Candidate(**fields)  # type: ignore[arg-type]


def _unknown_run(run: Sequence[int], work: Work) -> list[Candidate]:
    stretches = (list(rows) for copies, rows in groupby(run, lambda row: work.label[row] == "memcpy") if not copies)
    return [_kernel_candidate(rows, work, notes=(NO_DATAFLOW,)) for rows in stretches if len(rows) > 1]


def _known_run(
    run: Sequence[int], work: Work, a_thread: Mapping[str, int], reading: Sequence[int], writing: Sequence[int]
) -> Candidate:
    sizes = [size_of(work, row, a_thread) for row in run]
    # In a chain of equal tensors, one kernel gives the size of all.
    known = [size for size in sizes if size is not None]
    if not known:
        return _kernel_candidate(run, work, notes=("size unknown: neither counters nor names and grids tell it",))
    low, high = max(size.write[0] for size in known), min(size.write[1] for size in known)
    if low > high * 1.05:
        return _kernel_candidate(run, work, notes=("the kernels write different sizes, so they form no chain",))
    filled = [size or Size((low, high), (low, high), "its neighbours") for size in sizes]
    read = sum(filled[place].read[1] for place in reading)
    write = sum(filled[place].write[1] for place in writing)
    now = sum(size.read[1] + size.write[1] for size in filled)
    how = ", ".join(dict.fromkeys(size.how for size in filled))
    notes = [f"dataflow of the known pattern; sizes from {how}"]
    if high > low:
        notes.append(f"at most: tensors of {low:,.0f} to {high:,.0f} bytes")
    after = read + write
    values = {"now": max(now, after), "read": read, "write": write, "bound_bytes": after, "notes": tuple(notes)}
    return _kernel_candidate(run, work, **values)


# The whole plan ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What could be fused. `steps`: instances of each step's range."""

    candidates: list[Candidate]
    work: Work
    machine: Machine
    steps: Mapping[str, int]


def plan(facts: Facts) -> Plan | None:
    """Return what could be fused; None without operations, or if the capture made the GPU wait on purpose."""
    gpu_ops, ranges, dataflow = facts.gpu_ops, facts.ranges, facts.capture.dataflow
    if facts.held_back or (gpu_ops.empty and dataflow is None):
        return None
    order = gpu_ops["api_start_ns"].fillna(gpu_ops["start_ns"]).to_numpy(np.int64)
    first = np.argsort(order, kind="stable")[:MOST_LAUNCHES]
    gpu_ops = gpu_ops.iloc[first].reset_index(drop=True)
    gpu_ops, ranges = place_graphs(gpu_ops, ranges)
    if len(gpu_ops):  # the plan of a longer capture covers its first part
        ranges = ranges[ranges["start_ns"] <= order[first[-1]]]
    measured = facts.measured[[name for name in MOVED if name in facts.measured]]
    gpu_ops, measured = by_process(gpu_ops, measured.head(int((gpu_ops["kind"] == "kernel").sum())))
    work = prepare_work(gpu_ops, ranges, measured)
    machine = measure_machine(gpu_ops, facts.roofs, facts.l2_bytes)
    nodes = [] if dataflow is None else read_nodes(dataflow)
    nodes = repeat_nodes([*nodes, *nodes_of_graphs(nodes, ranges["path"].unique())], ranges) if nodes else []
    at_dram = facts.roofline[facts.roofline["level"] == "dram"].dropna(subset=["bound"])
    bound_of = dict(zip(zip(at_dram["kernel"], at_dram["range"], strict=True), at_dram["bound"], strict=True))
    assign_launches(nodes, work, bound_of)
    candidates = from_dataflow(nodes, work) + from_kernels(work, {(node.path, node.call) for node in nodes})
    seen = set(work.path)
    if seen:  # leave out recorded operations that did not run in this timeline
        candidates = [candidate for candidate in candidates if set(candidate.paths) & seen]
    instances = {path: count for path, count in ranges["path"].value_counts().items() if path == step_of(str(path))}
    if not len(work):  # a run without a GPU repeats the recorded step
        instances = dict.fromkeys(instances, 1)
    return Plan(candidates, work, machine, instances)


# The table ---------------------------------------------------------------------------------------------------


def evaluate(candidate: Candidate, work: Work, machine: Machine) -> dict[str, object]:
    """Return one occurrence as numbers: bytes now (modelled, measured) and after, time now, its bound after, gain.

    NaN where unknown. Measured at DRAM where the chain is far larger than L2, else between L2 and the SMs.
    """
    after, measured, how = candidate.after, np.nan, ""
    time = dram = l2 = np.nan
    if candidate.rows:
        rows = list(candidate.rows)
        time = float(work.duration_ns[rows].sum())
        dram, l2 = float(work.dram_bytes[rows].sum()), float(work.l2_bytes[rows].sum())
    if not candidate.epilogue:
        beyond = after >= FAR_BEYOND_L2 * machine.l2_bytes
        measured, how = (dram, "DRAM (ncu)") if beyond else (l2, "L2 (ncu)")
        if not measured >= after:  # traffic that stayed in a cache is missing from the measured bytes
            measured, how = np.nan, ""
    rate, roof = machine.rate(candidate.read, candidate.write)
    kernels_after = 0 if candidate.epilogue else 1
    bound = candidate.bound_bytes / rate * 1e9 + kernels_after * machine.shortest_ns
    saved = candidate.launches - kernels_after
    gain = max(time - bound, 0.0) + saved * machine.gap_ns if np.isfinite(time) and np.isfinite(bound) else np.nan
    notes = list(candidate.notes)
    if candidate.rows is None and len(work):
        notes.insert(0, "it is not certain which kernels belong to its operations, so it has no gain")
    if np.isfinite(bound) and candidate.epilogue and not candidate.bound_bytes:
        notes.append("it moves no bytes of its own")
    elif np.isfinite(bound):
        notes.append(
            f"at least {_bytes(candidate.bound_bytes)} at {rate / 1e12:.2f} TB/s ({roof})"
            + (f" and the {machine.shortest_ns / 1e3:.1f} µs of the shortest kernel" if kernels_after else "")
        )
    if saved and np.isfinite(gain):
        notes.append(f"{saved} launch{'es' * (saved > 1)} fewer, {machine.gap_ns / 1e3:.2f} µs idle before each")
    return {
        "launches": candidate.launches,
        "modelled": candidate.now,
        "measured": measured,
        "after_bytes": after,
        "now_time_ns": time,
        "bound_time_ns": bound,
        "gain_ns": gain,
        "measured_by": how,
        "evidence": notes,
    }


@table(
    "fusion",
    always=True,
    question="Which neighbouring kernels should be fused, and how much would that save?",
    title="What to fuse",
    columns=(
        Column("pattern", "known name of the chain, else its operations", "key"),
        Column("step", "range of the step (one token, one prefill) to which the numbers refer", "key"),
        Column("range", "innermost ranges of the chain, folded", "key"),
        Column(
            "scope", "relation between these ranges; epilogue: a matrix product takes over the work", "key", shown=False
        ),
        Column(
            "kernels", "kinds of kernels and copies in launch order; `matrix` is the product itself", "key", shown=False
        ),
        Column("occurrences", "how often the chain occurs in a step, over all repeated layers", "static", "1"),
        Column("launches", "kernels and copies today", "timing", "1"),
        Column("now_bytes", "bytes that they move today; now_from names the source", "counters", label="bytes now"),
        Column(
            "now_from",
            "DRAM (ncu): measured; L2 (ncu): measured between L2 and the SMs, if the chain is not much larger"
            " than L2; shapes: calculated from the shapes",
            "row",
        ),
        Column("after_bytes", "bytes with inputs read once and results written once", "static", label="bytes after"),
        Column("now_time_ns", "time today, by nsys in the running program", "timing", label="time now"),
        Column(
            "bound_time_ns",
            "after_bytes at the measured roof, plus the time of the shortest kernel. A fused kernel is faster only if "
            "it leaves results in L2",
            "static",
        ),
        Column("gain_ns", "now_time_ns - bound_time_ns, plus the idle time before each saved launch", "timing"),
        Column("evidence", "the source of the numbers, or why a gain is missing", "row", shown=False, style="prose"),
    ),
)
def build_fusion(facts: Facts) -> pd.DataFrame | None:
    """Return fusion.csv: one row for equal fusions of repeated layers, per step (token, prefill), most gain first."""
    if (found := facts.once(plan)) is None:
        return None
    # with steps, only their kernels are judged
    judged = [candidate for candidate in found.candidates if candidate.step or not found.steps]
    if not judged:
        return None
    paths = pd.Series(list(dict.fromkeys(path for candidate in judged for path in candidate.paths)))
    folded = dict(zip(paths, fold_paths(paths), strict=True))
    rows = []
    for candidate in judged:
        numbers = evaluate(candidate, found.work, found.machine)
        ranges = list(dict.fromkeys(folded[path] for path in candidate.paths))
        rows.append(
            {
                "pattern": candidate.pattern,
                "step": candidate.step,
                "range": " + ".join(ranges),
                "scope": "epilogue" if candidate.epilogue else scope_of(candidate.paths),
                "kernels": " > ".join(candidate.kernels),
                "occurrences": 1,
                **numbers,
            }
        )
    frame = pd.DataFrame(rows)
    frame["certain"] = frame["gain_ns"].notna()
    key = ["pattern", "step", "range", "scope", "kernels", "certain"]
    summed = ["occurrences", "launches", "after_bytes", "now_time_ns", "bound_time_ns", "gain_ns"]
    groups = frame.groupby(key, sort=False)
    table = groups[summed].sum(skipna=False)
    table["evidence"] = groups["evidence"].agg(lambda notes: "; ".join(dict.fromkeys(joined.from_iterable(notes))))
    # a row uses one source of bytes: if one occurrence lacks counters, all take their bytes from shapes
    bytes_ = groups[["modelled", "measured"]].sum(skipna=False)
    by = groups["measured_by"].first()
    table["now_bytes"] = bytes_["measured"].fillna(bytes_["modelled"])
    table["now_from"] = by.where(bytes_["measured"].notna(), "shapes").where(table["now_bytes"].notna(), "")
    table = table.reset_index().drop(columns="certain")
    table["tier"] = np.where(
        table["now_from"].str.endswith("(ncu)"), "counters", np.where(table["now_time_ns"].isna(), "static", "timing")
    )
    summed.append("now_bytes")
    instances = table["step"].map(found.steps).fillna(1).clip(lower=1).astype(float)
    for name in summed:
        per_step = table[name].astype("Float64") / instances
        whole = name.endswith(("_bytes", "_ns"))  # a chain that only some steps launch counts as a fraction a step
        table[name] = per_step.round().astype("Int64") if whole else per_step.round(3)
    return table.sort_values(["gain_ns", "now_bytes", "range"], ascending=[False, False, True], na_position="last")


# The check ---------------------------------------------------------------------------------------------------

BYTES_GOAL, TIME_GOAL = 0.05, 0.15  # the largest deviation of a built kernel from its prediction
_SIZE = ["op", "shape", "dtype"]


@table(
    "fusion_check",
    always=True,
    question="Do fused kernels that were built reach what the plan predicted?",
    title="Fused kernels that were built, against the plan",
    columns=(
        Column("op", "operation", "key"),
        Column("variant", "variant with one kernel; the fastest comes first", "key"),
        Column("range", "folded range where it ran; the numbers are the mean of its launches there", "key"),
        Column("shape", "shape of the op", "key"),
        Column("dtype", "data type of the op", "key"),
        Column("pattern", "the unfused chain; the prediction uses only its capture", "key"),
        Column("over_l2", "predicted_bytes over the size of L2; rows from 4 on are judged", "static", "1"),
        Column("predicted_bytes", "fusion.csv's after_bytes of the chain", "static", label="bytes predicted"),
        Column(
            "measured_bytes", "DRAM bytes of the fused kernel, read and written", "counters", label="bytes measured"
        ),
        Column("bytes_error_frac", "measured_bytes / predicted_bytes - 1; goal 5 %", "counters"),
        Column("now_time_ns", "time of the unfused chain", "timing", label="time now"),
        Column("predicted_time_ns", "fusion.csv's bound_time_ns of the chain", "static", label="time predicted"),
        Column("measured_time_ns", "time of the fused kernel, as nsys timed it", "timing", label="time measured"),
        Column("time_error_frac", "measured_time_ns / predicted_time_ns - 1; goal 15 %", "timing"),
        Column(
            "predicted_gain_ns",
            "sum of gain_ns in fusion.csv over all such chains of a step; blank without a measured gain",
            "static",
            label="step gain predicted",
        ),
        Column(
            "measured_gain_ns",
            "GPU time of the step with the chains minus that with the fused kernels, both without a profiler; blank if "
            "the steps differ in anything else",
            "timing",
            label="step gain measured",
        ),
        Column("within", "whether both goals are met; blank if the working set is too small to judge", "row"),
        Column("reason", "what causes the difference", "row", style="prose"),
    ),
)
def build_check(facts: Facts) -> pd.DataFrame | None:
    """Return fusion_check.csv: the plan's prediction for fusing a chain beside measured fused kernels.

    The prediction uses only the part of the capture with the unfused chain. An op is checked if ops.csv declares ranges
    for its chain and, at the same size, ranges for single kernels. Kernels outside of steps come first, the fastest
    first, then kernels inside the steps of a model. If two timed steps differ only in this op, the table also compares
    the gain of the whole step with the difference of their GPU times without a profiler.
    """
    found, ops = facts.once(plan), facts.capture.ops
    if found is None or ops is None or not len(found.work):
        return None
    work, queued_ns = found.work, facts.bare_gpu_ns  # a step's GPU time behind a filled queue, by its path
    declared = ops.drop_duplicates("range").set_index("range")
    declared = declared.assign(
        folded=fold_paths(pd.Series(declared.index)).to_numpy(), step=declared.index.map(step_of)
    )
    size_of_range = dict(zip(declared.index, declared[_SIZE].itertuples(index=False, name=None), strict=True))
    places = work.rows_of(list(work.path))
    chains: dict[tuple[object, ...], list[Candidate]] = defaultdict(list)
    unfused: set[str] = set()
    for candidate in found.candidates:
        paths = list(dict.fromkeys(candidate.paths))
        known = {size_of_range.get(path) for path in paths}
        # the chain must be all the work of its ranges, else the fused kernel does more than the chain
        whole = candidate.rows and sum(len(places.get(path, ())) for path in paths) == candidate.launches
        size = known.pop() if len(known) == 1 else None
        if size and whole and not candidate.epilogue and np.isfinite(candidate.after):
            chains[(*size, bool(candidate.step))].append(candidate)
            unfused |= set(paths)
    rows = []
    built = declared[[len(places.get(path, ())) == 1 and path not in unfused for path in declared.index]]
    for key, group in built.groupby([*_SIZE, "variant", "folded"], sort=False):
        same = chains.get((*key[: len(_SIZE)], bool(group["step"].iloc[0])))
        if same:
            launches = [places[path][0] for path in group.index]
            steps = same[0].step, str(group["step"].iloc[0])
            gained = queued_ns[steps[0]] - queued_ns[steps[1]] if set(steps) <= set(queued_ns) else np.nan
            gained = (
                gained if _differ_in(str(key[0]), *(declared[declared["step"] == step] for step in steps)) else np.nan
            )
            rows.append(_check(key, same, work, launches, found.machine, gained))
    if not rows:
        return None
    table = pd.DataFrame(rows)
    for name in table.columns[table.columns.str.endswith(("_bytes", "_ns"))]:
        table[name] = table[name].astype("Float64").round().astype("Int64")
    order = {op: place for place, op in enumerate(table["op"].unique())}
    table["in_step"] = table["range"].map(step_of) != ""
    table = table.assign(place=table["op"].map(order)).sort_values(
        ["place", "in_step", "measured_time_ns"], kind="stable"
    )
    return table.drop(columns=["place", "in_step"])


def _differ_in(op: str, one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Return whether two steps differ only in the variants of that op."""
    rest = [
        sorted(map(tuple, step.loc[step["op"] != op, [*_SIZE, "variant"]].astype(str).to_numpy()))
        for step in (one, other)
    ]
    return rest[0] == rest[1]


def _check(
    key: tuple[object, ...],
    same: Sequence[Candidate],
    work: Work,
    launches: list[int],
    machine: Machine,
    gained_ns: float,
) -> dict[str, object]:
    """Return one row: the numbers of one launch, as the mean over all launches."""
    op, shape, dtype, variant, folded = key
    chain = same[0]
    plans = [evaluate(candidate, work, machine) for candidate in same]
    plan_ = {**plans[0], "now_time_ns": float(np.mean([float(str(one["now_time_ns"])) for one in plans]))}
    reads, writes = work.dram_read_bytes[launches], work.dram_write_bytes[launches]
    counted = int(np.isfinite(reads + writes).sum())
    read, write = (float(np.nanmean(moved)) if counted else np.nan for moved in (reads, writes))
    of_l2 = work.l2_read_bytes[launches]
    asked = float(np.nanmean(of_l2)) if np.isfinite(of_l2).any() else np.nan
    time = float(work.duration_ns[launches].mean())
    predicted_ns = float(str(plan_["bound_time_ns"]))
    bytes_error, time_error = (read + write) / chain.after - 1, time / predicted_ns - 1
    far = chain.after >= FAR_BEYOND_L2 * machine.l2_bytes
    within = abs(bytes_error) <= BYTES_GOAL and abs(time_error) <= TIME_GOAL
    several = [f"mean of {len(launches)} launches, {counted} with counters"] if len(launches) > 1 else []
    return {
        "op": op,
        "variant": variant,
        "range": folded,
        "shape": shape,
        "dtype": dtype,
        "pattern": chain.pattern,
        "over_l2": chain.after / machine.l2_bytes,
        "predicted_bytes": chain.after,
        "measured_bytes": read + write,
        "bytes_error_frac": bytes_error,
        "now_time_ns": plan_["now_time_ns"],
        "predicted_time_ns": predicted_ns,
        "measured_time_ns": time,
        "time_error_frac": time_error,
        "predicted_gain_ns": np.nan if np.isnan(gained_ns) else sum(float(str(one["gain_ns"])) for one in plans),
        "measured_gain_ns": gained_ns,
        "within": pd.NA if not far or np.isnan(bytes_error + time_error) else "yes" if within else "no",
        "reason": "; ".join((*several, *_reasons(chain, read, write, asked, time_error, machine, far=far))),
        "tier": "timing" if np.isnan(read + write) else "counters",
    }


def _reasons(
    chain: Candidate, read: float, write: float, asked: float, time_error: float, machine: Machine, *, far: bool
) -> Iterator[str]:
    """Yield the causes of the difference between the plan and the built kernel.

    `asked`: bytes that it reads from L2.
    """
    if not far:
        yield f"the working set is only {chain.after / machine.l2_bytes:.2g} times L2, so it is not judged"
    if np.isnan(read + write):
        yield "ncu has no bytes of this kernel"
    masked = any("masked out" in note for note in chain.notes)
    if read > chain.read * 1.01:
        more = " that the mask throws away" if masked and read > chain.read * 1.5 else ""
        again = asked <= chain.read * 1.005
        extra = _bytes(read - chain.read)
        yield (
            f"L2 fetches {extra} more than the kernel asks of it" if again else f"reads {extra}{more} more than it must"
        )
    elif read < chain.read * 0.99:
        yield f"reads {_bytes(chain.read - read)} less than planned"
    left = chain.write - write
    if left > chain.write * 0.01:
        held = "still lay in L2 when the kernel ended" if left <= machine.l2_bytes else "were not written to DRAM"
        yield f"{_bytes(left)} of its results {held}"
    elif write > chain.write * 1.01:
        yield f"writes {_bytes(write - chain.write)} more than planned"
    if abs(time_error) > TIME_GOAL:
        yield f"takes {1 + time_error:.2f} times the bound"


@part("note")
def _cut_plan(facts: Facts) -> str | None:
    gpu_ops = facts.gpu_ops
    if len(gpu_ops) <= MOST_LAUNCHES:
        return None
    return f"The fusion plan is of the first {MOST_LAUNCHES:,} of {len(gpu_ops):,} GPU operations."
