"""Baselines that search have a run of their own: how its rows come into the tables, and with which rung they compare."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from studies.ladder import changed, page
from studies.ladder.build import read_tables, tables_of, write
from studies.ladder.read import read_elsewhere, read_ladder
from studies.ladder.searched import paired
from studies.publish.results import render_goals
from tests import committed

LADDER, BENCH = committed.folder("ladder"), committed.bench("attention")
RUN = "x-attention-tuned-bench"
SLOWER_NS = 1000  # each launch alone, on the host of the searches
pytestmark = pytest.mark.skipif(not BENCH.is_dir(), reason="the committed benchmarks are not in this checkout")


def searches(of_flex: float, shapes: tuple[str, ...]) -> pd.DataFrame:
    """Return the rows of a run on a slower host, in which flex_tuned takes `of_flex` times as long as v06_small."""
    rows = pd.read_csv(BENCH / "bench.csv")
    rows = rows[(rows["dtype"] == "bf16") & rows["shape_name"].isin(shapes)]
    rows = rows[rows["variant"].isin(["sdpa_cudnn", "v06_small"])]
    names = [name for name in rows if str(name).startswith("isolated_time")]
    rows[names] += SLOWER_NS
    flex = rows[rows["variant"] == "v06_small"].assign(variant="flex_tuned")
    flex[names] = (flex[names] * of_flex).round().astype("Int64")
    return pd.concat([rows, flex])


def built(folder: Path, rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Write a ladder beside the benchmark of attention and a run of searches; return its tables as they are read."""
    shutil.copytree(BENCH, folder / "x-attention-bench")
    (folder / "x-ladder" / "tables").mkdir(parents=True)
    shutil.copy(LADDER / "ladder.json", folder / "x-ladder")
    sources = json.loads((BENCH / "bench.json").read_text())["sources"]
    points = json.loads((LADDER / "ladder.json").read_text())["points"]
    sources |= {one["variant"]: one["fingerprint"] for one in points if one["op"] == "attention"}
    (folder / RUN).mkdir()
    rows.to_csv(folder / RUN / "bench.csv", index=False)
    document = json.loads((BENCH / "bench.json").read_text()) | {"sources": sources}
    (folder / RUN / "bench.json").write_text(json.dumps(document))
    write(folder / "x-ladder", tables_of(read_ladder(folder / "x-ladder")))
    return read_tables(folder / "x-ladder")


def one(table: pd.DataFrame, **cells: str) -> pd.Series:
    found = table
    for name, value in cells.items():
        found = found[found[name] == value]
    assert len(found) == 1
    return found.iloc[0]


def test_a_search_that_beats_us_is_the_best_library_with_the_ratio_of_its_own_run(tmp_path: Path) -> None:
    tables = built(tmp_path, searches(0.9, ("b8_t1024", "b1_t512")))
    place = {"op": "attention", "dtype": "bf16", "shape_name": "b8_t1024"}
    times = tables["ladder_times"]
    assert one(times, variant="flex_tuned", **place)["bench_run"] == RUN
    own = one(times, variant="v06_small", **place)
    assert own["bench_run"] == "x-attention-bench"  # the run of searches replaces no time of the benchmark
    there = one(tables["searched"], variant="v06_small", **place)
    assert there["isolated_time_p50_ns"] == own["isolated_time_p50_ns"] + SLOWER_NS
    assert there["versus_search_p50"] == pytest.approx(0.9, abs=1e-3)
    assert there["versus_search_p5"] < 0.9 < there["versus_search_p95"]

    goal = one(tables["goals"][tables["goals"]["what"].str.contains("as fast as the best library")], **place)
    assert (goal["beside"], goal["two_runs"]) == ("flex_tuned", False)
    assert goal["found"] == there["versus_search_p50"]

    shown = changed.ratios(paired(times, tables["searched"]), tables["ladder"])
    assert one(shown, **place)["library"] == "flex_tuned"
    assert one(shown, **place | {"shape_name": "b4_t4096"})["library"] == "sdpa_cudnn"


def test_a_slower_host_makes_no_search_slower_than_it_is(tmp_path: Path) -> None:
    """At B 1, T 512 a launch takes 10 µs, and 1 more there: by times of two runs, the search would be the slower one."""
    tables = built(tmp_path, searches(0.99, ("b1_t512",)))
    place = {"op": "attention", "dtype": "bf16", "shape_name": "b1_t512"}
    time = {name: one(tables["ladder_times"], variant=name, **place) for name in ("flex_tuned", "v06_small")}
    assert time["flex_tuned"]["isolated_time_p50_ns"] > time["v06_small"]["isolated_time_p50_ns"]
    assert one(tables["searched"], variant="v06_small", **place)["versus_search_p50"] < 1
    goals = tables["goals"]
    assert set(goals[(goals["shape_name"] == "b1_t512") & (goals["dtype"] == "bf16")]["beside"]) == {"flex_tuned"}


def test_the_page_has_a_row_for_each_search(tmp_path: Path) -> None:
    tables = built(tmp_path, searches(1.5, ("b8_t1024", "b1_t512")))
    conditions = json.loads((BENCH / "bench.json").read_text())["conditions"]
    times = paired(tables["ladder_times"], tables["searched"])
    of_op = times[times["op"] == "attention"].reset_index(drop=True)
    text = page.render_op("attention", tables, page.Bench(of_op, conditions, "x-attention-bench"), "x-ladder", "")
    assert "Baselines that search at every shape, beside our fastest rung in the same run" in text
    assert f"From `reports/{RUN}/bench.csv`" in text
    row = next(line for line in text.splitlines() if line.startswith("| `flex_tuned`") and "b1_t512" in line)
    assert "1.500 (" in row
    assert "Ratios of our rungs to them are of that run" in text
    assert f"`flex_tuned` {page.ELSEWHERE_MARK}" in text


def test_a_gpu_without_a_ladder_is_judged_by_the_ladder_of_another(tmp_path: Path) -> None:
    built(tmp_path, searches(1.5, ("b8_t1024", "b1_t512")))
    (tmp_path / "y-ladder").mkdir()
    shutil.copy(LADDER / "ladder.json", tmp_path / "y-ladder")
    tables = tables_of(read_elsewhere(tmp_path / "y-ladder", "x-"))
    assert set(tables["ladder_times"]["bench_run"].dropna()) == {"x-attention-bench", RUN}
    text = page.render_overview(tables, {})
    assert "[attention](" in text
    assert "[gelu](" not in text  # no time of it
    assert "hypotheses" not in text
    assert "Claims" not in text
    row = next(line for line in page.render_searches(tables).splitlines() if "`flex_tuned`" in line)
    assert [cell.strip() for cell in row.split("|")][1:5] == ["attention", "`flex_tuned`", "bf16", "2"]
    goals = render_goals(tables["goals"])
    assert "attention, with and without a window" in goals
    assert "LayerNorm" not in goals


def test_without_a_run_of_searches_nothing_changes(tmp_path: Path) -> None:
    tables = built(tmp_path, searches(0.9, ()))
    assert tables["searched"].empty
    assert page.render_searches(tables) == ""
    assert paired(tables["ladder_times"], tables["searched"]) is tables["ladder_times"]
    assert set(tables["ladder_times"]["bench_run"]) == {"x-attention-bench"}
