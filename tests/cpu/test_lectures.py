"""The lecture's studies: what they predict, and what a CPU can measure of them."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from analysis.capture.load import load
from analysis.facts import Facts
from analysis.formats.errors import InputError
from harness.timing import Measurement
from studies.lectures import measure, predict, second, tables
from studies.lectures.measure_calls import profile
from tests.declared import facts_of

pytestmark = pytest.mark.studies

ROOT = Path(__file__).resolve().parents[2]


def test_a_study_is_measured_anew_and_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: list[Any]) -> Any:
        yield measure.point("mlp", "base", "wall time", "ns", 1.0)
        raise RuntimeError("out of luck")

    monkeypatch.setitem(measure.STUDIES, "mlp", failing)
    assert measure.main(["mlp", "units", "--out", str(tmp_path)]) == 0
    assert measure.main(["units", "--out", str(tmp_path)]) == 0
    content = json.loads((tmp_path / "captures" / "lectures.json").read_text(encoding="utf-8"))
    assert [one["study"] for one in content["points"]] == ["mlp"] + 6 * ["units"]


# What is shown -----------------------------------------------------------------------------------------------


def points_of(factor: float) -> tables.Points:
    """Every prediction measured as so many times itself."""
    found = {}
    for one in predict.frozen():
        point = measure.point(one.study, one.case, one.quantity, one.unit, factor * one.predicted, "kernel")
        found[(one.study, one.case, one.quantity)] = point
    return found


def of(points: tables.Points, **more: Any) -> Facts:
    return facts_of(built={tables.points: points}, **more)


def test_a_prediction_holds_between_its_ends() -> None:
    exact = tables.build_matmul(of(points_of(1.0)))
    assert set(exact["verdict"]) == {"holds"}
    late = tables.build_matmul(of(points_of(1.3)))
    assert set(late["verdict"]) == {"misses"}
    assert late["error_frac"].astype(float).tolist() == pytest.approx([0.3] * len(late))
    some = tables.build_matmul(of({key: point for key, point in points_of(1.0).items() if key[1] == "fp32 1024"}))
    assert some["verdict"].value_counts().to_dict() == {"not measured": 14, "holds": 1}


def test_counters_come_from_the_launches_of_a_case() -> None:
    launches = pd.DataFrame(
        {"path": ["tricks/rows", "tricks/three_sigmoids_stored", "tricks/three_sigmoids_stored"],
         "sectors_per_request_load": [4.0, 4.0, 4.0], "dram_read_bytes": [1.0, 2.0, 3.0]}
    )  # fmt: skip
    made = tables.build_tricks(of(points_of(1.0), all_measured=launches)).set_index(["case", "quantity"])
    assert made.loc[("rows", "sectors a request"), "measured"] == 4
    assert made.loc[("three sigmoids stored", "DRAM bytes read"), "measured"] == 5
    assert made.loc[("columns", "sectors a request"), "verdict"] == "not measured"


def test_roofs_of_a_gpu_without_sparse_tensor_cores_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    with pytest.raises(InputError, match="no sparse tensor cores"):
        list(measure.study_roofs([]))


def committed(run: str = "h200-lectures") -> tables.Points:
    return tables.points(Facts(load([ROOT / f"reports/{run}/captures"])))


@pytest.mark.parametrize(("study", "judged", "held"), [("mlp", 13, 13), ("waves", 42, 41)])
def test_second_models_see_one_half_and_hold_on_the_other(study: str, judged: int, held: int) -> None:
    points = committed()
    made = tables.judged(study, points, pd.DataFrame())
    assert made is not None
    rows = made[made["half"] == "judge"]
    assert (len(rows), (rows["second_verdict"] == "holds").sum()) == (judged, held)
    cases = set(zip(rows["case"], rows["quantity"], strict=True))
    hidden = {key: point for key, point in points.items() if key[1:] not in cases}
    blind = tables.judged(study, hidden, pd.DataFrame())
    assert blind is not None
    assert blind["second"].tolist() == pytest.approx(made["second"].tolist())
    assert set(blind.loc[blind["half"] == "judge", "second_verdict"]) == {"not measured"}


@pytest.mark.parametrize(
    ("run", "study", "rows", "held"),
    [("h100-studies", "mlp", 25, 15), ("h100-studies", "waves", 84, 78), ("h200-studies", "mlp", 25, 21)],
)
def test_second_models_of_the_first_run_on_other_runs(run: str, study: str, rows: int, held: int) -> None:
    weights = second.fitted(study, committed())
    points = committed(run)
    holds = [
        tables._again(one, weights[one.case, one.quantity], points[study, one.case, one.quantity]["value"])
        for one in predict.frozen()
        if one.study == study
    ]
    assert (len(holds), [one["second_verdict"] for one in holds].count("holds")) == (rows, held)


def test_the_rows_that_a_busy_host_lost_lie_off_their_own_neighbours() -> None:
    points = committed("h100-studies")
    value = {case: point["value"] for (study, case, quantity), point in points.items() if study == "mlp"}
    for axis, off in (("steps", -0.08), ("dim", 0.14)):
        below, there, above = (value[f"{axis} x {times}"] for times in (2, 3, 4))
        assert there / ((below + above) / 2) - 1 == pytest.approx(off, abs=0.01)


def test_a_second_model_needs_the_rows_that_it_was_fitted_to() -> None:
    points = {key: point for key, point in committed().items() if key[1] != "layers x 2"}
    made = tables.judged("mlp", points, pd.DataFrame())
    assert made is not None
    assert set(made["second_verdict"]) == {"not measured"}


def test_waves_count_clusters_and_parts_of_k() -> None:
    assert second.waves_of(2048, (128, 256, 1)) == 1  # 16 x 8 tiles
    assert second.waves_of(2056, (128, 256, 1)) == 2  # 17 x 9, in pairs
    assert second.waves_of(1640, (128, 160, 1)) == 2  # 13 x 11 tiles: 143 of 132
    assert second.waves_of(2049, (256, 128, 4)) == 5 / 4


def test_roofs_become_a_table_with_cycles() -> None:
    taken = Measurement.of([1e6])
    cycles = 4096 * 8 * 2 * 16.0  # two warps a scheduler, an instruction every 16 cycles
    made = [*measure.roof_points("BF16 m16n8k16", cycles, taken, 4096, 132)]
    made += [measure.point("roofs", "MLP 2:4", "error of pruning", "1", 0.4)]
    table = tables.build_roofs(of({(one["study"], one["case"], one["quantity"]): one for one in made}))
    assert table is not None
    row = table.set_index("case").loc["BF16 m16n8k16"]
    assert row["cycles"] == 16
    assert row["rate_per_s"] == pytest.approx(4096 * 8 * 8 * 4096 * 132 / 1e-3)
    assert table["case"].tolist() == ["BF16 m16n8k16", "MLP 2:4"]
    assert tables.build_roofs(of(points_of(1.0))).empty
    rate = tables._of_datasheet
    assert rate("BF16 2:4 wgmma m64n128k32", 989.4e12, "NVIDIA H100 80GB HBM3") == pytest.approx(0.5)
    assert rate("FP8 wgmma m64n128k32", 989.4e12, "NVIDIA H100 80GB HBM3") == pytest.approx(0.5)
    assert rate("DP4A", 1e12, "NVIDIA H100 80GB HBM3") is None
    assert rate("FP64 m8n8k4", 1e12, "") is None


def test_pruning_keeps_the_two_largest_of_four() -> None:
    weight = torch.tensor([[1.0, -4.0, 3.0, 2.0, 0.1, 0.2, -0.3, 0.0]])
    assert measure.prune(weight).tolist() == [[0, -4, 3, 0, 0, pytest.approx(0.2), pytest.approx(-0.3), 0]]


def test_a_profile_counts_the_backward_pass() -> None:
    layer = torch.nn.Linear(8, 8)
    x = torch.randn(4, 8)
    both = profile("both", lambda: layer(x).mean().backward())
    assert both.backward_ns > 0
    assert ", backward " in both.text().splitlines()[0]
    assert profile("forward", lambda: layer(x)).backward_ns == 0
