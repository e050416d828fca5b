"""Groups of launches that are taken to be alike, so that what was counted of one holds for the others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.tables.attribution import fold_paths

GROUP = ["folded", "kernel", "grid", "block", "place"]
DIFFER = 0.05  # representatives of a group that lie further apart speak for nobody but themselves …
DIFFER_NS, DIFFER_BYTES = 1000, 8192  # … unless so little is in it that the tool's own noise is as large
UNEVEN = 0.10  # quartiles of a group's durations that lie further apart, over their median …
UNEVEN_NS = 1000  # … and by more than this: its launches do different work
_MANY = 16  # launches of one kernel in one instance of a range: more are a loop, whose turns are alike


def with_groups(launches: pd.DataFrame) -> pd.DataFrame:
    """`launches` (of join.prepare_launches) with `folded`, the folded path, and `place`, so that GROUP names its group.

    Where every instance of a range launches a kernel with one grid and block equally often, its first launch may have
    other work than its second (two matrix products of one size of output): `place` numbers them. Elsewhere it is 0.
    """
    launches = launches.assign(folded=fold_paths(launches["path"]))
    if "owner" not in launches:
        return launches.assign(place=0)
    alike = ["folded", "kernel", "grid", "block"]
    found = launches[launches["owner"] >= 0]
    each = found.groupby([*alike, "owner"], sort=False)
    sizes = each.size().groupby(level=list(range(len(alike)))).agg(["min", "max", "size"])
    steady = sizes[(sizes["min"] == sizes["max"]) & (sizes["size"] > 1) & sizes["max"].between(2, _MANY)].index
    is_steady = pd.MultiIndex.from_frame(found[alike]).isin(steady)
    place = each.cumcount().where(is_steady, 0)
    return launches.assign(place=place.reindex(launches.index, fill_value=0).astype("int64"))


def uneven_groups(time_ns: pd.Series, group: npt.ArrayLike) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Whether the durations of each launch's group are so unequal that one cannot speak for all, and their median.

    Shape: n durations and n numbers of groups → n of each.
    """
    of = time_ns.astype("float64").groupby(group)
    first, median, third = (of.transform("quantile", q).to_numpy(np.float64) for q in (0.25, 0.5, 0.75))
    return (third - first > UNEVEN_NS) & (third - first > UNEVEN * median), median


def apart(launches: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """How far the measured launches of each group lie apart: one row a group, index GROUP.

    Columns: `counted`, launches with counters of their own; `differ_frac`, the largest of what they differ by in time
    and in DRAM bytes, over the larger value, NaN with fewer than two; `alike`, whether they speak for their group.
    Shape: `launches` of join.join with GROUP; `values` of metrics.derive, row by row of the counters.
    """
    measured = launches[launches["counters_from"] == "measured"]
    found = values.reindex(measured["counters_row"]).set_axis(measured.index)
    read_and_written = [found[name] for name in ("dram_read_bytes", "dram_write_bytes") if name in found]
    known = {
        "time": (found.get("duration_ns"), DIFFER_NS),
        "bytes": (sum(read_and_written) if read_and_written else None, DIFFER_BYTES),
    }
    groups = measured.groupby(GROUP, sort=False)
    table = pd.DataFrame({"counted": groups.size()})
    table["differ_frac"], table["alike"] = float("nan"), True
    for values_of, least in known.values():
        if values_of is None:
            continue
        each = values_of.astype(float).groupby([measured[name] for name in GROUP], sort=False)
        high, low = each.max(), each.min()
        differ = ((high - low) / high.where(high > 0)).where(table["counted"] > 1)
        table["differ_frac"] = table["differ_frac"].combine(differ, lambda a, b: b if a != a or b > a else a)
        table["alike"] &= ~((differ > DIFFER) & (high - low > least))
    return table


def extrapolate(launches: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """Give launches without counters those of the measured launch of their group whose nsys time is nearest.

    Where the measured ones differ, no launch gets any, and `refused` says by how much; nor where there is one alone and
    the nsys times of the group are uneven. Shape: see `apart`.
    """
    launches = with_groups(launches)
    table = apart(launches, values)
    places = launches[GROUP].merge(table.reset_index().assign(group=range(len(table))), on=GROUP, how="left")
    places.index = launches.index
    lacks = (launches["counters_row"] < 0) & places["group"].notna()
    alone = (places["counted"] == 1).to_numpy() & uneven_groups(launches["duration_ns"], places["group"].fillna(-1))[0]
    alike = places["alike"].fillna(False).astype(bool) & ~alone
    time = launches["duration_ns"].astype("float64").fillna(0)
    sources = launches[launches["counters_from"] == "measured"]
    sources = pd.DataFrame(
        {"group": places["group"][sources.index], "time": time[sources.index], "row": sources["counters_row"]}
    ).sort_values(["time", "row"], ascending=[True, False])  # of equal times the last is found: the first launch
    asking = pd.DataFrame({"group": places["group"], "time": time})[lacks & alike].sort_values("time", kind="stable")
    found = pd.merge_asof(asking, sources, on="time", by="group", direction="nearest").set_axis(asking.index)
    launches.loc[found.index, "counters_row"] = found["row"].astype("int64")
    launches.loc[found.index, "counters_from"] = "sibling"
    launches.loc[found.index, "refused"] = ""
    refused = lacks & ~alike
    said = places.loc[refused, "differ_frac"].map("the replayed launches of its group differ by {:.0%}".format)
    launches.loc[refused, "refused"] = said.mask(alone[refused], "one launch of a group of unequal times was replayed")
    return launches
