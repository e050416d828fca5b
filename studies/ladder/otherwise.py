"""Count the goals for library speed in two other ways: by the plain loop, and with the rung that runs unasked.

The goals judge the fastest rung at each shape by the benchmark. An independent loop times our fastest rung and the same
library, and a caller who names no rung gets the default one. A verdict that another count turns over is worth less.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from tabulate import tabulate

from analysis.formats import packed
from analysis.page.markdown import escape
from analysis.page.text import MISSING
from studies.ladder.goals import versus
from studies.publish.results import reaches

# of the benchmarks, and of the runs of variants that search: the first that timed the library counts
LOOPS = ("plain_loop_isolated.csv", "plain_loop_tuned.csv")
POINT = ["op", "dtype", "shape_name"]
SAID = (
    "The goals for library speed, counted in two other ways. The loop is `tests/gpu/plain_loop.py`, which shares no "
    "code with the benchmark; shapes at which it timed another library are left out. A caller who names no rung gets "
    "one for all shapes of a dtype, not the fastest at each. Bold is a verdict that turns over."
)


def read_loops(checks: Path) -> pd.DataFrame:
    """Return the ratios of the plain loop in the folder of a GPU's checks, by POINT and library; none without files."""
    columns = [*POINT, "library", "looped"]
    files = [file for name in LOOPS if (file := packed.find(checks / name)).is_file()]
    found = [pd.read_csv(file)[columns] for file in files] or [pd.DataFrame(columns=columns)]
    return pd.concat(found, ignore_index=True).drop_duplicates(columns[:-1])


def count(goals: pd.DataFrame, loops: pd.DataFrame, rungs: pd.DataFrame, times: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of goals with a share, with `looped` and `unasked`: the speed-up by the loop, and of the default.

    Shape: `goals` and `rungs` as goals.csv and ladder.csv; `loops` from read_loops; `times` as ladder_times.csv, paired
    with the runs of variants that search (studies.ladder.searched).
    """
    wanted = goals[(goals["share"] < 1.0) & goals["found"].notna()]
    default = rungs[rungs["best"].astype(bool)].drop_duplicates(["op", "dtype"]).set_index(["op", "dtype"])["variant"]
    known = times.set_index([*POINT, "variant"]).sort_index()
    found = wanted.merge(loops.rename(columns={"library": "beside"}), on=[*POINT, "beside"], how="left")
    unasked = [_unasked(row, default.get((row["op"], row["dtype"]), ""), known) for _, row in found.iterrows()]
    return found.assign(unasked=unasked)


def _unasked(row: pd.Series, variant: str, times: pd.DataFrame) -> float:
    """Return the speed-up of `variant` over the rival of a goal's row; NaN where one of them was not timed."""
    own, rival = ((*(row[name] for name in POINT), name) for name in (variant, row["beside"]))
    if variant == row["variant"]:
        return float(row["found"])
    if own not in times.index or rival not in times.index:
        return float("nan")
    return versus(*(times.loc[[place]].iloc[-1].to_dict() | {"variant": place[-1]} for place in (own, rival))).p50


def render(counted: pd.DataFrame) -> str:
    """Return the table of the counts, behind a sentence on it; "" without a goal of this kind."""
    rows = list(_rows(counted))
    headers = ["what", "goal's own count", "by the loop", "with the rung that runs unasked"]
    return f"{SAID}\n\n{tabulate(rows, headers, tablefmt='github', disable_numparse=True)}" if rows else ""


def _rows(counted: pd.DataFrame) -> Iterator[list[str]]:
    for _, same in counted.groupby("goal", sort=True):
        first = same.iloc[0]
        own = reaches(same["found"], first)
        row = [escape(str(first["what"]))]
        for column in ("found", "looped", "unasked"):
            values = same[column].dropna()
            if values.empty:
                row.append(MISSING)
                continue
            met = reaches(values, first)
            reached = f"{int((values >= first['least']).sum())} of {len(values)}, least {values.min():.3f} ×"
            said = f"{'met' if met else 'not met'}: {reached}"
            row.append(f"**{said}**" if met != own else said)
        yield row
