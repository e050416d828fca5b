"""Count how often each rule is wrong on processes whose true difference is known.

    python -m studies.comparison.rates FOLDER    read FOLDER/fresh-*.csv.xz, and write FOLDER/tables/error_rates.csv

A file holds processes of one program one after the other. Each timed every kernel with 100, 101,
102 and 105 % of the work. A comparison takes A from one process and B from its neighbour, in an order that is drawn as
`make ab` draws it: with 100 % on both sides nothing differs, with 102 % B is slower. Ours takes TURNS such pairs, or
half of them, and no process is in two comparisons. The other rules take one pair, as their tools do, or half of TURNS.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from analysis.comparison import verdict
from analysis.formats.comparison import MIRROR, TURNS, Verdict
from studies.comparison import DATA

Floats = npt.NDArray[np.float64]
PERCENTS = (100, 101, 102, 105)
MEDIAN, MEAN, SPREAD = range(3)
# In fixed order, the launch with 100 % follows another kernel, and the others follow the same one with warm caches.
_BASES = {("ordered", "kernels"): 101}
COLUMNS = [
    "data", "rule", "runs", "slower_frac", "comparisons", "faster", "slower", "same", "unsure", "found_frac",
    "false_frac", "families", "families_alarmed", "not_mirrored",
]  # fmt: skip


@dataclass(frozen=True)
class Data:
    """Times of many processes. `values`: (processes, rows, percents, 3): median, mean, spread of the launches, ns."""

    name: str
    rows: list[str]
    values: Floats
    launches: int
    base: int = 100  # the percent of side A


def read(path: Path) -> Iterator[Data]:
    """Yield the sets of rows of a file that are judged together: the kernels, or one model."""
    names = ["process", "second", "row", "percent", "launches", "median", "mean", "spread"]
    table = pd.read_csv(path, names=names)
    table["set"] = [next((one for one in DATA if row.startswith(f"{one} ")), "kernels") for row in table["row"]]
    for name, own in table.groupby("set", sort=False):
        sizes = own.groupby("process")["row"].transform("size")
        kept = own[sizes == sizes.max()]  # a process that was cut off is left out
        rows = list(dict.fromkeys(kept["row"]))
        index = pd.MultiIndex.from_product([sorted(kept["process"].unique()), rows, PERCENTS])
        ordered = kept.set_index(["process", "row", "percent"])[["median", "mean", "spread"]].reindex(index)
        values = ordered.to_numpy(float).reshape(-1, len(rows), len(PERCENTS), 3)
        said = path.name.partition(".")[0].removeprefix("fresh-")
        yield Data(f"{said}: {name}", rows, values, int(kept["launches"].iloc[0]), _BASES.get((said, str(name)), 100))


Rule = Callable[[Floats, Floats, int], list[Verdict]]  # (runs, rows, 3) of A and of B, launches of a run


def ours(a: Floats, b: Floats, launches: int) -> list[Verdict]:
    """Return our verdicts."""
    return [one.verdict for one in verdict.judge(a[..., MEDIAN], b[..., MEDIAN], paired=True)]


def apart(a: Floats, b: Floats, launches: int) -> list[Verdict]:
    """Return our verdicts without the knowledge of the pairs."""
    return [one.verdict for one in verdict.judge(a[..., MEDIAN], b[..., MEDIAN], paired=False)]


def _by(change: Floats, beyond: Floats | npt.NDArray[np.bool_]) -> list[Verdict]:
    found = np.where(beyond, np.where(change > 0, Verdict.SLOWER, Verdict.FASTER), Verdict.SAME)
    return [Verdict(one) for one in found]


def nvbench(a: Floats, b: Floats, launches: int) -> list[Verdict]:
    """Return nvbench_compare.py's: means differ by more than the smaller of both relative standard deviations."""
    change = b[0, :, MEAN] / a[0, :, MEAN] - 1
    noise = np.minimum(a[0, :, SPREAD] / a[0, :, MEAN], b[0, :, SPREAD] / b[0, :, MEAN])
    return _by(change, np.abs(change) > noise)


def t_test_launches(a: Floats, b: Floats, launches: int) -> list[Verdict]:
    """Return those of Welch's t-test on the launches of one process a side, at 5 %."""
    x, y = a[0], b[0]
    p = stats.ttest_ind_from_stats(
        x[:, MEAN], x[:, SPREAD], launches, y[:, MEAN], y[:, SPREAD], launches, equal_var=False
    ).pvalue
    return _by(y[:, MEAN] - x[:, MEAN], p < 0.05)


def t_test_runs(a: Floats, b: Floats, launches: int) -> list[Verdict]:
    """Return those of Welch's t-test on the means of all processes, at 5 %."""
    x, y = a[..., MEAN], b[..., MEAN]
    return _by((y.mean(0) - x.mean(0)), stats.ttest_ind(x, y, equal_var=False).pvalue < 0.05)


def medians(a: Floats, b: Floats, launches: int) -> list[Verdict]:
    """Return SLOWER or FASTER where medians of one process differ by more than 2 %."""
    change = b[0, :, MEDIAN] / a[0, :, MEDIAN] - 1
    return _by(change, np.abs(change) > 0.02)


def nsys_ai(a: Floats, b: Floats, launches: int) -> list[Verdict]:
    """Return SLOWER or FASTER where means of one capture a side differ by more than 2 %, the floor of nsys-ai."""
    change = b[0, :, MEAN] / a[0, :, MEAN] - 1
    return _by(change, np.abs(change) > 0.02)


RULES: dict[str, tuple[Rule, int]] = {
    "ours": (ours, TURNS),
    "ours, half the rounds": (ours, TURNS // 2),
    "ours, not in turns": (apart, TURNS // 2),
    "nvbench": (nvbench, 1),
    "t-test on launches": (t_test_launches, 1),
    "t-test on means of runs": (t_test_runs, TURNS // 2),
    "medians differ by 2 %": (medians, 1),
    "nsys-ai": (nsys_ai, 1),
}


def rates(data: Data, name: str, percent: int) -> dict[str, object]:
    """Return a row of error_rates.csv: one rule on one set of rows, with `percent` of the work on side B."""
    rule, runs = RULES[name]
    found, alarmed, unmirrored, families = [], 0, 0, 0
    for a, b in _pairs(data.values, runs, PERCENTS.index(data.base), PERCENTS.index(percent)):
        verdicts = rule(a, b, data.launches)
        found += verdicts
        families += 1
        alarmed += any(one in MIRROR for one in verdicts)
        back = rule(b, a, data.launches)
        unmirrored += sum(MIRROR.get(one, one) is not other for one, other in zip(verdicts, back, strict=True))
    count = {one: found.count(one) for one in Verdict}
    equal = percent == data.base
    wrong = count[Verdict.FASTER] + (count[Verdict.SLOWER] if equal else 0)
    total = len(found)
    return {
        "data": data.name, "rule": name, "runs": runs, "slower_frac": percent / data.base - 1, "comparisons": total,
        **{str(one).lower(): count[one] for one in Verdict},
        "found_frac": count[Verdict.SLOWER] / total if not equal and total else None,
        "false_frac": wrong / total if total else None,
        "families": families, "families_alarmed": alarmed if equal else None, "not_mirrored": unmirrored,
    }  # fmt: skip


def _pairs(values: Floats, runs: int, base: int, at: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield disjoint comparisons: (runs, rows, 3) of A and of B."""
    coin = np.random.default_rng(54)
    for begin in range(0, len(values) - 2 * runs + 1, 2 * runs):
        block = values[begin : begin + 2 * runs].reshape(runs, 2, *values.shape[1:])
        first = coin.integers(0, 2, runs)
        rounds = np.arange(runs)
        yield block[rounds, first, :, base], block[rounds, 1 - first, :, at]


def main() -> int:
    """Write error_rates.csv for the folder that the command line names."""
    if {"-h", "--help"} & set(sys.argv):
        print("usage: python -m studies.comparison.rates FOLDER")
        return 0
    folder = Path(sys.argv[1])
    sets = [data for path in sorted(folder.glob("fresh-*.csv.xz")) for data in read(path)]
    rows = [
        rates(data, name, percent) for data in sets for name in RULES for percent in PERCENTS if percent >= data.base
    ]
    (folder / "tables").mkdir(exist_ok=True)
    table = pd.DataFrame(rows, columns=COLUMNS)
    table.to_csv(folder / "tables" / "error_rates.csv", index=False, lineterminator="\n", float_format="%.4g")
    with pd.option_context("display.width", 250, "display.max_rows", 500, "display.max_columns", 20):
        print(table.to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
