"""The kernel ladder: what is declared, what is missing, and from exports of ncu to its tables. No GPU."""

import io
import json
import shutil
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import hot_lines
from analysis.capture.load import load
from analysis.formats import packed
from analysis.formats.errors import InputError, UsageError
from kernels import registry
from studies.ladder import build as composer
from studies.ladder import measure as ladder
from studies.ladder import tables as ladder_tables
from studies.ladder.read import ARCHIVE, Ladder, read_ladder
from tests import committed
from tests.declared import LADDER_TABLES
from tests.ladder_export import LINES, Launch, checked, timed, write_run

pytestmark = pytest.mark.studies

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
    assert packed.read_bytes(packed.find(COMMITTED / "ladder.json")).decode() == ladder.declaration(COMMITTED), told


@pytest.mark.slow
@pytest.mark.xdist_group("ladder")
def test_the_committed_tables_are_those_of_the_committed_runs(tmp_path: Path, committed_ladder: Ladder) -> None:
    built = composer.tables_of(committed_ladder)
    (tmp_path / "tables").mkdir()
    composer.write(tmp_path, built)
    kept = {name: packed.find(COMMITTED / "tables" / f"{name}.csv") for name in LADDER_TABLES}
    assert kept["ladder"].is_file()
    for name, file in kept.items():
        written = (tmp_path / "tables" / f"{name}.csv").read_bytes()
        assert not file.is_file() or packed.read_bytes(file) == written, f"{file.name}: run `make readme`"


def test_a_row_faster_than_its_floor_fails_the_build_unless_l2_served_it() -> None:
    row = dict.fromkeys(composer.KEY, "x") | {"floor_frac": 1.05, "measured_over_minimum": float("nan")}
    planted, none = pd.DataFrame([row]), pd.DataFrame([row | {"floor_frac": 0.9}])
    for whole, every_time in ((planted, none), (none, planted)):
        with pytest.raises(InputError, match=r"^x x x x: its speed is 105\.0% of the roof's, and no counters"):
            composer.check_floors(whole, every_time)
    composer.check_floors(none, none)
    composer.check_floors(planted.assign(measured_over_minimum=0.94), planted)
    with pytest.raises(InputError, match=r"1 such rows"):
        composer.check_floors(planted.assign(measured_over_minimum=0.98), none)


def test_every_registered_shape_has_a_goal() -> None:
    goals = tomllib.loads(ladder.GOALS.read_text(encoding="utf-8"))["goal"]
    for op in registry.ops().values():
        own = [goal for goal in goals if op.name in goal["op"].split() and "dtypes" not in goal]
        covered = {shape for goal in own for shape in goal.get("shapes", op.shapes)}
        assert covered >= set(op.shapes), f"{op.name}: no goal in kernels/goals.toml"


def test_reads_beyond_a_copy_are_held_against_the_read_roof() -> None:
    known, shape = registry.ops(), (1000, 768)
    residual, norm, gemv = (known[name] for name in ("residual", "layernorm", "gemv"))
    assert residual.written_bytes(shape, "fp32") == 4 * 768_000
    assert residual.memory_ns(shape, "fp32", 2.0, 4.0) == pytest.approx(4 * 768_000 * (2 / 2 + 1 / 4) * 1e9)
    assert residual.memory_ns(shape, "fp32", 2.0) == pytest.approx(residual.minimum_bytes(shape, "fp32") / 2 * 1e9)
    least = norm.minimum_bytes(shape, "fp32")
    assert least / 2 * 0.999e9 < norm.memory_ns(shape, "fp32", 2.0, 4.0) <= least / 2 * 1e9
    assert gemv.memory_ns(shape, "bf16", 2.0, 4.0) == gemv.minimum_bytes(shape, "bf16") / 4 * 1e9
    heads = known["merge_heads"]
    assert heads.written_bytes((2, 5, 3, 64), "bf16") * 2 == heads.minimum_bytes((2, 5, 3, 64), "bf16")


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
    with tarfile.open(tmp_path / ARCHIVE, "w:xz") as archive:  # a committed ladder keeps its runs packed
        for run in ("r1", "r2"):
            archive.add(tmp_path / run, run)
            shutil.rmtree(tmp_path / run)
    assert ladder.missing(tmp_path, ["residual"]) == [uncounted, failed, *rest]
    assert ladder.missing(tmp_path, ["residual"], everything=True) == wanted
    with pytest.raises(UsageError, match="softmaxx"):
        ladder.missing(tmp_path, ["softmaxx"])


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
    out = tmp_path / "gpu-ladder"
    out.mkdir()
    document = {"kind": "ladder", "schema_version": 1, "points": points, "goals": []}
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


def test_a_brief_verdict_counts_shapes() -> None:
    parts = [
        ("time over the floor at n1", "n1"),
        ("time over the floor at n2", "n2"),
        ("time over `torch`", "n3"),
        ("top stall at n1", "n1"),
    ]
    assert ladder_tables._brief(parts) == "time over the floor at 2 shapes, time over `torch`, top stall"


@pytest.mark.parametrize(
    ("found", "verdict"),
    [(1.0, "reached"), (1.05, "not refuted"), (0.85, "not refuted"), (0.7, "refuted"), (1.3, "refuted")],
)
def test_what_is_expected_and_what_refutes_are_judged_separately(found: float, verdict: str) -> None:
    assert ladder_tables._verdict_of(found, (0.9, 1.02), (0.8, 1.2), 1) == verdict


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
    assert {path.stem for path in (folder / "tables").iterdir()} == set(LADDER_TABLES)
    assert pd.read_csv(folder / "tables" / "ladder.csv")["measured_bytes"].tolist()[:2] == [1000, 1080]
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


def test_the_hottest_lines_of_each_launch() -> None:
    rows = pd.read_csv(io.StringIO(hot_lines.hottest_lines(io.StringIO(source_page()))))
    assert rows[
        ["kernel", "ordinal", "source_file", "line", "samples", "launch_samples", "stall"]
    ].to_numpy().tolist() == [
        ["k<float>", 0, "k.cu", 12, 95, 95, "long_scoreboard"],
        ["k<float>", 1, "k.cu", 12, 45, 45, "long_scoreboard"],
        ["other", 0, "k.cu", 12, 6, 6, "wait"],
    ]
    assert rows["text"].tolist() == ["x = load(p);"] * 3
    with pytest.raises(InputError):
        hot_lines.hottest_lines(io.StringIO("nothing of ncu\n"))


def test_the_kept_page_has_one_launch_of_each_kernel_and_its_ptx(tmp_path: Path) -> None:
    kept = tmp_path / "ncu_source.csv"
    kept.write_text(hot_lines.kept_page(io.StringIO(source_page()), {("k<float>", 0x20): "add.f32 %f3, %f1, %f2;"}))
    assert "someone" not in kept.read_text()
    assert '"stall_wait"' in kept.read_text()
    lines = load([kept]).source_lines
    sass = lines[lines["instruction"].notna()]
    # of two launches of `k`, the one with 90 + 5 samples; the instruction at 0x20 stands below both lines
    assert sass[["kernel", "line", "instruction", "samples", "ptx"]].to_numpy().tolist() == [
        ["k<float>(int)", 12, 0, 90, ""],
        ["k<float>(int)", 12, 1, 5, "add.f32 %f3, %f1, %f2;"],
        ["k<float>(int)", 13, 1, 5, "add.f32 %f3, %f1, %f2;"],
        ["other()", 12, 0, 1, ""],
        ["other()", 12, 1, 5, ""],
        ["other()", 13, 1, 5, ""],
    ]
    (tmp_path / "ncu_lines.csv").write_text(hot_lines.hottest_lines(io.StringIO(source_page())))
    both = load([tmp_path])  # our own file beside it is no unknown one
    assert [one.kind for one in both.files] == ["ignored", "ncu source"]
    assert not any("ncu_lines" in one.what for one in both.missing)
    unsampled = source_page().replace('"1"', '"-"').replace('"5"', '"-"')  # `other` has no samples then
    assert hot_lines.kept_page(io.StringIO(unsampled), {}).count("Function Name") == 1


def test_worse_times_of_a_rung_do_not_replace_better_ones_unasked(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert composer.main([str(copy)]) == 0
    published = copy / "tables" / "ladder.csv"
    better = pd.read_csv(published)
    times = [name for name in better if name.startswith("bench_time_")]
    better[times] /= 1.1  # as if the published rungs had been faster
    better.to_csv(published, index=False)
    before = published.read_bytes()
    assert composer.main([str(copy)]) == composer.WORSE
    assert published.read_bytes() == before
    assert "--accept" in capsys.readouterr().err
    assert composer.main([str(copy), "--accept"]) == 0
    assert published.read_bytes() != before
