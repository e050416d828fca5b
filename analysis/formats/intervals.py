"""Unions of time intervals, and the part of other intervals inside them. Times are ns, ends exclusive."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

Times = npt.NDArray[Any]  # whole ns in a capture, fractions in a replay
Union = tuple[Times, Times]  # starts and ends of intervals that neither touch nor overlap, in order


def union(start: Times, duration: Times) -> Union:
    """Return the union of [start, start + duration)."""
    if not (filled := duration > 0).all():
        start, duration = start[filled], duration[filled]
    begin, end = in_order(start, duration)
    reached = np.maximum.accumulate(end)
    apart = np.flatnonzero(begin[1:] > reached[:-1])
    return begin[np.append(0, apart + 1)[: len(begin)]], reached[np.append(apart, len(begin) - 1)[: len(begin)]]


def in_order(start: Times, duration: Times) -> tuple[Times, Times]:
    """Return starts and ends, sorted by start; ten million that are in order have no copy."""
    end = start + duration
    if (start[1:] >= start[:-1]).all():
        return start, end
    order = np.argsort(start, kind="stable")
    return start[order], end[order]


def length(merged: Union) -> int:
    """Return the length of a union."""
    return int((merged[1] - merged[0]).sum())


def covered(start: Times, end: Times, merged: Union) -> Times:
    """Return the length of the part of each [start, end) that lies in the union."""
    return before(end, merged) - before(start, merged)


def outside(start: IntArray, end: IntArray, which: IntArray, unions: Sequence[Union]) -> IntArray:
    """Return the length of the part of each [start, end) outside of its union, number `which`.

    All of it without a union.
    """
    found = end - start
    for number, merged in enumerate(unions):
        own = np.flatnonzero(which == number)
        found[own] -= covered(start[own], end[own], merged)
    return found


def before(moment: Times, merged: Union) -> Times:
    """Return the length of the union before each moment."""
    begins, ends = merged
    if not len(begins):
        return np.zeros(len(moment), dtype=np.int64)
    total = np.concatenate([[0], np.cumsum(ends - begins)])
    at = np.searchsorted(begins, moment, side="right") - 1
    last = np.maximum(at, 0)
    return np.where(at < 0, 0, total[last] + np.minimum(moment - begins[last], (ends - begins)[last]))


def joined(one: Union, other: Union) -> Union:
    """Return the union of two unions."""
    start, end = (np.concatenate([one[side], other[side]]) for side in (0, 1))
    return union(start, end - start)
