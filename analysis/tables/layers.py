"""Build layers.csv and layers_folded.csv: kernel time by range, with and without nested ranges."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis.formats.distinct import coded, holds
from analysis.formats.ranges import never_closes
from analysis.formats.report import Missing, Reason
from analysis.tables.attribution import UNATTRIBUTED, fold_paths, parent_rows
from analysis.tables.compiled import place_compiled
from analysis.tables.declare import TOP, Column, Facts, part, table

GRAPH_MARK = "[graph] "

_COLUMNS = (
    Column("range", "range names from the outermost to the innermost, joined with /", "key"),
    Column("calls", "instances of the range", "timing", "1"),
    Column(
        "cpu_time_ns",
        "sum of the durations of the range on the CPU: the time to launch its kernels, not their GPU time",
        "timing",
        shown=False,
    ),
    Column("gpu_time_ns", "time of the kernels launched inside, nested ranges included", "timing"),
    Column("gpu_self_time_ns", "time of the kernels whose innermost range this is", "timing"),
    Column("launches", "kernels launched inside, nested ranges included", "timing", "1"),
    Column(
        "share_frac",
        "gpu_time_ns over all kernel time of the capture; in a run on the CPU, cpu_time_ns over that of the outermost "
        "ranges",
        "timing",
        style="bar",
    ),
)


@table(
    "layers",
    always=True,
    question="Which range takes the time?",
    columns=_COLUMNS,
)
def build_layers(facts: Facts) -> pd.DataFrame | None:
    """Return layers.csv: one row for each full range path, in the order of first starts, then that outside every range.

    Units: ns. Without a GPU timeline, GPU columns are blank, and shares refer to the CPU time of the outermost ranges.
    If the file lacks the launch of some kernel, a range without a known kernel is blank: the kernel may belong to it.
    """
    has_timeline = facts.has_timeline
    ranges, kernels = facts.placed
    if ranges.empty and not has_timeline:
        return None
    own, count = own_time(ranges, kernels)
    duration = kernels["duration_ns"].to_numpy(np.int64)
    owned = kernels["owner"].to_numpy(np.int64) >= 0
    total = int(duration.sum())
    code, paths = coded(ranges["path"])
    instances = pd.DataFrame(
        {
            "range": code,
            "calls": 1,
            "cpu_time_ns": ranges["end_ns"] - ranges["start_ns"],
            "gpu_time_ns": inclusive(ranges, own),
            "gpu_self_time_ns": own,
            "launches": inclusive(ranges, count),
            "order": ranges["start_ns"],
        }
    )
    groups = instances.groupby("range", sort=False)
    table = groups[["calls", "cpu_time_ns", "gpu_time_ns", "gpu_self_time_ns", "launches"]].sum()
    table["order"] = groups["order"].min().array
    table.index = pd.Index(paths[table.index], name="range", dtype=ranges["path"].dtype)
    table = table.sort_values("order", kind="stable").drop(columns="order").reset_index()
    if not has_timeline:
        outermost = instances.loc[parent_rows(ranges) < 0, "cpu_time_ns"].sum()
        table[["gpu_time_ns", "gpu_self_time_ns", "launches"]] = pd.NA
        table["share_frac"] = table["cpu_time_ns"] / outermost if outermost else np.nan
    else:
        rest = {
            "range": UNATTRIBUTED,
            "calls": pd.NA,
            "cpu_time_ns": pd.NA,
            "gpu_time_ns": int(duration[~owned].sum()),
            "gpu_self_time_ns": int(duration[~owned].sum()),
            "launches": int((~owned).sum()),
        }
        if len(without_launch(kernels)):
            unknown = table["launches"] == 0
            table = table.astype(object)
            table.loc[unknown, ["gpu_time_ns", "gpu_self_time_ns", "launches"]] = pd.NA
        table = pd.concat([table.astype(object), pd.DataFrame([rest], dtype=object)], ignore_index=True)
        table["share_frac"] = table["gpu_time_ns"].astype("Float64") / total if total else np.nan
    return _finish(table)


def place_recorded(ranges: pd.DataFrame, kernels: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Put the kernels of a CUDA graph into new ranges, below the range that launched the graph.

    The new ranges have the names of those in which the graph was recorded. GRAPH_MARK marks the first of each path.
    Kernels still count for the launching range. The new ranges have no CPU time of their own.
    Shape: `kernels` with `owner` and `recorded` (rows of `ranges`, -1 for none). Return `ranges` with the new rows,
    and `kernels` with new owners.
    """
    rows = np.flatnonzero(kernels["recorded"].to_numpy(np.int64) >= 0)
    if not len(rows):
        return ranges, kernels
    parent = parent_rows(ranges)
    start, end = ranges["start_ns"].to_numpy(np.int64), ranges["end_ns"].to_numpy(np.int64)
    thread = ranges.groupby(["pid", "tid"]).ngroup().to_numpy()

    def is_around(outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
        same = (thread[outer] == thread[inner]) & (inner >= 0)
        return same & (start[outer] <= start[inner]) & (end[outer] >= end[inner])

    launch, record = (kernels[name].to_numpy(np.int64)[rows] for name in ("owner", "recorded"))
    new = ~is_around(record, launch)  # a graph launched where it was recorded needs no new ranges
    rows, launch, record = rows[new], launch[new], record[new]
    found = [pd.DataFrame({"launch": launch, "record": record}).drop_duplicates()]
    while len(last := found[-1]):
        up = parent[last["record"].to_numpy()]
        climb = (up >= 0) & ~is_around(up, last["launch"].to_numpy())
        found.append(last[climb].assign(record=up[climb]).drop_duplicates())
    added = pd.concat(found).drop_duplicates().sort_values(["launch", "record"], ignore_index=True)
    extra = _recorded_ranges(ranges, added, parent)
    owner = kernels["owner"].to_numpy(np.int64).copy()
    placed = pd.MultiIndex.from_frame(added).get_indexer(pd.MultiIndex.from_arrays([launch, record]))
    owner[rows] = len(ranges) + placed
    return pd.concat([ranges, extra], ignore_index=True), kernels.assign(owner=owner)


def _recorded_ranges(ranges: pd.DataFrame, added: pd.DataFrame, parent: np.ndarray) -> pd.DataFrame:
    """Return the new ranges, one for each row of `added`.

    Shape: `added` with launch (row of the launching range, -1 for none) and record (row of the recorded range).
    """
    index = pd.MultiIndex.from_frame(added)
    launched, recorded = added["launch"].to_numpy(np.int64), added["record"].to_numpy(np.int64)
    above = index.get_indexer(pd.MultiIndex.from_arrays([launched, parent[recorded]]))
    ids = ranges["range_id"].to_numpy(np.int64)
    own_id = int(ids.max()) + 1 + np.arange(len(added))
    names, paths = ranges["name"].to_numpy(object), ranges["path"].to_numpy(object)
    path, level = np.empty(len(added), dtype=object), np.zeros(len(added), dtype=np.int64)
    for row in np.argsort(ranges["level"].to_numpy(np.int64)[recorded], kind="stable").tolist():
        over, name = int(above[row]), names[recorded[row]]
        if over >= 0:
            path[row], level[row] = f"{path[over]}/{name}", level[over] + 1
        elif launched[row] >= 0:
            path[row] = f"{paths[launched[row]]}/{GRAPH_MARK}{name}"
            level[row] = int(ranges["level"].iloc[launched[row]]) + 1
        else:
            path[row] = f"{GRAPH_MARK}{name}"
    moment = ranges["start_ns"].to_numpy(np.int64)[np.where(launched >= 0, launched, recorded)]
    over_id = np.where(above >= 0, own_id[above], np.where(launched >= 0, ids[launched], 0))
    extra = pd.DataFrame(
        {
            "range_id": own_id,
            "parent_id": pd.array(over_id, dtype="Int64"),
            "start_ns": moment,
            "end_ns": moment,
            "pid": ranges["pid"].to_numpy(np.int64)[recorded],
            "tid": ranges["tid"].to_numpy(np.int64)[recorded],
            "name": names[recorded],
            "level": level,
            "path": path,
        }
    )
    extra.loc[(above < 0) & (launched < 0), "parent_id"] = pd.NA
    return extra


def place(
    ranges: pd.DataFrame, launches: pd.DataFrame, fused_modules: np.ndarray | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return ranges and kernels, with new ranges for kernels of CUDA graphs and of torch.compile.

    A graph's kernel goes into the ranges in which its graph was recorded; a compiled one into a range for its modules.
    """
    return place_compiled(*place_recorded(ranges, launches), fused_modules)


def without_launch(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels whose launch call is in no file. They may belong to any range."""
    return kernels[kernels["api_start_ns"].isna()]


@part("missing")
def _unknown_launches(facts: Facts) -> Missing | None:
    launches = facts.launches
    lost = len(without_launch(launches))
    if not lost or facts.ranges.empty:
        return None
    return Missing(
        Reason.LOST_LAUNCHES,
        f"the range of {lost:,} of {len(launches):,} kernels",
        "the file lacks their launches. So layers.csv is blank for ranges without a known kernel, and its times of the "
        "other ranges are lower bounds",
        "capture and export the CUDA API calls with the kernels (`-t cuda,nvtx`, report cuda_api_trace or SQLite)",
    )


def own_time(ranges: pd.DataFrame, kernels: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each range, the time (ns) and the number of the kernels whose innermost range it is.

    Shape: two arrays (ranges,); `kernels` with `owner` (row of `ranges`, -1 for none).
    """
    owner, duration = (kernels[name].to_numpy() for name in ("owner", "duration_ns"))
    if (lost := owner < 0).any():
        owner, duration = owner[~lost], duration[~lost]
    time = np.zeros(len(ranges), dtype=np.int64)
    np.add.at(time, owner, duration)
    return time, np.bincount(owner, minlength=len(ranges)).astype(np.int64)


def inclusive(ranges: pd.DataFrame, own: np.ndarray) -> np.ndarray:
    """Return the sum of `own` over each range and all ranges nested in it. Shape: (ranges,)."""
    result = own.copy()
    parent = parent_rows(ranges)
    level = ranges["level"].to_numpy(np.int64)
    for depth in sorted(set(level.tolist()), reverse=True):
        rows = np.flatnonzero((level == depth) & (parent >= 0))
        np.add.at(result, parent[rows], result[rows])
    return result


def _largest(layers: pd.DataFrame) -> pd.DataFrame:
    """Return the TOP rows with most time, in the order of the table. A run without a GPU has fewer columns."""
    on_gpu = bool(layers["gpu_time_ns"].notna().any())
    column = "gpu_time_ns" if on_gpu else "cpu_time_ns"
    kept = layers[column].sort_values(ascending=False, kind="stable", na_position="last").index[:TOP]
    rows = layers[layers.index.isin(kept)]
    return rows.drop(columns="cpu_time_ns") if on_gpu else rows[["range", "calls", "cpu_time_ns", "tier"]]


@table(
    "layers_folded",
    always=True,
    question="Which kind of layer takes the time, if repeated layers count as one?",
    title="Layers, repeated ones folded",
    columns=_COLUMNS,
    glance=_largest,
)
def fold_layers(facts: Facts) -> pd.DataFrame | None:
    """Return layers_folded.csv: layers.csv with one row for all repeated layers of a kind."""
    layers = facts.layers
    if layers.empty:
        return None
    summed = ["calls", "cpu_time_ns", "gpu_time_ns", "gpu_self_time_ns", "launches", "share_frac"]
    table = layers.assign(range=fold_paths(layers["range"]))
    # `min_count` keeps an unknown sum blank; otherwise it would become zero.
    return _finish(table.groupby("range", sort=False)[summed].sum(min_count=1).reset_index())


def for_figure(layers_folded: pd.DataFrame, profiles: Iterable[str]) -> pd.DataFrame:
    """Return the rows to draw: without ranges whose time is all in one child, and only the first pass of each profile.

    Shape: `profiles` names of layer profiles. Their passes over one program are the ranges `<profile>.<level>`.
    """
    root = layers_folded["range"].str.partition("/")[0]
    again: set[str] = set()
    for name in profiles:
        again |= set(root[root.str.startswith(f"{name}.")].unique()[1:])
    rows = layers_folded[~root.isin(again)]
    parent = rows["range"].str.rpartition("/")[0]
    time = rows["gpu_time_ns"].fillna(0)
    children = time.groupby(parent).max().reindex(rows["range"]).to_numpy()
    return rows[~((time > 0) & (children == time)).to_numpy(bool, na_value=False)]


def _finish(table: pd.DataFrame) -> pd.DataFrame:
    for column in ("calls", "cpu_time_ns", "gpu_time_ns", "gpu_self_time_ns", "launches"):
        table[column] = table[column].astype("Int64")
    table["share_frac"] = table["share_frac"].astype("Float64").to_numpy(float, na_value=np.nan)
    return table.assign(tier="timing")


def check_against_nsys(ours: pd.DataFrame, nsys_range_sums: pd.DataFrame) -> tuple[int, int]:
    """Compare the kernel time of each range name with nsys' own report nvtx_kern_sum.

    Return (ranges that are equal to the nanosecond, ranges compared). Ranges that NCCL leaves open do not count.
    Shape: `ours` from nsys_sums.range_sums; `nsys_range_sums` as in `Capture`.
    """
    keys = ["name", "pid", "tid"]
    compared = {
        whose: sums[~holds(sums["name"].fillna(""), lambda name: not name or never_closes(name))]
        for whose, sums in (("ours", ours), ("theirs", nsys_range_sums))
    }
    both = pd.concat(
        [sums.groupby(keys)["total_ns"].sum().rename(whose) for whose, sums in compared.items()],
        axis=1,
    )
    return int((both["ours"] == both["theirs"]).sum()), len(both)
