"""Read tables as runs: rounds.csv, bench.csv, a ladder's table, a census. The columns of a file tell its kind."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.formats.comparison import ROUNDS, Times
from analysis.formats.errors import InputError
from analysis.formats.packed import is_packed, unpack


@dataclass(frozen=True)
class Kind:
    """A kind of table: the columns that name a row, its time, and its exact quantities.

    `times`: the first column with a value counts. `layer` and `kernel` are joined from these columns.
    """

    name: str
    layer: tuple[str, ...]
    kernel: tuple[str, ...]
    times: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()


_TIMES = ("isolated_time_p50_ns", "chained_time_p50_ns", "bench_time_p50_ns")
KINDS = (
    Kind("census", ("op", "source", "sm"), ("kernel",), (), (
        "registers", "stack_bytes", "spill_bytes", "shared_bytes", "local_instructions", "instructions", "code_bytes")),
    Kind("ladder", ("op", "dtype", "shape_name"), ("variant",), _TIMES),
    Kind("bench", ("op", "dtype", "shape_name", "convention"), ("variant",), _TIMES),
)  # fmt: skip
_ONLY_LADDER = "rung_below"  # a ladder has all columns of a bench


@dataclass(frozen=True)
class TableRun:
    """One run of a table. `rows`: step, layer, kernel ('' for the step), ordinal, launches, time_ns, exact columns."""

    name: str
    kind: str
    rows: pd.DataFrame
    turn: tuple[int, int] | None = None
    conditions: Mapping[str, str] = field(default_factory=dict)

    @property
    def times(self) -> Times:
        """Return whose times it has. `make ab` runs nsys, but with --bare, which sees no kernel."""
        if self.kind == ROUNDS.kind:
            return Times.NSYS if (self.rows["kernel"] != "").any() else Times.PROCESSES
        return Times.EVENTS if self.rows["time_ns"].notna().any() else Times.NONE


def read(path: Path) -> list[TableRun] | None:
    """Return the runs of a table; None if the path is no table of these kinds.

    Raises: InputError if a time in it is no number above zero.
    """
    path = inside(path) or path
    if not path.is_file() or ".csv" not in path.name:
        return None
    content = path.read_bytes()
    content = unpack(content, path.name) if is_packed(content) else content
    header = BytesIO(content).readline().decode("utf-8", "replace").strip()
    if ROUNDS.has_header(header):
        return _rounds(path.name, content)
    kind = next((one for one in KINDS if _fits(one, header.split(","))), None)
    return None if kind is None else [_table(path, content, kind)]


def inside(folder: Path) -> Path | None:
    """Return the table that a folder holds; None if it holds none."""
    names = ("rounds.csv", "rounds.csv.xz", "bench.csv", "census.csv")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _fits(kind: Kind, names: list[str]) -> bool:
    needed = {*kind.layer, *kind.kernel} <= set(names) and (not kind.times or bool(set(kind.times) & set(names)))
    return needed and (kind.name != "ladder" or _ONLY_LADDER in names)


def _rounds(name: str, content: bytes) -> list[TableRun]:
    rows = pd.read_csv(BytesIO(content), keep_default_na=False, na_values={})
    rows = rows.astype({"step": str, "range": str, "kernel": str})
    times = pd.to_numeric(rows["time_ns"], errors="coerce")
    if (bad := ~(times > 0) | ~np.isfinite(times)).any():
        row = rows[bad].iloc[0]
        raise InputError(
            f"{name}: run {row['run']} has the time {row['time_ns']!r} for {row['kernel'] or row['step']}, which is "
            f"no number above zero; {ROUNDS.again}."
        )
    rows = rows.assign(time_ns=times.astype(float), layer=rows["range"], launches=rows["launches"].astype(float))
    rows["ordinal"] = rows.groupby(["run", "step", "layer", "kernel"], sort=False).cumcount()
    found = []
    for (run, number, place), own in rows.groupby(["run", "round", "place"], sort=False):
        turn = (int(number), int(place)) if int(number) else None
        kept = own[["step", "layer", "kernel", "ordinal", "launches", "time_ns"]].reset_index(drop=True)
        found.append(TableRun(f"{name} run {run}", "rounds", kept, turn))
    return found


def _table(path: Path, content: bytes, kind: Kind) -> TableRun:
    rows = pd.read_csv(BytesIO(content), low_memory=False)
    found = pd.DataFrame({"step": kind.name}, index=rows.index)
    found["layer"] = _joined(rows, kind.layer)
    found["kernel"] = _joined(rows, kind.kernel)
    found["ordinal"] = found.groupby(["layer", "kernel"], sort=False).cumcount()
    found["launches"] = 1.0
    columns = [name for name in kind.times if name in rows and rows[name].notna().any()]
    times = [pd.to_numeric(rows[name], errors="coerce") for name in columns]
    found["time_ns"] = pd.concat(times, axis=1).bfill(axis=1).iloc[:, 0] if times else np.nan
    for column in (one for one in kind.exact if one in rows):
        found[column] = pd.to_numeric(rows[column], errors="coerce")
    conditions = _beside(path)
    if columns:
        conditions["time"] = columns[0]
    if "nvcc" in rows:
        conditions["nvcc"] = ", ".join(map(str, rows["nvcc"].unique()))
    if kind.times:
        found = found[found["time_ns"].notna()]
    if kind.name == "census":
        source = rows["source"].fillna("").astype(str)
        whole = source.str.contains("/") | (source == "")
        found["source"] = source.where(whole, "kernels/" + rows["op"].astype(str) + "/" + source)  # from the root
    return TableRun(path.name, kind.name, found.reset_index(drop=True), conditions=conditions)


def _beside(path: Path) -> dict[str, str]:
    """Return the conditions that bench.json beside a table states."""
    file = path.with_name("bench.json")
    try:
        stated = json.loads(file.read_text(encoding="utf-8")).get("conditions") or {}
    except (OSError, ValueError, AttributeError):
        return {}
    found = {"GPU": (stated.get("gpu") or {}).get("name"), **{name: stated.get(name) for name in ("driver", "torch")}}
    return {name: str(value) for name, value in found.items() if value}


def _joined(rows: pd.DataFrame, names: tuple[str, ...]) -> pd.Series:
    parts = [rows[name].fillna("").astype(str) for name in names]
    return parts[0].str.cat(parts[1:], sep=" ").str.strip()
