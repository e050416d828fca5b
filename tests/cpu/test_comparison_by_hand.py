"""What a comparison says of numbers that a reader can check by hand; tests/mutants.py changes one operator at a time."""

import json
import math
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.comparison import (
    align,
    compare,
    gate,
    history,
    outputs,
    quantities,
    rounds,
    runs,
    tables,
    verdict,
    waterfall,
)
from analysis.comparison.runs import RunOf, SideOf, StepOf
from analysis.formats.comparison import (
    Bar,
    Basis,
    Checked,
    ComparedStep,
    Comparison,
    Judged,
    Match,
    Quantity,
    Row,
    Side,
    Verdict,
)
from analysis.formats.errors import InputError, UsageError

UNKNOWN = Judged(Verdict.UNSURE, Basis.NOTHING, why="too few runs")


# Verdicts


@pytest.mark.parametrize(
    ("error", "paired", "runs_"),
    [(0.01, True, 8), (0.01, False, 5), (0.25, True, 4), (0.6, True, 2), (0.4, False, 2)],
)
def test_a_pattern_is_rarer_than_the_error_from_so_many_runs_on(error: float, paired: bool, runs_: int) -> None:
    """2 of 2^n sign patterns, or 2 of C(2n, n) exchanges: 2/256 and 2/252 are below 0.01; 2/8 is not below 0.25."""
    assert verdict.runs_needed(error, paired) == runs_


@pytest.mark.parametrize(
    ("middle", "half", "found", "more"),
    [
        (0.10, 0.02, Verdict.SLOWER, None),
        (-0.10, 0.02, Verdict.FASTER, None),
        (0.10, 0.10, Verdict.UNSURE, 1),  # the interval touches no change: 10 · 1² − 10 + 1
        (0.04, 0.01, Verdict.SAME, None),  # all of it within 0.05
        (-0.04, 0.01, Verdict.SAME, None),
        (0.04, 0.02, Verdict.UNSURE, 31),  # 0.01 to the bound: 10 · 2² − 10 + 1
        (0.06, 0.12, Verdict.UNSURE, 31),
        (0.06, 0.60, Verdict.UNSURE, 991),  # 10 · 10² − 10 + 1
        (0.06, 0.61, Verdict.UNSURE, None),  # 1,025 more runs are no advice
        (0.05, math.inf, Verdict.UNSURE, 2),  # 12 are needed
    ],
)
def test_a_verdict_follows_from_the_interval(middle: float, half: float, found: Verdict, more: int | None) -> None:
    one = verdict._judged(middle, half * (1 - 1e-12), [10, 13], 12, math.expm1(0.05))
    if middle == half:
        one = verdict._judged(middle, half, [10, 13], 12, math.expm1(0.05))
    assert (one.verdict, one.more) == (found, more)
    assert one.samples == [10, 13]
    assert one.ratio == pytest.approx(math.exp(middle))
    if math.isfinite(half):
        assert (one.low, one.high) == (pytest.approx(math.exp(middle - half)), pytest.approx(math.exp(middle + half)))
    else:
        assert one.low is one.high is None


def test_the_least_change_that_counts_does_count_when_it_is_passed() -> None:
    bound = float(np.log1p(0.02))
    at = verdict._judged(bound, 0.001, [9, 9], 5, 0.02)
    assert (at.verdict, at.more) == (Verdict.UNSURE, None)  # no number of runs decides what is at the bound
    assert verdict._judged(0.0, bound, [9, 9], 5, 0.02).verdict is Verdict.SAME
    assert verdict._judged(0.06, 0.06 * math.sqrt(100.85), [10, 13], 12, math.expm1(0.05)).more == 1_000
    assert verdict._judged(0.06, math.inf, [12, 13], 12, 0.02).more == 1
    assert verdict._judged(bound + 1e-9, 0.001, [9, 9], 5, 0.02).verdict is Verdict.SLOWER


def test_the_error_of_a_mean_is_of_pairs_or_of_both_sides() -> None:
    """Differences 1 and 3: mean 2 ± 1. Apart: sides 0, 2 and 10, 12 are ± 1 each, so 10 ± √2."""
    a, b = np.array([[0.0], [2.0]]), np.array([[1.0], [5.0]])
    mean, error = verdict._mean_and_error(a, b, True, 0)
    assert (mean[0], error[0]) == (2.0, pytest.approx(1.0))
    mean, error = verdict._mean_and_error(a, np.array([[10.0], [12.0]]), False, 0)
    assert (mean[0], error[0]) == (10.0, pytest.approx(math.sqrt(2)))


def test_one_run_a_side_has_a_ratio_and_no_verdict() -> None:
    """exp(mean of logs): √(1·4) = 2 over 8 is 4; eight runs in turns are needed, and the smaller side has one."""
    (one,) = verdict.judge(np.array([[1.0], [4.0]]), np.array([[8.0]]), paired=True)
    assert (one.verdict, one.more, one.samples) == (Verdict.UNSURE, 7, [2, 1])
    assert one.ratio == pytest.approx(4.0)


def test_the_interval_of_eight_pairs_reaches_to_the_rarest_pattern() -> None:
    """Of 256 patterns, two are rarer than 0.01: all signs, or none. The next has −1 for 1: 34/8 over √(8.5/8), in √(6/8)."""
    apart = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])[:, None]
    middle, half = verdict.interval(np.zeros((8, 1)), apart, paired=True, error=0.01)
    assert (middle[0], half[0]) == (4.5, pytest.approx(4.25 * math.sqrt(6 / 8.5)))
    middle, half = verdict.interval(apart, np.zeros((8, 1)), paired=True, error=0.01)
    assert (middle[0], half[0]) == (-4.5, pytest.approx(4.25 * math.sqrt(6 / 8.5)))
    assert math.isinf(verdict.interval(np.zeros((7, 1)), apart[:7], paired=True, error=0.01)[1][0])


# Quantities


def launches(*counts: float, **columns: list[Any]) -> pd.DataFrame:
    return pd.DataFrame({"launches": list(counts), **columns})


def test_a_step_has_the_sum_of_its_launches_or_the_largest_of_them() -> None:
    items = launches(
        2, 3, registers=[40.0, 32.0], dram_bytes=[10.0, 100.0], sm_clock_hz=[1.0, 6.0], spill_bytes=[1, np.nan]
    )
    of = {one.name: one for one in quantities.EXACT}
    assert quantities.total(items, of["launches"]) == 5
    assert quantities.total(items, of["dram_bytes"]) == 2 * 10 + 3 * 100
    assert quantities.total(items, of["registers"]) == 40
    assert quantities.total(items, "sm_clock_hz") == (2 * 1 + 3 * 6) / 5
    assert quantities.total(items, of["spill_bytes"]) is None  # unknown of one launch
    assert quantities.total(items, of["stack_bytes"]) is None
    assert quantities.total(items.head(0), of["launches"]) is None


@pytest.mark.parametrize(
    ("name", "a", "b", "differs", "worse"),
    [
        ("inst_executed", 1000.0, 1001.0, False, None),  # a thousandth of the larger one
        ("inst_executed", 1000.0, 1002.0, True, True),
        ("inst_executed", 1002.0, 1000.0, True, False),
        ("spill_bytes", 0.0, 1.0, True, True),
        ("registers", 40.0, 32.0, True, None),
        ("occupancy_theoretical_frac", 0.5, 1.0, True, False),
        ("occupancy_theoretical_frac", 1.0, 0.5, True, True),
        ("code_bytes", 900.0, 1000.0, False, None),
        ("code_bytes", 899.0, 1000.0, True, None),
    ],
)
def test_a_quantity_differs_by_more_than_its_tolerance(
    name: str, a: float, b: float, differs: bool, worse: bool | None
) -> None:
    found = quantities.compare(launches(1, **{name: [a]}), launches(1, **{name: [b]}), Match.NAME)
    assert found[0] == Quantity("launches", 1.0, 1.0, False)
    assert found[1:] == [Quantity(name, a, b, differs, worse)]


def test_a_kernel_is_compared_by_what_it_has_only_with_itself() -> None:
    items = launches(1, registers=[40.0], inst_executed=[7.0], inst_issued=[8.0])
    assert [one.name for one in quantities.compare(items, items, Match.REPLACED)] == ["launches", "inst_executed"]
    assert [one.name for one in quantities.compare(items, items, Match.NAME)] == [
        "launches",
        "inst_executed",
        "registers",
    ]
    issued = items.drop(columns="inst_executed")
    assert "inst_issued" in [one.name for one in quantities.compare(issued, issued, Match.NAME)]


def work(worse: bool | None, name: str = "inst_executed") -> Quantity:
    return Quantity(name, 1000.0, 2000.0, worse is not None, worse)


@pytest.mark.parametrize(
    ("found", "ratio", "decided"),
    [
        ([work(True)], 1.0, Verdict.SLOWER),
        ([work(False)], 1.0, Verdict.FASTER),
        ([work(None)], 1.0, Verdict.SAME),
        ([work(True), work(False, "spill_bytes")], 1.0, Verdict.UNSURE),
        ([work(True, "stack_bytes")], 1.0, Verdict.UNSURE),  # says nothing of the work
        ([work(True)], 0.9, Verdict.UNSURE),  # 10 % faster contradicts
        ([work(True)], 0.96, Verdict.SLOWER),
        ([work(False)], 1.1, Verdict.UNSURE),
        ([work(False)], 0.5, Verdict.FASTER),
        ([work(None)], 0.9, Verdict.UNSURE),
        ([work(None)], 1.1, Verdict.UNSURE),
        ([work(None)], None, Verdict.SAME),
    ],
)
def test_exact_quantities_decide_where_time_cannot(
    found: list[Quantity], ratio: float | None, decided: Verdict
) -> None:
    one = quantities.decide(Judged(Verdict.UNSURE, Basis.NOTHING, ratio), found)
    assert one.verdict is decided
    assert (one.basis is Basis.EXACT) == (decided is not Verdict.UNSURE)
    assert quantities.decide(Judged(Verdict.FASTER, Basis.TIME, 0.9), found).basis is Basis.TIME


def test_an_exact_verdict_names_what_decided_it() -> None:
    one = quantities.decide(UNKNOWN, [work(None), work(True, "spill_bytes")])
    assert one.why == "spilled bytes a thread 1000 → 2000"
    assert quantities.decide(UNKNOWN, [work(None)]).why == "equal instructions and bytes"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "?"), (0.5, "0.5"), (9999, "9999"), (10_000, "10 k"), (-12_345, "-12.35 k"), (1e6, "1 M"), (999_900, "999.9 k"),
     (2.5e9, "2.5 G"), (1e9, "1 G")],
)  # fmt: skip
def test_numbers_have_a_few_digits(value: float | None, text: str) -> None:
    assert quantities.number(value) == text


def caused(a: pd.DataFrame, b: pd.DataFrame, match: Match = Match.NAME, names: tuple[str, ...] = ()) -> str:
    return quantities.cause(a, b, match, quantities.compare(a, b, match), names)


def test_causes_stand_with_the_largest_change_first() -> None:
    a = launches(1, inst_executed=[1000.0], registers=[40.0], l2_hit_frac=[0.5], sm_clock_hz=[1.0e9], grid=["1x1x1"])
    b = launches(1, inst_executed=[1100.0], registers=[80.0], l2_hit_frac=[0.52], sm_clock_hz=[1.5e9], grid=["2x1x1"])
    assert caused(a, b) == (
        "more registers a thread: 40 → 80; SM clock 1000 → 1500 MHz; more instructions: 1000 → 1100"
    )
    few = ["inst_executed", "registers", "sm_clock_hz"]
    assert (
        caused(a.drop(columns=few), b.drop(columns=few)) == "higher L2 hit rate: 50% → 52%; another grid: 1x1x1 → 2x1x1"
    )
    assert caused(b, a.assign(grid="2x1x1")).startswith("fewer registers a thread: 80 → 40; SM clock 1500 → 1000 MHz")


@pytest.mark.parametrize(("rate", "clock"), [(0.515, 1.029e9), (0.485, 0.971e9)])
def test_small_changes_of_rate_and_clock_are_no_cause(rate: float, clock: float) -> None:
    a = launches(1, l1_hit_frac=[0.5], sm_clock_hz=[1.0e9])
    assert caused(a, launches(1, l1_hit_frac=[rate], sm_clock_hz=[clock])) == ""


def test_a_kernel_in_place_of_others_is_named() -> None:
    a = launches(1, grid=["1"])
    assert caused(a, launches(1, grid=["2"]), Match.REPLACED, ("x", "y", "z")) == "replaced by x, y and 1 more"
    assert caused(a, a, Match.REPLACED, ("x", "y")) == "replaced by x, y"
    faster = launches(1, l2_hit_frac=[0.9])
    assert (
        caused(launches(1, l2_hit_frac=[0.5]), faster, Match.REPLACED, ("x",))
        == "replaced by x; higher L2 hit rate: 50% → 90%"
    )
    assert caused(a, a.head(0), Match.ONLY_A) == "only A has it"
    assert caused(a.head(0), a, Match.ONLY_B) == "only B has it"
    assert quantities._few(pd.Series(["1", "2", "2"])) == "1, 2"
    assert quantities._few(pd.Series(["1", "2", "3"])) == "1, 2 …"


def test_the_clock_is_the_mean_of_launches_with_counters() -> None:
    assert quantities.clock_of(pd.DataFrame({"sm_clock_hz": [1.0, 3.0, np.nan]})) == 2.0
    assert quantities.clock_of(pd.DataFrame({"sm_clock_hz": [np.nan]})) is None
    assert quantities.clock_of(pd.DataFrame({"x": [1.0]})) is None


# Alignment


def test_a_range_that_one_side_lacks_counts_as_the_nearest_around_it() -> None:
    assert align.common(["a/b/c", "a/x", "y", ""], ["a/b", "z"]) == ["a/b", "a", "", ""]
    assert align.common(["a"], ["a/b/c"]) == ["a"]


@pytest.mark.parametrize(
    ("places", "kept"),
    [([0, 1, 2], [0, 1, 2]), ([2, 0, 1], [0, 1]), ([1, 2, 0], [1, 2]), ([3, 1, 2, 0, 4], [1, 2, 4]), ([], [])],
)
def test_anchors_are_the_longest_rising_part(places: list[int], kept: list[int]) -> None:
    assert [to for _, to in align._increasing(list(enumerate(places)))] == kept


def test_what_stands_between_the_same_anchors_belongs_together() -> None:
    a = pd.DataFrame({"layer": "", "kernel": ["x", "p", "y", "q"]})
    b = pd.DataFrame({"layer": "", "kernel": ["x", "y", "r", "s"]})
    found = {(one.match, one.a_names, one.b_names, tuple(one.a), tuple(one.b)) for one in align.align(a, b)}
    assert found == {
        (Match.NAME, ("x",), ("x",), (0,), (0,)),
        (Match.NAME, ("y",), ("y",), (2,), (1,)),
        (Match.ONLY_A, ("p",), (), (1,), ()),
        (Match.REPLACED, ("q",), ("r", "s"), (3,), (2, 3)),
    }


# The gate


def row(
    name: str = "k", a: float | None = 100.0, b: float | None = 120.0, judged: Judged | None = None, **more: Any
) -> Row:
    return Row("layer", [name], [name], Match.NAME, a, b, judged, **more)


def step(*rows: Row, a: int | None = 1000, b: int | None = 1100, judged: Judged = UNKNOWN) -> ComparedStep:
    return ComparedStep("decode", a, b, judged, "", [], list(rows))


def checked(rule: gate.Rule, *steps: ComparedStep) -> Checked:
    side = Side("a", "rounds", 1, {})
    compared = Comparison(side, side, True, 0.005, 0.01, steps[0].judged, [], list(steps), [])
    (found,) = gate.check(compared, [rule])
    return found


def judged(kind: Verdict, ratio: float | None = None, low: float | None = None, high: float | None = None) -> Judged:
    return Judged(kind, Basis.TIME, ratio, low, high, more=3, why="noise")


@pytest.mark.parametrize(
    ("one", "status"),
    [
        (judged(Verdict.SAME, 1.2), "pass"),
        (judged(Verdict.FASTER, 0.8), "pass"),
        (judged(Verdict.UNSURE, 1.05, 1.0, 1.1), "pass"),  # even its high end keeps the limit of 10 %
        (judged(Verdict.UNSURE, 1.05, 1.0, 1.11), "unsure"),
        (judged(Verdict.SLOWER, 1.2, 1.15, 1.25), "fail"),
        (judged(Verdict.SLOWER, 1.1, 1.05, 1.15), "unsure"),
        (judged(Verdict.SLOWER, 1.05, None, None), "fail"),
        (judged(Verdict.SLOWER, None, 1.0, 1.2), "fail"),
        (judged(Verdict.UNSURE, 1.2), "unsure"),
    ],
)
def test_a_limit_on_growth_takes_the_interval(one: Judged, status: str) -> None:
    found = checked(gate.Rule("g", "time", most_growth=0.1), step(judged=one))
    assert found.status == status
    assert ("3 more runs a side would decide" in found.sentence) == (status == "unsure")


def test_a_gate_states_growth_interval_and_limit() -> None:
    found = checked(gate.Rule("g", "time", most_growth=0.02), step(judged=judged(Verdict.SLOWER, 1.2, 1.1, 1.3)))
    assert found.sentence == "decode: SLOWER, +20.0% (+10.0% to +30.0%), limit +2.0%"


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ({"most": 1.1e3}, "pass"), ({"most": 1.099e3}, "fail"), ({"least": 1.1e3}, "pass"), ({"least": 1.101e3}, "fail"),
    ],
)  # fmt: skip
def test_a_limit_on_b_itself_holds_at_the_limit(limit: dict[str, float], status: str) -> None:
    assert checked(gate.Rule("g", "time", **limit), step()).status == status


@pytest.mark.parametrize(
    ("limit", "status"), [({"least": 4e6}, "pass"), ({"least": 4.1e6}, "fail"), ({"most_growth": 0.0}, "unsure")]
)
def test_tokens_per_second_are_of_the_step(limit: dict[str, float], status: str) -> None:
    """4 tokens in 1,000 ns: 4 million a second."""
    assert checked(gate.Rule("g", "tokens_per_s", tokens=4, **limit), step(a=800, b=1000)).status == status


def counted(a: float | None, b: float | None, differs: bool = True, name: str = "dram_bytes") -> list[Quantity]:
    return [Quantity(name, a, b, differs)]


@pytest.mark.parametrize(
    ("values", "status"),
    [
        (counted(100, 110), "pass"),
        (counted(100, 111), "fail"),
        (counted(100, 111, False), "pass"),
        (counted(None, 1), "unsure"),
    ],
)
def test_a_quantity_may_grow_to_the_limit(values: list[Quantity], status: str) -> None:
    assert checked(gate.Rule("g", "dram_bytes", most_growth=0.1), step(row(quantities=values))).status == status


def test_a_gate_lists_the_worst_rows_first_and_counts_the_rest() -> None:
    rows = [row(f"k{at}", quantities=counted(100, 100 + at), file=f"{at}.cu", line=at) for at in range(9)]
    found = checked(gate.Rule("g", "dram_bytes", most=101), step(*rows))
    assert found.sentence == "7 of 9 rows: layer: k2: dram_bytes 100 → 102, at most 101"
    assert (found.file, found.line) == ("2.cu", 2)
    assert len(found.rows) == 6
    assert found.rows[-1] == "… and 2 more"
    exactly = checked(gate.Rule("g", "dram_bytes", most=101), step(*rows[:7]))
    assert (len(exactly.rows), exactly.rows[-1]) == (5, "layer: k6: dram_bytes 100 → 106, at most 101")
    single = checked(gate.Rule("g", "dram_bytes", most=101, kernel="k5"), step(*rows))
    assert single.sentence.startswith("layer: k5")


def test_launches_of_a_step_are_those_of_its_rows() -> None:
    rows = [row(str(at), quantities=counted(at + 1, at + 3, name="launches")) for at in range(2)]
    found = checked(gate.Rule("g", "launches", most=7), step(*rows))
    assert (found.status, found.sentence) == ("pass", "decode: launches 3 → 7, at most 7")
    with pytest.raises(UsageError):
        checked(gate.Rule("g", "launches", most=7), step(row()))


def test_a_rule_on_rows_takes_those_with_a_time_on_both_sides() -> None:
    rows = [row("k1", judged=judged(Verdict.SAME)), row("k2", a=None), row("j", judged=judged(Verdict.SLOWER, 1.5))]
    assert checked(gate.Rule("g", "time", kernel="k*", most_growth=0.0), step(*rows)).status == "pass"
    assert checked(gate.Rule("g", "time", layer="l*", most_growth=0.0), step(*rows)).status == "fail"
    with pytest.raises(UsageError, match="matches nothing"):
        checked(gate.Rule("g", "tokens_per_s", tokens=1, least=1, kernel="k*"), step(*rows))


def test_the_gate_fails_before_it_is_unsure() -> None:
    said = [Checked("r", status, "") for status in ("pass", "fail", "unsure")]
    assert [gate.worst(said), gate.worst(said[::2]), gate.worst(said[:1]), gate.worst([])] == [
        "fail",
        "unsure",
        "pass",
        "pass",
    ]


def test_a_row_of_several_kernels_says_how_many_more() -> None:
    one = Row("", ["a"], ["x", "y", "z"], Match.REPLACED, 1.0, 1.0)
    assert gate._name(one) == "no range: x and 2 more"
    assert gate._name(Row("l", ["a"], [], Match.ONLY_A, 1.0, 0.0)) == "l: a"
    assert gate._name(Row("l", ["a"], ["x", "y"], Match.REPLACED, 1.0, 0.0)) == "l: x and 1 more"
    assert (gate._has(one, "a"), gate._has(one, "z"), gate._has(one, "b")) == (True, True, False)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("metric = 'speed'\nmost = 1", "known are"), ("metric = 'time'", "needs one"),
        ("metric = 'time'\nmost = 1\nleast = 1", "needs one"), ("metric = 'tokens_per_s'\nleast = 1", "also needs tokens"),
        ("metric = 'time'\nmost = 1", ""), ("metric = 'tokens_per_s'\nleast = 1\ntokens = 8", ""),
    ],
)  # fmt: skip
def test_a_rule_needs_a_metric_and_one_limit(tmp_path: Path, rule: str, said: str) -> None:
    path = tmp_path / "gate.toml"
    path.write_text(f"[[rule]]\nname = 'r'\n{rule}\n")
    if said:
        with pytest.raises(UsageError, match=said):
            gate.read(path)
    else:
        assert len(gate.read(path)) == 1


def test_junit_and_sarif_count_failures_apart_from_what_is_unsure() -> None:
    said = [
        Checked("p", "pass", "fine"),
        Checked("f", "fail", "bad", ["row"], "k.cu", 0),
        Checked("u", "unsure", "open"),
    ]
    compared: Any = type("Compared", (), {"gate": said})
    text = outputs.junit(compared)
    assert 'tests="3" failures="1" errors="1"' in text
    assert text.count("<failure") == text.count("<error") == 1
    results = json.loads(outputs.sarif(compared))["runs"][0]["results"]
    assert [(one["ruleId"], one["level"]) for one in results] == [("f", "error"), ("u", "warning")]
    assert results[0]["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}
    assert "locations" not in results[1]


# History


def side(name: str = "x", conditions: dict[str, str] | None = None, **given: Any) -> SideOf:
    items = pd.DataFrame(
        {"layer": ["l", "l"], "kernel": ["k", "k"], "time_ns": [3.0, 4.0], "registers": [32.0, np.nan]}
    )
    steps = (StepOf("s", items, given.get("wall")),)
    return SideOf(name, (RunOf(name, "rounds", conditions or {}, steps),), "")


def changes(*values: float | None) -> list[tuple[int, float]]:
    points = [history.Point(str(at), side()) for at in range(len(values))]
    return [(one.at, round(one.ratio, 3)) for one in history._changes(values, points)]


def test_a_level_changes_by_more_than_noise() -> None:
    assert changes(100, 100, 103, 103) == [(2, 1.03)]
    assert changes(100, 100, 102, 100) == []
    assert changes(100, None, 50, 0, 50) == [(2, 0.5)]
    assert changes(100, 110, 100, 110, 100, 120) == []  # neighbours usually differ by a tenth
    assert changes(100, 110, 100, 200) == [(3, 2.0)]  # 110 is a point alone
    assert changes(100, 110, 110, 100) == [(1, 1.1), (3, 0.909)]  # too few to know what is usual
    assert changes(100, 110, 100, 110, 200) == [(4, 1.907)]  # against √(100 · 110)
    assert changes(100, 101, 100, 101, 100, 106, 106) == [(5, 1.06)]  # log 1.01 is usual: 1.04 and more is a change
    assert changes(100, 101, 102, 200, 200, 200) == [(3, round(200 / 101, 3))]  # against the middle of the level


def test_a_change_names_the_conditions_that_changed_with_it() -> None:
    before = side(conditions={"GPU": "A", "torch": "1", "power": "5"})
    after = side(conditions={"GPU": "B", "torch": "1", "power": "6", "new": "x"})
    points = [history.Point("a", before), history.Point("b", after)]
    (one,) = history._changes([1.0, 2.0], points)
    assert one.causes == ("GPU A → B",)


def test_a_series_holds_each_step_and_row_of_two_points() -> None:
    points = [history.Point("a", side(wall=10.0)), history.Point("b", side(wall=20.0))]
    found = {one.name: one.values for one in history.series(points)}
    assert found == {"s": (10.0, 20.0), "l k": (7.0, 7.0)}
    assert [one.name for one in history.series(points, "registers")] == ["l k"]
    assert [one.name for one in history.series(points, pattern="k")] == ["l k"]
    with pytest.raises(InputError):
        history.series(points[:1])


# Tables, rounds, waterfall


def test_files_tell_their_kind_by_columns(tmp_path: Path) -> None:
    bench = "op,dtype,shape_name,convention,variant,isolated_time_p50_ns,chained_time_p50_ns,bench_time_p50_ns\n"
    path = tmp_path / "bench.csv"
    path.write_text(f"{bench}softmax,f32,big,in,v1,,7,9\nsoftmax,f32,big,in,v1,,8,9\nsoftmax,f32,big,in,v2,,,\n")
    (tmp_path / "bench.json").write_text('{"conditions": {"gpu": {"name": "H100"}, "driver": "5", "torch": null}}')
    (found,) = tables.read(tmp_path) or []
    assert (found.kind, found.conditions) == ("bench", {"GPU": "H100", "driver": "5", "time": "chained_time_p50_ns"})
    columns = ["layer", "kernel", "ordinal", "launches", "time_ns"]
    assert found.rows[columns].to_numpy().tolist() == [
        ["softmax f32 big in", "v1", 0, 1.0, 7.0],
        ["softmax f32 big in", "v1", 1, 1.0, 8.0],
    ]
    path.write_text(bench.replace("variant", "variant,rung_below") + "softmax,f32,big,in,v1,v0,1,,\n")
    (found,) = tables.read(path) or []
    assert (found.kind, found.rows["time_ns"].tolist()) == ("ladder", [1.0])
    path.write_text("a,b\n1,2\n")
    assert tables.read(path) is None
    assert tables.read(tmp_path / "none.csv") is None


ROUND = "run,round,place,step,range,kernel,launches,time_ns\n"


def test_rounds_have_runs_turns_and_ordinals(tmp_path: Path) -> None:
    path = tmp_path / "rounds.csv"
    path.write_text(f"{ROUND}1,1,0,s,,,1,50\n1,1,0,s,r,k,1,10\n1,1,0,s,r,k,1,20\n2,0,3,s,r,k,1,30\n")
    one, other = tables.read(path) or []
    assert (one.name, one.turn, other.turn) == ("rounds.csv run 1", (1, 0), None)
    assert one.rows["ordinal"].tolist() == [0, 0, 1]
    (found,) = runs._table_steps(one)
    assert (found.wall_ns, found.busy_ns, found.idle_ns) == (50.0, 30.0, {"other": 20.0})
    (found,) = runs._table_steps(other)
    assert (found.wall_ns, found.busy_ns, found.idle_ns) == (None, None, {})


@pytest.mark.parametrize("time", ["0", "-1", "inf", "x", ""])
def test_a_time_in_rounds_is_above_zero(tmp_path: Path, time: str) -> None:
    path = tmp_path / "rounds.csv"
    path.write_text(f"{ROUND}1,1,0,s,r,k,1,5\n7,1,0,s,r,bad,1,{time}\n")
    with pytest.raises(InputError, match=r"run 7 has the time .* for bad"):
        tables.read(path)


def test_the_wall_of_a_process_is_in_seconds(tmp_path: Path) -> None:
    for name, seconds in (("02-0", "0.5"), ("01-3", "1.25"), ("notes", "9")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "wall.txt").write_text(seconds)
    found = list(rounds.rows(tmp_path))
    assert found == [(1, 1, 3, "program", "", "", 1, 1_250_000_000), (2, 2, 0, "program", "", "", 1, 500_000_000)]
    with pytest.raises(InputError):
        list(rounds.rows(tmp_path / "01-3"))


def of_step(times: list[float], busy: float, **idle: float) -> StepOf:
    return StepOf("s", pd.DataFrame({"time_ns": times}), busy + sum(idle.values()), busy, idle)


def test_bars_add_up_and_small_ones_are_one_bar() -> None:
    """The step grows by 1,000: k by 600, m by 4 and n by −1 (each below 0.05 % of it), waits by 300, overlap by 90."""
    a, b = of_step([9000.0], 8900.0, sync=100.0), of_step([9603.0], 9593.0, sync=400.0)
    rows = [row("k", 3000, 3600), row("m", 3000, 3004), row("n", 3000, 2999), row("o", 0.0, None, cause="only A; x")]
    bars = waterfall.waterfall([a], [b], rows, 9000, 10_000, False)
    assert [(bar.what, bar.ns) for bar in bars] == [
        ("k", 600), ("waiting for the GPU", 300), ("overlap of kernels", 90), ("3 smaller differences", 3), ("residual", 7)
    ]  # fmt: skip
    assert [bar.row for bar in bars] == [0, None, None, None, None]
    assert bars[1].cause == "the GPU waits longer"
    assert waterfall.waterfall([b], [a], rows, 10_000, 9000, False)[1].cause == "the GPU waits less"
    assert [bar.what for bar in waterfall.waterfall([a], [b], rows, 9000, 10_000, True)][1:] == [
        "3 smaller differences",
        "residual",
    ]
    assert waterfall.waterfall([a], [b], [], 9000, 10_000, False)[0].ns == 1000


def test_waits_are_means_over_the_runs_that_lack_them_too() -> None:
    assert waterfall._mean_parts([of_step([], 0.0, sync=10.0), of_step([], 0.0, other=4.0)]) == {
        "sync": 5.0,
        "other": 2.0,
    }
    assert waterfall._overlap([of_step([5.0, 7.0], 10.0), of_step([5.0], 5.0)]) == -1.0


def test_the_sentence_names_the_three_largest_bars() -> None:
    bars = [Bar(name, "", ns, "why; more", 0 if name == "a" else None) for name, ns in
            (("a", 5000), ("zero", 0), ("b", -3000), ("c", 2000), ("d", 1000), ("residual", 7))]  # fmt: skip
    assert waterfall.said(10_000, 15_000, bars) == "+5 µs (10 µs → 15 µs): a, why (+5 µs); b (−3 µs); c (+2 µs)"
    replaced = [Bar("a", "", 5000, "replaced by b; more", 0)]
    assert waterfall.said(0, 5000, replaced).endswith(": a replaced by b (+5 µs)")
    assert waterfall.said(10_000, 9000, []) == "−1 µs (10 µs → 9 µs)"
    assert waterfall.signed(0) == "+0 µs"


# Both sides


def of_run(name: str, *steps: str, turn: tuple[int, int] | None = None, **conditions: str) -> RunOf:
    items = pd.DataFrame({"layer": "l", "kernel": ["k"], "ordinal": 0, "launches": 1.0, "time_ns": 5.0})
    return RunOf(name, "rounds", conditions, tuple(StepOf(one, items, 10.0) for one in steps), turn)


def test_runs_pair_by_the_round_that_both_sides_have() -> None:
    a = [of_run(f"a{at}", "s", turn=(at, 0)) for at in (1, 2, 3)]
    b = [of_run(f"b{at}", "s", turn=(at, 1)) for at in (3, 2, 9)]
    one, other, paired = compare._turns(a, b)
    assert ([run.name for run in one], [run.name for run in other], paired) == (["a2", "a3"], ["b2", "b3"], True)
    assert compare._turns(a, [of_run("x", "s", turn=(7, 1))])[2] is False
    assert compare._turns(a, [*b, of_run("x", "s")])[2] is False


def test_steps_pair_by_name_then_in_their_order() -> None:
    a, b = of_run("a", "p", "q", "r").steps, of_run("b", "x", "q", "y", "z").steps
    assert [compare._names(pair) for pair in compare._pairs(a, b)] == [("q", "q"), ("p", "x"), ("r", "y")]


@pytest.mark.parametrize(
    ("name", "a", "b", "decides"),
    [
        ("GPU", "A", "B", True), ("GPU", "A", "", None), ("GPU", "A", "A", None), ("driver", "1", "2", False), ("torch", "1", "2", False),
        ("commit", "a", "b", None), ("SM clock", "900–1980 MHz, median 1980", "900–1980 MHz, median 1410", True),
        ("SM clock", "900–1980 MHz, median 1980", "1200–1980 MHz, median 1970", None),
        ("throttling", "", "power", True), ("throttling", "heat", "power", True), ("ncu", "1", "2", False),
        ("ncu clock", "base", "boost", True), ("power", "1", "2", None), ("SM clock", "median 1000", "median 1029", None),
        ("SM clock", "median 1000", "median 1031", True), ("SM clock", "1000", "median 1000", True),
    ],
)  # fmt: skip
def test_conditions_decide_where_they_change_times(name: str, a: str, b: str, decides: bool | None) -> None:
    found, notes = compare._differences(of_run("a", "s", **{name: a}), of_run("b", "s", **{name: b}))
    assert [one.decides for one in found] == ([] if decides is None else [decides])
    assert notes == ([f"{name} differ, so times decide nothing."] if decides else [])


@pytest.mark.parametrize(
    ("clock", "wall", "decides"), [(1.029e9, None, None), (1.04e9, None, True), (0.96e9, 10.0, False)]
)
def test_a_clock_under_ncu_decides_only_without_a_step(clock: float, wall: float | None, decides: bool | None) -> None:
    def at(hz: float) -> RunOf:
        run = of_run("x", "s")
        return replace(
            run, steps=(replace(run.steps[0], items=run.steps[0].items.assign(sm_clock_hz=hz), wall_ns=wall),)
        )

    found, _ = compare._differences(at(1e9), at(clock))
    assert [(one.name, one.a, one.decides) for one in found] == (
        [] if decides is None else [("SM clock under ncu", "1000 MHz", decides)]
    )


def test_rows_without_a_step_agree_or_leave_it_open() -> None:
    def of(*kinds: Verdict) -> Verdict:
        return compare._of_rows([row(str(at), judged=judged(kind)) for at, kind in enumerate(kinds)]).verdict

    faster, slower, same, unsure = Verdict.FASTER, Verdict.SLOWER, Verdict.SAME, Verdict.UNSURE
    assert (of(faster, same), of(slower, unsure), of(same, same)) == (faster, slower, same)
    assert of(faster, slower) == of(same, unsure) == of() == unsure
    counts = [row(judged=judged(same)), row(judged=judged(same)), Row("", ["k"], [], Match.ONLY_A, 1.0, 0.0)]
    assert compare._counted(counts) == "2 SAME, 1 on one side only"


def test_identical_files_decide_and_other_conditions_withhold() -> None:
    exact = Judged(Verdict.SLOWER, Basis.EXACT, 1.2)
    one = step(row(judged=exact), row(judged=judged(Verdict.SLOWER, 1.2)), judged=judged(Verdict.SLOWER, 1.2))

    def final(identical: bool, *names: str) -> list[Verdict]:
        found = compare._final(one, identical, [compare.Difference(name, "1", "2", name != "driver") for name in names])
        return [found.judged.verdict, *(part.judged.verdict for part in found.rows if part.judged)]

    assert final(True, "GPU") == [Verdict.SAME] * 3
    assert final(False, "driver") == [Verdict.SLOWER] * 3
    assert final(False, "SM clock") == [Verdict.UNSURE, Verdict.SLOWER, Verdict.UNSURE]
    assert final(False, "GPU") == [Verdict.UNSURE] * 3


def test_the_source_of_a_row_is_of_its_longest_launch() -> None:
    items = pd.DataFrame({"time_ns": [1.0, 9.0, 99.0], "source": ["a.cu", "b.cu", ""], "line": [3, 4, 5]})
    assert compare._source(items) == ("b.cu", 4)
    assert compare._source(items.tail(1)) == compare._source(items[["time_ns"]]) == ("", 0)


def test_times_of_a_group_add_up_in_each_run() -> None:
    items = pd.DataFrame({"layer": "", "kernel": ["k", "k", "m"], "ordinal": [0, 1, 0], "time_ns": [1.0, 2.0, 4.0]})
    later = items.assign(time_ns=[10.0, 20.0, 40.0]).iloc[[2, 0]]  # in another order, and one launch less
    assert compare._times([StepOf("s", items), StepOf("s", later)], [[0, 1], [2]]).tolist() == [[3, 4], [10, 40]]


def times(gone: float, wall: float | None = 10_000.0) -> list[StepOf]:
    """Eight runs of a step of 10 µs: kernels of 5,000, 50, 49 and `gone` ns."""
    names = {"layer": "", "kernel": ["large", "edge", "small", "gone"], "ordinal": 0, "launches": 1.0}
    return [StepOf("s", pd.DataFrame(names | {"time_ns": [5_000.0 + at, 50.0, 49.0, gone]}), wall) for at in range(8)]


def test_a_row_of_half_a_percent_of_the_step_gets_a_verdict() -> None:
    found = compare._step(times(80.0), times(0.0), True, 0.005, 0.01)
    assert {row.a[0]: row.judged is not None for row in found.rows} == {
        "large": True,
        "edge": True,
        "gone": False,
        "small": False,
    }
    assert [row.a[0] for row in found.rows] == ["large", "gone", "edge", "small"]  # the longest first
    assert (found.a_ns, found.b_ns) == (10_000, 10_000)


def test_a_step_has_a_time_only_if_every_run_has_one() -> None:
    unknown = [*times(80.0)[:7], times(80.0, None)[7]]
    assert compare._step(times(80.0), unknown, True, 0.005, 0.01).a_ns is None
    assert compare._step(unknown, times(80.0), True, 0.005, 0.01).b_ns is None


def test_rounds_may_stand_beside_captures_but_tables_only_beside_their_kind() -> None:
    def of_kind(kind: str) -> SideOf:
        return SideOf(kind, (replace(of_run(kind, "s"), kind=kind),), kind)

    assert compare.of_sides(of_kind("rounds"), of_kind("capture")).steps[0].name == "s"
    with pytest.raises(InputError, match="one kind"):
        compare.of_sides(of_kind("bench"), of_kind("capture"))


def test_a_rule_on_the_step_names_no_line_and_shows_both_sides() -> None:
    found = checked(gate.Rule("g", "tokens_per_s", tokens=4, least=1), step(a=800, b=1000))
    assert found.sentence == "decode: tokens_per_s 5 M → 4 M, at least 1"
    assert (found.file, found.line) == ("", 0)
    rows = [row("k", quantities=counted(0, 3, name="launches"))]
    with pytest.raises(UsageError):  # no launches on side A
        checked(gate.Rule("g", "launches", most=7), step(*rows))


def test_committed_versions_of_a_table_are_points_oldest_first(tmp_path: Path) -> None:
    path = tmp_path / "rounds.csv"

    def git(*words: str) -> None:
        who = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    for text, subject in (
        (f"{ROUND}1,1,0,s,,,1,50\n1,1,0,s,r,k,1,10\n", "first try"),
        ("broken", "lost"),
        (f"{ROUND}1,1,0,s,,,1,90\n", "slow"),
    ):
        path.write_text(text)
        git("add", "rounds.csv")
        git("commit", "-q", "-m", subject)
    points = history.of_commits(path)
    assert [point.said.partition(" ")[2] for point in points] == ["first try", "slow"]
    assert [one.values for one in history.series(points)] == [(50.0, 90.0)]
    assert [point.said.partition(" ")[2] for point in history.of_commits(path, 1)] == ["slow"]
    with pytest.raises(InputError, match="git has no version"):
        history.of_commits(tmp_path / "other.csv")


@pytest.mark.parametrize(("given", "code"), [(["-h"], 0), (["--help"], 0), ([], 2), (["a", "b"], 2)])
def test_rounds_answers_help_and_wrong_arguments(
    given: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["rounds", *given])
    assert rounds.main() == code
    said = capsys.readouterr()
    assert "usage:" in (said.err if code else said.out)
    assert (said.out if code else said.err) == ""


def test_rounds_are_written_beside_their_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["rounds", str(tmp_path)])
    assert rounds.main() == InputError("").exit_code
    assert capsys.readouterr().err.startswith("rounds: ")
    (tmp_path / "01-0").mkdir()
    (tmp_path / "01-0" / "wall.txt").write_text("0.25")
    assert rounds.main() == 0
    (run,) = tables.read(tmp_path) or []
    assert (run.turn, run.rows["step"].tolist(), run.rows["time_ns"].tolist()) == ((1, 0), ["program"], [250_000_000.0])


def test_the_fingerprint_is_of_content_and_names_inside_a_folder(tmp_path: Path) -> None:
    for name, text in (
        ("a/x.csv", "1"),
        ("b/x.csv", "1"),
        ("c/y.csv", "1"),
        ("d/x.csv", "2"),
        ("e.csv", "1"),
        ("f.csv", "1"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    a, b, c, d, e, f = (runs._digest([tmp_path / name]) for name in ("a", "b", "c", "d", "e.csv", "f.csv"))
    assert a == b
    assert e == f
    assert len({a, c, d, e}) == 4


def test_a_side_has_short_names_and_one_kind(tmp_path: Path) -> None:
    assert runs._short(Path("x/y/z.csv")) == "y/z.csv"
    assert runs._short(Path("w/x/run/captures")) == "x/run"
    one = tmp_path / "rounds.csv"
    one.write_text(f"{ROUND}1,1,0,s,r,k,1,10\n2,2,3,s,r,k,1,10\n")
    found = runs.read([one])
    assert (found.kind, [run.turn for run in found.runs], found.name) == (
        "rounds",
        [(1, 0), (2, 3)],
        f"{tmp_path.name}/rounds.csv",
    )
    census = tmp_path / "census.csv"
    census.write_text("op,source,sm,kernel,registers\nsoftmax,a.cu,90,k,40\n")
    with pytest.raises(InputError, match="mixes rounds and census"):
        runs.read([one, census])
    with pytest.raises(InputError, match="no such file"):
        runs.read([tmp_path / "none"])


def test_counters_of_a_capture_stand_beside_the_rounds_of_its_program() -> None:
    one = of_run("rounds", "s")
    items = one.steps[0].items.assign(registers=[40.0])
    counted_run = replace(
        one,
        conditions={"GPU": "G"},
        counted=True,
        steps=(StepOf("s", items), StepOf("t", items.assign(registers=60.0))),
    )
    first, second = runs._with_counters([one, of_run("other", "s")], counted_run)
    assert first.steps[0].items["registers"].tolist() == [50.0]  # the mean of both
    assert (first.counted, first.conditions, second.counted) == (True, {"GPU": "G"}, False)
    assert "registers" not in second.steps[0].items
