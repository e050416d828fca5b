"""Kernels of torch.compile: what Inductor says of each while it writes it, and to which launch of a timeline that belongs."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

from analysis import report
from analysis.capture.load import load
from analysis.formats.inductor import INDUCTOR
from analysis.page import compiled_graph
from analysis.tables.compiled import is_fused, modules_of_launches
from tests.cpu.test_auto_ranges import FOLDER, loaded
from tests.declared import analyse
from tests.machine import ROOT
from tests.nsys_export import Export

MM, ADD, ACT = "extern_kernels.mm", "triton_poi_fused_add_0", "triton_poi_fused_gelu_1"
DEPTH = 3
# kernel and modules of each call of a layer: equal layers share their kernels
LAYER = [(MM, "{}.up"), (ACT, "{}.act"), (MM, "{}.down"), (ADD, "{};{}.down")]
WRITTEN = [(kernel, said.replace("{}", f"layers.{n}")) for n in range(DEPTH) for kernel, said in LAYER] + [(MM, "head")]
LAYERS = [
    (0, 0, call, kernel, modules, "aten", str(call - 1) if call else "")
    for call, (kernel, modules) in enumerate(WRITTEN)
]
LAUNCHED = ["gemm" if kernel == MM else kernel for kernel, _ in WRITTEN]


def calls(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    names = ["graph", "backward", "call", "kernel", "modules", "operations", "reads"]
    return pd.DataFrame([(*row, "")[:7] for row in rows], columns=names)


def launches(*names: str, owner: int = 0) -> pd.DataFrame:
    at = range(len(names))
    return pd.DataFrame({"kernel": names, "owner": owner, "pid": 1, "api_start_ns": at, "start_ns": at})


def traced(rows: list[tuple[Any, ...]], *names: str) -> list[str]:
    return modules_of_launches(launches(*names), calls(rows)).tolist()


# --- which launch is which call ---


def test_launches_of_equal_layers_are_told_apart_by_their_order() -> None:
    expected = [modules.replace(";", " + ") for _, modules in WRITTEN]
    assert expected[:5] == ["layers.0.up", "layers.0.act", "layers.0.down", "layers.0 + layers.0.down", "layers.1.up"]
    assert traced(LAYERS, *LAUNCHED, *LAUNCHED) == expected * 2


def test_a_product_of_two_kernels_leaves_only_its_own_place_unknown() -> None:
    found = traced(LAYERS, "splitk", "reduce", *LAUNCHED[1:])
    assert found[:4] == ["", "", "layers.0.act", "layers.0.down"]


def test_a_run_that_was_cut_is_traced_by_name_only_where_the_name_says_it() -> None:
    assert traced(LAYERS, ACT, "gemm", ADD) == ["", "", ""]
    alone = [(0, 0, 0, ACT, "a", ""), (0, 0, 1, ADD, "b", "")]
    assert traced(alone, ADD, "gemm", ADD) == ["b", "", "b"]


def test_graphs_that_share_names_are_told_apart_by_their_sequence() -> None:
    rows = [(0, 0, 0, ADD, "a", ""), (0, 0, 1, ACT, "a.act", ""), (1, 1, 2, ADD, "b", "")]
    assert traced(rows, ADD, ACT, ADD) == ["a", "a.act", "b"]
    twins = [(0, 0, 0, ADD, "a", ""), (1, 0, 1, ADD, "b", "")]
    assert traced(twins, ADD, ADD) == ["", ""]
    assert traced([(0, 0, 0, ADD, "", "")], ADD) == ["no module"]


def test_runs_of_two_threads_do_not_mix() -> None:
    rows = [(0, 0, 0, ADD, "a", ""), (0, 0, 1, ADD, "b", "")]
    both = pd.concat([launches(ADD, ADD), launches(ADD, ADD, owner=1)], ignore_index=True).iloc[[0, 2, 1, 3]]
    assert modules_of_launches(both.reset_index(drop=True), calls(rows)).tolist() == ["a", "a", "b", "b"]


# --- in a report ---


def compiled_run(folder: Path) -> Path:
    """A timeline of two steps of LAYERS, launched in a range each, with inductor.csv beside it."""
    export = Export(2025)
    at = 0
    for _ in range(2):
        export.push("step Net(8 x 16)", at, at + 100 * len(LAUNCHED) - 5)
        for name in LAUNCHED:
            export.launch(name, (at + 10, at + 20), (at + 30, at + 90))
            at += 100
        at += 100
    export.save(folder / "x.sqlite")
    (folder / "inductor.csv").write_text(INDUCTOR.text(LAYERS), encoding="utf-8")
    return folder


def test_compiled_kernels_have_their_modules_in_layers_and_in_a_table_of_their_own(tmp_path: Path) -> None:
    content, tables = analyse(load([compiled_run(tmp_path)]))
    layers = tables["layers"].set_index("range")
    assert layers.loc["step Net(8 x 16)/[compiled] layers.0 + layers.0.down", "gpu_self_time_ns"] == 120
    assert layers.loc["step Net(8 x 16)", "gpu_time_ns"] == 2 * 13 * 60
    assert layers["gpu_self_time_ns"].sum() == 2 * 13 * 60
    folded = tables["layers_folded"].set_index("range")
    assert folded.loc["step Net(8 x 16)/[compiled] layers.*.act", "launches"] == 6
    rows = tables["compiled"].set_index(["modules", "kernel"])
    assert rows.loc[("layers.* + layers.*.down", ADD), ["launches", "time_ns"]].tolist() == [6, 360]
    assert rows.loc[("head", "gemm"), "launches"] == 2
    assert any(note.startswith("For 26 of 26 launches of torch.compile, the modules") for note in content["notes"])
    assert not [gap for gap in content["missing"] if "torch.compile" in gap["what"]]


def test_compiled_kernels_of_which_nothing_was_recorded_are_a_gap(tmp_path: Path) -> None:
    (compiled_run(tmp_path) / "inductor.csv").unlink()
    content, tables = analyse(load([tmp_path]))
    (gap,) = [gap for gap in content["missing"] if "torch.compile" in gap["what"]]
    assert gap["what"] == "the modules that 12 launches of torch.compile fuse"
    assert "without --no-auto-ranges" in gap["do"]
    assert "compiled" not in tables
    status = {"kind": "tool-status", "schema_version": 1, "tool": "bare", "status": "ok", "auto_ranges": "own"}
    (tmp_path / "bare.json").write_text(json.dumps(status), encoding="utf-8")
    (gap,) = [gap for gap in analyse(load([tmp_path]))[0]["missing"] if "torch.compile" in gap["what"]]
    assert "without its own ranges" in gap["do"]


def test_the_graph_is_a_picture_with_what_each_kernel_reads(tmp_path: Path, drawn: None) -> None:
    figure = compiled_graph.plot_graph(calls(LAYERS), "a caption")
    assert figure is not None
    axes = figure.axes[0]
    assert len(axes.texts) == len(LAYERS) - 1  # an arc each
    assert [label.get_text() for label in axes.get_yticklabels()][:2] == ["layers.0.up", "layers.0.act"]
    before = compiled_graph.plot_graph(calls(LAYERS).drop(columns="reads"), "")  # a file of an older version
    assert before is not None
    assert not before.axes[0].texts
    assert compiled_graph.plot_graph(None, "") is None
    assert report.main([str(compiled_run(tmp_path)), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert (tmp_path / "out/figures/compiled_graph.svg").is_file()


def test_the_committed_example_shows_what_each_kernel_reads() -> None:
    """The largest graph is that of the prompt; 61 arcs lie between its first 40 kernels."""
    capture = load([ROOT / "examples/h200/qwen_like_compiled/captures"])
    figure = compiled_graph.plot_graph(capture.of(INDUCTOR.kind), "")
    assert figure is not None
    assert len(figure.axes[0].texts) == 61


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [(MM, "product"), (ADD, "pointwise"), ("triton_red_fused_mean_0", "reduction"), ("triton_per_fused_add_2", "reduction"),
     ("cpp_fused_gelu_1", "pointwise"), ("torch.ops.aten._scaled_dot_product_flash_attention.default", "other")],
)  # fmt: skip
def test_kinds_come_from_the_names_that_inductor_gives(kernel: str, kind: str) -> None:
    assert compiled_graph.kind_of(kernel) == kind


# --- Inductor itself ---


def test_names_are_those_that_inductor_gives() -> None:
    from torch._inductor.utils import get_fused_kernel_name
    from torch._inductor.wrapper_benchmark import _kernel_category_choices

    fused = get_fused_kernel_name([], "original_aten")
    for category in (*_kernel_category_choices, "unknown"):
        assert is_fused(f"triton_{category[:3]}_{fused}_add_7")
    assert is_fused(f"cpp_{fused}_3")
    assert not any(map(is_fused, ("triton_matmul", "softmax_rows", "extern_kernels.mm", "triton_mm_4")))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.act = nn.Linear(4, 4), nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.up(x)) * 2


@pytest.fixture
def kernels() -> ModuleType:
    return loaded(FOLDER / "inductor_kernels.py")


class WrittenError(Exception):
    """Inductor has written its code, which no compiler needs to see."""


@pytest.mark.slow
@pytest.mark.xdist_group("compiler")
def test_inductor_says_which_modules_it_fuses(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._functorch import config as functorch
    from torch._inductor import config, debug
    from torch._inductor.graph import GraphLowering

    def stop(_: str) -> None:
        raise WrittenError

    found, plain = kernels.Kernels(), getattr(debug, kernels.FUNCTION)
    monkeypatch.setattr(debug, kernels.FUNCTION, plain)  # to be put back
    found.listen(debug)
    for name, module in list(
        sys.modules.items()
    ):  # a program's Inductor is imported behind the hook, this one was before
        if name.startswith("torch._inductor.") and vars(module).get(kernels.FUNCTION) is plain:
            monkeypatch.setattr(module, kernels.FUNCTION, getattr(debug, kernels.FUNCTION))
    monkeypatch.setattr(GraphLowering, "save_output_code", staticmethod(stop))
    net = nn.Sequential(Block(), Block())
    uncached = config.patch({"cpp.simdlen": 1, "fx_graph_cache": False}), functorch.patch(enable_autograd_cache=False)
    with uncached[0], uncached[1], pytest.raises(Exception, match="WrittenError"):
        torch.compile(net)(torch.randn(2, 4))
    torch._dynamo.reset()
    calls = [(kernel, modules) for _, _, _, kernel, modules, *_ in found.rows]
    assert [modules for _, modules in calls] == ["0.up", "0;0.act", "1.up", "1;1.act"]
    assert [is_fused(kernel) for kernel, _ in calls] == [False, True, False, True]
    assert [call for _, _, call, *_ in found.rows] == [0, 1, 2, 3]
    assert [reads for *_, reads in found.rows] == ["", "0", "1", "2"]
