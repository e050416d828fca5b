"""Peaks of GPUs: of the datasheets in devices.toml, or derived from the attributes that a file states.

A GPU that is not in devices.toml gets its peaks from its number of SMs, its clocks and the rates of its compute
capability in architectures.toml.
"""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

_TABLE = Path(__file__).with_name("devices.toml")
_ARCHITECTURES = Path(__file__).with_name("architectures.toml")


@dataclass(frozen=True)
class Device:
    """Figures of a GPU: byte/s, FLOP/s (dense, tensor formats with FP32 accumulation); None if unknown.

    Links: byte/s one way. `dram_bytes_per_s` is NaN if unknown. `derived` says how the figures follow from the file's
    attributes; it is empty for those of a datasheet.
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
    derived: tuple[str, ...] = ()
    l1_bytes_per_s: float | None = None
    l2_bytes_per_s: float | None = None

    def rate(self, form: str) -> float | None:
        """Return the dense FLOP/s or op/s of a format: fp64, fp64_tensor, fp8, fp4, int8 and those with a field.

        Formats without a figure of the datasheet follow from the architecture and the clock behind the FP32 figure.
        """
        stated: float | None = getattr(self, f"{form}_flop_per_s", None)
        lanes = architecture(self.cc).get("fp32_lanes")
        if stated or not self.fp32_flop_per_s or not lanes:
            return stated
        each = _lanes(self.cc, self.name).get(form)
        return each / lanes * self.fp32_flop_per_s if each else None


def has_tf32(device: Device | None) -> bool:
    """Return whether the tensor cores of a GPU multiply TF32: since compute capability 8.0, and if it is unknown."""
    return device is None or float(device.cc or 8) >= 8


def has_fp64(device: Device | None) -> bool:
    """Return whether a GPU computes in FP64 at a quarter of its rate in FP32 at least; of an unknown one, yes."""
    rate = device.rate("fp64") if device else None
    return rate is None or device is None or rate >= (device.fp32_flop_per_s or 0.0) / 4


@dataclass(frozen=True)
class Attributes:
    """What a file states about its GPU; None if it does not. Clocks are the highest, in Hz."""

    cc: str | None = None
    sm_count: int | None = None
    clock_hz: float | None = None
    memory_clock_hz: float | None = None
    bus_bits: float | None = None
    l2_bytes: float | None = None
    memory_bytes: float | None = None
    dram_bytes_per_s: float | None = None
    dram_from: str = "the file"


@cache
def architectures() -> Mapping[str, Mapping[str, Any]]:
    """Return the rates of one SM by compute capability."""
    entries = tomllib.loads(_ARCHITECTURES.read_text(encoding="utf-8"))
    return {cc: {**entries["common"], **own} for cc, own in entries.items() if cc != "common"}


def architecture(cc: str) -> Mapping[str, Any]:
    """Return the rates of one SM of a compute capability; empty if it is not known."""
    return architectures().get(cc, {})


def _lanes(cc: str, name: str) -> dict[str, float]:
    """Return the fused multiply-adds of one SM in a cycle by format; those of GeForce boards by their name."""
    own = architecture(cc)
    tensor = {**own.get("tensor", {}), **(own.get("geforce", {}) if "geforce" in name.lower() else {})}
    if _NO_TENSOR.search(name):
        tensor = {}
    lanes = {"fp32": own.get("fp32_lanes"), "fp64": own.get("fp64_lanes"), "fp64_tensor": tensor.pop("fp64", None)}
    return {form: float(each) for form, each in {**lanes, **tensor}.items() if each}


def derive_device(name: str, known: Attributes) -> Device | None:
    """Return the peaks of a GPU from what a file states; None if that gives neither a bandwidth nor a rate."""
    cc, sm_count, clock = known.cc or "", known.sm_count, known.clock_hz
    own = architecture(cc)
    derived, rates = [], {}
    dram = known.dram_bytes_per_s or math.nan
    if known.memory_clock_hz and known.bus_bits:
        dram = 2 * known.memory_clock_hz * known.bus_bits / 8
        derived.append(
            f"DRAM 2 x {known.memory_clock_hz / 1e6:,.0f} MHz x {known.bus_bits:.0f} bit / 8 = {dram / 1e9:,.0f} GB/s"
        )
    elif known.dram_bytes_per_s:
        derived.append(f"DRAM {dram / 1e9:,.0f} GB/s, as {known.dram_from} states it")
    if sm_count and clock:
        rates = {form: sm_count * each * 2 * clock for form, each in _lanes(cc, name).items()}
    if "fp32" in rates:
        derived.append(
            f"FP32 {sm_count} SMs x {own['fp32_lanes']} lanes x 2 x {(clock or 0) / 1e9:.3g} GHz = "
            f"{rates['fp32'] / 1e12:,.1f} TFLOP/s"
        )
    if not derived:
        return None
    l1, l2 = own.get("l1_bytes"), own.get("l2_bytes_a_cycle")
    return Device(
        name=name or f"a GPU of compute capability {cc}",
        cc=cc,
        sm_count=sm_count or 0,
        l2_bytes=int(known.l2_bytes) if known.l2_bytes else None,
        dram_bytes_per_s=dram,
        fp32_flop_per_s=rates.get("fp32"),
        tf32_flop_per_s=rates.get("tf32"),
        bf16_flop_per_s=rates.get("bf16"),
        fp16_flop_per_s=rates.get("fp16"),
        memory_bytes=known.memory_bytes,
        l1_bytes_per_s=sm_count * l1 * clock if l1 and sm_count and clock else None,
        l2_bytes_per_s=l2 * clock if l2 and clock else None,
        derived=tuple(derived),
        source=f"derived from the file's attributes and architectures.toml ({own.get('source', 'no architecture')})",
    )


# Turing boards without tensor cores, and those of before 7.0, which have none either.
_NO_TENSOR = re.compile(r"\bGTX\b|\bMX ?\d{3}\b|\bT(?:400|500|550|600|1000|1200)\b")


def _plain(name: str) -> str:
    """Return a name in lower case without the device number that nsys appends (`NVIDIA H200 (0)`)."""
    return " ".join(re.sub(r"\s*\([0-9]+\)$", "", name.strip()).lower().split())


@cache
def devices() -> tuple[Device, ...]:
    """Return all GPUs of the table."""
    rows = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return tuple(
        Device(**{"name": name, "fp16_flop_per_s": row.get("bf16_flop_per_s"), **row, "aliases": tuple(row["aliases"])})
        for name, row in rows.items()
    )


def find_device(gpu_name: str, cc: str | None = None) -> Device | None:
    """Return the GPU of that name or alias; None if the table lacks it.

    If the compute capability contradicts the name, the GPU is another one with the same name, so the result is None.
    """
    wanted = _plain(gpu_name)
    for device in devices():
        if wanted in {_plain(name) for name in (device.name, *device.aliases)}:
            return device if not cc or cc == device.cc else None
    return None


def same_gpu(one: str, other: str) -> bool:
    """Return whether two names, as different tools print them, are of one model."""
    first, second = find_device(one), find_device(other)
    return (
        first == second
        if first and second
        else _plain(one).removeprefix("nvidia ") == _plain(other).removeprefix("nvidia ")
    )


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
