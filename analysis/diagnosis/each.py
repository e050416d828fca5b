"""Explain the time of each kernel: the causes, the gain of each cure, and the command for a closer look."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.diagnosis.again import Program, program_of, recapture
from analysis.diagnosis.claims import parts
from analysis.diagnosis.hot import reasons_of_each, time_column
from analysis.diagnosis.judge import Verdict, Verdicts, judge
from analysis.diagnosis.kernel_rules.rule import FULL
from analysis.diagnosis.limits import Limits, find_limits, why_none
from analysis.diagnosis.reasons import CONFLICTS, Tables
from analysis.diagnosis.sampled_reasons import reasons as sampled_reasons
from analysis.diagnosis.vocabulary import CAUSE, SURE, cure, words
from analysis.formats import symbols
from analysis.formats.place import here
from analysis.formats.words import begin, share
from analysis.hardware.devices import has_tf32
from analysis.planning.select import exact_filters
from analysis.tables.declare import Column, Facts, table
from analysis.tables.graphs import of_graphs

MOST_KERNELS = 100  # kernels with most time, which also get reasons from the other tables; the rest take little time
KEY = ["kernel", "range"]
# Shares and rates of a launch. Their mean over launches is weighted by time; other means are not.
_SHARES = re.compile(r".*_frac|sectors_per_request_.*|threads_per_inst|stall_.*|sm_clock_hz|.*_per_block|registers|"
                     r"waves|occupancy_limit_.*|shared_ways_load|ipc|warp_cycles_per_issue|eligible_warps")  # fmt: skip
WEIGHED = "No counter shows it alone: together, they resemble those of kernels with this cause."
TIE = 0.8  # causes whose likelihoods are this near cannot be told apart
NO_CAUSE = "We do not know what keeps it from its limit"
NO_RULE = ("no rule holds", "no rule holds that its caller could act on")  # of an own kernel, of one of a library
LONGEST_FILTER = 1000  # characters: instead of a longer filter, the command gives the number among all launches
TIMES_ALONE = "times alone tell no cause; counters would"


def tables_of_kernels(facts: Facts) -> Tables:
    """Return the tables that may explain the time of a kernel, by name.

    `graphed` has the launches of each kernel that CUDA graphs made, `conflicts` a launch's bank conflicts on average.
    """
    gpu_ops = facts.gpu_ops
    names = gpu_ops.loc[facts.once(of_graphs) & gpu_ops["kind"].eq("kernel"), "name"].value_counts()
    graphed = names.groupby([symbols.key(str(one)) for one in names.index]).sum()
    return {
        "kernels": facts.kernels, "rules": facts.rules, "roofline": facts.roofline, "stalls": facts.stalls,
        "source": facts.source, "host": facts.host, "counters": facts.counters,
        "units": facts.units,
        "graphed": pd.DataFrame({"kernel": graphed.index, "launches": graphed.to_numpy()}),
        "conflicts": pd.DataFrame() if facts.capture.counters.empty else _conflicts(facts.measured),
    }  # fmt: skip


def _conflicts(measured: pd.DataFrame) -> pd.DataFrame:
    names = [name for name in (*CONFLICTS, "shared_ways_load") if name in measured]
    return measured.groupby("kernel", sort=False)[names].mean().reset_index() if names else pd.DataFrame()


def limits_of_gpu(facts: Facts) -> Limits | None:
    """Return the limits of the GPU; None if it has no declared thresholds."""
    return find_limits(facts.device, facts.sm_count, facts.allowed_ceilings[0])


def mean_launches_of(facts: Facts) -> pd.DataFrame:
    return mean_launches(with_minimum(facts.measured, facts.capture.ops))


def with_minimum(measured: pd.DataFrame, ops: pd.DataFrame | None) -> pd.DataFrame:
    """Return the launches with `minimum_bytes` of ops.csv, if a launch is alone in a range that ops.csv declares."""
    if ops is None or measured.empty:
        return measured
    declared = ops.groupby("range")["minimum_bytes"].sum(min_count=1).astype("Float64")
    alone = ~measured["path"].duplicated(keep=False)
    return measured.assign(minimum_bytes=measured["path"].map(declared).where(alone))


def mean_launches(measured: pd.DataFrame) -> pd.DataFrame:
    """Return the mean launch with counters of each kernel and range, and the longest one, for a closer look with ncu.

    Shape: KEY, grid, block, path, in_path, in_all, launches, the catalogue's columns. `in_path` and `in_all` belong to
    the longest launch. They are the number of earlier launches of its name, as ncu matches it, under its ranges and in
    all. `measured` as of kernels.measured_launches.
    """
    if not _is_measured(measured).any():
        return pd.DataFrame(columns=[*KEY, "grid", "block", "path", "in_path", "in_all", "launches"])
    rows = _numbered(measured)
    rows = rows[_is_measured(rows)]
    numbers = rows.select_dtypes("number").columns.difference(["in_path", "in_all", "nsys_time_ns"])
    values = rows[numbers].dropna(axis=1, how="all").astype(np.float64)
    weight = values["duration_ns"] if "duration_ns" in values else pd.Series(1.0, index=rows.index)
    shares = [name for name in values if _SHARES.fullmatch(name)]
    keys = [rows["kernel"], rows["range"]]
    means = values.groupby(keys, sort=False).mean()
    known = values[shares].notna().mul(weight, axis=0)
    weighed = values[shares].mul(weight, axis=0).groupby(keys, sort=False).sum(min_count=1)
    means[shares] = weighed / known.groupby(keys, sort=False).sum().replace(0.0, np.nan)
    longest = weight.fillna(0.0).groupby(keys, sort=False).idxmax()
    chosen = rows.loc[longest, ["grid", "block", "path", "in_path", "in_all"]].set_index(longest.index)
    return pd.concat([chosen, means, rows.groupby(keys, sort=False).size().rename("launches")], axis=1).reset_index()


def _is_measured(rows: pd.DataFrame) -> pd.Series:
    """Return whether the counters of each launch are its own."""
    return rows["counters_from"] == "measured" if "counters_from" in rows else pd.Series(True, index=rows.index)


def _numbered(measured: pd.DataFrame) -> pd.DataFrame:
    """Return the launches numbered from 0 within their function: `in_path` under their ranges, `in_all` in all."""
    base = measured["kernel"].map({name: symbols.base(name) for name in measured["kernel"].unique()})
    return measured.assign(
        in_path=measured.groupby([base, measured["path"]], sort=False).cumcount(),
        in_all=measured.groupby(base).cumcount(),
    )


def _longest(measured: pd.DataFrame, kernels: set[str]) -> pd.DataFrame:
    """Return the longest launch of each of these kernels by nsys. Shape: kernel, path, in_path, in_all.

    The numbers are those of `_numbered`, counted for these launches alone.
    """
    codes, names = pd.factorize(measured["kernel"])
    of_base = pd.factorize(np.array([symbols.base(str(name)) for name in names], dtype=object))[0][codes]
    of_path, paths = pd.factorize(measured["path"])
    times = measured["nsys_time_ns"].to_numpy(np.float64, na_value=0.0)
    most, longest = np.zeros(len(names)), np.empty(len(names), np.int64)
    np.maximum.at(most, codes, times)
    long = np.flatnonzero(times == most[codes])
    longest[codes[long]] = long  # of the launches of one kernel, the last one stays
    rows = []
    for name, at in zip(names, longest, strict=True):
        if name in kernels:
            alike = of_base[:at] == of_base[at]
            inside = alike & (of_path[:at] == of_path[at])
            rows.append((name, paths[of_path[at]], np.count_nonzero(inside), np.count_nonzero(alike)))
    return pd.DataFrame(rows, columns=["kernel", "path", "in_path", "in_all"])


def judge_launches(facts: Facts) -> Verdicts | None:
    """Return the verdicts of the rules on each kernel and range with counters; None if no rule applies to this GPU."""
    mean_launches, gpu_limits = facts.once(mean_launches_of), facts.once(limits_of_gpu)
    return judge(mean_launches, gpu_limits) if gpu_limits and len(mean_launches) else None


def _times(kernels: pd.DataFrame) -> pd.Series:
    """Return the time in ns of each kernel and range in the whole program: from nsys with a timeline, else from ncu."""
    times = kernels.assign(time=kernels[time_column(kernels)].astype("Float64"))
    return times.groupby(KEY, sort=False, dropna=False)["time"].sum()


def _lines(source: pd.DataFrame) -> dict[str, str]:
    """Return the hottest line of each kernel, with the stall reason of its hottest instruction."""
    rows = source.sort_values("share_frac", ascending=False, kind="stable").drop_duplicates("kernel")
    return {
        str(row.kernel): f"{row.place}: {row.text}" + (f" ({row.stall})" if row.stall else "")
        for row in rows.itertuples()
    }


def _refuted(one: Verdict) -> str:
    """Return what fixes of the cause save, and what speaks against it; "" if nothing does."""
    if not one.refuted:
        return ""
    least, most = share(one.saves.low or 0.0), share(one.saves.high or 0.0)
    return f"This could save {least} to {most} of its time. Wrong if: {one.refuted}"


def _tied(found: list[Verdict]) -> str:
    """Return a sentence on the causes that are about as likely as the first one, '' without any."""
    others = [words(one.defect)["what"] for one in found[1:] if one.sure >= TIE * found[0].sure]
    return f"About as likely: {' '.join(others)}" if others else ""


def _again(row: Any, filters: dict[str, str], program: Program) -> str:
    """Return the command that captures the launch of a row with `kernel`, `path`, `in_path` and `in_all`."""
    nvtx = filters.get(row.path, "")
    if 0 < len(nvtx) <= LONGEST_FILTER:
        return recapture(row.kernel, (nvtx,), row.in_path, program)
    return recapture(row.kernel, program.include, row.in_all, program)


def _unsettled(verdicts: Verdicts, place: int) -> str:
    """Return the question that the collected metrics leave open, in words; '' for none."""
    open_causes, unknown = verdicts.unsettled(place), verdicts.evidence.limits.unknown
    said = f"full sections would settle: {', '.join(open_causes)}" if open_causes else ""
    if not unknown:
        return said
    lacking = f"not known of compute capability {verdicts.evidence.limits.cc}: {', '.join(unknown)}"
    return f"{said}; {lacking}" if said else lacking


def _judged(
    mean: pd.DataFrame, verdicts: Verdicts | None, why: str, tables: Tables, filters: dict[str, str], program: Program
) -> Iterator[dict[str, Any]]:
    """Yield a row for each verdict, and one for each kernel and range without one; `why` explains missing verdicts."""
    times, lines = _times(tables["kernels"]), _lines(tables["source"])
    for place, row in enumerate(mean[[*KEY, "path", "in_path", "in_all"]].itertuples(index=False)):
        found = verdicts.of(place) if verdicts else []
        total = float(times.get((row.kernel, row.range), np.nan))
        common = {
            "kernel": row.kernel,
            "range": row.range,
            "source_line": lines.get(row.kernel, pd.NA),
            "recapture": _again(row, filters, program),
            "tier": "counters",
        }
        left = {"unsettled": (_unsettled(verdicts, place) if verdicts else "") or pd.NA}
        if not found:
            because = (verdicts.why[place] if verdicts else why) or NO_RULE[symbols.is_closed(str(row.kernel))]
            yield common | left | {"reason": f"{NO_CAUSE}: {because}."}
        for one in found:
            low, high = one.saves.low or 0.0, one.saves.high or 0.0
            yield (
                common
                | (left if one.rank == 1 else {})
                | {
                    "rank": one.rank,
                    "defect": one.defect,
                    "sure_frac": one.sure,
                    "gain_low_frac": round(low, 4),
                    "gain_bound_frac": round(high, 4),
                    "least_to_win_ns": round(low * total) if total == total else pd.NA,
                    "time_to_win_ns": round(high * total) if total == total else pd.NA,
                    "evidence": "; ".join(f"{name} = {value:.6g}" for name, value in one.cells if not np.isnan(value))
                    or pd.NA,
                    "reason": words(one.defect)["what"],
                    "do": cure(one.defect, str(row.kernel)),
                    "doubt": _joined(
                        _refuted(one), WEIGHED if one.weighed else "", _tied(found) if one.rank == 1 else ""
                    ),
                    "metrics": "full sections" if one.tier == FULL else "default metrics",
                }
            )


_COLUMNS = (
    Column("kernel", "kernel name", "key"),
    Column("range", "folded range; blank if the row is about all ranges of the kernel", "key"),
    Column("rank", "1 is the likeliest cause; blank if none is named", "row", "1"),
    Column("defect", CAUSE, "row"),
    Column("sure_frac", SURE + here(" (kernels/specimens/README.md has the score)", ""), "row"),
    Column("gain_low_frac", "share of the kernel's time that nine in ten fixes win at least", "row"),
    Column("gain_bound_frac", "share of the kernel's time that 98 in 100 fixes win at most", "row"),
    Column("least_to_win_ns", "gain_low_frac as time, over all its launches in the program", "row"),
    Column("time_to_win_ns", "gain_bound_frac as time, over all its launches in the program", "row"),
    Column("reason", "the cause and its cure, what a table says, or why there is no verdict", "row", style="prose"),
    Column("evidence", "numbers behind the reason: of the mean launch, in base units", "row", style="prose"),
    Column("source_line", "hottest line, instruction and stall reason, where captured", "row", shown=False),
    Column("recapture", "command that captures its longest launch with all sections of ncu", "row", shown=False),
    Column("metrics", "metrics behind the verdict: default metrics or full sections", "row", shown=False),
    Column("unsettled", "what these metrics cannot decide, and `recapture` can", "row", shown=False),
)  # fmt: skip


def _said(tables: Tables, facts: Facts, judged: set[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield a row for each reason that a table gives, but for causes that a verdict names: `judged` by kernel."""
    counted = set(tables["counters"]["kernel"])
    for name, reasons in reasons_of_each(
        tables, sm_count=facts.sm_count, tf32=has_tf32(facts.device), most=MOST_KERNELS
    ):
        for reason in reasons:
            if (name, reason.kind) in judged:
                continue
            cells = (f"{one.table}.{one.column}{parts(one)} = {one.value}" for one in reason.cells)
            yield {
                "kernel": name,
                "reason": f"{begin(reason.said)}.",
                "do": reason.do,
                "evidence": "; ".join(cells) or pd.NA,
                "tier": "counters" if name in counted else "timing",
            }


@table(
    "diagnosis",
    question="Why does each kernel take its time, and how much could each cure save?",
    columns=_COLUMNS,
)
def build_diagnosis(facts: Facts) -> pd.DataFrame | None:
    """Return diagnosis.csv; None without any rows. Its reasons say what to do as well."""
    rows = facts.once(reasons_of_kernels)
    if rows.empty:
        return None
    texts = rows[["reason", "do", "doubt"]].itertuples(index=False)
    return rows.drop(columns=["do", "doubt"]).assign(reason=[_joined(*each) for each in texts])


def _joined(*texts: str) -> str:
    return " ".join(filter(None, texts))


def reasons_of_kernels(facts: Facts) -> pd.DataFrame:
    """Return the rows of diagnosis.csv with the reason, what to `do` and the `doubt` apart; empty without any.

    First come the verdicts of all kernels with counters, then what samples tell of the others, then the reasons
    from the tables for the MOST_KERNELS kernels with most time.
    """
    kernel_tables, mean_launches = facts.once(tables_of_kernels), facts.once(mean_launches_of)
    captured_program, measured = facts.once(program_of), facts.measured
    filters = exact_filters(measured, facts.ranges) if len(measured) else {}
    judged = list(
        _judged(
            mean_launches, facts.once(judge_launches), why_none(facts.device), kernel_tables, filters, captured_program
        )
        if len(mean_launches)
        else ()
    )
    judged += sampled_reasons(facts, {row["kernel"] for row in judged}) if facts.sampled else ()
    causes = {(row["kernel"], row.get("defect", "")) for row in judged}
    said = list(_said(kernel_tables, facts, causes))
    timed = {row["kernel"] for row in said if row["tier"] == "timing"}
    if timed and len(measured):
        rows = _longest(measured, timed).itertuples(index=False)
        commands = {row.kernel: _again(row, filters, captured_program) for row in rows}
        for one in said:
            if one["kernel"] in commands:
                one |= {"recapture": commands[one["kernel"]], "unsettled": TIMES_ALONE}
    if not said and not judged:
        return pd.DataFrame()
    rows = pd.DataFrame([*judged, *said], columns=[*(column.name for column in _COLUMNS), "do", "doubt", "tier"])
    order = {name: place for place, name in enumerate(dict.fromkeys(row["kernel"] for row in [*said, *judged]))}
    rows = rows.sort_values("kernel", key=lambda names: names.map(order), kind="stable")
    texts = {name: rows[name].where(rows[name].notna(), "") for name in ("do", "doubt")}
    return rows.assign(**texts).astype(dict.fromkeys(("rank", "least_to_win_ns", "time_to_win_ns"), "Int64"))
