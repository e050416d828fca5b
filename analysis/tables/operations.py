"""List the time of each GPU operation, and the durations of each kernel's launches."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis.formats import symbols
from analysis.formats.words import count_of
from analysis.tables.declare import Column, Facts, part, table
from analysis.tables.gaps import step_labels
from analysis.tables.slack import KEY

MOST_OPERATIONS = 100_000  # rows of operations.csv; a longer timeline merges neighbours of a lane
_MOST_BYTES = 40_000_000  # of names and ranges in operations.csv
_SAMPLE = 1_000  # operations that tell how long names and ranges are
_QUANTILES = {"time_min_ns": 0.0, "time_p5_ns": 0.05, "time_p50_ns": 0.5, "time_p95_ns": 0.95, "time_max_ns": 1.0}


@table(
    "operations",
    question="When did each GPU operation run, and on which stream?",
    columns=(
        Column("lane", "GPU and stream", "key"),
        Column("step", "step of gaps.csv that launched it; blank outside of steps", "key"),
        Column("range", "innermost range that launched it, not folded", "key"),
        Column("kernel", "kernel, copy or set; if a row merges several operations, the longest", "key"),
        Column("kind", "kernel, memcpy, memset, migration or graph", "key"),
        Column("start_ns", "start, counted from the first GPU operation of the capture", "timing"),
        Column("extent_ns", "from the start of the first operation in this row to the end of the last", "timing"),
        Column("busy_ns", "sum of the durations of the operations in this row", "timing"),
        Column("launches", "operations in this row. A very long timeline merges neighbours", "timing", "1"),
    ),
)
def build_operations(facts: Facts) -> pd.DataFrame | None:
    """Return operations.csv in order of time, at most about MOST_OPERATIONS rows and _MOST_BYTES of text."""
    rows = facts.once(operation_rows)
    return None if rows is None else rows.drop(columns="op")


def operation_rows(facts: Facts) -> pd.DataFrame | None:
    """Return the rows of operations.csv with `op`, the row of their longest operation among `gpu_ops`."""
    gpu_ops, step_ranges = facts.gpu_ops, facts.step_ranges
    if gpu_ops.empty:
        return None
    start, length = (gpu_ops[name].to_numpy(np.int64) for name in ("start_ns", "duration_ns"))
    start = start - int(start.min())
    lane, lanes = _lanes(gpu_ops["stream"], facts.place_of_op, facts.rank_places)
    kind, kinds = pd.factorize(gpu_ops["kind"])
    labels = np.array([*step_labels(step_ranges), ""], dtype=object)
    place = step_ranges.index.get_indexer(facts.step_of_op) if len(step_ranges) else np.full(len(gpu_ops), -1)
    place = np.where(place < 0, len(labels) - 1, place)
    lane, kind, place = (codes.astype(np.int32) for codes in (lane, kind, place))  # ten million take little memory
    row = np.arange(len(gpu_ops))
    most = _most(gpu_ops)
    if len(gpu_ops) > most:  # merge those of a lane, step and kind that start in one stretch of time
        width = int(start.max()) // max(most // len(lanes), 1) + 1
        row = ((start // width * len(lanes) + lane) * len(labels) + place) * len(kinds) + kind
    order = np.argsort(row, kind="stable")
    first = np.flatnonzero(np.diff(row[order], prepend=-1))
    longest = order[_of_most(length[order], first)]
    begin = np.minimum.reduceat(start[order], first)
    in_time = np.lexsort((np.unique(lanes, return_inverse=True)[1][lane[longest]], begin))
    longest, begin = longest[in_time], begin[in_time]
    named, names = pd.factorize(gpu_ops["name"].iloc[longest])
    ranged, ranges = pd.factorize(gpu_ops["path"].iloc[longest])
    return pd.DataFrame(
        {
            "lane": _category(lane[longest], lanes),
            "step": _category(place[longest], labels),
            "range": _category(ranged, ranges),
            "kernel": _category(named, [_shown(str(name)) for name in names]),
            "kind": _category(kind[longest], kinds.astype(str)),
            "start_ns": begin,
            "extent_ns": np.maximum.reduceat((start + length)[order], first)[in_time] - begin,
            "busy_ns": np.add.reduceat(length[order], first)[in_time],
            "launches": np.diff(first, append=len(order))[in_time],
            "op": longest,
            "tier": "timing",
        },
        index=in_time,
    )


def _category(codes: np.ndarray, texts: Iterable[str]) -> pd.Categorical:
    """Return a column of texts that many rows share, in the order of the alphabet; an empty text is missing."""
    kept, different = pd.factorize(np.array([text or None for text in texts], object), sort=True)
    return pd.Categorical.from_codes(np.append(kept, -1)[codes], pd.Index(different, dtype="str"))


def _of_most(values: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the position of the largest value of each stretch that begins at `first`, the earliest of equal ones."""
    is_most = values == np.repeat(np.maximum.reduceat(values, first), np.diff(first, append=len(values)))
    places = np.flatnonzero(is_most)
    return places[np.searchsorted(places, first)]


def _shown(name: str) -> str:
    """Return the display name: of a kernel as in kernels.csv, of a copy or set as the tool prints it."""
    return name if name.startswith("[") else symbols.key(name)


def _most(gpu_ops: pd.DataFrame) -> int:
    """Return how many rows operations.csv may have: fewer where names and ranges are long."""
    some = gpu_ops[["name", "path"]].iloc[:: len(gpu_ops) // _SAMPLE + 1].astype(str)
    letters = sum(float(some[name].str.len().mean()) for name in some)
    return min(MOST_OPERATIONS, int(_MOST_BYTES / max(letters, 1.0)))


def _lanes(streams_: pd.Series, place_of_op: np.ndarray, rank_places: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return each operation's stream as a number, and the name of each stream, with its GPU if there are several."""
    stream, streams = pd.factorize(streams_)
    codes, pairs = pd.factorize(place_of_op * (len(streams) + 1) + stream + 1)
    labels = rank_places["label"]
    said = []
    for pair in pairs.tolist():
        place, number = divmod(pair, len(streams) + 1)
        parts = (labels.iloc[place] if len(labels) > 1 else "", f"stream {streams[number - 1]}" if number else "")
        said.append(" ".join(filter(None, parts)) or "GPU")
    return codes, np.array(said, dtype=object)


@part("note")
def _merged(facts: Facts) -> str | None:
    gpu_ops = facts.gpu_ops
    if gpu_ops.empty or len(gpu_ops) <= _most(gpu_ops):
        return None
    return (
        f"The timeline holds {count_of(len(gpu_ops), 'GPU operation')}: operations.csv and the timeline of the page "
        "merge neighbours of a stream into one row, and no other table does."
    )


@table(
    "launch_times",
    question="How do the launches of each kernel differ in time?",
    columns=(
        Column("kernel", "kernel name", "key"),
        Column("range", "folded range", "key"),
        Column("grid", "grid dimensions, XxYxZ", "key", "blocks"),
        Column("block", "block dimensions, XxYxZ", "key", "threads"),
        Column("launches", "launches in the timeline", "timing", "1"),
        Column("time_min_ns", "the shortest launch", "timing"),
        Column("time_p5_ns", "5th percentile of the launches", "timing"),
        Column("time_p50_ns", "median of the launches", "timing"),
        Column("time_p95_ns", "95th percentile of the launches", "timing"),
        Column("time_max_ns", "the longest launch", "timing"),
    ),
)
def build_launch_times(facts: Facts) -> pd.DataFrame | None:
    """Return launch_times.csv, most time first, from kernels.measured_launches; None without a timeline."""
    all_measured = facts.all_measured
    rows = all_measured[all_measured["nsys_time_ns"].notna()] if facts.is_program and len(all_measured) else None
    if rows is None or rows.empty:
        return None
    time = rows["nsys_time_ns"].astype("int64")
    groups = time.groupby([rows[name] for name in KEY], sort=False, dropna=False)
    found = groups.quantile(list(_QUANTILES.values())).unstack()
    found.columns = list(_QUANTILES)
    found = found.round().astype("int64")
    found.insert(0, "launches", groups.size())
    found["total"] = groups.sum()
    found = found.reset_index().sort_values(["total", *KEY], ascending=[False, True, True, True, True])
    return found.drop(columns="total").assign(tier="timing")
