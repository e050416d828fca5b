"""The GPU that a model of bytes is about: on how many multiprocessors blocks run at once, and what its L2 holds.

It is the one that `modelling` names, else the one at hand, else the first GPU of reports/published.toml: so a ladder
is declared for the GPU that it was measured on, on any machine. analysis/hardware/devices.toml has the figures of
named GPUs. Both files are read as data.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEVICES = ROOT / "analysis" / "hardware" / "devices.toml"
PUBLISHED = ROOT / "reports" / "published.toml"


@dataclass(frozen=True)
class Gpu:
    """What models of bytes take from a GPU."""

    name: str
    multiprocessors: int
    l2_bytes: int


_modelled: list[Gpu] = []


@contextmanager
def modelling(name: str) -> Iterator[Gpu]:
    """Predict bytes for this GPU, whatever is at hand.

    Raises: LookupError if devices.toml does not have it.
    """
    _modelled.append(named(name))
    try:
        yield _modelled[-1]
    finally:
        _modelled.pop()


def modelled() -> Gpu:
    """The GPU that bytes are predicted for."""
    return _modelled[-1] if _modelled else at_hand() or first_published()


@cache
def named(name: str) -> Gpu:
    """A GPU of devices.toml, by its name or an alias.

    Raises: LookupError if there is none.
    """
    for row in tomllib.loads(DEVICES.read_text("utf-8"))["device"]:
        if name in (row["name"], *row["aliases"]):
            return Gpu(row["name"], row["sm_count"], row["l2_bytes"])
    raise LookupError(f"{name} is not in {DEVICES.relative_to(ROOT).as_posix()}: add its figures there.")


def at_hand() -> Gpu | None:
    """The GPU that torch sees; None without one."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    seen = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Gpu(seen.name, seen.multi_processor_count, seen.L2_cache_size)


@cache
def first_published() -> Gpu:
    """The GPU whose committed runs stand first."""
    tables = tomllib.loads(PUBLISHED.read_text("utf-8"))
    return named(next(iter(tables.values()))["gpu"])
