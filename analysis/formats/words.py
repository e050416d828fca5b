"""Counts in sentences."""

from __future__ import annotations


def count_of(number: float, one: str, many: str = "") -> str:
    """`1 kernel`, `2 launches`: a whole number and what it counts; `many` where that is not `one` with (e)s."""
    more = many or one + ("es" if one.endswith("ch") else "s")
    return f"{number:.0f} {one if round(number) == 1 else more}"
