"""Find the range that launched each GPU operation: the API call decides, never the time of the kernel.

A kernel belongs to the innermost range that encloses its launch call on the same thread. Kernels run later than their
launch, often inside the CPU range of the next layer, so their own times say nothing about their range.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise, zip_longest

import numpy as np
import pandas as pd

from analysis.capture.model import nest

UNATTRIBUTED = "outside every range"
SWEPT = "sweep/"  # `make sweep` launches combinations below it: their numbers are choices, not indices of layers
_FEW_THREADS = 16  # up to this number, one comparison per thread is faster than an index


def attribute(gpu_ops: pd.DataFrame, ranges: pd.DataFrame) -> pd.Series:
    """Return, for each row of `gpu_ops`, the row number in `ranges` of its innermost range, -1 if it has none.

    Shape: `gpu_ops` and `ranges` as in `Capture`; both with a RangeIndex.
    """
    calls = gpu_ops[["pid", "tid", "api_start_ns", "api_end_ns"]]
    return pd.Series(innermost(calls, ranges).astype(np.int32), index=gpu_ops.index)


def attribute_recorded(gpu_ops: pd.DataFrame, ranges: pd.DataFrame, graph_nodes: pd.DataFrame) -> pd.Series:
    """Return, for each operation of a CUDA graph, the row of the innermost range in which it was recorded, else -1.

    A graph is recorded once, inside the ranges of its layers, and launched as a whole many times.
    Shape: `gpu_ops`, `ranges` and `graph_nodes` as in `Capture`.
    """
    nodes = gpu_ops.loc[gpu_ops["graph_node_id"].notna(), ["pid", "graph_node_id"]]
    if nodes.empty or graph_nodes.empty:
        return pd.Series(np.broadcast_to(np.int64(-1), len(gpu_ops)), index=gpu_ops.index, copy=False)
    recorded = pd.Series(-1, index=gpu_ops.index, dtype=np.int64)
    owner = graph_nodes[["pid", "graph_node_id"]].assign(
        recorded=innermost(graph_nodes.rename(columns={"start_ns": "api_start_ns", "end_ns": "api_end_ns"}), ranges)
    )
    found = nodes.merge(owner.astype("Int64"), on=["pid", "graph_node_id"], how="left")["recorded"]
    recorded[nodes.index] = found.fillna(-1).to_numpy(np.int64)
    return recorded


def enclosing_pairs(gpu_ops: pd.DataFrame, ranges: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return (row of `gpu_ops`, row of `ranges`) for every range around the launch call of every operation.

    Shape: `gpu_ops` and `ranges` as in `Capture`; `ranges` may hold start/end ranges, which need not nest.
    """
    return _walk_outwards(gpu_ops[["pid", "tid", "api_start_ns", "api_end_ns"]], ranges, to_outermost=True)


def innermost(calls: pd.DataFrame, ranges: pd.DataFrame) -> np.ndarray:
    """Return the row of the innermost range around each call on its own thread, -1 for none.

    Shape: `calls` with pid, tid, api_start_ns, api_end_ns, NA where unknown.
    """
    owner = np.full(len(calls), -1, dtype=np.int64)
    rows, found = _walk_outwards(calls, ranges, to_outermost=False)
    owner[rows] = found
    return owner


def _walk_outwards(
    calls: pd.DataFrame, ranges: pd.DataFrame, *, to_outermost: bool
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the rows of calls, and of the ranges around them: the innermost one, or each up to the outermost."""
    pairs: list[tuple[np.ndarray, np.ndarray]] = [(np.array([], dtype=np.int64), np.array([], dtype=np.int64))]
    known = [calls[name].notna().to_numpy(bool) for name in ("pid", "tid", "api_start_ns", "api_end_ns")]
    located = np.flatnonzero(np.logical_and.reduce(known))
    if len(ranges) and len(located):
        start, end = ranges["start_ns"].to_numpy(np.int64), ranges["end_ns"].to_numpy(np.int64)
        begins, ends = (calls[name].to_numpy(np.int64, na_value=0) for name in ("api_start_ns", "api_end_ns"))
        threads = pd.MultiIndex.from_frame(ranges[["pid", "tid"]].drop_duplicates().astype(np.int64))
        range_thread = threads.get_indexer(pd.MultiIndex.from_frame(ranges[["pid", "tid"]].astype(np.int64)))
        order = np.lexsort((ranges["range_id"].to_numpy(np.int64), -end, start, range_thread))
        start, end, range_thread = start[order], end[order], range_thread[order]
        outer = _outer_rows(ranges, order)
        if outer is None:
            outer, _ = nest(range_thread, start, end)
        first = np.searchsorted(range_thread, np.arange(len(threads) + 1))
        for thread, asking in _by_thread(calls, located, threads):
            low, high = int(first[thread]), int(first[thread + 1])
            at = low + np.searchsorted(start[low:high], begins[asking], side="right") - 1
            while True:
                # The last range that began may be over, or may end within the call. Then try the next outer range.
                inside = at >= low
                asking, at = asking[inside], at[inside]
                late = np.flatnonzero(end[at] < ends[asking])
                while len(late):
                    at[late] = outer[at[late]]
                    late = late[at[late] >= 0]
                    late = late[end[at[late]] < ends[asking[late]]]
                inside = at >= 0
                asking, at = asking[inside], at[inside]
                if not len(at):
                    break
                pairs.append((asking, order[at]))
                if not to_outermost:
                    break
                at = at - 1
    return np.concatenate([calls_of for calls_of, _ in pairs]), np.concatenate([ranges_of for _, ranges_of in pairs])


def _outer_rows(ranges: pd.DataFrame, order: np.ndarray) -> np.ndarray | None:
    """Return the row of each sorted range's parent, -1 for none; None if a parent is not among the ranges."""
    if "parent_id" not in ranges or not ranges["range_id"].is_unique:
        return None
    parent = parent_rows(ranges)
    if (parent < 0).sum() != ranges["parent_id"].isna().sum():
        return None
    place = np.empty(len(order) + 1, dtype=np.int64)
    place[order], place[-1] = np.arange(len(order)), -1
    return place[parent[order]]


def _by_thread(
    calls: pd.DataFrame, located: np.ndarray, threads: pd.MultiIndex
) -> Iterator[tuple[int, np.ndarray]]:  # fmt: skip
    """Yield each thread that has both ranges and calls, with the rows of its calls."""
    places = calls[["pid", "tid"]].iloc[located].astype(np.int64)
    pid, tid = places["pid"].to_numpy(), places["tid"].to_numpy()
    numbered = np.full(len(located), -1, dtype=np.int64)
    if len(threads) <= _FEW_THREADS:
        for number, (thread_pid, thread_tid) in enumerate(threads):
            numbered[(tid == thread_tid) & (pid == thread_pid)] = number
    else:
        numbered = threads.get_indexer(pd.MultiIndex.from_arrays([pid, tid]))
    if len(threads) < 1 << 15:  # numpy sorts numbers of 16 bits much faster
        numbered = numbered.astype(np.int16)
    order = np.argsort(numbered, kind="stable")
    bounds = np.searchsorted(numbered[order], np.arange(len(threads) + 1))
    for thread in range(len(threads)):
        if bounds[thread] < bounds[thread + 1]:
            yield thread, located[order[bounds[thread] : bounds[thread + 1]]]


def explain_unattributed(kernels: pd.DataFrame, ranges: pd.DataFrame) -> str:
    """Return one sentence on the kernels without a range and the reason, '' if every kernel has one.

    Shape: `kernels` as in `Capture.gpu_ops` with `owner` (row of its range, -1 for none).
    """
    lost = kernels[kernels["owner"] < 0]
    if ranges.empty or lost.empty:
        return ""
    threads = pd.MultiIndex.from_frame(ranges[["pid", "tid"]].drop_duplicates().astype("Int64"))
    known = lost["api_start_ns"].notna().to_numpy()
    with_ranges = pd.MultiIndex.from_frame(lost[["pid", "tid"]]).isin(threads)
    reasons = (
        (known & ~with_ranges, "were launched from threads without ranges"),
        (known & with_ranges, "outside every range of their thread"),
        (~known, "have no launch call in the file"),
    )
    parts = [f"{int(which.sum())} {text}" for which, text in reasons if which.any()]
    return f"{len(lost)} of {len(kernels)} kernels belong to no range: {', '.join(parts)}."


def paths_of(owner: pd.Series, ranges: pd.DataFrame) -> pd.Categorical:
    """Return the path of each owner (a row of `ranges`), '' for -1, as categories in the order of their letters."""
    paths, code = np.unique(np.append(ranges["path"].to_numpy(object), ""), return_inverse=True)
    code = code.astype(np.min_scalar_type(len(paths)))
    return pd.Categorical.from_codes(code[owner.to_numpy()], paths)  # index -1 gives the last entry


def parent_rows(ranges: pd.DataFrame) -> np.ndarray:
    """Return the row number of each range's parent, -1 for the outermost."""
    known = ranges["parent_id"].notna().to_numpy(bool)
    number, parent = ranges["range_id"].to_numpy(np.int64), ranges["parent_id"].to_numpy(np.int64, na_value=0)
    low, high = (int(number.min()), int(number.max())) if len(number) else (0, -1)
    if high - low < 4 * len(number):
        row_at = np.full(high - low + 2, -1, np.int64)  # the last one is for parents that are not there
        row_at[number[::-1] - low] = np.arange(len(number))[::-1]
        return row_at[np.where(known & (parent >= low) & (parent <= high), parent - low, high - low + 1)]
    row_of = pd.Series(np.arange(len(ranges)), index=number)
    row_of = row_of[~row_of.index.duplicated()]
    return ranges["parent_id"].map(row_of).fillna(-1).to_numpy(np.int64)


# A separate number (layers[7], layer_3_attn, `Step 30 to 40`) or one at the end of a name (layer7), not that of
# `conv2d`.
_NUMBER = re.compile(r"(?<![A-Za-z0-9])[0-9]{1,18}(?![A-Za-z0-9])|(?<=[A-Za-z])[0-9]{1,18}$")
_LABELLED = re.compile(r"(?<!\w)([A-Za-z_]\w* ?[=:] ?)([0-9]+)(?!\w)")
# `fc.256` beside `fc.512` are sizes: indices of layers leave no such gaps, even if every other layer is traced.
_MOST_SPREAD = 4
_SEVERAL, _MANY = 3, 16  # least numbers of an index if few could be two names, and despite any gaps


def fold_paths(paths: pd.Series) -> pd.Series:
    """Replace the index of repeated siblings by `*`: h.0/attn … h.11/attn become h.*/attn.

    Only the names decide. Siblings are names under one parent that differ only in their numbers. Parents are compared
    by their patterns, so that h.0/mlp.1 and h.1/mlp.0 are siblings of one kind. Each number of a name is judged alone
    (_is_index): h.3.ln_2 becomes h.*.ln_2 if there is an h.4.ln_2. First, labels that number the calls of a program (`,
    op_id = 123`) are replaced (_without_running_labels).
    """
    codes, found = pd.factorize(paths)  # a million strings stay in their array; few of them are distinct
    unique = found.to_list()
    tree = _Tree(path for path in unique if not path.startswith(SWEPT))
    folded = [tree.folded.get(path, path) for path in unique]
    listed = hasattr(paths, "cat")
    values = _in_order(folded, codes) if listed else pd.array(folded, dtype=paths.dtype).take(codes)
    return pd.Series(values, index=paths.index, name=paths.name)


def _in_order(names: Sequence[str], codes: np.ndarray) -> pd.Categorical:
    """Return the names at `codes` as categories in the order of their letters, as texts are sorted."""
    known, code = np.unique(np.array(names, object), return_inverse=True)
    return pd.Categorical.from_codes(code.astype(np.min_scalar_type(len(known)))[codes], known)


def or_outside(paths: pd.Series) -> pd.Series:
    """Return paths, UNATTRIBUTED in place of ''. Categories stay categories."""
    if not hasattr(paths, "cat"):
        return paths.replace("", UNATTRIBUTED)
    names = [name or UNATTRIBUTED for name in paths.cat.categories]
    return pd.Series(_in_order(names, paths.cat.codes.to_numpy()), index=paths.index, name=paths.name)


class _Tree:
    """Paths below their parents: `folded` maps a path to the path with `*` for its indices. Each parent is folded once.

    The texts between the numbers of a name are its pattern. Siblings have equal patterns below equal patterns.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        given = list(paths)
        self._bare = _without_running_labels({part for path in given for part in path.split("/")})
        self._siblings: dict[tuple[str, tuple[str, ...]], list[set[int]]] = {}
        self._nodes: dict[str, tuple[str, tuple[str, tuple[str, ...]], list[str]]] = {}
        for path in given:
            self._add(path)
        is_index = {
            key: [_is_index(seen, *key[1][at : at + 2]) for at, seen in enumerate(slots)]
            for key, slots in self._siblings.items()
        }
        self.folded: dict[str, str] = {}
        for path, (parent, key, numbers) in self._nodes.items():  # a parent comes before its children
            kept = ["*" if index else number for number, index in zip(numbers, is_index[key], strict=True)]
            name = "".join(chain.from_iterable(zip_longest(key[1], kept, fillvalue="")))
            self.folded[path] = f"{self.folded[parent]}/{name}" if "/" in path else name

    def _add(self, path: str) -> str:
        """Add the path below its parents, and return its pattern."""
        if path not in self._nodes:
            parent, _, part = path.rpartition("/")
            above = self._add(parent) if "/" in path else ""
            part = self._bare.get(part, part)
            numbers = _NUMBER.findall(part)
            key = above, tuple(_NUMBER.split(part)) if numbers else (part,)
            for seen, number in zip(self._siblings.setdefault(key, [set() for _ in numbers]), numbers, strict=True):
                seen.add(int(number))
            self._nodes[path] = parent, key, numbers
        above, texts = self._nodes[path][1]
        return f"{above}/{'*'.join(texts)}"


def _without_running_labels(parts: set[str]) -> dict[str, str]:
    """Map each part with a label that numbers the calls to the part with `*` for the number: `aten::view, op_id = *`.

    A label numbers the calls if it has many values, or several that never repeat across several names.
    """
    labelled = {part: found for part in parts if (found := _LABELLED.findall(part))}
    values: dict[str, list[str]] = defaultdict(list)
    names: dict[str, set[str]] = defaultdict(set)
    for part, found in labelled.items():
        name = _LABELLED.sub("", part)
        for label, number in found:
            values[label].append(number)
            names[label].add(name)
    running = {
        label
        for label, seen in values.items()
        if len(set(seen)) >= (_SEVERAL if len(set(seen)) == len(seen) and len(names[label]) > 1 else _MANY)
    }
    return {
        part: _LABELLED.sub(lambda found: f"{found[1]}*" if found[1] in running else found[0], part)
        for part, found in labelled.items()
        if any(label in running for label, _ in found)
    }


def _is_index(seen: set[int], before: str, after: str) -> bool:
    """Return whether the numbers between two texts are indices of layers, steps or calls, and not sizes or two names.

    Two numbers close together are indices between dots or in brackets (h.7, layers[7]). Elsewhere they must also count
    from 0, or be several: `ln_1` and `ln_2` are two different layers, LayerNorm_1, _3 and _5 are indices. Several names
    with a number right after a letter (conv1, conv2, conv3) are different names, too.
    """
    if len(seen) < 2:
        return False
    numbers = sorted(seen)
    is_inner = (not before or before[-1] in ".[") and (not after or after[0] in ".]")
    if numbers[-1] - numbers[0] < _MOST_SPREAD * len(numbers):
        several = len(numbers) >= (_MANY if before and before[-1].isalpha() else _SEVERAL)
        from_zero = numbers[0] == 0 and (not after or before[-1:] in ("_", " ", "-"))
        return is_inner or from_zero or several
    steps = {after - before for before, after in pairwise(numbers)}
    is_series = len(numbers) >= _SEVERAL and len(steps) == 1 and numbers[0] not in steps
    return is_series or len(numbers) >= _MANY
