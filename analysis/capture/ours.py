"""Reads the files of this project itself: manifest, timing, ceilings, tool status, ops.csv and cpu_ranges.csv."""

from __future__ import annotations

import csv
import io
from typing import Any

import pandas as pd

from analysis.capture.errors import InputError
from analysis.capture.model import RANGES_COLUMNS, as_table, empty_table
from analysis.capture.nsys_csv import nest_by_time

SCHEMA_VERSION = 1
_OPS_TEXT = ("op", "variant", "symbols", "range", "workload", "shape", "dtype", "note")
_OPS_NUMBERS = ("ordinal", "flops", "minimum_bytes", "predicted_unfused_bytes", "predicted_fused_bytes")
_REQUIRED: dict[str, tuple[tuple[str, type], ...]] = {
    "manifest": (),
    "timing": (("steps", list),),
    "ceilings": (("roofs", list),),
    "tool-status": (("tool", str), ("status", str)),
}


def check_json(data: dict[str, Any], where: str) -> dict[str, Any]:
    """The object of one of our JSON files, once its version and its needed keys are right.

    Raises:
        InputError: another schema version, or a needed key that is absent or of another type.
    """
    kind = data["kind"]
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{where}: has schema_version {version!r} of {kind} where {SCHEMA_VERSION} is read; write it again "
            "with this version."
        )
    for key, kind_of_value in _REQUIRED[kind]:
        if not isinstance(data.get(key), kind_of_value):
            raise InputError(
                f"{where}: {kind} has no {key!r} of type {kind_of_value.__name__}; write it again with `python "
                "-m harness.run`."
            )
    for entry in data.get("roofs", []) if kind == "ceilings" else data.get("steps", []) if kind == "timing" else []:
        if not isinstance(entry, dict):
            raise InputError(
                f"{where}: {kind} holds an entry that is no object; write it again with `python -m harness.run`."
            )
    return data


def _read_csv_rows(raw: bytes, where: str) -> tuple[list[str], list[list[str]], bool]:
    """Header, rows, and whether the last row was cut off."""
    text = raw.decode("utf-8", errors="replace")
    reader = csv.reader(io.StringIO(text, newline=""))
    header = next(reader)
    rows: list[list[str]] = []
    damaged = 0
    for row in reader:
        if not row:
            continue
        if damaged:
            break
        if len(row) == len(header):
            rows.append(row)
        else:
            damaged = reader.line_num
            found = len(row)
    if not damaged:
        return header, rows, False
    if not text.endswith("\n") and reader.line_num == damaged:
        return header, rows, True
    raise InputError(
        f"{where}: line {damaged} has {found} fields where the header has {len(header)}; write it again with "
        "`python -m harness.run`."
    )


def read_ops(raw: bytes, where: str) -> tuple[pd.DataFrame, bool]:
    """ops.csv: text as str, numbers as float64 (ordinal Int64), blanks NaN; and whether its last row was cut off.

    Raises:
        InputError: a damaged row, or text where a number belongs.
    """
    header, rows, cut = _read_csv_rows(raw, where)
    frame = pd.DataFrame(rows, columns=header, dtype="str")
    for name in _OPS_NUMBERS:
        try:
            frame[name] = pd.to_numeric(frame[name].replace("", None)).astype(
                "Int64" if name == "ordinal" else "float64"
            )
        except (ValueError, TypeError):
            raise InputError(
                f"{where}: column {name} holds something that is no number; write it again with `python -m "
                "harness.run`."
            ) from None
    return frame.astype(dict.fromkeys(_OPS_TEXT, "str")), cut


def read_cpu_ranges(raw: bytes, where: str) -> tuple[pd.DataFrame, bool]:
    """cpu_ranges.csv as ranges (RANGES_COLUMNS, pid 0); and whether its last row was cut off.

    Raises:
        InputError: a damaged row or a time that is no whole number.
    """
    header, rows, cut = _read_csv_rows(raw, where)
    if not rows:
        return empty_table(RANGES_COLUMNS), cut
    frame = pd.DataFrame(rows, columns=header, dtype="str")
    try:
        start, end = (pd.to_numeric(frame[name]).astype("int64") for name in ("start_ns", "end_ns"))
    except (ValueError, TypeError):
        raise InputError(
            f"{where}: start_ns or end_ns holds something that is no whole number; write it again with `python "
            "-m harness.run`."
        ) from None
    tids = pd.to_numeric(frame["thread"], errors="coerce")
    if tids.isna().any():
        tids = pd.Series(pd.factorize(frame["thread"])[0])
    ranges = as_table(
        {
            "range_id": range(1, len(frame) + 1),
            "start_ns": start,
            "end_ns": end,
            "pid": [0] * len(frame),
            "tid": tids,
            "name": frame["path"].str.rpartition("/")[2],
            "level": frame["path"].str.count("/"),
            "path": frame["path"],
        },
        RANGES_COLUMNS,
    )
    ranges = ranges.sort_values(["pid", "tid", "start_ns", "level"], kind="stable", ignore_index=True)
    parents, _, _ = nest_by_time(ranges)
    return ranges.assign(parent_id=pd.array(parents, dtype="Int64")), cut
