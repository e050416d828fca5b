"""What a capture with Nsight Compute costs: start-up, replays by pass, launches that it looks at and leaves alone.

    seconds = startup_s + skipped × skip_s + passed × pass_by_s
              + Σ over replayed launches of passes × (pass_s + time × restore)

`restore` is what saving and restoring memory adds to each pass, in multiples of the kernel's own time. A launch is
passed by where it is inside the filters, comes before the last one that is replayed, and its number is not asked for:
with more than one pass ncu takes 0.09 to 0.11 s for it (6 of 120 launches of a CUDA program with 0.6 GB of memory took
16 s, 71 of the first 733 of a Qwen3-like model 118 s), with one pass next to nothing. The other defaults were measured
on an H200 with ncu 2025.3, too: an ncu that attaches and selects nothing takes 16.6 s with a program that imports
PyTorch and transformers; 740 launches take 34 s in one pass and 270 s in twelve.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.formats.spans import quantile

PASSES = 12  # of the catalogue's default metrics
LEAST_FOR_REPLAYS = 0.5  # of the budget, however long the program takes to start
LEAST_LEARNT = 20  # replayed launches from which the time of a pass can be told
# How much longer than expected replays may take. The captures recorded on H200s took 0.89 to 1.20 times what `Cost()`
# expects (tests/cpu/data/counting/recorded.csv): the same program took 0.31 s a launch on one machine and 0.41 s
# on another.
MARGIN = 1.2
LEAST_RUNS = 3  # earlier captures on this machine from which their own spread is the margin
LEAST_MARGIN = 1.05


@dataclass(frozen=True)
class Cost:
    """The coefficients, in seconds; `runs` says from how many earlier captures on this machine they are."""

    startup_s: float = 16.6
    pass_s: float = 0.0285
    restore: float = 3.0
    skip_s: float = 20e-6
    pass_by_s: float = 0.1
    passes: int = PASSES
    runs: int = 0
    margin: float = MARGIN

    def of_launches(self, time_ns: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Seconds that the replay of each launch takes. Shape: (n,) durations in ns → (n,)."""
        return self.passes * (self.pass_s + np.asarray(time_ns, np.float64) * 1e-9 * self.restore)

    @property
    def passing_s(self) -> float:
        """Seconds for each launch that is passed by."""
        return self.pass_by_s if self.passes > 1 else self.skip_s

    def within(self, budget_s: float) -> float:
        """Seconds to plan for, so that replays which take `margin` times as long still end within the budget."""
        return min(self.startup_s, budget_s) + max(budget_s - self.startup_s, 0.0) / self.margin

    def for_replays(self, budget_s: float, launches: int) -> float:
        """Seconds of a budget that are left for replays."""
        return max(budget_s - self.startup_s - launches * self.skip_s, LEAST_FOR_REPLAYS * budget_s)


def fitted(earlier: list[dict[str, Any]], startup_s: float | None = None) -> Cost:
    """The defaults, with what earlier captures on this machine took (`runs` of COSTS): their median, and their spread.

    `startup_s` is how long this very program took with another tool attached, where that is known.
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
    """What a capture that carried out `selection` (SELECTION) teaches: a run of COSTS.

    `passes` has one number for each launch that was replayed; the time of a pass is what the start-up leaves, where no
    launch was passed by.
    """
    spent = seconds - selection["startup_s"]
    enough = len(passes) >= LEAST_LEARNT and spent > 0 and not selection["invocations"]
    pass_s = spent / sum(passes) if enough else None
    return {"passes": max(passes, default=0), "replayed": len(passes), "seconds": seconds, "pass_s": pass_s}
