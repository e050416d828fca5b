"""Read defects.toml: what each cause means, and how to cure it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("defects.toml")
NONE_AT_ROOF, LAUNCH_LATENCY = "none_at_roof", "launch_latency"


@cache
def vocabulary() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Return defects.toml: for each of `kernel`, `timeline` and `clean`, identifiers with their `what` and `cure`."""
    return tomllib.loads(FILE.read_text("utf-8"))


@cache
def words() -> Mapping[str, Mapping[str, str]]:
    """Return all identifiers of defects.toml in one mapping, each with its `what` and `cure`."""
    return {name: entry for part in vocabulary().values() for name, entry in part.items()}
