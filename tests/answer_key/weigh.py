"""Fit analysis/diagnosis/step_likelihood.json to programs of known causes, and judge the order on sets left out.

    python tests/answer_key/weigh.py            print how many first causes of first looks are right, on sets left out
    python tests/answer_key/weigh.py --write    write step_likelihood.json, fitted to all sets

first_look_findings.csv has what the rules of each first look proposed. The rules of that day chose the order by saving;
here, weights fitted to other sets choose it. Today's code reads the quantities of a step. `--table FILE` keeps them.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE), str(HERE / "kernels")]

import fit  # noqa: E402 - as the path has just been set
import score  # noqa: E402

from analysis.capture.load import load  # noqa: E402
from analysis.diagnosis import step_likelihood  # noqa: E402
from analysis.diagnosis.evidence import Floats  # noqa: E402
from analysis.diagnosis.step_tables import answer_steps  # noqa: E402
from analysis.facts import Facts  # noqa: E402

LOOKS = ("blind_screen", "blind_screen_2", "blind_screen_3", "blind_screen_4", "blind_5", "blind_6")
CAUSES = ("tuned", *LOOKS)  # sets that name the cause of a program without one, too; others only say `compute_roof`
REPLAYS = tuple(f"blind_replay{number}" for number in ("", "_2", "_3", "_4"))  # each as old as a look
SETS = (*CAUSES, *REPLAYS, "blind_measured", "blind_measured_2")
RANKS = ("slow_rank", "exposed_communication")  # not weighed: all known programs of several ranks have one of these
SHRUNK = 0.5  # of the covariance, towards a multiple of the identity: 0.1 to 0.7 give the same within 2 of 190 kernels
LEAST = 0.003  # of the step: a smaller saving counts as so much
ALIKE = 0.25  # of the rarer runs of six words: programs that share as much are variants of one


@dataclass(frozen=True)
class Program:
    """A program of known cause: the causes that are right, and the quantities of its longest step."""

    set: str
    name: str
    cause: str
    right: frozenset[str]
    framework: str
    found: pd.Series


def measured() -> pd.DataFrame:
    """Return the quantities of each program with a cause. Shape: (programs, quantities), by set and name."""
    rows = {}
    for name in SETS:
        declared = score.declared(name)
        for program, gpu in score.captured(name, "", ""):
            if name not in CAUSES and declared[program].get("nothing"):
                continue
            with tempfile.TemporaryDirectory() as folder:
                found = Facts(load([score.unpack(name, program, gpu, Path(folder))])).once(answer_steps)
                if found:
                    rows[name, program] = step_likelihood.quantities(found[0].view)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["set", "program"])


def programs(table: pd.DataFrame) -> list[Program]:
    """Return the programs of these quantities."""
    made = []
    for name, own in table.groupby(level="set", sort=False):
        declared = score.declared(str(name))
        for (_, program), row in own.iterrows():
            one = declared[program]
            right = frozenset({one["cause"], *one.get("accept", [])})
            made.append(Program(str(name), program, one["cause"], right, one["framework"], row))
    return made


def discriminant(values: pd.DataFrame, cause: pd.Series) -> pd.DataFrame:
    """Return the weights of a linear discriminant: `mean` and `spread` of each quantity, and a column for each cause."""
    scaled, mean, spread = fit.standardised(values)
    z = pd.DataFrame(scaled, columns=values.columns)
    means = z.groupby(cause).mean()
    left = (z - means.loc[cause].to_numpy()).to_numpy()
    covariance = left.T @ left / (len(left) - len(means))
    mixed = (1 - SHRUNK) * covariance + SHRUNK * np.eye(len(covariance)) * np.trace(covariance) / len(covariance)
    of: Floats = np.linalg.solve(mixed, means.to_numpy().T)
    table = pd.DataFrame(of, index=pd.Index(values.columns, name="quantity"), columns=means.index)
    table.loc["bias"] = -0.5 * (of.T * means.to_numpy()).sum(axis=1)
    table.insert(0, "mean", mean)
    table.insert(1, "spread", spread)
    return table


def weights(known: Iterable[Program]) -> pd.DataFrame:
    """Return the weights fitted to these programs."""
    listed = [one for one in known if one.cause not in RANKS]
    values = pd.DataFrame([one.found.to_numpy() for one in listed], columns=listed[0].found.index)
    return discriminant(values, pd.Series([one.cause for one in listed]))


@cache
def words(name: str, program: str) -> frozenset[tuple[str, ...]]:
    """Return the runs of six words in a program's source, without comments."""
    path = next(path for path in (HERE / name).glob(f"{program}.*") if path.suffix in (".py", ".cu"))
    text = re.sub(r'"""[\s\S]*?"""|#.*|//.*', "", path.read_text(encoding="utf-8"))
    parts = re.findall(r"\w+|[^\w\s]", text)
    return frozenset(zip(*(parts[at:] for at in range(6)), strict=False))


def variants(known: list[Program]) -> set[tuple[str, str]]:
    """Return the pairs of names of programs that resemble each other."""
    counts = Counter(run for one in known for run in words(one.set, one.name))
    rare = {one.name: {run for run in words(one.set, one.name) if counts[run] <= 8} for one in known}
    pairs = itertools.combinations(rare, 2)
    alike = {(a, b) for a, b in pairs if len(rare[a] & rare[b]) > ALIKE * min(len(rare[a]), len(rare[b]))}
    return alike | {(b, a) for a, b in alike}


def first(findings: pd.DataFrame, likely: dict[str, float]) -> str:
    """Return the kind of the finding that comes first: what it saves times how likely its cause is."""
    now = findings[findings["later"] != "yes"]
    now = now if len(now) else findings
    saves = now[["low_frac", "high_frac"]].mean(axis=1).clip(lower=LEAST)
    chance = [step_likelihood.chance(likely, kind) for kind in now["kind"]] if likely else 1.0
    return str(now.loc[(saves.fillna(LEAST) * chance).idxmax(), "kind"])


def judged(known: list[Program], others: Callable[[Program, Program], bool] | None) -> pd.DataFrame:
    """Return a row for each program of a first look: whether its first cause was right, is now, and by weights alone.

    `others` says whether the weights for the first program are fitted to the second; None: no weights.
    """
    looked = pd.read_csv(
        HERE / "first_look_findings.csv", keep_default_na=False, na_values={"low_frac": "", "high_frac": ""}
    )
    rows, fitted = [], dict[tuple[str, ...], pd.DataFrame]()
    for (name, program), findings in looked.groupby(["set", "program"], sort=False):
        own = next(one for one in known if (one.set, one.name) == (name, program))
        likely = dict[str, float]()
        if others is not None:
            chosen = tuple(f"{one.set}/{one.name}" for one in known if others(own, one))
            if chosen not in fitted:
                fitted[chosen] = weights(one for one in known if f"{one.set}/{one.name}" in set(chosen))
            likely = step_likelihood.weighed(own.found.to_dict(), fitted[chosen])
        rows.append({
            "set": name, "program": program, "was": findings["kind"].iloc[0] in own.right,
            "now": first(findings, likely) in own.right, "proposed": findings["kind"].isin(own.right).any(),
            "alone": bool(likely) and max(likely, key=lambda kind: likely[kind]) in own.right,
        })  # fmt: skip
    return pd.DataFrame(rows)


def told(title: str, rows: pd.DataFrame) -> str:
    """Return one line: right first causes of each set and of all, with a 95 % interval, gained, lost, and its chance."""
    right, gained, lost = (
        int(rows["now"].sum()),
        int((rows["now"] & ~rows["was"]).sum()),
        int((rows["was"] & ~rows["now"]).sum()),
    )
    low, high = stats.binomtest(right, len(rows)).proportion_ci()
    chance = stats.binomtest(gained, max(gained + lost, 1)).pvalue
    sets = " ".join(f"{own['now'].sum()}/{len(own)}" for _, own in rows.groupby("set", sort=False))
    return (
        f"{title:52} {sets}  {right} of {len(rows)} ({right / len(rows):.0%}, {low:.0%} to {high:.0%})  "
        f"+{gained} -{lost} p {chance:.3f}  weights alone {rows['alone'].sum()}"
    )


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--table", type=Path, metavar="FILE", help="read quantities from this CSV, or write them to it")
    options = parser.parse_args(arguments)
    if options.table and options.table.exists():
        table = pd.read_csv(options.table, index_col=["set", "program"])
    else:
        table = measured()
        if options.table:
            table.to_csv(options.table)
    known = programs(table)
    if options.write:
        fit.save(weights(known), step_likelihood.FILE)
        return
    alike = variants(known)
    order = {name: place for names in (LOOKS, REPLAYS) for place, name in enumerate(names)} | {"tuned": -1}

    def earlier(own: Program, one: Program) -> bool:
        return order.get(one.set, len(LOOKS)) < order[own.set]

    rows = judged(known, None)
    print(f"first look {rows['was'].sum()}, proposed at all {rows['proposed'].sum()} of {len(rows)}")
    print(told("by saving alone", rows))
    for title, others in (
        ("weights of other sets", lambda own, one: one.set != own.set),
        (
            "of other sets, without variants of the program",
            lambda own, one: one.set != own.set and (own.name, one.name) not in alike,
        ),
        ("of earlier sets", earlier),
        (
            "of other sets, other frameworks with its cause",
            lambda own, one: one.set != own.set and (own.framework, own.cause) != (one.framework, one.cause),
        ),
    ):
        rows = judged(known, others)
        print(told(title, rows))
        print(
            "   gained",
            *rows.loc[rows["now"] & ~rows["was"], "program"],
            "lost",
            *rows.loc[rows["was"] & ~rows["now"], "program"],
        )


if __name__ == "__main__":
    main()
