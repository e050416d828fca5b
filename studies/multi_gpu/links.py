"""Compute how long a transfer between GPUs takes, from the measured links of a ceilings.json, else from links.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats.collectives import bus_factor
from analysis.formats.errors import InputError
from analysis.formats.run import PEER_COPY
from analysis.hardware.devices import find_device

DECLARED = Path(__file__).with_name("links.toml")
ALL_REDUCE, ALL_GATHER = "all_reduce", "all_gather"


@dataclass(frozen=True)
class Link:
    """Time over size: `points` are (bytes, ns), in ascending order; `source` says where they are from."""

    points: tuple[tuple[float, float], ...]
    source: str

    def time_ns(self, size: float) -> float:
        """Return the time of `size` bytes in ns: interpolated between points; never below the first point's time.

        Above the last point, the last point's rate counts.
        """
        if size <= 0:
            return 0.0
        first, last = self.points[0], self.points[-1]
        if size <= first[0]:
            return first[1]
        if size >= last[0]:
            return last[1] * size / last[0]
        place = next(i for i, (known, _) in enumerate(self.points) if known >= size)
        (b0, t0), (b1, t1) = self.points[place - 1 : place + 1]
        return t0 + (t1 - t0) * (size - b0) / (b1 - b0)


Links = Mapping[str, Link]


def declared(gpu: str, ranks: int) -> Links:
    """Return the links of links.toml: each has a latency, and a share of the datasheet's NVLink rate.

    Raises: InputError if devices.toml has no NVLink rate of this GPU.
    """
    device = find_device(gpu)
    if device is None or device.nvlink_bytes_per_s is None:
        raise InputError(f"devices.toml has no nvlink_bytes_per_s of {gpu}: add it, or measure the links.")
    found = {}
    for name, entry in tomllib.loads(DECLARED.read_text(encoding="utf-8")).items():
        rate = entry["share_of_nvlink"] * device.nvlink_bytes_per_s
        factor = bus_factor(name, ranks) or 1.0  # a copy sends each byte once
        sizes = [1 << shift for shift in range(10, 31)]
        points = tuple((size, entry["latency_ns"] + size * factor / rate * 1e9) for size in sizes)
        found[name] = Link(points, entry["source"])
    return found


def measured(ceilings: Mapping[str, Any], ranks: int) -> Links:
    """Return the links of a ceilings.json that were measured with `ranks` ranks; {} if there are none.

    Collectives of `ranks` ranks that nobody measured take longer than those of two ranks by what they send more.
    """
    listed = ceilings.get("links") or []
    known = ranks if any(one["ranks"] == ranks for one in listed if one["name"] == ALL_REDUCE) else 2
    found: dict[str, list[tuple[float, float]]] = {}
    for one in listed:
        name = one["name"]
        if name in (PEER_COPY, ALL_REDUCE, ALL_GATHER) and (one["ranks"] == known or name == PEER_COPY):
            more = 1.0 if name == PEER_COPY else (bus_factor(name, ranks) or 1.0) / (bus_factor(name, known) or 1.0)
            found.setdefault(name, []).append((float(one["bytes"]), more * float(one["time_ns"]["p50"])))
    return {name: Link(tuple(sorted(points)), "ceilings.json") for name, points in found.items()}


def links(gpu: str, ranks: int, ceilings: Mapping[str, Any] | None = None) -> Links:
    """Return the measured links; links.toml fills in those that were not measured. Raises: as `declared`."""
    return {**declared(gpu, ranks), **measured(ceilings or {}, ranks)}
