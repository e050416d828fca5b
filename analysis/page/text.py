"""Write numbers and names for people.

Files keep base units (ns, byte, FLOP/s, 0-1); only the views write µs, MB and per cent. Every name from a capture is
hostile text and passes through here.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from analysis.formats import symbols
from analysis.formats.words import tell_apart
from analysis.tables.picks import short_names

COMMAND = "recapture"  # the column of commands
MISSING = "–"  # shown for an unknown number; never a zero
UNTRUSTED_MARK = "⚠"
BELOW_MARK = "†"  # after a measured_over_minimum below 1
BELOW_MINIMUM = (
    f"{BELOW_MARK} below 1: a part of the bytes never crossed DRAM during the kernel. What it writes last still lies "
    "in L2 when it ends, and what fits in L2 need not be read again."
)

# By the house rule, a column's name ends with its unit. So one function can format every table.
_SUFFIX_UNITS = (
    ("_flop_per_byte", "flop/byte"),
    ("_flop_per_s", "flop/s"),
    ("_byte_per_s", "byte/s"),
    ("_over_minimum", "ratio"),
    ("_bytes", "byte"),
    ("_frac", "frac"),
    ("_ns", "ns"),
    ("_hz", "hz"),
)
_WHOLE_NAMES = {"bytes": "byte", "flops": "flop", "frac": "frac"}

_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")),
    "byte": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "byte/s": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")),
    "flop": ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1.0, "FLOP")),
    "flop/s": (
        (1e12, "TFLOP/s"),
        (1e9, "GFLOP/s"),
        (1e6, "MFLOP/s"),
        (1e3, "kFLOP/s"),
        (1.0, "FLOP/s"),
    ),
    "hz": ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz"), (1.0, "Hz")),
}
_ALIASES = {
    "bytes": "byte",
    "b": "byte",
    "fraction": "frac",
    "0-1": "frac",
    "1": "",
    "flops": "flop",
    "nanosecond": "ns",
}


@lru_cache(maxsize=1 << 12)
def unit_of(column: str) -> str:
    """Return the unit at the end of a column's name, '' if there is none."""
    if column in _WHOLE_NAMES:
        return _WHOLE_NAMES[column]
    return next((unit for suffix, unit in _SUFFIX_UNITS if column.endswith(suffix)), "")


def unit_for(column: str, unit: str) -> str:
    """Return the unit for `cell`: that of the column's name, else the given one, under its name in `number`."""
    said = unit_of(column.split(" ")[0]) or unit
    return _ALIASES.get(said.lower(), said.lower())


# Words for a reader where the column's name, which programs read, is a private one.
_LABELS = {
    "tier": "evidence", "bare_wall_ns": "wall time, no profiler", "sure_frac": "confidence",
    "time_to_win_ns": "could save", "gain_bound_frac": "could save at most",
    "least_to_win_ns": "could save at least", "gain_low_frac": "could save at least",
    "roof_frac": "reaches of its limit",
}  # fmt: skip


def label_of(column: str) -> str:
    """Return a column's name for a heading, without its unit, since every cell shows the unit."""
    if column in _LABELS:
        return _LABELS[column]
    for suffix, _ in _SUFFIX_UNITS:
        if column.endswith(suffix) and suffix != "_over_minimum":
            return column.removesuffix(suffix).replace("_", " ")
    return column.replace("_", " ")


def is_missing(value: Any) -> bool:
    """True for None, NaN, NA and empty text. Lists and dicts are never missing."""
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return isinstance(value, str) and not value.strip()


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | np.bool_)


def _scaled(value: float, unit: str) -> str:
    scales = _SCALES[unit]
    factor, name = next((s for s in scales if abs(value) >= s[0]), scales[-1])
    return f"{value / factor:.4g} {name}"


def number(value: Any, unit: str = "") -> str:
    """Format one value for people: `number(140900, "ns")` is '140.9 µs'. An unknown unit gives a plain number.

    Units: ns, byte, byte/s, flop, flop/s, flop/byte, hz, frac (0-1, shown as %), ratio (shown as 1.5×), ''.
    """
    if is_missing(value):
        return MISSING
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(number(item, unit) for item in value) or MISSING
    if not is_number(value):
        return str(value)
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    unit = _ALIASES.get(unit.lower(), unit.lower())
    if unit in _SCALES:
        return _scaled(float(value), unit)
    if unit == "frac":
        return percent(float(value))
    if unit == "ratio":
        return f"{value:.2f}×" if abs(value) < 10 else f"{value:,.1f}×"
    tail = " FLOP/byte" if unit == "flop/byte" else ""
    if float(value).is_integer():
        return f"{int(value):,}{tail}"
    return (f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}") + tail


def percent(frac: float) -> str:
    """0-1 as per cent, with enough digits at both ends (99.97 % is not 100 %)."""
    shown = frac * 100.0
    if shown != 0 and abs(shown) < 0.01:
        return "< 0.01 %" if shown > 0 else f"{shown:.1e} %"
    near_an_end = abs(shown) < 1 or 99.9 <= shown < 100
    return f"{shown:.2f} %" if near_an_end and shown != 0 else f"{shown:.1f} %"


def is_below_minimum(over_minimum: Any) -> bool:
    """Return whether the ratio of measured to minimum bytes displays as less than 1."""
    return is_number(over_minimum) and round(float(over_minimum), 2) < 1


def cell(value: Any, column: str, unit: str = "") -> str:
    """Format one table cell. The column's name gives the unit; `unit` counts only if the name has none.

    `largest_gaps_ns` holds several numbers with `;` between them; evidence may cite `roof_frac (dram)`. A
    measured_over_minimum below 1 carries BELOW_MARK, which BELOW_MINIMUM explains.
    """
    if column == "measured_over_minimum" and is_below_minimum(value):
        return f"{number(value, 'ratio')} {BELOW_MARK}"
    unit = unit_of(column.split(" ")[0]) or unit
    if isinstance(value, str) and unit and all(part.strip().isdecimal() for part in value.split(";")):
        return ", ".join(number(int(part), unit) for part in value.split(";"))
    return value if isinstance(value, str) and value.strip() else number(value, unit)


def clean(value: Any) -> str:
    """Return the text on one line without control, bidirectional-override or unpaired surrogate characters."""
    return _clean(str(value))


@lru_cache(maxsize=1 << 16)
def _clean(text: str) -> str:
    spaced = " ".join(text.split())
    if spaced.isprintable():
        return spaced
    # Cc, Cf, Cs: a newline breaks tables, a bidi override reorders a page, a surrogate cannot be encoded
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in {"Cc", "Cf", "Cs"} else c for c in spaced)


def shorten(value: Any, width: int, head: float = 0.6) -> str:
    """Shorten a text to `width` characters by a cut inside, after the share `head`: names differ at both ends."""
    text = clean(value)
    if len(text) <= width:
        return text
    before = int((width - 1) * head)
    return f"{text[:before]}…{text[len(text) - (width - 1 - before) :]}"


def shorten_all(values: Iterable[Any], width: int, head: float = 0.6) -> dict[str, str]:
    """Return `shorten` of each cleaned text; equal short forms show the part in which they differ."""
    return tell_apart(map(clean, values), lambda text: shorten(text, width, head), width)


def names_of_kernels(tables: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Return the cleaned short form of each kernel's cleaned name: the same in every table of a report."""
    short = short_names(tables.get("kernels", pd.DataFrame()))
    return {clean(name): clean(cut) for name, cut in short.items()}


def shorten_kernel(name: str, names: Mapping[str, str]) -> str:
    """Return the short form of a cleaned name; `names` has those of the report's kernels."""
    return names.get(name) or clean(symbols.short(name))


RANGE_HEAD = 0.3  # the end of a range's path says most: `run/prefill/…/h.*/attn/softmax`
