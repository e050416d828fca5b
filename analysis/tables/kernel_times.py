"""Compute the time of each kernel, and the idle time of the GPU before it, from the times of every launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Integers = npt.NDArray[Any]  # whole numbers of any width: numpy's signatures cannot express which

QUANTILES = (0.5, 0.99)
_SIXTEEN_BITS = 1 << 15  # numbers up to this one are sorted by counting


class KernelTimes:
    """Take launches in batches, so that a capture of any size needs little memory, and give one row per kernel.

    in_order  whether launches came in the order of their start; otherwise the idle times are wrong
    """

    def __init__(self) -> None:
        self.in_order = True
        self._kernel_of: dict[int, int] = {}  # number of the name -> number of the kernel, in order of arrival
        self._sorted: list[tuple[Integers, Integers]] = []  # durations by kernel, and the end of each kernel's part
        self._idle: Any = np.zeros(0)  # float64, whole numbers below 2^53
        self._lanes: dict[int, tuple[int, int]] = {}  # start of the last launch, latest end so far

    def add(self, name_id: Integers, start_ns: Integers, end_ns: Integers, lane: Integers) -> None:
        """Add launches: the number of the kernel's name, its times, and a number for each GPU of each process."""
        if not len(name_id):
            return
        kernel = self._kernels(name_id)
        duration: Integers = end_ns - start_ns
        if -(1 << 31) <= duration.min() <= duration.max() < 1 << 31:
            duration = duration.astype(np.int32)
        launches = np.bincount(kernel, minlength=len(self._kernel_of))
        self._sorted.append((duration[np.argsort(kernel, kind="stable")], np.cumsum(launches)))
        idle = np.zeros(len(start_ns))
        for key, rows in _split(lane):
            idle[rows] = self._idle_before(key, start_ns[rows], end_ns[rows])
        before, self._idle = self._idle, np.bincount(kernel, weights=idle, minlength=len(self._kernel_of))
        self._idle[: len(before)] += before

    def _kernels(self, name_id: Integers) -> Integers:
        low = int(name_id.min())
        place = name_id - low
        if place.max() < 4 * len(place) + 1024:
            seen = np.flatnonzero(np.bincount(place))
            different = seen + low
        else:  # numbers far apart
            different, place = np.unique(name_id, return_inverse=True)
            seen = np.arange(len(different))
        kernels = [self._kernel_of.setdefault(i, len(self._kernel_of)) for i in different.tolist()]
        kernel = np.zeros(int(seen[-1]) + 1, dtype=np.int16 if len(self._kernel_of) < _SIXTEEN_BITS else np.int32)
        kernel[seen] = kernels
        return kernel[place]

    def _idle_before(self, lane: int, start_ns: Integers, end_ns: Integers) -> Integers:
        """Return the idle time of a lane right before each launch; 0 before the first."""
        last_start, busy = self._lanes.get(lane, (int(start_ns[0]), int(start_ns[0])))
        if start_ns[0] < last_start or (start_ns[1:] < start_ns[:-1]).any():
            self.in_order = False
        busy_until = np.maximum.accumulate(np.concatenate([[busy], end_ns]))
        self._lanes[lane] = int(start_ns[-1]), int(busy_until[-1])
        return np.maximum(start_ns - busy_until[:-1], 0)

    def table(self, text_of: Mapping[int, str]) -> pd.DataFrame:
        """Return one row per kernel (`text_of`: number of the name -> name), longest total first.

        Columns: kernel; launches; total_ns; p50_ns and p99_ns (linear between neighbours); idle_before_ns, the time
        without any kernel on the lane right before the launches of this one.
        """
        rows = []
        for name_id, kernel in self._kernel_of.items():
            pieces = []
            for durations, ends in self._sorted:
                first = ends[kernel - 1] if 0 < kernel < len(ends) else 0
                if kernel < len(ends) and first < ends[kernel]:
                    pieces.append(durations[first : ends[kernel]])
            own = np.concatenate(pieces)
            name = text_of.get(name_id, f"({name_id})")
            rows.append((name, len(own), int(own.sum(dtype=np.int64)), *_quantiles(own), int(self._idle[kernel])))
        columns = ["kernel", "launches", "total_ns", *(f"p{q * 100:.0f}_ns" for q in QUANTILES), "idle_before_ns"]
        table = pd.DataFrame(rows, columns=columns)
        return table.sort_values(["total_ns", "kernel"], ascending=[False, True], ignore_index=True)


def _split(keys: Integers) -> Iterator[tuple[int, Integers]]:
    """Yield each distinct key with its rows; meant for a few keys."""
    left = np.ones(len(keys), dtype=np.bool_)
    while left.any():
        key = keys[left.argmax()]
        mine = keys == key
        yield int(key), np.flatnonzero(mine)
        left &= ~mine


def _quantiles(values: Integers) -> list[float]:
    """Return the quantiles of `values`; reorders `values`."""
    places = [(len(values) - 1) * quantile for quantile in QUANTILES]
    neighbours = [(int(place), min(int(place) + 1, len(values) - 1)) for place in places]
    values.partition(sorted({at for pair in neighbours for at in pair}))
    return [
        int(values[low]) + (int(values[high]) - int(values[low])) * (place - low)
        for place, (low, high) in zip(places, neighbours, strict=True)
    ]
