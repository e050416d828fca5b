"""Sum up copies, sets and migrations of unified memory, by direction and memory."""

import re
from functools import lru_cache

import numpy as np
import pandas as pd

from analysis.capture.model import Capture
from analysis.capture.nsys_csv import kind_of_operation
from analysis.formats import intervals
from analysis.hardware.devices import Device
from analysis.tables.attribution import fold_paths, or_outside
from analysis.tables.declare import Column, Facts, table
from analysis.tables.kernels import by_share

WORK = ("kernel", "graph")  # kinds of GPU operations that compute; all others move or set bytes
WITHIN = "Device-to-Device"
# `[CUDA memcpy Host-to-Device]` of nsys, `Memcpy HtoD (Pinned -> Device)` of torch.profiler
_DIRECTION = re.compile(
    r"(host|device|array|peer|unified)[ -]?to[ -]?(host|device|array|peer)"
    r"|(?<![A-Za-z])([hdap])(?:to|2)([hdap])(?![A-Za-z])",
    re.IGNORECASE,
)
_SIDES = {"h": "Host", "d": "Device", "a": "Array", "p": "Peer"}


@lru_cache(maxsize=1 << 16)
def direction_of(name: str) -> str:
    """Return the direction in a copy's name in any spelling, such as `Host-to-Device`; "" if there is none."""
    found = _DIRECTION.search(name)
    sides = [side for side in found.groups() if side] if found else []
    return "-to-".join(_SIDES.get(side.lower(), side.capitalize()) for side in sides)


def link_rate(device: Device | None, direction: str) -> float | None:
    """Return the highest rate of a copy in that direction, byte/s: the datasheet's link, one way; None if unknown.

    A copy within the device reads and writes each byte.
    """
    if device is None:
        return None
    if direction == WITHIN:
        return device.dram_bytes_per_s / 2
    if not direction:
        return device.dram_bytes_per_s  # a set only writes
    return device.nvlink_bytes_per_s if direction == "Peer-to-Peer" else device.pcie_bytes_per_s


@table(
    "copies",
    question="What is copied and set, how fast, and do kernels overlap it?",
    title="Copies and sets",
    columns=(
        Column("device", "GPU of the operations; blank if only nsys' sums are known, without a trace", "key"),
        Column("kind", "memcpy, memset, or migration of unified memory", "key"),
        Column("direction", "source and destination, such as Host-to-Device; blank for sets", "key"),
        Column("memory", "kinds of memory at both ends (pageable, pinned, device); blank if unknown", "key"),
        Column("range", "folded range that launched most of their time", "key"),
        Column("count", "operations", "timing", "1"),
        Column("bytes", "bytes moved or set", "timing"),
        Column("time_ns", "sum of their durations", "timing"),
        Column("share_frac", "time_ns over the time of all GPU operations", "timing", style="bar"),
        Column("rate_byte_per_s", "bytes over time_ns", "timing"),
        Column(
            "link_frac",
            "rate over the datasheet's bandwidth of the link, one way. Within the GPU: over half its DRAM bandwidth, "
            "since each byte is read and written. Sets: over its DRAM bandwidth. Blank if unknown",
            "timing",
        ),
        Column("overlapped_frac", "share of time_ns in which a kernel ran on the same GPU", "timing"),
    ),
    glance=by_share,
)
def build_copies(facts: Facts) -> pd.DataFrame | None:
    """Return copies.csv, most time first. Shape: `gpu_ops` as in `Capture`, with `path`."""
    gpu_ops, device, capture = facts.gpu_ops, facts.device, facts.capture
    moved = gpu_ops[~gpu_ops["kind"].isin(WORK)]
    if moved.empty:
        return None if len(gpu_ops) else _from_sums(capture, device)
    names = moved["name"].astype(str)
    rows = pd.DataFrame(
        {
            "device": moved["device"].astype(str),
            "kind": moved["kind"].astype(str),
            "direction": names.map({name: direction_of(name) for name in names.unique()}),
            "memory": moved["memory"].astype(str),
            "range": or_outside(fold_paths(moved["path"])),
            "bytes": moved["bytes"].astype("Int64"),
            "time_ns": moved["duration_ns"].astype("int64"),
            "overlapped_ns": _overlapped(gpu_ops, moved),
        }
    )
    key = ["device", "kind", "direction", "memory"]
    groups = rows.groupby(key, sort=False)
    found = groups.agg(
        count=("time_ns", "size"),
        bytes=("bytes", lambda sizes: sizes.sum(skipna=False)),
        time_ns=("time_ns", "sum"),
        overlapped_ns=("overlapped_ns", "sum"),
    )
    times = rows.groupby([*key, "range"], sort=False)["time_ns"].sum()
    found["range"] = times.groupby(level=key, sort=False).idxmax().str[-1]
    found["overlapped_frac"] = (found.pop("overlapped_ns") / found["time_ns"]).where(found["time_ns"] > 0)
    total = int(gpu_ops["duration_ns"].sum())
    found["share_frac"] = found["time_ns"] / total if total else np.nan
    return _finish(found.reset_index(), device)


def _from_sums(capture: Capture, device: Device | None) -> pd.DataFrame | None:
    """Return the rows from nsys' own totals, the only source without a trace."""
    times, sizes = (capture.summaries.get(f"cuda_gpu_mem_{what}_sum") for what in ("time", "size"))
    if times is None or times.empty:
        return None
    found = times.groupby("name", sort=False)[["count", "total_ns"]].sum().rename(columns={"total_ns": "time_ns"})
    moved = None if sizes is None else sizes.groupby("name")["total_bytes"].sum(min_count=1)
    found = found.assign(bytes=pd.NA if moved is None else moved.reindex(found.index)).reset_index()
    kernels = capture.nsys_kernel_sums["total_ns"].sum()
    found["share_frac"] = found["time_ns"].astype(float) / float(kernels + found["time_ns"].sum())
    found["kind"] = found["name"].map(kind_of_operation)
    found["direction"] = found.pop("name").map(direction_of)
    return _finish(found.assign(device="", memory="", range="", overlapped_frac=np.nan), device)


def _finish(found: pd.DataFrame, device: Device | None) -> pd.DataFrame:
    bytes_, time = found["bytes"].astype("Float64").astype(float), found["time_ns"].astype(float)
    found["rate_byte_per_s"] = (bytes_ / time * 1e9).where((time > 0) & (bytes_ > 0))
    links = [
        link_rate(device, direction) if direction or kind == "memset" else np.nan
        for kind, direction in zip(found["kind"], found["direction"], strict=True)
    ]
    found["link_frac"] = found["rate_byte_per_s"] / pd.Series(links, index=found.index, dtype=float)
    for name in ("count", "bytes", "time_ns"):
        found[name] = found[name].astype("Int64")
    found["bytes"] = found["bytes"].mask(found["bytes"] == 0)  # exports round small sizes to nothing
    order = ["time_ns", "device", "kind", "direction", "memory"]
    return found.assign(tier="timing").sort_values(order, ascending=[False, True, True, True, True])


def _overlapped(gpu_ops: pd.DataFrame, moved: pd.DataFrame) -> pd.Series:
    """Return the time during each of the rows `moved` in which a kernel of the same GPU ran, ns."""
    found = pd.Series(0, index=moved.index, dtype=np.int64)
    kernels = gpu_ops[gpu_ops["kind"].isin(WORK)]
    of_device = dict(iter(kernels.groupby("device", observed=True, dropna=False)))
    for name, rows in moved.groupby("device", observed=True, dropna=False):
        if name in of_device:
            busy = intervals.union(*(of_device[name][one].to_numpy(np.int64) for one in ("start_ns", "duration_ns")))
            start = rows["start_ns"].to_numpy(np.int64)
            end = start + rows["duration_ns"].to_numpy(np.int64)
            found[rows.index] = intervals.covered(start, end, busy)
    return found
