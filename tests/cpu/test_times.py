"""Isolated and chained times: which of them is judged, and files of before there were isolated ones."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.bench_files import BENCH_ROWS, median_ns
from studies.ladder import changed
from studies.ladder.goals import versus
from studies.ladder.read import judged, read_bench
from studies.runs import folders
from tests.ladder_export import timed

KEY = ("widen", "v01", "fp32", "large")


def row(variant: str, chained: int, isolated: float | None, shape: str = "large", **more: Any) -> dict[str, Any]:
    kinds = {"chained": chained, "isolated": isolated}
    times = {f"{kind}_time_{at}_ns": value for kind, value in kinds.items() for at in ("p5", "p50", "p95")}
    rates = {"achieved_byte_per_s": 1e12, "achieved_flop_per_s": 1e13, "floor_frac": 0.5, "versus_torch_p50": 2.0}
    return {"op": "widen", "variant": variant, "dtype": "fp32", "shape_name": shape, **times, **rates, **more}


def test_isolated_times_are_judged_where_every_variant_of_a_shape_has_them() -> None:
    rows = [row("torch", 100, 120), row("v01", 50, 100), row("torch", 100, 120, "small"), row("v01", 50, None, "small")]
    found = judged(pd.DataFrame(rows))
    assert found["time_kind"].to_list() == ["isolated", "isolated", "chained", "chained"]
    assert found["bench_time_p50_ns"].to_list() == [120, 100, 100, 50]


def test_what_followed_from_an_isolated_time_follows_from_the_one_that_is_judged() -> None:
    mixed = judged(pd.DataFrame([row("torch", 100, 120), row("v01", 50, None)])).iloc[0]
    assert mixed["achieved_byte_per_s"] == pytest.approx(1.2e12)
    assert mixed["achieved_flop_per_s"] == pytest.approx(1.2e13)
    assert mixed["floor_frac"] == pytest.approx(0.6)
    assert pd.isna(mixed["versus_torch_p50"])


def test_a_ratio_is_never_of_two_kinds_of_time() -> None:
    alone, behind = judged(pd.DataFrame([row("v01", 50, 100)])), judged(pd.DataFrame([row("v02", 75, None)]))
    assert versus(alone.iloc[0], behind.iloc[0]).p50 == 1.5


def test_an_older_file_has_chained_times_alone(tmp_path: Path) -> None:
    old = timed(KEY, "64x32", 1000)
    file = tmp_path / "bench.csv"
    pd.DataFrame([old, old | {"convention": "plain"}]).to_csv(file, index=False)
    found = read_bench(file)
    assert found["time_kind"].to_list() == ["chained"] * 2
    assert found["bench_time_p50_ns"].to_list() == found["chained_time_p50_ns"].to_list() == [1000, 1000]
    assert found["isolated_time_p50_ns"].isna().all()


def benchmark(reports: Path, op: str, copy: float, **more: Any) -> Path:
    """Write a benchmark with one row whose floor rests on a copy of so many bytes per second; return its rows' file."""
    folder = reports / f"gpu-{op}-bench"
    folder.mkdir()
    floor = round(4e6 / copy * 1e9)
    line = timed((op, *KEY[1:]), "64x32", 2 * floor, floor) | {"minimum_bytes": 4_000_000} | more.pop("row", {})
    pd.DataFrame([line]).to_csv(folder / "bench.csv", index=False)
    conditions = {"gpu": {"name": more.pop("gpu", "a GPU")}, "copy_byte_per_s": {"torch": copy}, **more}
    document = {"kind": "bench", "schema_version": 1, "op": op, "conditions": conditions}
    (folder / "bench.json").write_text(json.dumps(document))
    return folder / "bench.csv"


def test_floors_use_the_usual_copy_of_the_gpu(tmp_path: Path) -> None:
    slow, _, fast = (benchmark(tmp_path, op, copy) for op, copy in (("a", 3e12), ("b", 4e12), ("c", 5e12)))
    elsewhere = benchmark(tmp_path, "d", 8e12, gpu="another GPU")
    found = read_bench(slow)
    assert found["floor_time_ns"].to_list() == [1000]
    assert found["floor_frac"].iloc[0] == pytest.approx(0.375)
    assert read_bench(fast)["floor_time_ns"].to_list() == [1000]
    assert read_bench(elsewhere)["floor_time_ns"].to_list() == [500]


def test_benchmarks_that_name_no_gpu_keep_their_floors(tmp_path: Path) -> None:
    one, _ = (benchmark(tmp_path, op, copy, gpu="") for op, copy in (("a", 4e12), ("b", 8e12)))
    assert read_bench(one)["floor_time_ns"].to_list() == [1000]


def test_floors_of_arithmetic_or_of_reads_alone_stay(tmp_path: Path) -> None:
    for op in ("fast", "faster"):
        benchmark(tmp_path, op, 8e12)
    compute = benchmark(tmp_path, "compute", 4e12, row={"achieved_flop_per_s": 1e12})
    reads = benchmark(tmp_path, "reads", 4e12, roofs={"dram_read": 5e12})
    assert [read_bench(file)["floor_time_ns"].iloc[0] for file in (compute, reads)] == [1000, 1000]


def test_the_median_of_a_row_of_any_version() -> None:
    assert median_ns({"bench_time_p50_ns": "7"}) == median_ns({"chained_time_p50_ns": "7"}) == 7
    assert median_ns({"chained_time_p50_ns": "7", "isolated_time_p50_ns": "9"}) == 9
    assert median_ns({"chained_time_p50_ns": ""}) is None


def test_an_older_header_is_known() -> None:
    today = [name for name in BENCH_ROWS.names if not name.startswith("isolated")]
    older = [name.replace("chained", "bench") for name in today]
    assert BENCH_ROWS.has_header(",".join(today))
    assert BENCH_ROWS.has_header(",".join(older))


def test_the_table_of_changed_ratios_is_that_of_the_committed_ladder() -> None:
    """What the ratios are now; what they were stands in git and cannot change."""
    shown = pd.read_csv(changed.TABLE).dropna(subset=["rung_now"])
    now = changed.ratios(*changed.tables(folders("ladder")[0])).sort_values(changed.KEY, ignore_index=True)
    names = ["time_kind", "rung", "library", *changed.RATIOS]
    written = changed.to_text(now[[*changed.KEY, *names]].rename(columns={name: f"{name}_now" for name in names}))
    columns = [*changed.KEY, *(f"{name}_now" for name in names)]
    expected = pd.read_csv(io.StringIO(written)).sort_values(changed.KEY, ignore_index=True)
    pd.testing.assert_frame_equal(shown[columns].reset_index(drop=True), expected)


def test_a_ratio_is_rounded_once_on_its_way_into_the_changelog() -> None:
    """1.1449 is 1.14: a file of three decimals would make it 1.145, and the table 1.15."""
    row: dict[str, Any] = {"op": "gelu", "dtype": "bf16", "best_library_before": 1.1449, "best_library_now": 0.99996}
    read_again = pd.read_csv(io.StringIO(changed.to_text(pd.DataFrame([row]))))
    assert read_again["best_library_before"].to_list() == [1.1449]
    assert "| 1.14 – 1.14 – 1.14 " in changed.summary(read_again)
    assert changed.summary(read_again).endswith("| 1 of 1   |")  # slower, if by little
