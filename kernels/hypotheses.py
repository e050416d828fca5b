"""Hold a hypothesis as data, and write its sentence, so that README, report and `.cu` header agree.

This module imports no other module of ours, and needs neither torch nor a GPU.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TIME = "bench_time_p50_ns"
FLOOR = "floor"  # as `than`: the time of the minimum bytes at copy speed; of a compute-bound op also of its operations
DTYPES = ("float32", "bfloat16")
SHORT_DTYPES = {
    "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64", "fp8": "float8_e4m3fn"
}  # fmt: skip
MOST_BYTES = 1.1  # moved over predicted bytes, at most: the rule for all variants
# the words for a metric, as in the tables of the ladder
WORDS = {
    TIME: "time",
    "achieved_flop_per_s": "throughput",
    "dram_read_bytes": "DRAM read",
    "fma_active_frac": "FMA pipe busy",
    "global_load_inst": "global load instructions",
    "local_bytes": "local memory",
    "measured_over_minimum": "DRAM bytes over the minimum",
    "measured_over_predicted": "DRAM bytes over predicted",
    "sectors_per_request_load": "sectors per load request",
    "stall_barrier_frac": "barrier stalls",
    "stall_dispatch_stall_frac": "dispatch stalls",
    "tensor_active_frac": "tensor pipe busy",
    "top_stall": "top stall",
}
# The range of a metric in any measurement, by the end of its name.
RANGES = {"frac": (0.0, 1.0), "sectors_per_request_load": (1.0, 32.0)}
COUNTS = ("local_bytes", "global_load_inst", "dram_read_bytes")
LEAST_COUNT = 1e3  # at a ladder's shape, any count above zero reaches a lower bound of so much


def _kind(metric: str) -> str:
    return "frac" if metric.endswith("_frac") else metric


@dataclass(frozen=True)
class Hypothesis:
    """A bound that a measurement can break: `metric`, a column of ladder.csv, lies in [low, high] or is `equals`.

    `refuted` holds wider ends, if only a value beyond them refutes the hypothesis. A value between `low`/`high` and
    these ends is neither reached nor refuted.
    With `than`, the bound is on the ratio to the metric of another variant of the op; TIME over FLOOR is the time over
    the floor's.
    `dtypes` are the dtypes that the hypothesis covers. `shape` names one of the op's shapes; "" is its bench shape. The
    ladder also takes counters at that shape, to explain the result, unless `counters` is False: for a bound on many
    shapes, the benchmark's times are enough. With `least_bytes`, the bound also covers every other registered shape
    that moves at least so many bytes. A hypothesis about bytes replaces the rule for all variants, that one moves at
    most MOST_BYTES times its `bytes_model`.
    """

    metric: str
    than: str = ""
    low: float = 0.0
    high: float = math.inf
    equals: str = ""
    dtypes: tuple[str, ...] = DTYPES
    shape: str = ""
    least_bytes: float = 0.0
    counters: bool = True
    refuted: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.metric not in WORDS:
            raise ValueError(f"hypothesis about {self.metric!r}: no words for it, known: {', '.join(WORDS)}")
        if self.low == 0.0 and self.high == math.inf and not self.equals:
            raise ValueError(f"hypothesis about {self.metric}: nothing would refute it without low, high or equals")
        if why := self.cannot_fail():
            raise ValueError(f"hypothesis about {self.metric}: {why}")
        if self.refuted and not self.refuted[0] <= self.low <= self.high <= self.refuted[1]:
            raise ValueError(f"hypothesis about {self.metric}: what refutes it must lie beyond what is expected")

    def cannot_fail(self) -> str:
        """Return the reason why no measurement can be outside the bound, or "" if one can."""
        if self.equals:
            return ""
        lowest, highest = (0.0, math.inf) if self.than else RANGES.get(_kind(self.metric), (0.0, math.inf))
        if self.low <= lowest and self.high >= highest:
            return f"it is always between {lowest:g} and {highest:g}"
        if not self.than and self.high == math.inf and self.low <= LEAST_COUNT and self.metric in COUNTS:
            return f"a count of {self.low:g} or more says no more than that there is any"
        return ""

    @property
    def is_about_bytes(self) -> bool:
        """Return whether the hypothesis replaces the rule about bytes for all variants."""
        return self.metric.startswith("measured_over_")

    @property
    def bound(self) -> str:
        """Return the bound in words, without dtypes and shapes: `time at most 0.95 times v05_wgmma's`."""
        return self._said + self._refutation

    @property
    def _refutation(self) -> str:
        if self.refuted is None:
            return ""
        unit, behind = (1.0, "") if self.than else _unit(self.metric, min(self.refuted[1], self.low or math.inf))
        low, high = (f"{end / unit:.4g}{behind}" for end in self.refuted)
        ends = [
            *([f"below {low}"] if self.refuted[0] else []),
            *([f"above {high}"] if self.refuted[1] < math.inf else []),
        ]
        return f" (refuted {' or '.join(ends)})"

    @property
    def _said(self) -> str:
        words = WORDS[self.metric]
        if self.equals:
            return f"{words} {self.equals}"
        if not self.than:
            return f"{words} {_span(self.low, self.high, *_unit(self.metric, min(self.high, self.low or math.inf)))}"
        other = "the floor's" if self.than == FLOOR else f"{self.than}'s"
        span = _span(self.low, self.high, 1.0, " times")
        return f"{words} {span} {other}".replace(" 1 times ", " ")


def _unit(metric: str, value: float) -> tuple[float, str]:
    """Return the divisor of a metric's value, and the unit after it."""
    if metric.endswith("_frac"):
        return 0.01, " %"
    if metric.endswith("_flop_per_s"):
        return 1e12, " TFLOP/s"
    if metric.endswith("_bytes"):
        if value >= 1e9:
            return 1e9, " GB"
        return (1e6, " MB") if value >= 1e6 else (1.0, " bytes" if value > 1 else " byte")
    return 1.0, ""


def _span(low: float, high: float, unit: float, behind: str) -> str:
    """Return the interval with four digits, such as `at most 0.95`, `at least 20` or `0.97 to 1.03`."""
    ends = [f"{end / unit:.4g}" for end in (low, high) if end not in (0.0, math.inf)]
    if len(ends) == 2:
        return f"{ends[0]} to {ends[1]}{behind}"
    return f"{'at most' if low == 0.0 else 'at least'} {ends[0]}{behind}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def sentence(hypotheses: Iterable[Hypothesis], dtypes: Sequence[str], bench_shape: str) -> str:
    """Return a variant's hypotheses on these `dtypes` in words: one clause a bound, with its dtypes and shapes.

    A bound on the op's bench shape alone names no shape. Without hypotheses, the sentence is the rule for all variants.
    """
    places: dict[tuple[str, str], list[str]] = {}
    for said in hypotheses:
        taken = [short for short, name in SHORT_DTYPES.items() if name in said.dtypes and name in dtypes]
        within = "" if len(taken) == len(dtypes) else f" in {_listed(taken)}"
        shapes = places.setdefault((said.bound, within), [])
        shapes.append(said.shape or bench_shape)
        if said.least_bytes:
            shapes.append(f"every other shape that moves {said.least_bytes / 1e6:.4g} MB or more")
    clauses = [
        f"{bound}{within}" + ("" if shapes == [bench_shape] else f" at {_listed(shapes)}")
        for (bound, within), shapes in places.items()
    ]
    return "; ".join(clauses or [f"{WORDS['measured_over_predicted']} at most {MOST_BYTES:.4g}"])
