"""The layer profiler: its clock arithmetic on a GPU that is played, and its programs on a CPU with a small model."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import report
from analysis.capture.model import Capture
from harness.ranges import attach, component, detach
from studies import runs, show
from studies.layers import measure as layers
from studies.layers import measure_alone, measure_lengths, tables
from studies.layers.measure import GPT2_LEVELS, Level
from studies.layers.tables import BETWEEN
from tests.declared import facts_of

pytestmark = pytest.mark.studies

SMALL = "n_layer=2,n_embd=32,n_head=4,n_positions=64,vocab_size=61"
RUN = ["--config", SMALL, "--runs", "2", "--warmup", "0", "--device", "cpu"]
MARK_NS, WORK_NS, LAUNCH_NS = 300, 1000, 50


class PlayedGpu:
    """A clock over a stream that runs as launched; each mark takes time of its own, and launching takes the host's."""

    name = "played"
    free = False

    def __init__(self) -> None:
        self.stream_ns = 0
        self.host_ns = 0
        self.held_ns = 0.0
        self.stamps: list[int] = []
        self.holds: list[float] = []

    def restart(self) -> None:
        self.stamps.clear()

    def spend(self, duration_ns: int) -> None:
        self.host_ns += LAUNCH_NS
        self.stream_ns += duration_ns

    def work(self) -> None:
        self.spend(WORK_NS)

    def mark(self) -> int:
        self.host_ns += LAUNCH_NS
        self.stream_ns += MARK_NS
        self.stamps.append(self.stream_ns)
        return len(self.stamps) - 1

    def elapsed_ns(self, start: int, end: int) -> float:
        return float(self.stamps[end] - self.stamps[start])

    def hold(self, hold_ns: float) -> None:
        self.holds.append(hold_ns)
        self.held_ns = self.host_ns + hold_ns

    def has_passed(self, mark: int) -> bool:
        return self.host_ns > self.held_ns

    def synchronise(self) -> None:
        self.host_ns += 10_000


class Attention:
    """A component of two parts, 100 ns of work beside them."""

    def __init__(self, clock: PlayedGpu) -> None:
        self.clock = clock

    @component("attn")
    def forward(self) -> None:
        self.scores()
        self.clock.spend(100)
        self.softmax()

    @component("scores")
    def scores(self) -> None:
        self.clock.spend(2000)

    @component("softmax", detail=True)
    def softmax(self) -> None:
        self.clock.spend(500)


class Model:
    """Two equal blocks."""

    def __init__(self, clock: PlayedGpu) -> None:
        self.clock = clock
        self.h = [Attention(clock), Attention(clock)]

    def modules(self) -> list[Any]:
        return [self, *self.h]

    @component("model")
    def forward(self) -> None:
        self.clock.spend(700)
        for block in self.h:
            block.forward()


class Played:
    """A subject of `steps` forward passes."""

    name = "played"
    levels = (
        Level("model", "Model", "model", "Total_Forward_Pass", {"model/attn": "Attention"}),
        Level(
            "attention", "Attention", "model/attn", "Attention", {"model/attn/scores": "S", "model/attn/softmax": "W"}
        ),
    )

    def __init__(self, clock: PlayedGpu, steps: int) -> None:
        self.model, self.steps = Model(clock), steps

    def prepare(self) -> None:
        return None

    def run(self, time_step: Callable[..., Any]) -> None:
        for _ in range(self.steps):
            time_step(self.model.forward, lambda: None)

    def attach(self, tracer: Any) -> None:
        attach(self.model, tracer)

    def detach(self) -> None:
        detach(self.model)

    def conditions(self) -> dict[str, Any]:
        return {}


def test_components_are_timed_as_if_nothing_were_marked() -> None:
    clock = PlayedGpu()
    profile = layers.measure(Played(clock, 3), clock, runs=2, warmup=1)
    model, attention = profile["levels"]
    times = {row["component"]: row["avg_ns"] for row in attention["components"]}
    assert times["S"] == pytest.approx(2000, abs=5)
    assert times["W"] == pytest.approx(500, abs=5)
    # the base is what the level above reads, where no mark lies inside
    assert times["Attention"] == pytest.approx(2600, abs=5)
    total = next(row for row in model["components"] if row["base"])
    assert total["avg_ns"] == pytest.approx(700 + 2 * 2600, abs=5)
    assert total["count"] == 6
    assert profile["tokens"]["forward_avg_ns"] == total["avg_ns"]
    assert [entry["events"] for entry in profile["instrument"]] == [0, 0, 4, 8]
    forward = {entry["variant"]: entry["forward_ns"]["p50"] for entry in profile["instrument"]}
    assert forward["attention"] - forward["nothing"] == pytest.approx(8 * MARK_NS)
    assert forward["ranges"] == forward["nothing"]


# Our GPT-2 -----------------------------------------------------------------------------------------------------


def test_a_profile_of_both_settings(tmp_path: Path) -> None:
    assert layers.main([*RUN, "--tokens", "3", "--cache", "both", "--out", str(tmp_path)]) == 0
    content = json.loads((tmp_path / "captures" / "layers.json").read_text(encoding="utf-8"))
    assert (content["kind"], content["schema_version"]) == ("layer-profile", 1)
    assert [(entry["name"], entry["cache"], entry["new_tokens"]) for entry in content["profiles"]] == [
        ("cache", True, 3),
        ("no_cache", False, 3),
    ]
    for entry in content["profiles"]:
        names = {level["name"]: [row["component"] for row in level["components"]] for level in entry["levels"]}
        assert names == {level.name: [level.base_label, *level.parts.values()] for level in GPT2_LEVELS}
        for level in entry["levels"]:
            base, *parts = level["components"]
            assert base["base"]
            assert sum(row["total_ns"] for row in parts) <= base["total_ns"]  # one and the same steps on a CPU
            assert {row["count"] for row in parts} == {6 if level["name"] == "model" else 12}
            assert base["avg_ns"] == pytest.approx(base["total_ns"] / base["count"], rel=1e-3)
    report.build([tmp_path / "captures"], tmp_path)
    shown = "\n".join(show.shown(tmp_path))
    for word in ("Layers, level by level", "avg_ns", "QKV_Reshape", BETWEEN, "tokens_per_s"):
        assert word in shown
    manifest = json.loads((tmp_path / "captures" / "manifest.json").read_text(encoding="utf-8"))
    assert len(manifest["workloads"]) == 2


# Any module ----------------------------------------------------------------------------------------------------

MODULE = """
import torch
from torch import nn

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
    def forward(self, x, scale=1.0):
        return self.second(self.first(x).relu()) * scale

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stack = nn.ModuleList(Inner() for _ in range(3))
        self.head = nn.Linear(8, 4)
    def forward(self, x, scale=1.0):
        for inner in self.stack:
            x = inner(x, scale=scale)
        return self.head(x)

def build():
    return Outer(), (torch.ones(2, 8),), {"scale": 2.0}

def leaf():
    return nn.Linear(8, 8), [torch.ones(1, 8)]

def wrong():
    return 3
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "brought_along.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("brought_along", None)


def test_any_module_is_taken_apart_by_its_own_names(modules: Path) -> None:
    arguments = ["--model", "brought_along:build", "--runs", "2", "--warmup", "1", "--tokens", "2", "--device", "cpu"]
    assert layers.main([*arguments, "--out", str(modules / "run")]) == 0
    content = json.loads((modules / "run" / "captures" / "layers.json").read_text(encoding="utf-8"))
    (profile,) = content["profiles"]
    levels = {
        level["name"]: {row["component"]: row["count"] for row in level["components"]} for level in profile["levels"]
    }
    assert levels == {
        "model": {"Total_Forward_Pass": 4, "stack.* (Inner)": 12, "head (Linear)": 4},
        "stack.*": {"stack.* (Inner)": 12, "first (Linear)": 12, "second (Linear)": 12},
    }
    subject = layers.load_module("brought_along:build", "cpu", 1, 3)
    assert not subject._module._forward_hooks  # nothing stays attached


# The heaviest components alone -----------------------------------------------------------------------------------


def profile_with(times: list[list[float]]) -> dict[str, Any]:
    def one(name: str, count: int, avg: float) -> dict[str, Any]:
        return {"component": name, "path": name, "count": count, "avg_ns": avg, "total_ns": count * avg, "base": False}

    parts = [one("Total_Forward_Pass", 6, 1000.0), one("Scores_Compute", 12, 50.0), one("Mask_Apply", 12, 25.0),
             one("Expansion", 12, 100.0)]  # fmt: skip
    return {"name": "cache", "dtype": "float32", "levels": [{"name": "all", "title": "", "components": parts}],
            "tokens": {"forward_by_run_ns": times}}  # fmt: skip


def test_compounds_join_components_and_rank_them() -> None:
    made = tables.build_compounds(facts_of(built={tables.profiles_of: [profile_with([])]}))
    assert made is not None
    assert made["compound"].tolist() == ["expansion + GELU", "scores + mask"]  # of the first, one part is there
    assert made["avg_ns"].tolist() == [100, 75]
    assert made["share_frac"].tolist() == pytest.approx([0.2, 0.15])  # two layers a forward pass


def test_a_compound_has_the_kernels_of_its_components() -> None:
    found = measure_alone.heaviest(profile_with([]), 1)
    assert [one.component for one in found] == ["all Expansion"]
    assert [one.component for one in measure_alone.heaviest(profile_with([]))[1:]] == [
        "all Scores_Compute",
        "all Mask_Apply",
    ]
    kernels = {"kernels": [{"name": "void gemm<float>(float*)", "count": 50, "self_ns": 100_000.0}]}
    components = [{"component": f"all {name}", **kernels} for name in ("Expansion", "Mask_Apply")]
    profiles = {"profiles": [{"name": "cache", "dtype": "float32", "calls": 50, "components": components}]}
    capture = Capture(kernels_of_layers=profiles)
    made = tables.build_compounds(facts_of(capture, built={tables.profiles_of: [profile_with([])]}))
    assert made is not None
    assert made["kernels"].tolist() == ["gemm 2.0 µs", "gemm 2.0 µs"]


@pytest.mark.parametrize("folder", runs.folders("compounds"), ids=lambda folder: folder.name)
def test_committed_runs_have_every_call_and_the_kernels_of_five_compounds(folder: Path) -> None:
    made = pd.read_csv(folder / "tables/layer_compounds.csv")
    each = made[made["compound"] != "LM head"]
    assert (each["count"] == 20 * 30 * 12).all()
    for _, of in made.groupby("profile"):
        assert of["kernels"].notna().sum() == of.nlargest(5, "share_frac")["kernels"].notna().sum() == 5
    curve = pd.read_csv(folder / "tables/layer_curve.csv")
    assert curve.groupby("profile").size().to_dict() == {"cache, float32": 30, "no_cache, float32": 30}
    assert curve.loc[curve["outliers"] > 0, "cause"].notna().all()


def test_passes_that_lie_apart_are_named_with_their_cause() -> None:
    quiet = [[900.0, 500, 501, 502] for _ in range(6)]
    quiet[2][2] = 700.0  # one pass
    slow = [one * 1.1 for one in quiet[3]]  # a whole run
    made = tables.build_curve(facts_of(built={tables.profiles_of: [profile_with([*quiet, slow])]}))
    assert made is not None
    assert made["p50_ns"].tolist() == [900, 500, 501, 502]
    assert made["outliers"].tolist() == [1, 1, 2, 1]
    assert made["cause"].tolist() == ["a slow run: clocks"] * 2 + [
        "single passes: not of the model",
        "a slow run: clocks",
    ]
    alone = tables.build_curve(facts_of(built={tables.profiles_of: [profile_with(quiet[:2])]}))
    assert alone["cause"].tolist() == ["the work of this token", "", "", ""]
    assert tables.build_curve(facts_of(built={tables.profiles_of: [profile_with([])]})).empty


def test_a_length_has_the_kernels_of_one_pass() -> None:
    """Two passes of 31 tokens with two blocks, one of 32 with another kernel."""
    block = ["blocks/h.0/mlp/fc", "blocks/h.1/mlp/fc"]
    passes = [(31, "slow", 10), (31, "slow", 30), (32, "fast", 7)]
    rows = [
        (f"tokens_{tokens}/gpt2/prefill/{part}", kernel if part in block else "gather", "1x1x1", time)
        for tokens, kernel, time in passes
        for part in ("embeddings", *block)
    ]
    launches = pd.DataFrame(rows, columns=["path", "kernel", "grid", "duration_ns"]).assign(start_ns=range(len(rows)))
    found = measure_lengths.table(launches).set_index(["tokens", "component"])
    assert found.loc[(31, "h.*/mlp/fc")].to_dict() == {
        "kernel": "slow", "grid": "1x1x1", "launches": 2, "gpu_time_ns": 40,
    }  # fmt: skip
    assert found.loc[(32, "h.*/mlp/fc"), "kernel"] == "fast"
    assert list(found["launches"]) == [1, 2, 1, 2]


def test_lengths_run_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    small = measure_lengths.load_weights(config=layers.parse_config("n_layer=1,n_embd=64,n_head=1,vocab_size=256"))
    monkeypatch.setattr(measure_lengths, "load_weights", lambda: small)
    measure_lengths.run_passes((2, 3), 1)


def test_at_32_tokens_only_the_expansion_takes_another_kernel() -> None:
    rows = pd.read_csv(measure_lengths.TABLE)
    products = rows[rows["kernel"].str.contains("gemm")].drop(columns=["launches"])
    before, after = (products[products["tokens"] == tokens].set_index("component") for tokens in (31, 32))
    changed = before["kernel"].ne(after["kernel"]) | before["grid"].ne(after["grid"])
    assert list(changed[changed].index) == ["h.*/mlp/fc"]
    fell = before["gpu_time_ns"] - after["gpu_time_ns"]
    whole = rows.groupby("tokens")["gpu_time_ns"].sum()
    assert fell["h.*/mlp/fc"] == pytest.approx(79_000, abs=1_000)
    assert whole[31] - whole[32] == pytest.approx(74_000, abs=1_000)
