"""Datasheet peaks of the GPUs in devices.toml."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

_TABLE = Path(__file__).with_name("devices.toml")


@dataclass(frozen=True)
class Device:
    """Datasheet figures of a GPU: byte/s, FLOP/s (dense, tensor formats with FP32 accumulation); None if unknown.

    Links: byte/s one way.
    """

    name: str
    cc: str
    sm_count: int
    l2_bytes: int | None
    dram_bytes_per_s: float
    fp32_flop_per_s: float | None
    source: str
    tf32_flop_per_s: float | None = None
    bf16_flop_per_s: float | None = None
    fp16_flop_per_s: float | None = None
    pcie_bytes_per_s: float | None = None
    nvlink_bytes_per_s: float | None = None
    memory_bytes: float | None = None
    aliases: tuple[str, ...] = ()


def _plain(name: str) -> str:
    """Return a name in lower case without the device number that nsys appends (`NVIDIA H200 (0)`)."""
    return " ".join(re.sub(r"\s*\([0-9]+\)$", "", name.strip()).lower().split())


@cache
def devices() -> tuple[Device, ...]:
    """Return all GPUs of the table."""
    rows = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["device"]
    return tuple(Device(**{**row, "aliases": tuple(row["aliases"])}) for row in rows)


def find_device(gpu_name: str, cc: str | None = None) -> Device | None:
    """Return the GPU of that name or alias; None if the table lacks it.

    If the compute capability contradicts the name, the GPU is another one with the same name, so the result is None.
    """
    wanted = _plain(gpu_name)
    for device in devices():
        if wanted in {_plain(name) for name in (device.name, *device.aliases)}:
            return device if not cc or cc == device.cc else None
    return None


def find_by_capability(cc: str, sm_count: int) -> Device | None:
    """Return the common figures of all GPUs in the table with that compute capability and number of SMs.

    None without one.

    Figures in which these GPUs differ are unknown (NaN for the DRAM rate).
    """
    alike = [device for device in devices() if (device.cc, device.sm_count) == (cc, sm_count)]
    if not alike:
        return None
    first = asdict(alike[0])
    for name, value in first.items():
        if any(getattr(other, name) != value for other in alike[1:]):
            first[name] = math.nan if name == "dram_bytes_per_s" else None
    names = " or ".join(device.name for device in alike)
    return Device(
        **first | {"name": names, "source": "; ".join(dict.fromkeys(one.source for one in alike)), "aliases": ()}
    )
