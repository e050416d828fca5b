"""Choose launches to replay, and ncu options that select them.

ncu selects by NVTX filters and, inside these, by the invocation number of each kernel (counted by mangled name). A
filter selects all launches of a range, and a number selects that invocation of every kernel. So a single launch can
rarely be selected alone. This module searches sets of filters and numbers that cover the groups of launches with most
GPU time by the fewest replays. Launches that a set selects in addition count as cost, and the report uses them.
"""

import heapq
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.planning.cost import Cost
from analysis.tables.groups import GROUP, uneven_groups

EACH = 2  # representatives of a group
FIRST = 0.9  # share of a group's worth in its first representative: a new group is worth more than a confirmation
SETTLED = 0.05  # of its worth is left of a kernel that samples show at a roof: its counters confirm that at most
ENOUGH = 0.99  # share of the highest possible worth; the rest would need too many launches
UP_TO = (
    1,
    2,
    4,
    8,
    16,
    32,
    64,
    1 << 62,
)  # numbers that are tried together; larger numbers pass by more launches
_TRIED = 8  # launches of a group whose numbers are tried: the first ones, and some spread over the rest
_SPECIAL = re.compile(r"([@,\[\]/*+\\])")

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Choice:
    """Rows of the launches that ncu replays, and the filters and invocation numbers that select exactly these."""

    rows: Ints
    include: tuple[str, ...]
    numbers: tuple[int, ...]
    seconds: float
    value: float

    @property
    def invocations(self) -> str:
        """Return the regular expression of the numbers; '' for all."""
        return f"^({'|'.join(map(str, self.numbers))})$" if self.numbers else ""


@dataclass(frozen=True)
class Wanted:
    """The goal of a choice: the part of a group that each launch belongs to, and the worth of covering each part.

    Shape: (n,) part and seconds of a launch; (parts, EACH + 1) worth of 0, 1 … launches of a part, in ns of GPU time.
    """

    part: Ints
    seconds: Floats
    worth: Floats
    passing_s: float = 0.0

    def of(self, parts: Ints, have: Ints) -> Floats:
        """Return the value of `have` launches of these parts."""
        return self.worth[parts, np.minimum(have, EACH)]


def wanted(
    launches: pd.DataFrame, cost: Cost, steps: Sequence[str] = (), settled: Collection[str] = ()
) -> Wanted:  # fmt: skip
    """Want two launches of every group; if its durations differ, a short and a long one.

    With `steps`, launches outside ranges of these names have no worth. Launches of the `settled` kernels have little.
    """
    time = launches["duration_ns"].to_numpy(np.float64)
    group = launches.groupby(GROUP, sort=False).ngroup().to_numpy(np.int64)
    uneven, median = uneven_groups(launches["duration_ns"], group)
    part, _ = pd.factorize(2 * group + (uneven & (time > median)))
    halves = pd.Series(part).groupby(group).transform("nunique").to_numpy()
    total = np.bincount(part, np.bincount(group, time)[group] / halves / np.bincount(part)[part])
    if steps:
        among = {path: not set(steps).isdisjoint(path.split("/")) for path in launches["path"].unique()}
        total = np.where(np.bincount(part, launches["path"].map(among)) > 0, total, 0.0)
    if settled:
        known = launches["kernel"].isin(settled).to_numpy(bool)
        total = np.where(np.bincount(part, known) > 0, SETTLED * total, total)
    is_one = (np.bincount(part) == 1) | (np.bincount(part, halves > 1) > 0)
    worth = np.outer(total, (0, FIRST, 1))
    worth[is_one, 1] = total[is_one]
    return Wanted(part.astype(np.int64), cost.of_launches(time), worth, cost.passing_s)


def choose(
    launches: pd.DataFrame, ranges: pd.DataFrame, cost: Cost, budget_s: float, steps: Sequence[str] = (),
    among: Ints | None = None, settled: Collection[str] = (),
) -> Choice:  # fmt: skip
    """Return the choice that covers most GPU time within the budget; among nearly equal ones, the cheapest.

    Shape: `launches` of join.prepare_launches with `folded` and `place`; `ranges` as in `Capture`; `among` the rows
    that may be replayed (None: all);
    `settled` the kernels that samples have explained.
    """
    want = wanted(launches, cost, steps, settled)
    limit = cost.for_replays(budget_s, len(launches))
    everything = np.arange(len(launches)) if among is None else among
    found = [_by_number(launches, want, everything, (), limit)]
    filters = exact_filters(launches, ranges)
    if filters:
        code = launches["path"].map({path: at for at, path in enumerate(filters)}).fillna(-1).to_numpy(np.int64)
        for budget in (np.inf, limit):
            paths = _cover(want, code, everything[code[everything] >= 0], budget)
            inside = everything[np.isin(code[everything], paths)]
            include = tuple(list(filters.values())[at] for at in paths)
            found.append(_by_number(launches, want, inside, include, limit))
    enough = ENOUGH * max(one.value for one in found)
    best = min((one for one in found if one.value >= enough), key=lambda one: (one.seconds, -one.value))
    fixed = cost.startup_s + len(launches) * cost.skip_s
    return Choice(best.rows, best.include, best.numbers, fixed + best.seconds, best.value)


def _by_number(launches: pd.DataFrame, want: Wanted, inside: Ints, include: tuple[str, ...], limit: float) -> Choice:
    """Return the best invocation numbers among the launches `inside` the filters; all of them if they fit the limit."""
    if include and want.seconds[inside].sum() <= limit:
        return _choice(want, inside, include, ())
    number = launches.iloc[inside].groupby(["pid", "name"], sort=False, dropna=False).cumcount().to_numpy(np.int64) + 1
    found = [_up_to(most, want, inside, number, include, limit) for most in UP_TO]
    return max(found, key=lambda one: (one.seconds <= limit, one.value, -one.seconds))


def _up_to(most: int, want: Wanted, inside: Ints, number: Ints, include: tuple[str, ...], limit: float) -> Choice:
    """Return the best invocation numbers up to `most`, and the cost of the launches that ncu passes by."""
    code = np.full(len(want.part), -1, np.int64)
    code[inside] = number
    among = inside[number <= most]
    among = among[np.isin(code[among], np.unique(code[_tried(want.part, among)]))]
    spare = limit
    while True:
        taken = _cover(want, code, among, spare)
        rows = inside[np.isin(number, taken)]
        choice = _choice(want, rows, include, tuple(int(one) for one in np.sort(taken)), inside)
        if choice.seconds <= limit or not len(taken):
            return choice
        spare = min(spare, choice.seconds) - max(choice.seconds - limit, 0.05 * limit)


def _choice(
    want: Wanted, rows: Ints, include: tuple[str, ...], numbers: tuple[int, ...], inside: Ints | None = None
) -> Choice:
    have = np.bincount(want.part[rows], minlength=len(want.worth))
    value = want.of(np.arange(len(have)), have).sum()
    passed = int(np.searchsorted(inside, rows[-1])) + 1 - len(rows) if inside is not None and len(rows) else 0
    seconds = float(want.seconds[rows].sum()) + passed * want.passing_s
    return Choice(rows, include, numbers, seconds, float(value))


def _tried(part: Ints, inside: Ints) -> Ints:
    """Return a few launches of each part: the first ones, and some spread over the others."""
    of = pd.Series(part[inside]).groupby(part[inside], sort=False)
    nth, size = of.cumcount().to_numpy(), of.transform("size").to_numpy()
    step = np.maximum(size // (_TRIED // 2), 1)
    return inside[(nth < _TRIED // 2) | (nth % step == step - 1)]


def _cover(want: Wanted, code: Ints, rows: Ints, limit: float) -> Ints:
    """Return the codes whose launches cover most worth a second, greedily, until `limit` seconds are spent.

    Shape: `code` (n,) says to which candidate a launch belongs; only candidates of `rows` are looked at.
    """
    candidates, at = np.unique(code[rows], return_inverse=True)
    pairs, count = np.unique(at * len(want.worth) + want.part[rows], return_counts=True)
    owner, part = np.divmod(pairs, len(want.worth))
    bounds = np.searchsorted(owner, np.arange(len(candidates) + 1))
    price = np.bincount(at, want.seconds[rows], minlength=len(candidates))
    have = np.zeros(len(want.worth), np.int64)

    def gain(one: int) -> float:
        mine = slice(bounds[one], bounds[one + 1])
        before = have[part[mine]]
        return float((want.of(part[mine], before + count[mine]) - want.of(part[mine], before)).sum())

    queue = [(-gain(one) / price[one], one) for one in range(len(candidates))]
    heapq.heapify(queue)
    taken: list[int] = []
    spent = 0.0
    while queue:
        _, one = heapq.heappop(queue)
        now = gain(one) / price[one]
        if queue and now < -queue[0][0]:  # covered parts have lost worth since, so evaluate this candidate again
            if now > 0:
                heapq.heappush(queue, (-now, one))
            continue
        if now <= 0:
            break
        if spent + price[one] > limit:
            continue
        mine = slice(bounds[one], bounds[one + 1])
        have[part[mine]] += count[mine]
        spent += price[one]
        taken.append(one)
    return candidates[taken]


def exact_filters(launches: pd.DataFrame, ranges: pd.DataFrame) -> dict[str, str]:
    """Return the path -> ncu's NVTX filter for exactly this path, for paths that ncu can filter.

    Left out are the empty path, and paths with a name that holds `/` (our paths join names with it) or `:` (it may be a
    domain). `[a/b]` selects the stack of exactly these two. ncu 2025.3 matches `[a]` with nothing, and `a/` with `a`
    anywhere in the stack.
    """
    if ranges.empty:
        return {}
    names = ranges["name"].astype(object)
    odd = {str(name) for name in names.unique() if not str(name) or re.search("[/:]", str(name))}
    spoilt = ranges.loc[names.isin(odd), "path"].unique()
    paths: Sequence[str] = [path for path in launches["path"].unique() if path]
    users = Counter(name for path in paths for name in set(path.split("/")))
    found = {}
    for path in paths:
        escaped = "/".join(_SPECIAL.sub(r"\\\1", name) for name in path.split("/"))
        if "/" in path and not any(path == bad or path.startswith(f"{bad}/") for bad in spoilt):
            found[path] = f"[{escaped}]"
        elif users[path] == 1 and path not in spoilt:
            found[path] = f"{escaped}/"
    return found


def planned_groups(launches: pd.DataFrame, choice: Choice, cost: Cost) -> list[dict[str, Any]]:
    """Return rows of count_plan.csv: every group, sorted by GPU time."""
    seconds = np.zeros(len(launches))
    seconds[choice.rows] = cost.of_launches(launches["duration_ns"].to_numpy()[choice.rows])
    numbers = pd.Series("", index=launches.index, dtype=object)
    numbers.iloc[choice.rows] = [str(row) for row in choice.rows]
    groups = launches.assign(seconds=seconds, number=numbers).groupby(GROUP, sort=False)
    table = groups.agg(
        launches=("number", "size"),
        nsys_time_ns=("duration_ns", "sum"),
        replayed=("number", lambda texts: " ".join(filter(None, texts))),
        expected_s=("seconds", "sum"),
    )
    table = (
        table.reset_index()
        .rename(columns={"folded": "range"})
        .sort_values("nsys_time_ns", ascending=False, kind="stable")
    )
    return table.assign(expected_s=table["expected_s"].round(3)).to_dict("records")
