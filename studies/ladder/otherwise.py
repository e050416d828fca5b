"""Count the goals for library speed in two other ways: by the plain loop, and with the rung that runs unasked.

The goals judge the fastest rung at each shape by the benchmark. An independent loop times the same pair, and a caller
who names no rung gets the default one. A verdict that another count turns over is worth less.
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

LOOPS = "plain_loop_isolated.csv"
POINT = ["op", "dtype", "shape_name"]


def read_loops(checks: Path) -> pd.DataFrame:
    """Return the ratios of the plain loop in the folder of a GPU's checks, by POINT; empty without the file."""
    file = packed.find(checks / LOOPS)
    if not file.is_file():
        return pd.DataFrame(columns=[*POINT, "looped"])
    return pd.read_csv(file)[[*POINT, "looped"]]


def count(goals: pd.DataFrame, loops: pd.DataFrame, rungs: pd.DataFrame, times: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of goals with a share, with `looped` and `unasked`: the speed-up by the loop, and of the default.

    Shape: `goals`, `rungs` and `times` as goals.csv, ladder.csv and ladder_times.csv; `loops` as read_loops.
    """
    wanted = goals[(goals["share"] < 1.0) & goals["found"].notna()]
    default = rungs[rungs["best"].astype(bool)].drop_duplicates(["op", "dtype"]).set_index(["op", "dtype"])["variant"]
    known = times.set_index([*POINT, "variant"]).sort_index()
    found = wanted.merge(loops, on=POINT, how="left")
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
    """Return the table of the counts; bold is a verdict other than the goal's own. "" without a goal of this kind."""
    rows = list(_rows(counted))
    headers = ["what", "goal's own count", "by the loop", "with the rung that runs unasked"]
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True) if rows else ""


def _rows(counted: pd.DataFrame) -> Iterator[list[str]]:
    for _, same in counted.groupby("goal", sort=True):
        first = same.iloc[0]
        own = _verdict(same["found"], first)
        row = [escape(str(first["what"]))]
        for column in ("found", "looped", "unasked"):
            values = same[column].dropna()
            if values.empty:
                row.append(MISSING)
                continue
            met = _verdict(values, first)
            reached = f"{int((values >= first['least']).sum())} of {len(values)}, least {values.min():.3f} ×"
            said = f"{'met' if met else 'not met'}: {reached}"
            row.append(f"**{said}**" if met != own else said)
        yield row


def _verdict(values: pd.Series, goal: pd.Series) -> bool:
    return bool((values >= goal["least"]).mean() >= goal["share"] and values.min() >= goal["never_below"])
