"""Reads the files of this project itself: manifest, timing, ceilings, tool status and our CSV files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from analysis.capture.model import RANGES_COLUMNS, as_table, empty_table, nest_ranges
from analysis.formats.errors import InputError

SCHEMA_VERSION = 1
_OPS_TEXT = ("op", "variant", "symbols", "range", "workload", "shape", "dtype", "note")
_OPS_WHOLE = ("ordinal", "minimum_bytes", "predicted_unfused_bytes", "predicted_fused_bytes")
_OPS_NUMBERS = ("ordinal", "flops", "minimum_bytes", "predicted_unfused_bytes", "predicted_fused_bytes")
_AGAIN = "write it again with `python -m harness.run`"
_AGAIN_BY_KIND = {
    "tool-status": "capture again with the scripts of nsys_scripts/",
    "layer-profile": "write it again with `make layers`",
    "kernels-of-layers": "write it again with `make kernels-of-layers`",
    "baseline": "write it again with `make baseline`",
    "sweep": "write it again with `make sweep`",
}
_ABSENT = object()
_LARGEST = 1e300  # a larger whole number would not fit a float

# The shape of each of our JSON files, as far as anything reads it: {field: shape}, [shape of each item] or a leaf. A
# field that ends in '?' may be absent or null, the field '*' stands for every field, and further fields are allowed.
_LEAVES: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "a number above 0": lambda value: _is_number(value) and 0 < value < _LARGEST,
    "a number of 0 or more": lambda value: _is_number(value) and 0 <= value < _LARGEST,
}
_TEXT, _POSITIVE, _AMOUNT = _LEAVES
_SPREAD = {"p50": _POSITIVE, "p5?": _POSITIVE, "p95?": _POSITIVE}
_CLOCK = {"min": _AMOUNT, "median": _AMOUNT, "max": _AMOUNT}
_CLOCKS = {"sm_mhz?": _CLOCK, "memory_mhz?": _CLOCK, "power_w?": _CLOCK, "throttle_reasons?": [_TEXT]}
_SHAPES: dict[str, dict[str, Any]] = {
    "manifest": {
        "gpu?": {"name?": _TEXT, "compute_capability?": _TEXT, "card?": _TEXT},
        "workloads?": [{"name?": _TEXT, "dtype?": _TEXT, "range?": _TEXT}],
        "clocks?": _CLOCKS,
        "weights?": {"source?": _TEXT},
        **dict.fromkeys(("driver?", "cuda?", "torch?", "nsys?", "ncu?", "locale?", "git_sha?"), _TEXT),
    },
    "timing": {
        "steps": [{"range": _TEXT, "wall_ns": _SPREAD, "gpu_ns?": _SPREAD}],
        "tokens_per_s?": {"*": {name.rstrip("?"): _POSITIVE for name in _SPREAD}},
    },
    "layer-profile": {
        "profiles": [
            {
                "name": _TEXT,
                "dtype": _TEXT,
                "clock": _TEXT,
                "model?": _TEXT,
                "prompt_tokens?": _AMOUNT,
                "levels": [
                    {
                        "name": _TEXT,
                        "title": _TEXT,
                        "components": [{"component": _TEXT, "path": _TEXT, "count": _POSITIVE, "total_ns": _AMOUNT}],
                    }
                ],
                "instrument": [
                    {"variant": _TEXT, "events": _AMOUNT, "forward_ns": _SPREAD, "launch_ns": _SPREAD, "count": _AMOUNT}
                ],
                "tokens": {
                    "forward_avg_ns": _POSITIVE,
                    "blocks_avg_ns?": _AMOUNT,
                    "wall_ns": _SPREAD,
                    "tokens_per_s": _SPREAD,
                },
                "own_ns": _AMOUNT,
            }
        ]
    },
    "kernels-of-layers": {
        "profiles": [
            {
                "name": _TEXT,
                "dtype": _TEXT,
                "calls": _POSITIVE,
                "components": [
                    {
                        "component": _TEXT,
                        "share_frac": _AMOUNT,
                        "cpu_ns": _AMOUNT,
                        "gpu_ns?": _AMOUNT,
                        "api_calls?": _AMOUNT,
                        "api_ns?": _AMOUNT,
                        "kernels": [{"name": _TEXT, "count": _POSITIVE, "self_ns": _AMOUNT}],
                    }
                ],
            }
        ]
    },
    "baseline": {
        "settings": [
            {
                "setting": _TEXT,
                "dtype": _TEXT,
                "skipped?": _TEXT,
                "tokens?": _POSITIVE,
                "tokens_per_s?": _SPREAD,
                "token_ns?": _SPREAD,
                "profile_tokens?": _POSITIVE,
                "operators?": [
                    {
                        "name": _TEXT,
                        "kind": _TEXT,
                        "self_cpu_ns": _AMOUNT,
                        "calls": _AMOUNT,
                        **dict.fromkeys(("cpu_ns?", "self_cuda_ns?", "cuda_ns?"), _AMOUNT),
                    }
                ],
                **dict.fromkeys(
                    ("kernels_per_token?", "launches_per_token?", "busy_ns_per_token?", "floor_ns?", "first_call_s?"),
                    _AMOUNT,
                ),
            }
        ]
    },
    "sweep": {
        "choices": [
            {
                "gpu": _TEXT,
                "source": _TEXT,
                "macros": _TEXT,
                "why": _TEXT,
                "gain": _POSITIVE,
                "measured": [{"op": _TEXT, "variant": _TEXT, "dtype": _TEXT, "shape": _TEXT}],
                "not_measured?": [_TEXT],
            }
        ],
        "not_swept?": [_TEXT],
        "without_choices?": [_TEXT],
        "calls?": [
            {
                "first_row": _POSITIVE,
                "last_row?": _POSITIVE,
                "arguments": [_TEXT],
                "clocks?": _CLOCKS,
                **dict.fromkeys(("driver?", "cuda?", "torch?", "nvcc?", "when?", "git_sha?"), _TEXT),
                **dict.fromkeys(("sampled?", "clocks_reason?", "note?"), _TEXT),
            }
        ],
    },
    "ceilings": {"roofs": [{"name": _TEXT, "value": _POSITIVE}]},
    "tool-status": {
        "tool": _TEXT,
        "status": _TEXT,
        "nvtx_include?": [_TEXT],
        "metrics?": [_TEXT],
        "counted?": {"*": _TEXT},  # of a sweep: the fingerprint of what was launched, by its NVTX path
        **dict.fromkeys(("reason?", "fix?", "cache_control?", "clock_control?", "replay_mode?"), _TEXT),
    },
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _misfits(value: Any, shape: Any, field: str) -> Iterator[tuple[str, str, str]]:
    """Field, what was found there and what belongs there, for everything in `value` that is not of the shape."""
    if isinstance(shape, str):
        if not _LEAVES[shape](value):
            yield field, _shown(value), shape
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield field, _shown(value), "a list"
            return
        for place, item in enumerate(value):
            yield from _misfits(item, shape[0], f"{field}[{place}]")
    elif not isinstance(value, dict):
        yield field, _shown(value), "an object"
    else:
        for name, inner in shape.items():
            for key in value if name == "*" else (name.removesuffix("?"),):
                found = value.get(key, _ABSENT)
                if not (name.endswith("?") and (found is None or found is _ABSENT)):
                    yield from _misfits(found, inner, f"{field}.{key}" if field else key)


def check_json(data: dict[str, Any], where: str) -> dict[str, Any]:
    """The object of one of our JSON files, once its version and the fields that are read are right.

    Raises:
        InputError: another schema version, or a field that is absent, of another type or out of range.
    """
    kind = data["kind"]
    version = data.get("schema_version")
    again = _AGAIN_BY_KIND.get(kind, _AGAIN)
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{where}: has schema_version {_shown(version)} of {kind} where {SCHEMA_VERSION} is read; {again}."
        )
    for field, found, expected in _misfits(data, _SHAPES[kind], ""):
        raise InputError(f"{where}: {kind} has {found} at {field} where {expected} belongs; {again}.")
    return data


def _read_csv_rows(raw: bytes, where: str) -> tuple[list[str], list[list[str]], bool]:
    """Header, rows, and whether the last row was cut off: without a line end nothing says that it is whole."""
    text = raw.decode("utf-8", errors="replace").lstrip("\ufeff \t")
    reader = csv.reader(io.StringIO(text, newline=""))
    header = [name.strip() for name in next(reader)]
    if text.split("\n", 1)[0].replace('"', "").strip() != ",".join(header):
        raise InputError(f"{where}: has a quote in its header that belongs to no column; {_AGAIN}.")
    rows: list[list[str]] = []
    damaged = 0
    for row in reader:
        if not row:
            continue
        if damaged:
            break
        if any("\n" in cell for cell in row):
            raise InputError(f"{where}: a quote opens before line {reader.line_num} and never closes; {_AGAIN}.")
        if len(row) == len(header):
            rows.append(row)
        else:
            damaged = reader.line_num
            found = len(row)
    cut = not text.endswith("\n")
    if not damaged:
        return header, rows[:-1] if cut else rows, cut and bool(rows)
    if cut and reader.line_num == damaged:
        return header, rows, True
    raise InputError(f"{where}: line {damaged} has {found} fields where the header has {len(header)}; {_AGAIN}.")


def _numbers(frame: pd.DataFrame, column: str, where: str, *, whole: bool, blank: bool = False) -> pd.Series:
    """A column of text as Int64 (`whole`) or float64 numbers of 0 or more; blanks, where allowed, are missing.

    Raises:
        InputError: the first cell that is something else.
    """
    text = frame[column].str.strip()
    values = pd.to_numeric(text, errors="coerce").astype("float64")
    fits = (values >= 0) & (values < (2**63 if whole else _LARGEST)) & ((values % 1 == 0) if whole else True)
    bad = ~fits & ~((text == "") & blank)
    if bad.any():
        row = int(bad.to_numpy().argmax())
        belongs = "a whole number" if whole else "a number"
        raise InputError(
            f"{where}: column {column} has {_shown(text.iloc[row])} in row {row + 1} where {belongs} of 0 or more "
            f"belongs; {_AGAIN}."
        )
    # not from `values`: a float does not hold every nanosecond count exactly
    return pd.to_numeric(text.where(text != "")).astype("Int64" if whole else "float64")


def read_ops(raw: bytes, where: str) -> tuple[pd.DataFrame, bool]:
    """ops.csv: text as str, numbers as float64 (ordinal Int64), blanks NaN; and whether its last row was cut off.

    Raises:
        InputError: a damaged row, or a cell that is no number of 0 or more where one belongs.
    """
    header, rows, cut = _read_csv_rows(raw, where)
    frame = pd.DataFrame(rows, columns=header, dtype="str")
    numbers = {name: _numbers(frame, name, where, whole=name in _OPS_WHOLE, blank=True) for name in _OPS_NUMBERS}
    floats = dict.fromkeys(set(_OPS_NUMBERS) - {"ordinal"}, "float64")
    return frame.assign(**numbers).astype(floats | dict.fromkeys(_OPS_TEXT, "str")), cut


_DATAFLOW_WHOLE = ("call", "ordinal", "storage", "offset", "bytes", "view", "freed")


def read_dataflow(raw: bytes, where: str) -> tuple[pd.DataFrame, bool]:
    """dataflow.csv: numbers as Int64 (masked_frac float64), the rest str; and whether its last row was cut off.

    Raises:
        InputError: a damaged row, or a cell that is no number of 0 or more where one belongs.
    """
    header, rows, cut = _read_csv_rows(raw, where)
    frame = pd.DataFrame(rows, columns=header, dtype="str")
    numbers = {name: _numbers(frame, name, where, whole=True, blank=name == "freed") for name in _DATAFLOW_WHOLE}
    numbers["masked_frac"] = _numbers(frame, "masked_frac", where, whole=False, blank=True)
    return frame.assign(**numbers), cut


def read_layer_events(raw: bytes, where: str) -> tuple[pd.DataFrame, bool]:
    """layer_events.csv: ordinal, event_ns and own_ns as Int64, the rest str; and whether its last row was cut off.

    Raises:
        InputError: a damaged row, or a cell that is no whole number of 0 or more where one belongs.
    """
    header, rows, cut = _read_csv_rows(raw, where)
    frame = pd.DataFrame(rows, columns=header, dtype="str")
    numbers = {name: _numbers(frame, name, where, whole=True) for name in ("ordinal", "event_ns", "own_ns")}
    return frame.assign(**numbers), cut


_SWEEP_WHOLE = (
    "default", "registers", "spill_bytes", "shared_bytes", "block_threads", "grid_blocks", "blocks_per_sm", "samples",
    "launches_per_sample", "minimum_bytes", "bench_time_p5_ns", "bench_time_p50_ns", "bench_time_p95_ns",
)  # fmt: skip
_SWEEP_NUMBERS = (
    "occupancy_theoretical_frac", "waves", "tail_frac", "tolerance_used",
    "versus_default_p5", "versus_default_p50", "versus_default_p95",
)  # fmt: skip


def read_sweep(raw: bytes, where: str) -> tuple[pd.DataFrame, bool]:
    """sweep.csv: counts and times as Int64, shares and ratios float64, the rest str; and whether its last row was cut.

    Raises:
        InputError: a damaged row, or a cell that is no number of 0 or more where one belongs.
    """
    header, rows, cut = _read_csv_rows(raw, where)
    frame = pd.DataFrame(rows, columns=header, dtype="str")
    numbers = {
        name: _numbers(frame, name, where, whole=name in _SWEEP_WHOLE, blank=name != "default")
        for name in (*_SWEEP_WHOLE, *_SWEEP_NUMBERS)
    }
    odd = frame["macros"][~frame["macros"].str.fullmatch(r"[A-Z]\w*=-?[0-9]{1,18}( [A-Z]\w*=-?[0-9]{1,18})*")]
    if len(odd):
        found = f"{_shown(odd.iloc[0])} in row {odd.index[0] + 1}"
        raise InputError(f"{where}: column macros has {found} where NAME=value belongs; {_AGAIN_BY_KIND['sweep']}.")
    return frame.assign(**numbers), cut


def read_cpu_ranges(raw: bytes, where: str) -> tuple[pd.DataFrame, bool]:
    """cpu_ranges.csv as ranges (RANGES_COLUMNS, pid 0); and whether its last row was cut off.

    Raises:
        InputError: a damaged row or a time that is no whole number.
    """
    header, rows, cut = _read_csv_rows(raw, where)
    if not rows:
        return empty_table(RANGES_COLUMNS), cut
    frame = pd.DataFrame(rows, columns=header, dtype="str")
    start, end = (_numbers(frame, name, where, whole=True).astype("int64") for name in ("start_ns", "end_ns"))
    plain = frame["thread"].where(frame["thread"].str.fullmatch(r" *[0-9]{1,18} *"))
    tids = pd.to_numeric(plain, errors="coerce")
    if tids.isna().any() and tids.notna().any():
        odd = frame["thread"][tids.isna()].iloc[0]
        raise InputError(f"{where}: column thread has {_shown(odd)} where the other rows have numbers; {_AGAIN}.")
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
    parents = nest_ranges(ranges).set_index("range_id")["parent_id"]
    return ranges.assign(parent_id=parents.reindex(ranges["range_id"]).array), cut
