"""Variants of libraries: their layouts, what is bound before it is timed, what is left out, what could not be had."""

import sys
from types import SimpleNamespace

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


# --- libraries that run on a GPU alone: their calls, by stand-ins that compute what the library documents ---------
class FlashAttention3:
    """Stands in for `torch.ops.flash_attn_3`: operands by tokens, the last query aligned with the last key."""

    def fwd(self, q, k, v, *, out=None, softmax_scale=None, is_causal=False, window_size_left=-1, num_splits=0):
        assert all(each.stride(-1) == 1 for each in (q, k, v))
        assert num_splits == 1 or q.shape[1] == 1
        q, k, v = (each.double().transpose(1, 2) for each in (q, k, v))
        k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
        queries, keys = q.shape[2], k.shape[2]
        place = torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)
        hidden = (place < 0) & is_causal
        if window_size_left >= 0:
            hidden |= place > window_size_left
        scores = q @ k.transpose(-1, -2) * (softmax_scale or q.shape[-1] ** -0.5)
        result = (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v).transpose(1, 2)
        out = torch.empty(result.shape, dtype=torch.bfloat16) if out is None else out
        return out.copy_(result), None, None, None


def flash_attention_4(q, k, v, *, causal=False, window_size_left=None, window_size_right=None, **more):
    """Stands in for `_flash_attn_fwd` of `flash_attn.cute.interface`, which has other names for the same."""
    assert (window_size_left is None) == (window_size_right is None)
    left = -1 if window_size_left is None else window_size_left
    return FlashAttention3().fwd(q, k, v, is_causal=causal, window_size_left=left, num_splits=1, **more)


class DeepGemm:
    """Stands in for `deep_gemm`: (M, K) times (N, K), scales of `a` as (M, K / 128), written or added to the output."""

    def fp8_gemm_nt(self, a, b, d):
        (a, of_a), (b, of_b) = a, b
        (m, k), n = a.shape, len(b)
        assert of_a.shape == (m, -(-k // 128))
        assert of_b.shape == (-(-n // 128), -(-k // 128))
        assert of_b.is_contiguous()
        wide = (
            of_a.repeat_interleave(128, 1)[:, :k],
            of_b.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k],
        )
        d.copy_((a.double() * wide[0]) @ (b.double() * wide[1]).t())

    def bf16_gemm_nt(self, a, b, d, c=None):
        assert b.is_contiguous()
        d.copy_((a.double() @ b.double().t()).bfloat16() + (0 if c is None else c))


STAND_INS = {
    "flash_attn_interface": SimpleNamespace(flash_attn_3_gpu=FlashAttention3()),
    "flash_attn.cute": SimpleNamespace(interface=SimpleNamespace(_flash_attn_fwd=flash_attention_4)),
    "deep_gemm": DeepGemm(),
}
CALLED = [(op, name) for op, name in EVERY if op.variants[name].needs in STAND_INS]


@pytest.mark.parametrize(("op", "name"), CALLED, ids=[f"{op.name}-{name}" for op, name in CALLED])
def test_the_calls_of_a_library_follow_its_layout(op, name, monkeypatch):
    variant = op.variants[name]
    module = STAND_INS[variant.needs]
    monkeypatch.setitem(sys.modules, variant.needs, module)
    if variant.needs == "flash_attn.cute":
        monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace(cute=module))
        monkeypatch.setitem(sys.modules, "flash_attn.cute.interface", module.interface)
    (dtype,) = variant.dtypes
    shapes = [shape for shape in op.check_shapes if variant.takes(shape, dtype)][:6]
    assert len(shapes) == 6
    for shape in shapes:
        inputs = op.make_inputs(shape, dtype, seed=1)
        for run in (variant.fn, lambda *inputs: variant.bind(*inputs)()):
            check = bench.compare(op, name, inputs, "random", run)
            assert check.passed, check
