"""Say which share of a kernel's time built fixes of a cause save, by the bound of the cause's model.

A rule's floors give the speed-up that remains if the named unit were free. Built fixes reach a part of it, because the
next unit does not run at its roof. won.toml has two parts of the speed-up's logarithm for each cause:
tests/answer_key/kernels/won.py fits them to kernels that were timed before and after their fix.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from analysis.formats.report import Saving

FILE = Path(__file__).with_name("won.toml")
OTHER = "other"  # a cause without known fixes


class Won(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parts of a bound's logarithm that fixes reach: nine in ten at least `low`, nearly all at most `high`."""

    low: float
    high: float

    def of(self, gain: float) -> Saving:
        """Return the share of a kernel's time that a fix saves; `gain` is that of the bound."""
        return Saving(1 - (1 - gain) ** self.low, 1 - (1 - gain) ** self.high)


@cache
def fitted() -> Mapping[str, Won]:
    """Return won.toml, by cause."""
    return msgspec.convert(tomllib.loads(FILE.read_text("utf-8")), dict[str, Won])


def saved(cause: str, gain: float) -> Saving:
    """Return `Won.of` for a cause."""
    known = fitted()
    return known.get(cause, known[OTHER]).of(gain)
