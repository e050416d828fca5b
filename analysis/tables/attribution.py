"""Which range launched which GPU operation: decided by the API call, never by when the kernel ran.

A kernel belongs to the innermost range that encloses its launch call on the same thread. Kernels run later than
their launch, often inside the CPU range of the next layer, so their own times say nothing about their range.
"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import pandas as pd

UNATTRIBUTED = "unattributed"


def attribute(gpu_ops: pd.DataFrame, ranges: pd.DataFrame) -> pd.Series:
    """Return, for each row of `gpu_ops`, the row number in `ranges` of its innermost range, -1 if it has none.

    Shape: `gpu_ops` and `ranges` as in `Capture`; both with a RangeIndex.
    """
    owner = np.full(len(gpu_ops), -1, dtype=np.int64)
    located = gpu_ops["api_start_ns"].notna() & gpu_ops["tid"].notna()
    if ranges.empty or not located.any():
        return pd.Series(owner, index=gpu_ops.index)
    start = ranges["start_ns"].to_numpy(np.int64)
    end = ranges["end_ns"].to_numpy(np.int64)
    parent = parent_rows(ranges)
    ops = gpu_ops.loc[located, ["pid", "tid", "api_start_ns", "api_end_ns"]].astype(np.int64)
    rows_by_thread = ranges.groupby(["pid", "tid"], sort=False).indices
    for thread, positions in ops.groupby(["pid", "tid"], sort=False).indices.items():
        if thread not in rows_by_thread:
            continue
        times, state = _innermost_over_time(rows_by_thread[thread], start, end)
        calls = ops.iloc[positions]
        at = np.searchsorted(times, calls["api_start_ns"].to_numpy(), side="right") - 1
        found = np.where(at >= 0, state[np.maximum(at, 0)], -1)
        call_end = calls["api_end_ns"].to_numpy()
        # A call that outlasts the range it started in belongs to the next range outwards that holds all of it.
        while (outlasts := (found >= 0) & (end[found] < call_end)).any():
            found[outlasts] = parent[found[outlasts]]
        owner[np.flatnonzero(located.to_numpy())[positions]] = found
    return pd.Series(owner, index=gpu_ops.index)


def paths_of(owner: pd.Series, ranges: pd.DataFrame) -> np.ndarray:
    """Return the path of each owner (a row of `ranges`), '' for -1."""
    paths = np.append(ranges["path"].to_numpy(object), "")  # -1 picks the last
    return paths[owner.to_numpy(np.int64)]


def parent_rows(ranges: pd.DataFrame) -> np.ndarray:
    """Return the row number of each range's parent, -1 for the outermost."""
    row_of = pd.Series(np.arange(len(ranges)), index=ranges["range_id"].to_numpy())
    row_of = row_of[~row_of.index.duplicated()]
    return ranges["parent_id"].map(row_of).fillna(-1).to_numpy(np.int64)


def _innermost_over_time(rows: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the times at which one thread's innermost range changes, and that range from then on (-1: none).

    Ranges of different domains may overlap without nesting; the one that started last is the innermost.
    """
    rows = rows[end[rows] > start[rows]]  # an empty range encloses no call
    opening = sorted(rows, key=lambda row: (start[row], -end[row]))
    events = [(int(start[row]), 1, rank, row) for rank, row in enumerate(opening)]
    events += [(int(end[row]), 0, -rank, row) for rank, row in enumerate(opening)]
    events.sort()
    times, state, is_open, stack = [], [], set(), []
    for time, opens, _, row in events:
        if opens:
            is_open.add(row)
            stack.append(row)
        else:
            is_open.discard(row)
            while stack and stack[-1] not in is_open:
                stack.pop()
        times.append(time)
        state.append(stack[-1] if stack else -1)
    return np.array(times, dtype=np.int64), np.array(state, dtype=np.int64)


# An index stands between dots or in brackets (h.7, layers[7]), or ends a name (layer_7, Layer 7).
_INDEX = re.compile(r"(?:(?<=^)|(?<=[.\[]))\d+(?=$|[.\]])|(?<=[A-Za-z_ ])\d+$")
_AT_END = re.compile(r"[A-Za-z_ ]\d+$")
# `fc.256` beside `fc.512` are sizes: indices of layers leave no such holes, even if every other layer is traced.
_MOST_SPREAD = 4


def fold_paths(paths: pd.Series) -> pd.Series:
    """Replace the index of repeated sibling layers by `*`: h.0/attn … h.11/attn become h.*/attn.

    Siblings are folded when their indices under one parent are at least two and close together. A number at the end
    of a name must also count from 0: `ln_1` and `ln_2` are two different layers, not layers 1 and 2.
    Found from the names alone: `transformer.h.7`, `model.layers.7.mlp`, `h.7`, `layer_7`.
    """
    unique = list(dict.fromkeys(paths))
    seen: dict[tuple[str, str], set[tuple[int, ...]]] = defaultdict(set)
    split = {path: path.split("/") for path in unique}
    # Parents are compared folded, so that h.0/mlp.1 and h.1/mlp.0 count as siblings of one kind.
    for parts in split.values():
        prefix = ""
        for part in parts:
            pattern = _INDEX.sub("*", part)
            if pattern != part:
                seen[prefix, pattern].add(tuple(int(number) for number in _INDEX.findall(part)))
            prefix += pattern + "/"
    repeated = {key for key, indices in seen.items() if _are_layers(key[1], indices)}

    def fold(parts: list[str]) -> str:
        prefix, folded = "", []
        for part in parts:
            pattern = _INDEX.sub("*", part)
            folded.append(pattern if (prefix, pattern) in repeated else part)
            prefix += pattern + "/"
        return "/".join(folded)

    return paths.map({path: fold(parts) for path, parts in split.items()})


def _are_layers(pattern: str, indices: set[tuple[int, ...]]) -> bool:
    if len(indices) < 2:
        return False
    columns = [sorted(set(column)) for column in zip(*indices, strict=True)]
    close = all(column[-1] - column[0] < _MOST_SPREAD * len(column) for column in columns)
    return close and (columns[-1][0] == 0 or not _AT_END.search(pattern.replace("*", "0")))
