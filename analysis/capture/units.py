"""Convert units of ncu and nsys columns, in the spellings of 2022 to 2026, to base units.

Base units are byte, ns, hz, `%`, and the names of plain counts. `s` occurs only as a denominator (byte/s). Prefixes
are those of SI: K is 1000.
"""

import re

from analysis.formats.errors import InputError

_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_TIME_NS = {
    f"{prefix}{word}": scale
    for prefix, scale in (("n", 1.0), ("u", 1e3), ("m", 1e6), ("", 1e9))
    for word in ("s", "second", "sec")
}
_BINARY = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_SCALED = re.compile(r"([KkMGTP]?)(bytes?|hz|Hz|B|flops?|cycles?)")
_COUNTED_WORDS = """
% access bank barrier bit block branch cluster conflict context count cta CTA device event flop gpc GPC grid hit inst
instruction issue item iteration kernel lane launch link metric miss node op operation packet page pass percent pixel
point primitive process quad ratio register replay request row sample scheduler sector slice slot sm SM stall step
stream tag texel thread tpc TPC transaction unit uop vertex warp wave wavefront workload W mW V mV C
"""
_COUNTED = frozenset(_COUNTED_WORDS.split()) | {""}
_SINGULAR = {"branches": "branch", "passes": "pass", "misses": "miss", "accesses": "access", "vertices": "vertex"}


def _term(text: str, where: str, unit: str) -> tuple[float, str]:
    """Return one factor of a unit as (scale, base name).

    Raises:
        InputError: the unit is unknown.
    """
    text = text.strip()
    if text in _TIME_NS:
        return _TIME_NS[text], "ns"
    if text in _BINARY:
        return _BINARY[text], "byte"
    match = _SCALED.fullmatch(text)
    if match:
        word = match[2].rstrip("s")
        base = {"B": "byte", "Hz": "hz"}.get(word, word)
        return _PREFIX[match[1].upper()], base
    word = _SINGULAR.get(text, text)
    if word in _COUNTED:
        return 1.0, word
    if word.endswith("s") and word[:-1] in _COUNTED:
        return 1.0, word[:-1]
    raise InputError(
        f"{where}: the unit {unit!r} is not known, so its values cannot be scaled; "
        "leave the column out of the export or add the unit to analysis/capture/units.py."
    )


# Metrics whose name tells their unit, and that unit.
_BYTES = re.compile(r"[a-z0-9]+__(?:[a-z0-9_]*_)?bytes(?!_per)(?:_[a-z0-9_]+)?\.(?:sum|avg|min|max)")
_NAMED = ((re.compile(r"gpu__time_duration\.(?:sum|avg|min|max)"), "ns"), (_BYTES, "byte"))


def check_metric(name: str, base: str, where: str) -> None:
    """Raise InputError if the base unit of a metric contradicts its name. `where` begins the message."""
    for pattern, expected in _NAMED:
        if pattern.fullmatch(name) and base != expected:
            raise InputError(
                f"{where}: the values of {name} are given in {base or 'no unit'} where {expected} is expected; the "
                "file is damaged, export it again."
            )


def base_unit(unit: str, where: str) -> tuple[float, str]:
    """Return factor and base unit of a unit cell: (1000.0, 'byte') for `Kbyte`, (1e9, 'hz') for `cycle/nsecond`.

    `where` names file and column for the error.

    Raises:
        InputError: the unit is unknown.
    """
    unit = re.sub(r"^([KMGT]?B)ps$", r"\1/s", unit.strip())  # nsys before 2024
    numerator, _, denominator = unit.partition("/")
    scale, base = _term(numerator, where, unit)
    if not denominator:
        return scale, base
    below, per = _term(denominator, where, unit)
    if per == "ns":
        scale, per = scale * 1e9, "s"
    scale /= below
    if base == "cycle" and per == "s":
        return scale, "hz"
    return scale, f"{base}/{per}"


def is_unit(text: str) -> bool:
    """Return whether `base_unit` knows a unit."""
    try:
        base_unit(text, "")
    except InputError:
        return False
    return True
