"""The configuration sweep: every combination with its counters, the fastest of each kernel, and what sets it apart."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pandas as pd

from analysis.capture.model import Capture
from analysis.tables import sweep_calls
from analysis.tables.attribution import SWEPT
from analysis.tables.schema import PROFILE_TABLES
from analysis.tables.stalls import NOT_WAITING

CELL = ["op", "variant", "dtype", "shape"]
_TOP_STALLS = "stall_"
_FINDINGS = 5
_FEWER_BLOCKS, _ALIKE = 1.5, 0.03
_FEW_WAVES = 20.0  # with more of them the last one does not count
_LITTLE = 0.1  # of empty places
_LEAST_SHARE = 0.005  # of a stall that is listed
# The cycles of a launch are its instructions, times the cycles from one of a warp to its next, over the warps that take
# turns: by factor 1, or -1 where more of it makes faster.
_FACTORS = {"instructions": 1, "warp_cycles": 1, "occupancy_achieved_frac": -1}
_LEAST_FACTOR = math.log(1.02)
_ENOUGH = 1 / 3  # of the difference in time, in logarithms, that the factors have to account for
_TIE = 1.01
# Column, the least difference that matters (absolute; of the other's), whether more of it (1) or less (-1) makes slower
# or that depends (0), unit, and the words for it. Registers are given out by eight.
_COUNTED = (
    ("sectors_per_request_load", 0.5, 0.1, 0, 1, "{:.3g} sectors a load for {:.3g}"),
    ("l1_hit_frac", 0.1, 0, -1, 1, "{:.0%} of the sectors found in L1 for {:.0%}"),
    ("l2_hit_frac", 0.1, 0, -1, 1, "{:.0%} of the sectors found in L2 for {:.0%}"),
    ("dram_bytes", 1e6, 0.1, 1, 1e6, "{:,.0f} MB through DRAM for {:,.0f}"),
)
_STATIC = (
    ("occupancy_theoretical_frac", 0.05, 0, -1, 1, "theoretical occupancy {:.0%}{limit} for {:.0%}"),
    ("registers", 8, 0, 1, 1, "{:.0f} registers a thread for {:.0f}"),
    ("shared_bytes", 4096, 0, 0, 1024, "{:.3g} KiB of shared memory a block for {:.3g}"),
    ("spill_bytes", 1, 0, 1, 1, "{:.0f} bytes of spills for {:.0f}"),
)
# Which static figure is told beside counters: the cause of the factor that it stands at.
_CAUSES = {
    "occupancy_theoretical_frac": "occupancy_achieved_frac",
    "idle": "occupancy_achieved_frac",
    "spill_bytes": "instructions",
}
_OF_THE_SOURCE = "over all dtypes, ops and shapes of the source (geometric mean)"
_ACROSS = 5  # cells of a heat map abreast
_JOINED = " · "
_NO_ROW: dict[str, Any] = {"excess": None, "time_ns": None, "marks": [], "verdict": "no row"}
_RUNG = ["op", "variant", "dtype", "shape_name", "gpu"]
_KEY = ["op", "variant", "macros", "dtype", "shape_name", "gpu"]


def build_sweep(capture: Capture, measured: pd.DataFrame) -> pd.DataFrame:
    """Return sweep.csv: one row a combination, dtype and shape, fastest first in each; `measured` joins by its path."""
    schema = PROFILE_TABLES["sweep"]
    if capture.sweep_rows is None or capture.sweep_rows.empty:
        return schema.empty()
    # measured again after a change of the source: the last one counts, and so do its choices
    rows = capture.sweep_rows.assign(call=sweep_calls.number_rows(capture)).drop_duplicates(_KEY, keep="last")
    names = rows["macros"].str.replace(r"=-?\d+", "", regex=True)
    rows = rows[names == names.groupby([rows[name] for name in _RUNG]).transform("last")].reset_index(drop=True)
    rows = rows.assign(shape=rows["shape_name"], versus_default=rows["versus_default_p50"])
    rows["combination"] = rows["macros"].map(short_name)
    rows = rows.join(_counters(measured).drop(index=_of_other_builds(rows, capture.tools), errors="ignore"), on="range")
    # by what was timed in the same rounds as the default; where no default was timed, by time alone
    rows["cost"] = (1 / rows["versus_default"]).fillna(rows["bench_time_p50_ns"].astype("float64"))
    order = sorted({*rows[CELL].itertuples(index=False, name=None)}, key=_place)
    place = {cell: at for at, cell in enumerate(order)}
    rows["place"] = [place[cell] for cell in rows[CELL].itertuples(index=False, name=None)]
    rows["other"] = 1 - rows["default"]  # of several that are as fast as each other the default comes first
    rows = rows.sort_values(["place", "cost", "other"], kind="stable", na_position="last", ignore_index=True)
    fastest = rows["cost"].notna() & ~rows["place"].duplicated()
    recommended = {
        (choice["gpu"], choice["source"], choice["macros"]): choice
        for choice in (capture.sweep or {}).get("choices") or []
    }
    found = pd.Series(list(zip(rows["gpu"], rows["source"], rows["macros"], strict=True)), index=rows.index)
    marks = {
        "default": rows["default"].eq(1),
        "fastest": fastest,
        "recommended": found.isin(set(recommended)) & rows["verdict"].eq("timed"),
    }
    rows["mark"] = [
        ", ".join(name for name, is_so in zip(marks, flags, strict=True) if is_so)
        for flags in zip(*marks.values(), strict=True)
    ]
    is_other = marks["recommended"] & ~marks["default"]
    of_row = [recommended.get(key, {}) if other else {} for key, other in zip(found, is_other, strict=True)]
    rows["not_measured"] = [", ".join(choice.get("not_measured") or []) for choice in of_row]
    rows["keeps_default"] = [choice.get("keeps_default") or "" for choice in of_row]
    timed, counted = rows["bench_time_p50_ns"].notna(), rows["ncu_time_ns"].notna()
    rows["tier"] = counted.map({True: "counters", False: "timing"}).where(timed, "static")
    return schema.conform(rows[schema.column_names])


def _place(cell: tuple[str, ...]) -> tuple[Any, ...]:
    """By op and rung, fp32 before narrower types."""
    op, variant, dtype, shape = cell
    return op, variant, dtype != "fp32", dtype, shape


def short_name(macros: str) -> str:
    """`THREADS=256 AHEAD_MB=3` of `GELU_V02_THREADS=256 GELU_V02_AHEAD_MB=3`."""
    return " ".join(re.sub(r"^[A-Z0-9_]*?V\d+_(?=[A-Z])", "", part) for part in macros.split())


def _of_other_builds(rows: pd.DataFrame, tools: list[dict[str, Any]]) -> list[str]:
    """The NVTX paths of which ncu counted another build than the one that was timed: that explains no time."""
    counted = {path: build for tool in tools for path, build in (tool.get("counted") or {}).items()}
    timed = zip(rows["range"], rows["fingerprint"], strict=True)
    return [path for path, build in timed if counted.get(path, build) != build]


def _counters(measured: pd.DataFrame) -> pd.DataFrame:
    """By NVTX path what ncu counted of its longest kernel, the largest stall of it, and its time."""
    counted = ["occupancy_achieved_frac", *(name for name, *_ in _COUNTED if name != "dram_bytes")]
    known = measured[measured["path"].astype("str").str.startswith(SWEPT)] if len(measured) else measured
    if known.empty or "duration_ns" not in known:
        more = ["instructions", "warp_cycles", "dram_bytes", "dram_byte_per_s", "stall", "stall_frac", "stalls"]
        return pd.DataFrame(columns=[*counted, *more, "ncu_time_ns"])
    longest = known.sort_values("duration_ns", kind="stable").groupby("path").tail(1).set_index("path")
    reasons = [name for name in longest if str(name).startswith(_TOP_STALLS)]
    cycles = longest[reasons].astype("float64").rename(columns=lambda name: name.removeprefix(_TOP_STALLS))
    cycles["selected"] = 1.0  # in which the warp issues
    stalls = cycles.drop(columns=[name for name in NOT_WAITING if name in cycles])
    some = stalls.notna().any(axis=1)
    waiting = stalls.sum(axis=1).where(some)
    moved = longest["dram_read_bytes"] + longest["dram_write_bytes"]
    return pd.DataFrame(
        {
            **longest[counted],
            "instructions": longest["inst_issued"],
            "warp_cycles": cycles.sum(axis=1).where(some),
            "dram_bytes": moved,
            "dram_byte_per_s": moved / longest["duration_ns"] * 1e9,
            "stall": stalls[some].idxmax(axis=1).reindex(longest.index),
            "stall_frac": stalls.max(axis=1) / waiting,
            "stalls": [_listed(row) for _, row in stalls.iterrows()],
            "ncu_time_ns": longest["duration_ns"],
        }
    )


def _listed(stalls: pd.Series) -> str:
    """`long_scoreboard 8.00, wait 2.50` of a launch's stalls, those of half a per cent."""
    largest = stalls[stalls >= _LEAST_SHARE * stalls.sum()].sort_values(ascending=False, kind="stable")
    return ", ".join(f"{name} {cycles:.2f}" for name, cycles in largest.items() if cycles > 0)


def build_best(sweep: pd.DataFrame) -> pd.DataFrame:
    """Return sweep_best.csv: one row a kernel, dtype and shape that was timed; `sweep` from build_sweep."""
    schema = PROFILE_TABLES["sweep_best"]
    found = []
    for cell, rows in sweep.groupby(CELL, sort=False):
        timed = rows[rows["bench_time_p50_ns"].notna()]
        if timed.empty:
            continue
        fastest = timed.iloc[0]
        default, chosen = (_marked(timed, mark) for mark in ("default", "recommended"))
        slowest = _slowest(timed, default)
        is_default = default is not None and fastest["combination"] == default["combination"]
        found.append(
            {
                **dict(zip(CELL, cell, strict=True)),
                "combinations": len(rows),
                "timed": len(timed),
                "samples": timed["samples"].min(),
                "calls": ", ".join(sorted(set(rows["call"]))),
                "default": "" if default is None else default["combination"],
                "fastest": fastest["combination"],
                "versus_default": fastest["versus_default"],
                "clear": "" if is_default else "yes" if is_clear(fastest) else "no",
                "slowest": slowest["combination"],
                "slowest_versus_default": slowest["versus_default"],
                "recommended": "" if chosen is None else _recommended(chosen),
                "evidence": " ".join(_sentences(rows, fastest, slowest, default, chosen)),
                "tier": "counters" if (timed["tier"] == "counters").any() else "timing",
            }
        )
    return schema.conform(pd.DataFrame(found)) if found else schema.empty()


def find(best: pd.DataFrame) -> list[dict[str, Any]]:
    """Findings of a sweep: the kernels with a clearly faster combination, the largest gain first."""
    clear = best[best["clear"] == "yes"].sort_values("versus_default", ascending=False, kind="stable")
    found = []
    for _, row in clear.head(_FINDINGS).iterrows():
        name = " ".join(str(row[part]) for part in CELL)
        evidence = [
            {"table": "sweep_best", "row": row["op"], "column": column, "value": row[column]}
            for column in ("fastest", "versus_default")
        ]
        title = f"{name}: {row['fastest']} is {row['versus_default']:.3f} times as fast as the default"
        found.append({"title": title, "sentence": row["evidence"], "time_to_win_ns": None, "evidence": evidence})
    return [{"rank": rank, **finding} for rank, finding in enumerate(found, 1)]


def is_clear(row: pd.Series) -> bool:
    """Whether the combination was faster than the default in 95 % of the rounds, by 1 % in the median."""
    return bool(row["versus_default_p5"] > 1 and row["versus_default"] >= 1.01)


def _marked(timed: pd.DataFrame, mark: str) -> pd.Series | None:
    return next((row for _, row in timed.iterrows() if mark in row["mark"]), None)


def _slowest(timed: pd.DataFrame, default: pd.Series | None) -> pd.Series:
    """Of those that tie with the slowest, one with counters where there is one, and of these the one with the most of
    the default's values: less sets it apart.
    """
    column, way = ("versus_default", -1) if pd.notna(timed["versus_default"].iloc[-1]) else ("bench_time_p50_ns", 1)
    cost = timed[column].astype("float64") ** way
    ties = timed[cost * _TIE >= cost.iloc[-1]]
    counted = ties[ties["tier"] == "counters"]
    ties = ties if counted.empty else counted
    if default is None:
        return ties.iloc[-1]
    usual = set(default["combination"].split())
    changed = ties["combination"].map(lambda combination: len(set(combination.split()) - usual))
    return ties[changed == changed.min()].iloc[-1]


def _sentences(
    rows: pd.DataFrame, fastest: pd.Series, slowest: pd.Series, default: pd.Series | None, chosen: pd.Series | None
) -> list[str]:  # fmt: skip
    said = []
    left_out = rows[rows["bench_time_p50_ns"].isna()]
    if default is None:
        said.append(f"Fastest is {fastest['combination']}; the default was not timed.")
    elif fastest["combination"] == default["combination"]:
        said.append(f"The default, {default['combination']}, is the fastest of {len(rows)}.")
    else:
        gain = f"{_times(fastest)} the default's speed"
        if is_clear(fastest):
            found = _apart(fastest, default, slowest, slower=False)
            found = f": against {default['combination']}, {found}" if found else ""
            why = found or f"; {_untold(fastest, default, slower=False)}"
            said.append(f"Fastest is {fastest['combination']}, {gain}{why}.")
        else:
            said.append(f"No clear difference: {fastest['combination']} comes out at {gain}.")
    other = default if default is not None else fastest
    if slowest["combination"] not in (other["combination"], fastest["combination"]):
        paired = slowest["versus_default"] if default is not None else float("nan")
        ratio = 1 / paired if pd.notna(paired) else slowest["bench_time_p50_ns"] / other["bench_time_p50_ns"]
        if ratio >= 1.01:
            against = fastest if is_clear(fastest) else other
            found = "; ".join(filter(None, (_apart(slowest, other, against, slower=True), _starting(slowest, rows))))
            why = f": {found}" if found else f"; {_untold(slowest, other, slower=True)}"
            said.append(f"Slowest is {slowest['combination']}, {ratio:.3g} times {other['combination']}'s time{why}.")
    if len(left_out):
        named = ", ".join(f"{count} {verdict}" for verdict, count in left_out["verdict"].value_counts().items())
        said.append(f"Left out: {named}.")
    return said + _choice(chosen, fastest, default)


def _choice(chosen: pd.Series | None, fastest: pd.Series, default: pd.Series | None) -> list[str]:
    """Why another is recommended than the fastest, where that is clearly faster here."""
    if chosen is None or chosen["combination"] == fastest["combination"]:
        return []
    if default is None or chosen["combination"] != default["combination"]:
        rest = "none of which it makes slower in 95 % of the rounds"
        here = "" if pd.isna(chosen["versus_default"]) else f", here at {_times(chosen)} the default's speed"
        return [f"Recommended is {chosen['combination']}{here}: the best {_OF_THE_SOURCE}, {rest}."]
    if not is_clear(fastest):
        return []
    rest = "without making one slower in 95 % of the rounds"
    return [f"The default stays: nothing is 1 % faster {_OF_THE_SOURCE} {rest}."]


def _recommended(row: pd.Series) -> str:
    said = [f"not compiled in: {row['keeps_default']}"] if row["keeps_default"] else []
    said += [f"not measured: {row['not_measured']}"] if row["not_measured"] else []
    return row["combination"] + (f" ({'; '.join(said)})" if said else "")


def _times(row: pd.Series) -> str:
    middle, low, high = (row[name] for name in ("versus_default", "versus_default_p5", "versus_default_p95"))
    return f"{middle:.3f} ({low:.3f} – {high:.3f}) times"


def _apart(row: pd.Series, other: pd.Series, opposite: pd.Series, *, slower: bool) -> str:
    """What of `row` differs from `other`: the factors of its time and other counters where both have them, with the
    static figures that cause a factor; else all static ones. What makes the reverse likely, what `opposite` (of the
    fastest the slowest, and the reverse) shares, and what was counted of launches that differ in time the other way
    round explain nothing.
    """
    static = _one_way(_STATIC, row, other, opposite, slower=slower)
    if _contradicted(row, other, slower=slower):
        return ", ".join(static.values())
    factors = _factors(row, other)
    explain = {name for name in factors if ((row[name] > other[name]) == (_FACTORS[name] > 0)) == slower}
    causes = {name: words for name, words in static.items() if _CAUSES.get(name) in explain}
    counted = factors | causes | _one_way(_COUNTED, row, other, opposite, slower=slower)
    return ", ".join((counted or static).values())


def _one_way(
    figures: tuple[Any, ...], row: pd.Series, other: pd.Series, opposite: pd.Series, *, slower: bool
) -> dict[str, str]:
    """By figure "a for b", of those that differ the way that explains `row` and that `opposite` does not share."""
    shared = _differences(figures, opposite, other)
    return {
        name: words
        for name, (way, sign, words) in _differences(figures, row, other).items()
        if (not sign or (way == (sign > 0)) == slower) and not (name in shared and shared[name][0] == way)
    }


def _factors(row: pd.Series, other: pd.Series) -> dict[str, str]:
    """By factor of the time of a launch how many times `other`'s it is, of those that differ by 2 %; nothing where they
    multiply to less than a third of the difference in time, as ncu took it.
    """
    names = ["ncu_time_ns", *_FACTORS]
    if not (row[names].gt(0) & other[names].gt(0)).all():
        return {}
    logs = {name: math.log(row[name] / other[name]) for name in names}
    told = {name: way * logs[name] for name, way in _FACTORS.items() if abs(logs[name]) >= _LEAST_FACTOR}
    time = logs["ncu_time_ns"]
    if not told or sum(told.values()) * math.copysign(1, time) < _ENOUGH * abs(time):
        return {}
    return {name: f"{math.exp(logs[name]):.2f} times {_factor(name, row, other)}" for name in told}


def _factor(name: str, row: pd.Series, other: pd.Series) -> str:
    if name == "instructions":
        return "the instructions"
    if name == "warp_cycles":
        return f"the warp cycles per issued instruction{_longer(row, other)}"
    return f"the achieved occupancy ({row[name]:.0%} for {other[name]:.0%})"


def _longer(row: pd.Series, other: pd.Series) -> str:
    """Which stall makes up most of the difference in a warp's cycles: " (barrier 6.3 for 0.3)", or nothing."""
    ours, theirs = _cycles(row["stalls"]), _cycles(other["stalls"])
    change = row["warp_cycles"] - other["warp_cycles"]
    most = max({**theirs, **ours}, key=lambda name: (ours.get(name, 0) - theirs.get(name, 0)) / change, default="")
    mine, its = ours.get(most, 0.0), theirs.get(most, 0.0)
    return f" ({most} {mine:.1f} for {its:.1f})" if (mine - its) / change >= _ENOUGH else ""


def _differences(
    figures: tuple[Any, ...], row: pd.Series, other: pd.Series
) -> dict[str, tuple[bool, int, str]]:  # fmt: skip
    """By figure whether `row` has more of it than `other`, which way is slower, and "a for b"."""
    found: dict[str, tuple[bool, int, str]] = {}

    def known(name: str) -> bool:
        return bool(pd.notna(row[name]) and pd.notna(other[name]))

    limit = f" (limited by {row['limiter']})" if row["limiter"] not in ("", "warps") else ""
    for name, least, of_other, sign, unit, words in figures:
        if known(name) and abs(row[name] - other[name]) >= max(least, of_other * other[name]):
            said = words.format(row[name] / unit, other[name] / unit, limit=limit)
            found[name] = bool(row[name] > other[name]), sign, said
    if figures is _STATIC and known("waves") and min(row["waves"], other["waves"]) < _FEW_WAVES:
        ours, theirs = _idle(row), _idle(other)
        if abs(ours - theirs) > _LITTLE:
            empty = f"in which {ours:.0%} of the places stay empty for {theirs:.0%}"
            found["idle"] = ours > theirs, 1, f"{row['waves']:.3g} waves for {other['waves']:.3g}, {empty}"
    return found


def _cycles(stalls: str) -> dict[str, float]:
    """By reason its cycles, of a cell of the column `stalls`."""
    return {name: float(cycles) for name, cycles in (part.split(" ") for part in stalls.split(", ") if part)}


def _contradicted(row: pd.Series, other: pd.Series, *, slower: bool) -> bool:
    """Whether the launches that ncu counted differ the other way round than those that were timed."""
    return bool((row["ncu_time_ns"] < other["ncu_time_ns"]) if slower else (row["ncu_time_ns"] > other["ncu_time_ns"]))


def _untold(row: pd.Series, other: pd.Series, *, slower: bool) -> str:
    """That no figure tells `row` from `other`."""
    bare = [one["combination"] for one in (row, other) if one["tier"] != "counters"]
    if not bare and _contradicted(row, other, slower=slower):
        return f"the launch that ncu counted was {'faster' if slower else 'slower'} than {other['combination']}'s"
    if not bare:
        return "neither its static figures nor its counters tell it apart"
    return f"no counters of {'it' if bare[0] == row['combination'] else bare[0]}"


def _starting(row: pd.Series, rows: pd.DataFrame) -> str:
    """That the start of blocks binds, where fewer and larger blocks take as long each; else nothing."""
    a_block = rows["bench_time_p50_ns"].astype("float64") / rows["grid_blocks"].astype("float64")
    mine = row["bench_time_p50_ns"] / row["grid_blocks"] if pd.notna(row["grid_blocks"]) else float("nan")
    fewer = rows["grid_blocks"] * _FEWER_BLOCKS <= row["grid_blocks"]
    alike = rows[fewer & ((a_block / mine - 1).abs() < _ALIKE)]
    if alike.empty:
        return ""
    larger = alike.iloc[0]["combination"]
    return f"bound by the start of blocks: one every {mine:.2g} ns, as with {larger}, where each does more"


def _idle(row: pd.Series) -> float:
    """Share of the places in all waves together that no block takes."""
    waves: Any = row["waves"]
    whole = waves + row["tail_frac"]
    return float(row["tail_frac"] / whole) if whole else 0.0


# For the figure -----------------------------------------------------------------------------------------------


def heat_maps(sweep: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """By op the panels of its heat map: {title, x, y, call, columns, rows, cells}, one a kernel, dtype and shape.

    A cell is one combination: {"excess": time over the default's - 1, "time_ns", "marks", "verdict"}; one without a row
    says so. `call` is the call that measured the panel's rows, several with commas.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for cell, rows in sweep.groupby(CELL, sort=False):
        if rows["bench_time_p50_ns"].notna().any():
            found.setdefault(str(cell[0]), []).append(_panel(cell, rows))
    return found


def _panel(cell: Any, rows: pd.DataFrame) -> dict[str, Any]:
    values = pd.DataFrame([_values(text) for text in rows["combination"]], index=rows.index)
    across = _across({name: values[name].nunique() for name in values})
    down = [name for name in values if name not in across]
    # what is across and what is down of each row; with one macro nothing is down
    at = {
        (tuple(values.loc[row, across]), tuple(values.loc[row, down])): row for row in reversed(list(rows.index))
    }  # the first row, the fastest, of several GPUs
    columns = list(itertools.product(*(sorted(set(values[name])) for name in across)))
    lines = list(itertools.product(*(sorted(set(values[name])) for name in down)))
    default = next((row for _, row in rows.iterrows() if "default" in row["mark"]), None)
    return {
        "title": " ".join(str(part) for part in cell[1:]),
        "x": _JOINED.join(across),
        "y": _JOINED.join(down),
        "call": ", ".join(sorted(set(rows["call"]))),
        "columns": [_JOINED.join(map(str, column)) for column in columns],
        "rows": [_JOINED.join(map(str, line)) for line in lines],
        "cells": [
            [_heat(rows.loc[at[column, line]], default) if (column, line) in at else _NO_ROW for column in columns]
            for line in lines
        ],
    }


def _across(counts: dict[str, int]) -> list[str]:
    """The macros that stand across: those of which the combinations fill the width best, whatever was measured."""
    sets = [list(names) for size in range(1, len(counts) + 1) for names in itertools.combinations(counts, size)]
    fitting = [names for names in sets if math.prod(counts[name] for name in names) <= _ACROSS]
    return max(fitting or [list(counts)[:1]], key=lambda names: math.prod(counts[name] for name in names))


def _values(combination: str) -> dict[str, int]:
    return {name: int(value) for name, value in (part.split("=") for part in combination.split())}


def _heat(row: pd.Series, default: pd.Series | None) -> dict[str, Any]:
    if pd.isna(row["bench_time_p50_ns"]):
        return {"excess": None, "time_ns": None, "marks": [], "verdict": row["verdict"]}
    time_ns = float(row["bench_time_p50_ns"])
    paired = float(row["versus_default"]) if pd.notna(row["versus_default"]) else None
    excess = 1 / paired - 1 if paired else None
    if excess is None and default is not None:
        excess = time_ns / float(default["bench_time_p50_ns"]) - 1
    marks = row["mark"].split(", ") if row["mark"] else []
    if "fastest" in marks and ("default" in marks or is_clear(row)):
        marks.append("clear")
    return {"excess": excess, "time_ns": time_ns, "marks": marks, "verdict": "timed"}
