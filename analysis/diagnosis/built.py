"""Say what a change saves as somebody builds it, by its replay and by how far built fixes were from theirs.

built.toml has numbers for causes on the host, for the others, and for changes that are given.
tests/answer_key/intervals.py fits them to measured fixes.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from analysis.formats.report import Saving, kinds

FILE = Path(__file__).with_name("built.toml")
WORTH = 0.01  # of the step: what may save less may save nothing
CLEAR = 0.02  # of the step: without a bare time, what surely saves less may save nothing; the most that loses no cause
AGAIN = 0.02  # of the step: so much less may its kernels take in another run; two of 190 measured fixes show it
TWICE = 2.0  # times the replay of a change, what a better one saves
WIDEST = 0.5  # of the step: a wider interval tells nothing
WIDEST_GIVEN = 0.24  # the same of a change that is given; built ones saved as much as its upper part
SEEN = 0.03  # of the step: what surely saves less is known as well as its replay


class Built(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far fixes are from their replay: `less` of the saving; `left` of the rest, at most `further` times it.

    Of what is wider than WIDEST then, the upper end gives the part `cut`, and the lower end rises by the rest.
    """

    less: float
    left: float
    further: float
    cut: float

    def of(self, low: float, high: float, most: float | None = None, best: float | None = None) -> Saving:
        """Return the share of the step that a change saves, by that of its replay. `most`: what it can save.

        `best`: what it saves if it is built better than replayed; it counts up to TWICE the replay.
        """
        high = max(high, min(best, TWICE * high)) if best is not None and low >= WORTH else high
        upper = max(min(high + self.left * (1 - high), self.further * high), high)
        upper = upper if most is None else max(min(upper, most), high)
        lower = low - self.less * max(low, 0.0)
        if lower < WORTH:
            return Saving(lower, upper)
        over = max(upper - lower - WIDEST, 0.0)
        fewer = min(over * self.cut, upper - high)
        return Saving(lower + over - fewer, upper - fewer)


class Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How wide the interval of a given change is: `part` of the saving, up to `widest`; `above` goes upwards."""

    part: float
    widest: float
    above: float

    def of(self, low: float, high: float) -> Saving:
        """Return the share of the step that a given change saves, by that of its replay: at most WIDEST_GIVEN wide."""
        if low < CLEAR:
            return Saving(max(min(low, 0.0), high - WIDEST_GIVEN), high)
        low = max(low, high - WIDEST_GIVEN)
        wider = max(min(self.widest, self.part * high) - (high - low), 0.0) if low >= SEEN else 0.0
        upper = min(high + wider * self.above, 1.0)
        return Saving(min(low, upper - (high - low) - wider), upper)


class _Fitted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: Built
    other: Built
    given: Given


@cache
def fitted() -> Mapping[str, Built | Given]:
    """Return built.toml, by `group`; `given` for changes that are given."""
    return msgspec.structs.asdict(_told())


@cache
def _told() -> _Fitted:
    return msgspec.convert(tomllib.loads(FILE.read_text("utf-8")), _Fitted)


def group(kind: str) -> str:
    """Return whose numbers a cause has: no time is known less than that of the host without a profiler."""
    return "host" if kinds()[kind]["part"] == "host" else "other"


def further(kind: str) -> float:
    """Return how many times its replay a fix saves at most."""
    return (_told().host if group(kind) == "host" else _told().other).further


def as_built(kind: str, low: float, high: float, most: float | None = None, best: float | None = None) -> Saving:
    """Return `Built.of` for a cause."""
    numbers = _told().host if group(kind) == "host" else _told().other
    return numbers.of(low, high, most, best)


def as_given(low: float, high: float) -> Saving:
    """Return `Given.of`."""
    return _told().given.of(low, high)
