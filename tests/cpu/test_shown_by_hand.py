"""What a finding cites, where the timeline and the source show it, and what is drawn of it; by hand, times in ns."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.capture.model import Capture
from analysis.diagnosis import scenes, spans
from analysis.diagnosis.claims import CHECK, Claim, Replays, cell, findings, parts
from analysis.diagnosis.clocks import KIND, lowered_clocks
from analysis.diagnosis.findings import findings_of
from analysis.diagnosis.lines import lines_of, with_lines
from analysis.diagnosis.scenes import Bars, Lane, scenes_of
from analysis.diagnosis.spans import Span, Timeline, build_spans, said, show_findings, timeline_of
from analysis.formats.report import Saving, Tier
from analysis.formats.report import Span as ShownSpan
from analysis.replay.simulate import Run, simulate
from analysis.tables.lanes import pauses_of
from analysis.tables.sampled import CAPTURE, CLOCK, OfGpu, build_sampled_steps
from tests.by_hand import bools, captured, graph, launches, op
from tests.declared import facts_of


def claim(**more: Any) -> Claim:
    return Claim(**({"kind": "sync", "title": "Title", "sentence": "It waits."} | more))


# What it cites


def test_a_finding_is_named_by_its_subject_or_its_first_row() -> None:
    first, second = (cell("changes", {"step": "s", "about": 7 + at}, "count", 1) for at in (0, 1))
    assert claim(cells=(first, second)).id == "sync · program · s 7"
    assert claim(cells=(first,), subject="x", scope="step s").id == "sync · step s · x"
    assert claim().id == "sync · program"


@pytest.mark.parametrize(
    ("table", "given", "tier"),
    [("counters", None, Tier.COUNTERS), ("source", None, Tier.SAMPLED), ("gaps", None, Tier.TIMING), ("gaps", Tier.STATIC, Tier.STATIC)],
)  # fmt: skip
def test_a_cell_has_plain_values_and_the_tier_of_its_table(table: str, given: Tier | None, tier: Tier) -> None:
    found = cell(table, {"gpu": np.int64(3), "name": "a"}, "n", np.float64(1.5), unit="µs", tier=given)
    assert (found.row, found.value, found.unit, found.evidence) == ({"gpu": 3, "name": "a"}, 1.5, "µs", tier)
    assert (type(found.row["gpu"]), type(found.value)) == (int, float)


@pytest.mark.parametrize(
    ("row", "said_"), [({"kernel": "k", "level": "dram", "place": "a"}, " (dram)"), ({"reason": "wait"}, " (wait)"), ({"kernel": "k"}, "")]
)  # fmt: skip
def test_one_of_several_rows_of_a_kernel_is_told(row: dict[str, str], said_: str) -> None:
    assert parts(cell("roofline", row, "n", 1)) == said_


def test_findings_are_numbered_from_one_and_have_a_bound_and_a_check() -> None:
    shown = ShownSpan(1, 2, "Look.")
    first, second, third = findings(
        [claim(bound_ns=5, do="Do."), claim(saves_ns=Saving(1.0, 2.0), bound_ns=5, check="Run it."), claim()],
        {2: shown},
    )
    assert [first.rank, second.rank, third.rank] == [1, 2, 3]
    assert [one.saves_ns for one in (first, second, third)] == [Saving(None, 5.0), Saving(1.0, 2.0), Saving()]
    assert [one.check for one in (first, second, third)] == [CHECK, "Run it.", ""]
    assert [one.spans for one in (first, second, third)] == [[], [shown], []]
    assert findings([claim()])[0].spans == []


def test_the_three_hottest_lines_of_a_kernel_are_shown() -> None:
    rows = [("k", f"dir/a.py:{at}", 0.2) for at in (7, 8, 9, 10)] + [
        ("j", "SASS 0x10", 0.9), ("j", "b.cu:5", 0.05), ("j", "b.cu:6", 0.049), ("i", "SASS 0x10", 0.9)
    ]  # fmt: skip
    source = pd.DataFrame(rows, columns=["kernel", "place", "share_frac"])
    lines = lines_of(source)
    assert [(one.file, one.line, one.language) for one in lines["k"]] == [
        ("dir/a.py", at, "Python") for at in (7, 8, 9)
    ]
    assert [(one.file, one.line, one.language) for one in lines["j"]] == [("b.cu", 5, "CUDA")]
    assert set(lines) == {"k", "j"}
    cells = (
        cell("changes", {"about": "k"}, "n", 1),
        cell("changes", {"kernel": "none"}, "n", 1),
        cell("a", {"kernel": "j"}, "n", 1),
    )
    named = with_lines(findings([claim(cells=cells), claim(cells=cells[:2]), claim()]), source)
    assert [[one.file for one in finding.source] for finding in named] == [["b.cu"], ["dir/a.py"] * 3, []]
    assert with_lines(findings([claim(cells=cells)]), source.head(0))[0].source == []


# Clocks


def sampled(*runs: tuple[int, float], gpu: int = 0, busy: float = 0.6, idle: int = 9) -> OfGpu:
    """Return samples of 1000 ns: so many at each clock in MHz, after `idle` ones at 100 MHz."""
    clock = np.concatenate([np.full(idle, 100.0), *(np.full(count, mhz) for count, mhz in runs)]) * 1e6
    shares = np.where(np.arange(len(clock)) < idle, 0.5, busy)
    found = SimpleNamespace(
        gpu=gpu, values={CLOCK: clock}, shares=shares, clock=SimpleNamespace(offset=70.0),
        samples=SimpleNamespace(begin=np.arange(len(clock)) * 1000.0, period=1000.0),
        launches=SimpleNamespace(start=np.array([1000.0, 500.0]), end=np.array([201_000.0, 100_000.0])),
    )  # fmt: skip
    return OfGpu(found, pd.DataFrame(), np.zeros(0, np.int64), 1.0)  # type: ignore[arg-type]


def clocks_of(*gpus: OfGpu) -> list[Claim]:
    rows = [(name, gpu, at + gpu, 5.0) for at, name in ((1.0, CAPTURE), (9.0, "step")) for gpu in (2, 1, 0)]
    table = pd.DataFrame(rows, columns=["range", "gpu", "sm_clock_hz", "lowest_clock_hz"])
    return lowered_clocks(facts_of(sampled=list(gpus), built={build_sampled_steps: table}))


def test_a_lowered_clock_costs_what_the_best_clock_would_save() -> None:
    (found,) = clocks_of(sampled((1, 1860), (10, 1000), (85, 2000), (4, 4000)))
    # ten samples of 1 µs at half of the clock, one at 93 %, of 200 µs
    assert found.saves_ns == Saving(0.0, pytest.approx(5070.0))
    assert found.saves_frac == Saving(0.0, pytest.approx(0.02535))
    assert (found.kind, found.subject, found.span) == (KIND, "GPU 0", (10070, 11070))  # the first sample that is slow
    assert "is 1000 MHz to 2000 MHz in 90% of the busy samples, and below 1860 MHz in 10% of them" in found.sentence
    assert [(one.column, one.value, one.evidence) for one in found.cells] == [
        ("sm_clock_hz", 1.0, Tier.SAMPLED), ("lowest_clock_hz", 5.0, Tier.SAMPLED)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "is_lowered"),
    [
        (sampled((92, 2000), (8, 1750)), True),  # 8 samples lose an eighth: a hundredth of all
        (sampled((93, 2000), (7, 1750)), False),
        (sampled((80, 2000), (20, 1859)), True),  # below 93 %
        (sampled((80, 2000), (20, 1860)), False),
        (sampled((96, 2000), (4, 500)), False),  # fewer than one in twenty
        (sampled((94, 2000), (6, 1000)), True),
        (sampled((94, 2000), (6, 4000)), True),
        (sampled((25, 1000), (25, 2000)), True),
        (sampled((25, 1000), (24, 2000)), False),  # too few samples
        (sampled((25, 1000), (25, 2000), busy=0.5), False),  # half of the time is not busy
    ],
)
def test_a_clock_is_lowered_if_busy_samples_lose_a_hundredth(one: OfGpu, *, is_lowered: bool) -> None:
    assert len(clocks_of(one)) == is_lowered


def test_the_gpu_that_loses_most_is_told_with_the_number_of_others() -> None:
    one, worst, same = (sampled((count, 1000), (80, 2000), gpu=gpu) for gpu, count in enumerate((20, 40, 30)))
    none = sampled((80, 2000), gpu=3)
    none.found.values.clear()  # type: ignore[attr-defined]
    assert [one.subject for one in clocks_of(one, none)] == ["GPU 0"]
    (found,) = clocks_of(one, worst, none)
    assert found.subject == "GPU 1"
    assert found.sentence.endswith("at most. 1 other GPU does so, too.")
    assert found.cells[0].value == 2.0
    assert clocks_of(same, worst, one)[0].sentence.endswith("2 other GPUs do so, too.")
    assert "other" not in clocks_of(one)[0].sentence
    assert clocks_of(none) == []


# Stretches of the timeline


@pytest.mark.parametrize(
    ("begin", "end", "clock", "words"),
    [
        (1_000_000_000, 2_000_000_000, "nsys", "Zoom to 1.000 s – 2.000 s in"),
        (0, 5_000_000_000_000, "nsys", "Zoom to 0.000 s – 5000.000 s in"),
        (1_000_000_000, 1_099_000_000, "", "Look at 1.00000 s to 1.09900 s of"),  # 99 ms: five digits
        (1_000_000_000, 1_000_000_001, "", "Look at 1.000000000 s to 1.000000001 s of"),
        (7, 7, "", "Look at 0.000000007 s to 0.000000007 s of"),
        (500_000_000, 3_000_000_000, "torch", "Look at 0.000 s to 2.000 s after the first"),  # it begins before
        (0, 1_000_000_000, "torch", "Look at -1.000 s to 0.000 s after"),
    ],
)
def test_a_stretch_is_told_to_a_thousandth(begin: int, end: int, clock: str, words: str) -> None:
    found = said(Span(begin, end, "it"), clock, 1_000_000_000)
    assert found.startswith(words)
    assert found.endswith(": it.")


def timeline(ops: list[dict[str, Any]], *, labels: list[list[str]] | None = None, **more: Any) -> Timeline:
    """Return a timeline without ranges and calls, with each device as a place."""
    table = captured(ops).gpu_ops
    place = pd.factorize(table["device"], sort=True)[0].astype(np.int64)
    rows = {"ranges": [], "calls": []} | more
    tables = [pd.DataFrame(rows[name], columns=["start_ns", "end_ns", "pid", "tid", "name", "level"]) for name in rows]
    return Timeline(table, *tables, place, labels or [[]] * 9)


def test_a_timeline_is_busy_in_the_union_and_a_call_launches_once() -> None:
    one = timeline([op(10, 10, 1), op(15, 2, 1), op(40, 5), op(20, 3, 6, tid=2)])
    assert (one.start.tolist(), one.end.tolist()) == ([10, 15, 20, 40], [20, 17, 23, 45])
    assert [part.tolist() for part in one.busy] == [[10, 40], [23, 45]]
    assert one.launches(Span(0, 100, ""))[["start_ns", "end_ns", "tid"]].to_numpy().tolist() == [[1, 6, 1], [6, 11, 2]]


def calls(*rows: tuple[int, int, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["start_ns", "end_ns", "name"]).assign(pid=1, tid=1)


def test_calls_that_wait_and_set_up_are_shown_once() -> None:
    given = {"gpu_ops": pd.DataFrame(), "ranges": pd.DataFrame(), "place_of_op": np.zeros(0, np.int64)}
    places = pd.DataFrame({"device": ["0", "1"], "pid": [5, 5], "label": ["0", "rank 3"]})

    def of(waits: Any, setups: Any) -> Timeline:
        capture = SimpleNamespace(waits=waits, setups=setups)
        return timeline_of(facts_of(capture=capture, rank_places=places, **given))

    found = of(calls((1, 2, "a")), calls((1, 2, "a"), (3, 4, "b")))
    assert found.calls["name"].tolist() == ["a", "b"]
    assert found.labels == [["GPU 0"], ["rank 3"]]
    assert of(None, calls((3, 4, "b"))).calls["name"].tolist() == ["b"]
    assert list(of(calls(), None).calls) == ["start_ns", "end_ns", "pid", "tid", "name"]


@pytest.mark.parametrize(
    ("device", "pid", "labels"),
    [
        (["0", "0"], [1, 1], [[], []]),
        (["0", "A"], [1, 1], [["GPU 0"], ["A"]]),
        (["0", "0"], [1, 2], [["process 1"], ["process 2"]]),
        (["0", "1"], [1, 2], [["GPU 0", "process 1"], ["GPU 1", "process 2"]]),
    ],
)
def test_a_place_is_told_by_what_differs(device: list[str], pid: list[int], labels: list[list[str]]) -> None:
    assert spans._labels(pd.DataFrame({"device": device, "pid": pid, "label": "x"})) == labels


def test_each_finding_with_a_stretch_is_a_row() -> None:
    one = timeline([op(1_000_000_000, 100), op(1_000_000_500, 100)])
    found = [claim(), claim(title="b", span=(1_000_000_050, 1_000_000_550)), claim(span=(1_000_000_100, 1_000_000_500))]
    built = {timeline_of: one, findings_of: found, pauses_of: [(0, 1), (1_000_000_100, 1_000_000_500)]}
    facts = facts_of(Capture(clock="torch"), built=built)
    rows = build_spans.build(facts)
    assert rows is not None
    assert rows[["finding", "title", "start_ns", "end_ns", "busy_ns"]].to_numpy().tolist() == [
        [2, "b", 1_000_000_050, 1_000_000_550, 100], [3, "Title", 1_000_000_100, 1_000_000_500, 0]
    ]  # fmt: skip
    assert rows["said"].tolist() == [
        "Look at 0.000000050 s to 0.000000550 s after the first GPU operation: where it shows.",
        "Look at 0.000000100 s to 0.000000500 s after the first GPU operation: pause 2.",
    ]
    shown = show_findings(facts)
    assert [[(span.start_ns, span.end_ns) for span in one.spans] for one in shown] == [
        [], [(1_000_000_050, 1_000_000_550)], [(1_000_000_100, 1_000_000_500)]
    ]  # fmt: skip


def test_without_gpu_operations_nothing_is_known_to_be_busy() -> None:
    empty = replace(timeline([op(0, 1)]), gpu_ops=captured([op(0, 1)]).gpu_ops.head(0))
    built = {timeline_of: empty, findings_of: [claim(span=(5, 9))], pauses_of: []}
    rows = build_spans.build(facts_of(built=built))
    assert rows is not None
    assert rows["busy_ns"].isna().tolist() == [True]
    assert build_spans.build(facts_of(built=built | {findings_of: [claim()]})) is None
    assert show_findings(facts_of(built=built | {findings_of: [claim()]}))[0].spans == []


# Pictures


def drawn(lane: Lane) -> list[tuple[int, int, str, str]]:
    bars = lane.bars
    return list(zip(bars.start.tolist(), bars.end.tolist(), bars.name, bars.kind, strict=True))


def bars(count: int) -> Bars:
    """Return `count` bars of 5 ns, one each 20 ns from 1007 on, and a long one of another kind; 10 ns a pixel."""
    start = np.array([1007 + 20 * at for at in range(count)] + [1500])
    end = np.append(start[:-1] + 5, 99_999)
    kind = ["a"] * count + ["b"]
    return scenes._bars(Span(1000, 10_000, ""), start, end, ["x"] * len(start), kind)


def test_bars_are_cut_at_the_ends_of_the_stretch() -> None:
    found = scenes._bars(Span(10, 20, ""), np.array([5, 12]), np.array([11, 30]), ["a", "b"], ["k", "m"])
    assert (found.start.tolist(), found.end.tolist(), found.name, found.kind) == (
        [10, 12],
        [11, 20],
        ("a", "b"),
        ("k", "m"),
    )


def test_above_300_bars_those_of_a_kind_within_a_pixel_are_one() -> None:
    few = bars(299)
    assert (len(few.start), few.name[0]) == (300, "x")
    many = bars(300)
    assert (many.start[:3].tolist(), many.end[:3].tolist()) == ([1000, 1020, 1040], [1012, 1032, 1052])
    assert (many.start[-1], many.end[-1], many.kind[-2:], set(many.name)) == (1500, 10_000, ("a", "b"), {""})
    assert len(many.start) == len(many.kind) == 301
    start = np.arange(301) * 2 + 1000  # ten nanoseconds a pixel: all of them touch
    joined = scenes._bars(Span(1000, 10_000, ""), start, start + 1, ["x"] * 301, ["a"] * 301)
    assert (joined.start.tolist(), joined.end.tolist()) == ([1000], [1610])
    tiny = scenes._bars(Span(0, 800, ""), np.arange(400) * 2, np.arange(400) * 2 + 1, ["x"] * 400, ["a"] * 400)
    assert len(tiny.start) == 400  # a pixel is at least 1 ns


SPAN = Span(100, 200, "it")


def test_rows_of_the_host_are_those_of_its_busiest_threads() -> None:
    ranges = [
        (90, 300, 1, 1, "out", 4),
        (100, 110, 1, 1, "deep", 6),
        (200, 210, 1, 1, "late", 4),
        (150, 160, 1, 3, "r", 0),
    ]
    waits = [(130, 170, 1, 1, "sync", None), (150, 151, 1, 3, "other", None), (150, 151, 1, 2, "wait", None)]
    one = timeline(
        [op(150, 5, 120), op(150, 5, 99, tid=3), op(150, 5, 95), op(260, 5, 250), op(260, 5, 140)],
        ranges=ranges,
        calls=waits,
    )
    lanes = list(scenes._host_lanes(SPAN, one))
    assert [lane.label for lane in lanes] == [
        "ranges of process 1, thread 1", "", "CUDA calls of process 1, thread 1",
        "ranges of process 1, thread 3", "CUDA calls of process 1, thread 3",
    ]  # fmt: skip
    assert drawn(lanes[0]) == [(100, 200, "out", "range")]
    assert drawn(lanes[1]) == [(100, 110, "deep", "range")]
    assert drawn(lanes[2]) == [(120, 125, "", "launch"), (130, 170, "sync", "call"), (140, 145, "", "launch")]
    assert drawn(lanes[4]) == [(100, 104, "", "launch"), (150, 151, "other", "call")]


def test_a_thread_alone_has_five_levels_and_no_name() -> None:
    ranges = [(100, 200, 1, 1, f"r{level}", level) for level in range(7)]
    lanes = list(scenes._host_lanes(SPAN, timeline([op(0, 1)], ranges=ranges)))
    assert [(lane.label, drawn(lane)[0][2]) for lane in lanes] == [
        ("ranges", "r0"),
        *[("", f"r{at}") for at in range(1, 5)],
    ]


def test_each_stream_is_a_row_and_operations_of_the_finding_are_marked() -> None:
    ops = [op(100, 10, stream=7), op(120, 10, stream=7, name="[CUDA memset]", kind="memset"), op(190, 20, stream=9, name="void k<1>(int)"),
           op(200, 5, stream=9), op(95, 5, stream=9), op(150, 5, stream=None, device="GPU 1")]  # fmt: skip
    lanes = list(scenes._gpu_lanes(SPAN, timeline(ops, labels=[["GPU 0"], ["GPU 1"]]), np.array([2])))
    assert [lane.label for lane in lanes] == ["GPU 0, stream 7", "GPU 0, stream 9", "GPU 1, GPU"]
    assert drawn(lanes[0]) == [(100, 110, "k", "kernel"), (120, 130, "[CUDA memset]", "about")]
    assert drawn(lanes[1]) == [(190, 200, "k", "kernel")]
    assert [one[3] for lane in scenes._gpu_lanes(SPAN, timeline(ops), None) for one in drawn(lane)].count("about") == 0
    crowd = timeline([op(150, 5, stream=at) for at in range(12)])
    assert [lane.label for lane in scenes._gpu_lanes(SPAN, crowd, None)] == [f"stream {at}" for at in range(8)]


def scene_facts(*found: Claim, rows: list[tuple[int, int, int]]) -> Any:
    shown = pd.DataFrame(rows, columns=["finding", "start_ns", "end_ns"]).assign(title="t", said="s")
    return facts_of(built={timeline_of: timeline([op(0, 9, 1)]), build_spans: shown, findings_of: list(found)})


def test_the_first_four_stretches_are_drawn_each_once() -> None:
    facts = scene_facts(*[claim()] * 7, rows=[(1, 0, 10), (2, 0, 10), (3, 0, 11), (5, 0, 12), (6, 0, 13), (7, 0, 14)])
    assert [(one.rank, one.span.end_ns) for one in facts.once(scenes_of)] == [(1, 10), (3, 11), (5, 12)]
    assert [lane.label for lane in facts.once(scenes_of)[0].lanes] == ["CUDA calls", "stream 7"]


def replays(before: Run, after: Run) -> Replays:
    change: Any = SimpleNamespace(after=after)
    return Replays(before, change, bools(of=4))


def test_only_a_finding_with_replays_is_drawn_before_and_after() -> None:
    changed = claim(replays=replays(run(), run()))
    facts = scene_facts(claim(), changed, rows=[(1, 0, 10), (2, 0, 10)])
    assert [one.after is None for one in facts.once(scenes_of)] == [True, False]


def run(length: float = 100.0, **more: Any) -> Run:
    """Return a replay of four steps from 100 on; in each stream one before, two in, and one after the third step."""
    one = launches(2.0, 3.0, 4.0, 5.0, steps=4)
    given = {
        "begin_ns": 100.0, "end_ns": 100.0 + 4 * length, "o_start": np.array([250.0, 305.4, 390.0, 400.0]),
        "o_end": np.array([260.0, 315.0, 410.0, 460.0]), "c_begin": np.array([200.0, 299.0, 350.0, 360.0]),
        "c_end": np.array([300.0, 305.0, 350.0, 370.6]),
    }  # fmt: skip
    return replace(simulate(one), **(given | more))


def test_a_step_is_drawn_from_the_middle_of_its_replay() -> None:
    lanes = list(scenes._run_lanes(run(), run(), "before", bools(2, of=4)))
    assert [lane.label for lane in lanes] == ["before: host", "before: stream 0"]
    assert drawn(lanes[0]) == [(0, 5, "cudaLaunchKernel", "launch"), (60, 71, "cudaLaunchKernel", "launch")]
    assert drawn(lanes[1]) == [(5, 15, "k", "kernel"), (90, 100, "k", "about")]


def test_rows_of_a_replay_are_named_by_what_differs() -> None:
    def labels(one: Any) -> list[str]:
        found = simulate(one)
        return [lane.label for lane in scenes._run_lanes(found, found, "after", bools(of=len(one.o_start)))]

    two = [{"stream": 0}, {"stream": 1}]
    assert labels(graph([{}] * 2, two, stream_names=("GPU 0/7", "GPU 1/9")))[1:] == ["after: GPU 0/7", "after: GPU 1/9"]
    assert labels(graph([{}] * 2, two, stream_pid=np.array([1, 2])))[1:] == [
        "after: process 1, stream 0", "after: process 2, stream 1"
    ]  # fmt: skip
    hosts = graph([{"seq": at} for at in (0, 1, 2, 1, 2)], [{}], seq_pid=np.array([1, 2, 3]))
    assert labels(hosts)[:2] == ["after: host 2", "after: host 3"]  # the two with most calls
    many = graph([{}] * 7, [{"stream": at} for at in (0, 1, 2, 3, 4, 4, 0)])
    assert labels(many)[1:] == [f"after: stream {at}" for at in (0, 1, 2, 4)]
    unused = graph(
        [{"name": "cudaEventRecord"}],
        [{}],
        stream_names=("GPU 0/7", "GPU 0/8"),
        stream_free=np.zeros(2),
        stream_pid=np.ones(2, int),
    )
    assert labels(unused) == ["after: host", "after: stream 7"]
    called = simulate(unused)
    assert drawn(next(scenes._run_lanes(called, called, "", bools(of=1))))[0][3] == "call"


@pytest.mark.parametrize(
    ("before", "after", "words", "length"),
    [
        (100.0, 75.0, "0.025 µs less (25%)", 100),
        (100.0, 110.4, "-0.0104 µs less (0%)", 110),
        (0.0, 0.0, "0 µs less (0%)", 1),
    ],
)
def test_a_change_is_drawn_below_the_step_without_it(before: float, after: float, words: str, length: int) -> None:
    found = claim(replays=replays(run(before), run(after)))
    (one,) = scene_facts(found, rows=[(1, 0, 10)]).once(scenes_of)
    assert one.after is not None
    assert (one.after[0], one.after[1], one.after[2]) == (len(one.lanes) // 2, pytest.approx(after), words)
    assert one.span[:2] == (0, length)
    assert [lane.label[:6] for lane in one.lanes] == ["before", "before", "after:", "after:"]
    assert one.title == "Title"
