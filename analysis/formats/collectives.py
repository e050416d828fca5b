"""Collectives: their kinds, how the name of a kernel or an NCCL call gives the kind, and the factors for bandwidths.

Sizes and factors follow nccl-tests (doc/PERFORMANCE.md), so that bandwidths compare with its `busbw`.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache

from analysis.formats.spans import quantile

# Kind -> its spellings in kernels and calls: `ncclDevKernel_AllReduce_Sum_f32_RING_LL`, `ncclAllReduce`,
# `one_shot_all_reduce_kernel`, `allreduce`. The first match counts.
_SPELT = {
    "all_reduce": r"all_?reduce|cross_device_reduce",
    "reduce_scatter": r"reduce_?scatter",
    "all_gather": r"all_?gather",
    "all_to_all": r"all_?to_?all",
    "broadcast": r"broadcast",
    "send_recv": r"send_?recv|ncclsend|ncclrecv|^send$|^recv$",
    "barrier": r"barrier",
    "gather": r"gather",
    "scatter": r"scatter",
    "reduce": r"reduce",
}
KINDS = tuple(_SPELT)
# Kinds in which each rank needs data from every other rank, so that all ranks end at about the same time.
TOGETHER = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
UNKNOWN = "unknown"
LEAST_TOGETHER = 3  # collectives that give the offset of two clocks; fewer do not
_NOISE_NS = 20_000  # a smaller skew is what clocks of one machine leave, for collectives of any length
_OF_MEDIAN = 0.5  # of the median collective: a larger skew says nothing about its waiting

_KINDS = [(kind, re.compile(spelt, re.IGNORECASE)) for kind, spelt in _SPELT.items()]
_PROTOCOL = re.compile(r"nccl\w*?(?:_(RING|TREE|COLLNET\w*?|NVLS\w*?|PAT))?_(LL128|LL|SIMPLE)\b", re.IGNORECASE)
_BY_LIBRARY = re.compile(r"\b(nccl|rccl|mscclpp?|nvshmem)")
_BY_NAME = re.compile(r"all_?reduce|reduce_?scatter|all_?gather(?!_?index)|all_?to_?all|cross_device_reduce|multimem_")
_MARKS = ("ccl", "nvshmem", "reduce", "gather", "all", "multimem")  # of which a name has one: sooner found than those


@lru_cache(maxsize=1 << 16)
def communicates(kernel: str) -> bool:
    """Return whether a kernel of this name moves data between GPUs: a collective of NCCL or of another library."""
    small = kernel.lower()
    return any(mark in small for mark in _MARKS) and bool(_BY_LIBRARY.search(small) or _BY_NAME.search(small))


def kind_of(name: str) -> str:
    """Return the kind of a collective from the name of its kernel or call; `unknown` if the name does not tell.

    `ncclDevKernel_Generic` runs any collective that its call requests.
    """
    return next((kind for kind, spelt in _KINDS if spelt.search(name)), UNKNOWN)


def bus_factor(kind: str, ranks: int) -> float | None:
    """Return the factor that turns bytes over time of a collective into the rate of a rank's link (bus bandwidth).

    In an all-reduce, each byte leaves each rank 2(n-1)/n times, in the others (n-1)/n times. A broadcast and a message
    leave once. None for a kind without such a factor.
    """
    if ranks < 2:
        return None
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0 if kind in ("broadcast", "reduce", "send_recv") else None


def size_of(kind: str, payload_bytes: int, ranks: int) -> int:
    """Return a collective's size, from the payload that a rank gives NCCL: for these kinds, one rank's part."""
    parts = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
    return payload_bytes * ranks if kind in parts else payload_bytes


class Verdict(StrEnum):
    """What a call of a collective spends its time on, from its first rank's start to its last rank's end."""

    TRANSFER = "TRANSFER"
    SKEW = "SKEW"  # the first rank waits for the last one
    MIXED = "MIXED"
    UNDECIDED = "UNDECIDED"


_MOST, _SOME = 0.75, 0.1  # of a call: a part above the first is the verdict, one below the second does not count


def verdict(waiting: float, whole: float, unsure: float) -> Verdict:
    """Return the verdict on a call whose first rank waits for `waiting` ± `unsure` of `whole`, all ns.

    A verdict holds at both ends of the interval.
    """
    low, high = max(waiting - unsure, 0.0), min(waiting + unsure, whole)
    if not whole > 0:
        return Verdict.UNDECIDED
    if high <= (1 - _MOST) * whole:
        return Verdict.TRANSFER
    if low >= _MOST * whole:
        return Verdict.SKEW
    return Verdict.MIXED if _SOME * whole <= low and high <= (1 - _SOME) * whole else Verdict.UNDECIDED


def protocol_of(kernel: str) -> str:
    """Return algorithm and protocol as the name of NCCL's kernel has them, such as `RING LL`; "" if it has none."""
    found = _PROTOCOL.search(kernel)
    return f"{found[1]} {found[2]}" if found and found[1] else found[2] if found else ""


def skew(apart: Sequence[float], offset: float) -> float:
    """Return the 95th percentile (ns) of what remains of the differences of ends after the offset of two clocks."""
    return quantile([abs(one - offset) for one in apart], 0.95)


def most_skew(lengths: Sequence[float]) -> float:
    """Return the largest skew (ns) at which clocks count as aligned, from the lengths of the collectives in ns."""
    return max(_NOISE_NS, _OF_MEDIAN * quantile(lengths, 0.5)) if lengths else _NOISE_NS
