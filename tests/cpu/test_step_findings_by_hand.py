"""What a report says of a step and its changes, and what its tables hold; a step lasts 1000 ns and comes 10 times."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.capture.model import Capture
from analysis.diagnosis import step_findings, step_tables, steps
from analysis.diagnosis.savers import Saver, StepAnswer
from analysis.diagnosis.steady_of import steady_of, within
from analysis.diagnosis.step_findings import claims, id_of, kind_of_step, start_up
from analysis.diagnosis.step_rules.view import View
from analysis.diagnosis.step_tables import answer_steps
from analysis.diagnosis.steps import build_gaps, build_step_diagnosis, build_steps, verdicts
from analysis.formats.report import Confidence, Reason, Saving
from analysis.replay import savings
from analysis.replay.steady import Phase, Steady
from analysis.tables.set_up import SET_UP
from analysis.tables.slack import phases
from tests.by_hand import graph, launches, on_step, op, proposal
from tests.declared import facts_of


def saver(kind: str = "sync", low: float | None = 0.1, high: float = 0.2, **more: Any) -> Saver:
    """Return a change that saves these shares of 1000 ns."""
    own = {name: more.pop(name) for name in ("later_ns", "after", "replay", "left_ns", "shares") if name in more}
    given = {"change": lambda one, share: one} | more
    saved = Saving(None if low is None else low * 1000, high * 1000), Saving(low, high)
    return Saver(proposal(kind, given.pop("change"), **given), *saved, **own)


def told(*found: Saver, **more: Any) -> StepAnswer:
    return StepAnswer(on_step(**more), found, found)


@pytest.mark.parametrize(
    ("other", "tie"),
    [(saver("fuse", 0.12, 0.18), True), (saver("fuse", 0.0, 0.1), False), (saver("fuse", None, 0.26), False)],
)
def test_two_changes_that_may_save_as_much_are_told_as_a_tie(other: Saver, tie: bool) -> None:
    found = claims([told(saver("sync", 0.1, 0.2), other)])
    assert found[0].sentence.endswith("Finding 2 may save as much.") == tie
    assert not found[1].sentence.endswith("Finding 2 may save as much.")


def test_two_changes_that_save_the_same_time_say_so() -> None:
    fuse = saver("fuse", 0.1, 0.2, left_ns=30.0, shares="sync:x")
    steps = [told(saver("sync", 0.4, 0.5), name="a"), told(saver("sync", 0.3, 0.4), fuse, name="b")]
    found = claims(steps)
    assert [one.title for one in found] == ["Sync in a", "Sync in b", "Fuse in b"]
    said = " Finding 2 saves most of this, too; once it is done, at most 0.03 µs are left to save."
    assert [one.sentence.endswith(said) for one in found] == [False, False, True]


SURE, LARGE, SMALL = saver("sync", 0.1, 0.2), saver("fuse", 0.3, 0.4), saver("fuse", 0.1, 0.2)
LARGEST = saver("sync", 0.3, 0.4)
FEWER = " The high end also takes fewer, larger kernels."
MORE = "Finding 2 may save more, but steps like this one have this cause more often."
OFTEN = "Finding 2 names a cause that steps like this one have more often."


@pytest.mark.parametrize(
    ("first", "second", "likely", "said"),
    [
        (SURE, LARGE, {"sync": 0.6, "fuse": 0.4}, MORE),
        (SURE, LARGE, {"sync": 0.6}, ""),  # the other cause was not weighed
        (SURE, LARGE, {"fuse": 0.6}, ""),
        (SURE, LARGE, {}, ""),
        (LARGEST, SMALL, {"sync": 0.4, "fuse": 0.6}, OFTEN),
        (LARGEST, SMALL, {"sync": 0.6, "fuse": 0.4}, ""),
        (LARGEST, SMALL, {"fuse": 0.6}, ""),
        (LARGEST, SURE, {"sync": 0.4, "fuse": 0.6}, ""),  # the same cause
        (LARGEST, SURE, {"sync": 0.6, "fuse": 0.4}, ""),
        (LARGEST, SURE, {"fuse": 0.6}, ""),
    ],
)
def test_a_doubt_compares_weighed_causes_of_one_step(
    first: Saver, second: Saver, likely: dict[str, float], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(View, "likely", likely)
    view = on_step()
    assert step_findings._doubt([(1, view, first), (2, view, second)]).strip() == said
    assert step_findings._doubt([(1, view, first), (3, view, second)]).strip() == said.replace("2", "3")
    assert step_findings._doubt([(1, view, first), (2, on_step(), second)]) == ""  # of another step


@pytest.mark.parametrize(
    ("high", "kind", "said"), [(0.7, "launch_bound", ""), (0.701, "launch_bound", FEWER), (0.701, "fuse", "")]
)
def test_what_saves_more_than_the_idle_time_also_takes_other_kernels(high: float, kind: str, said: str) -> None:
    """The kernels take 300 ns of 1000; the host takes more than the step."""
    one = saver(kind, 0.5, high, better="fewer, larger kernels")
    one = replace(one, proposal=replace(one.proposal, time_ns=2000.0))
    (found,) = claims([told(one, one=launches(100.0, 200.0))])
    assert found.sentence == f"{kind}.{said}"


def test_a_share_that_is_larger_than_its_time_says_of_which_step_it_is() -> None:
    one = saver("precision", 0.1, 0.2)
    one = replace(one, saves_ns=Saving(100.0, 150.0), proposal=replace(one.proposal, time_ns=160.0))
    (found,) = claims([told(one)])
    assert found.sentence == "precision. The largest share is of 1 µs, which the step may take without the profiler."


@pytest.mark.parametrize(("high", "more"), [(0.44, ""), (0.5, step_findings._FURTHER)])
def test_what_goes_with_a_copy_is_not_the_time_in_which_the_gpu_works(high: float, more: str) -> None:
    """Without a copy of 400 ns the host waits no more for kernels; the GPU idles for 40 ns of the step."""
    one = saver(
        "pageable_copy", 0.2, high, change=lambda one, share: replace(one, c_gap=one.c_gap * 0, c_own=one.c_own * 0)
    )
    one = replace(one, proposal=replace(one.proposal, time_ns=400.0))
    busy = {"gpu_busy": 560, "copies": 400, "launching": 40}
    (found,) = claims([told(one, one=graph([{"gap": 500.0}, {}], [{}, {}]), busy=busy)])
    said = " Calls, waits and work of the host that go with it take 0.04 µs."
    assert found.sentence == f"pageable_copy.{said}{more}"


# What a step is


@pytest.mark.parametrize(
    ("found", "busy", "kind"),
    [
        ([saver("fuse")], {"sync": 900}, "fuse"),
        ([saver("pause", lost_ns=1.0), saver("fuse", after="sync:x"), saver("layout")], {}, "layout"),
        ([saver("pause", lost_ns=1.0)], {"launching": 300, "copies": 400}, "copy_bound"),
        ([], {"gpu_busy": 900, "sync": 100}, "nothing"),
        ([], {}, "nothing"),
    ],
)
def test_a_step_has_the_cause_of_its_first_change_else_of_its_largest_part(
    found: list[Saver], busy: dict[str, int], kind: str
) -> None:
    assert kind_of_step(told(*found, busy=busy)) == kind


@pytest.mark.parametrize(
    ("wall", "bare", "quantiles"),
    [
        (1000, (900.0, 950.0, 1200.0), (900.0, 950.0, 1200.0)),
        (110, None, (110.0, 110.0, 380.0)),  # of steps of 100, 200 and 400 ns
        (380, None, (110.0, 380.0, 380.0)),
        (109, None, (None, 109.0, None)),  # the steps that were replayed are others
        (381, None, (None, 381.0, None)),
    ],
)
def test_a_step_lasts_as_long_as_the_bare_run_says_else_as_its_parts(
    wall: int, bare: tuple[float, float, float] | None, quantiles: tuple[float | None, ...]
) -> None:
    one = told(busy={"gpu_busy": wall, "sync": 3 * wall}, wall=wall, ends=np.array([100, 300, 700]))
    step = replace(one.view.step, bare_wall_ns=bare, bare_known=bare is not None)
    (found,) = step_findings.steps([replace(one, view=replace(one.view, step=step))])
    assert (found.wall_ns.p5, found.wall_ns.p50, found.wall_ns.p95) == quantiles
    assert (found.name, found.count, found.bare) == ("step", 3, bare is not None)
    assert [(one.part, one.ns, one.frac) for one in found.parts] == [("gpu_busy", wall, 1.0), ("sync", 3 * wall, 3.0)]


def test_a_step_without_time_has_shares_of_one_ns() -> None:
    one = told(busy={"sync": 3})
    parts = replace(one.view.parts, wall_ns=0)
    (found,) = step_findings.steps([replace(one, view=replace(one.view, parts=parts))])
    assert found.parts[0].frac == 3.0
    busy = replace(parts, busy_parts=(("gpu_busy", 1),))
    assert "works for 100% of" in claims([replace(one, view=replace(one.view, parts=busy))])[0].sentence


def test_the_start_up_has_three_parts_and_ends_with_the_first_step() -> None:
    one = told()
    names = ("kernel loading", "allocation", "uploads", "kernels")
    parts = tuple((name, 9 - at) for at, name in enumerate(names))
    steady = Steady((one.view.step.phase,), (40, 100), parts)
    found = start_up([replace(one, view=replace(one.view, steady=steady)), told()])
    assert found is not None
    assert (found.ns, [(part.part, part.ns) for part in found.parts]) == (
        60.0, [("kernel loading", 9.0), ("allocation", 8.0), ("uploads", 7.0)]
    )  # fmt: skip
    backwards = start_up([replace(one, view=replace(one.view, steady=replace(steady, start_up_ns=(100, 40))))])
    assert backwards is not None
    assert backwards.ns == 0.0
    none = replace(one, view=replace(one.view, steady=replace(steady, reason="Nothing repeats.")))
    assert start_up([none]) is start_up([]) is None


# Its findings


def test_changes_of_all_steps_are_ordered_and_later_ones_come_behind_what_opens_them() -> None:
    first = told(saver("sync", 0.1, 0.1), saver("fuse", after="sync:x", later_ns=Saving(1.0, 2.0)), name="a")
    second = told(saver("layout", 0.2, 0.2), saver("allocation", 0.05, 0.05), name="b")
    found = claims([first, second])
    assert [one.kind for one in found] == ["layout", "sync", "allocation", "fuse"]
    assert [one.title for one in found] == ["Layout in b", "Sync in a", "Allocation in b", "Fuse in a"]
    assert found[3].later is not None
    assert found[3].later.after == found[1].id == "sync · step a · x"
    large = saver("fuse", after="allocation:x", later_ns=Saving(900.0, 1000.0))
    more = replace(second, savers=(*second.savers, large))
    assert [one.title for one in claims([first, more])] == [
        "Layout in b",
        "Sync in a",
        "Allocation in b",
        "Fuse in b",
        "Fuse in a",
    ]
    spelt = claims([told(saver(about="a::b"), saver("fuse", after="sync:a::b", later_ns=Saving(1.0, 2.0)))])
    assert spelt[1].later is not None
    assert spelt[1].later.after == spelt[0].id


@pytest.mark.parametrize(
    ("others", "name", "more", "title"),
    [
        (1, "a", {}, "Sync in a"),
        (0, "a", {}, "Sync"),
        (1, "step", {}, "Sync"),
        (1, "a", {"placed": True}, "Sync"),
        (1, "a", {"lost_ns": 5.0}, "Sync"),
    ],
)
def test_one_of_several_steps_is_named(others: int, name: str, more: dict[str, Any], title: str) -> None:
    found = claims([told(saver(**more), name=name), *[told(name="other")] * others])
    assert found[0].title == title
    assert found[0].scope == ("program" if more.get("lost_ns") else f"step {name}")
    assert found[0].id == id_of(told(name=name), saver(**more))


def test_a_finding_cites_its_row_of_changes() -> None:
    one = saver(about="y")
    one = replace(one, proposal=replace(one.proposal, count=1.239, time_ns=7.6, what_if="--sync", do="Do."))
    (found,) = claims([told(one)])
    row = {"step": "step", "kind": "sync", "about": "y"}
    assert [(cell.table, cell.row, cell.column, cell.value) for cell in found.cells] == [
        ("changes", row, "count", 1.24), ("changes", row, "time_ns", 8)
    ]  # fmt: skip
    assert found.do == "Do."
    assert found.check.endswith("CAPTURE --sync")
    assert claims([told(saver())])[0].check == ""
    assert claims([told(saver())])[0].do.startswith("Synchronise once")


def test_a_finding_shows_its_stretch_else_the_step_in_the_middle() -> None:
    ends = np.array([100, 300, 400, 700, 900])
    assert claims([told(saver(span=(5, 6)), ends=ends)])[0].span == (5, 6)
    one = told(saver(), ends=ends)
    assert claims([one])[0].span == (300, 400)
    later = replace(one.view.step.phase, gpu_end_ns=ends + 50)
    late = replace(one.view, step=replace(one.view.step, phase=later))
    assert claims([replace(one, view=late)])[0].span == (300, 450)
    early = replace(late, step=replace(late.step, phase=replace(later, gpu_end_ns=ends - 50)))
    assert claims([replace(one, view=early)])[0].span == (300, 400)


def test_a_change_is_drawn_with_the_operations_that_it_touches() -> None:
    def change(one: Any, share: float) -> Any:
        return replace(one, o_duration=one.o_duration - [0, 1])

    plain = told(saver(change=change))
    replay = savings.saving(plain.view.step, change)
    found = told(saver(change=change, replay=replay))
    (one,) = claims([found])
    assert one.ops is not None
    assert one.ops.tolist() == [1]
    assert one.replays is not None
    assert (one.replays.before, one.replays.change) == (found.view.step.told_run, replay)
    assert one.replays.about.tolist() == [False, True]
    assert claims([plain])[0].replays is None
    assert (
        claims([told(saver(change=change, replay=replay, after="sync:x", later_ns=Saving(1, 2)))])[-1].replays is None
    )
    assert claims([told(saver(change=change, replay=replay), reason="It is off.")])[0].replays is None


@pytest.mark.parametrize(
    ("one", "reason", "confidence", "hidden"),
    [
        (saver(), "", Confidence.LIKELY, False),
        (saver(low=None), "", Confidence.UNSURE, True),
        (saver(low=None), "It is off.", Confidence.UNSURE, False),
        (saver(low=None, change=None), "", Confidence.LIKELY, False),
        (saver(sure=Confidence.UNSURE), "", Confidence.UNSURE, False),
        (saver(sure=Confidence.SURE), "", Confidence.SURE, False),
    ],
)
def test_what_the_profiler_hides_is_unsure(one: Saver, reason: str, confidence: Confidence, *, hidden: bool) -> None:
    found = claims([told(one, reason=reason)])[0]
    assert found.confidence == confidence
    assert ("hides how much" in found.sentence) is hidden


@pytest.mark.parametrize(
    ("bare_ns", "known", "confidence"),
    [
        ((90.0, 100.0), False, Confidence.LIKELY),  # the profiler's cost is at most a tenth of the step
        ((89.0, 100.0), False, Confidence.UNSURE),
        ((100.0, 89.0), False, Confidence.UNSURE),
        ((89.0, 100.0), True, Confidence.LIKELY),
        ((100.0,), False, Confidence.LIKELY),
    ],
)
def test_a_change_is_unsure_where_the_profilers_cost_may_decide(
    bare_ns: tuple[float, ...], known: bool, confidence: Confidence
) -> None:
    one = told(saver())
    step = replace(one.view.step, bare_ns=bare_ns, bare_known=known)
    assert claims([replace(one, view=replace(one.view, step=step))])[0].confidence == confidence


# Where nothing is worth doing


def kernels(**times: float) -> Any:
    """Return a graph with each kernel twice, half of its time each."""
    ops = [{"name": name, "ns": ns / 2} for name, ns in times.items()] * 2
    return graph([{}] * len(ops), ops)


def nothing(busy: dict[str, int], one: Any = None, **more: Any) -> Any:
    found = told(one=one, busy=busy)
    (said,) = claims([replace(found, view=replace(found.view, **more))])
    return said


def test_what_waits_is_no_step_with_nothing_to_do() -> None:
    assert [one.kind for one in claims([told(saver(after="sync:x"))])] == ["nothing", "sync"]
    assert claims([told(reason="It is off.")]) == []
    assert claims([]) == []


@pytest.mark.parametrize(
    ("busy", "kind", "why"),
    [
        ({"gpu_busy": 800}, "nothing", "Only faster kernels help: b has 60%, a has 30% of the kernels' time; counters"),
        ({"gpu_busy": 799}, "nothing", ""),
        ({"copies": 800}, "copy_bound", "The step waits for copies"),
        ({"copies": 799}, "nothing", ""),
        ({}, "nothing", ""),
    ],
)
def test_a_busy_gpu_needs_faster_kernels_and_busy_copies_fewer_bytes(busy: dict[str, int], kind: str, why: str) -> None:
    found = nothing(busy, kernels(a=30.0, b=60.0, c=10.0, ncclDevKernel_AllReduce=900.0))
    assert found.kind == kind
    assert (why in found.sentence) if why else found.sentence.endswith("surely saves 1% of it.")
    frac = busy.get("gpu_busy", 0) / 10
    assert f"The GPU works for {frac:.0f}% of the step of 1 µs" in found.sentence
    assert (found.saves_ns, found.saves_frac) == (Saving(0.0, 10.0), Saving(0.0, 0.01))
    assert [cell.value for cell in found.cells] == ([busy["gpu_busy"]] if "gpu_busy" in busy else [])
    assert found.id == f"{kind} · step step · step"


def test_the_path_may_differ_from_what_the_gpu_does() -> None:
    one = told(busy={"gpu_busy": 900})
    parts = replace(one.view.parts, parts=(("copies", 850), ("gpu_busy", 150)))
    (found,) = claims([replace(one, view=replace(one.view, parts=parts))])
    assert (found.kind, found.cells[0].value) == ("copy_bound", 900)
    assert "works for 90%" in found.sentence


@pytest.mark.parametrize(
    ("tiers", "said"),
    [
        ({}, "counters would say whether it can be faster"),
        ({"a": "counters"}, "its page says what limits it"),
        ({"a": "sampled"}, "its page says what limits it"),
        ({"a": "timing"}, "counters would say whether it can be faster"),
        ({"b": "counters"}, "counters would say whether it can be faster"),  # of another kernel
    ],
)
def test_pages_of_kernels_with_counters_say_what_limits_them(tiers: dict[str, str], said: str) -> None:
    rows = pd.DataFrame({"kernel": list(tiers), "tier": list(tiers.values())})
    assert said in nothing({"gpu_busy": 900}, kernels(a=9.0), counted=rows).sentence
    assert "counters would say" in nothing({"gpu_busy": 900}, kernels(a=9.0)).sentence


def test_two_kernels_have_pages_if_both_were_counted() -> None:
    rows = pd.DataFrame({"kernel": ["a", "b"], "tier": ["counters", "timing"]})
    two = {"gpu_busy": 900}, kernels(a=9.0, b=9.0)
    assert "counters would say which of them" in nothing(*two, counted=rows).sentence
    assert "their pages say" in nothing(*two, counted=rows.assign(tier="counters")).sentence


@pytest.mark.parametrize(
    ("busy", "only", "end"),
    [
        ({"gpu_busy": 830, "launching": 130}, " Faster kernels help", "faster. Another 13% of the step is launching."),
        ({"gpu_busy": 800, "sync": 100, "copies": 100}, " Faster kernels help",
         "Another 10% of the step is waiting for the GPU. Another 10% of the step is copies."),
        ({"gpu_busy": 880, "other": 120}, " Faster kernels help", "Another 12% of the step has no known cause."),
        ({"gpu_busy": 900, "launching": 99}, " Only faster kernels help", "can be faster."),
    ],
)  # fmt: skip
def test_faster_kernels_are_not_all_that_helps_where_a_tenth_of_the_step_is_something_else(
    busy: dict[str, int], only: str, end: str
) -> None:
    found = nothing(busy, kernels(a=9.0)).sentence
    assert only in found
    assert found.endswith(end)


def roofs(*rows: tuple[str, float | None, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["kernel", "roof_frac", "bound"])


@pytest.mark.parametrize(
    ("rows", "kind", "part"),
    [
        ([("a", 0.8, "memory")], "memory_roof", "51%"),
        ([("a", 0.79, "memory")], "nothing", ""),
        ([("a", None, "memory")], "nothing", ""),
        ([("b", 0.9, "memory")], "nothing", ""),  # 49 % of the kernels' time
        ([("a", 0.9, "compute"), ("b", 0.9, "memory")], "compute_roof", "51%"),
        ([("a", 0.9, "compute"), ("b", 0.9, "compute")], "compute_roof", "100%"),
        ([("a", 0.9, "dram"), ("a", 0.95, "compute")], "memory_roof", "51%"),  # the first row of a kernel
        ([], "nothing", ""),
    ],
)
def test_kernels_are_at_a_roof_if_most_of_their_time_is(rows: list[Any], kind: str, part: str) -> None:
    found = nothing({"gpu_busy": 800}, kernels(a=51.0, b=49.0), roofline=roofs(*rows))
    assert found.kind == kind
    assert f"Kernels with {part} of their time reach 80%" in found.sentence or not part
    assert nothing({"gpu_busy": 700}, kernels(a=51.0, b=49.0), roofline=roofs(*rows)).kind == "nothing"


def test_half_of_the_time_is_not_most_and_kernels_meet_by_their_key() -> None:
    rows = roofs(("a", 0.9, "memory"))
    assert nothing({"gpu_busy": 900}, kernels(a=50.0, b=50.0), roofline=rows).kind == "nothing"
    assert nothing({"gpu_busy": 900}, kernels(**{"void a(int)": 50.1, "b": 50.0}), roofline=rows).kind == "memory_roof"


# Tables


def phase(*starts: int, length: int = 10, marker: str = "", name: str = "step") -> Phase:
    begin = np.array(starts)
    none = np.zeros(0, np.int64)
    return Phase(name, 1, marker, begin, begin + length, begin, begin + length, begin * 0 + length, 1, 0, none)


def ranges(*begin: int, path: str = "train/step", length: int = 100) -> pd.DataFrame:
    return pd.DataFrame({"start_ns": begin, "end_ns": [one + length for one in begin], "path": path, "pid": 1})


def test_a_repeat_lies_in_the_range_in_which_it_begins() -> None:
    assert within(phase(0, 99, 100, 250), ranges(0, 100, 200)).tolist() == [2, 1, 1]


def many(each: int, others: int) -> Phase:
    """A phase that begins `each` times in a range from 0 on, and elsewhere."""
    return phase(*range(each), *range(5000, 5000 + others), name=f"{each}/{others}")


@pytest.mark.parametrize(
    ("each", "others", "is_part"), [(3, 0, True), (2, 0, False), (4, 1, True), (4, 2, False)]
)  # in a step of the program: three or more, and four fifths of all
def test_what_comes_three_times_within_a_step_is_a_part_of_it(each: int, others: int, *, is_part: bool) -> None:
    one, other = many(each, others), phase(0, 100, 200, name="other")
    kept = kept_of(one, other, ranges(0, 100, 200, 300))
    assert [found.name for found in kept.phases] == (["other"] if is_part else [one.name, "other"])


def kept_of(*given: Any, reason: str = "", **more: Any) -> Steady:
    *found, rows = given
    steady = Steady(tuple(found), reason=reason)
    values = {"set_up": {}, "capture": Capture(gpu_ops=pd.DataFrame([op(5, 5, 1), op(105, 5, 101)]).astype(
        dict.fromkeys(("api_start_ns", "pid"), "Int64")))} | more  # fmt: skip
    return steady_of(facts_of(built={phases: steady}, step_ranges=rows, **values))


def test_a_range_that_begins_the_steps_is_no_part() -> None:
    assert kept_of(phase(0, 1, 2, marker="layer"), ranges(0, 100, 200)).reason == ""


@pytest.mark.parametrize(
    ("steps", "reason"), [(2, ""), (3, "What repeats are parts of the steps, and the steps differ.")]
)
def test_without_three_steps_their_parts_are_the_steps(steps: int, reason: str) -> None:
    found = kept_of(phase(0, 1, 2), ranges(*range(0, 100 * steps, 100)))
    assert found.reason == reason
    assert [one.name for one in found.phases] == (["train/step"] if reason else ["step"])


def test_steps_that_set_up_or_belong_to_another_range_are_not_judged() -> None:
    rows = pd.concat([ranges(0, 100), ranges(200, path="eval/step"), ranges(300, path="train/last")], ignore_index=True)
    ops = pd.DataFrame([op(at + 5, 5, at + 1) for at in (0, 100, 200, 300)])
    given = Capture(gpu_ops=ops.astype(dict.fromkeys(("api_start_ns", "pid"), "Int64")))
    found = kept_of(rows, reason="Nothing repeats.", set_up={0: "modules"}, capture=given)
    assert [(one.name, one.start_ns.tolist()) for one in found.phases] == [("train/step", [100]), ("train/last", [300])]
    assert found.reason == "Nothing repeats."
    flat = pd.concat([ranges(0, path="one"), ranges(100, path="two")], ignore_index=True)
    assert {one.name for one in kept_of(flat, reason="Nothing repeats.", capture=given).phases} == {"one", "two"}
    whole = kept_of(ranges().astype(rows.dtypes), reason="Nothing repeats.", capture=given)
    assert [one.name for one in whole.phases] == ["capture"]


@pytest.mark.parametrize(("timeline", "held"), [(False, False), (True, True)])
def test_without_a_timeline_no_step_is_answered(timeline: bool, held: bool) -> None:
    assert answer_steps(facts_of(has_timeline=timeline, held_back=held)) == []


def test_what_stands_for_steps_is_said() -> None:
    one = told(name="a")
    none = replace(one, view=replace(one.view, steady=Steady(reason="Nothing repeats.")))
    said = step_tables._no_steady_step.build(facts_of(built={answer_steps: [none, told(name="b")]}))
    assert said is not None
    assert (said.reason, said.why) == (Reason.NO_STEPS, "Nothing repeats. The report judges a, b as one step each.")
    assert step_tables._no_steady_step.build(facts_of(built={answer_steps: [one, none]})) is None
    assert step_tables._no_steady_step.build(facts_of(built={answer_steps: []})) is None


def test_the_parts_of_a_step_are_rows_the_largest_first() -> None:
    one = told(busy={"sync": 100, "gpu_busy": 900})
    step = replace(one.view.step, step_ns=1234.6, bare_wall_ns=(1.0, 990.7, 2.0), bare_known=True)
    build = step_tables.build_steady_steps.build
    rows = build(facts_of(built={answer_steps: [replace(one, view=replace(one.view, step=step))]}))
    assert rows is not None
    assert rows[["part", "part_ns", "share_frac"]].to_numpy().tolist() == [["gpu_busy", 900, 0.9], ["sync", 100, 0.1]]
    assert rows[["step_ns", "bare_ns", "replayed_ns", "count"]].iloc[0].tolist() == [
        1235, 991, round(step.run.step_ns), 10
    ]  # fmt: skip
    (blank,) = build(facts_of(built={answer_steps: [told(busy={"sync": 3})]}))["bare_ns"]
    assert blank is pd.NA
    short = told(busy={"sync": 3})
    short = replace(short, view=replace(short.view, parts=replace(short.view.parts, wall_ns=0)))
    assert build(facts_of(built={answer_steps: [short]}))["share_frac"].tolist() == [3.0]
    assert build(facts_of(built={answer_steps: []})) is None


def test_every_change_is_a_row() -> None:
    one = saver(low=None)
    one = replace(one, proposal=replace(one.proposal, count=1.239, time_ns=7.6, bytes=5.0))
    later = saver("fuse", later_ns=Saving(1.0, 2.0), after="sync:x")
    build = step_tables.build_changes.build
    rows = build(facts_of(built={answer_steps: [told(one, later)]}))
    assert rows is not None
    found = rows.astype(object).where(rows.notna(), None).to_dict("records")
    assert found[0] == {
        "step": "step", "kind": "sync", "about": "x", "count": 1.24, "time_ns": 8, "bytes": 5.0, "low_ns": None,
        "high_ns": 200.0, "low_frac": None, "high_frac": 0.2, "later_low_ns": None, "later_high_ns": None, "after": "",
        "tier": "timing",
    }  # fmt: skip
    assert (found[1]["later_low_ns"], found[1]["later_high_ns"], found[1]["after"]) == (1.0, 2.0, "sync:x")
    assert build(facts_of(built={answer_steps: [told()]})) is None


def test_what_can_be_made_now_explains_a_step() -> None:
    found = [saver("pause", lost_ns=1.0), saver("sync", 0.1, 0.123456, wrong_if="it is cold"),
             saver("fuse", after="sync:x"), saver("layout", 0.1, 0.1), saver("precision", 0.0, 0.0)]  # fmt: skip
    rows = build_step_diagnosis.build(facts_of(built={answer_steps: [told(*found)]}))
    assert rows is not None
    assert rows[["range", "rank", "defect", "gain_bound_frac", "time_to_win_ns"]].to_numpy().tolist() == [
        ["step", 1, "sync", 0.1235, 1235], ["step", 2, "layout", 0.1, 1000],
        ["step", 3, "precision", 0.0, 0],
    ]  # fmt: skip
    assert rows["reason"].iloc[0].endswith(" This explains 12% of the step. Wrong if: it is cold")
    assert rows["reason"].iloc[1].endswith(" This explains 10% of the step.")
    assert build_step_diagnosis.build(facts_of(built={answer_steps: [told()]})) is None


def judged(*answers: StepAnswer, **more: Any) -> Any:
    rows = ranges(0, 100, 200, 300)
    gaps = pd.DataFrame({"evidence": ["", "own", "", ""]})
    return facts_of(built={answer_steps: list(answers)}, **({"step_ranges": rows, "gaps": gaps, "set_up": {}} | more))


def at(*starts: int, name: str, **more: Any) -> StepAnswer:
    one = told(saver(), name=name, **more)
    return replace(one, view=replace(one.view, step=replace(one.view.step, phase=phase(*starts, name=name))))


def test_a_step_has_the_verdict_of_what_begins_most_in_it() -> None:
    parts = {"sync": 100, "gpu_busy": 500, "host_work": 300, "copies": 90}
    facts = judged(at(0, 100, name="a"), at(101, 102, 200, name="b", busy=parts), set_up={2: "modules"})
    assert verdicts(facts) == [
        ("sync", "a of 1 µs: "),
        ("sync", "b of 1 µs: gpu busy 50%, host work 30%, sync 10%"),
        (SET_UP, ""),
        ("", ""),
    ]


def test_without_ranges_each_row_has_the_verdict_of_the_first_step() -> None:
    none = ranges()
    assert verdicts(judged(at(0, name="a"), at(0, name="b"), step_ranges=none)) == [("sync", "a of 1 µs: ")] * 4
    assert verdicts(judged(step_ranges=none)) == [("", "")] * 4
    assert verdicts(judged()) == [("", "")] * 4


def test_a_part_of_a_step_without_time_is_that_of_one_ns() -> None:
    one = told(saver(), busy={"sync": 3})
    one = replace(one, view=replace(one.view, parts=replace(one.view.parts, wall_ns=0)))
    assert steps._verdict(one)[1].endswith("sync 300%")


def test_evidence_of_a_step_is_its_parts_and_what_its_row_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps.gaps, "COLUMNS", ())
    rows = build_gaps.build(
        judged(at(0, 100, name="a"), gaps=pd.DataFrame({"evidence": ["", "own", "", ""], "tier": ""}))
    )
    assert rows is not None
    assert rows["evidence"].tolist() == ["a of 1 µs: ", "a of 1 µs: ; own", "", ""]
    assert rows["verdict"].tolist() == ["sync", "sync", "", ""]
    assert build_gaps.build(judged(gaps=pd.DataFrame({"evidence": []}))) is None


def test_a_kind_of_step_has_its_last_verdict_that_is_no_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps.bare, "STEPS", (steps.bare.STEPS[0],))
    rows = ranges(0, 100, 200, 300, 400)
    rows["path"] = ["x", "x", "y", "x", "y"]
    found = {"step_ranges": rows, "set_up": {0: "", 2: "", 3: "", 4: ""}, "folded": {"x": "x", "y": "y"}}
    kinds = pd.DataFrame({"step": ["y", "x"], "evidence": "", "tier": "timing"})
    said = build_steps.build(judged(at(100, 101, name="a"), steps=kinds, **found))
    assert said is not None
    assert said[["step", "verdict"]].to_numpy().tolist() == [["y", SET_UP], ["x", "sync"]]
    assert build_steps.build(judged(steps=kinds.head(0))) is None
