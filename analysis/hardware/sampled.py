"""Name the counters that nsys samples: one column for each quantity, for every architecture's words."""

import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

PERCENT = 0.01


@dataclass(frozen=True)
class Sampled:
    """A column of the samples: its name, the pattern of nsys' names, and its meaning."""

    name: str
    pattern: re.Pattern[str]
    meaning: str


@functools.cache
def quantities() -> tuple[Sampled, ...]:
    """Return every column of sampled.toml, in its order."""
    listed = tomllib.loads(Path(__file__).with_name("sampled.toml").read_text(encoding="utf-8"))
    unit = {"MHz": r"\[?MHz\]?", "%": r"\[?(Throughput )?%\]?", "Bytes": r"\[?Bytes\]?"}
    return tuple(
        Sampled(
            name,
            re.compile(rf"(?:{'|'.join(one['names'])})(?: {unit[one.get('unit', '%')]})?", re.IGNORECASE),
            one["meaning"],
        )
        for name, one in listed.items()
    )


def column_of(metric: str) -> str:
    """Return the column of a metric of nsys, '' if it is none of ours (averages of warps, counts of requests)."""
    return next((one.name for one in quantities() if one.pattern.fullmatch(metric.strip())), "")
