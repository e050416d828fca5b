"""Hold planned captures against whole ones: DRAM bytes and ncu time of each folded range.

    python -m tests.gpu.counting.compare DIR [--write]    DIR as proof.sh and whole.sh leave it

--write leaves planned_against_full.csv there and prints its summary.

A row is a folded range of one program. `plan` says where the counters of the replayed launches are from: `captured` by
ncu with the plan, `profiled` likewise but by `make profile`, or `budget N`: taken from the whole capture, for the
launches that the planner of today chooses. `against` names the whole capture: `1 pass`, of the same day with three
metrics alone, or `12 passes`, with the metrics of the plan: of GPT-2 the committed one, of the Qwen3-like program the
first launches, which whole.sh counts. How many passes there are changes the bytes of one and the same launch, as
memory is restored before each, so only captures with equally many show what extrapolation does.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from tabulate import tabulate

from analysis import counting
from analysis.capture.load import load
from analysis.hardware import metrics
from analysis.planning import select
from analysis.planning.cost import Cost
from analysis.tables import counting as tables
from analysis.tables import groups, join

PROGRAMS = ("qwen", "gpt2")
TITLES = {"qwen": "Qwen3-like, 6 layers", "gpt2": "GPT-2, two models"}
PLANS = {"captured": "the planned capture", "profiled": "`make profile`"}
BUDGETS = (60, 80, 100)
BYTES_WITHIN, TIME_WITHIN = 0.03, 0.05
PASSES = 12
PROFILED = Path(__file__).resolve().parents[2] / "cpu" / "data" / "profile" / "qwen"
WHOLE = "qwen-whole"
COMMITTED = Path(__file__).resolve().parents[3] / "reports" / "h200-gpt2-fp32"


@functools.cache
def planned(folder: Path) -> pd.DataFrame:
    """The launches of a planned capture, `bytes` and `ncu_ns` of those with counters, of their own or of a sibling."""
    launches, _ = counting.launches_of(folder / "captures")
    capture = load([folder / "captures"])
    rows = tables.replayed(capture.ours["count_plan"])
    counters = join.prepare_counters(capture.counters)
    values = metrics.derive(counters, capture.counter_units)
    return _with_values(join.join(launches, counters, None, planned=rows, extrapolate=True, values=values), values)


@functools.cache
def whole(folder: Path, full: Path) -> pd.DataFrame:
    """The same launches with the counters of the whole capture in another folder."""
    launches, _ = counting.launches_of(folder / "captures")
    capture = load([full / "captures"])
    include = next(tool["nvtx_include"] for tool in capture.tools if tool["tool"] == "ncu")
    counters = join.prepare_counters(capture.counters)
    values = metrics.derive(counters, capture.counter_units)
    return _with_values(join.join(launches, counters, include), values)


def chosen(folder: Path, every: pd.DataFrame, budget_s: float) -> pd.DataFrame:
    """As `planned`, had the launches that the planner chooses been replayed; `every` of `whole` says what they gave."""
    launches, ranges = counting.launches_of(folder / "captures")
    startup_s = json.loads((folder / "captures" / "nsys.json").read_text())["seconds"]
    rows = select.choose(launches, ranges, Cost(startup_s=startup_s, passes=PASSES), budget_s).rows
    is_row = np.isin(np.arange(len(launches)), rows)
    frame = launches.assign(
        counters_row=np.where(is_row, np.arange(len(launches)), -1),
        counters_from=np.where(is_row, "measured", ""),
        refused="",
    )
    values = every[["ncu_ns", "bytes"]].set_axis(["duration_ns", "dram_read_bytes"], axis=1).reset_index(drop=True)
    found = groups.extrapolate(frame, values)
    return found.assign(**_picked(found, values))


def _with_values(joined: join.Joined, values: pd.DataFrame) -> pd.DataFrame:
    launches = groups.with_groups(joined.launches)
    short = pd.DataFrame(
        {
            "duration_ns": values["duration_ns"],
            "dram_read_bytes": values["dram_read_bytes"] + values["dram_write_bytes"],
        }
    )
    return launches.assign(**_picked(launches, short))


def _picked(launches: pd.DataFrame, values: pd.DataFrame) -> dict[str, np.ndarray]:
    found = values.reindex(launches["counters_row"].where(launches["counters_row"] >= 0))
    return {"ncu_ns": found["duration_ns"].to_numpy(), "bytes": found["dram_read_bytes"].to_numpy()}


def committed(ours: pd.DataFrame) -> pd.DataFrame:
    """The launches of `ours` with the counters of the committed capture: by group and ordinal, where both have as many."""
    every = whole(COMMITTED, COMMITTED)
    every = every[every["counters_from"] == "measured"]
    key = [*groups.GROUP, "ordinal"]
    theirs, mine = (one.assign(ordinal=one.groupby(groups.GROUP).cumcount()) for one in (every, ours))
    found = mine[key].merge(theirs[[*key, "bytes", "ncu_ns"]], on=key, how="left").set_axis(ours.index)
    sizes = [one.groupby(groups.GROUP).size() for one in (every, ours)]
    alike = pd.MultiIndex.from_frame(ours[groups.GROUP]).isin(
        sizes[0].index[sizes[0].eq(sizes[1].reindex(sizes[0].index))]
    )
    return ours.assign(bytes=found["bytes"].where(alike), ncu_ns=found["ncu_ns"].where(alike))


def begun(folder: Path, full: Path) -> pd.DataFrame:
    """As `whole`, where the capture in `full` ended after its first launches: only these."""
    launches, _ = counting.launches_of(folder / "captures")
    capture = load([full / "captures"])
    counters = join.prepare_counters(capture.counters)
    values = metrics.derive(counters, capture.counter_units)
    return _with_values(join.join(launches.head(len(counters)), counters, None), values)


def compare(program: str, plan: str, against: str, ours: pd.DataFrame, every: pd.DataFrame) -> pd.DataFrame:
    """One row a folded range: sums over the launches that have counters by the plan and in the whole capture."""
    has = (ours["counters_from"].ne("") & every["bytes"].notna()).to_numpy()
    frame = pd.DataFrame(
        {
            "range": ours["folded"],
            "launches": 1,
            "replayed": ours["counters_from"].eq("measured").astype(int),
            "with_counters": has.astype(int),
            "nsys_time_ns": ours["duration_ns"],
            "covered_time_ns": ours["duration_ns"].where(has, 0),
            "bytes": ours["bytes"].where(has, 0),
            "bytes_full": every["bytes"].where(has, 0),
            "ncu_ns": ours["ncu_ns"].where(has, 0),
            "ncu_ns_full": every["ncu_ns"].where(has, 0),
        }
    )
    table = frame.groupby("range", sort=False).sum().reset_index()
    blank = table["with_counters"] > 0
    table["bytes_off_frac"] = (table["bytes"] / table["bytes_full"] - 1).where(blank & (table["bytes_full"] > 0))
    table["time_off_frac"] = (table["ncu_ns"] / table["ncu_ns_full"] - 1).where(blank)
    table.insert(0, "against", against)
    table.insert(0, "plan", plan)
    table.insert(0, "program", program)
    whole_numbers = ["bytes", "bytes_full", "ncu_ns", "ncu_ns_full"]
    return table.astype(dict.fromkeys(whole_numbers, "int64"))


def table_of(folder: Path, budgets: Sequence[int] = BUDGETS) -> pd.DataFrame:
    """planned_against_full.csv, of these budgets alone."""
    first = begun(PROFILED, folder / WHOLE)
    against = f"12 passes, first {len(first)} launches"
    parts = [compare("qwen", "profiled", against, planned(PROFILED).head(len(first)), first)]
    for program in PROGRAMS:
        run = folder / program
        every = whole(run, folder / f"{program}-full")
        ours = planned(run)
        if program == "gpt2":
            parts.append(compare(program, "captured", "12 passes", ours, committed(ours)))
        parts.append(compare(program, "captured", "1 pass", ours, every))
        parts += [compare(program, f"budget {at}", "1 pass", chosen(run, every, at), every) for at in budgets]
    return pd.concat(parts, ignore_index=True)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """One row a program and plan: what was replayed, what has counters, how many ranges are within the limits."""
    judged = table.assign(
        judged=table["with_counters"] > 0,
        bytes_within=table["bytes_off_frac"].abs() <= BYTES_WITHIN,
        time_within=table["time_off_frac"].abs() <= TIME_WITHIN,
        bytes_off=table["bytes_off_frac"].abs(),
        time_off=table["time_off_frac"].abs(),
    )
    by_plan = judged.groupby(["program", "plan", "against"], sort=False)
    found = by_plan[["launches", "replayed", "with_counters", "judged", "bytes_within", "time_within"]].sum()
    sums = by_plan[["nsys_time_ns", "covered_time_ns", "bytes", "bytes_full", "ncu_ns", "ncu_ns_full"]].sum()
    found["time_share"] = sums["covered_time_ns"] / sums["nsys_time_ns"]
    found["bytes_off_frac"] = sums["bytes"] / sums["bytes_full"] - 1
    found["time_off_frac"] = sums["ncu_ns"] / sums["ncu_ns_full"] - 1
    return found.reset_index()


def _seconds(captures: Path, tool: str) -> float:
    return float(json.loads((captures / f"{tool}.json").read_text())["seconds"])


@dataclass(frozen=True)
class Took:
    """Seconds of the planned capture of `make profile`, and of a whole one's first launches; `all_s` is reckoned."""

    planned_s: float
    replayed: int
    first_s: float
    first: int
    launches: int
    startup_s: float

    @property
    def all_s(self) -> float:
        return self.startup_s + (self.first_s - self.startup_s) / self.first * self.launches


def measured(folder: Path) -> Took:
    """What `make profile` of the Qwen3-like program took beside whole.sh."""
    ours, first = planned(PROFILED), begun(PROFILED, folder / WHOLE)
    captures = PROFILED / "captures"
    replayed = int(ours["counters_from"].eq("measured").sum())
    first_s = _seconds(folder / WHOLE / "captures", "ncu")
    return Took(_seconds(captures, "ncu"), replayed, first_s, len(first), len(ours), _seconds(captures, "nsys"))


def seconds_of(folder: Path) -> dict[str, tuple[float, float]]:
    """Of each program the seconds of the planned capture, and what a whole one with these metrics would take.

    The latter is reckoned: the start-up, then for every launch what a replayed one took in the planned capture.
    """
    found = {}
    for program in PROGRAMS:
        captures = folder / program / "captures"
        took, startup = (_seconds(captures, tool) for tool in ("ncu", "nsys"))
        ours = planned(folder / program)
        each = (took - startup) / int(ours["counters_from"].eq("measured").sum())
        found[program] = (took, startup + each * len(ours))
    return found


def shown(table: pd.DataFrame, seconds: dict[str, tuple[float, float]], beside: Took) -> str:
    """The summary as Markdown."""
    rows = [
        {
            "program": TITLES[row["program"]],
            "counters of": PLANS.get(row["plan"], row["plan"].replace("budget", "the plan for") + " s"),
            "whole capture": row["against"],
            "replayed": f"{row['replayed']:,} of {row['launches']:,}",
            "share of the GPU time": f"{row['time_share']:.0%}",
            "ranges within 3 % of DRAM bytes": f"{row['bytes_within']} of {row['judged']}",
            "within 5 % of ncu time": f"{row['time_within']} of {row['judged']}",
        }
        for row in summary(table).to_dict("records")
    ]
    took = "; ".join(
        f"{TITLES[name]} {ours:.0f} s of about {every:.0f} s (1/{every / ours:.1f})"
        for name, (ours, every) in seconds.items()
    )
    table_text = tabulate(rows, headers="keys", tablefmt="github")
    return (
        f"{table_text}\n\nWhat the planned capture took, and what a whole one with its metrics would take: {took}. "
        f"Measured in 12 passes: `make profile` of the Qwen3-like program counted {beside.replayed} launches in "
        f"{beside.planned_s:.0f} s. The first {beside.first} of its {beside.launches:,} launches took "
        f"{beside.first_s:.0f} s, so all would take about {beside.all_s:.0f} s (1/{beside.all_s / beside.planned_s:.1f})."
    )


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    table = table_of(options.folder)
    if options.write:
        table.to_csv(options.folder / "planned_against_full.csv", index=False, float_format="%.5f")
        print(shown(table, seconds_of(options.folder), measured(options.folder)))
    print(summary(table).round(4).to_string(index=False))
    outside = (table["bytes_off_frac"].abs() > BYTES_WITHIN) | (table["time_off_frac"].abs() > TIME_WITHIN)
    print(table[outside].drop(columns=["nsys_time_ns", "covered_time_ns"]).round(4).to_string(index=False))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
