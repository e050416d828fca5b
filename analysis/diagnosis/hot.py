"""Find the kernels that take most of the time, each over all ranges, with the reasons that the tables show."""

import math
import re
from collections.abc import Collection, Iterator
from itertools import islice

import pandas as pd

from analysis.diagnosis.claims import Claim, cell
from analysis.diagnosis.reasons import Cells, Kernel, Reason, Row, Tables, busiest, reasons, rows_of
from analysis.diagnosis.vocabulary import library_of
from analysis.formats import symbols
from analysis.formats.words import begin, count_of, duration, share
from analysis.tables.attribution import UNATTRIBUTED

LEAST_SHARE = 0.01  # of the kernel time: a kernel with less gives no finding, unless it is the longest
MOST_REASONS = 3
MOST = 3
MOST_UNTIMED = 20  # kernels that are searched for a reason where no file holds times
MOSTLY = 0.5
MANY = 100  # short launches: their order counts what launching them costs
LAUNCH_NS = 4_000  # of the host for a launch: cudaLaunchKernel takes 3 to 7 µs
NO_CAUSE = "no table shows why"
NOT_COUNTED = "ncu did not count it"
LONG_NAME = 80  # characters of a kernel's name in a command; ncu also accepts a part of a name
# What tells the nearest limit of a kernel: column of units.csv -> metric of ncu.
_LIMITS = {
    "dram_busy_frac": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_busy_frac": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
}
_BY_KERNEL = ("kernels", "rules", "roofline", "stalls", "source", "counters", "graphed", "units", "conflicts")


def hot_kernels(
    tables: Tables,
    clock: str,
    *,
    sm_count: int | None = None,
    tf32: bool = True,
    vendor: str = "",
    most: int = MOST,
    skip: Collection[str] = (),
) -> list[Claim]:
    """Return findings on the kernels with most time: always on the longest, on others only with a known reason.

    `tables`: tables by name; `clock`: the tool that timed them; `tf32`: whether the GPU has it; `vendor`: of the GPU;
    `most`: number of findings; `skip`: kernels that have a finding already.
    """
    kernels = tables["kernels"]
    column = time_column(kernels)
    if kernels[column].isna().all():
        return _untimed(tables, kernels, sm_count, tf32)
    timed = kernels.dropna(subset=[column])
    total = float(timed[column].sum())
    sums = timed.groupby("kernel", sort=False)[[column, "launches"]].sum()
    sums = sums.sort_values(column, ascending=False, kind="stable")
    labels, library = symbols.short_all(sums.index), library_of(sums.index, sums[column])
    sums = sums[~sums.index.isin(list(skip))]
    found: list[Claim] = []
    longest = sums.head(2 * most)
    rows = _rows_by_kernel({**tables, "kernels": timed}, longest.index)
    for name, row in longest.iterrows():
        part = float(row[column]) / total if total else 0.0
        if found and (part < LEAST_SHARE or len(found) == most):
            break
        kernel = Kernel(str(name), int(row["launches"]), float(row[column]), rows[name], sm_count, library, tf32)
        known = list(islice(reasons(kernel), MOST_REASONS))
        if found and not known:
            continue
        by = "ncu" if column == "ncu_time_ns" else clock
        others = bool(len(tables["counters"])) and not rows[name]["counters"]
        found.append(_finding(kernel, labels[str(name)], part, column, by, known, vendor, others=others))
    return found


def time_column(kernels: pd.DataFrame) -> str:
    """Return the column with the times: nsys' if a timeline has any, else ncu's."""
    return "ncu_time_ns" if kernels["nsys_time_ns"].isna().all() else "nsys_time_ns"


def reasons_of_each(
    tables: Tables, *, sm_count: int | None = None, tf32: bool = True, most: int
) -> Iterator[tuple[str, list[Reason]]]:
    """Yield the `most` kernels with most time, each with all known reasons. Without a timeline, ncu's times serve."""
    kernels = tables["kernels"]
    if kernels.empty:
        return
    column = time_column(kernels)
    sums = kernels.assign(time=kernels[column].astype("Float64").fillna(0.0)).groupby("kernel", sort=False)
    totals = sums[["time", "launches"]].sum().sort_values("time", ascending=False, kind="stable")
    library, totals = library_of(totals.index, totals["time"]), totals.head(most)
    rows = _rows_by_kernel(tables, totals.index)
    for name, row in totals.iterrows():
        kernel = Kernel(str(name), int(row["launches"]), float(row["time"]), rows[name], sm_count, library, tf32)
        yield kernel.name, [one for one in reasons(kernel) if kernel.time_ns or not one.of_time]


def _rows_by_kernel(tables: Tables, names: pd.Index) -> dict[str, dict[str, list[Row]]]:
    """Return the rows of each of these kernels by table. All kernels share the rows of `host`."""
    host = rows_of(tables["host"])
    found: dict[str, dict[str, list[Row]]] = {name: {key: [] for key in _BY_KERNEL} | {"host": host} for name in names}
    for key in _BY_KERNEL:
        table = tables.get(key, pd.DataFrame())
        for row in rows_of(table[table["kernel"].isin(names)] if len(table) else table):
            found[row["kernel"]][key].append(row)
    return found


def _untimed(tables: Tables, kernels: pd.DataFrame, sm_count: int | None, tf32: bool) -> list[Claim]:
    """Return a finding if no file holds times: on the kernel with most launches of those with a known reason, else of
    all, or on the first that ncu describes.
    """
    if kernels.empty:
        named = [of["kernel"] for key in ("source", "rules", "stalls") for of in (tables[key],) if len(of)]
        if not named:
            return []
        launched = {str(named[0].iloc[0]): 0}
    else:
        sums = kernels.groupby("kernel", sort=False)["launches"].sum().sort_values(ascending=False, kind="stable")
        launched = {str(one): int(count) for one, count in sums.head(MOST_UNTIMED).items()}
    rows = _rows_by_kernel({**tables, "kernels": kernels}, pd.Index(list(launched)))
    seen_kernels = [Kernel(one, count, 0.0, rows[one], sm_count, tf32=tf32) for one, count in launched.items()]
    told = ((one, list(islice((a for a in reasons(one) if not a.of_time), MOST_REASONS))) for one in seen_kernels)
    kernel, known = next((each for each in told if each[1]), (seen_kernels[0], []))
    name, launches = kernel.name, kernel.launches
    label = symbols.short(name)
    said = [f"{_begin(reason.said)}." for reason in known]
    seen = f"ncu saw {count_of(launches, 'launch')} of it, and no" if launches else "No"
    seen += " file holds their time." if launches != 1 else " file holds its time."
    cells = [cell("kernels", {"kernel": name}, "launches", launches)] if launches else []
    return [
        Claim(
            kind=known[0].kind if known else "unknown",
            title=f"{label}: {known[0].headline if known else 'the metrics do not include its time'}",
            sentence=" ".join([seen, *said]),
            do=" ".join(dict.fromkeys(one.do for one in known if one.do)) or _unknown(kernel, "ncu", ""),
            cells=(*cells, *(item for one in known for item in one.cells)),
        )
    ]


def _finding(
    kernel: Kernel, label: str, part: float, column: str, by: str, known: list[Reason], vendor: str, *,
    others: bool = False,
) -> Claim:  # fmt: skip
    each = f", {duration(kernel.mean_ns)} each on average" if kernel.launches > 1 else ""
    takes = count_of(kernel.launches, "launch takes", "launches take")
    told = (
        f"{takes} {duration(kernel.time_ns)} by {by}{each}: {share(part)} of the kernel time{_where(kernel, column)}."
    )
    said = [f"{_begin(reason.said)}." for reason in known]
    left = kernel.time_ns * (1 - min(found[2], 1.0) if (found := busiest(kernel)) else 1.0)
    short = bool(known) and known[0].kind == "launch_bound" and kernel.launches >= MANY
    why = NOT_COUNTED if others else NO_CAUSE
    title = f"{label}: {known[0].headline}" if known else f"{label}, {share(part)} of the kernel time: {why}"
    return Claim(
        kind=known[0].kind if known else "unknown",
        title=title,
        sentence=" ".join([told, *said]),
        do=" ".join(dict.fromkeys(one.do for one in known if one.do)) or _unknown(kernel, by, vendor, others=others),
        cells=(*_cited(kernel, column), *(item for reason in known for item in reason.cells)),
        weight_ns=max(left, float(f"{kernel.launches * LAUNCH_NS:.1e}") if short else 0.0),  # as exact as LAUNCH_NS
    )


def _cited(kernel: Kernel, column: str) -> Cells:
    """Cite time and launches of all rows of the kernel."""
    rows, place = kernel.rows["kernels"], {"kernel": kernel.name}
    return [cell("kernels", place, name, int(sum(row[name] or 0 for row in rows))) for name in (column, "launches")]


def _times(rows: list[Row], column: str) -> dict[str, float]:
    """Return the time in each range, in the order of the rows. Units: ns."""
    found: dict[str, float] = {}
    for row in rows:
        if row["range"] is not None:
            found[row["range"]] = found.get(row["range"], 0.0) + float(row[column] or 0.0)
    return found


def _begin(said: str) -> str:
    """Begin a sentence with a capital letter, unless it begins with `ncu`."""
    return said if said.startswith("ncu") else begin(said)


def _where(kernel: Kernel, column: str) -> str:
    """Return a clause that names the range with most of the kernel's time, or how many ranges share it."""
    times = _times(kernel.rows["kernels"], column)
    times.pop(UNATTRIBUTED, None)
    most = max(times, key=times.__getitem__, default="")
    if not times.get(most):
        return ""
    if len(times) == 1 and math.isclose(times[most], kernel.time_ns):
        return f", all in {most}"
    part = times[most] / kernel.time_ns
    return f", {share(part)} of it in {most}" if part >= MOSTLY else f", over {len(times):,} ranges"


def _lacking(kernel: Kernel) -> str:
    """Return the shares of bandwidths that no roof tells, and which metrics of ncu would tell the nearest limit."""
    units = next(iter(kernel.rows["units"]), {})
    lacks = [name for column, name in _LIMITS.items() if units.get(column) is None]
    known = (row for row in kernel.rows["roofline"] if row["bandwidth_frac"] is not None and row["roof_frac"] is None)
    reached = [f"{share(row['bandwidth_frac'])} of the {str(row['level']).upper()} bandwidth" for row in known]
    beside = f"It reaches {' and '.join(reached)}. " if reached else ""
    return f"{beside}Its nearest limit is unknown, because the file has no usable value of {' and '.join(lacks)}"


def _unknown(kernel: Kernel, by: str, vendor: str, *, others: bool = False) -> str:
    """Return a sentence on which capture would show why the kernel takes its time.

    `others`: ncu counted other kernels of this capture, but not this one.
    """
    if vendor not in ("", "NVIDIA"):
        tool = "`rocprof-compute profile -n kernels -- APP`" if vendor == "AMD" else f"the profiler of {vendor}"
        return f"Times alone do not tell what it waits for. Hardware counters do: {tool}."
    plain = symbols.base(kernel.name)
    plain = plain[:LONG_NAME]
    chosen = f"-k regex:{plain} " if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", plain) else ""
    command = f"`ncu {chosen}-c 3 --set full -o kernels APP`"
    if by == "ncu":
        return f"{_lacking(kernel)}: {command} collects all sections."
    if others:
        return f"ncu counted other kernels, but not this one. Its counters tell what it waits for: run {command}."
    return (
        "Times alone do not tell what it waits for. Counters do: on an NVIDIA GPU, run "
        f"{command}, then `ncu -i kernels.ncu-rep --csv --page raw`."
    )
