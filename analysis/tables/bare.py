"""Compute the times of ranges and steps without a profiler, and whether a step waits for the GPU or for the host.

There are two sources. In timing.json, a harness timed whole steps between synchronisations. In bare_ranges.csv,
nsys_scripts/bare.sh recorded every range of any program.

The first occurrences of a range pay for compilation, loading of kernels and cold caches, so they are not in steady
state. The occurrences of a range on one thread are sorted by time, and the later half counts as steady. Leading
occurrences are left out if they take more than 1.5 times the median of that half and more than its 95th percentile.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.capture.model import Capture
from analysis.formats.bare import BARE_RANGES, PUSH
from analysis.formats.report import Missing, Reason
from analysis.formats.spans import quantiles
from analysis.tables.attribution import fold_paths
from analysis.tables.declare import TOP, Column, Facts, part, table

SLOWER = 1.5  # a leading occurrence above this multiple of the later half's median is a first one
TO_START, TO_END, HARNESS = "start to start", "start to end", "harness"
_COLUMNS = ["process", "process_rank", "thread", "start_ns", "end_ns", "style", "name", "path", "range", "duration_ns"]


# Ranges ---------------------------------------------------------------------------------------------------------


def folded(capture: Capture, ranges: pd.DataFrame) -> dict[str, str]:
    """Return each path of timeline and bare run -> the path with repeated layers and steps folded into one."""
    bare = capture.of(BARE_RANGES.kind)
    paths = [*ranges["path"].tolist(), *([] if bare is None else bare["path"].tolist())]
    unique = pd.Series(list(dict.fromkeys(paths)), dtype=object)
    return dict(zip(unique, fold_paths(unique), strict=True))


def bare_ranges(capture: Capture, folded: dict[str, str]) -> pd.DataFrame:
    """Return the ranges of bare_ranges.csv with `range`, the folded path, and `duration_ns`, NA if never closed."""
    found = capture.of(BARE_RANGES.kind)
    if found is None:
        return pd.DataFrame(columns=_COLUMNS)
    frame = found.assign(range=found["path"].map(folded), duration_ns=found["end_ns"] - found["start_ns"])
    return frame.sort_values(["process", "thread", "start_ns"], kind="stable", ignore_index=True)[_COLUMNS]


def first_occurrences(times: np.ndarray) -> int:
    """Return the number of leading occurrences before the steady state, at most half of them.

    Shape: `times` in order.
    """
    later = times[len(times) // 2 :]
    if len(times) < 2:
        return 0
    limit = max(SLOWER * float(np.median(later)), float(np.quantile(later, 0.95)))
    steady = np.flatnonzero(times[: len(times) // 2] <= limit)
    return int(steady[0]) if len(steady) else len(times) // 2


def steady_state(rows: pd.DataFrame, column: str) -> dict[str, Any]:
    """First occurrences, and quantiles of the others.

    Shape: the rows of one range in order; `column` holds the time.
    """
    first, left_out, steady = None, 0, []
    for _, own in rows.groupby(["process", "thread"], sort=False):
        times = own[column].dropna().to_numpy(np.float64)
        if not len(times):
            continue
        count = first_occurrences(times)
        first = times[0] if first is None else first
        left_out += count
        steady.append(times[count:])
    low, middle, high = quantiles(np.concatenate(steady).tolist()) if steady else (np.nan, np.nan, np.nan)
    return {
        "first_calls": left_out,
        "first_ns": first,
        "steady": sum(map(len, steady)),
        "bare_p5_ns": low,
        "bare_p50_ns": middle,
        "bare_p95_ns": high,
    }


def _most_time(rows: pd.DataFrame) -> pd.DataFrame:
    time = (rows["bare_p50_ns"].astype(float) * rows["calls"].astype(float)).sort_values(ascending=False, kind="stable")
    return rows[rows.index.isin(time.index[:TOP])]


@table(
    "bare_times",
    question="How long does each range last on the host without a profiler, at first and later?",
    title="Ranges without a profiler",
    glance=_most_time,
    columns=(
        Column("range", "range names from the outermost to the innermost, repeated layers as one", "key"),
        Column("calls", "instances in all processes and threads", "timing", "1"),
        Column("never_closed", "instances still open when the program ended", "timing", "1", shown=False),
        Column(
            "first_calls", "leading instances that took clearly longer than later ones, as in steps.csv", "timing", "1"
        ),
        Column("first_ns", "duration of the first instance", "timing"),
        Column("bare_p5_ns", "duration of the later instances, 5th percentile", "timing", shown=False),
        Column("bare_p50_ns", "the same, median. It is host time: kernels of the range may run later", "timing"),
        Column("bare_p95_ns", "the same, 95th percentile", "timing"),
        Column("nsys_p50_ns", "duration of the range with nsys attached, median", "timing"),
    ),
)
def build_bare_times(facts: Facts) -> pd.DataFrame | None:
    """Return bare_times.csv: one row per folded path, in the order of first appearance."""
    bare, ranges = facts.bare, facts.ranges
    if bare.empty:
        return None
    length = (ranges["end_ns"] - ranges["start_ns"]).groupby(ranges["path"].map(facts.folded).to_numpy()).median()
    rows = []
    for path, own in bare.groupby("range", sort=False):
        found = steady_state(own, "duration_ns")
        found.pop("steady")
        never = int(own["duration_ns"].isna().sum())
        rows.append({"range": path, "calls": len(own), "never_closed": never} | found)
    built = pd.DataFrame(rows)
    built["nsys_p50_ns"] = built["range"].map(length) if facts.capture.clock != "bare" else np.nan
    return whole_numbers(built, [name for name in built if name != "range"]).assign(tier="timing")


def whole_numbers(rows: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return the rows with these columns as whole numbers, blank if unknown."""
    return rows.assign(**{name: rows[name].astype("Float64").round().astype("Int64") for name in names})


@part("missing")
def _never_closed(facts: Facts) -> Missing | None:
    bare = facts.bare
    lost = int(bare["end_ns"].isna().sum())
    if not lost:
        return None
    return Missing(
        Reason.OPEN_RANGES,
        f"the bare time of {lost:,} of {len(bare):,} ranges",
        "they were still open when the program ended",
        "close every range before the program ends, and do not kill the program",
    )


# Steps ----------------------------------------------------------------------------------------------------------


def find_repeated(
    ranges: pd.DataFrame, launched: Iterable[str], folded: Mapping[str, str], calls: Mapping[str, int]
) -> pd.DataFrame:
    """Return the outermost ranges that occur several times in the bare run and launch anything. They are the steps.

    Shape: `launched` paths of ranges that launch something; `calls` instances in the bare run by folded path.
    """
    busy = {"/".join(path.split("/")[:depth]) for path in launched for depth in range(1, path.count("/") + 2)}
    chosen: list[str] = []
    for path in sorted(busy - {""}, key=lambda path: path.count("/")):
        if calls.get(folded.get(path, path), 0) > 1 and not any(path.startswith(f"{one}/") for one in chosen):
            chosen.append(path)
    return ranges[ranges["path"].isin(chosen)].sort_values("start_ns", kind="stable")


def gpu_until(gpu_ops: pd.DataFrame, step_ranges: pd.DataFrame, step_of_op: np.ndarray) -> np.ndarray:
    """Return the end of the last GPU operation of each step, 0 without any."""
    last = (gpu_ops["start_ns"] + gpu_ops["duration_ns"]).groupby(step_of_op).max()
    return last.reindex(step_ranges.index).fillna(0).to_numpy(np.int64)


def waiting_calls(capture: Capture, gpu_ops: pd.DataFrame) -> pd.DataFrame | None:
    """start_ns, end_ns, pid and tid of the calls in which the host waits for the GPU; None if no file lists calls.

    Copies from and to pageable memory are included: even an asynchronous one returns only at its end.
    """
    if capture.waits is None:
        return None
    place, kinds = pd.factorize(gpu_ops["memory"])
    is_pageable = np.array([*("Pageable" in str(kind) for kind in kinds), False])[place]
    copies = gpu_ops.loc[is_pageable, ["api_start_ns", "api_end_ns", "pid", "tid"]]
    copies = copies.rename(columns={"api_start_ns": "start_ns", "api_end_ns": "end_ns"})
    return pd.concat([capture.waits[list(copies)], copies]).dropna().astype(np.int64)


def ends_in_wait(
    step_ranges: pd.DataFrame, gpu_until_ns: np.ndarray, waiting_calls: pd.DataFrame | None
) -> np.ndarray:  # fmt: skip
    """Return whether each step ends in a synchronisation: its thread waits in it for its last GPU operation.

    If no file lists the calls: whether that operation ends inside the step.
    """
    end = step_ranges["end_ns"].to_numpy(np.int64)
    if waiting_calls is None:
        return gpu_until_ns <= end
    waited = np.zeros(len(end), dtype=np.int64)
    for at, calls in _by_thread(step_ranges, waiting_calls):
        ends = np.sort(calls["end_ns"].to_numpy())
        place = np.searchsorted(ends, end[at], side="right")
        waited[at] = np.where(place > 0, ends[np.maximum(place - 1, 0)], 0)
    return (waited >= gpu_until_ns) & (gpu_until_ns > 0)


def _by_thread(steps: pd.DataFrame, calls: pd.DataFrame) -> Iterator[tuple[np.ndarray, pd.DataFrame]]:
    """Yield, for each thread with both, the positions of its steps and its calls."""
    if steps.empty:
        return
    thread_of = pd.MultiIndex.from_frame(steps[["pid", "tid"]].astype(np.int64))
    for thread, own in calls.groupby(["pid", "tid"]):
        at = np.flatnonzero(thread_of == thread)
        if len(at):
            yield at, own


def blocked(
    step_ranges: pd.DataFrame, gpu_until_ns: np.ndarray, waiting_calls: pd.DataFrame | None
) -> np.ndarray | None:
    """Return the time that the thread of each step waits for the GPU; None if no file lists the calls.

    A step lasts from its start until its range and its GPU operations have ended, or until the next one of its thread
    starts.
    """
    if waiting_calls is None or step_ranges.empty:
        return None
    following = step_ranges.groupby(["pid", "tid"])["start_ns"].shift(-1).fillna(np.inf).to_numpy()
    begin, end = (step_ranges[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    until = np.maximum(end, np.minimum(gpu_until_ns, following)).astype(np.int64)
    blocked = np.zeros(len(step_ranges))
    for at, calls in _by_thread(step_ranges, waiting_calls):
        starts, ends = calls.sort_values("start_ns", kind="stable")[["start_ns", "end_ns"]].to_numpy().T
        blocked[at] = _covered(starts, ends, until[at]) - _covered(starts, ends, begin[at])
    return blocked


def _covered(start: np.ndarray, end: np.ndarray, until: np.ndarray) -> np.ndarray:
    """Return the part of the time before each `until` that lies in the intervals.

    These are sorted by start and may overlap.
    """
    reached = np.maximum.accumulate(end)
    start = np.maximum(start, np.concatenate([start[:1], reached[:-1]]))
    length = np.maximum(reached - start, 0)
    place = np.searchsorted(start, until, side="right")
    total = np.concatenate([[0], np.cumsum(length)])
    over = np.maximum(reached[np.maximum(place - 1, 0)] - until, 0) * (place > 0)
    return total[place] - over


def walls_of_steps(bare: pd.DataFrame, ends_in_wait: Mapping[str, bool]) -> pd.DataFrame:
    """Return the bare ranges that are steps, in order, with `wall_ns` and its method, `bare_from`.

    If a step ends in a synchronisation, `wall_ns` is its duration. Otherwise it is the time from its start to that of
    the next step on its thread. If any two neighbours are of its kind, only such a next step counts. Shape:
    `ends_in_wait` by folded path of a step.
    """
    steps = bare[bare["range"].isin(list(ends_in_wait)) & (bare["style"] == PUSH)]
    thread = steps.groupby(["process", "thread"])
    next_range, to_next = thread["range"].shift(-1), thread["start_ns"].shift(-1) - steps["start_ns"]
    same = next_range == steps["range"]
    has_same = same.groupby(steps["range"]).transform("any")
    is_whole = steps["range"].map(dict(ends_in_wait)).astype(bool)
    spans = to_next.where(same | ~has_same)
    to_start = ~is_whole & spans.notna().groupby(steps["range"]).transform("any")
    return steps.assign(
        wall_ns=spans.where(to_start, steps["duration_ns"]), bare_from=np.where(to_start, TO_START, TO_END)
    )


def bare_steps(
    capture: Capture, bare: pd.DataFrame, step_ranges: pd.DataFrame, ends_in_wait: np.ndarray, folded: dict[str, str]
) -> pd.DataFrame:
    """Return the time of each kind of step without a profiler, as the harness timed it, else from the bare ranges.

    Shape: one row per folded path: range, bare_from and the entries of `steady_state`.
    """
    rows: dict[str, dict[str, Any]] = {}
    if len(step_ranges) and len(bare):
        kinds = step_ranges["path"].map(folded)
        waiting = pd.Series(ends_in_wait, index=kinds.to_numpy()).groupby(level=0).all()
        for path, own in walls_of_steps(bare, waiting.to_dict()).groupby("range", sort=False):
            rows[str(path)] = {"bare_from": own["bare_from"].iloc[0]} | steady_state(own, "wall_ns")
    for step in (capture.timing or {}).get("steps", []):
        wall = step["wall_ns"]
        rows[folded.get(step["range"], step["range"])] = {
            "bare_from": HARNESS,
            "first_calls": 0,
            "first_ns": None,
            "steady": step.get("samples") or 0,
            "bare_p5_ns": wall.get("p5"),
            "bare_p50_ns": wall["p50"],
            "bare_p95_ns": wall.get("p95"),
        }
    return pd.DataFrame([{"range": path} | row for path, row in rows.items() if pd.notna(row["bare_p50_ns"])])


def bare_wall_ns(bare_steps: pd.DataFrame, step_ranges: pd.DataFrame, folded: dict[str, str]) -> dict[str, float]:
    """Return the median bare time of each step by its path in the timeline.

    Beside steps that were timed several times, a step that ran once has none: it may hold the start of the program.
    """
    if bare_steps.empty or step_ranges.empty:
        return {}
    once = (bare_steps["steady"] == 1) & (bare_steps["first_calls"] == 0) & (bare_steps["bare_from"] != HARNESS)
    kept = bare_steps[~once] if (~once).any() else bare_steps
    known = kept.set_index("range")["bare_p50_ns"].to_dict()
    return {path: float(known[folded[path]]) for path in step_ranges["path"].unique() if folded[path] in known}


def filled(
    bare: pd.DataFrame, bare_steps: pd.DataFrame, gpu_ops: pd.DataFrame, step_ranges: pd.DataFrame,
    step_of_op: np.ndarray, folded: dict[str, str],
) -> dict[str, float]:  # fmt: skip
    """Return, by path of a step, the share of the bare time in which the GPU is busy with it and the steps around it.

    Only for kinds of steps that alternate, without a harness: one of them may wait while the GPU works for another.
    Whole rounds in the later half of the bare run count, on all threads of a process.
    """
    if bare_steps.empty or step_ranges.empty or (bare_steps["bare_from"] == HARNESS).any():
        return {}
    busy = gpu_ops["duration_ns"].groupby(step_of_op).sum().reindex(step_ranges.index).fillna(0.0)
    each = busy.groupby(step_ranges["path"].map(folded).to_numpy()).median()
    steps = bare[bare["range"].isin(each.index) & (bare["style"] == PUSH)]
    found: dict[str, float] = {}
    for _, own in steps.groupby("process"):
        own = own.sort_values("start_ns").iloc[len(own) // 2 :]
        own = own.iloc[: np.flatnonzero((own["range"] == own["range"].iloc[0]).to_numpy())[-1] + 1]
        kinds, span = own["range"].iloc[:-1], float(own["start_ns"].iloc[-1] - own["start_ns"].iloc[0])
        counts = kinds.value_counts()
        if len(counts) > 1 and counts.min() > 1 and span > 0:
            found |= dict.fromkeys(map(str, counts.index), float(kinds.map(each).sum()) / span)
    return {path: found[folded[path]] for path in step_ranges["path"].unique() if folded[path] in found}


def bare_gpu_ns(capture: Capture) -> dict[str, float]:
    timed = (capture.timing or {}).get("steps", [])
    return {step["range"]: float(step["gpu_ns"]["p50"]) for step in timed if step.get("gpu_ns")}


STEPS = (
    Column("step", "range of the step, repeated ones as one", "key"),
    Column("bare_wall_ns", "bare time, median without the first steps; never less than busy_ns", "timing"),
    Column("busy_ns", "busy_ns of gaps.csv, median of the instances", "timing"),
    Column("blocked_ns", "blocked_ns of gaps.csv, median of the instances", "timing"),
    Column("busy_frac", "busy_ns over bare_wall_ns", "timing", style="bar"),
    Column("launches", "kernels of a step, median", "timing", "1", shown=False),
    Column("timed", "steps that were timed without a profiler", "timing", "1", shown=False),
    Column("first_calls", "leading steps that took clearly longer than later ones; left out", "timing", "1"),
    Column("first_ns", "bare time of the first step", "timing"),
    Column("host_ns", "bare time by the host's clock; less than busy_ns if the host runs ahead of the GPU", "timing",
        shown=False),
    Column("bare_from", "method. harness: from timing.json. start to start: of neighbouring steps. start to end: "
        "the step ends in a synchronisation or has no neighbour", "row", shown=False),
)  # fmt: skip


def measure_kinds(facts: Facts) -> pd.DataFrame:
    """Return the measured columns of steps.csv: a row per kind of step timed without a profiler, in order of time."""
    bare_steps, gaps, step_ranges = facts.bare_steps, facts.gaps, facts.step_ranges
    if bare_steps.empty or step_ranges.empty or len(gaps) != len(step_ranges):
        return pd.DataFrame(columns=[*(one.name for one in STEPS), "evidence", "tier"])
    seen = gaps.assign(path=step_ranges["path"].to_numpy(), range=step_ranges["path"].map(facts.folded).to_numpy())
    rows = []
    for path, own in seen.groupby("range", sort=False):
        timed = bare_steps[bare_steps["range"] == path]
        if timed.empty:
            continue
        bare, host = timed.iloc[0], float(timed["bare_p50_ns"].iloc[0])
        busy, blocked, launches = (_median(own[name]) for name in ("busy_ns", "blocked_ns", "launches"))
        once = bare["steady"] == 1 and bare["bare_from"] != HARNESS
        evidence = "timed only once, so the time may include the costs of a first step" if once else ""
        wall = host if busy is None else max(host, busy)
        rows.append(
            {
                "step": path, "bare_wall_ns": wall, "busy_ns": busy, "blocked_ns": blocked,
                "busy_frac": np.nan if busy is None else busy / wall, "evidence": evidence,
                "launches": launches, "timed": bare["steady"], "first_calls": bare["first_calls"],
                "first_ns": bare["first_ns"], "host_ns": host, "bare_from": bare["bare_from"],
                "tier": "timing",
            }
        )  # fmt: skip
    names = ("bare_wall_ns", "busy_ns", "blocked_ns", "launches", "timed", "first_calls", "first_ns", "host_ns")
    return whole_numbers(pd.DataFrame(rows, columns=[*(one.name for one in STEPS), "evidence", "tier"]), names)


def _median(values: pd.Series) -> float | None:
    known = values.dropna()
    return float(known.astype(float).median()) if len(known) else None


@part("missing")
def _unmatched(facts: Facts) -> Missing | None:
    step_ranges = facts.step_ranges
    if facts.bare.empty or step_ranges.empty or facts.bare_wall_ns:
        return None
    return Missing(
        Reason.OTHER_RUN,
        "bare times of the steps",
        f"no step of the timeline ({step_ranges['path'].iloc[0]}) is a range of the bare run",
        "run the same program both times",
    )
