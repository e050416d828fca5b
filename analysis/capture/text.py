"""From bytes to text, and from the text of a cell to a number.

ncu and nsys print numbers in the locale of the shell they ran in, and one file may mix grouped and plain numbers.
`number_style` decides for a whole file which character is the decimal point, from proof only; without proof it refuses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from analysis.capture.errors import InputError

POINT = "."
COMMA = ","

_MISSING = frozenset(
    {"", "n/a", "na", "no data", "nan", "-nan", "+nan", "inf", "-inf", "+inf", "none", "null", "-", "nan(ind)"}
)
# Apostrophe and every kind of space group digits in some locale (fr_FR uses U+202F); they are never a decimal point.
_BLANK_GROUPS = re.compile("[\\s'\u2019\u00a0\u202f\u2009_]+")
_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9.,]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def decode(raw: bytes) -> str:
    """Text of a file: UTF-8 with or without a mark, or UTF-16 as PowerShell's `>` writes it."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", errors="replace")
    if raw.startswith(b"\xef\xbb\xbf"):
        raw = raw[3:]
    elif len(raw) > 3 and raw[1:2] == b"\0" and raw[3:4] == b"\0":
        return raw.decode("utf-16-le", errors="replace")
    return raw.decode("utf-8", errors="replace")


def is_missing(cell: str) -> bool:
    """Whether a cell says that there is no value (empty, n/a, nan, no data, None, -, inf)."""
    return cell.strip().lower() in _MISSING


def _clean(cell: str) -> str:
    cell = cell.strip()
    if cell.endswith(")") and " (" in cell:  # ncu --print-metric-instances: `5916528 (1125008; 884736)`
        cell = cell[: cell.index(" (")]
    return _BLANK_GROUPS.sub("", cell)


def _reading(cell: str) -> str:
    """What one cell proves about its file: '.', ',' (the decimal sign), 'either' or ''."""
    cell = _clean(cell).lstrip("+-")
    if not _NUMBER.fullmatch(cell):
        return ""
    cell = re.split("[eE]", cell)[0]
    points, commas = cell.count(POINT), cell.count(COMMA)
    if points == 0 and commas == 0:
        return ""
    if points and commas:
        last = POINT if cell.rindex(POINT) > cell.rindex(COMMA) else COMMA
        return last if cell.count(last) == 1 else ""
    sign, other = (POINT, COMMA) if points else (COMMA, POINT)
    if cell.count(sign) > 1:
        return other  # it groups, so the other one is the decimal sign
    before, after = cell.split(sign)
    if len(after) != 3 or len(before) > 3 or before in ("", "0"):
        return sign  # no group looks like this
    return "either"


def number_style(cells: Iterable[str], where: str) -> str:
    """The decimal sign of a file, '.' or ','.

    A cell with both signs, a repeated sign, or a sign not followed by exactly three digits is proof. Only `1,234` is
    read as grouped without proof: ncu and nsys print two or six decimals or one, and a point is their usual sign.

    Raises:
        InputError: `117.344` and no proof, or proofs of both.
    """
    proof: dict[str, str] = {}
    doubtful: dict[str, str] = {}
    for cell in cells:
        reading = _reading(cell)
        if reading == "either":
            doubtful.setdefault(POINT if POINT in cell else COMMA, cell.strip())
        elif reading:
            proof.setdefault(reading, cell.strip())
    if len(proof) == 2:
        raise InputError(
            f"{where}: the numbers {proof[POINT]} and {proof[COMMA]} follow different locales; "
            "export the file again with LC_ALL=C in front of the command."
        )
    if proof:
        return next(iter(proof))
    if POINT in doubtful:
        cell = doubtful[POINT]
        whole = cell.replace(POINT, "")
        raise InputError(
            f"{where}: {cell} may be read as {cell} (point as decimal sign) or as {whole} (point between "
            "thousands) and no other "
            "number of the file decides it; export the file again with LC_ALL=C in front of the command."
        )
    return POINT


def parse_number(cell: str, style: str = POINT) -> float:
    """A cell as a float; NaN where it says that there is no value.

    Grouping signs are dropped whatever their width (groups of four exist).

    Raises:
        ValueError: it is not a number in this style.
    """
    if is_missing(cell):
        return math.nan
    text = _clean(cell)
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{cell!r} is not a number")
    group = COMMA if style == POINT else POINT
    text = text.replace(group, "")
    if style == COMMA:
        text = text.replace(COMMA, POINT)
    return float(text)


def parse_integer(cell: str) -> int | None:
    """A cell of an integer column, whatever groups its digits; None where there is no value.

    Raises:
        ValueError: it holds anything but digits, a sign and grouping signs.
    """
    if cell.isdecimal():
        return int(cell)
    if is_missing(cell):
        return None
    text = _clean(cell).replace(COMMA, "").replace(POINT, "")
    return int(text)
