"""Show the launches that a plan chose to count (`python -m analysis.counting`), and those that they represent."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.formats.place import PLAN, profile
from analysis.formats.report import Missing, Reason
from analysis.formats.words import share
from analysis.tables import groups
from analysis.tables.attribution import or_outside
from analysis.tables.declare import Column, Facts, part, table


def replayed(count_plan: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return the rows of the launches that the plan selected, in launch order."""
    texts = " ".join(count_plan["replayed"].astype(str)).split()
    return np.sort(np.array([int(text) for text in texts if text.isdigit()], dtype=np.int64))


def is_of(count_plan: pd.DataFrame, launches: pd.DataFrame) -> bool:
    """Return whether the plan was made from this timeline: same number of launches, same time, same kernels."""
    return (
        int(count_plan["launches"].sum()) == len(launches)
        and int(count_plan["nsys_time_ns"].sum()) == int(launches["duration_ns"].sum())
        and set(count_plan["kernel"]) == set(launches["kernel"])
    )


@part("missing")
def _other_timeline(facts: Facts) -> Missing | None:
    count_plan, launches, ncu = facts.count_plan, facts.launches, facts.ncu
    if count_plan is None or launches.empty or not (ncu and ncu.get("planned")) or is_of(count_plan, launches):
        return None
    return Missing(
        Reason.OTHER_RUN,
        "which launches the plan chose",
        "count_plan.csv was made from another timeline than the one here",
        f"plan again with `{PLAN}`, and capture the counters with that plan",
    )


@part("missing")
def _spread_groups(facts: Facts) -> Missing | None:
    counting = facts.counting
    apart = counting[counting["reason"].astype(str).str.contains("differ by")] if len(counting) else counting
    if apart.empty:
        return None
    lost = int((apart["launches"] - apart["counted"]).sum())
    return Missing(
        Reason.UNCOUNTED,
        f"the counters of {lost} launches in {len(apart)} groups",
        f"the replayed launches of each differ by more than {groups.DIFFER:.0%}, so they do not speak for the others",
        f"capture all launches with `{profile('--deep')}`",
    )


@part("note")
def _said(facts: Facts) -> str | None:
    """Return `Counted 96 of 1,100 launches, 99.2% of the GPU time.`"""
    counting = facts.counting
    if counting.empty:
        return None
    launches, counted, extrapolated = (int(counting[name].sum()) for name in ("launches", "counted", "extrapolated"))
    time = counting["nsys_time_ns"]
    known = (time * (counting["counted"] + counting["extrapolated"]) / counting["launches"]).sum() / max(time.sum(), 1)
    return (
        f"Counted {counted:,} of {launches:,} launches, which stand for {share(known)} of the GPU time: "
        f"{extrapolated:,} others have the counters of a sibling in their group (table counting)."
    )


@table(
    "counting",
    question="Which launches did ncu replay, and which others do they stand for?",
    title="Counting",
    columns=(
        Column("range", "innermost range, folded", "key"),
        Column("kernel", "kernel name", "key"),
        Column("grid", "grid dimensions, XxYxZ", "key", "blocks", shown=False),
        Column("block", "block dimensions, XxYxZ", "key", "threads", shown=False),
        Column(
            "place",
            "number of the launch among equal launches in one instance of the range, from 0",
            "key",
            "1",
            shown=False,
        ),
        Column("launches", "launches of the group in the timeline", "timing", "1"),
        Column("nsys_time_ns", "sum of their times by nsys", "timing"),
        Column("share_frac", "nsys_time_ns over that of all launches", "timing", style="bar"),
        Column("planned", "launches that ncu was to replay, by the plan", "timing", "1"),
        Column("counted", "launches with counters of their own", "counters", "1"),
        Column("extrapolated", "launches with the counters of a sibling in the group", "counters", "1"),
        Column("differ_frac", "largest difference between counted launches, in time or in DRAM bytes", "counters"),
        Column("reason", "why launches of the group have no counters", "row", style="prose"),
    ),
)
def build_counting(facts: Facts) -> pd.DataFrame | None:
    """Return counting.csv: one row per group, most GPU time first; None if no plan guided ncu."""
    joined = facts.joined
    if facts.planned_rows is None or joined.launches.empty:
        return None
    launches = groups.with_groups(joined.launches)
    how = launches["counters_from"]
    frame = launches.assign(
        planned=launches["requested"].astype(int),
        extrapolated=(how == "sibling").astype(int),
        reason=launches["refused"].where(how == "", ""),
    )
    by_group = frame.groupby(groups.GROUP, sort=False)
    found = by_group.agg(
        launches=("planned", "size"),
        nsys_time_ns=("duration_ns", "sum"),
        planned=("planned", "sum"),
        extrapolated=("extrapolated", "sum"),
        reason=("reason", lambda texts: "; ".join(filter(None, texts.unique()))),
    )
    apart = groups.apart(launches, facts.counter_values)
    found["counted"] = apart["counted"].reindex(found.index).fillna(0).astype("int64")
    found["differ_frac"] = apart["differ_frac"].reindex(found.index)
    found["share_frac"] = found["nsys_time_ns"] / max(int(found["nsys_time_ns"].sum()), 1)
    left_out = (found["planned"] == 0) & (found["reason"] == "")
    found.loc[left_out, "reason"] = "the budget was spent on groups with more GPU time"
    found = found.reset_index().rename(columns={"folded": "range"})
    found["range"] = or_outside(found["range"])
    return found.assign(tier="counters").sort_values("nsys_time_ns", ascending=False, kind="stable")
