"""Estimate how long a capture with Nsight Compute takes: start-up, replays, and launches that ncu skips or passes by.

    seconds = startup_s + skipped × skip_s + passed × pass_by_s
              + Σ over replayed launches of passes × (pass_s + time × restore)

`restore` is the time to save and restore memory in each pass, in multiples of the kernel's own time. ncu *passes a
launch by* if the filters select it, it comes before the last replayed launch, and its invocation number is not
selected. With more than one pass, ncu takes 0.09 to 0.11 s for such a launch; with one pass, almost nothing. Examples:
6 of 120 launches of a CUDA program with 0.6 GB of memory took 16 s, 71 of the first 733 launches of a Qwen3-like model
118 s. All defaults were measured on an H200 with ncu 2025.3. If ncu attaches and selects nothing, a program that
imports PyTorch and transformers takes 16.6 s. 740 launches take 34 s in one pass and 270 s in twelve.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.formats.spans import quantile

PASSES = 12  # of the catalogue's default metrics
LEAST_FOR_REPLAYS = 0.5  # of the budget goes to replays, however long the program takes to start
LEAST_LEARNT = 20  # replayed launches: fewer do not tell the time of a pass
# How much longer than expected replays may take. The captures recorded on H200s took 0.89 to 1.20 times what `Cost()`
# expects (tests/cpu/data/counting/recorded.csv): the same program took 0.31 s a launch on one machine and 0.41 s
# on another.
MARGIN = 1.2
LEAST_RUNS = 3  # earlier captures on this machine: from so many on, their spread replaces MARGIN
LEAST_MARGIN = 1.05


@dataclass(frozen=True)
class Cost:
    """The coefficients of the estimate. Units: seconds, except `restore`, `passes` and `margin`.

    `runs`: number of earlier captures on this machine that they come from.
    """

    startup_s: float = 16.6
    pass_s: float = 0.0285
    restore: float = 3.0
    skip_s: float = 20e-6
    pass_by_s: float = 0.1
    passes: int = PASSES
    runs: int = 0
    margin: float = MARGIN

    def of_launches(self, time_ns: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the seconds to replay each launch. Shape: durations in ns (launches,) → (launches,)."""
        return self.passes * (self.pass_s + np.asarray(time_ns, np.float64) * 1e-9 * self.restore)

    @property
    def passing_s(self) -> float:
        """Return the seconds for each launch that ncu passes by."""
        return self.pass_by_s if self.passes > 1 else self.skip_s

    def within(self, budget_s: float) -> float:
        """Return the seconds to plan for. Replays that take `margin` times as long then still fit the budget."""
        return min(self.startup_s, budget_s) + max(budget_s - self.startup_s, 0.0) / self.margin

    def for_replays(self, budget_s: float, launches: int) -> float:
        """Return the seconds of a budget that remain for replays."""
        return max(budget_s - self.startup_s - launches * self.skip_s, LEAST_FOR_REPLAYS * budget_s)


def fitted(earlier: list[dict[str, Any]], startup_s: float | None = None) -> Cost:
    """Return the coefficients, fitted to the `earlier` captures on this machine (`runs` of COSTS).

    The median of their passes replaces the default time of a pass. From LEAST_RUNS captures on, their spread replaces
    the margin. `startup_s`: how long this program took with another tool attached, None if unknown.
    """
    cost = Cost() if startup_s is None else replace(Cost(), startup_s=max(startup_s, 1.0))
    timed = [run["pass_s"] for run in earlier if run.get("pass_s")]
    if timed:
        usual = quantile(timed, 0.5)
        cost = replace(cost, pass_s=usual, passes=earlier[-1]["passes"], runs=len(timed))
        if len(timed) >= LEAST_RUNS:
            cost = replace(cost, margin=max(max(timed) / usual, LEAST_MARGIN))
    return cost


def learnt(selection: dict[str, Any], passes: list[int], seconds: float) -> dict[str, Any]:
    """Return what a capture with the plan `selection` (SELECTION) took, as a run of COSTS.

    `passes`: passes of each replayed launch; `seconds`: time of the whole capture. The time of a pass is the time
    without start-up over all passes. It is None if ncu passed launches by or replayed fewer than LEAST_LEARNT.
    """
    spent = seconds - selection["startup_s"]
    enough = len(passes) >= LEAST_LEARNT and spent > 0 and not selection["invocations"]
    pass_s = spent / sum(passes) if enough else None
    return {"passes": max(passes, default=0), "replayed": len(passes), "seconds": seconds, "pass_s": pass_s}
