"""Fit analysis/diagnosis/built.toml to the fixes of the answer key, and judge the fit on sets that it left out.

    python tests/answer_key/intervals.py            print how many savings lie in their interval, fitted without each set
    python tests/answer_key/intervals.py --write    write built.toml, fitted to all sets
    python tests/answer_key/intervals.py --replay   replay the changes of all captures again: writes intervals.csv

A row of intervals.csv is a program whose saving is known to 2 % of the step and whose cause the tool proposes: the share
that the first such change saves by its replay. The kind `given` has what the change of a pair saves by its replay. Left out is not blind: the replay and the rules have seen all sets.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from msgspec import structs

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]

import score  # noqa: E402 - as the path has just been set

from analysis import what_if  # noqa: E402
from analysis.capture.load import load  # noqa: E402
from analysis.diagnosis.built import FILE, Built, Given, group  # noqa: E402
from analysis.diagnosis.step_tables import answer_steps  # noqa: E402
from analysis.facts import Facts  # noqa: E402
from analysis.replay.savings import saving  # noqa: E402

ROWS = HERE / "intervals.csv"
AIM = 0.94  # of the savings that it is fitted to: the least with which sets left out, and later ones, keep most (goal: 0.8)
CANDIDATES: dict[type, list[Built] | list[Given]] = {
    Built: [
        Built(*numbers)
        for numbers in itertools.product(
            (0.05, 0.1, 0.2, 0.3, 0.4, 0.5),
            (0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0),
            (1.1, 1.2, 1.3, 1.5, 1.75, 2.0),
            (0.0, 0.5, 1.0),
        )
    ],
    Given: [
        Given(*numbers)
        for numbers in itertools.product(
            (0.1, 0.2, 0.3, 0.4, 0.5, 1.0), (0.16, 0.18, 0.2, 0.22, 0.24), (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
        )
    ],
}


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
        "most": next((round(ns / step_ns, 4) for ns in (proposal.built_ns, proposal.most_ns) if ns is not None), None),
        "best": None if proposal.best_ns is None else round(proposal.best_ns / step_ns, 4),
        "measured": round(known.saving, 4),
    }


def given(name: str, program: str, gpu: str) -> dict[str, object] | None:
    """Return the row of a pair: what its change saves by its replay; None if its saving is not known."""
    known, words = score.truths(name).get((program, gpu)), score.declared(name)[program].get("change")
    if not words or known is None or not known.counts or known.saving is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        capture = str(score.unpack(name, program, gpu, Path(folder)))
        step, found, change = what_if.replayed(
            load([Path(capture)]), what_if.changes_of(what_if.parsed([capture, *words]))
        )
        found = saving(step, change)
    ends = {"low": round(found.low, 4), "high": round(found.high, 4)}
    return {
        "set": name,
        "program": program,
        "kind": "given",
        **ends,
        "most": None,
        "best": None,
        "measured": round(known.saving, 4),
    }


def rows() -> pd.DataFrame:
    """Return intervals.csv with the group of each cause, and `look`: sets that were looked at together, in order."""
    table = pd.read_csv(ROWS)
    number = table["set"].str.extract(r"(\d)")[0].fillna("1").astype(int)
    groups = table["kind"].map(lambda kind: kind if kind == "given" else group(kind))
    return table.assign(group=groups, look=number.where(table["set"] != "tuned", 0))


def inside(table: pd.DataFrame, one: Built | Given) -> tuple[list[bool], list[float]]:
    """Return which savings lie in their interval of at most the allowed width, and all widths, of the step."""
    hits, widths = [], []
    allowed = score.SCREEN_WIDTH if isinstance(one, Built) else score.REPLAY_WIDTH
    for low, high, most, best, measured in table[["low", "high", "most", "best", "measured"]].to_numpy():
        limits = tuple(None if np.isnan(ns) else ns for ns in (most, best))
        found = one.of(low, high, *limits) if isinstance(one, Built) else one.of(low, high)
        least, largest = found.low or 0.0, found.high or 0.0
        widths.append(largest - least)
        hits.append(least <= measured <= largest and largest - least <= allowed)
    return hits, widths


@dataclass(frozen=True)
class Tried:
    """What each candidate holds of the rows of one group. Shape: (candidates, rows)."""

    candidates: Sequence[Built | Given]
    hits: np.ndarray
    widths: np.ndarray
    looks: np.ndarray

    def best(self, rows: np.ndarray) -> int:
        """Return the candidate with the narrowest intervals that hold AIM of these rows, else with most of them."""
        held = np.minimum(self.hits[:, rows].mean(axis=1), AIM)
        return int(np.lexsort((self.widths[:, rows].mean(axis=1), -held))[0])


def tried(table: pd.DataFrame) -> dict[str, Tried]:
    """Return what the candidates of each group hold."""
    made = {}
    for name, own in table.groupby("group", sort=True):
        candidates = CANDIDATES[Given if name == "given" else Built]
        found = [inside(own, one) for one in candidates]
        hits, widths = (np.array([each[at] for each in found]) for at in (0, 1))
        made[str(name)] = Tried(candidates, hits, widths, own["look"].to_numpy())
    return made


def fit(table: pd.DataFrame) -> dict[str, Built | Given]:
    """Return the numbers of each group, fitted to these rows."""
    return {name: one.candidates[one.best(one.looks >= 0)] for name, one in tried(table).items()}


def left_out(of: Mapping[str, Tried]) -> pd.DataFrame:
    """Return how many savings of each look and group lie in intervals that were fitted to the other looks, or to earlier ones."""
    judged = []
    for name, one in of.items():
        for look in sorted(set(one.looks)):
            own = one.looks == look
            row = {"group": name, "look": look, "of": int(own.sum())}
            for title, others in (("others", ~own), ("earlier", one.looks < look)):
                if others.any():
                    chosen = one.best(others)
                    row |= {title: int(one.hits[chosen, own].sum()), f"{title}_width": one.widths[chosen, own].mean()}
            judged.append(row)
    return pd.DataFrame(judged)


def main(arguments: list[str]) -> int:
    """Run the command line."""
    if "--replay" in arguments:
        places = [(name, *place) for name in score.SETS for place in score.captured(name, "", "")]
        found = [row for place in places for row in (replayed(*place), given(*place)) if row]
        pd.DataFrame(found).to_csv(ROWS, index=False, lineterminator="\n")
    table = rows()
    if "--write" in arguments:
        head = "# Written by tests/answer_key/intervals.py: how far fixes that were built are from what their replay saves.\n"
        told = [
            f"\n[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in structs.asdict(one).items())
            for name, one in fit(table).items()
        ]
        FILE.write_text(head + "".join(told), encoding="utf-8")
    judged = left_out(tried(table))
    print(judged.round(3).to_string(index=False))
    for title in ("others", "earlier"):
        for name, of in [*judged.groupby("group"), ("all causes", judged[judged["group"] != "given"])]:
            of = of[of[title].notna()]
            hits, count, width = of[title].sum(), of["of"].sum(), (of[f"{title}_width"] * of["of"]).sum()
            print(f"fitted to {title}, {name}: {hits:.0f} of {count} ({hits / count:.0%}), width {width / count:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
