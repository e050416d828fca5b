"""Captures and tables of a few numbers of which a reader can tell the runs, the steps and the rows of a side; in ns."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.capture.model import Capture
from analysis.comparison import compare, gate, history, quantities, rounds, runs, tables, units, verdict, waterfall
from analysis.comparison.runs import RunOf, SideOf, StepOf
from analysis.formats.comparison import (
    Basis,
    ComparedStep,
    Comparison,
    Judged,
    Match,
    Quantity,
    Row,
    Side,
    Times,
    Verdict,
)
from analysis.formats.errors import InputError, UsageError
from analysis.replay import steady
from tests.by_hand import captured, op


def launched(text: str, apart: int = 200, begin: int = 1_000, **more: Any) -> list[dict[str, Any]]:
    """Kernels of 100, named by letters, 4 after their calls."""
    return [op(begin + at * apart + 4, 100, begin + at * apart, name=name, **more) for at, name in enumerate(text)]


# A capture as a run


def test_a_step_has_means_over_the_steady_steps() -> None:
    """Ten steps of a, b, b every 600; the third kernel of one step takes 190 for 100, so the GPU is busy for 309."""
    ops = launched("abb" * 10)
    ops[14]["duration_ns"] = 190
    ops += [op(1_050, 9, kind="migration", name="page"), op(810, 5, 800, name="early")]
    for at, one in enumerate(ops):
        one |= {"registers": 32 + at % 7, "grid": f"{at}x1x1"}
    run = runs.of_capture(captured(ops), "x")
    (step,) = run.steps
    assert step.items["registers"].tolist() == [38, 38, 38]  # the most of any step
    assert step.items["grid"].tolist() == ["0x1x1", "1x1x1", "2x1x1"]  # of the first step
    items = step.items
    assert items["kernel"].tolist() == ["a", "b", "b"]
    assert items["ordinal"].tolist() == [0, 0, 1]
    assert items["launches"].tolist() == [1, 1, 1]
    assert items["time_ns"].tolist() == [100, 100, 109]
    assert step.busy_ns == 309
    assert step.wall_ns is not None
    assert sum(step.idle_ns.values()) == pytest.approx(step.wall_ns - step.busy_ns)
    assert (run.kind, run.counted, run.turn, run.name) == ("capture", False, None, "x")


def test_a_kernel_that_not_every_step_has_counts_by_its_share() -> None:
    ops = launched("abcd" * 4 + "abcx" + "abcd" * 5)
    (step,) = runs.of_capture(captured(ops), "x").steps
    means = dict(zip(step.items["kernel"], step.items["launches"], strict=True))
    assert (means["d"], means["x"]) == (pytest.approx(0.9), pytest.approx(0.1))
    times = dict(zip(step.items["kernel"], step.items["time_ns"], strict=True))
    assert times["x"] == pytest.approx(10)


def test_without_steps_the_whole_capture_is_one() -> None:
    ops = [op(30, 40, 9, name="b"), op(10, 15, 5, name="a"), op(200, 10, name="c"), op(20, 10, 8, name="d")]
    (step,) = runs.of_capture(captured(ops), "x").steps
    assert (step.name, step.wall_ns, step.busy_ns, step.idle_ns) == ("the whole capture", 200, 70, {"other": 130})
    assert step.items["kernel"].tolist() == ["a", "d", "b", "c"]  # in the order of their calls


def test_a_capture_of_nothing_and_a_kernel_without_time_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="x: has no GPU operation and no counter"):
        runs.of_capture(Capture(), "x")
    items = pd.DataFrame({"time_ns": [1.0, np.nan]})
    for steps in ((StepOf("s", items.head(1)), StepOf("t", items)), (StepOf("s", items.tail(1)),)):
        monkeypatch.setattr(runs, "_of_timeline", lambda facts, whole, steps=steps: steps)
        with pytest.raises(InputError, match="x: a kernel has no time"):
            runs.of_capture(captured(launched("ab")), "x")


def test_steps_are_of_their_process() -> None:
    ops = [*launched("abc" * 10), *launched("zzz" * 3, begin=1_050, apart=500, pid=2)]
    (step,) = runs.of_capture(captured(ops), "x").steps
    assert step.items["kernel"].tolist() == ["a", "b", "c"]
    zero = [*launched("abc" * 10, pid=0), *launched("zzz" * 3, begin=1_050, apart=500, pid=2)]
    (step,) = runs.of_capture(captured(zero), "x").steps
    assert step.items["kernel"].tolist() == ["a", "b", "c"]


def test_idle_time_is_shared_as_in_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = captured(launched("abc" * 10))
    (phase,) = steady.find(capture).phases
    for parts, shares in (
        (
            {"gpu_busy": 700, "copies": 9, "communication": 1, "launching": 30, "sync": 10, "pause": 0},
            {"launching": 0.75, "sync": 0.25},
        ),
        ({"gpu_busy": 700, "launching": 1, "sync": 3}, {"launching": 0.25, "sync": 0.75}),
        ({"gpu_busy": 700, "launching": 1}, {"launching": 1.0}),
        ({"gpu_busy": 700}, {"other": 1.0}),
    ):
        found = type("D", (), {"busy_parts": tuple(parts.items())})
        monkeypatch.setattr(runs, "decompose", lambda run, found=found: found)
        assert runs._idle_shares(capture, phase) == shares
    assert runs._idle_shares(replace(capture, calls=None), phase) == {"other": 1.0}
    assert runs._idle_shares(
        replace(capture, calls=capture.calls.head(0) if capture.calls is not None else None), phase
    ) == {"other": 1.0}


class Known:
    """What `_named` reads of Facts."""

    def __init__(self, values: dict[str, list[float]], lines: list[tuple[Any, ...]]) -> None:
        self.has_counters = bool(values)
        self.counter_values = pd.DataFrame(values)
        self.ncu_launches = pd.DataFrame({"path": ["l", "l", "l"], "kernel": ["k", "k", "m"]})
        columns = ["kernel", "source_file", "line", "samples"]
        self.capture: Any = type("C", (), {"source_lines": pd.DataFrame(lines, columns=columns), "samples": None})


def named(known: Known, **more: Any) -> pd.DataFrame:
    rows = {"layer": ["l", "l", "o"], "kernel": ["k", "n", "k"], "ordinal": [3, 4, 5], "launches": 1.0, "time_ns": 5.0}
    items = pd.DataFrame(rows | more)
    facts: Any = known
    return runs._named(items, facts)


def test_counters_of_a_kernel_in_a_range_are_the_mean_of_its_launches() -> None:
    known = Known({"registers": [32.0, 40.0, 99.0], "dram_bytes": [np.nan] * 3, "other": [1.0] * 3}, [])
    found = named(known, registers=[1.0, 2.0, 3.0])
    assert found["registers"].fillna(-1).tolist() == [36, -1, -1]
    assert "dram_bytes" not in found
    assert found["ordinal"].tolist() == [3, 4, 5]
    assert named(Known({}, []), registers=[1.0, 2.0, 3.0])["registers"].tolist() == [1, 2, 3]
    some = named(Known({"registers": [32.0, np.nan, 99.0]}, []))
    assert some["registers"].fillna(-1).tolist() == [32, -1, -1]


def test_the_source_of_a_kernel_is_its_line_with_most_samples() -> None:
    lines = [("k", "a.cu", 3, 5), ("k", "b.cu", 7, 9), ("k", "c.cu", 8, 9), ("k", "", 1, 99), ("m", "z.cu", 2, 1)]
    found = named(Known({}, lines))
    assert found["source"].tolist() == ["b.cu", "", "b.cu"]
    assert found["line"].tolist() == [7, 0, 7]
    assert "source" not in named(Known({}, [("k", "", 1, 99), ("k", None, 1, 99)]))


# Files of a side


def run_of(name: str, **more: Any) -> RunOf:
    items = pd.DataFrame(
        {"layer": ["l"], "kernel": ["k"], "ordinal": 0, "launches": 1.0, "time_ns": 5.0, "registers": 40.0}
    )
    return RunOf(name, "capture", {"GPU": name}, (StepOf("s", items, 10.0),), **more)


def test_a_folder_is_a_table_a_capture_or_several_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "load", lambda paths: paths)
    monkeypatch.setattr(runs, "of_capture", lambda paths, name, only="": run_of(f"{paths[0].name} as {name}"))
    top = tmp_path / "top"
    for name in ("one/captures", "two/captures", "notes"):
        (top / name).mkdir(parents=True)
    assert [one.name for one in runs._runs(top)] == ["captures as top/one", "captures as top/two"]
    assert [one.name for one in runs._runs(top / "one")] == ["captures as top/one"]
    assert [one.name for one in runs._runs(top / "notes")] == ["notes as top/notes"]
    (top / "captures").mkdir()
    assert [one.name for one in runs._runs(top)] == [f"captures as {tmp_path.name}/top"]
    rounds = "run,round,place,step,range,kernel,launches,time_ns\n1,1,0,s,l,k,1,10\n2,2,1,s,l,k,1,20\n"
    (top / "one" / "rounds.csv").write_text(rounds)
    first, second = runs._runs(top / "one")
    assert (first.conditions, first.kind, first.steps[0].items["registers"].tolist()) == (
        {"GPU": "captures as top/one"}, "rounds", [40]
    )  # fmt: skip
    assert "registers" not in second.steps[0].items
    (top / "notes" / "rounds.csv").write_text(rounds)
    assert ["registers" in one.steps[0].items for one in runs._runs(top / "notes")] == [False, False]


def test_a_step_of_a_table_has_a_time_if_a_row_names_no_kernel() -> None:
    def steps(*rows: tuple[str, str, float]) -> list[tuple[Any, ...]]:
        table = pd.DataFrame(rows, columns=["step", "kernel", "time_ns"])
        return [
            (one.name, one.wall_ns, one.busy_ns, one.idle_ns, len(one.items))
            for one in runs._table_steps(tables.TableRun("t", "rounds", table))
        ]

    assert steps(("s", "", 50.0), ("s", "k", 10.0), ("s", "m", 15.0)) == [("s", 50, 25, {"other": 25}, 2)]
    assert steps(("s", "", 50.0)) == [("s", 50, None, {}, 0)]
    assert steps(("s", "k", 10.0), ("t", "", 7.0), ("t", "k", 3.0)) == [
        ("s", None, None, {}, 1),
        ("t", 7, 3, {"other": 4}, 1),
    ]


# Tables


def table(path: Path, text: str, name: str = "t.csv") -> tables.TableRun:
    (path / name).write_text(text)
    (found,) = tables.read(path / name) or []
    return found


def test_a_census_has_the_numbers_of_each_kernel(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        "op,source,sm,kernel,registers,spill_bytes,nvcc\nx,a.cu,90,k,40,,12\nx,,90,k,32,8,13\nx,a.cu,90,m,7,0,12\n",
    )
    rows = found.rows
    assert (found.kind, found.conditions, found.turn) == ("census", {"nvcc": "12, 13"}, None)
    assert rows[["step", "layer", "kernel", "ordinal", "launches"]].to_numpy().tolist() == [
        ["census", "x a.cu 90", "k", 0, 1.0], ["census", "x  90", "k", 0, 1.0], ["census", "x a.cu 90", "m", 0, 1.0]
    ]  # fmt: skip
    assert rows["registers"].tolist() == [40, 32, 7]
    assert rows["spill_bytes"].fillna(-1).tolist() == [-1, 8, 0]
    assert rows["time_ns"].isna().all()
    assert "stack_bytes" not in rows
    assert rows["source"].tolist() == ["kernels/x/a.cu", "", "kernels/x/a.cu"]


def test_the_first_time_with_a_value_counts_and_rows_without_one_are_left_out(tmp_path: Path) -> None:
    head = "op,dtype,shape_name,convention,variant,isolated_time_p50_ns,chained_time_p50_ns\n"
    found = table(tmp_path, f"{head}x,f,s,c,v,,7\nx,f,s,c,w,5,9\nx,f,s,c,y,,\nx,f,s,c,z,bad,3\n")
    assert (found.conditions, found.kind) == ({"time": "isolated_time_p50_ns"}, "bench")
    assert found.rows[["kernel", "time_ns"]].to_numpy().tolist() == [["v", 7], ["w", 5], ["z", 3]]
    single = table(tmp_path, f"{head[:-21]}\nx,f,s,c,v,4\n".replace(",\n", "\n"))
    assert single.rows["time_ns"].tolist() == [4]
    assert tables.read(tmp_path / "t.csv") is not None
    (tmp_path / "u.csv").write_text("op,dtype,shape_name,convention,variant\nx,f,s,c,v\n")
    assert tables.read(tmp_path / "u.csv") is None  # no time at all


def test_the_conditions_of_a_table_stand_beside_it(tmp_path: Path) -> None:
    for text, found in (
        ('{"conditions": {"gpu": {"name": "H"}, "driver": "5", "torch": ""}}', {"GPU": "H", "driver": "5"}),
        ('{"conditions": {"driver": 580}}', {"driver": "580"}), ('{"conditions": null}', {}), ("{}", {}), ("[]", {}), ("{", {}),
    ):  # fmt: skip
        (tmp_path / "bench.json").write_text(text)
        assert tables._beside(tmp_path / "x.csv") == found
    assert tables._beside(tmp_path / "no" / "x.csv") == {}


def test_a_folder_is_read_by_the_table_in_it(tmp_path: Path) -> None:
    assert tables.read(tmp_path) is None
    (tmp_path / "census.csv").write_text("op,source,sm,kernel\nx,a.cu,90,k\n")
    assert [one.kind for one in tables.read(tmp_path) or []] == ["census"]
    (tmp_path / "rounds.csv").write_text(
        "run,round,place,step,range,kernel,launches,time_ns\n1,0,0,s,,k,2,0.5\n1,0,0,s,,,1,1\n"
    )
    (one,) = tables.read(tmp_path) or []
    assert one.rows["time_ns"].tolist() == [0.5, 1]
    assert (one.kind, one.turn, one.rows["launches"].tolist(), one.rows["kernel"].tolist()) == (
        "rounds",
        None,
        [2, 1],
        ["k", ""],
    )
    (tmp_path / "notes.txt").write_text("op,source,sm,kernel\n")
    assert tables.read(tmp_path / "notes.txt") is None


# History


def point(*walls: float | None, busy: float = 1.0) -> history.Point:
    items = pd.DataFrame({"layer": ["", "l"], "kernel": ["k", "m"], "time_ns": [busy, np.nan]})
    return history.Point(
        "p", SideOf("x", tuple(RunOf("r", "rounds", {}, (StepOf("s", items, wall),)) for wall in walls), "")
    )


def test_a_step_has_the_mean_over_its_runs_and_rows_the_first_run() -> None:
    found = {one.name: one.values for one in history.series([point(10.0, 30.0, None), point(5.0)])}
    assert found == {"s": (20, 5), "k": (1, 1)}
    assert [one.name for one in history.series([point(None, 7.0), point(None, 9.0)])] == ["k"]


def test_a_value_that_only_one_point_has_is_no_series() -> None:
    found = history.series([point(10.0), point(None), point(None)], "time")
    assert [one.name for one in found] == ["k"]
    with pytest.raises(InputError, match="no row with time and 's' is in two"):
        history.series([point(10.0), point(None)], "time", "s")


@pytest.mark.parametrize(("value", "changes"), [(102.0, 0), (102.1, 1), (98.1, 0), (97.9, 1)])
def test_a_level_changes_by_more_than_two_percent(value: float, changes: int) -> None:
    points = [point(1.0), point(1.0)]
    assert len(list(history._changes([100.0, value], points))) == changes
    assert len(list(history._changes([100.0, 0.0], points))) == 0


@pytest.mark.parametrize(("value", "changes"), [(104.0, 0), (104.2, 1)])
def test_a_level_changes_by_more_than_four_usual_differences(value: float, changes: int) -> None:
    """Three of four neighbours differ by a hundredth: 1.01 to the fourth is 1.0406."""
    found = list(history._changes([100.0, 101.0, 100.0, 101.0, 100.0 * value / 100], [point(1.0)] * 5))
    level = 100.4987  # the middle of 100, 100, 101 and 101 in logarithms
    assert len(found) == int(value * 1.0 / level > 1.0406) == 0 or changes
    (one,) = history._changes([100.0, 101.0, 100.0, 101.0, level * 1.0407], [point(1.0)] * 5)
    assert one.at == 4
    assert not list(history._changes([100.0, 101.0, 100.0, 101.0, level * 1.0404], [point(1.0)] * 5))


# Steps of both sides


def step_of(times: dict[str, float], wall: float | None = None, **columns: Any) -> StepOf:
    frame = pd.DataFrame(
        {"layer": "", "kernel": list(times), "ordinal": 0, "launches": 1.0, "time_ns": list(times.values())}
    )
    return StepOf("s", frame.assign(**columns), wall)


def compared(a: list[StepOf | None], b: list[StepOf | None], paired: bool = True) -> Any:
    return compare._step(*compare._known(a, b, paired), paired, 0.005, 0.01)


def test_rounds_that_one_side_lacks_are_left_out_of_pairs() -> None:
    a: list[StepOf | None] = [step_of({"k": 10.0}, 100.0), None, step_of({"k": 30.0}, 300.0)]
    b: list[StepOf | None] = [step_of({"k": 20.0}, 200.0), step_of({"k": 999.0}, 999.0), step_of({"k": 40.0}, 400.0)]
    found = compared(a, b)
    assert (found.a_ns, found.b_ns, found.judged.samples) == (200, 300, [2, 2])
    assert (found.rows[0].a_ns, found.rows[0].b_ns) == (20, 30)
    apart = compared(a, b, paired=False)
    assert (apart.a_ns, apart.b_ns, apart.judged.samples) == (200, 533, [2, 3])


def test_kernels_by_ncu_have_the_sum_of_their_times_as_a_step() -> None:
    a, b = (replace(step_of({"k": ns, "m": 5.0}), name="kernels by ncu") for ns in (10.0, 20.0))
    found = compared([a], [b], paired=False)
    assert (found.a_ns, found.b_ns) == (15, 25)
    assert [bar.what for bar in found.waterfall] == ["k", "1 smaller differences", "residual"]
    other = compared([step_of({"k": 10.0})], [step_of({"k": 20.0})], paired=False)
    assert (other.a_ns, other.b_ns, other.waterfall) == (None, None, [])


def test_a_row_without_a_time_is_open_unless_its_work_tells() -> None:
    unknown = step_of({"k": np.nan, "m": 5.0}, inst_executed=[7.0, np.nan])
    found = {row.a[0]: row for row in compared([unknown], [unknown], paired=False).rows}
    assert (found["k"].a_ns, found["k"].judged.verdict, found["k"].judged.basis) == (None, Verdict.SAME, Basis.EXACT)
    one = step_of({"k": np.nan})
    (row,) = compared([one], [one], paired=False).rows
    assert (row.judged.verdict, row.judged.why) == (Verdict.UNSURE, "it has no time")


def test_a_step_that_has_another_name_on_side_b_has_both() -> None:
    assert compared([step_of({"k": 1.0})], [replace(step_of({"k": 1.0}), name="t")], paired=False).name == "s → t"


def side_of(
    name: str, *steps: str, kernel: str = "k", counted: bool = False, turns: tuple[int, ...] = (), digest: str = ""
) -> SideOf:
    made = tuple(replace(step_of({kernel: 5.0}, 10.0), name=one) for one in steps)
    each = [RunOf(name, "rounds", {}, made, (turn, 0), counted) for turn in turns] or [
        RunOf(name, "rounds", {}, made, None, counted)
    ]
    return SideOf(name, tuple(each), digest or name)


def of_layer(name: str, layer: str, kernel: str) -> SideOf:
    step = step_of({kernel: 5.0}, 10.0, layer=layer)
    return SideOf(name, (RunOf(name, "rounds", {}, (step,)),), name)


def test_steps_and_counters_of_one_side_only_are_said() -> None:
    found = compare.of_sides(side_of("a", "s", "x", "y"), side_of("b", "s", "t", counted=True))
    assert [one.name for one in found.steps] == ["s", "x → t"]
    assert found.notes == [
        "a has no counters, so causes and exact quantities are unknown; capture it with ncu, too.", "The step 'y' (0.01 µs) is on side A only.",
    ]  # fmt: skip
    assert compare.of_sides(side_of("a", "s", counted=True), side_of("b", "s")).notes[0].startswith("b has no counters")
    assert compare.of_sides(side_of("a", "s", counted=True), side_of("b", "s", counted=True)).notes == []
    assert (found.a.name, found.b.name, found.paired, found.least) == ("a", "b", False, 0.02)
    pairs = compare.of_sides(side_of("a", "s", turns=(1, 2)), side_of("b", "s", turns=(2, 1)))
    assert (pairs.paired, pairs.least, pairs.a.runs) == (True, 0.005, 2)
    assert compare.of_sides(side_of("a", "s"), side_of("b", "s"), least=0.1).least == 0.1
    with pytest.raises(InputError, match="a and b have no kernel in common"):
        compare.of_sides(of_layer("a", "x", "k"), of_layer("b", "y", "z"))
    assert (
        compare.of_sides(side_of("a", "s", digest="x"), side_of("b", "s", digest="x")).steps[0].judged.basis
        is Basis.FILES
    )
    both = RunOf("c", "rounds", {}, (step_of({"k": 5.0, "m": 6.0}, 11.0),))
    assert len(compare.of_sides(side_of("a", "s"), SideOf("c", (both,), "c")).steps[0].rows) == 2
    lonely = RunOf("d", "rounds", {}, (step_of({"z": 5.0}, 11.0), replace(step_of({}, 5.0), name="t")))
    other = RunOf("o", "rounds", {}, (step_of({"k": 5.0}, 11.0), replace(step_of({}, 5.0), name="t")))
    replaced = compare.of_sides(SideOf("d", (lonely,), "d"), SideOf("o", (other,), "o"))
    assert replaced.notes[-1].startswith("No kernel has the same name on both sides")
    bare = RunOf("o", "rounds", {}, (step_of({"k": 5.0}), replace(step_of({}, 5.0), name="t")))
    with pytest.raises(InputError, match="no kernel in common"):
        compare.of_sides(SideOf("d", (lonely,), "d"), SideOf("o", (bare,), "o"))
    same = compare.of_sides(side_of("a", "s", digest="x"), side_of("b", "s", digest="x")).steps[0].judged
    assert (same.ratio, same.low, same.high) == (1, 1, 1)
    empty = SideOf("e", (RunOf("e", "rounds", {}, (StepOf("s", step_of({}).items, 5.0),)),), "e")
    assert compare.of_sides(empty, replace(empty, digest="f")).steps[0].rows == []


@pytest.mark.parametrize(("steps", "error"), [(("s",), 0.005), (("s", "t"), 0.0025)])
def test_the_error_is_shared_by_steps_and_by_the_step_and_its_rows(
    steps: tuple[str, ...], error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def judge(a: np.ndarray, b: np.ndarray, *, paired: bool, error: float, least: float) -> list[Judged]:
        seen.append(error)
        return [Judged(Verdict.SAME, Basis.TIME, 1.0)] * a.shape[1]

    monkeypatch.setattr(compare.verdict, "judge", judge)
    compare.of_sides(side_of("a", *steps), side_of("b", *steps))
    assert seen == [error] * (2 * len(steps))
    seen.clear()
    without = [step_of({"k": 5.0})], [step_of({"k": 5.0})]
    compare._step(*without, False, 0.02, 0.01)
    assert seen == [0.01]  # rows alone
    seen.clear()
    compare._step([StepOf("s", step_of({}).items, 5.0)], [StepOf("s", step_of({}).items, 5.0)], False, 0.02, 0.01)
    assert seen == [0.01]  # the step alone


@pytest.mark.parametrize(
    ("a", "b", "differ"),
    [("median 1000", "median 1029.9", False), ("median 1000", "median 1030.1", True), ("median 1000", "median 970.1", False),
     ("median 1000", "median 969.9", True), ("1000", "1000 MHz", True), ("1000", "1000", False), ("median 1000", "1000", True)],
)  # fmt: skip
def test_sampled_clocks_differ_by_more_than_three_percent(a: str, b: str, differ: bool) -> None:
    assert compare._clocks_differ(a, b) is differ


def test_conditions_that_decide_stand_first() -> None:
    a, b = (
        RunOf("r", "rounds", {"driver": name, "GPU": name, "torch": name, "card": name}, (step_of({"k": 1.0}),))
        for name in "ab"
    )
    assert [one.name for one in compare._differences(a, b)[0]] == ["GPU", "card", "driver", "torch"]
    none, heat = (RunOf("r", "rounds", {"throttling": text}, (step_of({"k": 1.0}),)) for text in ("", "heat"))
    assert [(one.a, one.b) for one in compare._differences(none, heat)[0]] == [("none", "heat")]
    assert [(one.a, one.b) for one in compare._differences(heat, none)[0]] == [("heat", "none")]


def test_a_row_of_one_ns_gets_a_verdict_and_one_of_none_does_not() -> None:
    found = compared([step_of({"k": 1.0, "m": 0.0, "n": 2.0})], [step_of({"k": 1.0, "m": 1.0, "n": 0.0})], paired=False)
    assert {row.a[0]: row.judged is not None for row in found.rows} == {"k": True, "m": False, "n": False}


# Bars


def test_bars_of_less_than_half_a_thousandth_of_the_longer_step_are_one() -> None:
    a, b = (
        [StepOf("s", pd.DataFrame({"time_ns": [1.0]}), 1.0, 1.0)],
        [StepOf("s", pd.DataFrame({"time_ns": [1.0]}), 1.0, 1.0)],
    )

    def bars(total_a: int, total_b: int, *times: tuple[float | None, float | None]) -> list[tuple[str, int]]:
        rows = [Row("l", [f"k{at}"], [f"k{at}"], Match.NAME, *pair) for at, pair in enumerate(times)]
        return [(bar.what, bar.ns) for bar in waterfall.waterfall(a, b, rows, total_a, total_b, True)]

    assert bars(10_000, 6_000, (0, 5), (0, 4)) == [("k0", 5), ("1 smaller differences", 4), ("residual", -4_009)]
    assert bars(6_000, 10_000, (9, 4), (4, 0)) == [("k0", -5), ("1 smaller differences", -4), ("residual", 4_009)]
    assert bars(100, 100, (1, 2), (5, 1), (None, 3)) == [("k1", -4), ("k2", 3), ("k0", 1), ("residual", 0)]


def test_a_wait_of_one_side_only_is_a_bar() -> None:
    items = pd.DataFrame({"time_ns": [1.0]})
    a, b = (
        StepOf("s", items, 11.0, 1.0, {"sync": 10.0, "launching": 3.0}),
        StepOf("s", items, 8.0, 1.0, {"launching": 4.0, "pause": 3.0}),
    )
    rows = [Row("l", ["k"], ["k"], Match.NAME, 1.0, 1.0)]
    found = waterfall.waterfall([a], [b], rows, 100, 94, False)
    assert [(bar.what, bar.ns, bar.cause) for bar in found[:3]] == [
        ("waiting for the GPU", -10, "the GPU waits less"), ("pause", 3, "the GPU waits longer"), ("launching", 1, "the GPU waits longer")
    ]  # fmt: skip


def test_a_bar_names_three_kernels_and_whether_there_are_more() -> None:
    one = [StepOf("s", pd.DataFrame({"time_ns": [1.0]}), 1.0, None)]

    def what(a: list[str], b: list[str]) -> str:
        return waterfall.waterfall(one, one, [Row("l", a, b, Match.REPLACED, 0.0, 9.0)], 10, 19, True)[0].what

    assert what(["x", "y", "z"], ["w"]) == "x + y + z"
    assert what(["x", "y", "z", "w"], []) == "x + y + z …"
    assert what([], ["w"]) == "w"
    assert waterfall._overlap(one) == -1  # busy time unknown: none


# Rounds


def test_a_round_has_a_row_for_each_step_and_each_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("3-1", "12-4", "x-1", "1-2x"):
        (tmp_path / name).mkdir()
    seen: list[Path] = []

    def load(paths: list[Path]) -> str:
        seen.extend(paths)
        return "capture"

    steps = (step_of({"k": 2.5, "m": 3.0}, 10.6), replace(step_of({"n": 1.0}), name="t"))
    monkeypatch.setattr(rounds, "load", load)
    monkeypatch.setattr(rounds, "of_capture", lambda capture, name: RunOf(name, capture, {}, steps))
    found = list(rounds.rows(tmp_path))
    assert seen == [tmp_path / "3-1" / "captures", tmp_path / "12-4" / "captures"]  # 3 before 12
    assert found[:4] == [
        (3, 3, 1, "s", "", "", 1, 11), (3, 3, 1, "s", "", "k", 1.0, 2.5), (3, 3, 1, "s", "", "m", 1.0, 3.0), (3, 3, 1, "t", "", "n", 1.0, 1.0)
    ]  # fmt: skip
    assert [row[:3] for row in found[4:]] == [(12, 12, 4)] * 4


# Exact quantities


def one_launch(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"launches": [1.0]} | {name: [value] for name, value in columns.items()})


@pytest.mark.parametrize(
    ("name", "a", "b", "told"),
    [
        ("l2_hit_frac", 0.5, 0.5625, "higher L2 hit rate: 50% → 56%"),
        ("l2_hit_frac", 0.5625, 0.5, "lower L2 hit rate: 56% → 50%"),
        ("l2_hit_frac", 0.0, 0.02, "higher L2 hit rate: 0% → 2%"),
        ("l2_hit_frac", 0.0, 0.019, ""),
        ("sm_clock_hz", 1e9, 1.031e9, "SM clock 1000 → 1031 MHz"),
        ("sm_clock_hz", 1e9, 0.969e9, "SM clock 1000 → 969 MHz"),
        ("sm_clock_hz", 1.0e9, 1.0299e9, ""),
        ("sm_clock_hz", 0.0, 1e9, ""),
        ("spill_bytes", 0.0, 8.0, "more spilled bytes a thread: 0 → 8"),
        ("spill_bytes", 8.0, 0.0, "fewer spilled bytes a thread: 8 → 0"),
        ("grid", "1x1x1", "1x1x1", ""),
    ],
)
def test_what_explains_a_time(name: str, a: Any, b: Any, told: str) -> None:
    mine, other = one_launch(**{name: a}), one_launch(**{name: b})
    found = quantities.compare(mine, other, Match.NAME)
    assert quantities.cause(mine, other, Match.NAME, found, []) == told


def test_three_causes_stand_with_the_largest_first_and_what_was_nothing_before_them() -> None:
    a = one_launch(spill_bytes=0.0, inst_executed=100.0, dram_bytes=1e9, l2_hit_frac=0.5, registers=40.0)
    b = one_launch(spill_bytes=8.0, inst_executed=150.0, dram_bytes=2e9, l2_hit_frac=0.1, registers=41.0)
    found = quantities.compare(a, b, Match.NAME)
    assert quantities.cause(a, b, Match.NAME, found, []) == (
        "more spilled bytes a thread: 0 → 8; more DRAM bytes: 1 G → 2 G; more instructions: 100 → 150"
    )


@pytest.mark.parametrize(
    ("name", "a", "b", "differs"),
    [
        ("launches", 1.0, 2.0, True), ("inst_executed", 1_000.0, 999.0, False), ("inst_executed", 1_000.0, 998.9, True),
        ("occupancy_theoretical_frac", 0.5, 0.5000004, False), ("occupancy_theoretical_frac", 0.5, 0.500001, True), ("registers", 40.0, 40.0, False),
    ],
)  # fmt: skip
def test_a_quantity_differs_beyond_its_tolerance(name: str, a: float, b: float, differs: bool) -> None:
    found = quantities.compare(one_launch(**{name: a}), one_launch(**{name: b}), Match.NAME)
    assert [one.differs for one in found if one.name == name] == [differs]


@pytest.mark.parametrize(
    ("ratio", "kind"), [(np.exp(0.05), Verdict.SAME), (np.exp(0.0501), Verdict.UNSURE), (np.exp(-0.05), Verdict.SAME)]
)
def test_equal_work_does_not_contradict_five_percent(ratio: float, kind: Verdict) -> None:
    equal = quantities.compare(one_launch(inst_executed=5.0), one_launch(inst_executed=5.0), Match.NAME)
    judged = Judged(Verdict.UNSURE, Basis.NOTHING, float(ratio) * (1 - 1e-12 if ratio > 1 else 1 + 1e-12))
    assert quantities.decide(judged, equal).verdict is kind


# Verdicts


def test_the_smallest_change_that_counts_is_smaller_for_pairs() -> None:
    """Eight runs a side, without noise: 1.004 is SAME in turns, 1.006 SLOWER; apart it takes 2 %."""
    a = np.full((8, 1), 100.0)

    def kind(growth: float, paired: bool, **more: float) -> Verdict:
        return verdict.judge(a, a * growth, paired=paired, **more)[0].verdict

    assert (kind(1.004, True), kind(1.006, True)) == (Verdict.SAME, Verdict.SLOWER)
    assert (kind(1.019, False), kind(1.021, False), kind(0.979, False)) == (
        Verdict.SAME,
        Verdict.SLOWER,
        Verdict.FASTER,
    )
    assert kind(1.006, True, least=0.01) is Verdict.SAME
    one, two = (verdict.judge(a[:count], a[:count], paired=True)[0] for count in (1, 2))
    assert (one.why[:10], two.why[:10], one.more, two.more) == ("one run a ", "2 runs a s", 7, 6)
    assert kind(1.006, True, error=0.001) is Verdict.UNSURE  # eight pairs are too few: 2 of 256 patterns


def test_the_largest_statistic_of_all_rows_bounds_each() -> None:
    """A noisy row beside a steady one: its patterns reach as far, so the steady one's interval is wider than alone."""
    a = np.zeros((8, 2))
    b = np.stack([np.array([1.0, 2, 3, 4, 5, 6, 7, 8]), np.array([8.0, 1, 7, 2, 6, 3, 5, 4])], axis=1)
    _, both = verdict.interval(a, b, paired=True, error=0.05)
    _, alone = verdict.interval(a[:, :1], b[:, :1], paired=True, error=0.05)
    assert both[0] >= alone[0]
    assert verdict.interval(b, a, paired=True, error=0.05)[1].tolist() == both.tolist()
    assert [each.tolist() for each in verdict.interval(a, a, paired=True, error=0.05)] == [[0, 0], [0, 0]]
    apart, half = verdict.interval(np.arange(5.0)[:, None], 50 + np.arange(5.0)[:, None], paired=False, error=0.01)
    assert (apart[0], np.isfinite(half[0])) == (50, True)
    assert np.isinf(
        verdict.interval(np.arange(4.0)[:, None], 50 + np.arange(5.0)[:, None], paired=False, error=0.01)[1][0]
    )


# The gate


def quantity(name: str, a: float | None, b: float | None, differs: bool = True) -> Row:
    return Row("l", ["k"], ["k"], Match.NAME, 10.0, 20.0, None, [Quantity(name, a, b, differs)])


def said_by(
    rule: gate.Rule, *rows: Row, a: int | None = 100, b: int | None = 200, judged: Judged | None = None
) -> tuple[str, str]:
    one = ComparedStep("s", a, b, judged or Judged(Verdict.SLOWER, Basis.TIME, 2.0), "", [], list(rows))
    side = Side("a", "rounds", 1, {})
    (found,) = gate.check(Comparison(side, side, True, 0.005, 0.01, one.judged, [], [one], []), [rule])
    return found.status, found.sentence


def test_what_is_unknown_on_one_side_is_unsure_and_growth_has_a_limit() -> None:
    rule = gate.Rule("g", "registers", most_growth=0.5)
    assert said_by(rule, quantity("registers", None, 5.0)) == ("unsure", "l: k: registers 0 → 5, unknown on one side")
    assert said_by(rule, quantity("registers", 5.0, None)) == ("unsure", "l: k: registers 5 → 0, unknown on one side")
    assert said_by(rule, quantity("registers", 10.0, 15.0)) == ("pass", "l: k: registers 10 → 15, growth at most 50.0%")
    assert said_by(rule, quantity("registers", 10.0, 16.0))[0] == "fail"
    assert said_by(gate.Rule("g", "time", most=200.0)) == ("pass", "s: time 0.1 µs → 0.2 µs, at most 0.2 µs")
    assert said_by(gate.Rule("g", "tokens_per_s", tokens=2, most_growth=0.1))[0] == "fail"
    assert said_by(gate.Rule("g", "time", most_growth=0.1), judged=Judged(Verdict.SLOWER, Basis.TIME, None))[1] == (
        "s: SLOWER, an unknown change, limit +10.0%"
    )


def test_a_rule_on_launches_needs_both_sides_and_one_on_the_step_its_time() -> None:
    rule = gate.Rule("g", "launches", most=7)
    assert said_by(rule, quantity("launches", 2.0, 3.0), quantity("launches", None, 4.0)) == (
        "pass",
        "s: launches 2 → 7, at most 7",
    )
    for rows in (
        [quantity("launches", 2.0, None)],
        [quantity("launches", None, 2.0)],
        [quantity("registers", 2.0, 2.0)],
    ):
        with pytest.raises(UsageError, match="matches nothing"):
            said_by(rule, *rows)
    assert said_by(rule, quantity("launches", 2.0, 9.0), a=None) == (
        "fail",
        "l: k: launches 2 → 9, at most 7",
    )  # by row
    assert said_by(rule, quantity("launches", 2.0, 9.0), b=None)[0] == "fail"
    two = gate.Rule("g", "registers", most=7)
    assert said_by(two, quantity("registers", 1.0, 9.0), quantity("registers", 1.0, 5.0))[1].startswith("1 of 2 rows: ")
    assert said_by(two, quantity("registers", 1.0, 6.0), quantity("registers", 1.0, 5.0))[1].startswith("l: k")
    assert gate.Rule("g", "registers", most=1).of_step is gate.Rule("g", "time", most=1, layer="x").of_step is False
    assert gate.Rule("g", "time", most=1).of_step
    assert not gate.Rule("g", "time", most=1, kernel="x").of_step


# Units of both sides


def test_several_steps_as_one_are_so_many_times_as_long() -> None:
    items = pd.DataFrame(
        {"layer": "", "kernel": ["k"], "launches": 2.0, "time_ns": 5.0, "typical_ns": 4.0, "registers": 9.0}
    )
    made = StepOf("s", items, 10.0, None, {"sync": 1.5}, None, slow_ns=2.0, seen=7, marked=True).times(3)
    assert made.items.iloc[0].tolist() == ["", "k", 6, 15, 12, 9]
    assert (made.wall_ns, made.busy_ns, made.typical_ns, made.idle_ns) == (30, None, None, {"sync": 4.5})
    assert (made.slow_ns, made.seen, made.marked) == (6, 2, True)


def factor(a: list[tuple[str, float, float]], b: list[tuple[str, float, float]]) -> int:
    """Rows: kernel, launches and time."""
    frames = [pd.DataFrame(rows, columns=["kernel", "launches", "time_ns"]).assign(layer="") for rows in (a, b)]
    return units._factor(*frames)


@pytest.mark.parametrize(
    ("a", "b", "times"),
    [
        ([("k", 1, 10), ("m", 1, 10)], [("k", 2, 20), ("m", 2, 20)], 2),
        ([("k", 1, 10), ("m", 1, 10)], [("k", 2.03, 20), ("m", 1.97, 20)], 2),  # less than two percent off
        ([("k", 1, 10), ("m", 1, 10)], [("k", 2.05, 20), ("m", 2.05, 20)], 0),
        ([("k", 2, 10), ("m", 2, 10)], [("k", 1, 20), ("m", 1, 20)], 0),  # less often
        ([("k", 1, 10), ("m", 1, 10)], [("k", 1, 20), ("m", 1, 20)], 0),
        ([("k", 1, 10)], [("k", 2, 20)], 0),  # one kernel tells nothing
        ([("k", 1, 10), ("x", 1, 10)], [("k", 2, 20), ("y", 2, 20)], 0),
        ([("k", 1, 10), ("m", 1, 10)], [("k", 2, 80), ("m", 3, 20)], 2),  # four fifths of the time agree
        ([("k", 1, 10), ("m", 1, 10)], [("k", 2, 79), ("m", 3, 21)], 0),
        ([("k", 1, 80), ("m", 1, 20)], [("k", 2, 1), ("m", 3, 1)], 2),  # the longer of both times counts
        ([("k", 1, 0), ("m", 1, 0)], [("k", 2, 0), ("m", 2, 0)], 0),
        ([("k", 1, 5), ("k", 1, 5), ("m", 2, 10)], [("k", 6, 20), ("m", 6, 20)], 3),  # sums of a kernel
    ],
)
def test_a_step_is_part_of_another_if_its_kernels_run_a_whole_number_of_times(
    a: list[tuple[str, float, float]], b: list[tuple[str, float, float]], times: int
) -> None:
    assert factor(a, b) == times


def test_steps_of_which_one_is_marked_or_has_no_time_stay() -> None:
    once, twice = (step_of({"k": ns, "m": ns}, 100.0) for ns in (10.0, 20.0))
    twice = replace(twice, items=twice.items.assign(launches=2.0))
    assert units.equal_steps([once], [twice])[0][0].wall_ns == 200
    assert units.equal_steps([replace(once, marked=True)], [twice])[0][0].wall_ns == 200  # one range is not enough
    for a, b in ((replace(once, wall_ns=None), twice), (once, replace(twice, wall_ns=None))):
        assert units.equal_steps([a], [b]) == ([a], [b], "")
    both = [replace(one, marked=True) for one in (once, twice)]
    assert units.equal_steps(both[:1], both[1:])[2] == ""


def test_doubts_are_of_the_run_with_fewest_steps_and_of_slow_steps_on_average() -> None:
    def of(slow: float, seen: int, wall: float | None = 1_000_000.0) -> StepOf:
        return replace(step_of({"k": 1.0}, wall), slow_ns=slow, seen=seen)

    assert next(units.doubts([of(0, 9), of(0, 1)], [of(0, 3)])).startswith("A has only 1 steady step,")
    assert next(units.doubts([of(0, 9)], [of(0, 3), of(0, 2)])).startswith("B has only 2 steady steps")
    assert list(units.doubts([of(0, 0)], [of(0, 3)])) == []  # unknown
    assert list(units.doubts([of(0, 9), of(40_000, 9)], [of(0, 9)])) == []  # 20 µs of 1,000 on average
    assert list(units.doubts([of(0, 9), of(42_000, 9)], [of(0, 9)])) == [
        "Slow steps are left out: they add 21 µs a step to A and 0 µs to B."
    ]


def test_one_launch_of_each_kernel_and_grid_stands_for_all() -> None:
    def of(name: str, kernels: str, grids: str) -> SideOf:
        rows = pd.DataFrame({"layer": "", "kernel": list(kernels), "grid": list(grids), "block": "1", "launches": 1.0})
        rows = rows.assign(
            time_ns=np.arange(len(rows)) * 10.0 + 10, source="a.cu", line=np.arange(len(rows)), ordinal=0
        )
        return SideOf(name, (RunOf(name, "capture", {}, (StepOf("kernels by ncu", rows),), times=Times.NCU),), name)

    a, b = of("a", "kkkm", "1121"), of("b", "km", "11")
    one, other, notes = units.one_each(a, b)
    items = one.runs[0].steps[0].items
    assert items[["kernel", "grid", "time_ns", "line", "ordinal"]].to_numpy().tolist() == [
        ["k", "1", 15, 0, 0], ["k", "2", 30, 2, 1], ["m", "1", 40, 3, 0]
    ]  # fmt: skip
    assert notes[0].startswith("ncu counted 4 launches of A and 2 of B")
    assert len(other.runs[0].steps[0].items) == 2
    assert units.one_each(of("a", "km", "11"), of("b", "kx", "11"))[2] == []  # equal for what both have


# A typical step


def test_a_run_counts_with_its_typical_step_where_that_is_known() -> None:
    one = replace(step_of({"k": 10.0, "m": 30.0}, 100.0, typical_ns=[8.0, 24.0]), typical_ns=90.0, busy_ns=50.0)
    other = replace(one, typical_ns=None, busy_ns=None)
    assert compare._walls([one, other, replace(other, wall_ns=None)], np.zeros((3, 2)))[:2].tolist() == [90, 100]
    assert np.isnan(compare._walls([replace(other, wall_ns=None)], np.zeros((1, 2)))[0])
    assert compare._walls([replace(one, name="kernels by ncu")], np.array([[1.0, 2.0]])).tolist() == [3]
    assert compare._busy([one])[0] == 50 * 32 / 40
    assert compare._busy([replace(one, items=one.items.drop(columns="typical_ns"))])[0] == 50
    assert np.isnan(compare._busy([other, replace(one, items=one.items.assign(time_ns=0.0))])).all()


def test_rows_and_the_busy_gpu_are_judged_as_one_family(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []

    def judge(a: np.ndarray, b: np.ndarray, **more: Any) -> list[Judged]:
        seen.append(a.shape)
        return [Judged(Verdict.SAME, Basis.TIME, float(at)) for at in range(a.shape[1])]

    monkeypatch.setattr(compare.verdict, "judge", judge)
    times, large = [np.ones((2, 3)), np.ones((2, 3))], np.array([True, False, True])
    busy = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
    found, gpu = compare._judged_rows(times, large, busy, True, 0.01, 0.005)
    assert ({at: one.ratio for at, one in found.items()}, gpu and gpu.ratio, seen) == ({0: 0, 2: 1}, 2, [(2, 3)])
    for unknown in (np.array([1.0, np.nan]), np.array([1.0, 0.0])):
        found, gpu = compare._judged_rows(times, large, [busy[0], unknown], True, 0.01, 0.005)
        assert (len(found), gpu, seen[-1]) == (2, None, (2, 2))
    single = [one[:1] for one in busy]
    assert compare._judged_rows([one[:1] for one in times], large, single, True, 0.01, 0.005)[1] is None
    assert compare._judged_rows(times, np.zeros(3, bool), busy, True, 0.01, 0.005) == ({}, None)
    unknown_row = [times[0], np.array([[1.0, 1, 1], [1, np.nan, 1]])]
    assert compare._judged_rows(unknown_row, large, busy, True, 0.01, 0.005) == ({}, None)
    assert compare._judged_rows(unknown_row[::-1], large, busy, True, 0.01, 0.005) == ({}, None)


def test_a_row_is_large_if_it_is_on_one_side() -> None:
    times = [np.array([[60.0, 49.0, 0.0, 50.0, 90.0]]), np.array([[40.0, 49.0, 99.0, 1.0, 90.0]])]
    assert compare._large(times, 10_000).tolist() == [True, False, False, True, True]
    assert compare._large([times[0], np.where(times[1] == 90, 0, times[1])], 0.0).tolist() == [
        True,
        True,
        False,
        True,
        False,
    ]


def test_a_row_that_has_no_time_on_one_side_has_none_and_a_source_may_lack_its_line() -> None:
    for a, b in ((10.0, np.nan), (np.nan, 10.0)):
        (row,) = compared([step_of({"k": a})], [step_of({"k": b})], paired=False).rows
        assert (row.a_ns, row.b_ns) == (None, None)
    assert compare._source(step_of({"k": 1.0}, source="a.cu").items) == ("a.cu", 0)


def test_a_capture_tells_the_typical_step_and_what_slow_ones_add() -> None:
    """Ten steps of 600, of which one takes 1,800: 120 more on average of all; kernels take 100, in one step 190."""
    ops = [op(810, 5, 800, name="early"), *launched("abb" * 5), *launched("abb" * 5, begin=5_200)]
    ops[5]["duration_ns"] = 190
    (step,) = runs.of_capture(captured(ops), "x").steps
    assert (step.wall_ns, step.typical_ns, step.seen, step.marked) == (600, 600, 9, False)
    assert step.slow_ns == 120
    assert step.items["typical_ns"].tolist() == [100, 100, 100]
    assert step.items["time_ns"].tolist() == [100, 110, 100]
    ops[5]["duration_ns"], ops[15]["duration_ns"] = 100, 190  # the last kernel of a step, which is 90 longer then
    (step,) = runs.of_capture(captured(ops), "x").steps
    assert (step.wall_ns, step.typical_ns) == (610, 600)


def test_rounds_take_the_typical_times_of_a_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "1-0").mkdir()
    one = replace(step_of({"k": 10.0}, 100.4, typical_ns=[8.0]), typical_ns=90.6)
    monkeypatch.setattr(rounds, "load", lambda paths: "capture")
    monkeypatch.setattr(rounds, "of_capture", lambda capture, name: RunOf(name, capture, {}, (one,)))
    assert [row[-1] for row in rounds.rows(tmp_path)] == [91, 8]


def test_waits_of_a_round_are_shared_as_in_the_capture_beside_it() -> None:
    def of(idle: dict[str, float], name: str = "s") -> RunOf:
        return RunOf("r", "rounds", {}, (replace(step_of({"k": 1.0}, 10.0), idle_ns=idle, name=name),))

    def shared(mine: dict[str, float], theirs: dict[str, float], name: str = "s") -> Any:
        return [run.steps[0].idle_ns for run in runs._with_counters([of(mine), of(mine)], of(theirs, name))]

    assert shared({"other": 8.0}, {"sync": 1.0, "launching": 3.0}) == [{"sync": 2, "launching": 6}] * 2
    assert shared({"other": 8.0}, {"sync": 0.0}) == shared({"other": 8.0}, {"sync": 1.0}, "t") == [{"other": 8}] * 2
    assert shared({"sync": 8.0}, {"launching": 1.0}) == [{"sync": 8}] * 2
