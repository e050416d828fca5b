"""Variants of libraries: their layouts, what is bound before it is timed, what is left out, what could not be had."""

import tomllib
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from harness import bench
from kernels.registry import LIBRARY_KINDS, Variant, ops

ROOT = Path(__file__).resolve().parents[2]
EVERY = [(op, name) for op in ops().values() for name, variant in op.variants.items() if variant.kind in LIBRARY_KINDS]
PLAIN = [(op, name) for op, name in EVERY if op.variants[name].kind == "torch" and not name.startswith("sdpa")]


@pytest.mark.parametrize(("op", "name"), PLAIN, ids=[f"{op.name}-{name}" for op, name in PLAIN])
def test_torch_computes_the_op_as_it_is_called_and_as_it_is_timed(op, name):
    variant = op.variants[name]
    for dtype in variant.dtypes:
        shape = next(shape for shape in op.check_shapes[2:] if variant.takes(shape, dtype))
        inputs = op.make_inputs(shape, dtype, seed=1)
        for run in (variant.fn, lambda *inputs, variant=variant: variant.bind(*inputs)()):
            check = bench.compare(op, name, inputs, "random", run)
            assert check.passed, check


@pytest.mark.parametrize(("op", "name"), [("matmul", "linear"), ("gemv", "columns")])
def test_weights_are_laid_out_before_the_timed_call(op, name, monkeypatch):
    declared = ops()[op]
    inputs = declared.make_inputs(declared.check_shapes[2], "float32")
    call = declared.variants[name].bind(*inputs)
    weight = inputs[1] if op == "matmul" else inputs[0]
    assert weight.t().is_contiguous() is False
    laid = [value for value in call.args if value.dim() == 2 and value.shape == weight.t().shape]
    assert [value.is_contiguous() for value in laid] == [True]
    monkeypatch.setattr(torch.Tensor, "contiguous", lambda self: pytest.fail("laid out anew"))
    call()


def test_a_variant_without_its_library_is_told():
    declared = {"name": "x", "kind": "library", "idea": "", "fn": len, "bytes_model": lambda shape, dtype: 0}
    assert Variant(**declared, needs="no_such_library").lacks == "no_such_library"
    assert Variant(**declared, needs="torch").lacks == ""
    assert Variant(**declared).lacks == ""


def test_every_library_is_an_extra_and_what_could_not_be_had_says_why():
    pinned = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    names = {line.split(">=")[0].replace("-python", "").replace("-", "_") for line in pinned["baselines"]}
    assert {op.variants[name].needs for op, name in EVERY} - {""} == names
    absent = tomllib.loads((ROOT / "kernels" / "baselines.toml").read_text("utf-8"))["absent"]
    assert {"flash-attn-4", "quack-kernels", "tilelang", "flashinfer-python", "xformers"} <= {
        one["library"] for one in absent
    }
    for one in absent:
        assert one["why"].endswith(".")
        assert one["library"].replace("-", "_") not in names


def test_a_search_is_checked_on_one_small_shape():
    gemv = ops()["gemv"]
    assert bench.check_shapes(gemv, "compile_tuned") == [gemv.check_shapes[2]]
    assert bench.check_shapes(gemv, "addmv") == gemv.check_shapes
    matmul = ops()["matmul"]
    (shape,) = bench.check_shapes(matmul, "triton")
    assert matmul.variants["triton"].takes(shape, "bfloat16")


def test_no_search_begins_late_and_the_shapes_it_misses_are_told(monkeypatch):
    gemv = ops()["gemv"]
    checked = []

    def check_variant(op, variant, dtype, shapes, device, full):
        checked.append((variant, list(full)))
        return [bench.Check(variant, dtype, (), "random", 0.0, 0.0, True)]

    clock = iter(range(10))
    monkeypatch.setattr(bench, "check_variant", check_variant)
    monkeypatch.setattr(bench.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    sizes = [gemv.shapes[name] for name in ("qkv", "proj", "fc")]
    done = bench.check_all(gemv, ["bfloat16"], sizes, ["torch", "compile_tuned"], until=1)
    assert checked == [("torch", sizes), *(("compile_tuned", full) for full in ([], sizes[:1], sizes[1:2]))]
    assert done.able(gemv, "bfloat16", sizes[0]) == ["torch", "compile_tuned"]
    assert done.able(gemv, "bfloat16", sizes[2]) == ["torch"]
    assert bench.unsearched_lines(gemv, done.unsearched) == ["compile_tuned, bf16 fc: not searched"]


def test_caches_are_kept_unless_the_environment_says_where(monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "elsewhere")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    bench.keep_caches()
    import os

    assert os.environ["TRITON_CACHE_DIR"] == "elsewhere"
    assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) == ROOT / "build" / "inductor"
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")


def test_the_versions_of_libraries_are_told():
    op = ops()["layernorm"]
    known = replace(op.variants["liger"], needs="tabulate")
    some = replace(
        op, variants={"torch": op.variants["torch"], "liger": known, "gone": replace(known, needs="no_such")}
    )
    assert bench.library_versions(some, list(some.variants)) == {"tabulate": version("tabulate")}
