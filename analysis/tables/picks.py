"""Pick what a reader sees first: the kernels and layers with most time, and the rows of one kernel."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.formats import symbols
from analysis.formats.errors import UsageError
from analysis.formats.report import Missing, Reason
from analysis.formats.words import count_of
from analysis.tables.attribution import fold_paths
from analysis.tables.declare import Table
from analysis.tables.remedies import METRICS, NO_CELLS, NO_COUNTERS, NO_RANGES, NO_TIMES

Tables = Mapping[str, pd.DataFrame]
_OCCUPANCY = ("shared_bytes_per_block", "waves", "occupancy_limiter")  # columns of counters.csv beside kernels.csv


def rows_of(tables: Tables, name: str) -> pd.DataFrame:
    """Return a table of the report; without rows and columns if the report has none of this name."""
    return tables.get(name, pd.DataFrame())


def top_kernels(tables: Tables) -> pd.DataFrame:
    """Return one row per kernel, most time first: kernel, launches, time_ns, share_frac, summed over kernels.csv.

    Times come from nsys, or from ncu without a timeline.
    """
    rows = rows_of(tables, "kernels")
    if rows.empty:
        return pd.DataFrame(columns=["kernel", "launches", "time_ns", "share_frac"])
    timed = rows["nsys_time_ns"].notna().any()
    rows = rows.assign(time_ns=rows["nsys_time_ns" if timed else "ncu_time_ns"])
    numbers = rows[["launches", "time_ns", "share_frac"]].astype("Float64")
    sums = numbers.groupby(rows["kernel"], sort=False).sum(min_count=1).reset_index()
    return sums.sort_values("time_ns", ascending=False, kind="stable", na_position="last", ignore_index=True)


def short_names(kernels: pd.DataFrame) -> dict[str, str]:
    """Return the short form of each kernel's name in kernels.csv, whatever the order of its rows."""
    return symbols.short_all(sorted(map(str, kernels["kernel"].dropna().unique()))) if "kernel" in kernels else {}


def top_layers(tables: Tables) -> pd.DataFrame:
    """Return the rows of layers_folded.csv with most GPU time of their own; by share if that time is not known."""
    rows = rows_of(tables, "layers_folded")
    if rows.empty:
        return rows
    by = "gpu_self_time_ns" if rows["gpu_self_time_ns"].notna().any() else "share_frac"
    rows = rows[rows[by].astype("Float64").fillna(0) > 0]
    return rows.assign(order=rows[by].astype("Float64")).sort_values("order", ascending=False, kind="stable")


def find_kernel(tables: Tables, wanted: str) -> str:
    """Return the kernel named by `wanted`: its name, its function, its number by time (from 1), or a part of its name.

    Raises: UsageError if there is none, or if there are several.
    """
    names = [str(name) for name in top_kernels(tables)["kernel"]]
    numbered = [names[int(wanted) - 1]] if wanted.isdecimal() and 0 < int(wanted[:9]) <= len(names) else []
    ways = (
        [name for name in names if name == wanted],
        [name for name in names if symbols.base(name) == wanted],
        numbered,
        [name for name in names if wanted.lower() in name.lower()],
    )
    found = next((way for way in ways if way), [])
    if len(found) == 1:
        return found[0]
    said = _shown(wanted)
    if not found:
        if wanted.isdecimal() and names:
            raise UsageError(f"--kernel {said}: the kernels of this report have the numbers 1 to {len(names)}, by time")
        near = difflib.get_close_matches(wanted, [symbols.base(name) for name in names], n=1)
        like = f"; {_shown(near[0])} is like it" if near else ""
        raise UsageError(
            f"--kernel {said}: no kernel of this report has that name{like}; tables/kernels.csv lists them"
        )
    listed = ", ".join(f"{names.index(name) + 1} ({_shown(symbols.short(name))})" for name in found[:6])
    more = f" and {len(found) - 6} more" if len(found) > 6 else ""
    raise UsageError(f"--kernel {said} means {len(found)} kernels: give the number of one, by time: {listed}{more}")


def _shown(name: str) -> str:
    """Return a name for a sentence: short, on one line, without any control sequence for a terminal."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name[:60])


def of_kernel(tables: Tables, kernel: str) -> dict[str, pd.DataFrame]:
    """Return the rows about this kernel from each table, in the order of the report.

    `kernels` includes the occupancy columns of counters.csv. `traffic` has the bytes of the ranges in which the kernel
    runs, one range per folded range and size.
    """
    found = {name: rows[rows["kernel"] == kernel] for name, rows in tables.items() if "kernel" in rows}
    counters = rows_of(found, "counters")
    if len(counters):
        found["kernels"] = found["kernels"].merge(counters[["range", *_OCCUPANCY]], on="range", how="left")
    else:
        found["kernels"] = found["kernels"].assign(**dict.fromkeys(_OCCUPANCY, pd.NA))
    traffic = rows_of(tables, "traffic")
    if len(traffic):
        folded = fold_paths(traffic["range"])
        mine = traffic.assign(range=folded)[folded.isin(set(found["kernels"]["range"].dropna()))]
        found["traffic"] = mine.drop_duplicates(["range", "op", "variant", "minimum_bytes"])
    return found


def why_unknown(
    table: Table, rows: pd.DataFrame, tables: Tables, missing: Sequence[Missing], ranges: Sequence[str]
) -> str:
    """Return the reason and the remedy if `rows` of a kernel that runs in `ranges` lack values in this table."""
    if rows_of(tables, "counters").empty:
        return _why(missing, NO_COUNTERS, "there are no counters of ncu")
    whole = rows_of(tables, table.name)
    if whole.empty and table.missing:
        return _sentence(table.missing.why, table.missing.do)
    coverage = rows_of(tables, "coverage")
    mine = coverage[coverage["range"].isin(ranges)] if len(coverage) else coverage
    without = mine[mine["matched"].astype("Float64") == 0] if len(mine) else mine
    for row in without.itertuples():
        more = f" and {count_of(len(without) - 1, 'other range')}" if len(without) > 1 else ""
        said = row.reason if isinstance(row.reason, str) and row.reason else "ncu did not have to count it"
        return f"{said} ({row.range}{more})"
    if rows.empty:
        return f"{table.name}.csv has no row of this kernel"
    return _why(missing, NO_CELLS.get(table.name, ()), f"ncu did not measure it: {METRICS}")


def why_untimed(missing: Sequence[Missing]) -> str:
    """Return why a kernel has no time in the running program."""
    return _why(missing, NO_TIMES, "the timeline does not say")


def why_without_range(missing: Sequence[Missing]) -> str:
    """Return why the range, grid or block of a kernel is unknown."""
    return _why(missing, NO_RANGES, "the capture does not say")


def _why(missing: Sequence[Missing], reasons: Sequence[Reason], otherwise: str) -> str:
    """Return the text of what is missing for the first of these reasons."""
    found = next((one for reason in reasons for one in missing if one.reason == reason), None)
    return _sentence(found.why, found.do) if found else otherwise


def _sentence(why: Any, do: Any) -> str:
    return f"{why}: {do}"
