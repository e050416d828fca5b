"""Read the limits of the hardware from limits.toml, and replace them by measured roofs if the capture has some."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from analysis.hardware.devices import Device

FILE = Path(__file__).with_name("limits.toml")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one GPU. Units: for each SM and cycle, unless the name has another unit. NaN means unknown.

    Source: limits.toml. `sm_clock_hz` is the clock behind the datasheet's FLOP/s; it serves if a capture has no clock.
    """

    cc: str
    sm_count: float
    schedulers: float
    max_warps: float
    registers: float
    fp32_lanes: float
    fp64_lanes: float
    xu_lanes: float
    lsu_requests: float
    l1_bytes: float
    reserved_shared_bytes: float
    dram_read_bytes_per_s: float
    dram_copy_bytes_per_s: float
    tensor_flop_per_s: float
    empty_kernel_ns: float
    sm_clock_hz: float
    l2_size_bytes: float
    dirty_bytes: float
    l2_bytes: float = float("nan")
    dram_latency_cycles: float = float("nan")
    l2_latency_cycles: float = float("nan")
    shared_latency_cycles: float = float("nan")
    block_start_cycles: float = float("nan")

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return the names of the limits that are unknown for this compute capability."""
        return tuple(name for name, value in msgspec.structs.asdict(self).items() if value != value)


@cache
def _declared() -> Mapping[str, Mapping[str, float]]:
    return tomllib.loads(FILE.read_text("utf-8"))


def capabilities() -> tuple[str, ...]:
    """Return the compute capabilities that limits.toml covers."""
    return tuple(name for name in _declared() if name != "common")


def find_limits(
    device: Device | None, sm_count: int | None, ceilings: Mapping[str, Any] | None = None
) -> Limits | None:
    """Return the limits of a GPU; None if the GPU is unknown or limits.toml lacks its compute capability.

    `ceilings`: content of ceilings.json. Its measured roofs replace the values derived from the datasheet.
    """
    own = _declared().get(device.cc) if device else None
    if device is None or own is None or not (sm_count or device.sm_count):
        return None
    entry = {**_declared()["common"], **own}
    roofs = {roof["name"]: float(roof["value"]) for roof in (ceilings or {}).get("roofs", [])}
    sheet, tensor = device.dram_bytes_per_s, device.bf16_flop_per_s or device.fp16_flop_per_s or math.nan
    fp32, l2_bytes = device.fp32_flop_per_s or math.nan, float(device.l2_bytes or math.nan)
    shares = ("dram_read_frac", "dram_copy_frac", "tensor_frac", "dirty_frac")
    return Limits(
        cc=device.cc,
        sm_count=float(sm_count or device.sm_count or 0),
        dram_read_bytes_per_s=roofs.get("dram_read", entry["dram_read_frac"] * sheet),
        dram_copy_bytes_per_s=roofs.get("dram_copy", entry["dram_copy_frac"] * sheet),
        tensor_flop_per_s=roofs.get("bf16", entry["tensor_frac"] * tensor),
        sm_clock_hz=fp32 / (2 * entry["fp32_lanes"] * device.sm_count),
        l2_size_bytes=l2_bytes,
        dirty_bytes=entry["dirty_frac"] * l2_bytes,
        **{name: float(value) for name, value in entry.items() if name not in shares},
    )


def why_none(device: Device | None) -> str:
    """Return a clause that says why no rule can judge this GPU."""
    if device is None:
        return "the GPU of the counters is unknown, so no rule has thresholds"
    return f"limits.toml has no compute capability {device.cc}, so no rule has thresholds"
