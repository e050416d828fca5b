"""Fit analysis/diagnosis/built.toml to the fixes of the answer key, and judge the fit on sets that it left out.

    python tests/answer_key/intervals.py            print how many savings lie in their interval, each set left out
    python tests/answer_key/intervals.py --write    write built.toml, fitted to all sets
    python tests/answer_key/intervals.py --replay   replay the changes of all captures again: writes intervals.csv

A row of intervals.csv is a program whose saving is known to 2 % of the step and whose cause the tool proposes: the share
that the first such change saves by its replay. Left out is not blind: the replay and the rules have seen all sets.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]

import score  # noqa: E402 - as the path has just been set

from analysis.capture.load import load  # noqa: E402
from analysis.diagnosis.built import FILE, Built, group  # noqa: E402
from analysis.diagnosis.step_tables import answer_steps  # noqa: E402
from analysis.facts import Facts  # noqa: E402

ROWS = HERE / "intervals.csv"
AIM = (
    0.88  # of the savings that it is fitted to: the least with which each group keeps 0.85 on sets left out (goal: 0.8)
)
GRID = itertools.product(
    (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5),
    (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6),
    (1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0),
)
CANDIDATES = [Built(*numbers) for numbers in GRID]


def replayed(name: str, program: str, gpu: str) -> dict[str, object] | None:
    """Return the row of a program; None if its saving is not known, or no change of its cause is proposed."""
    declaration, known = score.declared(name)[program], score.truths(name)[program, gpu]
    if not known.counts or declaration.get("nothing") or declaration["cause"] == "nothing":
        return None
    right = {declaration["cause"], *declaration.get("accept", [])}
    with tempfile.TemporaryDirectory() as folder:
        answers = answer_steps(Facts(load([score.unpack(name, program, gpu, Path(folder))])))
    found = [
        (one.proposal, one.replayed.low or 0.0, one.replayed.high or 0.0, step.view.step.told_ns)
        for step in answers
        for one in (*step.savers, *step.replayed)
        if one.replayed and one.proposal.kind in right
    ]
    if not found or found[0][2] < score.WINS or known.saving is None:
        return None
    proposal, low, high, step_ns = found[0]
    return {
        "set": name,
        "program": program,
        "kind": proposal.kind,
        "low": round(low, 4),
        "high": round(high, 4),
        "most": None if proposal.most_ns is None else round(proposal.most_ns / step_ns, 4),
        "best": None if proposal.best_ns is None else round(proposal.best_ns / step_ns, 4),
        "measured": round(known.saving, 4),
    }


def rows() -> pd.DataFrame:
    """Return intervals.csv with the group of each cause, and `look`: sets that were looked at together."""
    table = pd.read_csv(ROWS)
    number = table["set"].str.extract(r"(\d)")[0].fillna("1")
    return table.assign(group=table["kind"].map(group), look=number.where(table["set"] != "tuned", "tuned"))


def inside(table: pd.DataFrame, one: Built) -> tuple[int, float]:
    """Return how many savings lie in their interval of at most ± 25 % of the step, and the mean width of all."""
    hits, widths = 0, []
    for low, high, most, best, measured in table[["low", "high", "most", "best", "measured"]].to_numpy():
        found = one.of(low, high, *(None if np.isnan(ns) else ns for ns in (most, best)))
        least, largest = found.low or 0.0, found.high or 0.0
        widths.append(largest - least)
        hits += least <= measured <= largest and largest - least <= score.SCREEN_WIDTH
    return hits, sum(widths) / len(widths)


def narrowest(table: pd.DataFrame) -> Built:
    """Return the numbers with the narrowest intervals that hold AIM of the savings, else with most of them."""

    def worth(one: Built) -> tuple[float, float]:
        hits, width = inside(table, one)
        return min(hits / len(table), AIM), -width

    return max(CANDIDATES, key=worth)


def fit(table: pd.DataFrame) -> dict[str, Built]:
    """Return the numbers of each group, fitted to these rows."""
    return {str(name): narrowest(own) for name, own in table.groupby("group", sort=True)}


def left_out(table: pd.DataFrame) -> pd.DataFrame:
    """Return how many savings of each look and group lie in intervals fitted to the other looks, and the mean width."""
    judged = []
    for look, own in table.groupby("look"):
        found = fit(table[table["look"] != look])
        judged += [(look, name, *inside(of, found[str(name)]), len(of)) for name, of in own.groupby("group")]
    return pd.DataFrame(judged, columns=["look", "group", "inside", "width", "of"])


def main(arguments: list[str]) -> int:
    """Run the command line."""
    if "--replay" in arguments:
        places = [(name, *place) for name in score.SETS for place in score.captured(name, "", "")]
        found = [row for row in (replayed(*place) for place in places) if row]
        pd.DataFrame(found).to_csv(ROWS, index=False, lineterminator="\n")
    table = rows()
    if "--write" in arguments:
        head = "# Written by tests/answer_key/intervals.py: how far fixes that were built are from what their replay saves.\n"
        told = [
            f"\n[{name}]\nless = {one.less}\nleft = {one.left}\nfurther = {one.further}\n"
            for name, one in fit(table).items()
        ]
        FILE.write_text(head + "".join(told), encoding="utf-8")
    judged = left_out(table)
    print(judged.round(3).to_string(index=False))
    for name, of in [*judged.groupby("group"), ("all", judged)]:
        hits, count, width = of["inside"].sum(), of["of"].sum(), (of["width"] * of["of"]).sum()
        print(f"left out, {name}: {hits} of {count} ({hits / count:.0%}), mean width {width / count:.2f} of the step")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
