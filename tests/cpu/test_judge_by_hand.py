"""Which rules may judge a kernel, which verdict comes first, and the command that captures it again; by hand."""

from collections.abc import Callable
from math import exp, nan
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.capture.model import Capture
from analysis.diagnosis import judge as judging
from analysis.diagnosis import likelihood
from analysis.diagnosis.again import PROGRAM, Program, captured_program, program_of, recapture
from analysis.diagnosis.evidence import Evidence, Floats, Roofs
from analysis.diagnosis.judge import Verdict, Verdicts, judge
from analysis.diagnosis.kernel_rules.rule import FULL, Rule
from analysis.diagnosis.limits import find_limits
from analysis.formats.report import kinds
from analysis.hardware.devices import find_device
from tests.by_hand import op
from tests.declared import facts_of

H100 = find_limits(find_device("NVIDIA H100 80GB HBM3"), 132)
assert H100 is not None
LIMITS = H100
EMPTY_NS = 1500.0  # of limits.toml
TIME = 100_000.0


def rows(*given: dict[str, Any]) -> pd.DataFrame:
    """Return launches of 100 µs that do nothing, with what differs."""
    usual = {"grid": "132x1x1", "block": "256x1x1", "duration_ns": TIME, "inst_issued": 0.0, "dram_read_bytes": 0.0,
             "dram_write_bytes": 0.0, "l2_write_bytes": 0.0, "stall_long_scoreboard": 1.0,
             "occupancy_achieved_frac": 0.5}  # fmt: skip
    return pd.DataFrame([usual | one for one in given])


def reads(share: float) -> dict[str, float]:
    """Return a load that takes this share of 100 µs without an empty kernel's 1.5 µs from DRAM."""
    return {"dram_read_bytes": share * (TIME - EMPTY_NS) * 1e-9 * LIMITS.dram_read_bytes_per_s}


def loads(share: float, local: float = 0.0) -> dict[str, float]:
    """Return loads that take this share of the time from L1 at 1 GHz, a part of them from local memory."""
    l1_bytes = share * (TIME - EMPTY_NS) * LIMITS.l1_bytes * 132
    return {"l1_bytes": l1_bytes, "local_bytes": local * l1_bytes, "sm_clock_hz": 1e9}


def computes(share: float) -> dict[str, float]:
    """Return FP32 operations, two an instruction, that take this share of the lanes' time at 1 GHz."""
    lanes = LIMITS.fp32_lanes * 132
    return {"flops_fp32": share * (TIME - EMPTY_NS) * lanes * 2, "sm_clock_hz": 1e9}


def always(e: Evidence) -> Any:
    return np.ones(len(e.rows), bool)


def rule(defect: str, gain: float = 0.5, sure: float = 0.8, **more: Any) -> Rule:
    """Return a rule that fires always and saves a share of the time."""
    given = {"needs": ("duration_ns",), "holds": always, "after": lambda e: e.time * (1 - gain)} | more
    return Rule(defect, sure=sure, model="bytes", because="", wrong_if="it is cold", **given)


def told(found: Verdicts, row: int = 0) -> list[str]:
    return [one.defect for one in found.of(row)]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, ""),
        (
            {"inst_issued": None, "dram_read_bytes": None},
            "not collected: inst_issued, dram_read_bytes",
        ),
        ({"inst_issued": None, "dram_write_bytes": -1.0}, "not collected: inst_issued"),
        ({"dram_read_bytes": -1.0, "dram_write_bytes": -1.0}, "contradictory counters: dram_read_bytes is below 0"),
        ({"duration_ns": -1.0}, "contradictory counters: duration_ns is below 0"),
        ({"occupancy_achieved_frac": 1.15}, ""),
        ({"occupancy_achieved_frac": 1.16}, "contradictory counters: occupancy is above what the GPU can do"),
        (reads(1.149), ""),
        (reads(1.151), "contradictory counters: dram is above what the GPU can do"),
        (
            reads(1.151) | {"occupancy_achieved_frac": 2.0},
            "contradictory counters: dram is above what the GPU can do",
        ),
        (loads(1.149), ""),
        (loads(1.151), "contradictory counters: l1 is above what the GPU can do"),
        (loads(1.151, local=0.1), ""),  # of which a part reads arrays of local memory
        (loads(4.0, local=0.9), "contradictory counters: l1 is above what the GPU can do"),
        (
            {"sm_clock_hz": 1.51 * LIMITS.sm_clock_hz},
            "contradictory counters: sm_clock_hz is above what the GPU can do",
        ),
        ({"sm_clock_hz": 1.49 * LIMITS.sm_clock_hz}, ""),
        # 64 warps on 132 SMs for 100,000 cycles, over 10 million instructions: 84.48 cycles each, of which one issues
        ({"sm_clock_hz": 1e9, "inst_issued": 1e7, "stall_long_scoreboard": 96.1}, ""),
        (
            {"sm_clock_hz": 1e9, "inst_issued": 1e7, "stall_long_scoreboard": 96.2},
            "contradictory counters: sum of stall_* is above what the GPU can do",
        ),
        ({"duration_ns": 0.0}, "contradictory counters: the kernel takes no time"),
        ({"grid": "900000000x1x1"}, ""),  # blocks may start faster than was measured
    ],
)
def test_a_kernel_without_sound_counters_is_not_judged(given: dict[str, Any], why: str) -> None:
    found = judge(rows({}, given), LIMITS, [rule("layout")])
    assert found.why.tolist() == ["", why]
    assert told(found, 0) == ["layout"]
    assert bool(told(found, 1)) is not bool(why)


def test_a_kernel_of_two_and_a_half_empty_ones_is_more_than_a_launch() -> None:
    found = judge(rows({"duration_ns": 3749.0}, {"duration_ns": 3750.0}), LIMITS, [rule("layout")])
    assert found.of(0) == [Verdict(1, "launch_latency", 0.9, 0.0, cells=(("duration_ns", 3749.0),))]
    assert told(found, 1) == ["layout"]


@pytest.mark.parametrize(
    ("given", "cuts", "verdict"),
    [
        (reads(0.91), (), Verdict(1, "none_at_roof", 0.65, 0.0, cells=(("dram roof_frac", pytest.approx(0.91)),))),
        (computes(0.91), (), Verdict(1, "none_at_roof", 0.9, 0.0, cells=(("fp32 roof_frac", pytest.approx(0.91)),))),
        (reads(0.89), (), None),
        (reads(0.91), ("dram",), None),  # a rule that reduces the load of the roof
        (reads(0.91), ("fp32",), Verdict(1, "none_at_roof", 0.65, 0.0, cells=(("dram roof_frac", pytest.approx(0.91)),))),
    ],
)  # fmt: skip
def test_at_nine_tenths_of_a_roof_only_less_work_helps(
    given: dict[str, Any], cuts: tuple[str, ...], verdict: Verdict | None
) -> None:
    found = judge(rows(given), LIMITS, [rule("layout", cuts=cuts)]).of(0)
    cause = Verdict(1, "layout", 0.8, 0.5, "it is cold", (("duration_ns", TIME),), most=0.5)
    assert found == [verdict or cause]


@pytest.mark.parametrize(
    ("after", "left"),
    [
        (lambda e: e.after(), 0.4),  # the bytes remain
        (lambda e: e.without(0.9), 0.4),
        (lambda e: e.spread(0.9), 0.4),
        (lambda e: e.after(dram=e.floors["dram"] / 2), 0.0),  # how many bytes go is a guess
        (lambda e: e.after(dram=e.floors["dram"] * 2), 0.4),
    ],
)
def test_no_cure_passes_the_roofs_that_it_leaves(after: Callable[[Evidence], Floats], left: float) -> None:
    least = after(Roofs(Evidence(rows(reads(0.4)), LIMITS)))
    assert least == pytest.approx(left * (TIME - EMPTY_NS) + EMPTY_NS)
    (told,) = judge(rows(reads(0.4)), LIMITS, [rule("layout", after=after)]).of(0)[:1] or [None]
    assert told is None or (told.saves.high or 0.0) <= 1 - float(least[0]) / TIME


def test_a_bound_belongs_to_what_is_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "LEAST_GAIN", 0.5)
    assert told(judge(rows({}), LIMITS, [rule("layout", gain=0.5)])) == ["layout"]
    exact = float(Evidence(rows(reads(0.7)), LIMITS).roof[0])
    monkeypatch.setattr(judging, "IMPOSSIBLE", exact)
    monkeypatch.setattr(judging, "AT_ROOF", exact)
    assert told(judge(rows(reads(0.7)), LIMITS, [rule("layout")])) == ["none_at_roof"]


def test_a_kernel_at_its_roof_that_a_rule_explains_is_not_clean() -> None:
    found = judge(rows(reads(0.91)), LIMITS, [rule("layout", cuts=("dram",)), rule("fuse")])
    assert told(found) == ["layout"]


def test_below_a_roof_no_rule_is_no_verdict() -> None:
    found = judge(rows(reads(0.89), reads(0.91)), LIMITS, [rule("layout", holds=lambda e: ~always(e))])
    assert (told(found, 0), told(found, 1)) == ([], ["none_at_roof"])


@pytest.mark.parametrize(
    ("one", "fires"),
    [
        (rule("layout", gain=0.05), True),
        (rule("layout", gain=0.049), False),
        (rule("layout", after=lambda e: e.time * np.nan), False),
        (rule("layout", refutes=always), False),
        (rule("layout", refutes=lambda e: ~always(e)), True),
        (rule("layout", needs=("duration_ns", "l1_bytes")), False),  # a metric that was not collected
    ],
)
def test_a_rule_fires_if_it_wins_a_twentieth_and_nothing_refutes_it(one: Rule, *, fires: bool) -> None:
    found = judge(rows({}), LIMITS, [one, rule("fuse")])
    assert sorted(told(found)) == ["fuse", *["layout"] * fires]


def test_verdicts_are_ranked_by_what_they_surely_save() -> None:
    rules = [rule("layout", 0.2, 0.9), rule("fuse", 0.5, 0.4), rule("precision", 0.9, 0.1)]  # 0.18, 0.2, 0.09
    found = judge(rows({}, {"inst_issued": None}, {}), LIMITS, rules)
    assert [(one.rank, one.defect, one.sure, round(one.gain, 9)) for one in found.of(2)] == [
        (1, "fuse", 0.4, 0.5), (2, "layout", 0.9, 0.2), (3, "precision", 0.1, 0.9)
    ]  # fmt: skip
    assert (told(found, 0), told(found, 1)) == (["fuse", "layout", "precision"], [])


@pytest.mark.parametrize(
    ("first", "second", "gain"),
    [
        ((0.3, 0.8), (0.6, 0.7), 0.3),  # the surest
        ((0.3, 0.8), (0.6, 0.8), 0.6),  # then the largest gain
        ((0.6, 0.8), (0.6, 0.8), 0.6),
    ],
)
def test_one_of_two_rules_for_a_defect_speaks(
    first: tuple[float, float], second: tuple[float, float], gain: float
) -> None:
    silent = rule("layout", 0.9, 0.99, holds=lambda e: ~always(e))
    found = judge(rows({}), LIMITS, [silent, rule("layout", *first), rule("fuse"), rule("layout", *second)]).of(0)
    assert sorted((one.defect, round(one.gain, 9)) for one in found) == [("fuse", 0.5), ("layout", gain)]


def test_a_better_rule_overrules_its_defect_where_its_columns_are_known() -> None:
    """The better rule does not fire; the second one does, and is asked only without the better one's metric."""
    better = rule("layout", better=True, needs=("l1_bytes",), holds=lambda e: e["l1_bytes"] > 5)
    found = judge(
        rows({"l1_bytes": 1.0}, {"l1_bytes": None}, {"l1_bytes": 9.0}), LIMITS, [rule("layout"), better, rule("fuse")]
    )
    assert [sorted(told(found, row)) for row in range(3)] == [["fuse"], ["fuse", "layout"], ["fuse", "layout"]]


def test_evidence_cites_what_the_rule_shows() -> None:
    (found,) = judge(rows({}), LIMITS, [rule("layout", shows=("inst_issued", "duration_ns"), tier=FULL)]).of(0)
    assert (found.cells, found.tier, found.refuted) == (
        (("inst_issued", 0.0), ("duration_ns", TIME)),
        FULL,
        "it is cold",
    )


@pytest.mark.parametrize(
    ("given", "open_"),
    [
        ({}, ("layout", "fuse", "precision")),  # full sections could settle layout, nothing has judged the others
        ({"l2_read_bytes": 1.0}, ("layout", "precision")),
        ({"l1_bytes": 1.0}, ("fuse", "precision")),  # full sections were collected
        ({"l1_bytes": 1.0, "l2_read_bytes": 1.0}, ("precision",)),
    ],
)
def test_a_cause_is_settled_by_the_best_rule_that_could_judge_it(
    given: dict[str, float], open_: tuple[str, ...]
) -> None:
    rules = [rule("layout"), rule("layout", needs=("l1_bytes",), tier=FULL), rule("layout", needs=("lsu",), tier=FULL), rule("fuse", needs=("l2_read_bytes",)),
             rule("precision", needs=("alu",))]  # fmt: skip
    assert judge(rows(given), LIMITS, rules).unsettled(0) == open_


@pytest.fixture
def weighed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, float, tuple[tuple[str, float], ...]]]]:
    """Return the causes, how sure they are and their cells, given rules and how likely counters make each cause."""

    def run(
        rules: list[Rule], likely: dict[str, float], **cells: Any
    ) -> list[tuple[str, float, tuple[tuple[str, float], ...]]]:
        monkeypatch.setattr(judging, "all_rules", lambda: tuple(rules))
        monkeypatch.setattr(likelihood, "chances", lambda e: pd.DataFrame([likely] * len(e.rows)))
        monkeypatch.setattr(likelihood, "telling", lambda *_: [("sectors", 3.0)])
        found = judge(rows(cells), LIMITS).of(0)
        return [(one.defect, round(one.sure, 4), one.cells) for one in found]

    return run


def never(e: Evidence) -> Any:
    return ~always(e)


def sure_of(at: int, *likely: float) -> Any:
    """Return how sure the cause at this place is, given these likelihoods of all classes that are not refuted."""
    power = [one**judging.SURER for one in likely]
    return pytest.approx(power[at] / sum(power), abs=1e-4)


@pytest.mark.parametrize(
    ("likely", "cells", "more", "named"),
    [
        (0.9, {}, {}, True),
        (0.4, {}, {}, True),
        (0.36, {}, {}, False),  # the rest says that nothing can be won, or something that has no rule
        (0.9, {"stall_math_pipe_throttle": 1.5}, {}, True),
        (0.9, {}, {"refutes": always}, False),
        (0.9, {}, {"gain": 0.04}, False),
        (0.9, {}, {"needs": ("l1_bytes",)}, False),
        (0.9, {"inst_issued": None}, {}, False),
    ],
)
def test_all_counters_name_a_cause_that_no_rule_found(
    weighed: Any, likely: float, cells: dict[str, Any], more: dict[str, Any], named: bool
) -> None:
    rules = [rule("layout", holds=never, **more), rule("fuse", holds=never, needs=("l2_bytes",))]
    found = weighed(rules, {"layout": likely, "nothing": 1 - likely}, **cells)
    each = judging.UNSEEN / 3
    sure = sure_of(1, 1 - likely + each, likely + each)  # of the third class, no rule has its metrics
    assert found == ([("layout", sure, (("sectors", 3.0),))] if named else [])


@pytest.mark.parametrize(("dram", "named"), [(0.85, True), (0.91, False)])
def test_at_a_roof_nothing_is_twice_as_likely(weighed: Any, dram: float, named: bool) -> None:
    found = weighed([rule("layout", holds=never, cuts=("dram",))], {"layout": 0.5, "nothing": 0.5}, **reads(dram))
    assert [one[0] for one in found] == (["layout"] if named else ["none_at_roof"])


def test_a_rule_multiplies_the_odds_of_its_cause_by_a_power_of_its_own(weighed: Any) -> None:
    """A rule of odds 5 lifts 0.1, not above 0.88 for the cause of the counters: both are told, that one first."""
    rules = [rule("layout", sure=0.8), rule("fuse", holds=never)]
    found = weighed(rules, {"layout": 0.1, "fuse": 0.88, "precision": 0.02})
    each = judging.UNSEEN / 4
    raw = [each, (0.1 + judging.UNSEEN) * 5**judging.TRUST, 0.88 + each, 0.02 + each]
    assert found == [
        ("fuse", sure_of(2, *raw[:3]), (("sectors", 3.0),)),
        ("layout", sure_of(1, *raw[:3]), (("duration_ns", TIME),)),
    ]
    assert weighed(rules, {"layout": 0.3, "fuse": 0.7})[0][::2] == ("layout", (("duration_ns", TIME),))


def test_a_rule_is_silent_where_nothing_is_likelier(weighed: Any) -> None:
    assert weighed([rule("layout", sure=0.6)], {"layout": 0.0, "nothing": 1.0}) == []


def test_a_strong_rule_is_silent_below_a_tenth(weighed: Any) -> None:
    """Its odds of 20 lift 0.03 to 0.18 beside 1, which is 3 % sure, and 0.08 to 0.48."""
    assert weighed([rule("layout", sure=0.95)], {"layout": 0.0, "nothing": 1.0}) == []
    ((name, sure, _),) = weighed([rule("layout", sure=0.95)], {"layout": 0.05, "nothing": 0.95})
    assert (name, round(sure, 1)) == ("layout", 0.2)


def test_causes_that_are_refuted_make_no_other_likelier(weighed: Any) -> None:
    rules = [rule("layout", holds=never), rule("fuse", refutes=always)]
    assert weighed(rules, {"layout": 0.35, "fuse": 0.65}) == []
    assert [one[0] for one in weighed([rule("layout"), rules[1]], {"layout": 0.05, "fuse": 0.95})] == ["layout"]


def test_likelihoods_come_from_the_distance_to_known_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight of 1 a spread, two spreads from the mean: odds of e^2 to 1. A quantity that is not known has no weight."""
    table = pd.DataFrame(
        {
            "mean": [1.0, 0.0, nan],
            "spread": [0.5, 1.0, nan],
            "fuse": [0.0, 0.0, 0.0],
            "layout": [likelihood.SOBER, likelihood.SOBER, 0.0],
        },
        index=pd.Index(["a", "b", "bias"], name="quantity"),
    )
    values = pd.DataFrame({"b": [nan, 9.0], "a": [2.0, 1.0]})
    monkeypatch.setattr(likelihood, "quantities", lambda e: values.head(len(e.rows)))
    monkeypatch.setattr(likelihood, "weights", lambda: table)
    found = likelihood.chances(Evidence(rows({}, {}), LIMITS))
    assert found["layout"].tolist() == pytest.approx([1 / (1 + exp(-2)), 1 / (1 + exp(-4))])  # at most four spreads
    assert likelihood.telling(Evidence(rows({}, {}), LIMITS), 0, "layout") == [("a z_score", 2.0)]


def test_quantities_are_ratios_within_bounds() -> None:
    assert likelihood.ratio([8, 0, 0, 1], [1, 0, 1, 0]).tolist() == pytest.approx([3, 0, -4, 4])
    known = likelihood.quantities(Evidence(rows(reads(0.5) | {"global_load_bytes": 1e9, "waves": 2.5}), LIMITS)).iloc[0]
    assert known["busy_dram"] == pytest.approx(0.5)
    assert known["last_wave"] == pytest.approx(2.5 / 3)
    assert known[["sectors", "shared_passes", "tensor_work"]].isna().all()
    assert set(likelihood.weights().index) == {*known.index, "bias"}
    assert set(likelihood.weights().columns) <= {"mean", "spread", likelihood.NOTHING, *kinds()}


def test_every_rule_of_the_folder_is_asked_by_default() -> None:
    assert judge(rows({}), LIMITS).rules == judging.all_rules()
    assert len(judging.all_rules()) > 20


# The command that captures a launch again


def test_a_launch_is_captured_by_its_number_from_one() -> None:
    assert recapture("void ns::f<int>(int)", (), 0, Program("./app")) == (
        "ncu --set full --import-source yes --clock-control none --kernel-name-base function "
        "--kernel-id '::regex:^f$:1' --launch-count 1 -f -o kernel ./app"
    )
    more = recapture("f", ["a/", "b/"], 4, Program(window=True))
    assert "--clock-control none --profile-from-start off --nvtx --nvtx-include a/ --nvtx-include b/ --kernel" in more
    assert "'::regex:^f$:5'" in more
    assert more.endswith(f" {PROGRAM}")


def test_a_long_name_is_cut_after_200_letters() -> None:
    assert f"^{'k' * 200}:1'" in recapture("k" * 201, (), 0, Program())
    assert f"^{'k' * 200}$:1'" in recapture("k" * 200, (), 0, Program())


@pytest.mark.parametrize(
    ("status", "program"),
    [
        ({}, Program()),
        ({"window": "profiler"}, Program(window=True)),
        ({"command": ["ncu", "--profile-from-start", "off", "-o", "x", "a b", "c"]}, Program("'a b' c", window=True)),
        ({"command": None, "nvtx_include": ["s/", 1]}, Program(include=("s/", "1"))),
    ],
)
def test_the_program_is_what_the_tool_ran(status: dict[str, Any], program: Program) -> None:
    assert captured_program(status) == program


def test_two_captures_by_ncu_name_no_program_and_a_timeline_numbers_all_launches() -> None:
    tool = {"tool": "ncu", "command": ["ncu", "-o", "x", "app"], "nvtx_include": ["s/"]}
    ops = Capture(gpu_ops=pd.DataFrame([op(0, 5)])).gpu_ops
    assert program_of(facts_of(capture=Capture(tools=[{"tool": "nsys"}, tool]))) == Program("app", include=("s/",))
    assert program_of(facts_of(capture=Capture(tools=[tool, tool]))) == Program()
    assert program_of(facts_of(capture=Capture(tools=[tool], gpu_ops=ops))) == Program("app")
