"""Say which share of a kernel's time built fixes save, by the bound of their cause's model.

A rule's floors give the speed-up that remains if the named unit were free. Built fixes reach a part of its logarithm,
because the next unit does not run at its roof. Libraries come nearer to the roof, and the bound of a cause that no rule
found is less sure. The larger the bound, the wider the interval, up to a factor that is the same for all large ones.
No fix passes the roofs whose work it leaves, nor the time of an empty kernel.
tests/answer_key/kernels/won.py fits won.toml to kernels that were timed before and after their fix.
"""

import tomllib
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from analysis.formats.report import Saving

FILE = Path(__file__).with_name("won.toml")
# Chosen after the first look at kernels_11, where fits to earlier sets replay kernels_7 to kernels_11: nine in ten are
# above the low end. Of twelve sets left out, 98 % are below the high end; at the first look at kernels_12, 96 % were.
BELOW, ABOVE = 1.3, 2.6  # spreads from the mean


class Won(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The mean part of a bound's logarithm that fixes reach, and how far they are from it.

    `spread` is a part of the bound's logarithm, `most` a logarithm: the smaller one counts.
    """

    other: float
    library: float
    weighed: float
    spread: float
    most: float

    def of(self, gain: float, kind: str = "other", most: float = 1.0) -> Saving:
        """Return the share of a kernel's time that a fix saves: `gain` by the bound, and at most `most`."""
        bound = -np.log(1 - gain)
        off, mean = min(self.spread * bound, self.most), getattr(self, kind) * bound
        return Saving(1 - float(np.exp(BELOW * off - mean)), min(1 - float(np.exp(-ABOVE * off - mean)), most))


@cache
def fitted() -> Won:
    """Return won.toml."""
    return msgspec.convert(tomllib.loads(FILE.read_text("utf-8")), Won)
