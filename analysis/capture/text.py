"""Turn bytes into text, and the text of a cell into a number.

ncu and nsys print numbers in the locale of their shell, and one file may mix grouped and plain numbers. So a file is
read in two steps. `decide_locale` finds the decimal sign from all numeric cells of the file, and accepts only proof.
`parse_number` and `parse_integer` then read cells in that style and refuse any cell that does not fit it. Blanks of
every kind and apostrophes group digits in some locales and are a decimal sign in none.
"""

import codecs
import math
import mmap
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.formats import packed
from analysis.formats.errors import InputError, UsageError

POINT = "."
COMMA = ","
LEFT_OUT = re.compile(r"\s*(?:\.{3,}|…)\s*")  # people write dots for rows that they leave out of a paste

_MAPPED_FROM = 1 << 20  # smaller files are read whole
_MISSING = frozenset(
    {"", "n/a", "na", "no data", "nan", "-nan", "+nan", "inf", "-inf", "+inf", "none", "null", "-", "nan(ind)"}
)
_BLANK = "[\\s'\u2019\u00a0\u202f\u2009]"
_BLANK_GROUPED = re.compile(f"[-+]?[1-9][0-9]{{0,2}}(?:({_BLANK})[0-9]{{3}})(?:\\1[0-9]{{3}})*(?![0-9]|{_BLANK})")
_BLANKS = re.compile(_BLANK)
# Pattern by grouping sign. Groups of four (nsys 2024.6) and of two before the last three (en_IN) occur only with
# commas.
_GROUPED = {
    "": "",
    POINT: r"|[1-9][0-9]{0,2}(?:\.[0-9]{3})+",
    COMMA: "|[1-9][0-9]{0,2}(?:,[0-9]{3})+|[1-9][0-9]{0,3}(?:,[0-9]{4})+|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}",
}
_EXPONENT = "(?:[eE][-+]?[0-9]{1,3})?"


@dataclass(frozen=True)
class NumberStyle:
    """The style of the numbers in one file.

    decimal  the decimal sign, '.' or ','
    group    the other sign if it may group digits, '' if no sign may (the C locale)
    """

    decimal: str = POINT
    group: str = COMMA


C_LOCALE = NumberStyle(POINT, "")
_ENGLISH = NumberStyle(POINT, COMMA)
_GERMAN = NumberStyle(COMMA, POINT)
# Languages by decimal sign (CLDR 44). Blanks and apostrophes may group digits in all of them, so fr, pl or sv need no
# style of their own.
_DECIMAL_COMMA = (
    "af ar_DZ be bg bs ca cs da de el es et eu fi fo fr gl hr hu hy id is it ka kk lt lv mk mn nb nl nn no \
pl pt ro ru sk sl sq sr sv tr uk uz vi"
)
_DECIMAL_POINT = (
    "ar bn cy en es_MX fa fil ga gu he hi iw ja kn ko ml mr ms mt ne pa si sw ta te th tl ur zh de_CH de_LI \
it_CH"
)


class AmbiguousNumbersError(InputError):
    """The numbers of a file have two readings. `readings`: one cell in both, decimal point first."""

    def __init__(self, message: str, readings: tuple[str, str]) -> None:
        super().__init__(message)
        self.readings = readings


def locale_style(name: str) -> NumberStyle:
    """Return the number style of a locale by its name: C, POSIX, de, de_DE, fr-FR.UTF-8, en …

    Raises:
        UsageError: the locale is not known.
    """
    plain = name.split(".")[0].split("@")[0].replace("-", "_")
    if plain.upper() in ("C", "POSIX"):
        return C_LOCALE
    language, _, country = plain.partition("_")
    for known in (f"{language.lower()}_{country.upper()}", language.lower()):
        if known in _DECIMAL_POINT.split():
            return _ENGLISH
        if known in _DECIMAL_COMMA.split():
            return _GERMAN
    raise UsageError(f"--locale {name} is not known; give C, a language such as en, de or fr, or both as in de_CH.")


# ------------------------------------------------------------------------------------------------------- the encoding


def _utf16(head: bytes) -> str:
    """Return the UTF-16 encoding of a file that begins with `head`, or ''."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if len(head) > 3 and head[1] == 0 and head[3] == 0 and head[0] and head[2]:
        return "utf-16-le"
    if len(head) > 3 and head[0] == 0 and head[2] == 0 and head[1] and head[3]:
        return "utf-16-be"
    return ""


def _as_windows(error: UnicodeError) -> tuple[str, int]:
    """Decode the bytes that are no UTF-8 in code page 1252 of Windows, so that two names stay two names."""
    assert isinstance(error, UnicodeDecodeError)
    wrong = error.object[error.start : error.end]
    return "".join(one.to_bytes().decode("cp1252", errors="ignore") or chr(one) for one in wrong), error.end


codecs.register_error("windows", _as_windows)


def decode(raw: bytes) -> str:
    """Decode a file.

    It is in UTF-8 with or without a byte order mark, in UTF-16 of either order (PowerShell's `>`), or in code page
    1252.
    """
    encoding = _utf16(raw[:4])
    if encoding:
        return raw.decode(encoding, errors="replace")
    return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="windows")


def _is_utf8(raw: bytes | mmap.mmap) -> bool:
    """Return whether a text is UTF-8; it is read in windows, most of which are ASCII."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    pending = False
    try:
        for at in range(0, len(raw), _MAPPED_FROM):
            window = raw[at : at + _MAPPED_FROM]
            if pending or not window.isascii():
                decoder.decode(window, final=at + _MAPPED_FROM >= len(raw))
                pending = bool(decoder.getstate()[0])
    except UnicodeDecodeError:
        return False
    return True


def open_text(path: Path) -> bytes | mmap.mmap:
    """Return the bytes of a text file as UTF-8; a large file in UTF-8 is mapped instead of read.

    A mapped file keeps its byte order mark (`text_start` skips it). A packed file is unpacked. UTF-16 and code page
    1252 are converted; a file with a zero byte is no text and stays as it is.

    Raises:
        OSError: the file cannot be read.
        InputError: the file is packed and damaged, or holds too much.
    """
    with path.open("rb") as stream:
        head = stream.read(8)
        stream.seek(0)
        if packed.is_packed(head):
            raw: bytes | mmap.mmap = packed.unpack(stream.read(), path.name)
        elif path.stat().st_size >= _MAPPED_FROM:
            raw = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        else:
            raw = stream.read()
        if _utf16(raw[:4]) or (raw.find(b"\0", 0, _MAPPED_FROM) < 0 and not _is_utf8(raw)):
            return decode(bytes(raw)).encode()
        return raw if isinstance(raw, mmap.mmap) else raw.removeprefix(b"\xef\xbb\xbf")


def text_start(raw: bytes | mmap.mmap) -> int:
    """Return the offset of the text: 3 after the byte order mark of UTF-8, else 0."""
    return 3 if raw[:3] == b"\xef\xbb\xbf" else 0


# ------------------------------------------------------------------------------------------------------------- numbers


def is_missing(cell: str) -> bool:
    """Return whether a cell stands for a missing value (empty, n/a, nan, no data, None, -, inf)."""
    return cell.strip().lower() in _MISSING


def _clean(cell: str) -> str:
    cell = cell.strip()
    if cell.endswith(")") and " (" in cell:  # ncu --print-metric-instances: `5916528 (1125008; 884736)`
        cell = cell[: cell.index(" (")]
    if cell.isascii() and " " not in cell and "'" not in cell:
        return cell
    grouped = _BLANK_GROUPED.match(cell)
    return _BLANKS.sub("", cell) if grouped and not _BLANKS.search(cell, grouped.end()) else cell


def _shapes(style: NumberStyle) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of a number and of a whole number in a style."""
    whole = f"(?:0|[1-9][0-9]*){_GROUPED[style.group]}"  # a number that lost its decimal sign may begin with 0
    decimal = re.escape(style.decimal)
    number = f"[-+]?(?:(?:{whole})(?:{decimal}[0-9]*)?|{decimal}[0-9]+){_EXPONENT}"
    return re.compile(number), re.compile(f"[-+]?(?:{whole})")


_STYLES = {style: _shapes(style) for style in (C_LOCALE, _ENGLISH, _GERMAN)}


def fits(cell: str, style: NumberStyle, *, whole: bool = False) -> bool:
    """Return whether a cell is a number in this style: digits, correct groups, a decimal sign only without `whole`."""
    return _STYLES[style][whole].fullmatch(_clean(cell)) is not None


def _value(cell: str, style: NumberStyle) -> float:
    text = _clean(cell)
    if style.group:
        text = text.replace(style.group, "")
    return float(text.replace(style.decimal, POINT))


def decide_locale(
    cells: Iterable[str],
    where: str,
    *,
    whole: Iterable[str] = (),
    decimal: Iterable[str] = (),
    given: NumberStyle | None = None,
) -> NumberStyle:
    """Decide the number style of a file, from proof only. Call it once per file with all its numeric cells.

    Args:
        cells: cells that may hold decimals. Text, missing values and repeated cells are allowed and prove nothing.
        where: the file, for the message.
        whole: cells of columns that hold whole numbers only (counts, ids, ns): every sign in them groups digits.
        decimal: cells of columns that the tool always prints with decimals (nsys: `Bytes (MB)` has three): the last
            sign in them is the decimal one.
        given: the style that the user names (--locale), for a file that proves none.

    Proof is a cell that only one of the two styles can write. `117.344` and `16,896` prove nothing, and a file with no
    better cell is refused. A file without any sign is read in the C locale.

    Raises:
        AmbiguousNumbersError: a cell has two readings and no other cell decides between them.
        InputError: two cells prove different styles, or the given style cannot write an open cell.
    """
    proof, doubtful, misfit = _evidence({"": cells, "whole": whole, "decimal": decimal}, given)
    if len(proof) == 2:
        raise InputError(
            f"{where}: the numbers {proof[_ENGLISH]} and {proof[_GERMAN]} follow different locales; "
            "export the file again with LC_ALL=C in front of the command."
        )
    if proof:
        return next(iter(proof))
    if misfit:
        raise InputError(
            f"{where}: the number {misfit} cannot have been written in the locale given with --locale; name the one "
            "that the file was exported in."
        )
    if given is not None:
        return given
    if doubtful:
        readings = tuple(f"{_value(doubtful, style):.15g}" for style in (_ENGLISH, _GERMAN))
        raise AmbiguousNumbersError(
            f"{where}: {doubtful} means {readings[0]} if the point is the decimal sign and {readings[1]} if the comma "
            "is, and no other number of the file decides it; say which with --locale (C, en, de, fr …) or export the "
            "file again with LC_ALL=C.",
            (readings[0], readings[1]),
        )
    return _ENGLISH


def _evidence(
    groups: Mapping[str, Iterable[str]], given: NumberStyle | None
) -> tuple[dict[NumberStyle, str], str, str]:
    """Return (a cell that proves each style, the first cell that both can write, one that `given` cannot write).

    `groups` holds the cells by the kind of their column: "", "whole" or "decimal".
    """
    proof: dict[NumberStyle, str] = {}
    doubtful = misfit = ""
    for kind, group in groups.items():
        for cell in {cell for cell in group if POINT in cell or COMMA in cell}:
            if is_missing(cell):
                continue
            possible = [style for style in (_ENGLISH, _GERMAN) if _possible(cell, style, kind)]
            if len(possible) == 1:
                proof.setdefault(possible[0], cell.strip())
            elif possible:
                doubtful = min(cell.strip(), doubtful or cell.strip())
                if given is not None and not _possible(cell, given, kind):
                    misfit = cell.strip()
    return proof, doubtful, misfit


def _possible(cell: str, style: NumberStyle, kind: str) -> bool:
    """Return whether this style can write a cell of a column of this kind."""
    if not fits(cell, style, whole=kind == "whole"):
        return False
    return kind != "decimal" or style.decimal in cell


def _is_plain(cell: str) -> bool:
    """Return whether a cell is short and has digits alone, which mean the same in every style."""
    return cell.isdigit() and cell.isascii() and len(cell) < 19 and (cell[0] != "0" or cell == "0")


def parse_number(cell: str, style: NumberStyle = _ENGLISH) -> float:
    """Parse a cell as a float; NaN if it stands for a missing value.

    Raises:
        ValueError: it is not a number in this style.
    """
    if _is_plain(cell):
        return float(cell)
    if is_missing(cell):
        return math.nan
    if not fits(cell, style):
        raise ValueError(f"{cell!r} is not a number")
    return _value(cell, style)


def parse_integer(cell: str, style: NumberStyle | None = None) -> int | None:
    """Parse a cell of a whole-number column; None for a missing value. Without a style, any sign may group digits.

    Raises:
        ValueError: it holds anything but digits, a sign and correct groups.
    """
    if _is_plain(cell):
        return int(cell)
    if is_missing(cell):
        return None
    styles = (_ENGLISH, _GERMAN) if style is None else (style,)
    for one in styles:
        if fits(cell, one, whole=True):
            value = int(_clean(cell).replace(one.group, "")[:30] if one.group else _clean(cell)[:30])
            if not -(2**63) <= value < 2**63:
                break
            return value
    raise ValueError(f"{cell[:40]!r} is not a whole number of 64 bits")
