"""Hold planned captures against whole ones: DRAM bytes and ncu time of each folded range.

A row is a folded range of one program. `plan` says where the counters of the replayed launches are from: `captured` by
ncu with the plan, `profiled` likewise but by `make profile`. `against` names the whole capture: `1 pass`, of the same
day with three metrics alone, or `12 passes`, with the metrics of the plan: of GPT-2 the committed one, of the
Qwen3-like program the first launches. How many passes there are changes the bytes of one and the same launch, as memory
is restored before each, so only captures with equally many show what extrapolation does.
"""

import functools
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import counting
from analysis.capture.load import load
from analysis.hardware import metrics
from analysis.tables import counting as tables
from analysis.tables import groups, join

PROGRAMS = ("qwen", "gpt2")
BYTES_WITHIN, TIME_WITHIN = 0.03, 0.05
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


def table_of(folder: Path) -> pd.DataFrame:
    """The rows of planned_against_full.csv that rest on captures."""
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
    return pd.concat(parts, ignore_index=True)
