"""Join each kernel of the nsys timeline to its row of ncu counters, or give the reason for having none.

The two tools see two runs of one program. A kernel is matched by its NVTX path, its name in the form common to both
tools, and its ordinal among equals in that path. Grid and block must then be equal, too. A kernel with more than one
possible match is refused with the reason, and never guessed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.typing import DataFrameGroupBy

from analysis.formats import symbols
from analysis.formats.collectives import communicates
from analysis.formats.report import Missing, Reason
from analysis.tables import groups
from analysis.tables.attribution import fold_paths, or_outside
from analysis.tables.declare import Column, Facts, part, table

Rows = npt.NDArray[np.int64]
PAGES_DIFFER = 0.01  # two pages of one capture round differently, but by less than a hundredth …
LAST_DIGIT = 0.005  # … or by half of the last digit if a page prints two decimals
_LAUNCH = ["path", "symbol", "grid", "block"]  # which launches of two runs are the same, in their order
_TIME = "gpu__time_duration.sum"
TIMES_APART = 1.5  # clocks, caches and power explain less
_EXECUTED = re.compile(r"__inst_(executed|issued)\.sum$")
# Nobody asks a launch for them.
_OF_OPERATIONS = ["stream", "bytes", "memory", "correlation_id", "graph_node_id", "api_end_ns"]
_MANY = 50  # columns; a timeline has fewer, and needs no copy


@dataclass(frozen=True)
class Joined:
    """The result of the join.

    `launches`: one row per kernel of the timeline, with `counters_row` (row of `Capture.counters`, -1 for none),
    `counters_from` ('measured', 'sibling', '') and `refused` (a reason, '' if none). `requested` marks the launches
    that ncu was asked to count; `how` is a sentence for the report.
    """

    launches: pd.DataFrame
    how: str

    @property
    def matched(self) -> int:
        return int((self.launches["counters_from"] == "measured").sum())


def prepare_launches(gpu_ops: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels of the timeline in launch order, with a display name and a name for matching.

    Shape: `gpu_ops` as in `Capture`, with `owner` (row of its range, -1 for none) and `path`.
    """
    rows = np.flatnonzero((gpu_ops["kind"] == "kernel").to_numpy(bool))
    order = gpu_ops["api_start_ns"].fillna(gpu_ops["start_ns"]).to_numpy(np.int64)[rows]
    if (order[1:] < order[:-1]).any():
        rows = rows[np.argsort(order, kind="stable")]
    gpu_ops = gpu_ops.drop(columns=_OF_OPERATIONS, errors="ignore")
    if len(rows) != len(gpu_ops) or (rows[1:] < rows[:-1]).any():
        gpu_ops = pd.DataFrame({name: _at(gpu_ops[name], rows) for name in gpu_ops}, copy=False)
    return _with_names(gpu_ops.reset_index(drop=True))


def _at(column: pd.Series, rows: Rows) -> Any:
    """Return the cells at these rows: a view of one cell, which takes no memory, where the column is one."""
    held = column.to_numpy() if len(column) and isinstance(column.dtype, np.dtype) else None
    return column.array.take(rows) if held is None or any(held.strides) else np.broadcast_to(held[0], len(rows))


def prepare_counters(counters: pd.DataFrame, *, first_run: bool = False) -> pd.DataFrame:
    """Return `Capture.counters` with the kernel key, one row per launch.

    Several files may be pages of one capture, for example one with counts and one with ratios. Then an ncu id is the
    same launch in all of them, and its rows are merged. So are those of one program captured twice: it executes equal
    instructions, and the first file tells its time. Files that contradict each other are of several programs, whose
    launches are listed one after the other. If runs have kernels in common, the name of its file is the outermost range
    of a run; with `first_run`, only the first of them is returned, as a timeline has each launch once.
    """
    rows = _with_names(counters.reset_index(drop=True).copy())  # a copy is in one piece, so that columns are added fast
    if rows["file"].nunique() < 2:
        return rows
    runs = _programs(_runs(rows))
    again = _repeated(runs)
    if first_run:
        runs = [run for run, is_again in zip(runs, again, strict=True) if not is_again]
    elif any(again):
        runs = [run.assign(path=_below(run["file"].iloc[0], run["path"])) for run in runs]
    return pd.concat(runs, ignore_index=True)


def _runs(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of each run of ncu, in the order of its first file: files that do not contradict each other."""
    if _agree(rows):
        return [rows]
    runs: list[pd.DataFrame] = []
    for _, page in rows.groupby("file", sort=False):
        for at, run in enumerate(runs):
            both = pd.concat([run, page])
            if _agree(both):
                runs[at] = both
                break
        else:
            runs.append(page)
    return runs


def _agree(rows: pd.DataFrame) -> bool:
    """Return whether rows with one ID are one launch, with equal values of each metric that they share."""
    if (rows.groupby("ncu_id")[_LAUNCH].nunique() > 1).any(axis=None):
        return False  # one ID of several kernels or places
    metrics = [name for name in rows.select_dtypes("number") if name not in ("ncu_id", "pid")]
    return not _differ(rows.groupby("ncu_id")[metrics])


def _programs(runs: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return the launches of each program: runs that share launches, which execute equal instructions, are of one."""
    programs: list[pd.DataFrame] = []
    for run in runs:
        launches = _launches_of(run)
        for at, one in enumerate(programs):
            executed = [name for name in one if _EXECUTED.search(name) and one[name].any() and launches[name].any()]
            same = pd.concat([one, launches], ignore_index=True).groupby([*_LAUNCH, "nth"], sort=False)
            if executed and same.ngroups < len(one) + len(launches) and not _differ(same[executed]):
                programs[at] = same.first().reset_index()
                break
        else:
            programs.append(launches)
    return [one.drop(columns="nth") for one in programs]


def _launches_of(run: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each launch of a run of ncu, and as `nth` its place among those of its range and kernel."""
    launches = run.groupby("ncu_id", sort=False).first().reset_index()
    launches["nth"] = launches.groupby(_LAUNCH, sort=False).cumcount()
    return launches


def _differ(launches: DataFrameGroupBy) -> bool:
    """Return whether rows of one launch have different values."""
    low, high = launches.min(), launches.max()
    apart = (high - low) > np.maximum(PAGES_DIFFER * np.maximum(high.abs(), low.abs()), LAST_DIGIT)
    # scaled pages round small values to zero, so only two large values can contradict each other
    apart &= np.minimum(high.abs(), low.abs()) > 0
    return bool(apart.any(axis=None))


def _below(file: str, paths: pd.Series) -> pd.Series:
    return paths.map(lambda path: f"{file}/{path}" if path else file)


def _repeated(runs: list[pd.DataFrame]) -> list[bool]:
    """Return for each run whether it has a kernel of an earlier one."""
    seen: set[tuple[str, str]] = set()
    again = []
    for run in runs:
        kernels = set(zip(run["path"], run["symbol"], strict=True))
        again.append(not seen.isdisjoint(kernels))
        seen |= kernels
    return again


@part("missing")
def _several_runs(facts: Facts) -> list[Missing]:
    """Say that files of ncu hold several runs of the same kernels."""
    counters = facts.capture.counters
    if counters["file"].nunique() < 2:
        return []
    captured = _runs(_with_names(counters.reset_index(drop=True)))
    runs = _programs(captured)
    again = [run for run, is_again in zip(runs, _repeated(runs), strict=True) if is_again]
    if not again:
        return _times_apart(captured) if len(runs) == 1 else []
    names = ", ".join(dict.fromkeys(file for run in (runs[0], *again) for file in run["file"]))
    return [
        Missing(
            Reason.OTHER_RUN,
            f"which of {len(again) + 1} runs of ncu to believe",
            f"{names} hold different values for the same kernels, "
            + ("and the timeline has each launch once: the first run is shown" if facts.has_timeline else "so each "
               "run stands below the name of its file"),
            "give one run at a time",
        )
    ]  # fmt: skip


def _times_apart(runs: list[pd.DataFrame]) -> list[Missing]:
    """Say that runs of one program, of which the first tells the times, differ in them by more than TIMES_APART."""
    if _TIME not in runs[0]:
        return []
    of_launch = pd.concat(map(_launches_of, runs)).groupby([*_LAUNCH, "nth"])[_TIME]
    apart = of_launch.max() / of_launch.min()
    if not (apart > TIMES_APART).any():
        return []
    names = ", ".join(dict.fromkeys(file for run in runs for file in run["file"]))
    return [
        Missing(
            Reason.CONTRADICTION,
            f"the true time of {int((apart > TIMES_APART).sum())} launches",
            f"{names} hold it twice, up to {apart.max():.1f} times apart; the first is shown",
            "give one run at a time",
        )
    ]


def _with_names(rows: pd.DataFrame) -> pd.DataFrame:
    """Add `kernel`, the display name, and `symbol`, the name for matching, from `name`."""
    names = rows["name"].unique()
    shown = rows["name"].map({name: symbols.key(name) for name in names})
    matched = rows["name"].map({name: symbols.match_key(name) for name in names})
    rows = rows.copy() if len(rows.columns) > _MANY else rows  # in few blocks, which ncu's many columns need
    return rows.assign(kernel=shown, symbol=matched)


def join(
    launches: pd.DataFrame, counters: pd.DataFrame, include: list[str] | None, *, planned: Rows | None = None,
    extrapolate: bool = False, values: pd.DataFrame | None = None,
) -> Joined:  # fmt: skip
    """Match `launches` (from prepare_launches) with `counters` (from prepare_counters).

    `include`: the NVTX filters of ncu; None if unknown, [] for the whole window. `planned`: rows of the launches that a
    plan selected; ncu was asked to count only these. `extrapolate`: whether launches without counters get those of a
    launch of their group (groups.extrapolate). `values`, of metrics.derive, show whether the measured launches of a
    group agree.
    """
    blank: Any = "" if len(counters) else pd.Categorical.from_codes(np.zeros(len(launches), np.int8), [""])
    none = np.full(len(launches), -1) if len(counters) else np.broadcast_to(np.int64(-1), len(launches))
    row = pd.Series(none, index=launches.index, copy=False)
    launches = launches.assign(counters_row=row, counters_from=blank, refused=blank)
    launches["folded"] = fold_paths(launches["path"])
    if planned is None:
        launches["requested"], scope = _requested(launches, counters, include)
    else:
        launches["requested"] = np.isin(np.arange(len(launches)), planned)
        scope = f"ncu had to count {len(planned)} launches that a plan chose."
    if counters.empty or launches.empty:
        return Joined(launches, scope)
    if (counters["path"] == "").all() and (launches["path"] != "").any():
        launches, how = _join_without_ranges(launches, counters)
    else:
        # the plan of a program with collectives is of one rank, so that no other rank's launches are among ncu's
        names = launches["name"].unique() if planned is not None and "name" in launches else ()
        launches, how = _join_by_path(launches, counters, one_rank=any(communicates(str(name)) for name in names))
    if extrapolate:
        launches = groups.extrapolate(launches, pd.DataFrame(index=counters.index) if values is None else values)
    return Joined(launches, f"{scope} {how}")


def _requested(launches: pd.DataFrame, counters: pd.DataFrame, include: list[str] | None) -> tuple[np.ndarray, str]:
    everything = np.ones(len(launches), dtype=bool)
    if include == []:
        return everything, "ncu had to count the whole window."
    matchers = [path_matcher(pattern) for pattern in include or []]
    if matchers and all(matcher is not None for matcher in matchers):
        unique = {path: any(m(path.split("/")) for m in matchers if m) for path in launches["path"].unique()}
        asked = launches["path"].map(unique).to_numpy(bool)
        return asked, f"ncu had to count the ranges {', '.join(include or [])}."
    return everything, "No file says what ncu had to count, so coverage is of the whole timeline."


def path_matcher(pattern: str) -> Callable[[list[str]], bool] | None:
    """Return a predicate on a list of range names for an `--nvtx-include` push/pop filter, None if not understood.

    Source: NsightComputeCli, NVTX filtering: `A/` in A, `[A` outermost, `A]` innermost, `*` any number between, `+`
    exactly one between. This function does not understand start/end ranges, domains and `regex:`.
    """
    bottom, top = pattern.startswith("["), pattern.endswith("]")
    if pattern.startswith("regex:") or "@" in pattern or "," in pattern or not (bottom or top or "/" in pattern):
        return None
    wanted = [part for part in pattern.strip("[]").split("/") if part]

    def match_from(names: list[str], at: int, want: int) -> bool:
        if want == len(wanted):
            return not top or at == len(names)
        if wanted[want] == "*":
            return any(match_from(names, skip, want + 1) for skip in range(at, len(names) + 1))
        if at >= len(names) or wanted[want] not in ("+", names[at]):
            return False
        return match_from(names, at + 1, want + 1)

    return lambda names: any(match_from(names, at, 0) for at in ([0] if bottom else range(len(names))))


def _join_by_path(
    launches: pd.DataFrame, counters: pd.DataFrame, *, one_rank: bool = False
) -> tuple[pd.DataFrame, str]:
    identity = ["path", "symbol"]
    left = launches.drop(columns="counters_row").assign(row=np.arange(len(launches)))
    asked = left[left["requested"]]
    asked = asked.assign(ordinal=asked.groupby(identity).cumcount())
    right = counters.assign(counters_row=np.arange(len(counters)), ordinal=counters.groupby(identity).cumcount())
    pairs = asked.merge(
        right[[*identity, "ordinal", "grid", "block", "counters_row"]],
        on=[*identity, "ordinal"],
        suffixes=("", "_ncu"),
    )
    same_shape = (pairs["grid"] == pairs["grid_ncu"]) & (pairs["block"] == pairs["block_ncu"])
    prefix = _is_prefix(launches, counters)
    groups = pd.DataFrame(
        {
            "seen": asked.groupby(identity).size(),
            "captured": right.groupby(identity).size(),
            "equal": same_shape.groupby([pairs[name] for name in identity]).all(),
            "places": _launch_places(may := asked if one_rank else left).groupby([may[n] for n in identity]).nunique(),
        }
    ).reindex(pd.MultiIndex.from_frame(pairs[identity].drop_duplicates()))
    groups["why"] = ""
    # The order of launches from several threads or processes differs in every run.
    groups.loc[groups["places"] > 1, "why"] = "several threads, processes or devices launch this kernel in this range"
    if not prefix:
        differ = (groups["seen"] != groups["captured"]) & (groups["why"] == "")
        groups.loc[differ, "why"] = "nsys and ncu saw a different number of these kernels in this range"
    # One pair with different shapes shows that the order differs, so every pair of its group is doubtful.
    groups.loc[~groups["equal"].fillna(False).astype(bool), "why"] = "grid or block differ between the two runs"
    why = pairs.join(groups["why"], on=identity)["why"]
    good = pairs[why == ""]
    launches.loc[good["row"], "counters_row"] = good["counters_row"].to_numpy()
    launches.loc[good["row"], "counters_from"] = "measured"
    launches.loc[pairs["row"], "refused"] = why.to_numpy()
    absent = launches["requested"] & (launches["counters_row"] < 0) & (launches["refused"] == "")
    launches.loc[absent, "refused"] = "ncu has no such kernel in this range"
    how = "Matched by NVTX path, kernel name and ordinal; grid and block equal."
    if prefix and len(counters) < int(launches["requested"].sum()):
        how += " The ncu run ended early: its kernels equal the first of the timeline, one by one, and no others."
    return launches, how


def _launch_places(launches: pd.DataFrame) -> pd.Series:
    """Return a number for each thread, process and device that launches."""
    columns = [name for name in ("pid", "tid", "device") if name in launches]
    return launches.groupby(columns, dropna=False).ngroup() if columns else pd.Series(0, index=launches.index)


def _is_prefix(launches: pd.DataFrame, counters: pd.DataFrame) -> bool:
    """True if ncu's kernels, in order, are the first requested ones of the timeline and match at no other place.

    Such a run of ncu was cut off. A window that matches in several places, for example one decode step of many, has no
    certain match.
    """
    identity = ["path", "symbol", "grid", "block"]
    timeline = launches.loc[launches["requested"], identity]
    if counters["file"].nunique() != 1 or not 0 < len(counters) <= len(timeline):
        return False
    both = pd.concat([timeline, counters[identity]], ignore_index=True)
    codes = both.groupby(identity, sort=False).ngroup().to_numpy(np.int32)
    text, part = codes[: len(timeline)].tobytes(), codes[len(timeline) :].tobytes()
    if not text.startswith(part):
        return False
    at = text.find(part, 1)
    while at % codes.itemsize and at > 0:  # a match across two codes does not count
        at = text.find(part, at + 1)
    return at < 0


def _join_without_ranges(launches: pd.DataFrame, counters: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Match without ranges from ncu: only kernels with equal counts in both runs have one possible match."""
    identity = ["symbol", "grid", "block"]
    left = launches.drop(columns="counters_row").assign(row=np.arange(len(launches)))[launches["requested"].to_numpy()]
    left = left.assign(ordinal=left.groupby(identity).cumcount())
    right = counters.assign(counters_row=np.arange(len(counters)), ordinal=counters.groupby(identity).cumcount())
    counts = pd.concat(
        [left.groupby(identity).size().rename("seen"), right.groupby(identity).size().rename("captured")],
        axis=1,
    ).fillna(0)
    pairs = left.merge(right[[*identity, "ordinal", "counters_row"]], on=[*identity, "ordinal"])
    pairs = pairs.join((counts["seen"] == counts["captured"]).rename("complete"), on=identity)
    good = pairs[pairs["complete"]]
    launches.loc[good["row"], "counters_row"] = good["counters_row"].to_numpy()
    launches.loc[good["row"], "counters_from"] = "measured"
    unmatched = launches["requested"] & (launches["counters_row"] < 0)
    launches.loc[unmatched, "refused"] = "ncu recorded no ranges, and the numbers of these kernels differ"
    return (
        launches,
        "ncu recorded no NVTX ranges (capture with --nvtx), so kernels were matched by their order alone.",
    )


@table(
    "coverage",
    always=True,
    question="Which kernels of the timeline have counters?",
    columns=(
        Column("range", "innermost range, folded", "key"),
        Column("seen", "kernels in the timeline", "timing", "1"),
        Column("requested", "kernels in the ranges that ncu was to capture", "timing", "1"),
        Column("matched", "requested kernels that match a row of ncu", "timing", "1"),
        Column(
            "extrapolated",
            "kernels with the counters of a sibling, in a planned capture or with --extrapolate-siblings",
            "timing",
            "1",
        ),
        Column("reason", "why requested kernels have no match", "row", style="prose"),
    ),
)
def build_coverage(facts: Facts) -> pd.DataFrame | None:
    """Return coverage.csv: per folded range the kernels seen, requested, matched and extrapolated, and the refusals.

    None without a timeline, or without any counters, which a gap names.
    """
    if not facts.has_timeline or not facts.has_counters:
        return None
    launches = facts.joined.launches
    frame = pd.DataFrame(
        {
            "range": or_outside(launches["folded"]),
            "seen": 1,
            "requested": launches["requested"].astype(int),
            "matched": (launches["counters_from"] == "measured").astype(int),
            "extrapolated": (launches["counters_from"] == "sibling").astype(int),
            "reason": launches["refused"].where(launches["counters_from"] == "", ""),
        }
    )
    numbers = frame.groupby("range", sort=False)[["seen", "requested", "matched", "extrapolated"]].sum()
    reasons = frame.groupby("range", sort=False)["reason"].agg(lambda texts: "; ".join(filter(None, texts.unique())))
    return numbers.join(reasons).reset_index().assign(tier="counters")
