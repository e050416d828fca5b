"""The kernel ladder: what is declared, what is missing, and from exports of ncu to its tables and claims. No GPU."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from analysis import hot_lines
from analysis.formats import symbols
from analysis.formats.errors import InputError, UsageError
from analysis.tables.join import prepare_counters
from kernels import registry
from kernels.registry import Hypothesis
from studies.ladder import build as composer
from studies.ladder import measure as ladder
from studies.ladder import tables as ladder_tables
from studies.ladder.claims_page import render_claims
from studies.ladder.page import STALE_MARK
from studies.ladder.read import Ladder, read_elsewhere, read_ladder
from tests import committed
from tests.declared import LADDER_TABLES
from tests.ladder_export import LINES, Launch, checked, timed, write_csv, write_run

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = committed.folder("ladder")


@pytest.fixture(scope="module")
def committed_ladder() -> Ladder:
    """Read the captures of the committed ladder once, for the tests of one worker (`xdist_group`)."""
    return read_ladder(COMMITTED)


# What is declared --------------------------------------------------------------------------------------------


def test_every_variant_of_every_op_is_a_point_at_its_bench_shape() -> None:
    found = {point.key[:3] for point in ladder.points() if point.shape == point.op.bench_shape}
    wanted = {
        (op.name, name, registry.short_dtype(dtype))
        for op in registry.ops().values()
        for dtype in op.dtypes
        for name, variant in op.variants.items()
        if dtype in variant.dtypes and not variant.cannot(op.bench_shape, dtype)
    }
    assert found == wanted
    keys = [point.key for point in ladder.points()]
    assert len(keys) == len(set(keys))


def test_claims_name_rungs_that_exist_and_columns_that_exist() -> None:
    known = registry.ops()
    columns = LADDER_TABLES["ladder"].column_names
    there = {point.key for point in ladder.points()}
    for claim in ladder.read_claims():
        assert claim["op"] in known, f"claim {claim['name']}: no op {claim['op']}"
        for side in ("before", "after"):
            if side in claim:
                asked = claim[side]
                op = known[claim["op"]]
                key = (op.name, asked["variant"], asked["dtype"], op.shape_name(tuple(asked["shape"])))
                assert key in there, f"claim {claim['name']}: {key} is no point"
        for measure in claim["measure"]:
            assert measure["metric"] in columns
            assert len({"ratio", "change", "value"} & set(measure)) == 1
            assert "before" in claim or "value" in measure


def test_hypotheses_name_columns_and_variants_that_exist() -> None:
    columns = LADDER_TABLES["ladder"].column_names
    for point in ladder.points():
        for said in ladder.hypotheses(point):
            assert said["metric"] in columns or said["metric"].startswith("stall_"), (point.key, said)
            if "at" in said:  # need not be a point
                assert said["metric"] in LADDER_TABLES["ladder_times"].column_names, (point.key, said)
                assert said["at"] in point.op.shapes, (point.key, said)
            assert said["versus"] in ("", "floor", *point.op.variants), (point.key, said)


def test_the_committed_declaration_is_that_of_the_registry() -> None:
    told = "kernels have changed: run `make readme`, which declares the ladder and its tables anew"
    assert (COMMITTED / "ladder.json").read_text("utf-8") == ladder.declaration(COMMITTED), told


@pytest.mark.slow
@pytest.mark.xdist_group("ladder")
def test_the_committed_tables_are_those_of_the_committed_runs(tmp_path: Path, committed_ladder: Ladder) -> None:
    built = composer.tables_of(committed_ladder)
    (tmp_path / "tables").mkdir()
    composer.write(tmp_path, built)
    for name in LADDER_TABLES:
        written = (tmp_path / "tables" / f"{name}.csv").read_text("utf-8")
        assert (COMMITTED / "tables" / f"{name}.csv").read_text("utf-8") == written, f"{name}.csv: run `make readme`"


def test_a_point_names_the_macros_that_a_sweep_has_it_built_with(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"gpu": "a GPU", "source": "permute/v01_element.cu", "macros": {"PERMUTE_V01_SPLIT_THREADS": 128}}
    monkeypatch.setattr("kernels.tuned.read", lambda path: [entry])

    def told(op: registry.Op, variant: str) -> Any:
        return ladder.declared(ladder.Point(op, variant, "float32", op.bench_shape))["macros"]

    split, merge = registry.ops()["split_permute"], registry.ops()["merge_heads"]
    assert told(split, "v01_element") == "PERMUTE_V01_SPLIT_THREADS=128"
    assert told(split, "v02_vector") == told(split, "torch") == ""
    assert told(merge, "v01_element") == ""  # of the same source, whose other kernel the macro is of


def test_what_a_variant_says_of_bytes_replaces_the_rule_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    op = registry.ops()["softmax"]
    point = ladder.Point(op, "v02_fused", "float32", op.bench_shape)
    assert [said["metric"] for said in ladder.hypotheses(point)] == ["measured_over_predicted"]
    expected = Hypothesis("measured_over_minimum", low=1.5, dtypes=("float32",))
    variant = dataclasses.replace(op.variants["v02_fused"], hypotheses=(expected,))
    monkeypatch.setitem(op.variants, "v02_fused", variant)  # type: ignore[arg-type]
    assert [said["metric"] for said in ladder.hypotheses(point)] == ["measured_over_minimum"]
    bf16 = ladder.Point(op, "v02_fused", "bfloat16", op.bench_shape)
    assert [said["metric"] for said in ladder.hypotheses(bf16)] == ["measured_over_predicted"]


def test_the_rung_below_is_the_last_one_of_ours_that_takes_the_shape() -> None:
    op = registry.ops()["matmul"]
    at = ladder.Point(op, "v05_coalesced", "float32", op.bench_shape)
    assert ladder.rung_below(at) == "v04_constant_bias"
    # constant memory does not hold the bias of the LM head
    assert ladder.rung_below(ladder.Point(op, "v05_coalesced", "float32", op.shapes["lm_head"])) == "v03_unroll4"
    assert ladder.rung_below(ladder.Point(op, "v10_mma", "bfloat16", op.bench_shape)) == ""


# What is missing ---------------------------------------------------------------------------------------------


def some_points() -> list[ladder.Point]:
    return sorted((point for point in ladder.points() if point.op.name == "residual"), key=ladder._order)


def row_of(point: ladder.Point, fingerprint: str = "", **more: str) -> dict[str, Any]:
    return checked(point.key, point.sizes, fingerprint or point.fingerprint, **more)


def test_a_point_is_missing_until_its_source_was_checked_and_captured(tmp_path: Path) -> None:
    wanted = some_points()
    assert ladder.missing(tmp_path, ["residual"]) == wanted
    captured, uncounted, failed, changed, *rest = wanted
    points = [row_of(captured), row_of(uncounted), row_of(failed, passed="no", note="error"), row_of(changed, "old")]
    write_run(tmp_path / "r1", points, [Launch(point.key) for point in (captured, failed, changed)])
    assert ladder.missing(tmp_path, ["residual"]) == [uncounted, failed, changed, *rest]
    write_run(tmp_path / "r2", [row_of(changed)], [Launch(changed.key)])
    assert ladder.missing(tmp_path, ["residual"]) == [uncounted, failed, *rest]
    assert ladder.missing(tmp_path, ["residual"], everything=True) == wanted
    with pytest.raises(UsageError, match="softmaxx"):
        ladder.missing(tmp_path, ["softmaxx"])


def test_a_point_of_ours_without_source_lines_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points = some_points()
    ours = [point for point in points if point.variant not in ("torch", "compile")]
    rows, launches = [row_of(point) for point in points], [Launch(point.key) for point in points]
    write_run(tmp_path / "r1-residual", rows, launches, lines=LINES)  # the export held none
    assert ladder.missing(tmp_path, ["residual"]) == ours
    assert f"{' '.join(ours[0].key)} was captured without its source lines" in capsys.readouterr().err
    write_run(tmp_path / "r2-residual-slow", rows, launches[:1], lines=LINES)  # there is no time for them
    assert ladder.missing(tmp_path, ["residual"]) == ours[1:]
    write_run(tmp_path / "r0-residual", rows, launches)
    assert ladder.missing(tmp_path, ["residual"]) == []


def test_source_lines_are_asked_for_point_by_point(tmp_path: Path) -> None:
    points = [point for point in some_points() if not point.of_torch]
    launches = [
        Launch(points[0].key, "void ours<float, 4, 1>(const T1 *, T1 *, int)"),
        Launch(points[1].key, "void ours<float, 4, 1>(const T1 *, T1 *, int)"),
        *(Launch(point.key, "other(int)") for point in points[2:]),
    ]
    lines = LINES + '"void ours<float, (int)4, (bool)1>(const T1 *, T1 *, int)",0,a.cu,1,x,1,1,,\n'
    write_run(tmp_path / "r1", [row_of(point) for point in points], launches, lines=lines)
    assert [point for point in ladder.missing(tmp_path, ["residual"]) if not point.of_torch] == points[1:]
    lines += '"ours<float, 4, 1>",1,a.cu,1,x,1,1,,\n' + "".join(
        f"other,{at},a.cu,1,x,1,1,,\n" for at in range(len(points) - 2)
    )
    write_run(tmp_path / "r2", [row_of(point) for point in points], launches, lines=lines)
    assert [point for point in ladder.missing(tmp_path, ["residual"]) if not point.of_torch] == []


@pytest.mark.xdist_group("ladder")
def test_the_harness_and_the_analysis_find_lines_of_the_same_points(committed_ladder: Ladder) -> None:
    """Of every committed run: one says what is missing, the other makes the tables."""
    ours = {point.key for point in ladder.points() if not point.of_torch}
    for run in committed_ladder.runs:
        if run.capture is None or run.name.endswith("-slow"):
            continue
        hot = ladder_tables.hottest(run.lines, prepare_counters(run.capture.counters))
        launches = ladder._launches(COMMITTED / run.name / "captures" / "ncu_raw.csv")
        lines = ladder._rows(COMMITTED / run.name / "captures" / "ncu_lines.csv")
        found = {launches[symbols.match_key(row["kernel"]), row["ordinal"]][1:] for row in lines} & ours
        assert found == {*hot[ladder_tables.KEY].itertuples(index=False, name=None)} & ours, run.name


def test_a_point_of_another_shape_is_missing(tmp_path: Path) -> None:
    point = some_points()[0]
    write_run(tmp_path / "r1", [row_of(point) | {"shape": "1x1"}], [Launch(point.key)])
    assert point in ladder.missing(tmp_path, ["residual"])


def test_times_of_a_benchmark_beside_the_ladder_count_if_of_the_same_source(tmp_path: Path) -> None:
    first, second = some_points()[:2]
    beside = tmp_path / "gpu-residual-bench"
    write_csv(beside / "bench.csv", [timed(first.key, first.sizes, 900), timed(second.key, second.sizes, 900)])
    sources = {first.variant: first.fingerprint, second.variant: "old"}
    (beside / "bench.json").write_text(json.dumps({"kind": "bench", "schema_version": 1, "sources": sources}))
    found = ladder.timed(tmp_path / "gpu-ladder")
    assert (first.key, first.sizes, first.fingerprint) in found
    assert (second.key, second.sizes, second.fingerprint) not in found
    assert ladder.timed(tmp_path / "ladder") == {}  # not beside it: another GPU's


def test_missing_lists_points_and_needs_no_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ladder.main(["--mode", "missing", "--out", str(tmp_path), "--ops", "residual"]) == 0
    shown = capsys.readouterr()
    assert [line.split() for line in shown.out.splitlines()] == [list(point.key) for point in some_points()]
    assert f"{len(some_points())} of {len(some_points())} points are missing" in shown.err
    assert f"are missing in {tmp_path}" in shown.err
    assert ladder.main(["--mode", "missing", "--out", str(tmp_path / "nowhere")]) == 2
    assert "nowhere is not a folder: give the folder of a ladder, such as runs/ladder" in capsys.readouterr().err
    assert ladder.main(["--mode", "measure", "--out", str(tmp_path)]) == 2
    assert "--run" in capsys.readouterr().err


@pytest.fixture
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch says that there is a GPU; what would need it is for the test to replace."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr("harness.manifest.gpu_facts", lambda: None)


@pytest.mark.usefixtures("pretended_gpu")
def test_measure_checks_times_and_writes_what_the_capture_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU's part with stand-ins for what only a GPU can do."""
    from harness import bench

    monkeypatch.setattr(bench, "measure_copy", lambda rounds: {"torch_copy": [4e12]})
    asked: list[tuple[str, ...]] = []

    def check_variant(op: Any, variant: str, dtype: str, shapes: Any, device: str, full: Any) -> list[bench.Check]:
        if variant == "triton":
            raise RuntimeError("no compiler\nsecond line")
        bad = variant == "v01_element"
        return [
            bench.Check(variant, dtype, full[0], "random", 0.0, 2.0 if bad else 0.1, not bad, "too far" if bad else "")
        ]

    def time_shape(op: Any, variants: Any, dtype: str, shape: Any, *_: Any) -> list[dict[str, Any]]:
        asked.append((dtype, *variants))
        timings = bench.Timed(dtype, shape, "cold", 4, {name: [1e-3, 2e-3] for name in variants})
        rows: list[dict[str, Any]] = bench.rows_of(op, timings, 4e12)
        return rows

    monkeypatch.setattr(bench, "check_variant", check_variant)
    monkeypatch.setattr(bench, "time_shape", time_shape)
    out, run = tmp_path / "gpu-ladder", tmp_path / "gpu-ladder" / "r1"
    assert ladder.main(["--mode", "measure", "--out", str(out), "--run", str(run), "--ops", "residual"]) == 1
    rows = {
        (row["variant"], row["dtype"]): row for row in ladder._rows(out / "r1-residual" / "captures" / "points.csv")
    }
    assert rows["triton", "fp32"]["note"] == "does not run: no compiler"
    assert "too far" in rows["v01_element", "bf16"]["note"]
    assert rows["v02_vector", "fp32"]["passed"] == "yes"
    ours = ("v02_vector", "v04_pass_l1")
    assert asked == [(dtype, *ours, "compile", "torch") for dtype in ("float32", "bfloat16")]
    times = ladder._rows(out / "r1-residual" / "captures" / "bench.csv")
    assert {row["variant"] for row in times} == {"torch", "compile", *ours}
    manifest = json.loads((out / "r1-residual" / "captures" / "manifest.json").read_text("utf-8"))
    assert manifest["copy_byte_per_s"] == {"torch_copy": 4e12}
    # captured in between, and v02's source changed: that alone is measured again, beside the library
    passed = [point for point in some_points() if point.variant in ("torch", "compile", *ours)]
    from tests.ladder_export import ncu_page

    (out / "r1-residual" / "captures" / "ncu_raw.csv").write_text(ncu_page([Launch(point.key) for point in passed]))
    monkeypatch.setattr(ladder, "fingerprint", lambda op, name: "new" if name == "v02_vector" else "old")
    asked.clear()
    points_file = out / "r1-residual" / "captures" / "points.csv"
    points_file.write_text(points_file.read_text().replace(rows["torch", "fp32"]["fingerprint"], "old"))
    text = points_file.read_text()
    for row in rows.values():
        text = text.replace(row["fingerprint"], "old")
    points_file.write_text(text)
    monkeypatch.setattr(
        bench,
        "check_variant",
        lambda op, variant, *_: [] if variant == "v02_vector" else check_variant(op, variant, *_),
    )
    ladder.main(["--mode", "measure", "--out", str(out), "--run", str(out / "r2"), "--ops", "residual"])
    assert asked == [("float32", "torch", "v02_vector"), ("bfloat16", "torch", "v02_vector")]
    assert {row["variant"] for row in ladder._rows(out / "r2-residual" / "captures" / "bench.csv")} == {"v02_vector"}


@pytest.mark.usefixtures("pretended_gpu")
def test_what_a_benchmark_of_the_same_source_timed_is_not_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "check", lambda point: pytest.fail(f"{point.key} is checked again"))
    points = some_points()
    slow = points[0]
    beside = tmp_path / "gpu-residual-bench"
    write_csv(beside / "bench.csv", [timed(one.key, one.sizes, 50_000_000 if one is slow else 900) for one in points])
    sources = {one.variant: one.fingerprint for one in points}
    (beside / "bench.json").write_text(json.dumps({"kind": "bench", "schema_version": 1, "sources": sources}))
    out, run = tmp_path / "gpu-ladder", tmp_path / "gpu-ladder" / "r1"
    assert ladder.main(["--mode", "measure", "--out", str(out), "--run", str(run), "--ops", "residual"]) == 0
    assert len(ladder._rows(out / "r1-residual" / "captures" / "points.csv")) == len(points) - 1
    (apart,) = ladder._rows(out / "r1-residual-slow" / "captures" / "points.csv")
    assert (apart["variant"], apart["dtype"], apart["passed"]) == (slow.variant, slow.key[2], "yes")
    assert not (out / "r1-residual" / "captures" / "bench.csv").exists()
    conditions = json.loads((out / "r1-residual" / "captures" / "manifest.json").read_text("utf-8"))
    assert (conditions["clocks"], conditions["clocks_reason"]) == (None, "nothing was timed in this run")


@pytest.mark.parametrize(("seconds", "captured"), [("0", 3), ("25", 2)])
def test_the_capture_launches_each_point_once_until_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds: str, captured: int
) -> None:
    import torch

    from harness.ranges import RecordingTracer

    calls: list[str] = []
    profiler = SimpleNamespace(
        cudaProfilerStart=lambda: calls.append("start"), cudaProfilerStop=lambda: calls.append("stop")
    )
    for name, value in (("is_available", lambda: True), ("cudart", lambda: profiler), ("check_error", lambda _: None)):
        monkeypatch.setattr(torch.cuda, name, value)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    tracer = RecordingTracer()
    monkeypatch.setattr("harness.ranges.NvtxTracer", lambda: tracer)
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(ladder.time, "monotonic", lambda: float(next(clock)))
    op = registry.ops()["residual"]
    fake = dataclasses.replace(
        op,
        make_inputs=lambda *_, **__: ("x",),
        variants={
            name: dataclasses.replace(variant, fn=lambda value, name=name: calls.append(name))
            for name, variant in op.variants.items()
        },
    )
    monkeypatch.setattr(registry, "ops", lambda: {"residual": fake})
    keys = [("residual", name, "fp32", "large") for name in ("torch", "v01_element", "v02_vector")]
    rows = [checked(key, "196608x768", "f") for key in keys]
    write_run(tmp_path / "r1", [*rows, checked(("residual", "triton", "fp32", "large"), "1x1", "f", "no")], [])
    assert ladder.main(["--mode", "capture", "--run", str(tmp_path / "r1"), "--seconds", seconds]) == 0
    assert calls == [word for _, name, *_ in keys[:captured] for word in (name, "start", name, "stop")]
    paths = [instance.path for instance in tracer.instances if instance.path.count("/") == 4]
    assert paths == ["/".join(("ladder", *key)) for key in keys[:captured]]
    assert ("1 of 3 points are left" in capsys.readouterr().err) == (captured < 3)


def test_nothing_missing_makes_no_run(tmp_path: Path) -> None:
    points = some_points()
    write_run(tmp_path / "r1", [row_of(point) for point in points], [Launch(point.key) for point in points])
    arguments = ["--mode", "measure", "--out", str(tmp_path), "--run", str(tmp_path / "r2"), "--ops", "residual"]
    assert ladder.main(arguments) == 4
    assert not (tmp_path / "r2").exists()


# From exports to tables --------------------------------------------------------------------------------------


def point(variant: str, rung: int, **more: Any) -> dict[str, Any]:
    """A point of ladder.json."""
    base = {
        "op": "op", "folder": "op", "variant": variant, "kind": "cuda", "rung": rung, "best": False, "is_library": False,
        "precision": "", "macros": "", "refuses": "", "rung_below": "", "dtype": "fp32", "shape_name": "s", "shape": "2x3",
        "axes": "N,C", "at_bench_shape": True,
        "hypothesis": "h", "minimum_bytes": 800, "predicted_bytes": 1000, "flops": 10, "compute_bound": False,
        "reads_only": False, "symbols": [], "source": "", "fingerprint": f"f{rung}",
        "hypotheses": [said("measured_over_predicted", high=1.1)],
    }  # fmt: skip
    return base | more


def said(
    metric: str, versus: str = "", low: float | None = None, high: float | None = None, equals: str = ""
) -> dict[str, Any]:
    return {"metric": metric, "versus": versus, "low": low, "high": high, "equals": equals}


def key(variant: str) -> tuple[str, str, str, str]:
    return ("op", variant, "fp32", "s")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two rungs and the library; v01 in two launches, v02 moved too much."""
    points = [
        point("torch", 0, kind="torch", is_library=True),
        point("v01", 1, hypotheses=[said("measured_over_predicted", high=1.1), said("top_stall", equals="long_scoreboard")]),
        point(
            "v02", 2, rung_below="v01",
            hypotheses=[
                said("measured_over_predicted", high=1.1), said("bench_time_p50_ns", "v01", high=0.6),
                said("bench_time_p50_ns", "floor", low=1.5), said("stall_barrier_frac", high=0.3),
                said("sectors_per_request_load", low=8.0), said("tensor_active_frac", low=0.8),
            ],
        ),
        point("v03", 3, rung_below="v02"),
    ]  # fmt: skip
    claim: dict[str, Any] = {
        "name": "c", "source": "a lecture", "says": "v02 is faster", "op": "op",
        "before": {"variant": "v01", "dtype": "fp32", "shape": [2, 3]},
        "after": {"variant": "v02", "dtype": "fp32", "shape": [2, 3]},
        "measure": [
            {"what": "time", "metric": "bench_time_p50_ns", "claimed": "half", "ratio": [0.4, 0.6],
             "holds": "{before.inst_executed} → {after.inst_executed} instructions, {after.top_stall}", "fails": "no"},
            {"what": "L1", "metric": "l1_hit_frac", "claimed": "10 → 90 %", "change": [0.3, None],
             "holds": "yes", "fails": "hits {before.l1_hit_frac} and {after.l1_hit_frac}"},
            {"what": "blocks", "metric": "grid_size", "claimed": "13", "value": [13, 13], "holds": "yes", "fails": "no"},
            {"what": "tensor", "metric": "tensor_active_frac", "claimed": "much", "ratio": [1, None], "holds": "", "fails": ""},
        ],
    }  # fmt: skip
    out = tmp_path / "gpu-ladder"
    out.mkdir()
    document = {"kind": "ladder", "schema_version": 1, "points": points, "claims": [claim], "goals": []}
    (out / "ladder.json").write_text(json.dumps(document))
    launches = [
        Launch(key("torch")),
        Launch(key("v01"), "first(int)", {"gpu__time_duration.sum": 1000.0, "l1tex__t_sector_hit_rate.pct": 20.0}),
        Launch(
            key("v01"), "second(int)",
            {
                "gpu__time_duration.sum": 3000.0, "dram__bytes_read.sum": 50.0, "dram__bytes_write.sum": 30.0,
                "l1tex__t_sector_hit_rate.pct": 60.0, "smsp__inst_executed.sum": 3000.0,
                "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 400.0,
                "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 100.0, "smsp__inst_issued.sum": 3000.0,
                "smsp__average_warp_latency_per_inst_issued.ratio": 40.0, "launch__registers_per_thread": 99.0,
                "memory_l2_theoretical_sectors_global_ideal": 1000.0,
            },
        ),
        Launch(key("v02"), "third(int)", {"dram__bytes_read.sum": 900.0}),
    ]  # fmt: skip
    lines = (
        LINES + "first,0,a.cu,7,x = y;,30,100,wait,20\n"
        "second,0,a.cu,9,z = w;,50,100,barrier,40\n"
        "second,0,a.cu,7,x = y;,40,100,long_scoreboard,35\n"
        'void third(int),0,b.cu,1,"f(a, b);",10,40,,\n'
        "third,1,b.cu,2,never,99,99,,\n"
    )
    checks = [checked(key(name), "2x3", f"f{at}") for at, name in enumerate(("torch", "v01", "v02"))]
    checks.append(checked(key("v03"), "2x3", "f3", passed="no", note="error above the tolerance"))
    times = [timed(key("torch"), "2x3", 1000), timed(key("v01"), "2x3", 2000), timed(key("v02"), "2x3", 1000)]
    write_run(out / "20260101T000000Z", checks, launches, times, lines)
    return out


def rows_of(folder: Path, name: str = "ladder") -> dict[str, dict[str, Any]]:
    return {row["variant"]: row for row in composer.build(folder)[name].to_dict("records")}


def test_what_is_registered_and_has_no_time_is_a_row(folder: Path) -> None:
    assert composer.build(folder)["not_timed"].empty  # an older ladder.json, without shapes
    document = json.loads((folder / "ladder.json").read_text())
    shapes = {"op": {"fp32": ["s", "wide"], "bf16": ["s"]}}
    (folder / "ladder.json").write_text(json.dumps(document | {"shapes": shapes}))
    rows = composer.build(folder)["not_timed"]
    assert rows.values.tolist() == [["op", "fp32", "wide", "static"], ["op", "bf16", "s", "static"]]


def test_a_hottest_line_is_found_where_its_text_stands_today(tmp_path: Path) -> None:
    for folder in ("op", "include"):
        (tmp_path / folder).mkdir()
    (tmp_path / "op" / "a.cu").write_text("// a word more\n\n  x = y;\n  z();\n\n\n\n  x = y;\n")
    (tmp_path / "include" / "h.cuh").write_text("first();\nsecond();\n")
    lines = [
        ("a.cu:4", "z();", "a.cu:4"),
        ("a.cu:1", "x = y;", "a.cu:3"),  # the nearest of two
        ("a.cu:9", "x = y;", "a.cu:8"),
        ("a.cu:2", "gone();", "a.cu"),
        ("h.cuh:7", "second();", "h.cuh:2"),
        ("cuda_bf16.hpp:585", "asm();", "cuda_bf16.hpp:585"),
    ]
    table = pd.DataFrame(
        [("op", line, text) for line, text, _ in lines], columns=["folder", "hot_line", "hot_line_text"]
    )
    table.loc[len(table)] = ["op", float("nan"), float("nan")]
    found = composer.lines_today(table, tmp_path)
    assert found.tolist()[:-1] == [now for *_, now in lines]
    assert pd.isna(found.iloc[-1])


def test_a_shape_that_no_rung_takes_in_a_dtype_is_not_declared() -> None:
    known = registry.ops()["gelu"]
    assert ladder.shapes()["gelu"] == {"fp32": list(known.shapes), "bf16": list(known.shapes)}
    some = dataclasses.replace(known, shapes={"a": (1, 8), "b": (2, 8)})

    def cannot(shape: tuple[int, ...], dtype: str) -> str:
        return "too many rows" if shape[0] == 2 and dtype == "bfloat16" else ""

    refuses = dataclasses.replace(known.variants["v01_naive"], cannot=cannot)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "ops", lambda: {"gelu": dataclasses.replace(some, variants={"v01": refuses})})
        assert ladder.shapes() == {"gelu": {"fp32": ["a", "b"], "bf16": ["a"]}}


def test_counters_of_several_launches_are_those_of_one(folder: Path) -> None:
    row = rows_of(folder)["v01"]
    assert row["launches"] == 2
    assert row["kernel"] == "second"
    assert (row["ncu_time_ns"], row["inst_executed"], row["measured_bytes"]) == (4000, 4000, 1080)
    assert row["l1_hit_frac"] == pytest.approx(0.25 * 0.2 + 0.75 * 0.6)  # by time
    assert row["sectors_per_request_load"] == pytest.approx(1250 / 200)  # a ratio of sums
    assert row["warp_cycles_per_issue"] == pytest.approx(0.25 * 20 + 0.75 * 40)  # by instructions
    assert row["uncoalesced_frac"] == pytest.approx(1 - 1250 / 2000)
    assert (row["registers"], row["grid_size"], row["grid"]) == (99, 24, "12x1x1")  # of the longest; summed
    assert row["measured_over_predicted"] == pytest.approx(1.08)
    assert row["measured_over_minimum"] == pytest.approx(1.35)
    assert row["occupancy_limiter"] == "registers+warps"
    assert row["branch_efficiency_frac"] == pytest.approx(0.9)
    assert row["local_bytes"] == 0
    assert pd.isna(row["tensor_active_frac"])  # was not captured: blank, not zero
    assert (row["top_stall"], row["top_stall_frac"]) == ("long_scoreboard", pytest.approx(0.75))


def test_the_hottest_line_is_of_all_launches_of_the_point(folder: Path) -> None:
    rows = rows_of(folder)
    first = rows["v01"]
    assert first["hot_line"] == "a.cu:7"  # 30 + 40 of 200, more than 50
    assert first["hot_line_frac"] == pytest.approx(0.35)
    assert (first["hot_line_stall"], first["hot_line_text"]) == ("long_scoreboard", "x = y;")
    assert rows["v02"]["hot_line"] == "b.cu:1"
    assert pd.isna(rows["torch"]["hot_line"])


def test_times_ratios_states_and_tiers(folder: Path) -> None:
    rows = rows_of(folder)
    assert rows["v02"]["versus_below"] == pytest.approx(2.0)
    assert rows["v02"]["versus_library_p50"] == pytest.approx(1.0)
    assert pd.isna(rows["v01"]["versus_below"])
    assert {name: row["state"] for name, row in rows.items()} == {
        "torch": "current", "v01": "current", "v02": "current", "v03": "failed",
    }  # fmt: skip
    assert rows["v03"]["tier"] == "static"
    assert rows["v03"]["verdict"] == "refuted"
    assert rows["v03"]["verdict_why"] == "its check failed: error above the tolerance"


def test_hypotheses_are_judged_with_what_was_found(folder: Path) -> None:
    table = composer.build(folder)["hypotheses"]
    found = {(row["variant"], row["metric"], row["versus"]): row for row in table.to_dict("records")}
    assert found["v01", "top_stall", ""]["verdict"] == "reached"
    assert found["v01", "measured_over_predicted", ""]["verdict"] == "reached"
    assert found["v02", "measured_over_predicted", ""]["verdict"] == "refuted"
    faster = found["v02", "bench_time_p50_ns", "v01"]
    assert (faster["found"], faster["verdict"], faster["tier"]) == (0.5, "reached", "timing")
    assert faster["what"] == "time over `v01`"
    assert faster["found_text"] == "time over `v01` 0.5 (≤ 0.6)"
    assert found["v02", "bench_time_p50_ns", "floor"]["found"] == 2.0
    assert found["v02", "stall_barrier_frac", ""]["found"] == pytest.approx(0.25)
    assert found["v02", "sectors_per_request_load", ""]["found_text"] == "sectors per load request 8.5 (≥ 8)"
    unknown = found["v02", "tensor_active_frac", ""]
    assert (unknown["verdict"], pd.isna(unknown["found"])) == ("not measured", True)
    rows = rows_of(folder)
    assert rows["v01"]["verdict"] == "reached"
    assert rows["v02"]["verdict"] == "refuted"
    assert rows["v02"]["verdict_by"] == "DRAM bytes over predicted"
    assert rows["v02"]["verdict_why"].startswith("DRAM bytes over predicted 1.3 (≤ 1.1); ")
    assert "tensor" not in rows["v02"]["verdict_why"]


@pytest.mark.parametrize(
    ("found", "verdict"),
    [(1.0, "reached"), (1.05, "not refuted"), (0.85, "not refuted"), (0.7, "refuted"), (1.3, "refuted")],
)
def test_what_is_expected_and_what_refutes_are_judged_separately(found: float, verdict: str) -> None:
    assert ladder_tables._verdict_of(found, (0.9, 1.02), (0.8, 1.2), 1) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (None, 0.53, "reached"), (None, 0.51, "not refuted"), (None, 0.49, "not refuted"), (None, 0.47, "refuted"),
        (0.47, None, "reached"), (0.49, None, "not refuted"), (0.53, None, "refuted"), (0.49, 0.51, "not refuted"),
        (0.51, 0.515, "not refuted"),  # the window lies within what may be
    ],
)  # fmt: skip
def test_times_of_two_runs_are_not_judged_near_a_bound(
    folder: Path, low: float | None, high: float | None, verdict: str
) -> None:
    document = json.loads((folder / "ladder.json").read_text())
    document["points"][2]["hypotheses"] = [said("bench_time_p50_ns", "v01", low=low, high=high)]
    (folder / "ladder.json").write_text(json.dumps(document))

    def judged() -> tuple[dict[str, Any], dict[str, Any]]:
        built = composer.build(folder)
        tables = built["hypotheses"], built["ladder"]
        one, row = (table[table["variant"] == "v02"].iloc[0].to_dict() for table in tables)
        return one, row

    before, _ = judged()
    together = (low is None or low <= 0.5) and (high is None or high >= 0.5)
    assert before["verdict"] == ("reached" if together else "refuted")
    assert "runs" not in before["found_text"]
    write_run(folder / "20260102T000000Z", [checked(key("v02"), "2x3", "f2")], [], [timed(key("v02"), "2x3", 1000)])
    apart, row = judged()
    assert (apart["found"], apart["verdict"]) == (0.5, verdict)
    assert "), timed in different runs" in apart["found_text"]
    assert ("too near its bounds to judge" in apart["found_text"]) == (verdict == "not refuted")
    assert (row["verdict"], row["verdict_why"]) == (verdict, apart["found_text"])


def test_a_row_says_whether_times_or_counters_are_of_an_older_build(folder: Path) -> None:
    document = json.loads((folder / "ladder.json").read_text())
    document["points"][2]["fingerprint"] = "newest"
    (folder / "ladder.json").write_text(json.dumps(document))
    again = [checked(key("v02"), "2x3", "newest")]
    write_run(folder / "20260102T000000Z", again, [], [timed(key("v02"), "2x3", 900)])
    row = rows_of(folder)["v02"]
    assert (row["state"], row["stale"], row["bench_time_p50_ns"]) == ("stale", "counters", 900)
    write_run(folder / "20260102T000000Z", again, [Launch(key("v02"), "third(int)")])
    row = rows_of(folder)["v02"]
    assert (row["state"], row["stale"], row["bench_time_p50_ns"]) == ("current", "", 900)
    (folder / "20260102T000000Z" / "captures" / "bench.csv").unlink()
    assert rows_of(folder)["v02"]["stale"] == "times"


def test_a_hypothesis_about_time_may_name_its_shape(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    op = registry.ops()["softmax"]
    other = next(name for name, shape in op.shapes.items() if shape != op.bench_shape)
    variant = dataclasses.replace(
        op.variants["v02_fused"],
        hypotheses=(registry.Hypothesis(registry.TIME, "torch", high=0.5, dtypes=("float32",), shape=other),),
    )
    monkeypatch.setitem(op.variants, "v02_fused", variant)  # type: ignore[arg-type]
    keys = {point.key for point in ladder.points()}
    assert {("softmax", name, "fp32", other) for name in ("v02_fused", "torch")} <= keys
    (stated,) = [
        one
        for one in ladder.hypotheses(ladder.Point(op, "v02_fused", "float32", op.bench_shape))
        if one["metric"] == "bench_time_p50_ns"
    ]
    assert (stated["versus"], stated["high"], stated["at"]) == ("torch", 0.5, other)
    by_times = dataclasses.replace(variant, hypotheses=(dataclasses.replace(variant.hypotheses[0], counters=False),))
    monkeypatch.setitem(op.variants, "v02_fused", by_times)  # type: ignore[arg-type]
    assert ("softmax", "v02_fused", "fp32", other) not in {point.key for point in ladder.points()}

    document = json.loads((folder / "ladder.json").read_text())
    document["points"][2]["hypotheses"] = [said("bench_time_p50_ns", "v01", high=0.6) | {"at": "wide"}]
    for at, name in enumerate(("v01", "v02"), start=1):
        wide = point(name, at, shape_name="wide", shape="2x9", at_bench_shape=False, hypotheses=[])
        document["points"].append(wide)
    (folder / "ladder.json").write_text(json.dumps(document))
    wide_keys = [("op", name, "fp32", "wide") for name in ("v01", "v02")]
    checks = [checked(one, "2x9", f"f{at}") for at, one in enumerate(wide_keys, start=1)]
    times = [timed(wide_keys[0], "2x9", 1000), timed(wide_keys[1], "2x9", 900)]
    write_run(folder / "20260102T000000Z", checks, [], times, "")
    table = composer.build(folder)["hypotheses"]
    (row,) = table[table["variant"] == "v02"].to_dict("records")
    assert (row["shape_name"], row["found"], row["verdict"]) == ("s", 0.9, "refuted")
    assert row["found_text"] == "time over `v01` at wide 0.9 (≤ 0.6)"
    document["points"] = document["points"][:-2]  # no points: times of the benchmark are enough
    (folder / "ladder.json").write_text(json.dumps(document))
    table = composer.build(folder)["hypotheses"]
    (row,) = table[table["variant"] == "v02"].to_dict("records")
    assert (row["shape_name"], row["found"], row["verdict"]) == ("s", 0.9, "refuted")


def test_a_rate_is_judged_at_another_shape_by_the_times_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    op = registry.ops()["attention"]
    rate = Hypothesis("achieved_flop_per_s", low=250e12, dtypes=("float32",), shape="b4_t4096")
    variant = dataclasses.replace(op.variants["v03_tiled"], hypotheses=(rate,))
    monkeypatch.setitem(op.variants, "v03_tiled", variant)  # type: ignore[arg-type]
    stated = [*ladder.hypotheses(ladder.Point(op, "v03_tiled", "float32", op.bench_shape))][-1]
    assert (stated["metric"], stated["low"], stated["at"]) == ("achieved_flop_per_s", 250e12, "b4_t4096")

    document = json.loads((folder / "ladder.json").read_text())
    document["points"][2]["hypotheses"] = [
        said("achieved_flop_per_s", low=low) | {"at": at} for low, at in ((3e14, "wide"), (4e14, "wide"), (1, "other"))
    ]
    (folder / "ladder.json").write_text(json.dumps(document))
    wide = timed(("op", "v02", "fp32", "wide"), "2x9", 900) | {"achieved_flop_per_s": 3.5e14}
    write_run(folder / "20260102T000000Z", [checked(("op", "v02", "fp32", "wide"), "2x9", "f2")], [], [wide])
    rows = composer.build(folder)["hypotheses"].query("variant == 'v02'")
    assert rows["verdict"].tolist() == ["reached", "refuted", "not measured"]
    assert set(rows["tier"]) == {"timing"}
    assert rows["found_text"].iloc[0] == "throughput at wide 350 TFLOP/s (≥ 300 TFLOP/s)"


def test_what_is_beyond_a_bound_by_little_shows_it(folder: Path) -> None:
    document = json.loads((folder / "ladder.json").read_text())
    document["points"][2]["hypotheses"] = [said("bench_time_p50_ns", "v01", high=0.5)]
    (folder / "ladder.json").write_text(json.dumps(document))
    beside = folder.parent / "gpu-op-bench"
    write_csv(beside / "bench.csv", [timed(key("v01"), "2x3", 200000), timed(key("v02"), "2x3", 100001)])
    (beside / "bench.json").write_text(
        json.dumps({"kind": "bench", "schema_version": 1, "sources": {"v01": "f1", "v02": "f2"}})
    )
    (row,) = composer.build(folder)["hypotheses"].query("variant == 'v02'").to_dict("records")
    assert (row["verdict"], row["found_text"]) == ("refuted", "time over `v01` 0.500005 (≤ 0.5)")


def test_stall_shares_sum_to_one(folder: Path) -> None:
    table = composer.build(folder)["ladder_stalls"]
    sums = table.groupby("variant")["share_frac"].sum()
    assert sums.to_numpy() == pytest.approx(1.0)
    assert table[table["variant"] == "v02"]["reason"].tolist() == ["long_scoreboard", "barrier"]


def test_claims_are_judged_and_explained(folder: Path) -> None:
    table = composer.build(folder)["claims"].set_index("what")
    assert table["verdict"].to_dict() == {
        "time": "confirmed", "L1": "refuted", "blocks": "refuted", "tensor": "not measured",
    }  # fmt: skip
    assert table.loc["time", "found"] == "2 µs → 1 µs (0.5 ×)"
    assert table.loc["time", "why"] == "4,000 → 1,000 instructions, long_scoreboard"
    assert table.loc["L1", "found"] == "50.0 % → 50.0 %"
    assert table.loc["L1", "why"] == "hits 50.0 % and 50.0 %"
    assert table.loc["time", "after"] == "v02 s"


def test_a_claim_is_not_explained_with_counters_that_are_not_there(folder: Path) -> None:
    (folder / "20260101T000000Z" / "captures" / "ncu_raw.csv").unlink()
    table = composer.build(folder)["claims"].set_index("what")
    assert table.loc["time", "verdict"] == "confirmed"
    assert table.loc["time", "why"] == "the counters that would say why were not captured"


def test_a_claim_names_whose_numbers_are_of_an_older_build(folder: Path) -> None:
    assert set(composer.build(folder)["claims"]["stale"]) == {""}
    document = json.loads((folder / "ladder.json").read_text())
    document["points"][2]["fingerprint"] = "newest"
    (folder / "ladder.json").write_text(json.dumps(document))
    write_run(folder / "20260102T000000Z", [checked(key("v02"), "2x3", "newest")], [], [timed(key("v02"), "2x3", 1000)])
    tables = composer.build(folder)
    stale = tables["claims"].set_index("what")["stale"]
    # of the claim on time its reason alone is of older counters
    assert stale.to_dict() == {"time": "v02", "L1": "v02", "blocks": "v02", "tensor": ""}
    text = render_claims(tables["claims"], tables["ladder"], tables["ladder_runs"], "ladder")
    assert f"2 µs → 1 µs (0.5 ×) {STALE_MARK}" in text
    assert "Sizes. `op` (N, C): s 2 × 3.\n" in text
    assert text.endswith("choices have changed since): `op` `v02`.")


def test_the_newest_run_of_the_present_source_counts(folder: Path) -> None:
    again = [checked(key("v01"), "2x3", "f1"), checked(key("v02"), "2x3", "older")]
    launches = [
        Launch(key("v01"), "first(int)", {"dram__bytes_read.sum": 1.0}),
        Launch(key("v02"), "third(int)", {"dram__bytes_read.sum": 2.0}),
    ]
    write_run(folder / "20260102T000000Z", again, launches)
    rows = rows_of(folder)
    assert (rows["v01"]["dram_read_bytes"], rows["v01"]["run"]) == (1, "20260102T000000Z")
    assert (rows["v02"]["dram_read_bytes"], rows["v02"]["run"]) == (900, "20260101T000000Z")
    assert rows["torch"]["run"] == "20260101T000000Z"
    assert rows["v02"]["state"] == "current"
    runs = composer.build(folder)["ladder_runs"]
    assert runs[["run", "counted"]].to_numpy().tolist() == [["20260102T000000Z", 1], ["20260101T000000Z", 2]]
    document = json.loads((folder / "ladder.json").read_text())
    document["points"][2]["fingerprint"] = "newest"
    (folder / "ladder.json").write_text(json.dumps(document))
    assert (rows_of(folder)["v02"]["state"], rows_of(folder)["v02"]["stale"]) == ("stale", "times counters")
    assert rows_of(folder)["v02"]["dram_read_bytes"] == 2  # the newest of the older ones


def test_clocks_of_a_run_that_timed_nothing_are_nobodys(folder: Path) -> None:
    file = folder / "20260101T000000Z" / "captures" / "manifest.json"
    manifest = json.loads(file.read_text())
    clocks = {"sm_mhz": {"min": 345.0, "median": 345.0, "max": 345.0}, "throttle_reasons": ["sw_power_cap"]}
    file.write_text(json.dumps(manifest | {"clocks": clocks}))
    shown = ["sm_clock_mhz", "throttle_reasons"]
    assert composer.build(folder)["ladder_runs"][shown].to_numpy().tolist() == [[345, "sw_power_cap"]]
    file.with_name("bench.csv").unlink()
    assert composer.build(folder)["ladder_runs"][shown].fillna("").to_numpy().tolist() == [["", ""]]


def test_counters_and_times_of_another_gpu_are_of_the_present_source(folder: Path) -> None:
    beside = folder.parent / "gpu-op-bench"
    write_csv(beside / "bench.csv", [timed(key("v02"), "2x3", 500)])
    (beside / "bench.json").write_text(json.dumps({"kind": "bench", "schema_version": 1, "sources": {"v02": "f2"}}))
    rows = rows_of(folder)
    assert (rows["v02"]["state"], rows["v02"]["bench_time_p50_ns"]) == ("current", 500)
    assert len(composer.build(folder)["ladder_times"]) == 3
    # and those of another GPU, held against what this ladder declares, without counters and with its own
    beside.rename(folder.parent / "other-op-bench")
    elsewhere = read_elsewhere(folder, "other-")
    assert elsewhere.bench["fingerprint"].tolist() == ["f2"]
    assert elsewhere.runs == []
    for run in folder.glob("*/captures"):
        shutil.copytree(run, folder.parent / "other-ladder" / run.parent.name / "captures")
    counted = read_elsewhere(folder, "other-")
    assert [run.name for run in counted.runs] == [run.name for run in read_ladder(folder).runs] != []
    found = composer.tables_of(counted)["ladder"].set_index("variant")
    assert found.loc["v02", "launches"] == rows["v02"]["launches"] > 0


def test_times_of_the_benchmark_beside_go_before_a_runs_own(folder: Path) -> None:
    beside = folder.parent / "gpu-op-bench"
    write_csv(beside / "bench.csv", [timed(key("v02"), "2x3", 500), timed(key("v01"), "9x9", 1)])
    document: dict[str, Any] = {"kind": "bench", "schema_version": 1}
    (beside / "bench.json").write_text(json.dumps(document))
    rows = rows_of(folder)
    # of an unknown source it does not
    assert (rows["v02"]["bench_time_p50_ns"], rows["v02"]["bench_run"]) == (1000, "20260101T000000Z")
    (beside / "bench.json").write_text(json.dumps(document | {"sources": {"v02": "f2"}}))
    rows = rows_of(folder)
    assert (rows["v02"]["bench_time_p50_ns"], rows["v02"]["bench_run"]) == (500, "gpu-op-bench")
    assert rows["v01"]["bench_time_p50_ns"] == 2000  # not of another shape


def test_a_folder_without_runs_is_a_table_of_what_is_missing(folder: Path) -> None:
    for file in (folder / "20260101T000000Z" / "captures").iterdir():
        file.unlink()
    built = composer.build(folder)
    assert set(built["ladder"]["state"]) == {"missing"}
    assert set(built["ladder"]["verdict"]) == {"not measured"}
    assert built["ladder"]["inst_executed"].isna().all()
    assert len(built["ladder_runs"]) == 0


def test_a_damaged_folder_is_one_sentence(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"ladder\.json"):
        composer.build(tmp_path)
    (folder / "ladder.json").write_text("{")
    assert composer.main([str(folder)]) == 3
    assert capsys.readouterr().err.startswith("ladder.json: is not JSON")


def test_the_program_writes_the_tables_and_says_what_they_hold(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert composer.main([str(folder)]) == 0
    assert "points: 3 current, 1 failed" in capsys.readouterr().out
    found = composer.read_tables(folder)
    assert set(found) == set(LADDER_TABLES)
    assert found["ladder"]["measured_bytes"].tolist()[:2] == [1000, 1080]
    (folder / "tables" / "claims.csv").unlink()
    with pytest.raises(InputError, match=r"claims\.csv"):
        composer.read_tables(folder)
    assert composer.main(["--columns"]) == 0
    assert capsys.readouterr().out.strip().split(",") == ladder_tables.wanted_columns()


def test_every_column_of_a_capture_is_in_the_catalogue() -> None:
    from analysis.hardware.metrics import column_metrics

    for architecture in ("7.5", "8.0", "8.9", "9.0"):
        assert "gpu__time_duration.sum" in column_metrics(architecture, ladder_tables.wanted_columns())


# The page of sources -----------------------------------------------------------------------------------------


def source_page() -> str:
    """Two launches of one kernel with a line that is inlined into another, and one kernel without lines."""
    header = '"Line No","Source","Address","Source","Warp Stall Sampling (All Samples)","Instructions Executed","stall_long_sb","stall_wait"\n'

    def block(kernel: str, samples: int) -> str:
        return (
            f'"File Path","/home/someone/src/k.cu"\n"Function Name","{kernel}"\n{header}'
            f'"12","x = load(p);","-","-","{samples + 5}","9","{samples}","5"\n'
            f'"","","0x10"," LDG.E R2, [R4.64] ","{samples}","9","{samples}","0"\n'
            '"","","0x20"," FADD R1, R2, R3 ","5","9","0","5"\n'
            '"13","}","-","-","5","9","0","5"\n'
            '"","","0x20"," FADD R1, R2, R3 ","5","9","0","5"\n'
        )

    return block("k<float>(int)", 90) + block("k<float>(int)", 40) + block("other()", 1)


def test_the_hottest_lines_of_each_launch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pd.read_csv(io.StringIO(hot_lines.hottest_lines(io.StringIO(source_page()))))
    assert rows[
        ["kernel", "ordinal", "source_file", "line", "samples", "launch_samples", "stall"]
    ].to_numpy().tolist() == [
        ["k<float>", 0, "k.cu", 12, 95, 95, "long_scoreboard"],
        ["k<float>", 1, "k.cu", 12, 45, 45, "long_scoreboard"],
        ["other", 0, "k.cu", 12, 6, 6, "wait"],
    ]
    assert rows["text"].tolist() == ["x = load(p);"] * 3
    monkeypatch.setattr("sys.stdin", io.StringIO("nothing of ncu\n"))
    assert hot_lines.main([]) == 3
    assert capsys.readouterr().err


def test_what_a_rung_states_and_nobody_measured_is_not_confirmed_by_the_rest(folder: Path) -> None:
    tables = composer.build(folder)
    hypotheses = tables["hypotheses"]
    hypotheses = hypotheses.assign(stated=hypotheses["metric"] != "measured_over_predicted")
    of_v01 = hypotheses["variant"] == "v01"
    assert set(hypotheses.loc[of_v01, "verdict"]) == {"reached"}
    bare = tables["ladder"].drop(columns=["verdict", "verdict_by", "verdict_why"]).assign(failure="")

    def verdict(changed: pd.DataFrame) -> str:
        table = ladder_tables.with_verdicts(bare, changed)
        return str(table.set_index("variant").loc["v01", "verdict"])

    unknown = hypotheses.assign(verdict=hypotheses["verdict"].mask(of_v01 & hypotheses["stated"], "not measured"))
    assert verdict(unknown) == "not measured"
    # more bytes than the rule allows are shown, but do not refute what the rung says of its stalls
    moved = hypotheses.assign(verdict=hypotheses["verdict"].mask(of_v01 & ~hypotheses["stated"], "refuted"))
    assert verdict(moved) == "reached"
    why = ladder_tables.with_verdicts(bare, moved).set_index("variant").loc["v01", "verdict_why"]
    assert why == (
        "top stall long_scoreboard (is long_scoreboard); DRAM bytes over predicted 1.08 (≤ 1.1), not stated by the rung"
    )


def test_a_point_at_another_shape_is_judged_by_what_is_said_of_that_shape(folder: Path) -> None:
    tables = composer.build(folder)
    bare = tables["ladder"].drop(columns=["verdict", "verdict_by", "verdict_why"]).assign(failure="")
    point = bare[bare["variant"] == "v01"].iloc[:1].assign(shape_name="small", at_bench_shape=False)
    own = tables["hypotheses"].query("variant == 'v01' and metric == 'measured_over_predicted'").iloc[:1]
    rule = own.assign(shape_name="small", at="small", stated=False, verdict="refuted")
    said = own.assign(at="small", stated=True, verdict="reached", what="time over `v00` at small")

    def verdict(*rows: pd.DataFrame) -> tuple[str, str]:
        table = ladder_tables.with_verdicts(point, pd.concat(rows, ignore_index=True))
        return str(table["verdict"].iloc[0]), str(table["verdict_by"].iloc[0])

    assert verdict(rule, said) == ("reached", "time over `v00` at small")
    assert verdict(rule, said.assign(at="large"))[0] == "refuted"
