"""Follow a metric over runs or commits: where its level changes, and what changed with it."""

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.comparison.runs import SideOf, StepOf, read
from analysis.comparison.verdict import APART
from analysis.formats.errors import InputError

SPREADS = 4.0  # a change is larger than so many usual differences between neighbouring runs
BESIDE = ("bench.json",)  # files that state the conditions of a table
_IGNORED = ("power", "roofs", "locale")


@dataclass(frozen=True)
class Point:
    """A run of the history. `said`: its commit and subject, or its path."""

    said: str
    side: SideOf


@dataclass(frozen=True)
class Change:
    """A change of level. `at`: the first point of the new level; `ratio`: new level over old one."""

    at: int
    ratio: float
    causes: tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """A metric of one row, or of a step, over the points; None where a point lacks it. Unit: ns of times."""

    name: str
    values: tuple[float | None, ...]
    changes: tuple[Change, ...]


def of_paths(paths: Sequence[Path]) -> list[Point]:
    """Return a point for each path, in the given order."""
    return [Point(str(path), read([path])) for path in paths]


def of_commits(path: Path, most: int = 50) -> list[Point]:
    """Return a point for each committed version of a table, the oldest first. Unreadable versions are left out.

    Raises: InputError if git knows no version.
    """
    where = path.parent if path.parent.is_dir() else Path.cwd()

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=where, capture_output=True, check=False).stdout

    log = git("log", f"-{most}", "--reverse", "--format=%h %s", "--", path.name).decode("utf-8", "replace")
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, line in enumerate(log.splitlines()):
            commit = line.split(" ", 1)[0]
            folder = Path(scratch) / f"{number:03}"
            folder.mkdir()
            for name in (path.name, *BESIDE):
                if content := git("show", f"{commit}:./{name}"):
                    (folder / name).write_bytes(content)
            if (folder / path.name).is_file():
                try:
                    found.append(Point(line, read([folder / path.name])))
                except InputError:
                    continue
    if not found:
        raise InputError(f"{path}: git has no version of it that can be read; name a committed table, or runs.")
    return found


def series(points: Sequence[Point], metric: str = "time", pattern: str = "") -> list[Series]:
    """Return the history of every step, and of every row whose layer and kernel hold `pattern`.

    Raises: InputError if no row has the metric in two points.
    """
    column = "time_ns" if metric == "time" else metric
    tables = [dict(_values(point.side, column)) for point in points]
    names = [name for name in dict.fromkeys(name for table in tables for name in table) if pattern in name]
    found = []
    for name in names:
        values = tuple(table.get(name) for table in tables)
        if sum(value is not None for value in values) > 1:
            found.append(Series(name, values, tuple(_changes(values, points))))
    if not found:
        raise InputError(f"no row with {metric} and {pattern!r} is in two of these runs; name other runs or rows.")
    return found


def _values(side: SideOf, column: str) -> Iterator[tuple[str, float]]:
    for step in side.runs[0].steps:
        if column == "time_ns" and step.wall_ns is not None:
            walls = [one.wall_ns for run in side.runs for one in run.steps if one.name == step.name and one.wall_ns]
            yield step.name, float(np.mean(walls))
        if column in step.items:
            yield from _rows(step, column)


def _rows(step: StepOf, column: str) -> Iterator[tuple[str, float]]:
    sums = step.items.groupby(["layer", "kernel"], sort=False)[column].sum(min_count=1)
    for (layer, kernel), value in sums.items():
        if np.isfinite(value):
            yield f"{layer} {kernel}".strip(), float(value)


def _changes(values: Sequence[float | None], points: Sequence[Point]) -> Iterator[Change]:
    """Yield changes of level: larger than APART, and than SPREADS times the usual difference of neighbours.

    A point is no change if the next one is not on its side of the old level.
    """
    known = [at for at, value in enumerate(values) if value is not None and value > 0]
    logs = np.log([float(values[at] or 1.0) for at in known])
    steps = np.abs(np.diff(logs))
    usual = float(np.median(steps)) if len(steps) > 3 else 0.0
    begin = 0
    for at in range(1, len(known)):
        level = float(np.median(logs[begin:at]))
        away = (logs[at : at + 2] - level) * np.sign(logs[at] - level)
        if (away > max(np.log1p(APART), SPREADS * usual)).all():
            yield Change(
                known[at], float(np.exp(logs[at] - level)), tuple(_causes(points[known[at - 1]], points[known[at]]))
            )
            begin = at


def _causes(before: Point, after: Point) -> Iterator[str]:
    """Yield the conditions that changed between two points."""
    old, new = before.side.runs[0].conditions, after.side.runs[0].conditions
    for name in new:
        if name in old and old[name] != new[name] and name not in _IGNORED:
            yield f"{name} {old[name]} → {new[name]}"
