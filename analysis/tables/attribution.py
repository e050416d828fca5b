"""Which range launched which GPU operation: decided by the API call, never by when the kernel ran.

A kernel belongs to the innermost range that encloses its launch call on the same thread. Kernels run later than
their launch, often inside the CPU range of the next layer, so their own times say nothing about their range.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.capture.model import nest

UNATTRIBUTED = "unattributed"
SWEPT = "sweep/"  # below it studies.sweep.run launches combinations: their numbers are choices, not indices of layers
_FEW_THREADS = 16  # up to here one comparison a thread is faster than an index


def attribute(gpu_ops: pd.DataFrame, ranges: pd.DataFrame) -> pd.Series:
    """Return, for each row of `gpu_ops`, the row number in `ranges` of its innermost range, -1 if it has none.

    Shape: `gpu_ops` and `ranges` as in `Capture`; both with a RangeIndex.
    """
    calls = gpu_ops[["pid", "tid", "api_start_ns", "api_end_ns"]]
    return pd.Series(innermost(calls, ranges), index=gpu_ops.index)


def attribute_recorded(gpu_ops: pd.DataFrame, ranges: pd.DataFrame, graph_nodes: pd.DataFrame) -> pd.Series:
    """Return, for each operation of a CUDA graph, the row of the innermost range in which it was recorded, else -1.

    A graph is recorded once, inside the ranges of its layers, and launched as a whole many times.
    Shape: `gpu_ops`, `ranges` and `graph_nodes` as in `Capture`.
    """
    recorded = pd.Series(-1, index=gpu_ops.index, dtype=np.int64)
    nodes = gpu_ops.loc[gpu_ops["graph_node_id"].notna(), ["pid", "graph_node_id"]]
    if nodes.empty or graph_nodes.empty:
        return recorded
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
    """Return the rows of calls and of ranges that hold them: of the innermost one, or of each up to the outermost."""
    pairs: list[tuple[np.ndarray, np.ndarray]] = [(np.array([], dtype=np.int64), np.array([], dtype=np.int64))]
    located = np.flatnonzero(calls[["pid", "tid", "api_start_ns", "api_end_ns"]].notna().all(axis=1).to_numpy())
    if len(ranges) and len(located):
        start, end = ranges["start_ns"].to_numpy(np.int64), ranges["end_ns"].to_numpy(np.int64)
        begins, ends = (calls[name].to_numpy(np.int64, na_value=0) for name in ("api_start_ns", "api_end_ns"))
        threads = pd.MultiIndex.from_frame(ranges[["pid", "tid"]].drop_duplicates().astype(np.int64))
        range_thread = threads.get_indexer(pd.MultiIndex.from_frame(ranges[["pid", "tid"]].astype(np.int64)))
        order = np.lexsort((ranges["range_id"].to_numpy(np.int64), -end, start, range_thread))
        start, end, range_thread = start[order], end[order], range_thread[order]
        outer, _ = nest(range_thread, start, end)
        first = np.searchsorted(range_thread, np.arange(len(threads) + 1))
        for thread, asking in _by_thread(calls, located, threads):
            low, high = int(first[thread]), int(first[thread + 1])
            at = low + np.searchsorted(start[low:high], begins[asking], side="right") - 1
            while True:
                # The last range that had begun may be over, or end within the call: then the next outer one is asked.
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
    order = np.argsort(numbered, kind="stable")
    bounds = np.searchsorted(numbered[order], np.arange(len(threads) + 1))
    for thread in range(len(threads)):
        if bounds[thread] < bounds[thread + 1]:
            yield thread, located[order[bounds[thread] : bounds[thread + 1]]]


def explain_unattributed(kernels: pd.DataFrame, ranges: pd.DataFrame) -> str:
    """Return one sentence on the kernels that belong to no range and why, '' if every kernel has one.

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


def paths_of(owner: pd.Series, ranges: pd.DataFrame) -> np.ndarray:
    """Return the path of each owner (a row of `ranges`), '' for -1."""
    paths = np.append(ranges["path"].to_numpy(object), "")  # -1 picks the last
    return paths[owner.to_numpy(np.int64)]


def parent_rows(ranges: pd.DataFrame) -> np.ndarray:
    """Return the row number of each range's parent, -1 for the outermost."""
    row_of = pd.Series(np.arange(len(ranges)), index=ranges["range_id"].to_numpy())
    row_of = row_of[~row_of.index.duplicated()]
    return ranges["parent_id"].map(row_of).fillna(-1).to_numpy(np.int64)


# An index stands between dots or in brackets (h.7, layers[7]), or ends a name (layer_7, Layer 7).
_INDEX = re.compile(r"(?:(?<=^)|(?<=[.\[]))\d+(?=$|[.\]])|(?<=[A-Za-z_ ])\d+$")
_INNER_INDEX = re.compile(r"(?:(?<=^)|(?<=[.\[]))\d+(?=$|[.\]])")
_AT_END = re.compile(r"[A-Za-z_ ]\d+$")
# `fc.256` beside `fc.512` are sizes: indices of layers leave no such holes, even if every other layer is traced.
_MOST_SPREAD = 4


def fold_paths(paths: pd.Series) -> pd.Series:
    """Replace the index of repeated sibling layers by `*`: h.0/attn … h.11/attn become h.*/attn.

    Siblings are folded when their indices under one parent are at least two and close together. A number at the end
    of a name must also count from 0: `ln_1` and `ln_2` are two different layers, not layers 1 and 2. So h.3.ln_2 is
    h.*.ln_2 where there is an h.4.ln_2.
    Found from the names alone: `transformer.h.7`, `model.layers.7.mlp`, `h.7`, `layer_7`.
    """
    unique = paths.unique().tolist()
    swept = {path: path for path in unique if path.startswith(SWEPT)}
    seen: dict[tuple[str, str], set[tuple[int, ...]]] = defaultdict(set)
    split = {path: path.split("/") for path in unique if path not in swept}
    # Parents are compared folded, so that h.0/mlp.1 and h.1/mlp.0 count as siblings of one kind.
    for parts in split.values():
        prefix = ""
        for part in parts:
            for index in (_INDEX, _INNER_INDEX):
                if numbers := index.findall(part):
                    seen[prefix, index.sub("*", part)].add(tuple(map(int, numbers)))
            prefix += _INDEX.sub("*", part) + "/"
    repeated = {key for key, indices in seen.items() if _are_layers(key[1], indices)}

    def fold(parts: list[str]) -> str:
        prefix, folded = "", []
        for part in parts:
            patterns = (index.sub("*", part) for index in (_INDEX, _INNER_INDEX))
            folded.append(next((pattern for pattern in patterns if (prefix, pattern) in repeated), part))
            prefix += _INDEX.sub("*", part) + "/"
        return "/".join(folded)

    return paths.map(swept | {path: fold(parts) for path, parts in split.items()})


def _are_layers(pattern: str, indices: set[tuple[int, ...]]) -> bool:
    if len(indices) < 2:
        return False
    columns = [sorted(set(column)) for column in zip(*indices, strict=True)]
    close = all(column[-1] - column[0] < _MOST_SPREAD * len(column) for column in columns)
    at_end = pattern.endswith("*") and _AT_END.search(pattern.replace("*", "0"))
    return close and (columns[-1][0] == 0 or not at_end)
