"""Read the rows of a sweep and choose a combination.

The measuring program and the report's tables use the same rules, so both show the same choice.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

KEY = ("op", "variant", "macros", "dtype", "shape", "gpu", "fingerprint")
LEAST_GAIN = 1.01  # also the least loss that counts; smaller ones come from the placement of data
LEAST_ROUNDS = 5  # fewer rounds have no 95th percentile
# Combinations of a source that are timed at every shape. The best one often loses at a small shape, because its blocks
# are too large to fill the GPU, and a nearly as good one does not.
FINALISTS = 3
# small shapes hardly depend on a choice, so the mean over many of them must not hide the gain of a large one
TOGETHER = "over the dtypes and shapes at which all were tried (geometric mean)"

Row = dict[str, Any]
Cell = tuple[str, ...]  # (op, variant, dtype, shape), timed together
Source = tuple[str, str, tuple[str, ...]]  # (GPU, source, macros): each of several kernels in one source has its own


def latest(rows: Sequence[Row]) -> list[Row]:
    """Return the last row of each combination, dtype, shape and GPU, without rows of older sources.

    A row is current if it has the macros of its rung's last row, and the build of its combination's last row.
    """
    names = {_rung_of(row): macros_of(row) for row in rows}
    builds = {_build_of(row): row["fingerprint"] for row in rows}
    found = {
        (*cell_of(row), row["macros"], row["gpu"]): row
        for row in rows
        if macros_of(row) == names[_rung_of(row)] and row["fingerprint"] == builds[_build_of(row)]
    }
    return list(found.values())


def _rung_of(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in ("gpu", "op", "variant"))


def _build_of(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in ("gpu", "source", "macros"))


def macros_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the macros in a row or a choice."""
    return tuple(part.split("=")[0] for part in row["macros"].split())


def source_of(row: Row) -> Source:
    """Return the key of a row's source: (GPU, source, macros)."""
    return row["gpu"], row["source"], macros_of(row)


def by_source(rows: Sequence[Row]) -> dict[Source, list[Row]]:
    """Return the rows of each source."""
    groups: dict[Source, list[Row]] = {}
    for row in rows:
        groups.setdefault(source_of(row), []).append(row)
    return groups


def _measured(rows: Sequence[Row]) -> dict[Source, list[Row]]:
    """Return the latest rows of each source that were measured on a GPU."""
    return by_source([row for row in latest(rows) if row["gpu"]])


def choose(rows: Sequence[Row]) -> list[Row]:
    """Return recommended combination by source and GPU: gpu, source, macros, default, gain, clear, why and measured."""
    return [
        _choice(gpu, source, members)
        for (gpu, source, _), members in sorted(_measured(rows).items())
        if any(row["verdict"] == "timed" for row in members)
    ]


def finalists(rows: Sequence[Row]) -> dict[Source, list[str]]:
    """Return at most FINALISTS combinations to time at every shape, best first.

    A finalist is clearly faster in the first stage, and no row shows that it is slower elsewhere.
    """
    found = {}
    for source, members in sorted(_measured(rows).items()):
        fallen = {row["macros"] for row in members if _is_slower(row)}
        if best := [macros for macros in _clear_where_all_were_tried(members) if macros not in fallen][:FINALISTS]:
            found[source] = best
    return found


def swept_cells(rows: Sequence[Row], gpu: str) -> set[Cell]:
    """Return the cells in which all combinations of a source were tried on that GPU (the first stage)."""
    return {
        cell for (name, *_), members in _measured(rows).items() if name == gpu for cell in where_all_were_tried(members)
    }


def not_taken(rows: Sequence[Row], gpu: str) -> set[Cell]:
    """Return the cells in which the default was tried on that GPU and does not run."""
    of_default = [row for row in latest(rows) if row["gpu"] == gpu and row["default"] == "1"]
    return {cell_of(row) for row in of_default if row["verdict"] == "does not run"}


def where_all_were_tried(members: Sequence[Row]) -> set[Cell]:
    """Return the cells with the largest number of combinations, from the rows of one source.

    If the second stage tries all combinations too, only the shape that came first counts.
    """
    tried: dict[Cell, set[str]] = {}
    for row in members:
        tried.setdefault(cell_of(row), set()).add(row["macros"])
    most = max(len(macros) for macros in tried.values())
    whole = {cell for cell, macros in tried.items() if len(macros) == most}
    if most > FINALISTS + 1:
        return whole
    first: dict[Cell, Cell] = {}  # the second stage runs later
    for row in members:
        first.setdefault(cell_of(row)[:-1], cell_of(row))
    return whole & set(first.values())


def _of_default(members: Sequence[Row]) -> list[Cell]:
    """Return the cells in which the default of a source was timed."""
    return list(dict.fromkeys(cell_of(row) for row in members if row["default"] == "1" and row["verdict"] == "timed"))


def _gains(members: Sequence[Row]) -> dict[str, dict[Cell, tuple[float, float, float]]]:
    """Return combination -> cell -> the default's time over the combination's: p5, p50, p95 of the rounds."""
    gains: dict[str, dict[Cell, tuple[float, float, float]]] = {}
    for row in members:
        if row["verdict"] == "timed" and row["versus_default_p50"]:
            low, middle, high = (float(row[f"versus_default_{name}"]) for name in ("p5", "p50", "p95"))
            gains.setdefault(row["macros"], {})[cell_of(row)] = low, middle, high
    return gains


def _clear(members: Sequence[Row], cells: Sequence[Cell]) -> dict[str, float]:
    """Return combination -> its gain, best first, for the clearly faster ones.

    Such a combination is timed in all of `cells`, faster in 95 % of the rounds in one, and slower in none (is_slower).
    """
    tried = where_all_were_tried(members)
    slower = {(row["macros"], cell_of(row)) for row in members if _is_slower(row)}
    others = {row["macros"] for row in members if row["default"] != "1"}
    clear = {}
    for macros, by_cell in _gains(members).items():
        if macros not in others or not all(cell in by_cell for cell in cells):
            continue
        spans = [by_cell[cell] for cell in cells]
        logs = [math.log(by_cell[cell][1]) for cell in cells if cell in tried]
        gain = math.exp(sum(logs) / len(logs)) if logs else 0.0
        faster = any(low > 1 for low, _, _ in spans)
        if gain >= LEAST_GAIN and faster and not any((macros, cell) in slower for cell in cells):
            clear[macros] = gain
    return dict(sorted(clear.items(), key=lambda found: -found[1]))


def _clear_where_all_were_tried(members: Sequence[Row]) -> dict[str, float]:
    tried = where_all_were_tried(members)
    return _clear(members, [cell for cell in _of_default(members) if cell in tried])


def is_clear(versus_default_p5: float, versus_default_p50: float) -> bool:
    """Return whether a combination was faster than the default in 95 % of the rounds, by 1 % in the median."""
    return versus_default_p5 > 1 and versus_default_p50 >= LEAST_GAIN


def is_slower(versus_default_p50: float, versus_default_p95: float, samples: float) -> bool:
    """Return whether it was slower in 95 % of the rounds, of five or more, and by 1 % in the median."""
    return samples >= LEAST_ROUNDS and versus_default_p95 < 1 and versus_default_p50 * LEAST_GAIN <= 1


def _is_slower(row: Row) -> bool:
    if row["verdict"] != "timed" or not row["versus_default_p50"]:
        return False
    return is_slower(float(row["versus_default_p50"]), float(row["versus_default_p95"]), int(row["samples"]))


def _choice(gpu: str, source: str, members: Sequence[Row]) -> Row:
    default = next((row["macros"] for row in members if row["default"] == "1"), "")
    cells = _of_default(members)
    clear = _clear(members, cells)
    best = next(iter(clear), default)
    count = len({row["macros"] for row in members if row["verdict"] == "timed"})
    if clear:
        why = f"{clear[best]:.3f} times as fast as the default {TOGETHER}"
    elif fallen := _clear_where_all_were_tried(members):
        why = f"{len(fallen)} of {count} combinations are clearly faster where all were tried, none at every shape: "
        why += "the default stays"
    else:
        why = f"none of {count} combinations is clearly faster: the default stays"
    of_best = _gains(members).get(best, {})
    measured = []
    for cell in cells:
        low, middle, high = of_best.get(cell, (1.0, 1.0, 1.0))
        named = dict(zip(("op", "variant", "dtype", "shape"), cell, strict=True))
        measured.append(named | {"gain_p5": low, "gain_p50": middle, "gain_p95": high})
    return {
        "gpu": gpu, "source": source, "macros": best, "default": default, "gain": clear.get(best, 1.0),
        "clear": bool(clear), "why": why, "measured": measured,
    }  # fmt: skip


def cell_of(row: Row) -> Cell:
    """Return (op, variant, dtype, shape) of a row."""
    return tuple(row[name] for name in ("op", "variant", "dtype", "shape_name"))


def entries_of(choices: Sequence[Row], run: str) -> list[Row]:
    """Return the clearly faster choices as entries of kernels/tuned.toml, with the macros that differ from the default.

    Sources that keep their default have no entry.
    """
    entries = []
    for choice in choices:
        if choice["clear"] and not choice.get("keeps_default"):
            defaults = dict(part.split("=") for part in choice["default"].split())
            chosen = dict(part.split("=") for part in choice["macros"].split())
            macros = {name: int(value) for name, value in chosen.items() if defaults.get(name) != value}
            picked = {name: choice[name] for name in ("gpu", "source", "gain", "measured")}
            entries.append(picked | {"macros": macros, "run": run, "not_measured": choice.get("not_measured", [])})
    return entries
