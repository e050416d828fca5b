"""Count how often verdicts are wrong, and how often they find a slow-down, by our rule and by those of other tools.

    python -m studies.comparison.rates FOLDER    read FOLDER/*.csv.xz; write error_rates.csv.xz and error_summary.csv

A file holds a row for each process, kernel or part of a model, and amount of work (100, 101, 102, 105 percent): a row,
the number of its launches (or steps), and the median, mean and standard deviation of their times. Two processes make a
pair: with 100 % on both sides nothing differs, with 102 % B is slower. Ours takes as many such pairs as `make ab` took
rounds by default when they were measured, or half of them. The other rules take one pair, as their tools do, or half.

In files turns-*, a process has one amount of work, and a round one process of each side (turns.py): the comparisons of
one block of rounds share side A. In the other files a process has four amounts, and no process is in two comparisons.
Where it drew their order, there is a second score, *same place*: both sides of a round were measured at the same place
of their processes, as by programs that have one amount of work each.

The rows of a model are its step, the time in which the GPU is busy, and its kernels; each model is a comparison of its
own, and so are all single kernels together.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from analysis.comparison.compare import of_sides
from analysis.comparison.runs import RunOf, SideOf, StepOf
from analysis.formats.comparison import MIRROR, Verdict
from studies.comparison import DATA

Floats = npt.NDArray[np.float64]
Verdicts = dict[str, Verdict]  # by row; a row that is too small to judge has none
PERCENTS = (100, 101, 102, 105)
MEDIAN, MEAN, SPREAD = range(3)
STEP, BUSY, KERNELS = "step", "GPU busy", "single kernels"
SAME_PLACE = ", same place"
TURNS_FILE = "turns-"
ROUNDS, ROUNDS_OF_TURNS = 20, 24  # the default of `make ab` when the times were measured
COLUMNS = [
    "data", "what", "rule", "runs", "slower_frac", "comparisons", "faster", "slower", "same", "unsure", "found_frac",
    "false_frac", "families", "families_alarmed", "not_mirrored",
]  # fmt: skip


@dataclass(frozen=True)
class Data:
    """Times of many processes of one GPU: the kernels, or one model. `values`: (processes, rows, percents, 3), ns.

    With `places`, both sides of a round are of the same place. With `blocks`, each has the sides of its rounds, A
    first: their percent and (rounds, rows, 3).
    """

    name: str
    of: str
    rows: list[str]
    values: Floats
    launches: int
    places: npt.NDArray[np.int64] | None = None  # (processes, places): the index of the percent measured there
    blocks: Sequence[Sequence[tuple[int, Floats]]] = ()

    @property
    def turns(self) -> int:
        """Return the rounds of one comparison."""
        return ROUNDS_OF_TURNS if self.blocks else ROUNDS


def read(path: Path) -> Iterator[Data]:
    """Yield the sets of rows of a file that are judged together: the kernels, or one model."""
    in_turns = path.name.startswith(TURNS_FILE)
    names = ["process", "second", "row", "percent", "launches", "median", "mean", "spread"]
    table = pd.read_csv(path, names=["block", "round", "place", "side", *names] if in_turns else names)
    table["set"] = [next((one for one in DATA if row.startswith(f"{one} ")), "kernels") for row in table["row"]]
    said = path.name.partition(".")[0]
    for of, own in table.groupby("set", sort=False):
        if in_turns:
            yield _in_turns(said, str(of), own)
            continue
        sizes = own.groupby("process")["row"].transform("size")
        kept = own[sizes == sizes.max()]  # a process that was cut off is left out
        rows = list(dict.fromkeys(kept["row"]))
        index = pd.MultiIndex.from_product([sorted(kept["process"].unique()), rows, PERCENTS])
        ordered = kept.set_index(["process", "row", "percent"])[["median", "mean", "spread"]].reindex(index)
        values = ordered.to_numpy(float).reshape(-1, len(rows), len(PERCENTS), 3)
        short = _short(str(of), rows)
        data = Data(said, str(of), short, values, int(kept["launches"].iloc[0]))
        yield data
        order = kept.drop_duplicates(["process", "percent"])["percent"].map(PERCENTS.index).to_numpy(np.int64)
        places = order.reshape(-1, len(PERCENTS))
        if (places != places[0]).any():
            yield replace(data, name=f"{said}{SAME_PLACE}", places=places)


def _short(of: str, rows: Sequence[str]) -> list[str]:
    return [BUSY if row == f"{of} kernels" else row.removeprefix(f"{of} ") for row in rows]


def _in_turns(said: str, of: str, table: pd.DataFrame) -> Data:
    """Return the times of processes with one amount of work; a block that was cut off is left out."""
    rows = list(dict.fromkeys(table["row"]))
    blocks = []
    for _, block in table.groupby("block"):
        rounds = range(ROUNDS_OF_TURNS)
        sides = block.groupby("side")["percent"].first()
        index = pd.MultiIndex.from_product([sides.index, rounds, rows])
        ordered = block.set_index(["side", "round", "row"])[["median", "mean", "spread"]].reindex(index)
        values = ordered.to_numpy(float).reshape(len(sides), len(rounds), len(rows), 3)
        if np.isfinite(values).all():
            blocks.append([(int(percent), own) for percent, own in zip(sides, values, strict=True)])
    return Data(said, of, _short(of, rows), np.empty(0), int(table["launches"].iloc[0]), blocks=blocks)


Rule = Callable[[Sequence[str], Floats, Floats, int], Verdicts]  # rows, (runs, rows, 3) of A and of B, their launches


def ours(rows: Sequence[str], a: Floats, b: Floats, launches: int, turns: bool = True) -> Verdicts:
    """Return what a comparison of two rounds.csv says."""
    found = of_sides(*(_side(name, rows, own[..., MEDIAN], turns) for name, own in (("a", a), ("b", b)))).steps[0]
    verdicts = {row.a[0]: row.judged.verdict for row in found.rows if row.judged}
    if found.a_ns is not None:
        verdicts[STEP] = found.judged.verdict
        if found.gpu:
            verdicts[BUSY] = found.gpu.verdict
    return verdicts


def _side(name: str, rows: Sequence[str], times: Floats, turns: bool) -> SideOf:
    kernels = [row for row in rows if row not in (STEP, BUSY)]
    frame = pd.DataFrame({"layer": "", "kernel": kernels, "ordinal": 0, "launches": 1.0})
    runs = []
    for number, own in enumerate(times, 1):
        of = dict(zip(rows, own.tolist(), strict=True))
        items = frame.assign(time_ns=[of[one] for one in kernels])
        busy = float(items["time_ns"].sum())
        idle = {"other": of[STEP] - busy} if STEP in of else {}
        step = StepOf("s", items, of.get(STEP), busy if STEP in of else None, idle)
        runs.append(RunOf(f"{name}{number}", "rounds", {}, (step,), (number, number) if turns else None))
    return SideOf(name, tuple(runs), name)


def apart(rows: Sequence[str], a: Floats, b: Floats, launches: int) -> Verdicts:
    """Return what it says without the knowledge of the pairs."""
    return ours(rows, a, b, launches, turns=False)


def _by(rows: Sequence[str], change: Floats, beyond: Floats | npt.NDArray[np.bool_]) -> Verdicts:
    found = np.where(beyond, np.where(change > 0, Verdict.SLOWER, Verdict.FASTER), Verdict.SAME)
    return dict(zip(rows, map(Verdict, found), strict=True))


def nvbench(rows: Sequence[str], a: Floats, b: Floats, launches: int) -> Verdicts:
    """Return nvbench_compare.py's: means differ by more than the smaller of both relative standard deviations."""
    change = b[0, :, MEAN] / a[0, :, MEAN] - 1
    noise = np.minimum(a[0, :, SPREAD] / a[0, :, MEAN], b[0, :, SPREAD] / b[0, :, MEAN])
    return _by(rows, change, np.abs(change) > noise)


def t_test_launches(rows: Sequence[str], a: Floats, b: Floats, launches: int) -> Verdicts:
    """Return those of Welch's t-test on the launches of one process a side, at 5 %."""
    x, y = a[0], b[0]
    p = stats.ttest_ind_from_stats(
        x[:, MEAN], x[:, SPREAD], launches, y[:, MEAN], y[:, SPREAD], launches, equal_var=False
    ).pvalue
    return _by(rows, y[:, MEAN] - x[:, MEAN], p < 0.05)


def t_test_runs(rows: Sequence[str], a: Floats, b: Floats, launches: int) -> Verdicts:
    """Return those of Welch's t-test on the means of all processes, at 5 %."""
    x, y = a[..., MEAN], b[..., MEAN]
    return _by(rows, (y.mean(0) - x.mean(0)), stats.ttest_ind(x, y, equal_var=False).pvalue < 0.05)


def medians(rows: Sequence[str], a: Floats, b: Floats, launches: int) -> Verdicts:
    """Return SLOWER or FASTER where medians of one process differ by more than 2 %."""
    change = b[0, :, MEDIAN] / a[0, :, MEDIAN] - 1
    return _by(rows, change, np.abs(change) > 0.02)


def nsys_ai(rows: Sequence[str], a: Floats, b: Floats, launches: int) -> Verdicts:
    """Return SLOWER or FASTER where means of one capture a side differ by more than 2 %, the floor of nsys-ai."""
    change = b[0, :, MEAN] / a[0, :, MEAN] - 1
    return _by(rows, change, np.abs(change) > 0.02)


RULES: dict[str, tuple[Rule, int]] = {  # and by what the rounds of a comparison are divided; 0: one pair of runs
    "ours": (ours, 1),
    "ours, half the rounds": (ours, 2),
    "ours, not in turns": (apart, 2),
    "nvbench": (nvbench, 0),
    "t-test on launches": (t_test_launches, 0),
    "t-test on means of runs": (t_test_runs, 2),
    "medians differ by 2 %": (medians, 0),
    "nsys-ai": (nsys_ai, 0),
}


def rates(data: Data, name: str, percent: int) -> Iterator[dict[str, object]]:
    """Yield rows of error_rates.csv: one rule on one set of rows, with `percent` of the work on side B."""
    rule, part = RULES[name]
    runs = data.turns // part if part else 1
    equal = percent == PERCENTS[0]
    found: dict[str, list[Verdict]] = {}
    alarmed: dict[str, int] = {}
    unmirrored: dict[str, int] = {}
    families = 0
    for a, b in _pairs(data, runs, percent):
        verdicts, back = rule(data.rows, a, b, data.launches), rule(data.rows, b, a, data.launches)
        families += 1
        for what, rows in _parts(data, verdicts).items():
            own = [verdicts[row] for row in rows]
            found.setdefault(what, []).extend(own)
            alarmed[what] = alarmed.get(what, 0) + any(one in MIRROR for one in own)
            wrong = sum(MIRROR.get(verdicts[row], verdicts[row]) is not back.get(row) for row in rows)
            unmirrored[what] = unmirrored.get(what, 0) + wrong
    for what, own in found.items():
        count, total = {one: own.count(one) for one in Verdict}, len(own)
        wrong = count[Verdict.FASTER] + (count[Verdict.SLOWER] if equal else 0)
        yield {
            "data": data.name, "what": what, "rule": name, "runs": runs, "slower_frac": percent / PERCENTS[0] - 1,
            "comparisons": total, **{str(one).lower(): count[one] for one in Verdict},
            "found_frac": count[Verdict.SLOWER] / total if not equal else None, "false_frac": wrong / total,
            "families": families, "families_alarmed": alarmed[what] if equal else None,
            "not_mirrored": unmirrored[what],
        }  # fmt: skip


def _parts(data: Data, verdicts: Verdicts) -> dict[str, list[str]]:
    """Return which rows count together: single kernels; of a model its step, the busy GPU, and its kernels."""
    if data.of == "kernels":
        return {KERNELS: list(verdicts)}
    parts: dict[str, list[str]] = {}
    for row in verdicts:
        parts.setdefault(f"{data.of}: {row if row in (STEP, BUSY) else 'kernels'}", []).append(row)
    return parts


def _pairs(data: Data, runs: int, percent: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield comparisons: (runs, rows, 3) of A and of B."""
    values, at = data.values, PERCENTS.index(percent)
    for (_, a), *others in data.blocks:
        for b in [own for of, own in others if of == percent]:
            for begin in range(0, len(a) - runs + 1, runs):
                yield a[begin : begin + runs], b[begin : begin + runs]
    if data.blocks:
        return
    if data.places is not None:
        yield from _of_places(values, data.places, runs, at)
        return
    coin = np.random.default_rng(54)
    for begin in range(0, len(values) - 2 * runs + 1, 2 * runs):
        block = values[begin : begin + 2 * runs].reshape(runs, 2, *values.shape[1:])
        first = coin.integers(0, 2, runs)
        rounds = np.arange(runs)
        yield block[rounds, first, :, 0], block[rounds, 1 - first, :, at]


def _of_places(values: Floats, places: npt.NDArray[np.int64], runs: int, at: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield comparisons of what was measured at the same place of two processes; equal sides have any one amount."""
    for place in places.T:
        pairs = []
        for mine, other in [(0, at)] if at else [(one, one) for one in range(len(PERCENTS))]:
            a, b = np.flatnonzero(place == mine), np.flatnonzero(place == other)
            if mine == other:
                a, b = a[::2], a[1::2]
            pairs += [(i, mine, j, other) for i, j in zip(a.tolist(), b.tolist(), strict=False)]
        pairs.sort()
        for begin in range(0, len(pairs) - runs + 1, runs):
            chosen = pairs[begin : begin + runs]
            yield (
                np.stack([values[i, :, mine] for i, mine, _, _ in chosen]),
                np.stack([values[j, :, other] for _, _, j, other in chosen]),
            )


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return ours for all data, models together, and the other rules for single kernels of drawn order.

    A row has the false verdicts on equal sides, and how many slow-downs of 1, 2 and 5 % were found.
    """
    drawn = {one.removesuffix(SAME_PLACE) for one in table["data"] if one.endswith(SAME_PLACE)}
    drawn |= {one for one in table["data"] if one.startswith(TURNS_FILE)}
    shown = table[(table["rule"] == "ours") | (table["data"].isin(drawn) & (table["what"] == KERNELS))]
    what = shown["what"].replace(r"^\w+: (.*)$", r"\1 of models", regex=True)
    counts = shown.assign(what=what, percent=(shown["slower_frac"] * 100).round())
    keys = ["data", "what", "rule", "runs", "percent"]
    sums = counts.groupby(keys, sort=False)[["faster", "slower", "comparisons"]].sum().reset_index()
    found: dict[tuple[object, ...], dict[str, object]] = {}
    for one in sums.to_dict("records"):
        key = tuple(one[name] for name in keys[:4])
        row = found.setdefault(key, dict(zip(keys[:4], key, strict=True)))
        if one["percent"]:
            against = f", {one['faster']} FASTER" if one["faster"] else ""
            row[f"slower_{one['percent']:.0f}"] = f"{one['slower']} of {one['comparisons']}{against}"
        else:
            row["equal"] = f"{one['faster'] + one['slower']} of {one['comparisons']}"
    columns = [*keys[:4], "equal", "slower_1", "slower_2", "slower_5"]
    return pd.DataFrame(found.values()).reindex(columns=columns).astype(object).fillna("")


def main() -> int:
    """Write error_rates.csv and error_summary.csv for the folder that the command line names."""
    if {"-h", "--help"} & set(sys.argv):
        print("usage: python -m studies.comparison.rates FOLDER")
        return 0
    folder = Path(sys.argv[1])
    sets = [data for path in sorted(folder.glob("*.csv.xz")) for data in read(path)]
    rows = [row for data in sets for name in RULES for percent in PERCENTS for row in rates(data, name, percent)]
    (folder / "tables").mkdir(exist_ok=True)
    table = pd.DataFrame(rows, columns=COLUMNS)
    table.to_csv(folder / "tables" / "error_rates.csv.xz", index=False, lineterminator="\n", float_format="%.4g")
    short = summary(table)
    short.to_csv(folder / "tables" / "error_summary.csv", index=False, lineterminator="\n")
    with pd.option_context("display.width", 250, "display.max_rows", 500, "display.max_columns", 20):
        print(short.to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
