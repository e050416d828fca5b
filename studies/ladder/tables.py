"""Build the kernel ladder: one row for each point (op, variant, dtype, shape) with its time, counters and verdict.

The counters of a point cover all its launches. Counts are added up, and ratios are those of the sums. Shares of time
are weighted by time, costs per instruction by instructions. A property of one launch (its grid) is the longest one's.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.hardware import metrics
from analysis.tables.declare import Column, table
from analysis.tables.stalls import NOT_WAITING

FloatArray = npt.NDArray[np.float64]

POINT = (
    Column("op", "operation, as kernels.registry names it", "key"),
    Column("variant", "rung: one way to compute it", "key"),
    Column("dtype", "fp32 or bf16", "key"),
    Column("shape_name", "registered name of the shape", "key"),
)
BASELINES = ("triton", "compile", "torch")  # baselines that a benchmark pairs with each variant, round by round
PAIRED = tuple(
    Column(f"versus_{baseline}_{at}", f"time of `{baseline}` over this one's, paired by round: {at}", "timing", "1")
    for baseline in BASELINES
    for at in ("p5", "p50", "p95")
)
ISOLATED = (
    "one launch between two CUDA events, after a kernel that overwrites 256 MB: caches are cold, nothing overlaps it"
)
CHAINED = (
    "one launch of many in a CUDA graph, over more data than L2 holds; with programmatic dependent launch it may "
    "overlap the launch before"
)
TIMES = (
    Column("time_kind", "the kind of time that verdicts use: isolated if the shape has it, else chained", "key"),
    *(
        Column(f"bench_time_{at}_ns", f"the time that verdicts use, {what}", "timing", "ns")
        for at, what in (("p5", "5th percentile"), ("p50", "median"), ("p95", "95th percentile"))
    ),
    *(
        Column(f"{kind}_time_{at}_ns", f"{meaning}: {at}", "timing", "ns")
        for kind, meaning in (("isolated", ISOLATED), ("chained", CHAINED))
        for at in ("p5", "p50", "p95")
    ),
)
KEY = [column.name for column in POINT]
ROOT = "ladder"  # the outermost range around every launch of the ladder
Show = Callable[[str, Any], str]  # (column, value) -> text for people
# The times of one kernel in two runs differ by some per cent: the roofs by 2 %, clocks and temperatures by more.
ACROSS_RUNS = 0.05

# Columns of ladder.csv that come from the metric catalogue, some under another name.
COUNTERS = {
    "ncu_time_ns": "duration_ns",
    "dram_read_bytes": "dram_read_bytes",
    "dram_write_bytes": "dram_write_bytes",
    "compute_throughput_frac": "sm_throughput_frac",
    "memory_throughput_frac": "memory_throughput_frac",
    "dram_throughput_frac": "dram_throughput_frac",
    "l1_hit_frac": "l1_hit_frac",
    "l2_hit_frac": "l2_hit_frac",
    "inst_executed": "inst_executed",
    "global_load_inst": "global_load_inst",
    "occupancy_theoretical_frac": "occupancy_theoretical_frac",
    "occupancy_achieved_frac": "occupancy_achieved_frac",
    "grid_size": "grid_size",
    "registers": "registers",
    "shared_bytes_per_block": "shared_bytes_per_block",
    "waves": "waves",
    "branch_efficiency_frac": "branch_efficiency_frac",
    "sectors_per_request_load": "sectors_per_request_load",
    "sectors_per_request_store": "sectors_per_request_store",
    "local_bytes": "local_bytes",
    "fma_active_frac": "fma_active_frac",
    "tensor_active_frac": "tensor_active_frac",
    "warp_cycles_per_issue": "warp_cycles_per_issue",
}
# Further columns that the rows need: the share of uncoalesced sectors, the occupancy limiter, the stalls.
ALSO = (
    "coalescing_frac", "occupancy_limit_registers", "occupancy_limit_shared_mem", "occupancy_limit_warps",
    "occupancy_limit_blocks", "stalls",
)  # fmt: skip
# The parts of a row that may come from an older build -> the column that is true if they come from the present one.
OF_RUN = {"times": "time_current", "counters": "is_current"}
TIMED = ("bench_time_p50_ns", "achieved_flop_per_s")  # metrics from a benchmark, not from counters
# The words for a column in hypotheses.
WORDS = {
    "bench_time_p50_ns": "time",
    "achieved_flop_per_s": "throughput",
    "stall_barrier_frac": "barrier stalls",
    "stall_dispatch_stall_frac": "dispatch stalls",
    "measured_over_predicted": "DRAM bytes over predicted",
    "measured_over_minimum": "DRAM bytes over the minimum",
    "measured_bytes": "DRAM bytes",
    "dram_read_bytes": "DRAM read",
    "sectors_per_request_load": "sectors per load request",
    "sectors_per_request_store": "sectors per store request",
    "global_load_inst": "global load instructions",
    "fma_active_frac": "FMA pipe busy",
    "tensor_active_frac": "tensor pipe busy",
    "local_bytes": "local memory",
    "top_stall": "top stall",
    "occupancy_achieved_frac": "achieved occupancy",
    "l1_hit_frac": "L1 hit rate",
    "l2_hit_frac": "L2 hit rate",
    "uncoalesced_frac": "uncoalesced sectors",
    "warp_cycles_per_issue": "warp cycles per issue",
    "branch_efficiency_frac": "branch efficiency",
}


# ncu counts these with instrumented code, many times slower than the kernel, so not for kernels of 35 ms and more.
INSTRUMENTED = ("branch_efficiency_frac", "coalescing_frac")


def wanted_columns(*, slow: bool = False) -> list[str]:
    """Return the columns of the metric catalogue that a capture of the ladder needs (`ncu_capture.sh --columns`).

    For `slow` kernels only those that hardware counts.
    """
    columns = [*COUNTERS.values(), *ALSO]
    return [name for name in columns if not slow or name not in INSTRUMENTED]


# Counters ----------------------------------------------------------------------------------------------------

_WHOLE = ("ns", "byte", "inst", "block", "FLOP", "byte/s", "FLOP/s", "1/thread", "byte/block")  # units without halves
_PER_INSTRUCTION = ("_per_issue_active.ratio", "per_inst_issued.ratio")


def _is_count(metric: str) -> bool:
    return metric.endswith(".sum") or metric.startswith("memory_l2_theoretical") or metric == "launch__grid_size"


def by_point(counters: pd.DataFrame, units: Mapping[str, str]) -> pd.DataFrame:
    """Return one row for each range, with the counters of all its launches as if they were one launch.

    The columns are raw metrics, `launches`, and `kernel`, `grid` and `block` of the longest launch.

    Shape: `counters` from join.prepare_counters.
    """
    time, issued = "gpu__time_duration.sum", "smsp__inst_issued.sum"
    names = list(units)
    place = {name: at for at, name in enumerate(names)}
    values = counters[names].to_numpy(float)
    of_longest = np.array([name.startswith("launch__") and name != "launch__grid_size" for name in names], dtype=bool)
    counts = np.array([_is_count(name) for name in names], dtype=bool) & ~of_longest
    weight = np.array(
        [place[issued if name.endswith(_PER_INSTRUCTION) and issued in units else time] for name in names]
    )
    rows, places = [], []
    for path, launches in counters.groupby("path", sort=False).indices.items():
        if not str(path).startswith(f"{ROOT}/"):
            continue
        of_point = values[launches]
        times = of_point[:, place[time]]
        longest = int(np.nanargmax(times)) if not np.isnan(times).all() else 0
        row = of_point[longest].copy()
        if len(launches) > 1:
            row[counts] = of_point[:, counts].sum(axis=0)
            means = ~counts & ~of_longest
            row[means] = _weighted(of_point[:, means], of_point[:, weight[means]])
        rows.append(row)
        places.append((path, len(launches), launches[longest]))
    texts = counters[["kernel", "grid", "block", "cc"]].iloc[[at for _, _, at in places]].reset_index(drop=True)
    points = pd.DataFrame({"path": [path for path, _, _ in places], "launches": [size for _, size, _ in places]})
    found = pd.DataFrame(np.array(rows).reshape(-1, len(names)), columns=names)
    return pd.concat([points, texts, found], axis=1)


def _weighted(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the mean of each column, weighted; NaN where no row has both a value and a weight."""
    known = ~np.isnan(values) & ~np.isnan(weights)
    weights = np.where(known, weights, 0.0)
    total = weights.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, (np.where(known, values, 0.0) * weights).sum(axis=0) / total, np.nan)


def measured(counters: pd.DataFrame, units: Mapping[str, str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return (counter columns of ladder.csv with KEY, stall shares with KEY) of one run.

    Raises:
        InputError: a metric is not in base units.
    """
    points = by_point(counters, units)
    derived = metrics.derive(points, dict(units))
    parts = points["path"].str.split("/", expand=True).reindex(columns=range(1, 5)).set_axis(KEY, axis=1)
    counted = derived[list(COUNTERS.values())].set_axis(list(COUNTERS), axis=1)
    frame = pd.concat([points[["launches", "kernel", "grid", "block"]], parts, counted], axis=1)
    frame["uncoalesced_frac"] = 1 - derived["coalescing_frac"]
    frame["occupancy_limiter"] = derived["occupancy_limiter"]
    frame["measured_bytes"] = frame["dram_read_bytes"] + frame["dram_write_bytes"]
    shares = _stall_shares(frame, derived)
    waits = shares[~shares["reason"].isin(NOT_WAITING)]
    top = waits.drop_duplicates(KEY).rename(columns={"reason": "top_stall", "share_frac": "top_stall_frac"})
    return frame.merge(top, on=KEY, how="left"), shares


def _stall_shares(frame: pd.DataFrame, derived: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of the stall reasons of each point, largest first."""
    names = [name for name in derived if name.startswith("stall_") and name != "stall_selected"]
    stalls = derived[names].rename(columns=lambda name: name.removeprefix("stall_"))
    shares = stalls.div(stalls.sum(axis=1, min_count=1), axis=0)
    long = pd.concat([frame[KEY], shares], axis=1).melt(KEY, var_name="reason", value_name="share_frac")
    long = long[long["share_frac"] > 0]
    return long.sort_values([*KEY, "share_frac", "reason"], ascending=[*[True] * 4, False, True], ignore_index=True)


def hottest(lines: pd.DataFrame, counters: pd.DataFrame) -> pd.DataFrame:
    """Return each point's hottest source line in one run: KEY, hot_line, hot_line_frac, hot_line_stall, hot_line_text.

    Shape: `lines` as ncu_lines.csv. The match_key of the kernel and the ordinal among its launches identify a launch.
    """
    columns = [*KEY, "hot_line", "hot_line_frac", "hot_line_stall", "hot_line_text"]
    if lines.empty or counters.empty:
        return pd.DataFrame(columns=columns)
    launches = counters.sort_values("ncu_id", kind="stable")
    launches = launches.assign(ordinal=launches.groupby("symbol").cumcount())[["symbol", "ordinal", "path"]]
    placed = lines.merge(launches, left_on=["kernel", "ordinal"], right_on=["symbol", "ordinal"])
    if placed.empty:
        return pd.DataFrame(columns=columns)
    placed["hot_line"] = placed["source_file"] + ":" + placed["line"].astype(str)
    whole = placed.drop_duplicates(["path", "kernel", "ordinal"]).groupby("path")["launch_samples"].sum()
    placed = placed.sort_values("stall_samples", ascending=False, kind="stable")
    table = placed.groupby(["path", "hot_line"], sort=False).agg(
        samples=("samples", "sum"), hot_line_stall=("stall", "first"), hot_line_text=("text", "first")
    )
    table = table.reset_index().sort_values(["path", "samples", "hot_line"], ascending=[True, False, True])
    table = table.drop_duplicates("path")
    table["hot_line_frac"] = table["samples"] / table["path"].map(whole)
    parts = table["path"].str.split("/", expand=True).reindex(columns=range(5))
    for at, name in enumerate(KEY, start=1):
        table[name] = parts[at]
    return table[columns]


# Which measurement counts ------------------------------------------------------------------------------------


def choose(points: pd.DataFrame, candidates: pd.DataFrame) -> pd.DataFrame:
    """Choose the measurement of each point that counts.

    A measurement of the present source comes first, then one of an unknown source, then one of an older source. Among
    equals, the last counts.

    Shape: `points` with KEY, shape and fingerprint; `candidates` with KEY, shape, fingerprint, rows in time order. The
    result has KEY, `is_current` (True, False, or NA for an unknown fingerprint) and the other columns of `candidates`.
    """
    now = points[[*KEY, "shape", "fingerprint"]].rename(columns={"fingerprint": "now"})
    table = candidates.merge(now, on=[*KEY, "shape"])
    same, unknown = table["fingerprint"] == table["now"], table["fingerprint"].fillna("") == ""
    table["is_current"] = same.astype("boolean").mask(unknown & ~same)
    table["rank"] = np.select([same, unknown], [2, 1], 0)
    table["order"] = range(len(table))
    table = table.sort_values(["rank", "order"]).drop_duplicates(KEY, keep="last")
    return table.drop(columns=["rank", "order", "now", "fingerprint", "shape"]).reset_index(drop=True)


def build_ladder(
    points: pd.DataFrame, times: pd.DataFrame, counters: pd.DataFrame, checks: pd.DataFrame
) -> pd.DataFrame:
    """Return ladder.csv without its verdicts.

    Shape: `points` as in ladder.json; the others from `choose`. `times` has the columns of bench.csv and `bench_run`,
    `counters` those of `measured` and `hottest` and `run`, `checks` has `passed` and `note`.
    """
    timed = times.rename(columns={"is_current": "time_current"})
    table = points.merge(timed, on=KEY, how="left").merge(counters, on=KEY, how="left")
    table = table.merge(checks.rename(columns={"is_current": "check_current"}), on=KEY, how="left")
    table["library"] = _library(table)
    p50 = table.set_index(KEY)["bench_time_p50_ns"]

    def times_faster(other: str) -> pd.Series:
        keys = pd.MultiIndex.from_frame(table[["op", other, "dtype", "shape_name"]])
        return pd.Series(p50.reindex(keys).to_numpy(float) / p50.to_numpy(float), index=table.index)

    table["versus_below"] = times_faster("rung_below")
    plain = times_faster("library")
    for quantile in ("p5", "p50", "p95"):
        paired = table["versus_torch_" + quantile].astype(float)
        table["versus_library_" + quantile] = paired.where(table["library"] == "torch")
    table["versus_library_p50"] = table["versus_library_p50"].fillna(plain)
    for over in ("predicted", "minimum"):
        below = table[f"{over}_bytes"].astype(float)
        table[f"measured_over_{over}"] = table["measured_bytes"] / below.where(below > 0)
    table["achieved_flop_per_s"] = table["achieved_flop_per_s"].where(table["compute_bound"])
    hot = [name for name in table if name.startswith("hot_line")]
    table[hot] = table[hot].where(table["kind"].isin(["cuda", "triton"]))  # code that a compiler wrote is not kept
    captured = table["ncu_time_ns"].notna()
    older = {name: table[column].eq(False).fillna(False) for name, column in OF_RUN.items()}
    stale = [" ".join(name for name in older if older[name][row]) for row in table.index]
    failed = table["passed"].eq("no") & table["check_current"].eq(True).fillna(False)
    state = np.select([failed, [bool(what) for what in stale], ~captured], ["failed", "stale", "missing"], "current")
    tier = np.select([captured, table["bench_time_p50_ns"].notna()], ["counters", "timing"], "static")
    return table.assign(state=state, stale=stale, tier=tier, failure=table["note"].astype(object).where(failed, ""))


def _library(table: pd.DataFrame) -> pd.Series:
    """Return the fastest library variant for each op, dtype and shape, in the precision of the dtype.

    '' if none is timed.
    """
    group = ["op", "dtype", "shape_name"]
    known = table[table["is_library"].astype(bool) & table["bench_time_p50_ns"].notna()]
    fastest = known.sort_values("bench_time_p50_ns", kind="stable").drop_duplicates(group).set_index(group)["variant"]
    keys = pd.MultiIndex.from_frame(table[group])
    return pd.Series(fastest.reindex(keys).fillna("").to_numpy(object), index=table.index)


# Verdicts ----------------------------------------------------------------------------------------------------


@table(
    "hypotheses",
    question="Which hypotheses of the rungs held?",
    columns=(
        *POINT,
        Column("at", "name of the shape that the hypothesis is about", "key"),
        Column("metric", "column of ladder.csv, or stall_<reason>_frac", "key"),
        Column("versus", "variant (or floor) whose value it is divided by, if any", "key"),
        Column(
            "stated", "whether the rung declares it; else it is the rule about bytes that holds for every rung", "key"
        ),
        Column("low", "lower bound of what is expected; blank: none", "key"),
        Column("high", "upper bound of what is expected; blank: none", "key"),
        Column("equals", "text that is expected", "key"),
        Column("refuted_low", "below this the hypothesis is refuted; blank: below `low`", "key"),
        Column("refuted_high", "above this the hypothesis is refuted; blank: above `high`", "key"),
        Column("found", "what was found, in the unit of the metric or as a ratio", "row"),
        Column("what", "metric and versus in words", "row"),
        Column("found_text", "what was found, in words, with the bounds", "row"),
        Column(
            "verdict",
            "reached: what is expected was found; refuted: it is beyond what refutes; not refuted: between, also "
            "a ratio of times of two runs near a bound; or not measured",
            "row",
        ),
    ),
)
def build_hypotheses(
    declared: pd.DataFrame, rungs: pd.DataFrame, every_time: pd.DataFrame, stall_shares: pd.DataFrame, show: Show
) -> pd.DataFrame:
    """Return hypotheses.csv: the declared bounds of each variant beside the measured values.

    Shape: `declared` as in ladder.json; `rungs` from build_ladder; `every_time` as ladder_times.csv, for times at
    shapes that are no points; `stall_shares` as ladder_stalls.csv, for the metrics `stall_<reason>_frac`.
    """
    by_key = {tuple(row[name] for name in KEY): row for part in (every_time, rungs) for row in part.to_dict("records")}
    shares = {
        tuple(row[name] for name in (*KEY, "reason")): row["share_frac"] for row in stall_shares.to_dict("records")
    }

    def value(key: tuple[str, ...], metric: str) -> Any:
        if metric.startswith("stall_"):
            reason = metric.removeprefix("stall_").removesuffix("_frac")
            known = any(one[:4] == key for one in shares)
            return shares.get((*key, reason), 0.0) if known else None
        return by_key[key].get(metric) if key in by_key else None

    rows = []
    for said in declared.to_dict("records"):
        key = tuple(str(said[name]) for name in KEY)
        if key not in by_key:
            continue
        metric, versus = said["metric"], said["versus"]
        place = key if _unknown(said["at"]) else (*key[:3], said["at"])
        found, apart = value(place, metric), False
        if versus and not _unknown(found):
            own, beside = by_key[place], (key[0], versus, *place[2:])
            of_time = metric == "bench_time_p50_ns"
            paired: Any = own.get("versus_torch_p50") if of_time and versus == "torch" else None
            other = own["floor_time_ns"] if versus == "floor" else value(beside, metric)
            if not _unknown(paired):
                found = 1 / float(paired)  # paired round by round in one run
            elif _unknown(other) or not other:
                found = None
            else:
                found /= other
                apart = of_time and versus != "floor" and own["bench_run"] != by_key[beside]["bench_run"]
        rows.append(dict(zip(KEY, key, strict=True)) | {"at": place[-1]} | _judged(said, found, show, apart=apart))
    judged = pd.DataFrame(rows, columns=[column.name for column in build_hypotheses.columns])
    return judged.assign(tier=np.where(judged["metric"].isin(TIMED), "timing", "counters"))


def _unknown(value: Any) -> bool:
    return value is None or value is pd.NA or value == "" or (isinstance(value, float) and np.isnan(value))


def _end(value: Any) -> float | None:
    return None if _unknown(value) else float(value)


def _verdict_of(found: float, expected: Sequence[float | None], refuting: Sequence[float | None], spread: float) -> str:
    """Return "reached", "not refuted" or "refuted". `spread` is the factor by which the value may be off either way."""

    def outside(value: float, ends: Sequence[float | None]) -> bool:
        low, high = ends
        return (low is not None and value < low) or (high is not None and value > high)

    least, most = found / spread, found * spread
    if not outside(least, expected) and not outside(most, expected):
        return "reached"
    low, high = refuting
    return "refuted" if outside(most, (low, None)) or outside(least, (None, high)) else "not refuted"


def _judged(said: Mapping[str, Any], found: Any, show: Show, *, apart: bool) -> dict[str, Any]:
    """Return a row of hypotheses.csv without its key.

    `apart`: a ratio of times of two runs, not judged near its bounds.
    """
    metric, versus, equals = said["metric"], said["versus"], said["equals"]
    low, high = _end(said["low"]), _end(said["high"])
    low = low if low else None  # no measurement is below 0
    column = "" if versus else metric  # a ratio has no unit
    ends = [f"{sign} {show(column, end)}" for sign, end in (("≥", low), ("≤", high)) if end is not None]
    bounds = f"is {equals}" if equals else " and ".join(ends) or "any"
    words = WORDS.get(metric, metric.removesuffix("_frac").replace("_", " "))
    than = f" over {'the floor' if versus == 'floor' else f'`{versus}`'}" if versus else ""
    than += "" if _unknown(said["at"]) else f" at {said['at']}"
    beyond = [low if (end := _end(said.get("refuted_low"))) is None else end,
              high if (end := _end(said.get("refuted_high"))) is None else end]  # fmt: skip
    if _unknown(found):
        verdict = "not measured"
    elif equals:
        verdict = "reached" if found == equals else "refuted"
    else:
        verdict = _verdict_of(found, (low, high), beyond, 1 + ACROSS_RUNS if apart else 1)
    shown = "not measured" if _unknown(found) else show(column, found)
    if verdict == "refuted" and any(end is not None and shown == show(column, end) for end in (low, high)):
        shown = f"{found:.6g}"  # show more digits: the usual ones equal those of the bound
    runs = ", timed in different runs" if apart else ""
    runs += ": too near its bounds to judge" if apart and verdict == "not refuted" else ""
    return {
        "metric": metric, "versus": versus, "stated": bool(said["stated"]), "low": low, "high": high, "equals": equals,
        "refuted_low": _end(said.get("refuted_low")), "refuted_high": _end(said.get("refuted_high")),
        "found": None if equals or _unknown(found) else float(found),
        "what": f"{words}{than}", "found_text": f"{words}{than} {shown} ({bounds}){runs}", "verdict": verdict,
    }  # fmt: skip


@table(
    "ladder",
    question="How long does each rung take, what does it move and wait for, and does its hypothesis hold?",
    columns=(
        *POINT,
        Column("folder", "where the op lives under kernels/", "key"),
        Column("kind", "torch, compile, library, cuda or triton", "key"),
        Column("rung", "place in the op's declaration, from 0", "static", "1"),
        Column("best", "whether the op runs it on this dtype where no variant is named", "key"),
        Column("library", "fastest variant of the library at this dtype and shape, not in lower precision", "key"),
        Column("precision", "precision of its arithmetic; blank: that of its dtype", "key"),
        Column("macros", "macros that a sweep found faster than the defaults, over all dtypes and shapes", "key"),
        Column("refuses", "registered shapes that it does not take, and why", "key"),
        Column("shape", "sizes, in the order of `axes`", "key"),
        Column("axes", "names of the axes, with commas between", "key"),
        Column(
            "at_bench_shape", "whether the row belongs to the op's ladder; else a claim or a hypothesis needs it", "key"
        ),
        Column("hypothesis", "what the variant declares", "key"),
        *TIMES,
        Column("sm_clock_mhz", "median clock of the SMs in the run of the times", "timing", "MHz"),
        Column("minimum_bytes", "least bytes: needed inputs read once, outputs written once", "static"),
        Column("predicted_bytes", "what this variant should move", "static", label="bytes predicted"),
        Column("flops", "operations of the op", "static"),
        Column("compute_bound", "whether the op's floor counts the operations", "key"),
        Column("reads_only", "whether its floor is the read bandwidth", "key"),
        Column("achieved_byte_per_s", "minimum_bytes over the median time", "timing"),
        Column("achieved_flop_per_s", "flops over the median time, of compute-bound ops", "timing"),
        Column("floor_time_ns", "the least time by the measured roofs", "static"),
        Column("floor_frac", "floor_time_ns over the median time: of the measured roof", "timing"),
        Column("rung_below", "nearest earlier CUDA rung that takes this dtype and shape", "key"),
        Column("versus_below", "times faster than that rung, of medians", "timing", "1"),
        Column("versus_library_p5", "times faster than the library, paired by round, 5th percentile", "timing", "1"),
        Column("versus_library_p50", "median", "timing", "1"),
        Column("versus_library_p95", "95th percentile", "timing", "1"),
        *PAIRED,
        Column("launches", "kernels in the range", "timing", "1"),
        Column("kernel", "name of the longest one", "key"),
        Column("ncu_time_ns", "sum over the launches, replayed alone from cold caches", "counters"),
        Column("dram_read_bytes", "bytes that came from DRAM, sum", "counters"),
        Column("dram_write_bytes", "bytes that went to DRAM before the kernels ended, sum", "counters"),
        Column("measured_bytes", "the two together", "counters", label="bytes measured"),
        Column("measured_over_predicted", "measured_bytes over predicted_bytes", "counters", "1"),
        Column("measured_over_minimum", "measured_bytes over minimum_bytes", "counters"),
        Column("compute_throughput_frac", "busiest pipe of the SM over its peak, weighted by time", "counters"),
        Column(
            "memory_throughput_frac", "busiest part of the memory system over its peak, weighted by time", "counters"
        ),
        Column("dram_throughput_frac", "DRAM throughput over the peak that ncu assumes, weighted by time", "counters"),
        Column("l1_hit_frac", "sectors found in L1, weighted by time", "counters"),
        Column("l2_hit_frac", "sectors found in L2, weighted by time; may exceed 1 by some thousandths", "counters"),
        Column("inst_executed", "warp instructions, sum", "counters", "inst"),
        Column("global_load_inst", "of these, global loads", "counters", "inst"),
        Column("occupancy_theoretical_frac", "warps that fit on an SM over its maximum, weighted by time", "static"),
        Column(
            "occupancy_achieved_frac", "warps resident on an active SM over its maximum, weighted by time", "counters"
        ),
        Column("occupancy_limiter", "the resource that limits the blocks on an SM", "row"),
        Column("grid", "grid of the longest kernel, XxYxZ blocks", "key"),
        Column("block", "its block, XxYxZ threads", "key"),
        Column("grid_size", "blocks, sum over the launches", "static", "block"),
        Column("registers", "of the longest kernel", "static", "1/thread"),
        Column("shared_bytes_per_block", "of the longest kernel", "static", "byte/block"),
        Column("waves", "of the longest kernel: its grid over what the GPU holds at once", "static", "1"),
        Column("branch_efficiency_frac", "share of branches that do not diverge; blank without branches", "counters"),
        Column(
            "sectors_per_request_load",
            "of global loads; best: 4, 8 or 16 for loads of 4, 8 or 16 bytes a thread",
            "counters",
            "sector/request",
        ),
        Column("sectors_per_request_store", "of global stores", "counters", "sector/request"),
        Column(
            "uncoalesced_frac",
            "share of the sectors of global accesses that coalesced accesses would not need",
            "counters",
        ),
        Column("local_bytes", "local-memory traffic through L1, sum", "counters"),
        Column("fma_active_frac", "cycles in which the FMA pipe worked", "counters"),
        Column("tensor_active_frac", "cycles in which the tensor pipe worked", "counters"),
        Column("warp_cycles_per_issue", "cycles between two instructions of a warp", "counters", "cycle"),
        Column("top_stall", "largest stall reason; a ready warp (not_selected) does not wait", "row"),
        Column("top_stall_frac", "its share of the cycles of all warps that do not issue", "counters"),
        Column("hot_line", "source line with most samples, file:line", "row"),
        Column("hot_line_frac", "its share of the samples", "counters"),
        Column("hot_line_stall", "what its samples wait for most", "row"),
        Column("hot_line_text", "its text", "row"),
        Column("verdict", "on the rung's hypotheses, or without one on the rule about bytes; refuted if one is", "row"),
        Column("verdict_by", "the metrics that decide the verdict, in words", "row"),
        Column("verdict_brief", "verdict_by, with shapes counted", "row"),
        Column(
            "verdict_why",
            "what was measured, refuted hypotheses first; then results that the rung does not declare",
            "row",
        ),
        Column("fingerprint", "of the sources as they are now", "key"),
        Column("state", "current; stale: see there; missing: no counters; failed: its check failed", "row"),
        Column(
            "stale", "which numbers come from an older build (times, counters or both): source or macros changed", "row"
        ),
        Column("run", "run of the counters", "key"),
        Column("bench_run", "benchmark or run of the times", "key"),
    ),
)
def with_verdicts(rungs: pd.DataFrame, hypotheses: pd.DataFrame) -> pd.DataFrame:
    """Return ladder.csv: `rungs` with the verdict on the hypotheses that each rung states.

    The verdict is the worst of the parts, in the order refuted, not measured, not refuted, reached. The rule about
    bytes for every rung decides only if a rung states nothing else; otherwise it comes last, marked as not stated. Each
    shape has its own hypotheses; only those count at a shape other than the bench shape.
    """
    order = {"refuted": 0, "not measured": 1, "not refuted": 2, "reached": 3}
    ranked = hypotheses.assign(order=hypotheses["verdict"].map(order))
    verdicts: dict[tuple[str, ...], tuple[str, list[tuple[str, str]], str]] = {}
    elsewhere = ranked[ranked["at"] != ranked["shape_name"]]
    ranked = pd.concat([ranked, elsewhere.assign(shape_name=elsewhere["at"])], ignore_index=True)
    ranked = ranked.sort_values("order", kind="stable", ignore_index=True)
    for key, rows in ranked.groupby(KEY, sort=False):
        judged = rows[rows["stated"]] if rows["stated"].any() else rows
        known = rows[(rows["verdict"] != "not measured") | rows["found"].notna()]
        decides = known.index.isin(judged.index)
        told = [*known.loc[decides, "found_text"]]
        told += [f"{text}, not stated by the rung" for text in known.loc[~decides, "found_text"]]
        verdict = judged["verdict"].iloc[0]
        decided = judged[judged["verdict"] == verdict]
        by = list(zip(decided["what"], decided["at"], strict=True))
        verdicts[tuple(map(str, key))] = (verdict, by, "; ".join(told))
    keys: Iterable[tuple[str, ...]] = rungs[KEY].itertuples(index=False, name=None)
    found = [verdicts.get(key, ("not measured", [], "")) for key in keys]
    parts = [[("its check", "")] if note else by for (_, by, _), note in zip(found, rungs["failure"], strict=True)]
    table = rungs.assign(
        verdict=[verdict for verdict, _, _ in found],
        verdict_by=[", ".join(what for what, _ in by) for by in parts],
        verdict_brief=[_brief(by) for by in parts],
        verdict_why=[
            f"its check failed: {note}" if note else why
            for (_, _, why), note in zip(found, rungs["failure"], strict=True)
        ],
    )
    table.loc[table["failure"] != "", "verdict"] = "refuted"
    order_by = ["op", "dtype_order", "at_bench_shape", "shape_name", "rung"]
    table["dtype_order"] = table["dtype"].map({"fp32": 0, "bf16": 1}).fillna(2)
    table = table.sort_values(order_by, ascending=[True, True, False, True, True], kind="stable")
    whole = [column.name for column in with_verdicts.columns if column.unit in _WHOLE or column.name == "launches"]
    return table[with_verdicts.column_names].assign(
        **{name: table[name].astype("Float64").round().astype("Int64") for name in whole}
    )


def _brief(parts: Sequence[tuple[str, str]]) -> str:
    """Return parts of hypotheses, each (in words, at which shape), in words, equal ones at several shapes as one."""
    counts = Counter(what.removesuffix(f" at {at}") for what, at in parts)
    return ", ".join(one if count == 1 else f"{one} at {count} shapes" for one, count in counts.items())


@table(
    "ladder_stalls",
    question="What do the warps of each rung wait for?",
    columns=(
        *POINT,
        Column("reason", "stall reason, as ncu names it", "row", style="prose"),
        Column("share_frac", "share of all stall cycles, `selected` left out", "counters", style="bar"),
    ),
)
def build_stalls(stall_shares: pd.DataFrame) -> pd.DataFrame:
    """Return ladder_stalls.csv from the stall shares of the chosen points."""
    return stall_shares[[*KEY, "reason", "share_frac"]].assign(tier="counters")
