"""Both sides in one unit: the tool that timed them, launches that ncu counted, steps of other lengths, a busy GPU."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.comparison import compare, gate, history, quantities, runs, tables, units
from analysis.comparison.runs import BY_NCU, WHOLE, RunOf, SideOf, StepOf
from analysis.formats.comparison import ROUNDS, Basis, Match, Quantity, Times, Verdict
from analysis.formats.errors import InputError, UsageError
from analysis.page import comparison as page
from analysis.page import terminal
from tests.cpu.test_comparison import capture
from tests.nsys_export import Export

STORIES = Path(__file__).resolve().parents[2] / "reports" / "h100-comparison" / "stories"
COUNTERS = Path("captures") / "ncu_raw.csv.xz"


def items(kernels: Sequence[str], ns: float, *, layer: str = "", launches: float = 1.0) -> pd.DataFrame:
    rows = pd.DataFrame({"layer": layer, "kernel": list(kernels), "launches": launches, "time_ns": ns})
    rows["ordinal"] = rows.groupby(["layer", "kernel"]).cumcount()
    return rows.assign(grid="1", block="1")


def side(name: str, *steps: StepOf, times: Times = Times.NONE) -> SideOf:
    return SideOf(name, (RunOf(name, "capture", {}, steps, times=times),), name)


# Whose times


PROFILED = "Profilers slow the host; `make ab ARGS=--bare` uses none."


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (Times.NSYS, Times.NSYS, [f"Times under nsys. {PROFILED}"]),
        (Times.NSYS, Times.TORCH, [f"Times of A under nsys, of B under torch.profiler. {PROFILED}"]),
        (Times.PROCESSES, Times.PROCESSES, ["Times of whole processes, without a profiler."]),
        (Times.NONE, Times.NONE, []),
    ],
)
def test_a_comparison_says_whose_times_it_compares(a: Times, b: Times, said: list[str]) -> None:
    one, other = (side(name, StepOf("s", items(["k"], 9.0), 9.0), times=of) for name, of in (("a", a), ("b", b)))
    found = compare.of_sides(one, other)
    assert list(page._conditions(found)) == said
    assert [found.a.times, found.b.times] == [a, b]


@pytest.mark.parametrize(("kernel", "times"), [("", Times.PROCESSES), ("k", Times.NSYS)])
def test_rounds_with_kernels_ran_under_nsys(kernel: str, times: Times, tmp_path: Path) -> None:
    file = tmp_path / ROUNDS.name
    file.write_text(ROUNDS.text([(1, 1, 1, "s", "", kernel, 1, 9.0)]), encoding="utf-8")
    assert runs.read([file]).times is times


# What ncu counted


def test_launches_that_ncu_counted_more_often_are_no_more_work() -> None:
    a = items(["k", "m"], 100.0).assign(inst_executed=5.0)
    b = items(["k", "m", "k"], 100.0).assign(inst_executed=5.0, time_ns=[100.0, 100.0, 104.0])
    found = compare.of_sides(
        side("a", StepOf(BY_NCU, a), times=Times.NCU), side("b", StepOf(BY_NCU, b), times=Times.NCU)
    )
    step = found.steps[0]
    assert {row.a[0]: (row.a_ns, row.b_ns) for row in step.rows} == {"k": (100, 102), "m": (100, 100)}
    assert (step.a_ns, step.b_ns, step.judged.verdict) == (200, 202, Verdict.SAME)
    assert [one.name for row in step.rows for one in row.quantities] == ["inst_executed"] * 2  # not launches
    assert found.notes == [
        "ncu counted 2 launches of A and 3 of B; how many a step has is unknown, so rows compare one launch of each "
        "kernel."
    ]


def test_equal_numbers_of_launches_stay_as_they_are() -> None:
    a, b = (side(name, StepOf(BY_NCU, items(["k", "k"], ns)), times=Times.NCU) for name, ns in (("a", 1.0), ("b", 2.0)))
    assert units.one_each(a, b) == (a, b, [])


def test_times_of_ncu_are_compared_with_times_of_ncu() -> None:
    found = compare.compare([STORIES / "softmax_v01"], [STORIES / "softmax_v05" / COUNTERS])
    assert found.notes[0] == "One side has only times of ncu, so those of ncu are compared."
    rows = {row.a[0]: row for row in found.steps[0].rows}
    assert rows["make_scores"].a_ns == (35_040 + 35_584) / 2  # not the 34,0 µs of the timeline
    judged = [one for name in ("make_scores", "use_rows") if (one := rows[name].judged)]
    assert [one.verdict for one in judged] == [Verdict.SAME] * 2


def test_a_timeline_alone_and_counters_alone_are_not_compared() -> None:
    with pytest.raises(InputError, match="has no counters, and the other side has only times of ncu"):
        compare.compare([STORIES / "softmax_v01" / "captures" / "nsys"], [STORIES / "softmax_v05" / COUNTERS])


# Steps


def three_times() -> tuple[StepOf, StepOf]:
    a = StepOf("step", items(["k", "m"], 10.0), 100.0, 20.0, {"launching": 80.0}, 90.0, slow_ns=7.0)
    return a, StepOf("step", items(["k", "m"] * 3, 10.0), 70.0, 60.0, {"launching": 10.0}, 70.0)


@pytest.mark.parametrize("shorter", ["A", "B"])
def test_a_part_of_a_step_is_taken_as_often_as_the_other_side_launches_it(shorter: str) -> None:
    part, whole = three_times()
    of_a, of_b, note = units.equal_steps([part if shorter == "A" else whole], [whole if shorter == "A" else part])
    made, kept = (of_a[0], of_b[0]) if shorter == "A" else (of_b[0], of_a[0])
    assert kept is whole
    assert (made.wall_ns, made.busy_ns, made.typical_ns, made.slow_ns) == (300, 60, 270, 21)
    assert made.idle_ns == {"launching": 240}
    assert made.items[["launches", "time_ns"]].sum().tolist() == [6, 60]
    longer = "B" if shorter == "A" else "A"
    assert note == (
        f"A step of {longer} launches its kernels 3 times as often as one of {shorter}, so 3 steps of {shorter} stand "
        "for one."
    )


@pytest.mark.parametrize(
    ("kernels", "marked"),
    [
        (["k", "m"], False),  # as often
        (["k", "k", "k", "m"], False),  # one kernel three times, the other once
        (["k", "m"] * 3, True),  # ranges of the program say what a step is
    ],
)
def test_other_steps_stay_as_they_are(kernels: list[str], marked: bool) -> None:
    a = StepOf("step", items(["k", "m"], 10.0), 100.0, marked=marked)
    b = StepOf("step", items(kernels, 10.0), 100.0, marked=marked)
    assert units.equal_steps([a], [b]) == ([a], [b], "")


def test_slow_steps_and_a_few_steps_are_doubts() -> None:
    a, b = (StepOf("s", items(["k"], 1.0), 1e6, slow_ns=slow, seen=seen) for slow, seen in ((20_000.0, 2), (0.0, 3)))
    assert list(units.doubts([a], [b])) == [
        "A has only 2 steady steps, which may be start-up; capture more steps, or put a range around each."
    ]
    slower = StepOf("s", items(["k"], 1.0), 1e6, slow_ns=20_001.0, seen=3)
    assert list(units.doubts([b], [slower])) == ["Slow steps are left out: they add 0 µs a step to A and 20 µs to B."]


def test_captures_without_a_step_on_one_side_are_compared_whole(tmp_path: Path) -> None:
    a = capture(tmp_path / "a", {"gemm": 20_000, "softmax": 10_000})
    (tmp_path / "b").mkdir()
    export = Export(2025)
    export.gpu(name="NVIDIA H200")
    export.launch("gemm", (1_000_000, 1_003_000), (1_006_000, 1_026_000))
    export.save(tmp_path / "b" / "x.sqlite")
    found = compare.compare([a], [tmp_path / "b"])
    assert [step.name for step in found.steps] == [WHOLE]
    assert {row.a[0]: (row.a_ns, row.b_ns) for row in found.steps[0].rows} == {
        "gemm": (160_000, 20_000), "softmax": (80_000, 0)
    }  # fmt: skip
    assert found.notes[0].startswith("No step repeats in ")


def test_a_step_on_one_side_has_its_time() -> None:
    one, other = (StepOf(name, items(["k"], 1.0), 2_000_000.0) for name in ("step", "later"))
    assert compare.of_sides(side("a", one, other), side("b", one)).notes == [
        "The step 'later' (2 ms) is on side A only."
    ]


@pytest.mark.parametrize(
    ("layers", "wall", "compared"),
    [(("", ""), 9.0, True), (("x", "x/y"), 9.0, False), (("x", "x"), 9.0, True), (("", ""), None, False)],
)
def test_steps_without_a_common_kernel(layers: tuple[str, str], wall: float | None, compared: bool) -> None:
    a, b = (
        side(name, StepOf("s", items([name], 1.0, layer=layer), wall)) for name, layer in zip("ab", layers, strict=True)
    )
    if compared:
        found = compare.of_sides(a, b)
        assert [row.match for row in found.steps[0].rows] == [Match.REPLACED]
        assert "No kernel has the same name" in found.notes[-1]
    else:
        with pytest.raises(InputError, match="no kernel in common"):
            compare.of_sides(a, b)


@pytest.mark.parametrize(("a", "b", "differs"), [(4.143, 4.0, False), (5.0, 3.9, True), (5.0, 4.0, True)])
def test_launches_of_unequal_steps_differ_by_more_than_one(a: float, b: float, differs: bool) -> None:
    one, other = (items(["k"], 1.0, launches=count) for count in (a, b))
    assert [found.differs for found in quantities.compare(one, other, Match.NAME)] == [differs]


# The sample of a run


def test_a_run_counts_with_its_median_step(tmp_path: Path) -> None:
    export, at = Export(2025), 1_000_000
    export.gpu(name="NVIDIA H200")
    for step in range(9):
        ns = 24_000 if step == 4 else 20_000
        for name, until in (("gemm", at + 6_000 + ns), ("softmax", at + 17_000 + ns)):
            begin = at + 6_000 if name == "gemm" else at + 7_000 + ns
            export.launch(name, (at, at + 3_000) if name == "gemm" else (at + 4_000, at + 5_000), (begin, until))
        at += 60_000
    (tmp_path / "a").mkdir()
    export.save(tmp_path / "a" / "x.sqlite")
    (step_of,) = runs.read([tmp_path / "a"]).runs[0].steps
    gemm = step_of.items.set_index("kernel").loc["gemm"]
    assert gemm["typical_ns"] == 20_000
    assert 20_000 < gemm["time_ns"] < 21_000


def steps(walls: Sequence[float], kernel: Sequence[float]) -> list[StepOf]:
    return [
        StepOf("s", items(["k"], ns), wall, ns, {"launching": wall - ns})
        for wall, ns in zip(walls, kernel, strict=True)
    ]


def host_bound(growth: float) -> tuple[list[StepOf], list[StepOf]]:
    """Twenty rounds of a step whose host varies by 10 % and whose kernels by 0.1 %."""
    random = np.random.default_rng(5)
    walls = 1e6 * np.exp(random.normal(0, 0.1, (2, 20)))
    kernels = 3e5 * np.exp(random.normal(0, 0.001, (2, 20)))
    return steps(walls[0], kernels[0]), steps(walls[1], kernels[1] * growth)


def test_the_busy_gpu_is_judged_where_the_host_leaves_the_step_unsure() -> None:
    step = compare._step(*host_bound(1.01), True, 0.005, 0.01)
    assert step.judged.verdict is Verdict.UNSURE
    assert step.gpu
    assert step.gpu.verdict is Verdict.SLOWER
    assert step.gpu.ratio == pytest.approx(1.01, abs=1e-3)
    a, b = host_bound(1.01)
    assert compare._step(a[:1], b[:1], True, 0.005, 0.01).gpu is None  # one run a side


def test_a_gate_on_the_busy_gpu_fails_while_the_step_is_unsure(tmp_path: Path) -> None:
    a, b = host_bound(1.05)
    of_a, of_b = (
        SideOf(name, tuple(RunOf(name, "rounds", {}, (one,), (at, at)) for at, one in enumerate(found)), name)
        for name, found in (("a", a), ("b", b))
    )
    compared = compare.of_sides(of_a, of_b)
    rules = tmp_path / "gate.toml"
    text = '[[rule]]\nname = "r"\nmetric = "{}"\nmost_growth = 0.02\n'
    statuses = []
    for metric in ("time", "gpu_time"):
        rules.write_text(text.format(metric))
        statuses += [one.status for one in gate.check(compared, gate.read(rules))]
    assert statuses == ["unsure", "fail"]
    rules.write_text(text.format("gpu_time").replace("most_growth", "most"))
    with pytest.raises(UsageError, match="gpu_time needs most_growth"):
        gate.read(rules)
    shown = io.StringIO()
    terminal.console(shown, plain=True).print(page.screen(compared, 100))
    assert "GPU busy: SLOWER" in shown.getvalue()
    assert "GPU busy: SLOWER" in page.markdown(compared)
    assert "GPU busy: SLOWER" in page.html(compared)


def test_what_one_side_waits_for_is_not_held_against_the_other() -> None:
    known = StepOf("s", items(["k"], 1e5), 5e5, 1e5, {"launching": 3e5, "sync": 1e5})
    unknown = StepOf("s", items(["k"], 1e5), 6e5, 1e5, {"other": 5e5})
    bars = compare._step([known], [unknown], False, 0.02, 0.01).waterfall
    assert [(bar.what, bar.ns) for bar in bars if bar.ns] == [("cause unknown", 100_000)]


@pytest.mark.parametrize(
    ("values", "at"), [([100, 100, 90, 100, 100], []), ([100, 100, 90, 90], [2]), ([100, 90], [1])]
)
def test_a_single_point_apart_is_no_change_of_level(values: list[float], at: list[int]) -> None:
    points = [history.Point(str(place), side("s", StepOf("s", items(["k"], 1.0)))) for place in range(len(values))]
    assert [one.at for one in history._changes([float(one) for one in values], points)] == at


def test_the_page_names_what_replaces_what() -> None:
    a, b = items(["first", "second", "third"], 1.0), items(["fused<float, 4>"], 2.0)
    found = compare.of_sides(side("a", StepOf("s", a, 9.0)), side("b", StepOf("s", b, 9.0)))
    (row,) = found.steps[0].rows
    assert page._word(row) == "first+second+1→fused"


def test_smaller_code_alone_is_no_verdict(tmp_path: Path) -> None:
    for name, size in (("a", 1600), ("b", 800)):
        text = f"op,source,kernel,sm,registers,spill_bytes,code_bytes\ngelu,v01.cu,k,90,8,0,{size}\n"
        (tmp_path / f"{name}.csv").write_text(text)
    (row,) = compare.compare([tmp_path / "a.csv"], [tmp_path / "b.csv"]).steps[0].rows
    assert row.judged
    assert row.judged.verdict is Verdict.UNSURE
    assert row.judged.why == "the code differs: bytes of code 1600 → 800; only times tell whether that matters"


def test_a_census_names_its_sources_from_the_root(tmp_path: Path) -> None:
    (tmp_path / "census.csv").write_text(
        "op,source,kernel,sm,registers\ngelu,v01.cu,k,90,8\nx,a/b.cu,k,90,8\nx,,k,90,8\n"
    )
    (run,) = tables.read(tmp_path / "census.csv") or []
    assert run.rows["source"].tolist() == ["kernels/gelu/v01.cu", "a/b.cu", ""]


@pytest.mark.parametrize(
    ("read", "counted", "said"),
    [
        (120e6, False, "more DRAM bytes read a launch, sampled: 100 M → 120 M"),
        (104e6, False, ""),  # within both errors
        (106e6, False, "more DRAM bytes read a launch, sampled: 100 M → 106 M"),
        (120e6, True, ""),  # ncu counted, which is more exact
    ],
)
def test_samples_say_why_a_kernel_takes_longer(read: float, counted: bool, said: str) -> None:
    a, b = (
        items(["k"], 1.0).assign(sampled_read_bytes=value, sampled_error_bytes=error)
        for value, error in ((100e6, 2e6), (read, 3e6))
    )
    found = [Quantity("dram_bytes", 1.0, 1.0, False)] if counted else []
    assert quantities.cause(a, b, Match.NAME, found, ["k"]) == said


@pytest.mark.slow
def test_a_sampled_capture_has_the_bytes_of_kernels_that_stand_alone() -> None:
    (run,) = runs.read([STORIES.parents[1] / "h100-sampled-jax"]).runs
    known = run.steps[0].items.dropna(subset=["sampled_read_bytes"]).set_index("kernel")
    assert {"loop_convert_fusion", "fusion_327"} <= set(known.index)
    assert known.loc["loop_convert_fusion", "sampled_read_bytes"] == pytest.approx(262.1e6, rel=0.035)  # its logits


def test_a_whole_run_of_make_ab_is_compared_with_its_counters() -> None:
    """Four rounds under nsys and one capture by ncu a side, on an H100: too few rounds for a verdict on times."""
    folder = Path(compare.__file__).parents[2] / "studies" / "comparison" / "ab"
    found = compare.compare([folder / "a"], [folder / "b"])
    (step,) = found.steps
    assert found.paired
    assert step.a_ns is not None
    assert step.b_ns is not None
    assert sum(bar.ns for bar in step.waterfall) == step.b_ns - step.a_ns
    assert step.waterfall[0].what == "transpose_scattered"
    assert "replaced by transpose_tiled; more issued instructions" in step.waterfall[0].cause
    replaced, kept = step.rows
    assert replaced.judged
    assert kept.judged
    assert (replaced.judged.verdict, replaced.judged.more) == (Verdict.UNSURE, 5)
    assert (kept.judged.verdict, kept.judged.basis) == (Verdict.SAME, Basis.EXACT)
