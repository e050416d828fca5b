"""Group launches that count as alike, so that the counters of one launch represent the others."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.tables.attribution import fold_paths

GROUP = ["folded", "kernel", "grid", "block", "place"]
DIFFER = 0.05  # a larger difference between a group's measured launches means that they represent only themselves …
DIFFER_NS, DIFFER_BYTES = 1000, 8192  # … unless the values are so small that the tool's own noise is as large
UNEVEN = 0.10  # a larger distance of a group's quartiles of duration, over their median …
UNEVEN_NS = 1000  # … that also exceeds this time means that the launches do different work
_MANY = 16  # a larger number of launches of one kernel in an instance of a range is a loop, with equal iterations


def with_groups(launches: pd.DataFrame) -> pd.DataFrame:
    """Add `folded`, the folded path, and `place` to `launches` (of join.prepare_launches); GROUP then names the group.

    Every instance of a range may launch a kernel with one grid and block the same number of times. Then its first
    launch may do other work than its second (two matrix products with one output size), and `place` numbers them.
    Otherwise it is 0.
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
    """Return whether the durations of each launch's group are too unequal for one to represent all, and their median.

    Shape: n durations and n numbers of groups → n of each.
    """
    of = time_ns.astype("float64").groupby(group)
    first, median, third = (of.transform("quantile", q).to_numpy(np.float64) for q in (0.25, 0.5, 0.75))
    return (third - first > UNEVEN_NS) & (third - first > UNEVEN * median), median


def apart(launches: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """Return the difference between the measured launches of each group: one row per group, index GROUP.

    Columns: `counted`, launches with their own counters; `differ_frac`, the largest difference in time or in DRAM
    bytes, over the larger value, NaN with fewer than two; `alike`, whether they represent their group. Shape:
    `launches` of join.join with GROUP; `values` of metrics.derive, row by row of the counters.
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
    """Give each launch without counters those of the measured launch of its group with the nearest nsys time.

    If the measured launches differ, no launch gets any, and `refused` gives the difference. The same holds for a group
    with one measured launch and uneven nsys times. Shape: see `apart`.
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
    ).sort_values(["time", "row"], ascending=[True, False])  # the search takes the last of equals: the first launch
    asking = pd.DataFrame({"group": places["group"], "time": time})[lacks & alike].sort_values("time", kind="stable")
    found = pd.merge_asof(asking, sources, on="time", by="group", direction="nearest").set_axis(asking.index)
    launches.loc[found.index, "counters_row"] = found["row"].astype("int64")
    launches.loc[found.index, "counters_from"] = "sibling"
    launches.loc[found.index, "refused"] = ""
    refused = lacks & ~alike
    said = places.loc[refused, "differ_frac"].map("the replayed launches of its group differ by {:.0%}".format)
    launches.loc[refused, "refused"] = said.mask(alone[refused], "one launch of a group of unequal times was replayed")
    return launches
