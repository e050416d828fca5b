"""Which changes of a step are worth a finding, and in which order: each change says itself what it saves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from analysis.capture.model import Capture
from analysis.diagnosis import savers
from analysis.diagnosis.built import Built, Given, as_built
from analysis.diagnosis.savers import Saver, StepAnswer, answer, answers, rules, total_ns, touched
from analysis.diagnosis.step_findings import claims
from analysis.diagnosis.step_rules.view import Proposal
from analysis.diagnosis.vocabulary import do
from analysis.formats.report import Saving, kinds
from analysis.replay import savings
from analysis.replay.decompose import Decomposition
from analysis.replay.graph import Graph
from analysis.replay.simulate import simulate
from analysis.replay.steady import Steady
from tests import by_hand
from tests.by_hand import bools, graph, launches, on_step, view

LIKELY = {"sync_of_few": 0.4}  # as many steps of known causes have it


def proposal(kind: str = "sync", change: Any = None, **more: Any) -> Proposal:
    """Return one whose operations take the whole step."""
    return replace(by_hand.proposal(kind, change, **more), time_ns=1000.0)


@dataclass
class Saves:
    """A change that saves from `low` to `high` of the step, and `then` once the first change is made."""

    low: float
    high: float
    then: tuple[float, float] = (0.0, 0.0)

    def __call__(self, one: Graph, share: float) -> Graph:
        return one


def both(changes: Sequence[Saves]) -> Saves:
    return Saves(sum(one.low for one in changes), sum(one.high for one in changes))


def saving(step: savings.Step, change: Saves, bases: savings.Bases | None = None) -> savings.Saving:
    low, high = (change.low, change.high) if bases is None else change.then
    return savings.Saving(low * step.told_ns, high * step.told_ns, low, high, step, change)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Proposal]:
    """Return the list of what the rules propose."""
    found: list[Proposal] = []
    monkeypatch.setattr(savers, "proposals", lambda _: iter(found))
    monkeypatch.setattr(savings, "saving", saving)
    monkeypatch.setattr(savings, "together", both)
    monkeypatch.setattr(savings, "after", lambda step, change: step.bases)
    monkeypatch.setattr(savers, "as_built", lambda kind, *part: Built(0.0, 0.0, 1.0, 0.0).of(*part))
    monkeypatch.setattr(savers, "PAUSE", 0.0)
    monkeypatch.setattr(savers, "CLEAR", 0.0)
    monkeypatch.setattr(savers, "HIDDEN", 0.05)
    monkeypatch.setattr(savers, "FULL", 2.0)
    monkeypatch.setattr(savers, "chance", lambda likely, kind: LIKELY.get(kind, 1.0))
    return found


def kinds_of(found: Sequence[Saver]) -> list[str]:
    return [one.proposal.kind for one in found]


def test_every_module_of_rules_is_asked_but_not_what_they_see() -> None:
    assert "view" not in rules()
    assert {"sync", "pause", "kernels"} < set(rules())


def test_what_to_do_is_that_of_the_library_then_of_any_then_the_cure() -> None:
    assert do("data_loader", "pytorch").startswith("DataLoader(")
    assert do("data_loader", "cupy").startswith("Prepare the next batch")
    assert do("memory_roof", "pytorch") == kinds()["memory_roof"]["cure"]


@pytest.mark.parametrize(
    ("low", "lossy", "found"),
    [(0.01, False, ["sync"]), (0.0099, False, []), (0.02, True, ["sync"]), (0.0199, True, [])],
)
def test_a_change_is_worth_a_hundredth_of_the_step_and_one_of_the_results_twice_as_much(
    asked: list[Proposal], low: float, *, lossy: bool, found: list[str]
) -> None:
    asked.append(proposal(change=Saves(low, 0.5), lossy=lossy))
    told = answer(on_step(busy={"gpu_busy": 900}))
    assert (kinds_of(told.savers), kinds_of(told.replayed)) == (found, ["sync"])


@pytest.mark.parametrize(
    ("busy", "high", "hidden"),
    [
        ({"gpu_busy": 799, "copies": 799}, 0.05, True),  # idle for 20 % of the step
        ({"gpu_busy": 800}, 0.05, False),
        ({"copies": 800}, 0.05, False),
        ({"host_work": 900}, 0.05, True),
        ({"gpu_busy": 799}, 0.049, False),
    ],
)
def test_what_the_profiler_hides_is_told_where_the_gpu_is_idle(
    asked: list[Proposal], busy: dict[str, int], high: float, *, hidden: bool
) -> None:
    asked += [proposal(change=Saves(0.0, high)), proposal("pause", lost_ns=0.0)]
    told = answer(on_step(busy=busy))
    assert kinds_of(told.savers) == ["sync"] * hidden
    if hidden:
        assert (told.savers[0].saves_ns, told.savers[0].saves_frac) == (Saving(None, 50.0), Saving(None, 0.05))
    assert kinds_of(told.replayed) == ["sync", "pause"]


def test_what_saves_nothing_at_most_is_not_hidden(asked: list[Proposal]) -> None:
    asked.append(proposal(change=Saves(0.0, 0.0)))
    assert answer(on_step()).savers == ()


def test_what_may_save_more_than_what_surely_saves_comes_first(asked: list[Proposal]) -> None:
    asked += [
        proposal("fuse", Saves(0.1, 0.2)),  # 15 % in the middle
        proposal("precision", Saves(0.01, 0.03)),
        proposal("sync", Saves(0.0, 0.31, then=(0.5, 0.5))),
        proposal("layout", Saves(0.0, 0.3)),
        proposal("launch_bound", Saves(0.0, 0.31), after="fuse"),
        proposal("copies", Saves(0.0, 0.32)),
    ]
    told = answer(on_step(busy={"gpu_busy": 900}))
    assert kinds_of(told.savers) == ["copies", "sync", "fuse", "precision"]
    assert told.savers[1].saves_frac == Saving(None, 0.31)
    assert told.replayed[2].saves_frac == Saving(0.0, 0.31)


def test_of_two_changes_the_likelier_cause_comes_first_unless_it_saves_far_less(asked: list[Proposal]) -> None:
    asked += [
        proposal("sync_of_few", Saves(0.2, 0.4)),
        proposal("fuse", Saves(0.1, 0.2)),
        proposal("layout", Saves(0.05, 0.1)),
    ]
    assert kinds_of(answer(on_step()).savers) == ["fuse", "sync_of_few", "layout"]


def test_six_hidden_changes_are_told_the_largest_first(asked: list[Proposal]) -> None:
    asked += [proposal(f"k{at}", Saves(0.0, 0.1 * at)) for at in range(1, 8)]
    assert kinds_of(answer(on_step()).savers) == ["k7", "k6", "k5", "k4", "k3", "k2"]


def test_six_changes_are_told_the_largest_middle_first(asked: list[Proposal]) -> None:
    asked += [proposal(f"k{at}", Saves(0.01, 0.1 * at)) for at in range(1, 8)]
    told = answer(on_step(busy={"gpu_busy": 1000}))
    assert kinds_of(told.savers) == ["k7", "k6", "k5", "k4", "k3", "k2"]
    assert told.savers[0].opens_ns == pytest.approx(0.355 * 1000 * 10)
    assert len(told.replayed) == 7


def test_what_saves_once_the_first_change_is_made_comes_after_it(asked: list[Proposal]) -> None:
    asked += [
        proposal("sync", Saves(0.1, 0.2)),
        proposal("fuse", Saves(0.0, 0.0, then=(0.0, 0.02))),  # a hundredth in the middle
        proposal("layout", Saves(0.0, 0.0, then=(0.0, 0.019))),
        proposal("allocation", Saves(0.0, 0.0, then=(0.2, 0.4))),
        proposal("pause", lost_ns=0.0),  # no change of the step
    ]
    told = answer(on_step())
    assert kinds_of(told.savers) == ["sync", "allocation", "fuse"]
    assert [one.after for one in told.savers] == ["", "sync:x", "sync:x"]
    assert told.savers[1].later_ns == Saving(200.0, 400.0)
    assert told.savers[1].saves_frac == Saving(0.0, 0.0)
    assert [one.after for one in told.replayed] == ["", "sync:x", "", "sync:x", ""]  # as they were asked


@pytest.mark.parametrize(
    ("kind", "then", "left", "shares"),
    [
        ("fuse", (0.0, 0.05), 50.0, "sync:x"),  # 10 to 20 % alone: 12.5 % are of the same time, more than half of 15 %
        ("fuse", (-0.1, -0.05), 0.0, "sync:x"),
        ("fuse", (0.05, 0.1), 0.0, ""),
        ("pause", (0.0, 0.0), 0.0, ""),
    ],
)
def test_a_change_that_saves_the_time_of_the_first_says_what_is_left(
    asked: list[Proposal], kind: str, then: tuple[float, float], left: float, shares: str
) -> None:
    change = {"lost_ns": 1000.0} if kind == "pause" else {"change": Saves(0.1, 0.2, then)}
    asked += [proposal("sync", Saves(0.3, 0.4)), proposal(kind, **change)]
    found = answer(on_step()).savers
    assert [(one.left_ns, one.shares) for one in found] == [(0.0, ""), (pytest.approx(left), shares)]


def test_the_low_end_of_a_later_change_is_never_above_its_high_end(asked: list[Proposal]) -> None:
    asked += [proposal("sync", Saves(0.1, 0.2)), proposal("fuse", Saves(0.0, 0.0, then=(0.3, 0.4)), most_ns=100.0)]
    assert answer(on_step()).savers[1].later_ns == Saving(0.0, 100.0)


@dataclass
class Frees(Saves):
    """Leaves out 80 ns of the host's work before the first call."""

    def __call__(self, one: Graph, share: float) -> Graph:
        return replace(one, c_gap=np.maximum(one.c_gap - bools(0, of=2) * 80.0, 0.0))


@pytest.mark.parametrize(
    ("kind", "change", "gone", "high"),
    [
        ("precision", Saves, 0.0, 100.0),
        ("precision", Frees, 0.0, 180.0),  # with the work of the host
        ("precision", Frees, 80.0, 100.0),  # which the first change has left out already
        ("sync", Frees, 80.0, 100.0),  # the time of a change of the host holds its work
        ("host_work", Frees, 80.0, 100.0),
    ],
)
def test_a_later_change_saves_at_most_what_it_names(
    asked: list[Proposal], monkeypatch: pytest.MonkeyPatch, kind: str, change: Any, gone: float, high: float
) -> None:
    """Its operations take 100 ns."""

    def opened(step: savings.Step, first: Any) -> savings.Bases:
        return [(replace(one, c_gap=np.maximum(one.c_gap - gone, 0.0)), ns) for one, ns in step.bases]

    monkeypatch.setattr(savings, "after", opened)
    late = replace(proposal(kind, change(0.0, 0.0, then=(0.05, 0.5)), about="y"), time_ns=100.0)
    asked += [proposal("sync", Saves(0.1, 0.2)), late]
    one = graph([{"gap": 80.0}, {}], [{}, {}])
    assert answer(on_step(one)).savers[1].later_ns == Saving(50.0, high)


@pytest.mark.parametrize(
    ("first", "left", "then", "later"),
    [
        (Saves(0.4, 0.6), 0.5, (0.2, 0.4), Saving(100.0, 200.0)),  # shares of the half that is left
        (Saves(0.4, 0.6), 0.5, (0.9, 1.0), Saving(400.0, 500.0)),  # no more than is left if the first saves its most
        (Saves(0.6, 1.0), 0.5, (0.5, 1.0), Saving(0.0, 400.0)),
        (Saves(0.1, 0.2), 1.5, (0.5, 1.0), Saving(750.0, 900.0)),  # the first makes the replayed step longer
    ],
)
def test_a_later_change_saves_a_share_of_the_step_that_is_left(
    asked: list[Proposal], monkeypatch: pytest.MonkeyPatch, first: Saves, left: float, then: tuple[float, float],
    later: Saving,
) -> None:  # fmt: skip
    monkeypatch.setattr(savings, "after", lambda step, _: [(one, ns * left) for one, ns in step.bases])
    asked += [proposal("sync", first), proposal("fuse", Saves(0.0, 0.0, then=then))]
    told = answer(on_step())
    assert told.savers[1].later_ns is not None
    assert told.savers[1].later_ns.low == pytest.approx(later.low)
    assert told.savers[1].later_ns.high == pytest.approx(later.high)


@pytest.mark.parametrize(("other", "after"), [(0.02, "launch_bound:x"), (0.15, "sync:x")])
def test_work_of_the_gpu_comes_after_the_change_that_opens_far_more(
    asked: list[Proposal], monkeypatch: pytest.MonkeyPatch, other: float, after: str
) -> None:
    """It saves 20 % once a graph launches the step, and `other` after the first change."""
    monkeypatch.setattr(savings, "after", lambda step, change: [(one, 0.5 + change.low) for one, _ in step.bases])

    def opened(step: savings.Step, change: Saves, bases: savings.Bases | None = None) -> savings.Saving:
        graphed = bases is not None and bases[0][1] == 0.7
        part = 0.2 if graphed else other
        return saving(step, change if bases is None else replace(change, then=(part, part)), bases)

    monkeypatch.setattr(savings, "saving", opened)
    asked += [
        proposal("sync", Saves(0.3, 0.3)),
        proposal("launch_bound", Saves(0.2, 0.2)),
        proposal("fuse", Shortens(0.0, 0.0)),
    ]
    told = answer(on_step(launches(100.0, 200.0)))
    assert [(one.proposal.kind, one.after) for one in told.savers] == [
        ("sync", ""),
        ("launch_bound", ""),
        ("fuse", after),
    ]


@dataclass
class Shortens(Saves):
    """Halves the first kernel."""

    def __call__(self, one: Graph, share: float) -> Graph:
        return replace(one, o_duration=one.o_duration * np.array([0.5, 1.0]))


@pytest.mark.parametrize(
    ("kind", "change", "more", "high"),
    [
        ("sync", Saves(0.5, 0.6), {}, 0.72), ("sync", Saves(0.5, 0.8), {}, 0.72), ("sync", Saves(0.5, 0.6), {"most_ns": 650.0}, 0.65),
        ("sync", Saves(0.5, 0.6), {"built_ns": 650.0}, 0.65), ("sync", Saves(0.5, 0.6), {"built_ns": 550.0}, 0.6),
        ("sync", Saves(0.5, 0.6), {"best_ns": 900.0}, 1.0), ("allocation", Saves(0.5, 0.6), {}, 1.0),
        ("sync", Shortens(0.05, 0.06), {}, 0.1), ("fuse", Shortens(0.5, 0.6), {}, 0.5), ("fuse", Shortens(0.5, 0.8), {"most_ns": 650.0}, 0.65),
    ],
)  # fmt: skip
def test_no_change_saves_the_kernels_that_it_leaves_and_no_fused_one_more_than_its_parts(
    asked: list[Proposal],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    change: Saves,
    more: dict[str, float],
    high: float,
) -> None:
    """Kernels take 300 ns of 1000, and 20 less in another run; what only makes the first faster saves 100 at most."""
    monkeypatch.setattr(savers, "as_built", lambda kind, *part: Built(0.0, 1.0, 2.0, 0.0).of(*part))
    asked.append(proposal(kind, change, **more))
    told = answer(on_step(launches(100.0, 200.0)))
    assert told.savers[0].saves_frac == Saving(change.low, pytest.approx(high))


@pytest.mark.parametrize(("more", "high"), [({}, 0.2), ({"most_ns": 90.0}, 0.18)])
def test_faster_kernels_save_no_more_than_they_take_of_a_step_that_a_profiler_lengthens(
    asked: list[Proposal], monkeypatch: pytest.MonkeyPatch, more: dict[str, float], high: float
) -> None:
    """The first kernel takes 100 ns, of 1000 with the profiler and perhaps 500 without."""
    monkeypatch.setattr(savers, "as_built", lambda kind, *part: Built(0.0, 1.0, 2.0, 0.0).of(*part))
    asked.append(proposal("precision", Shortens(0.05, 0.15), **more))
    one = on_step(launches(100.0, 200.0))
    (told,) = answer(replace(one, step=replace(one.step, bare_ns=(1000.0, 500.0)))).replayed
    assert told.saves_frac.high == pytest.approx(high)
    assert told.saves_ns.high == more.get("most_ns", 100.0)


@pytest.mark.parametrize(
    ("kind", "gap", "low", "high"),
    [
        ("memset", 0.0, 0.05, 0.1),
        ("memset", 30.0, 0.05, 0.13),  # with the work of the host
        ("memset", 0.0, 0.11, 0.11),  # surely, by its replay
        ("memcpy", 0.0, 0.05, 0.24),
    ],
)
def test_less_memory_to_set_saves_at_most_what_it_takes(
    asked: list[Proposal], monkeypatch: pytest.MonkeyPatch, kind: str, gap: float, low: float, high: float
) -> None:
    """The operation takes 100 ns of 1000."""

    @dataclass
    class Drops(Saves):
        def __call__(self, one: Graph, share: float) -> Graph:
            return replace(one, o_duration=one.o_duration * [0.0, 1.0], c_gap=one.c_gap - [gap, 0.0])

    monkeypatch.setattr(savers, "as_built", lambda kind, *part: Built(0.0, 1.0, 2.0, 0.0).of(*part))
    asked.append(replace(proposal("redundant_copy", Drops(low, 0.12)), time_ns=100.0))
    one = graph([{"gap": 50.0}, {}], [{"kind": kind, "ns": 100.0}, {}])
    assert answer(on_step(one)).savers[0].saves_frac == Saving(low, pytest.approx(high))


def test_a_share_is_no_larger_than_the_time_that_a_change_saves_at_most(
    asked: list[Proposal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its replay, the change saves 120 ns of 1000; what it makes faster takes 100."""
    monkeypatch.setattr(savers, "as_built", lambda kind, *part: Built(0.3, 0.5, 1.3, 0.0).of(*part))
    asked.append(proposal("fuse", Shortens(0.12, 0.13)))
    (told,) = answer(on_step(launches(100.0, 200.0))).savers
    assert told.saves_frac == Saving(pytest.approx(0.084), pytest.approx(0.1))
    assert told.saves_ns == Saving(pytest.approx(84.0), pytest.approx(100.0))


@pytest.mark.parametrize(("high", "told_high"), [(0.049, None), (0.06, 0.06), (0.2, 0.115)])
def test_what_most_programs_need_saves_at_most_its_time_and_comes_last(
    asked: list[Proposal], high: float, told_high: float | None
) -> None:
    asked += [
        replace(proposal("redundant_copy", Saves(0.04, high), needed=True), time_ns=100.0),
        proposal("sync", Saves(0.02, 0.04)),
    ]
    told = answer(on_step())
    assert kinds_of(told.savers) == ["sync", *(["redundant_copy"] if told_high else [])]
    if told_high:
        assert told.savers[1].saves_frac == Saving(None, pytest.approx(told_high))
    del asked[1]
    found = claims([answer(on_step())])
    assert [one.kind for one in found] == ["nothing", *(["redundant_copy"] if told_high else [])]
    assert found[0].title == f"Nothing {'surely ' if told_high else ''}saves 1% of the step"


def test_after_time_lost_outside_the_steps_nothing_opens(asked: list[Proposal]) -> None:
    asked += [proposal("pause", lost_ns=1e6), proposal("fuse", Saves(0.0, 0.0, then=(0.5, 0.5)))]
    assert kinds_of(answer(on_step()).savers) == ["pause"]


def test_a_change_that_needs_one_that_is_worth_it_waits_for_it(asked: list[Proposal]) -> None:
    asked += [
        proposal("launch_bound", Saves(0.3, 0.5, then=(0.1, 0.3)), after="sync|copies"),
        proposal("sync", Saves(0.01, 0.03)),
        proposal("fuse", Saves(0.1, 0.2)),
    ]
    told = answer(on_step())
    # sync opens the launches: 1 to 3 % and 30 to 50 % together, of 10 steps
    assert kinds_of(told.savers) == ["sync", "launch_bound", "fuse"]  # 10 to 30 % of what is left, and 10 to 20 %
    assert told.savers[0].opens_ns == pytest.approx((0.31 + 0.53) / 2 * 1000 * 10)
    assert told.savers[2].opens_ns == pytest.approx(0.15 * 1000 * 10)


def test_a_needed_change_that_likely_saves_is_told_for_what_it_opens(asked: list[Proposal]) -> None:
    asked += [
        proposal("launch_bound", Saves(0.3, 0.5), after="sync"),
        proposal("sync", Saves(0.0, 0.02)),
        proposal("fuse", Saves(0.0, 0.04)),
    ]
    (told,) = answer(on_step()).savers
    assert (told.proposal.kind, told.opens_ns) == ("sync", pytest.approx((0.3 + 0.52) / 2 * 1000 * 10))


@pytest.mark.parametrize(
    ("low", "high", "alone"), [(0.0, 0.02, True), (0.0, 0.0199, False), (-0.001, 0.5, False), (None, None, False)]
)
def test_a_change_stands_alone_if_it_likely_saves_a_hundredth(
    low: float | None, high: float | None, *, alone: bool
) -> None:
    assert Saver(proposal(), Saving(), Saving(low, high)).stands_alone is alone


@pytest.mark.parametrize(
    ("low", "high", "most", "built"),
    [
        (0.2, 0.4, None, (0.18, 0.49)),  # 10 % less, and 15 % of what is left of the step
        (0.2, 0.4, 0.45, (0.18, 0.45)),
        (0.2, 0.4, 0.3, (0.18, 0.4)),  # the replay counts more than what it can save at most
        (0.02, 0.04, None, (0.018, 0.052)),  # at most 30 % more
        (-0.1, -0.02, None, (-0.1, -0.02)),
        (0.0, 1.0, None, (0.0, 1.0)),
        (0.2, 0.9, None, (0.415, 0.915)),  # no wider than half of the step
        (0.01, 0.9, None, (0.009, 0.915)),  # what may save nothing stays so
    ],
)
def test_what_is_built_saves_less_or_more_than_what_is_replayed(
    low: float, high: float, most: float | None, built: tuple[float, float]
) -> None:
    found = Built(0.1, 0.15, 1.3, 0.0).of(low, high, most)
    assert (found.low, found.high) == pytest.approx(built)
    better = max(high, min(0.75, 2 * high)) if low >= 0.01 else high
    assert Built(0.1, 0.15, 1.3, 0.0).of(low, high, most, 0.75) == Built(0.1, 0.15, 1.3, 0.0).of(low, better, most)
    assert savers._of(on_step(), Saving(*built), 1000.0) == Saving(built[0] * 1000, built[1] * 1000)
    assert savers._of(on_step(), Saving(0.2, 0.4), 300.0) == Saving(200.0, 300.0)
    assert savers._of(on_step(), Saving(0.0, 0.0), 1000.0) == Saving(0.0, 0.0)


@pytest.mark.parametrize(("cut", "ends"), [(0.0, (0.5, 1.0)), (0.5, (0.365, 0.865)), (1.0, (0.3, 0.8))])
def test_what_is_wider_than_half_of_the_step_gives_way_at_one_end_or_both(
    cut: float, ends: tuple[float, float]
) -> None:
    found = Built(0.5, 1.0, 2.0, cut).of(0.46, 0.8)
    assert (found.low, found.high) == pytest.approx(ends)


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [
        (0.4, 0.5, (0.35, 0.55)),  # as wide as `widest`, half of it upwards
        (0.04, 0.05, (0.0325, 0.0575)),  # half as wide as the saving
        (0.3, 0.6, (0.36, 0.6)),  # no wider than is allowed: the lower end rises
        (0.025, 0.028, (0.025, 0.028)),  # a small one is as its replay says
        (0.01, 0.04, (0.0, 0.04)),  # what surely saves less than 2 % may save nothing
        (-0.015, 0.4, (0.16, 0.4)),
        (0.9, 1.0, (0.8, 1.0)),
    ],
)
def test_a_given_change_is_known_as_well_as_built_ones_were(low: float, high: float, ends: tuple[float, float]) -> None:
    found = Given(0.5, 0.2, 0.5).of(low, high)
    assert (found.low, found.high) == pytest.approx(ends)


@pytest.mark.parametrize("kind", kinds())
def test_every_cause_has_an_interval(kind: str) -> None:
    found = as_built(kind, 0.2, 0.4)
    assert (found.low or 0.0) < 0.2 < 0.4 < (found.high or 0.0)


def test_without_a_bare_time_a_change_has_to_save_more(asked: list[Proposal], monkeypatch: pytest.MonkeyPatch) -> None:
    asked += [
        proposal("sync", Saves(0.03, 0.04)),
        proposal("fuse", Saves(0.015, 0.02)),
        proposal("sets", Saves(-0.01, 0.02)),
    ]
    monkeypatch.setattr(savers, "CLEAR", 0.02)
    one = on_step()
    assert kinds_of(answer(one).savers) == ["sync"]
    assert [saver.low for saver in answer(one).replayed] == [0.03, 0.0, -0.01]
    assert kinds_of(answer(replace(one, step=replace(one.step, bare_known=True))).savers) == ["sync", "fuse"]


@pytest.mark.parametrize(("busy", "named"), [(899, ["sync", "fuse"]), (900, ["fuse"])])
def test_the_rest_of_a_step_that_keeps_the_gpu_busy_may_be_the_profilers(
    busy: int, named: list[str], asked: list[Proposal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savers, "FULL", 0.9)
    asked += [proposal("sync", Saves(0.04, 0.045)), proposal("fuse", Saves(0.03, 0.04))]
    one = on_step(busy={"gpu_busy": busy})
    assert kinds_of(answer(one).savers) == named
    assert kinds_of(answer(replace(one, step=replace(one.step, bare_known=True))).savers) == ["sync", "fuse"]


def test_a_pause_is_as_long_without_a_profiler_whose_steps_are_shorter(asked: list[Proposal]) -> None:
    asked.append(proposal("pause", lost_ns=10_000.0))
    one = on_step()
    (told,) = answer(replace(one, step=replace(one.step, bare_ns=(1000.0, 500.0)))).replayed
    assert told.saves_frac == Saving(0.5, pytest.approx(10_000 / 15_000))


def test_the_larger_of_two_needed_changes_opens_what_needs_them(asked: list[Proposal]) -> None:
    asked += [
        proposal("sync", Saves(0.02, 0.02)),
        proposal("copies", Saves(0.03, 0.03)),
        proposal("launch_bound", Saves(0.1, 0.1), after="sync|copies"),
        proposal("graphs", Saves(0.001, 0.001), after="sync"),  # opens less than is open already
        proposal("note", after="sync"),  # no change
    ]
    told = answer(on_step())
    assert [(one.proposal.kind, round(one.opens_ns, 6)) for one in told.savers] == [
        ("copies", pytest.approx(1500)),
        ("sync", pytest.approx(210)),
    ]


def test_a_pause_that_opens_nothing_is_worth_itself(asked: list[Proposal]) -> None:
    asked += [proposal("pause", lost_ns=5000.0), proposal("note", Saves(0.6, 0.8), after="pause")]
    assert [one.opens_ns for one in answer(on_step()).savers] == [pytest.approx(5000.0)]


@pytest.mark.parametrize(("least", "low", "after"), [(-0.0802, 0.2198, ""), (-0.0001, 0.2999, ""), (0.0, 0.3, "sync")])
def test_a_needed_change_that_saves_too_little_is_made_with_what_needs_it(
    asked: list[Proposal], least: float, low: float, after: str
) -> None:
    asked += [
        proposal("sync", Saves(least, 0.1)),
        proposal("launch_bound", Saves(0.3, 0.5), after="sync"),
        proposal("note", None, after="sync", lost_ns=0.0),
    ]
    found = {one.proposal.kind: one for one in answer(on_step()).replayed}
    assert found["launch_bound"].saves_frac.low == pytest.approx(low)
    assert found["launch_bound"].proposal.after == after
    assert found["note"].proposal.change is None


def test_one_of_two_needed_changes_is_enough(asked: list[Proposal]) -> None:
    asked += [
        proposal("sync", Saves(0.01, 0.1)),
        proposal("copies", Saves(0.0, 0.0)),
        proposal("launch_bound", Saves(0.3, 0.5), after="sync|copies"),
    ]
    assert answer(on_step()).replayed[2].saves_frac == Saving(0.3, 0.5)


def test_a_change_that_needs_what_is_no_change_stands_alone(asked: list[Proposal]) -> None:
    asked += [proposal("pause", lost_ns=0.0), proposal("fuse", Saves(0.1, 0.2), after="pause")]
    (told,) = answer(on_step()).savers
    assert (told.saves_frac, told.proposal.after) == (Saving(0.1, 0.2), "pause")


@pytest.mark.parametrize(
    ("wall", "low", "is_worth"),
    [(10_000_000, 0.0083, True), (10_000_000, 0.0081, False), (1_000_000, 0.0, True)],
)
def test_work_of_the_host_that_belongs_to_no_loop_is_no_part_of_the_step(
    asked: list[Proposal], wall: int, low: float, *, is_worth: bool
) -> None:
    """Two gaps of 0.9 ms beside five uploads: 1.8 of 10 ms, so a change is worth 0.82 %."""
    calls = [{"gap": 900_000.0} if at < 2 else {} for at in range(12)]
    ops = [{"kind": "memcpy", "bytes": 1e6} if at % 2 == 0 and at < 10 else {} for at in range(12)]
    asked.append(proposal(change=Saves(low, 0.5)))
    told = answer(on_step(graph(calls, ops), wall=wall, count=1, busy={"gpu_busy": wall}))
    assert kinds_of(told.savers) == ["sync"] * is_worth


# Where the replay is far from the timeline


def shorter(*rows: int, by: float = 30.0, gap: float = 0.0) -> Any:
    """Return a change that makes operations shorter, all of it only at the end where it surely does."""

    def change(one: Graph, share: float) -> Graph:
        taken = np.isin(np.arange(len(one.o_duration)), rows) * by * share
        return replace(one, o_duration=one.o_duration - taken, c_gap=one.c_gap - bools(0, of=len(one.c_gap)) * gap)

    return change


def two_gpus(**more: Any) -> Graph:
    """Operations of 100 ns, two on one GPU, one on another, and one of another process, 15 ns apart; two steps."""
    given = {"stream_names": ("GPU 0/7", "GPU 0/8", "GPU 1/7", "GPU 2/7"), "stream_pid": np.array([1, 1, 1, 2])}
    return graph([{}] * 4, [{"ns": 100.0, "stream": at} for at in range(4)], steps=2, **given, **more)


@pytest.mark.parametrize(
    ("change", "most"),
    [
        (shorter(0, 1), 30.0),  # both on GPU 0: 60 ns of two steps
        (shorter(0, 2), 15.0),  # the GPU that wins most
        (shorter(3), 0.0),  # of another process
        (shorter(0, by=-30.0), 0.0),  # longer
        (shorter(gap=1.0), 1000.0 - 65.0),  # the GPU works from 19 to 149 ns of two steps
        (shorter(0, gap=1.0), 1000.0 - 65.0 + 15.0),
        (shorter(0, by=9e9), 1000.0),  # at most the step
    ],
)
def test_a_replay_that_is_off_tells_only_the_most(asked: list[Proposal], change: Any, most: float) -> None:
    asked.append(proposal(change=change))
    (told,) = answer(on_step(two_gpus(), reason="It is off.")).replayed
    assert told.saves_ns == Saving(None, most)
    assert told.saves_frac == Saving(None, most / 1000.0)


def test_a_busy_gpu_leaves_no_idle_time_to_win(asked: list[Proposal]) -> None:
    asked.append(proposal(change=shorter(gap=1.0)))
    one = graph([{}], [{"ns": 5000.0}])
    (told,) = answer(on_step(one, reason="It is off.")).replayed
    assert told.saves_ns.high == 0.0


def test_a_step_without_operations_of_its_own_has_only_idle_time(asked: list[Proposal]) -> None:
    asked.append(proposal(change=shorter()))
    one = graph([{}], [{"stream": 1}], stream_pid=np.array([1, 2]))
    (told,) = answer(on_step(one, reason="It is off.")).replayed
    assert told.saves_ns.high == 0.0


def test_six_bounds_of_at_least_a_hundredth_are_told(asked: list[Proposal]) -> None:
    asked += [proposal(f"k{at}", shorter(0, by=at)) for at in (19.9, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0)]
    told = answer(on_step(two_gpus(), reason="It is off."))
    assert kinds_of(told.savers) == ["k70.0", "k60.0", "k50.0", "k40.0", "k30.0", "k20.0"]
    asked[:] = asked[:2]
    assert kinds_of(answer(on_step(two_gpus(), reason="It is off.")).savers) == ["k20.0"]
    assert kinds_of(answer(on_step(two_gpus(), reason="It is off.")).replayed) == ["k20.0", "k19.9"]


# What it counts for


@pytest.mark.parametrize("reason", ["", "It is off."])
def test_time_outside_the_steps_is_a_share_of_it_and_the_steps(
    asked: list[Proposal], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savers, "PAUSE", 0.1)
    asked.append(proposal("pause", lost_ns=10_000.0))
    (told,) = answer(on_step(reason=reason)).replayed
    assert told.saves_ns == Saving(9000.0, 10_000.0)  # no more than it takes
    assert told.saves_frac == Saving(0.45, 0.5)  # of 10 µs and 10 steps of 1 µs
    asked[0] = proposal("note")
    assert answer(on_step()).replayed[0].saves_ns == Saving(0.0, 0.0)


@pytest.mark.parametrize(
    ("more", "opens", "total"),
    [
        ({}, 0.0, 1500.0),
        ({"lossy": True}, 0.0, 750.0),  # half of the programs may do it
        ({"lost_ns": 1.0}, 0.0, 150.0),  # once in the run
        ({}, 2000.0, 2000.0),
    ],
)
def test_a_change_counts_in_all_steps_or_as_what_it_opens(more: dict[str, Any], opens: float, total: float) -> None:
    one = Saver(proposal(**more), Saving(100.0, 200.0), Saving(0.1, 0.2), opens_ns=opens)
    assert total_ns(on_step(), one) == total
    assert total_ns(on_step(), replace(one, saves_ns=Saving(), opens_ns=0.0)) == 0.0


def moved(one: Graph, share: float) -> Graph:
    assert share == 0.5  # as likely as not
    return replace(one, o_duration=one.o_duration - [0, 1, -1, 0], o_stream=one.o_stream + np.arange(4) // 3)


@pytest.mark.parametrize(("kind", "rows"), [("sync", [1, 3]), ("slow_rank", [])])
def test_a_change_touches_what_becomes_shorter_or_runs_elsewhere(kind: str, rows: list[int]) -> None:
    told = StepAnswer(on_step(launches(2.0, 3.0, 4.0, 5.0)), (), ())
    assert np.flatnonzero(touched(told, Saver(proposal(kind, moved), Saving(), Saving()))).tolist() == rows
    assert touched(told, Saver(proposal(kind), Saving(), Saving())).tolist() == [False] * 4


def test_each_step_is_replayed_once_and_one_without_time_is_none(
    asked: list[Proposal], monkeypatch: pytest.MonkeyPatch
) -> None:
    known, other, empty = (view(launches(2.0), name=name).step for name in ("known", "other", "empty"))
    empty = replace(empty, bare_ns=(5.0, 0.0))
    by_phase = {id(one.phase): one for one in (other, empty)}
    monkeypatch.setattr(savings, "step", lambda _, phase: by_phase[id(phase)])
    steady = Steady((known.phase, other.phase, empty.phase))
    parts = Decomposition(7, (), (), view(launches(2.0)).parts.operations, ())
    found = answers(Capture(), steady, known=(known, parts))
    assert [one.name for one in found] == ["known", "other"]
    assert found[0].view.parts is parts
    assert found[1].view.parts.wall_ns == round(simulate(other.graph).step_ns)
    monkeypatch.setattr(savers, "find", lambda _: steady)
    assert [one.name for one in answers(Capture(), known=(known, parts))] == ["known", "other"]


def test_the_step_with_a_change_can_be_replayed(asked: list[Proposal]) -> None:
    asked.append(proposal(change=Saves(0.1, 0.2)))
    one = on_step()
    replay = answer(one).savers[0].replay
    assert replay is not None
    assert (replay.step, replay.change) == (one.step, asked[0].change)
