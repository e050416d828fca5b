"""Fit analysis/diagnosis/likelihood.json to all kernels of known causes, and judge the fit on sets that it left out.

    python tests/answer_key/kernels/fit.py            print the first cause of sets left out: by the weights alone, and by all
    python tests/answer_key/kernels/fit.py --write    write likelihood.json, fitted to all sets
    python tests/answer_key/kernels/fit.py --metrics  print what single metrics beside the default ones add

Sets: the three of kernels/specimens and those of the answer key, and clean kernels that only teach. Left out is not
blind: the quantities, and the rules beside them, were chosen by people who had seen all these sets.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from scipy.optimize import minimize

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from analysis.diagnosis import likelihood  # noqa: E402 - as the path has just been set
from analysis.diagnosis.each import limits_of_gpu, mean_launches_of  # noqa: E402
from analysis.diagnosis.evidence import Evidence, Floats  # noqa: E402
from analysis.diagnosis.judge import judge  # noqa: E402
from analysis.diagnosis.limits import Limits  # noqa: E402
from analysis.hardware.metrics import catalogue  # noqa: E402
from kernels.specimens import registry  # noqa: E402
from studies.specimens import score as specimens  # noqa: E402
from tests.answer_key.kernels.score import declared_facts  # noqa: E402

# Of the regression; chosen as judge.TRUST was, from 0.03 to 0.8 and 0 to 1. More give the same within 3 of 261 kernels.
LOOSE = 0.2  # sum of squared weights that costs as much as half a kernel of likelihood 1 / e
COUNTS = {"defect": 1.0, "clean": 1.0, "trap": 0.5, "fixed": 0.1}  # a fixed form may have another defect
WORTH = 0.06  # of the time of the slow form, as in score.py
CAPTURED = ("default", "full")
TIERS = ("default", "listed", "full")  # listed: what of all metrics today's default list asks for
SCORED = ("kernels", *(f"kernels_{number}" for number in range(2, 16)))  # a new set is judged first, then it joins
LEARNED = ("kernels_clean",)  # clean kernels that are never judged
# What confirms one of them: the share of its busiest unit, or so many times of an empty kernel. They were chosen on the
# clean kernels of SCORED (123 of 133 pass) before a kernel of LEARNED had run.
BUSY, EMPTY = 0.8, 2.0
UNITS = re.compile("busy_|(alu|fma|tensor|xu)_active_frac")
CLEAN = ("", "none_at_roof", "launch_latency")
AS = {"precision": "fp32_for_matrix"}  # a cause of steps, in the words of kernels


@dataclass(frozen=True)
class Known:
    """The launches of one set and list of metrics; `truth` has `kind` (defect, trap, clean, fixed), `cause`, `also`."""

    name: str
    tier: str
    rows: pd.DataFrame
    limits: Limits
    truth: pd.DataFrame

    @property
    def quantities(self) -> pd.DataFrame:
        return likelihood.quantities(Evidence(self.rows, self.limits))


def _specimens(half: str, tier: str) -> Known:
    rows = specimens.read_half(half, tier)
    known = {one.name: one for one in registry.specimens() if one.half == half}
    rows = rows.loc[[name for name in rows.index if name in known]]
    told = [known[name] for name in rows.index]
    kinds = {"slow": "defect", "fixed": "fixed"}
    truth = pd.DataFrame(
        {"kind": [kinds.get(one.version, "clean") for one in told], "cause": [one.defect for one in told]}
    )
    rows = pd.concat([rows.reset_index(drop=True), pd.Series([one.name for one in told], name="range")], axis=1)
    return Known(half, tier, rows, specimens.limits(), truth.assign(also=""))


def _key(name: str, tier: str) -> Known:
    folder = HERE.parent / name
    times = pd.read_csv(folder / "times.csv", keep_default_na=False, na_values={"fixed_us": [""]}).set_index("name")
    facts = declared_facts(folder, tier)
    rows, limits = mean_launches_of(facts), limits_of_gpu(facts)
    assert limits is not None
    rows["range"] = rows["range"].str.extract(
        "^([^/]*/[^/]*)", expand=False
    )  # a library may open ranges of its own inside
    kept = rows["range"].str.partition("/")[0].isin(times.index)  # a kernel may be captured and then left out
    kept &= ~rows["range"].duplicated(keep=False)  # of a form with several kernels, none is the cause
    rows = rows[kept].reset_index(drop=True)
    parts = rows["range"].str.split("/", expand=True)
    own = times.loc[parts[0]].reset_index()
    trap = 1 - own["fixed_us"] / own["slow_us"] < WORTH
    kind = np.where(parts[1] == "slow", np.where(trap, "trap", "defect"), parts[1])
    return Known(name, tier, rows, limits, own[["cause", "also"]].replace({"cause": AS}).assign(kind=kind))


def is_confirmed(one: Known) -> pd.Series:
    """Return whether counters show that a kernel needs no advice: a unit is busy, or it does next to nothing."""
    busiest = one.quantities.filter(regex=UNITS).max(axis=1)
    return (busiest >= BUSY) | (one.rows["duration_ns"] < EMPTY * one.limits.empty_kernel_ns)


def _learned(name: str) -> list[Known]:
    """Return those kernels of a set that either list of metrics confirms; none before it is captured."""
    if not (HERE.parent / name / "times.csv").is_file():
        return []
    both = [_key(name, tier) for tier in CAPTURED]
    confirmed = {range_ for one in both for range_ in one.rows.loc[is_confirmed(one), "range"]}
    return [_those(one, one.rows["range"].isin(confirmed)) for one in both]


def _those(one: Known, kept: pd.Series) -> Known:
    return replace(one, rows=one.rows[kept].reset_index(drop=True), truth=one.truth[kept].reset_index(drop=True))


@cache
def known() -> tuple[Known, ...]:
    """Return every set with captures: with the default metrics of its day, those of today, and all there are."""
    captured = (
        [_specimens(half, tier) for half in registry.SETS for tier in CAPTURED]
        + [_key(name, tier) for name in SCORED for tier in CAPTURED]
        + [one for name in LEARNED for one in _learned(name)]
    )
    asked = {one.name for one in catalogue()[0] if any(way.capture is True for way in one.ways)}
    asked |= set(_key(SCORED[-1], "default").rows)
    full = [one for one in captured if one.tier == "full"]
    return (
        *captured,
        *(replace(one, tier="listed", rows=one.rows[[name for name in one.rows if name in asked]]) for one in full),
    )


def fit(sets: Sequence[Known], without: tuple[str, ...] = ()) -> pd.DataFrame:
    """Return the table of likelihood.json, fitted to these sets, without some of the quantities."""
    truth = pd.concat([one.truth for one in sets], ignore_index=True)
    values = pd.concat([one.quantities for one in sets], ignore_index=True).drop(columns=list(without))
    cause = truth["cause"].where(truth["kind"] == "defect", likelihood.NOTHING)
    return regression(values, cause, truth["kind"].map(COUNTS).to_numpy(np.float64))


def standardised(values: pd.DataFrame) -> tuple[Floats, pd.Series, pd.Series]:
    """Return quantities in spreads from their mean, shape (rows, quantities), and the mean and spread of each."""
    mean, spread = values.mean().fillna(0.0), values.std(ddof=0)
    spread = spread.where(spread > 1e-6, 1.0)
    return likelihood.scaled(values.to_numpy(), mean.to_numpy(), spread.to_numpy()), mean, spread


def regression(values: pd.DataFrame, cause: pd.Series, counts: Floats) -> pd.DataFrame:
    """Return the weights of a logistic regression: `mean` and `spread` of each quantity, and a column for each cause.

    The row `bias` belongs to the causes alone. `counts`: how often each kernel counts. Shape: (kernels,).
    """
    z, mean, spread = standardised(values)
    z = np.hstack([z, np.ones((len(z), 1))])
    classes = sorted(set(cause))
    own = (cause.to_numpy()[:, None] == np.array(classes)) * counts[:, None]

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(z.shape[1], -1)
        chances = likelihood.odds(z @ weights, 1.0)
        free = np.vstack([weights[:-1], np.zeros_like(weights[:1])])  # the bias costs nothing
        cost = (free**2).sum() / (2 * LOOSE) - (own * np.log(chances + 1e-300)).sum()
        return cost, (z.T @ (chances * counts[:, None] - own) + free / LOOSE).ravel()

    best = minimize(loss, np.zeros(z.shape[1] * len(classes)), jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    table = pd.DataFrame(best.x.reshape(z.shape[1], -1), [*values.columns, "bias"], classes)
    table.index.name = "quantity"
    table.insert(0, "mean", mean)
    table.insert(1, "spread", spread)
    return table


def right(named: pd.Series, truth: pd.DataFrame) -> pd.Series:
    """Return whether each first cause is right: a cause of a defect, none of a clean kernel, not the one of a trap."""
    allowed = [{one.cause, *filter(None, one.also.split("|"))} for one in truth.itertuples()]
    hits = np.array([name in one for name, one in zip(named, allowed, strict=True)])
    return pd.Series(
        np.where(truth["kind"] == "defect", hits, np.where(truth["kind"] == "trap", ~hits, named.isin(CLEAN)))
    )


def first(one: Known, table: pd.DataFrame) -> pd.DataFrame:
    """Return the first cause of each kernel by rules and weights, `named`, and its share, `sure`."""
    with mock.patch.object(likelihood, "weights", return_value=table):
        found = judge(one.rows, one.limits)
    tops = [(of[0].defect, of[0].sure) if (of := found.of(row)) else ("", np.nan) for row in range(len(one.rows))]
    return pd.DataFrame(tops, columns=["named", "sure"])


def left_out(without: tuple[str, ...] = (), tiers: tuple[str, ...] = TIERS, *, alone: bool = False) -> pd.DataFrame:
    """Return a row a kernel, judged by weights that were fitted to the other sets, as likelihood.json is."""
    parts = []
    for name in dict.fromkeys(one.name for one in known() if one.name not in LEARNED):
        table = fit([one for one in known() if one.name != name and one.tier in tiers], without)
        for one in known():
            if one.name != name or one.tier not in tiers:
                continue
            if alone:
                told = likelihood.chances(Evidence(one.rows, one.limits), table)
                judged = pd.DataFrame({"named": told.idxmax(axis=1), "sure": told.max(axis=1)})
                judged["named"] = judged["named"].replace(likelihood.NOTHING, "")
            else:
                judged = first(one, table)
            judged = judged.assign(right=right(judged["named"], one.truth), set=name, tier=one.tier)
            parts.append(pd.concat([one.truth, judged], axis=1))
    return pd.concat(parts, ignore_index=True)


def _table(rows: pd.DataFrame) -> str:
    counts = rows[rows["kind"] != "fixed"].groupby(["tier", "kind", "set"], sort=False)["right"].agg(["sum", "size"])
    text = counts["sum"].astype(int).astype(str) + " of " + counts["size"].astype(str)
    return str(text.unstack("set").fillna("–").to_string())


def _short(value: float) -> float | None:
    return None if np.isnan(value) else float(f"{value:.4g}")


def save(table: pd.DataFrame, file: Path) -> None:
    """Write weights as JSON, with four digits."""
    rows = [
        ["quantity", *table],
        *([name, *map(_short, row)] for name, row in zip(table.index, table.to_numpy(), strict=True)),
    ]
    file.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Run the command line."""
    if "--write" in arguments:
        save(fit(known()), likelihood.FILE)
    elif "--metrics" in arguments:
        found = [pd.concat(one.quantities for one in known() if one.tier == tier) for tier in ("listed", "full")]
        listed, full = (set(rows.columns[rows.notna().any()]) for rows in found)
        for added in ("", *sorted(full - listed)):
            without = tuple(full - listed - {added})
            rows = left_out(without, ("full",), alone=True)
            rows = rows[rows["kind"] == "defect"]
            print(f"{added or 'default list':24} {int(rows['right'].sum())} of {len(rows)}")
    else:
        print("Weights alone\n" + _table(left_out(alone=True)))
        rows = left_out()
        print("Weights and rules\n" + _table(rows))
        said = rows[(rows["kind"] == "defect") & rows["sure"].notna() & ~rows["named"].isin(CLEAN)]
        groups = said.groupby(pd.cut(said["sure"], [0, 0.4, 0.6, 0.8, 1.0]), observed=True)
        print(
            "said, right, verdicts\n"
            + groups.agg(said=("sure", "mean"), right=("right", "mean"), verdicts=("right", "size"))
            .round(2)
            .to_string()
        )


if __name__ == "__main__":
    main(sys.argv[1:])
