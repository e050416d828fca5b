"""Decide which rules apply to which kernels, and which of them explains most of the time."""

import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.diagnosis import kernel_rules, likelihood, won
from analysis.diagnosis.evidence import PLACED, Bools, Evidence, Floats, Roofs
from analysis.diagnosis.kernel_rules.quantities import NOWHERE
from analysis.diagnosis.kernel_rules.rule import DEFAULT, FULL, Rule
from analysis.diagnosis.limits import Limits
from analysis.diagnosis.vocabulary import LAUNCH_LATENCY, NONE_AT_ROOF, words
from analysis.formats.report import Saving

Ints = npt.NDArray[np.int64]
ROOF, LAUNCH = -1, -2  # verdicts without a rule
AT_ROOF = 0.9  # a kernel within a tenth of a roof has nothing to gain
FEW_LAUNCHES = 2.5  # times an empty kernel: a launch and the latency of one access take this long
SURE_OF_CLEAN = 0.9
# Counters tell that DRAM is full, not that all its bytes are needed: 6 of the 9 kernels of the three sets of specimens
# that get this verdict have nothing to win, and by the rule of succession 7 of 11 would.
SURE_AT_DRAM = 0.65
LEAST_GAIN = 0.05  # of a kernel's time: less is noise in any capture
# Models of cures that remove work: near a roof, they have to lower the bound.
REMOVES = ("bytes", "issue slots", "roof")
NEEDED = ("duration_ns", "inst_issued", "dram_read_bytes", "dram_write_bytes", "stall_long_scoreboard",
          "occupancy_achieved_frac")  # fmt: skip
IMPOSSIBLE = 1.15  # of a unit's peak: counters of several passes differ by less than this
FASTEST = 1.5  # times the clock behind the datasheet's FLOP/s: no boost of any board is higher
# Chosen among some 300 combinations after the first looks at kernels_7 to kernels_11, replayed with weights of earlier
# sets and the rules of the day: 224 first causes (213) of 261 with the default metrics, 189 (181) of 212 with all.
UNSEEN = 0.03  # the likelihood of a cause that a rule finds, though no known kernel of this cause looks like it
TRUST = 0.6  # the power of a rule's odds: rules and weights see the same counters
FILLED = 0.75  # of a roof: a cure that removes work has to lower it
AT_ROOF_ODDS = 2.0  # a kernel at a roof is so much likelier to have nothing
MOST_NOTHING = 0.62  # likelihood that nothing can be won, above which no cause is named
STRONG = 0.7  # a rule as sure as this speaks nevertheless
LEAST_SURE = 0.1  # below, 59 of 66 such first causes were of fixed forms of known kernels
SURER = 2.0  # likelihoods are sober: this power, for a sum of 1, makes them right about as often as they say


@dataclass(frozen=True)
class Verdict:
    """One cause of one kernel.

    `gain` is the share of its time that the cure saves if the floors that remain are reached, `most` the share that no
    cure can exceed; `cells` are its evidence.
    `weighed`: only all counters together speak for it, and no rule. `closed`: nobody edits the kernel.
    """

    rank: int
    defect: str
    sure: float
    gain: float
    refuted: str = ""
    cells: tuple[tuple[str, float], ...] = ()
    tier: str = DEFAULT
    weighed: bool = False
    closed: bool = False
    most: float = 1.0

    @property
    def kind(self) -> str:
        """Return which of won.toml's parts of the bound counts."""
        return "library" if self.closed else "weighed" if self.weighed else "other"

    @property
    def saves(self) -> Saving:
        """Return which share of its time built fixes of the cause save."""
        return won.fitted().of(self.gain, self.kind, self.most)


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on each row of `evidence`; `why` is the reason if a row cannot be judged, else ''.

    The arrays have one entry per verdict, sorted by row and rank: `rows`, `rule` (index into `rules`, or ROOF, LAUNCH),
    `rank`, `sure`, `gain`, `most`, `weighed` (only all counters together speak for the cause, not its rule). `able`
    marks the rules whose metrics are known. Shape: (rules, rows).
    """

    evidence: Evidence
    rules: tuple[Rule, ...]
    why: npt.NDArray[np.object_]
    rows: Ints
    rule: Ints
    rank: Ints
    sure: Floats
    gain: Floats
    most: Floats
    weighed: Bools
    able: Bools

    def unsettled(self, row: int) -> tuple[str, ...]:
        """Return causes that full sections would settle: those that no rule can judge yet, or that a better rule could.

        If full sections were collected, a metric that they lack does not apply to the kernel, such as conflicts without
        shared loads.
        """
        able = [bool(one) for one in self.able[:, row]]
        whole = any(known for rule, known in zip(self.rules, able, strict=True) if rule.tier == FULL)
        better = {rule.defect for rule, known in zip(self.rules, able, strict=True) if not (known or whole)}
        settled = {rule.defect for rule, known in zip(self.rules, able, strict=True) if known}
        return tuple(dict.fromkeys(rule.defect for rule in self.rules if rule.defect not in settled - better))

    def of(self, row: int) -> list[Verdict]:
        """Return the verdicts of one row, the strongest first."""
        first, last = np.searchsorted(self.rows, (row, row + 1))
        return [self._verdict(place) for place in range(first, last)]

    def _verdict(self, place: int) -> Verdict:
        row, rule = int(self.rows[place]), int(self.rule[place])
        numbers = int(self.rank[place]), float(self.sure[place]), float(self.gain[place])
        if rule == LAUNCH:
            return Verdict(
                numbers[0], LAUNCH_LATENCY, *numbers[1:], cells=(("duration_ns", float(self.evidence.time[row])),)
            )
        if rule == ROOF:
            roof = f"{self.evidence.nearest[row]} roof_frac"
            return Verdict(numbers[0], NONE_AT_ROOF, *numbers[1:], cells=((roof, float(self.evidence.roof[row])),))
        by = self.rules[rule]
        derived = PLACED if self.evidence.placed[row] else ()
        cells = tuple(
            (f"{name} (derived)" if name in derived else name, float(self.evidence[name][row])) for name in by.cited
        )
        if self.weighed[place]:
            cells = tuple(likelihood.telling(self.evidence, row, by.defect))
        weighed, closed = bool(self.weighed[place]), bool(self.evidence.closed[row])
        most = float(self.most[place])
        return Verdict(numbers[0], by.defect, *numbers[1:], by.wrong_if, cells, by.tier, weighed, closed, most)


def unfit(e: Evidence) -> npt.NDArray[np.object_]:
    """Return the reason that no rule may judge a kernel, '' if rules may."""
    why = np.full(len(e.rows), "", dtype=object)
    missing = np.stack([np.isnan(e[name]) for name in NEEDED])
    for place in np.flatnonzero(missing.any(axis=0)):
        lacking = [name for name, gone in zip(NEEDED, missing[:, place], strict=True) if gone]
        why[place] = f"not collected: {', '.join(lacking)}"
    for name in NEEDED:
        why[(e[name] < 0) & (why == "")] = f"contradictory counters: {name} is below 0"
    impossible = {name: busy > IMPOSSIBLE for name, busy in e.busy.items() if name != "blocks"}
    # lanes at different places of an array use a word of each sector; L1 serves four sectors of a line at once
    impossible["l1"] &= e.busy["l1"] * (1 - 0.75 * e.filled("local_bytes") / e["l1_bytes"]) > IMPOSSIBLE
    impossible["occupancy"] = e["occupancy_achieved_frac"] > IMPOSSIBLE
    # a warp is in one state at a time, so all states of all instructions are the cycles of the warps that fit
    stalled = e.warp_time * e["inst_issued"] / (e.limits.max_warps * e.cycles * e.limits.sm_count)
    impossible["sum of stall_*"] = stalled > IMPOSSIBLE
    impossible["sm_clock_hz"] = e.clock > FASTEST * e.limits.sm_clock_hz
    for name, broken in impossible.items():
        why[broken & (why == "")] = f"contradictory counters: {name} is above what the GPU can do"
    why[(why == "") & ~(e.time > 0)] = "contradictory counters: the kernel takes no time"
    return why


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return every rule of a module of kernel_rules, in the order of the modules' names."""
    modules = (
        import_module(f"{kernel_rules.__name__}.{one.name}") for one in pkgutil.iter_modules(kernel_rules.__path__)
    )
    return tuple(rule for module in modules for rule in getattr(module, "RULES", ()))


def judgeable(rule: Rule, e: Evidence) -> Bools:
    """Mark the kernels for which all metrics of the rule were collected."""
    return np.asarray(~np.any(np.stack([np.isnan(e[name]) for name in rule.needs]), axis=0))


def judge(rows: pd.DataFrame, limits: Limits, rules: Iterable[Rule] | None = None) -> Verdicts:
    """Judge the mean launches `rows` (see Evidence). Rules that are given judge alone, without likelihoods."""
    e, weigh = Evidence(rows, limits), rules is None
    rules = all_rules() if rules is None else tuple(rules)
    with np.errstate(all="ignore"):
        why = unfit(e)
        fit = why == ""
        tiny = fit & (e.time < FEW_LAUNCHES * limits.empty_kernel_ns)
        able = np.stack([judgeable(rule, e) for rule in rules])
        fired, may, gain = _fired(e, rules, fit & ~tiny, able)
        roofs = Roofs(e)
        most = np.stack([1 - rule.after(roofs) / e.time for rule in rules])
        own = np.asarray([bool(words(rule.defect)["closed"]) for rule in rules])
        told = own[:, None] | ~e.closed  # of a kernel that nobody edits, only causes that its caller can act on
        by_rule = np.broadcast_to(np.asarray([rule.sure for rule in rules])[:, None], fired.shape)
        sure = share = by_rule
        weighed = np.zeros(fired.shape, bool)
        if weigh and len(rows):
            share, sure, nothing, rest = _shares(e, rules, fired, may & told)
            fired &= ((nothing <= MOST_NOTHING) | (by_rule >= STRONG)) & (sure >= LEAST_SURE)
            weighed = may & told & ~fired & (share >= share.max(axis=0)) & (rest <= MOST_NOTHING)
    fired = _one_each((fired | weighed) & told, weighed, gain, rules)
    none = fit & ~tiny & ~fired.any(axis=0) & (e.roof >= AT_ROOF)
    place, row = np.nonzero(fired)
    clean = [np.flatnonzero(none), np.flatnonzero(tiny)]
    certain = np.where(e.nearest == "dram", SURE_AT_DRAM, SURE_OF_CLEAN)[clean[0]]
    count = sum(len(one) for one in clean)
    found = {
        "rows": np.concatenate([row, *clean]),
        "rule": np.concatenate([place, np.full(len(clean[0]), ROOF), np.full(len(clean[1]), LAUNCH)]),
        "sure": np.concatenate([sure[place, row], certain, np.full(len(clean[1]), SURE_OF_CLEAN)]),
        "share": np.concatenate([share[place, row], np.ones(count)]),
        "gain": np.concatenate([gain[place, row], np.zeros(count)]),
        "most": np.concatenate([np.maximum(most, gain)[place, row], np.zeros(count)]),
        "weighed": np.concatenate([weighed[place, row], np.zeros(count, bool)]),
    }
    order = np.lexsort((-found.pop("share") * (1 if weigh else found["gain"]), found["rows"]))
    found = {name: values[order] for name, values in found.items()}
    first = np.searchsorted(found["rows"], found["rows"])
    return Verdicts(e, rules, why, rank=np.arange(len(order)) - first + 1, able=able, **found)


def _shares(e: Evidence, rules: tuple[Rule, ...], fired: Bools, may: Bools) -> tuple[Floats, Floats, Floats, Floats]:
    """Return how likely each rule's cause is and how sure, shape (rules, rows), how likely nothing is, and the rest.

    A rule that fires multiplies the odds of its cause by its own. The rest counts causes that counters refute, or whose
    cure saves nothing, or for which no rule states a bound.
    """
    chances = likelihood.chances(e)
    odds = np.asarray([1 / (1 - rule.sure) for rule in rules])[:, None] ** TRUST * fired
    causes = list(dict.fromkeys([likelihood.NOTHING, *chances, *(rule.defect for rule in rules)]))
    own = np.asarray([causes.index(rule.defect) for rule in rules])
    found, possible = np.zeros((len(causes), len(e.rows))), np.zeros((len(causes), len(e.rows)), bool)
    np.maximum.at(found, own, odds)
    np.logical_or.at(possible, own, may)
    share = np.stack([chances[one].to_numpy() if one in chances else np.zeros(len(e.rows)) for one in causes])
    share = np.where(found > 0, (share + UNSEEN) * found, share + UNSEEN / len(causes))
    share[0] *= np.where(e.roof >= AT_ROOF, AT_ROOF_ODDS, 1)
    share /= share.sum(axis=0)
    told = share * possible  # refuting one cause makes no other one likelier
    power = told**SURER
    return told[own], (power / (power.sum(axis=0) + share[0] ** SURER))[own], share[0], 1 - told.sum(axis=0)


def _one_each(fired: Bools, weighed: Bools, gain: Floats, rules: tuple[Rule, ...]) -> Bools:
    """Keep one of several rules for one defect: the surest of those that found it, then the largest gain."""
    sure = np.where(weighed, 0, np.asarray([rule.sure for rule in rules])[:, None])
    score = np.where(fired, sure + gain * 1e-3, -np.inf)
    for defect in {rule.defect for rule in rules}:
        own = np.flatnonzero([rule.defect == defect for rule in rules])
        fired[own] &= np.arange(len(own))[:, None] == np.argmax(score[own], axis=0)
    return fired


def _fired(e: Evidence, rules: tuple[Rule, ...], fit: Bools, able: Bools) -> tuple[Bools, Bools, Floats]:
    """Return the rules that fire for each kernel, those that could, and the largest share of time that the cure saves.

    A rule could fire if its metrics are known, nothing refutes it, and its cure saves something. Shape: (rules, rows).
    """
    settled: dict[str, Bools] = {}
    for rule, known in zip(rules, able, strict=True):
        if rule.better:
            settled[rule.defect] = settled.get(rule.defect, np.zeros(len(known), bool)) | known
    fires, may, gains, least = [], [], [], e.after()
    for rule, known in zip(rules, able, strict=True):
        asked = rule.better | ~settled.get(rule.defect, np.zeros(len(known), bool))
        at_roof = (e.roof >= AT_ROOF) & ~np.isin(e.nearest, rule.cuts)
        after = rule.after(e)
        gain = np.nan_to_num(1 - after / e.time)
        at_roof |= (rule.model in REMOVES) & (e.roof >= FILLED) & (after > (1 - LEAST_GAIN) * least)
        tests = (rule.refutes, NOWHERE.get(rule.defect))
        wrong = np.any([np.zeros(len(known), bool), *(test(e) for test in tests if test)], axis=0)
        may.append(fit & known & ~wrong & ~at_roof & (gain >= LEAST_GAIN))
        fires.append(may[-1] & asked & rule.holds(e))
        gains.append(gain)
    return np.stack(fires), np.stack(may), np.stack(gains)
