"""Variants of libraries: their layouts, what is bound before it is timed, what is left out, what could not be had."""

import pytest
import torch

from kernels.registry import LIBRARY_KINDS, Variant, ops
from studies.bench import measure as bench

pytestmark = pytest.mark.studies

EVERY = [(op, name) for op in ops().values() for name, variant in op.variants.items() if variant.kind in LIBRARY_KINDS]
GPU_ONLY = [("rmsnorm_backward", "torch_fused"), ("layernorm_backward", "torch")]  # which sums bf16 in bf16 on a CPU
PLAIN = [
    (op, name)
    for op, name in EVERY
    if op.variants[name].kind == "torch" and not name.startswith("sdpa") and (op.name, name) not in GPU_ONLY
]


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
    assert Variant(**declared, needs="no_such_library.of_it").lacks == "no_such_library.of_it"
    assert Variant(**declared, needs="torch.no_such_module").lacks == "torch.no_such_module"
    assert Variant(**declared, needs="torch").lacks == ""
    assert Variant(**declared).lacks == ""


def test_each_op_of_several_runs_those_of_the_variants_that_it_has():
    known = ops()
    several = [known["softmax"], known["cross_entropy"]]
    wanted = ["quack", "v03_online", "v05_early"]
    assert bench._variants(several[0], several, wanted) == ["quack", "v05_early"]
    assert bench._variants(several[1], several, wanted) == ["quack", "v03_online"]
    assert bench._variants(several[0], several, None) == list(several[0].variants)


def test_a_search_is_checked_on_one_small_shape():
    gemv = ops()["gemv"]
    assert bench.check_shapes(gemv, "compile_tuned") == [gemv.check_shapes[2]]
    assert bench.check_shapes(gemv, "addmv") == gemv.check_shapes
    matmul = ops()["matmul"]
    (shape,) = bench.check_shapes(matmul, "triton")
    assert matmul.variants["triton"].takes(shape, "bfloat16")
