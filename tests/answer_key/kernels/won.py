"""Fit analysis/diagnosis/won.toml to kernels timed before and after their fix, and judge the fit on sets that it left out.

    python tests/answer_key/kernels/won.py            print how many speed-ups each interval holds, each set left out
    python tests/answer_key/kernels/won.py --write    write won.toml, fitted to all sets

A fix counts if its cause is the first that the rules name. Left out is not blind: the rules and their bounds have seen
all sets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2]), str(HERE)]

import fit  # noqa: E402 - as the path has just been set

from analysis.diagnosis import won  # noqa: E402
from analysis.diagnosis.judge import judge  # noqa: E402
from kernels.specimens import registry  # noqa: E402
from studies.specimens import score as specimens  # noqa: E402

SLACK, NEAR = 1.1, 0.25  # as in score.py
LARGEST = 1.5  # a part of the bound's logarithm: one fix that reaches more has another effect, too
ALIKE = 8  # fixes of all kinds that count beside those of one kind
FAR = np.log(4)  # bounds below it give the spread as a part of their logarithm, larger ones the most


def _speed_ups(one: fit.Known) -> dict[str, float]:
    """Return the speed-up of each fix of a set, by its slow form."""
    if one.name in registry.SETS:
        times = specimens.times()
        fixed = {name: name.replace("/slow", "/fixed") for name in times if name.endswith("/slow")}
        return {name: times[name] / times[other] for name, other in fixed.items()}
    table = pd.read_csv(HERE.parent / one.name / "times.csv").dropna(subset="fixed_us")
    return {f"{row.name}/slow": row.slow_us / row.fixed_us for row in table.itertuples(index=False)}


def _fixes() -> Iterator[tuple[str, str, str, float, float, float]]:
    for one in (one for one in fit.known() if one.tier in fit.CAPTURED):
        found, times = judge(one.rows, one.limits), _speed_ups(one)
        for place, (name, truth) in enumerate(zip(one.rows["range"], one.truth.itertuples(), strict=True)):
            first = next(iter(found.of(place)), None)
            if truth.kind != "defect" or first is None or first.gain <= 0:
                continue
            if first.defect in {truth.cause, *filter(None, truth.also.split("|"))}:
                yield one.name, one.tier, first.kind, np.log(times[name]), -np.log(1 - first.gain), first.most


def fixes() -> pd.DataFrame:
    """Return a row a fix and list of metrics: logarithms of the speed-up, `won`, and of its bound; `part` is their ratio."""
    table = pd.DataFrame(_fixes(), columns=["set", "tier", "kind", "won", "bound", "most"])
    return table.assign(part=(table["won"] / table["bound"]).clip(0, LARGEST))


def fitted(table: pd.DataFrame) -> won.Won:
    """Return the mean part of each kind, drawn towards that of all, and the spreads."""
    parts = table.groupby("kind")["part"].agg(["sum", "size"]).reindex(["other", "library", "weighed"], fill_value=0)
    means = (parts["sum"] + ALIKE * table["part"].mean()) / (parts["size"] + ALIKE)
    off, near = table["part"] - table["kind"].map(means), table["bound"] < FAR
    spread = np.sqrt((off[near] ** 2).mean())
    most = np.sqrt(((off * table["bound"])[~near] ** 2).mean())
    return won.Won(*(round(float(one), 2) for one in (*means, spread, most)))


def judged(table: pd.DataFrame, parts: won.Won) -> pd.DataFrame:
    """Return whether each speed-up is below the high end, in the interval, and near its middle, and its width."""
    ends = [parts.of(1 - np.exp(-one.bound), one.kind, one.most) for one in table.itertuples()]
    low, high = (np.array([getattr(one, end) for one in ends]) for end in ("low", "high"))
    saved, middle = 1 - np.exp(-table["won"].to_numpy()), (low + high) / 2
    faster = 1 / (1 - saved)
    held = faster * (1 - high) <= SLACK
    return pd.DataFrame({
        "set": table["set"], "tier": table["tier"], "held": held, "inside": held & (faster * (1 - low) * SLACK >= 1),
        "near the time saved": np.abs(middle / saved - 1) <= NEAR,
        "near the speed-up": np.abs(1 / (1 - middle) / faster - 1) <= NEAR, "width": high - low,
    })  # fmt: skip


def left_out(table: pd.DataFrame) -> pd.DataFrame:
    """Return `judged` of each set by parts that were fitted to the others."""
    return pd.concat(judged(own, fitted(table[table["set"] != name])) for name, own in table.groupby("set", sort=False))


def main(arguments: list[str]) -> None:
    """Run the command line."""
    table = fixes()
    if "--write" in arguments:
        rows = "".join(f"{name} = {value}\n" for name, value in msgspec.structs.asdict(fitted(table)).items())
        head = "# Written by tests/answer_key/kernels/won.py: which part of a bound's logarithm fixes reach.\n"
        won.FILE.write_text(head + rows, encoding="utf-8")
    for said, rows in (("each set left out", left_out(table)), ("fitted to all", judged(table, fitted(table)))):
        sums = rows.groupby(["set", "tier"], sort=False).mean(numeric_only=False)
        sums.insert(0, "fixes", rows.groupby(["set", "tier"], sort=False).size())
        print(f"{said}\n{sums.astype(float).round(2).to_string()}")
        key = rows[rows["set"].str.startswith("kernels")].drop(columns=["set", "tier"])
        print("sets of the key", len(key), key.mean().round(3).to_dict())
        print("all", len(rows), rows.drop(columns=["set", "tier"]).mean().round(3).to_dict())


if __name__ == "__main__":
    main(sys.argv[1:])
