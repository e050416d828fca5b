"""The rows of a sweep: the file that keeps them as they are measured, and the choice that they lead to."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import InputError

HEADER = (
    "op,variant,source,macros,default,dtype,shape_name,shape,range,gpu,fingerprint,verdict,reason,kernel,registers,"
    "spill_bytes,shared_bytes,block_threads,occupancy_theoretical_frac,limiter,grid_blocks,blocks_per_sm,waves,"
    "tail_frac,tolerance_used,samples,launches_per_sample,bench_time_p5_ns,bench_time_p50_ns,bench_time_p95_ns,"
    "minimum_bytes,versus_default_p5,versus_default_p50,versus_default_p95"
)
COLUMNS = HEADER.split(",")
KEY = ("op", "variant", "macros", "dtype", "shape", "gpu", "fingerprint")
LEAST_GAIN = 1.01
TOGETHER = "over its dtypes and shapes together (geometric mean)"  # a source is compiled once for all of them

Row = dict[str, Any]


# The ledger --------------------------------------------------------------------------------------------------


class Ledger:
    """sweep.csv: rows are appended one by one, and a last line that was cut off is dropped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []
        self._known: set[tuple[str, ...]] = set()
        if not path.is_file():
            path.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
            return
        text = path.read_text("utf-8")
        whole = text[: text.rfind("\n") + 1]
        reader = csv.DictReader(io.StringIO(whole))
        if list(reader.fieldnames or ()) != COLUMNS:
            raise InputError(f"{path.name} in {path.parent.parent.name} has other columns: give another --out.")
        if whole != text:
            path.write_text(whole, encoding="utf-8")
        for row in reader:
            self._keep(row)

    def _keep(self, row: Row) -> None:
        self.rows.append({name: str(row[name]) for name in COLUMNS})
        self._known.add(tuple(self.rows[-1][name] for name in KEY))

    def has(self, row: Row) -> bool:
        """Whether this row was measured."""
        return tuple(str(row[name]) for name in KEY) in self._known

    def add(self, row: Row) -> None:
        """Append and write through, so that whatever ends the program leaves it there."""
        with self.path.open("a", newline="", encoding="utf-8") as stream:
            csv.DictWriter(stream, COLUMNS, lineterminator="\n").writerow(row)
            stream.flush()
            os.fsync(stream.fileno())
        self._keep(row)


# The choice --------------------------------------------------------------------------------------------------


def latest(rows: Sequence[Row]) -> list[Row]:
    """The last row of each combination, dtype, shape and GPU, with the macros that the rung has now: what was measured
    before is of another version of the source.
    """
    found = {tuple(row[name] for name in KEY if name != "fingerprint"): row for row in rows}
    names = {_rung_of(row): _names(row) for row in rows}
    return [row for row in found.values() if _names(row) == names[_rung_of(row)]]


def _rung_of(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in ("op", "variant", "dtype", "shape", "gpu"))


def _names(row: Row) -> tuple[str, ...]:
    return tuple(part.split("=")[0] for part in row["macros"].split())


def choose(rows: Sequence[Row]) -> list[Row]:
    """For each source and GPU the combination to take: {gpu, source, macros, default, gain, clear, why, measured}."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[Row]] = {}
    for row in latest(rows):
        if row["verdict"] == "timed" and row["gpu"]:
            groups.setdefault((row["gpu"], row["source"], _names(row)), []).append(row)
    return [_choice(gpu, source, members) for (gpu, source, _), members in sorted(groups.items())]


def _choice(gpu: str, source: str, members: Sequence[Row]) -> Row:
    cells = list(dict.fromkeys(cell_of(row) for row in members))
    default = next((row["macros"] for row in members if row["default"] == "1"), "")
    by_macros: dict[str, dict[tuple[str, ...], tuple[float, float, float]]] = {}
    for row in members:
        if row["versus_default_p50"]:
            gains = tuple(float(row[f"versus_default_{name}"]) for name in ("p5", "p50", "p95"))
            by_macros.setdefault(row["macros"], {})[cell_of(row)] = gains[0], gains[1], gains[2]
    clear: dict[str, float] = {}
    for macros, gains_by_cell in by_macros.items():
        gains_of = list(gains_by_cell.values())
        mean = math.exp(sum(math.log(middle) for _, middle, _ in gains_of) / len(gains_of))
        everywhere = len(gains_by_cell) == len(cells)
        faster, slower = any(low > 1 for low, _, _ in gains_of), any(high < 1 for _, _, high in gains_of)
        if macros != default and everywhere and mean >= LEAST_GAIN and faster and not slower:
            clear[macros] = mean
    best = max(clear, key=lambda macros: clear[macros]) if clear else default
    count = len({row["macros"] for row in members})
    if clear:
        why = f"{clear[best]:.3f} times as fast as the default {TOGETHER}"
    else:
        why = f"none of {count} combinations is clearly faster: the default stays"
    measured = []
    for cell in cells:
        low, middle, high = by_macros.get(best, {}).get(cell, (1.0, 1.0, 1.0))
        named = dict(zip(("op", "variant", "dtype", "shape"), cell, strict=True))
        measured.append(named | {"gain_p5": low, "gain_p50": middle, "gain_p95": high})
    return {
        "gpu": gpu, "source": source, "macros": best, "default": default, "gain": clear.get(best, 1.0),
        "clear": bool(clear), "why": why, "measured": measured,
    }  # fmt: skip


def cell_of(row: Row) -> tuple[str, ...]:
    """What is timed together: (op, variant, dtype, shape)."""
    return tuple(row[name] for name in ("op", "variant", "dtype", "shape_name"))


def entries_of(choices: Sequence[Row], run: str) -> list[Row]:
    """The clear ones as entries of kernels/tuned.toml, but for sources that keep their default: only the macros that
    differ from it.
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


def update_tuned(choices: Sequence[Row], run: str) -> str:
    """Write kernels/tuned.toml; what it says of the swept sources now."""
    from kernels import tuned

    entries: list[Mapping[str, Any]] = list(tuned.read())
    for choice in choices:
        entries = tuned.replaced(entries, choice["gpu"], choice["source"], _names(choice), entries_of([choice], run))
    temporary = tuned.TABLE.with_name(f".{tuned.TABLE.name}.part")
    temporary.write_text(tuned.text(entries), encoding="utf-8")
    temporary.replace(tuned.TABLE)
    count = len(entries_of(choices, run))
    return f"kernels/{tuned.TABLE.name} recommends other than the default for {count} of {len(choices)} swept sources"
