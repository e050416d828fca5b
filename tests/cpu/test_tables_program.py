"""The tables that the page is drawn from: the tree of the program, when operations ran, how launches differ, the roofs."""

from typing import Any

import pandas as pd
import pytest

from analysis.diagnosis import each, program
from analysis.diagnosis.steps import build_gaps
from analysis.tables import operations
from tests.bench import page as bench
from tests.declared import STUDY_TABLES, TABLES, analyse, facts_of


def rows(name: str, *given: dict[str, Any]) -> pd.DataFrame:
    """A table of these rows, blank where they say nothing."""
    columns = (TABLES | STUDY_TABLES)[name].column_names
    return pd.DataFrame([{column: one.get(column, pd.NA) for column in columns} for one in given], columns=columns)


def kernel(name: str, place: Any, time_ns: int, launches: int = 10) -> dict[str, Any]:
    return {"kernel": name, "range": place, "launches": launches, "nsys_time_ns": time_ns}


KERNELS = rows(
    "kernels",
    kernel("gemm", "step/h.*/mlp", 1_000_000), kernel("add", "step/h.*/mlp", 20_000), kernel("norm", "step/h.*", 500_000),
    kernel("lost", pd.NA, 80_000), kernel("gemm", "other", 300_000),
)  # fmt: skip
LAYERS = rows(
    "layers", *({"range": one} for one in ("other", "step", "step/h.0", "step/h.0/mlp", "step/h.1", "step/h.1/mlp"))
)
GAPS = rows(
    "gaps",
    {"step": "step#1", "wall_ns": 9e6, "bare_wall_ns": 2_000_000, "busy_ns": 800_000, "verdict": "launch_bound"},
    {"step": "step#2", "wall_ns": 9e6, "bare_wall_ns": 2_100_000, "busy_ns": 900_000, "verdict": "launch_bound"},
)
ROOFLINE = rows(
    "roofline",
    {"kernel": "gemm", "range": "step/h.*/mlp", "level": "dram", "roof_frac": 0.3, "bound": "memory"},
    {"kernel": "gemm", "range": "step/h.*/mlp", "level": "l1", "roof_frac": 0.7, "bound": "compute"},
    {"kernel": "norm", "range": "step/h.*", "level": "dram", "roof_frac": 0.2, "bound": "memory"},
)
COUNTERS = rows("counters", {"kernel": "norm", "range": "step/h.*", "launches": 10, "dram_bytes": 5000})
TRAFFIC = rows("traffic", *({"range": f"step/h.{one}/mlp", "minimum_bytes": 700} for one in (0, 1)))
COPIES = rows(
    "copies", {"kind": "memcpy", "direction": "Host-to-Device", "range": "step", "time_ns": 40_000, "count": 2}
)


def built(**changed: pd.DataFrame) -> pd.DataFrame:
    given = {
        "kernels": KERNELS, "copies": COPIES, "layers": LAYERS, "gaps": GAPS, "roofline": ROOFLINE, "counters": COUNTERS,
        "traffic": TRAFFIC,
    }  # fmt: skip
    given |= changed
    return program.build_program(facts_of(built={build_gaps: given.pop("gaps")}, filled={}, **given))


def node(table: pd.DataFrame, place: Any, name: Any = pd.NA) -> Any:
    at = table["range"].isna() if pd.isna(place) else table["range"].eq(place)
    named = table["kernel"].isna() if pd.isna(name) else table["kernel"].eq(name)
    (found,) = [row for _, row in table[at & named].iterrows()]
    return found


def test_idle_time_is_that_of_all_instances_of_a_step_without_a_tool() -> None:
    table = built()
    step = node(table, "step")
    assert (step["kind"], step["idle_ns"], step["idle_from"]) == ("step", 1_200_000 + 1_200_000, "bare")
    assert node(table, pd.NA)["idle_ns"] == 2_400_000
    assert pd.isna(node(table, "step/h.*")["idle_ns"])
    attached = node(built(gaps=GAPS.assign(bare_wall_ns=pd.NA, verdict=pd.NA)), "step")
    assert (attached["idle_ns"], attached["idle_from"]) == (18_000_000 - 1_700_000, "attached")


def test_what_binds_a_part() -> None:
    table = built()
    assert node(table, "step")["bound"] == "launch"  # its verdict
    assert node(table, "step/h.*/mlp", "gemm")["bound"] == "compute"  # 70 % of its nearest roof
    assert node(table, "step/h.*/mlp", "add")["bound"] == "launch"  # 2 µs each
    assert node(table, "step/h.*", "norm")["bound"] == "latency"  # 50 µs each, far from a roof
    assert node(table, "other", "gemm")["bound"] == "unknown"  # 30 µs each, no counters
    assert node(table, "step/h.*/mlp")["bound"] == "compute"  # most of its time
    host = built(gaps=GAPS.assign(verdict="host_work"))
    assert node(host, "step")["bound"] == "host"
    assert node(host, "step/h.*/mlp", "add")["bound"] == "unknown"  # its step does not wait for launches
    judged = built(gaps=GAPS.assign(verdict="precision"))
    assert node(judged, "step/h.*/mlp", "add")["bound"] == "unknown"


def test_bytes_roofs_and_gains_are_blank_unless_all_is_known() -> None:
    table = built()
    assert node(table, "step/h.*", "norm")["dram_bytes"] == 5000
    assert pd.isna(node(table, "step/h.*")["dram_bytes"])
    assert node(table, "step/h.*/mlp")["minimum_bytes"] == 1400
    assert pd.isna(node(table, "step/h.*/mlp", "gemm")["minimum_bytes"])
    assert pd.isna(node(table, "step/h.*/mlp")["roof_frac"])
    assert node(table, "step/h.*/mlp", "gemm")["gain_ns"] == 300_000
    fewer = COUNTERS.assign(launches=9)
    assert pd.isna(node(built(counters=fewer), "step/h.*", "norm")["dram_bytes"])
    alone = built(kernels=KERNELS.iloc[[2]], copies=COPIES.head(0))
    assert node(alone, "step/h.*")["roof_frac"] == pytest.approx(0.2)


def test_operations_have_their_step_lane_and_range() -> None:
    _, tables = analyse(bench.capture(4, 96, counted=False, steps=2, layers=2))
    found = tables["operations"]
    assert len(found) == 96
    assert found["start_ns"].is_monotonic_increasing
    assert found["start_ns"].iloc[0] == 0
    assert sorted(found["lane"].unique()) == ["stream 7", "stream 8", "stream 9"]
    assert found.groupby("step").size().to_dict() == {"step#1": 48, "step#2": 48}
    assert found["range"].iloc[0] == "step/h.0/attn/qkv"
    assert found["kernel"].iloc[1] == "layer_1::kernel_1<float, 1>"


def test_a_long_timeline_is_merged_loses_no_time_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MOST_OPERATIONS", 50)
    content, tables = analyse(bench.capture(4, 2000, counted=False, steps=2, layers=2))
    merged = tables["operations"]
    assert len(merged) <= 2 * 50 + 10
    assert merged["launches"].sum() == 2000
    assert merged["busy_ns"].sum() == tables["kernels"]["nsys_time_ns"].sum()
    assert (merged["busy_ns"] <= merged["extent_ns"] * 1.0).all()
    assert any("merge neighbours" in note for note in content["notes"])
    assert tables["launch_times"]["launches"].sum() == 2000


def test_launch_times_are_the_quantiles_of_each_row() -> None:
    capture = bench.capture(3, 480, counted=False, steps=2, layers=2)
    _, tables = analyse(capture)
    ops = capture.gpu_ops
    for _, row in tables["launch_times"].groupby("kernel").head(1).iterrows():
        times = ops["duration_ns"][ops["name"].str.contains(f"::{row['kernel'].split('::')[1].split('<')[0]}<")]
        assert times.min() <= row["time_min_ns"] <= row["time_p5_ns"] <= row["time_p50_ns"] <= row["time_p95_ns"]
        assert row["time_p95_ns"] <= row["time_max_ns"] <= times.max()
    assert tables["launch_times"]["launches"].sum() == 480


def test_every_kernel_of_most_time_has_its_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(each, "MOST_KERNELS", 3)
    _, tables = analyse(bench.capture(8, 480, steps=2, layers=2))
    found = tables["diagnosis"]
    assert set(found["kernel"]) == set(tables["kernels"]["kernel"])  # each has a verdict, or why there is none
    found = found[found["range"].isna()]
    assert found["kernel"].nunique() == 3
    longest = tables["kernels"].groupby("kernel")["nsys_time_ns"].sum().sort_values(ascending=False)
    assert found["kernel"].unique().tolist() == longest.index[:3].tolist()
    assert found["reason"].str.endswith(".").all()
    assert found["evidence"].str.contains(r"roofline\.roof_frac \(dram\) = 0\.\d+").any()
