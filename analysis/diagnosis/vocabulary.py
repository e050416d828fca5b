"""Name the causes that rules speak of, and give the words of kinds.toml by the names of any version."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.formats import symbols
from analysis.formats.place import here
from analysis.formats.report import kind_of, kinds

# What columns say of a cause and of how sure it is.
CAUSE = here("the cause: an identifier of analysis/diagnosis/kinds.toml", "the cause, as its identifier")
SURE = "how often such a verdict is right"
NONE_AT_ROOF, LAUNCH_LATENCY = "none_at_roof", "launch_latency"


def words(name: str) -> Mapping[str, str]:
    """Return `what` and `cure` of a cause."""
    return kinds()[kind_of(name)]


def cure(name: str, kernel: str) -> str:
    """Return what to do about a cause in a kernel; "" if nobody but its library can."""
    return words(name)["closed" if symbols.is_closed(kernel) else "cure"]
