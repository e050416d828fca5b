"""Say what a change saves as somebody builds it, by its replay and by how far built fixes were from theirs.

built.toml has three numbers for causes on the host and three for the others: tests/answer_key/intervals.py fits them
to measured fixes.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from analysis.formats.report import Saving, kinds

FILE = Path(__file__).with_name("built.toml")
WORTH = 0.01  # of the step: what may save less may save nothing
TWICE = 2.0  # times the replay of a change, what a better one saves
WIDEST = 0.5  # of the step: a wider interval tells nothing, and built fixes saved as much as its upper part


class Built(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far fixes are from their replay: `less` of the saving; `left` of the rest, at most `further` times it."""

    less: float
    left: float
    further: float

    def of(self, low: float, high: float, most: float | None = None, best: float | None = None) -> Saving:
        """Return the share of the step that a change saves, by that of its replay. `most`: what it can save.

        `best`: what it saves if it is built better than replayed; it counts up to TWICE the replay.
        """
        high = max(high, min(best, TWICE * high)) if best is not None and low >= WORTH else high
        upper = max(min(high + self.left * (1 - high), self.further * high), high)
        upper = upper if most is None else max(min(upper, most), high)
        lower = low - self.less * max(low, 0.0)
        return Saving(max(lower, upper - WIDEST) if lower >= WORTH else lower, upper)


@cache
def fitted() -> Mapping[str, Built]:
    """Return built.toml, by `group`."""
    return msgspec.convert(tomllib.loads(FILE.read_text("utf-8")), dict[str, Built])


def group(kind: str) -> str:
    """Return whose numbers a cause has: no time is known less than that of the host without a profiler."""
    return "host" if kinds()[kind]["part"] == "host" else "other"


def as_built(kind: str, low: float, high: float, most: float | None = None, best: float | None = None) -> Saving:
    """Return `Built.of` for a cause."""
    return fitted()[group(kind)].of(low, high, most, best)
