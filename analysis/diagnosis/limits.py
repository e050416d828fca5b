"""Return the limits of a GPU: the rates of architectures.toml, what limits.toml measured, and the capture's roofs."""

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from analysis.hardware.devices import Device, architecture

FILE = Path(__file__).with_name("limits.toml")
_FORMATS = ("fp8", "int8", "fp4", "tf32", "fp64")
_OF_ARCHITECTURE = (
    "schedulers", "max_warps", "registers", "fp32_lanes", "fp64_lanes", "xu_lanes", "lsu_requests", "l1_bytes",
    "reserved_shared_bytes", "shared_bytes",
)  # fmt: skip


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one GPU. Units: for each SM and cycle, unless the name has another unit. NaN means unknown.

    Source: architectures.toml and limits.toml. `sm_clock_hz` is the clock behind the datasheet's FLOP/s; it serves if a
    capture has no clock.
    """

    cc: str
    sm_count: float
    dram_read_bytes_per_s: float
    dram_copy_bytes_per_s: float
    tensor_flop_per_s: float
    empty_kernel_ns: float
    sm_clock_hz: float
    l2_size_bytes: float
    dirty_bytes: float
    schedulers: float = float("nan")
    max_warps: float = float("nan")
    registers: float = float("nan")
    fp32_lanes: float = float("nan")
    fp64_lanes: float = float("nan")
    xu_lanes: float = float("nan")
    lsu_requests: float = float("nan")
    l1_bytes: float = float("nan")
    reserved_shared_bytes: float = float("nan")
    shared_bytes: float = float("nan")
    l2_bytes: float = float("nan")
    dram_latency_cycles: float = float("nan")
    l2_latency_cycles: float = float("nan")
    shared_latency_cycles: float = float("nan")
    block_start_cycles: float = float("nan")
    tensor_rates: Mapping[str, float] = {}
    """FLOP/s of tensor cores by format, over those of 16 bits; a format without one has that of 16 bits."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return the names of the limits that are unknown for this compute capability."""
        return tuple(name for name, value in msgspec.structs.asdict(self).items() if value != value)


@cache
def _declared() -> Mapping[str, Mapping[str, float]]:
    return tomllib.loads(FILE.read_text("utf-8"))


def find_limits(
    device: Device | None, sm_count: int | None, ceilings: Mapping[str, Any] | None = None
) -> Limits | None:
    """Return the limits of a GPU; None if the GPU or its compute capability is unknown.

    `ceilings`: content of ceilings.json. Its measured roofs replace the values of the datasheet.
    """
    own = architecture(device.cc) if device else None
    sms = sm_count or (device.sm_count if device else 0)
    if device is None or not own or not sms:
        return None
    measured = {**_declared()["common"], **_declared().get(device.cc, {})}
    roofs = {roof["name"]: float(roof["value"]) for roof in (ceilings or {}).get("roofs", [])}
    sheet, tensor = device.dram_bytes_per_s, device.bf16_flop_per_s or device.fp16_flop_per_s or math.nan
    fp32, l2_bytes = device.fp32_flop_per_s or math.nan, float(device.l2_bytes or math.nan)
    entry = {name: float(own[name]) for name in _OF_ARCHITECTURE if name in own}
    if "l2_bytes_a_cycle" in own:
        entry["l2_bytes"] = own["l2_bytes_a_cycle"] / sms
    rates = {form: device.rate("fp64_tensor" if form == "fp64" else form) for form in _FORMATS}
    shares_of = {"fp64": measured["tensor_fp64_frac"] / measured["tensor_frac"]}
    shares = ("dram_read_frac", "dram_copy_frac", "tensor_frac", "tensor_fp64_frac", "dirty_frac")
    entry |= {name: float(value) for name, value in measured.items() if name not in shares}
    return Limits(
        cc=device.cc,
        sm_count=float(sms),
        dram_read_bytes_per_s=roofs.get("dram_read", measured["dram_read_frac"] * sheet),
        dram_copy_bytes_per_s=roofs.get("dram_copy", measured["dram_copy_frac"] * sheet),
        tensor_flop_per_s=roofs.get("bf16", measured["tensor_frac"] * tensor),
        sm_clock_hz=fp32 / (2 * own["fp32_lanes"] * (device.sm_count or sms)),
        l2_size_bytes=l2_bytes,
        dirty_bytes=measured["dirty_frac"] * l2_bytes,
        tensor_rates={form: rate / tensor * shares_of.get(form, 1) for form, rate in rates.items() if rate},
        **entry,
    )


def why_none(device: Device | None) -> str:
    """Return a clause that says why no rule can judge this GPU."""
    if device is None:
        return "the GPU of the counters is unknown, so no rule has thresholds"
    if not architecture(device.cc):
        return f"architectures.toml has no compute capability {device.cc or 'of this GPU'}, so no rule has thresholds"
    return "the file does not state how many SMs the GPU has, so no rule has thresholds"
