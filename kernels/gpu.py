"""Choose the GPU of the byte models: its number of multiprocessors and the size of its L2.

The choice is the GPU that `modelling` names, else this machine's GPU, else the first GPU of reports/published.toml. So
any machine can evaluate a ladder for the GPU that measured it. analysis/hardware/devices.toml has the figures of named
GPUs. This module reads both files as data.
"""

import ctypes
import sys
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
    """The properties of a GPU that the byte models use."""

    name: str
    multiprocessors: int
    l2_bytes: int


_modelled: list[Gpu] = []


@contextmanager
def modelling(name: str) -> Iterator[Gpu]:
    """Predict bytes for this GPU inside the block, on any machine.

    Raises: LookupError if devices.toml does not have it.
    """
    _modelled.append(named(name))
    try:
        yield _modelled[-1]
    finally:
        _modelled.pop()


def modelled() -> Gpu:
    """Return the GPU of the byte predictions."""
    return _modelled[-1] if _modelled else at_hand() or first_published()


@cache
def named(name: str) -> Gpu:
    """Return a GPU of devices.toml, by its name or an alias.

    Raises: LookupError if there is none.
    """
    for own, row in tomllib.loads(DEVICES.read_text("utf-8")).items():
        if name in (own, *row["aliases"]):
            return Gpu(own, row["sm_count"], row["l2_bytes"])
    raise LookupError(f"{name} is not in {DEVICES.relative_to(ROOT).as_posix()}: add its figures there.")


def at_hand() -> Gpu | None:
    """This machine's GPU, as torch sees it; None without one."""
    if "torch" not in sys.modules and not _has_driver():  # to import torch takes two seconds
        return None
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    seen = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Gpu(seen.name, seen.multi_processor_count, seen.L2_cache_size)


def _has_driver() -> bool:
    """Return whether NVIDIA's driver is installed: without it, torch sees no GPU."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@cache
def first_published() -> Gpu:
    """Return the GPU of the first committed runs in reports/published.toml."""
    tables = tomllib.loads(PUBLISHED.read_text("utf-8"))
    return named(next(iter(tables.values()))["gpu"])
