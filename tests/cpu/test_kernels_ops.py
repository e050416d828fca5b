"""Every op of the registry on the CPU: its custom op against float64, PyTorch's own checks, gradients, usage errors."""

import functools
import math
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernels import library
from kernels.encoder.custom_op import encoder
from kernels.registry import ops
from kernels.residual.custom_op import residual
from studies.bench import measure as bench

pytestmark = pytest.mark.studies

OPS = list(ops().values())
IDS = [op.name for op in OPS]
small = pytest.mark.parametrize("op", OPS, ids=IDS)
TRAINED = [op for op in OPS if not op.out_dtype]  # FP8 has no gradients, and opcheck compares with what FP8 lacks
trained = pytest.mark.parametrize("op", TRAINED, ids=[op.name for op in TRAINED])


def inputs_of(op, shape, dtype="float32", device="cpu"):
    return op.make_inputs(shape, dtype, seed=1, device=device)


@small
def test_against_float64(op):
    # on the CPU every variant is the chain
    for dtype in op.dtypes:
        shapes = [shape for shape in op.check_shapes if math.prod(shape) < 20_000]
        for check in bench.check_variant(op, op.best, dtype, shapes, "cpu", []):
            assert check.passed, check
            assert check.shape in shapes  # the op's sizes, not those of its first input


@small
def test_the_float64_reference_is_the_chain(op):
    """The reference, written otherwise than the chain, agrees with the chain run in float64."""
    inputs = inputs_of(op, op.check_shapes[2])
    wide = tuple(v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in inputs)
    got = bench.outputs(op.variants[op.baseline].fn(*wide))
    for value, reference in zip(got, bench.outputs(op.reference(*inputs)), strict=True):
        torch.testing.assert_close(value, reference, rtol=2e-6, atol=2e-6)  # the residual is rounded to float32


@small
def test_a_wrong_result_fails_its_check(op):
    inputs = inputs_of(op, op.check_shapes[2])
    for scale, label in ((1.001, "a factor"), (math.nan, "a NaN")):

        def wrong(*values, scale=scale):
            return tuple((v * scale).float() for v in bench.outputs(op.reference(*values)))

        run = wrong if len(bench.outputs(op.reference(*inputs))) > 1 else lambda *v: wrong(*v)[0]
        assert not bench.compare(op, op.best, inputs, label, run).passed


INFINITE = ["attention_decode", "bias_gelu", "encoder", "gelu", "gemv", "matmul", "residual", "residual_layernorm"]


@pytest.mark.parametrize("name", INFINITE)
def test_where_the_reference_is_infinite_nothing_else_passes(name):
    op = ops()[name]
    inputs = op.hostile(*inputs_of(op, op.check_shapes[4]))
    assert any(reference.isinf().any() for reference in bench.outputs(op.reference(*inputs)))
    for instead, passes in ((lambda v: v, True), (lambda v: v.where(~v.isinf(), 12.5), False), (torch.neg, False)):

        def run(*values, instead=instead):
            found = [v.where(~v.isinf(), instead(v)).float() for v in bench.outputs(op.reference(*values))]
            return tuple(found) if len(found) > 1 else found[0]

        assert bench.compare(op, op.best, inputs, "hostile", run).passed == passes


# of which the output fits the input that it is fed to; of the others every shape does


@small
def test_strides_make_no_difference(op):
    inputs = inputs_of(op, op.check_shapes[2])
    expected = bench.outputs(op.call("torch")(*inputs))

    def stretched(value):
        if not isinstance(value, torch.Tensor) or value.dim() < min(2, len(op.axes)):
            return value
        wide = torch.empty(*value.shape[:-1], 2 * value.shape[-1], dtype=value.dtype)
        wide[..., ::2] = value
        return wide[..., ::2]

    values = tuple(map(stretched, inputs))
    assert any(isinstance(value, torch.Tensor) and not value.is_contiguous() for value in values)
    for value, reference in zip(bench.outputs(op.call("torch")(*values)), expected, strict=True):
        assert value.is_contiguous()
        torch.testing.assert_close(value, reference, rtol=0, atol=0, equal_nan=True)


@small
def test_no_rows(op):
    inputs = inputs_of(op, op.check_shapes[2])
    empty = op.cut(inputs, "in", 0, 0)
    results = [tensor for tensor in op.tensors if tensor.role == "out"]
    for tensor, value in zip(results, bench.outputs(op.call(op.best)(*empty)), strict=True):
        assert value.numel() == 0 or (op.axes[0] not in tensor.axes and not value.any())  # a sum over no rows is 0


def test_an_empty_table_is_no_empty_output():
    with pytest.raises(RuntimeError, match="index"):
        encoder(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(0, 8), torch.zeros(2, 8))


class Seen(TorchDispatchMode):
    """Names the ops of ours that come by."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "kernel_ledger":
            self.names.append(function._opname)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("gradients", [False, True])
def test_a_call_without_gradients_skips_the_autograd_wrapper_alone(gradients, monkeypatch):
    below = []
    real = torch._C._AutoDispatchBelowAutograd

    def counted():
        below.append(real())
        return below[-1]

    monkeypatch.setattr(torch._C, "_AutoDispatchBelowAutograd", counted)
    x = torch.ones(2, 3, requires_grad=True)
    with Seen() as seen, torch.set_grad_enabled(gradients):
        out = residual(x, x)
    assert seen.names == ["residual"]
    assert len(below) == 1  # once: by PyTorch's wrapper, or by our function in place of it
    assert out.requires_grad == gradients


def test_a_dtype_that_the_variant_does_not_take_is_refused():
    op = ops()["softmax"]
    taken = frozenset({torch.float16})
    library._check_taken(op, "v08_half", taken, (torch.ones(1, 1).half(), torch.ones(1, dtype=torch.int64), 0.5))
    with pytest.raises(TypeError, match="causal_softmax v08_half takes float16, got float32"):
        library._check_taken(op, "v08_half", taken, (torch.ones(1, 1), 0.5))


def test_scales_of_fp8_operands_have_a_dtype_of_their_own():
    op = ops()["matmul_fp8"]
    scales = torch.ones(1), torch.ones(1)
    operands = torch.ones(2, 1, 1).to(torch.float8_e4m3fn)
    library._check_taken(op, "triton", frozenset({torch.float8_e4m3fn}), (*operands, *scales))
    with pytest.raises(TypeError, match="matmul_fp8 triton takes float8_e4m3fn, got float32"):
        library._check_taken(op, "triton", frozenset({torch.float8_e4m3fn}), (*operands.float(), *scales))


def test_outputs_of_one_tensor_are_copied_as_no_operator_may_return_aliases():
    both = torch.arange(6.0).view(2, 3)
    first, second = library._apart((both[0], both[1]))
    assert first.data_ptr() == both.data_ptr()
    second.zero_()
    assert both[1].tolist() == [3, 4, 5]
    assert library._apart(both) is both


def differentiable(op):
    values = inputs_of(op, op.check_shapes[2])
    return tuple(v.requires_grad_() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in values)


@trained
def test_opcheck(op):
    op.call(op.best)  # makes PyTorch know it
    function = getattr(torch.ops.kernel_ledger, op.torch_op).default
    for dtype in op.dtypes:
        torch.library.opcheck(function, (*inputs_of(op, op.check_shapes[2], dtype), op.best))
    torch.library.opcheck(function, (*differentiable(op), op.best))


@trained
def test_gradients_are_those_of_the_chain(op):
    def gradients(function):
        inputs = differentiable(op)
        generator = torch.Generator().manual_seed(5)
        total = 0.0
        for value in bench.outputs(function(*inputs)):
            finite = value.where(value.isfinite(), 0.0)  # a row that sees nothing
            total = total + (finite * torch.randn(value.shape, generator=generator)).sum()
        leaves = [value for value in inputs if isinstance(value, torch.Tensor) and value.requires_grad]
        return torch.autograd.grad(total, leaves)

    for ours, theirs in zip(gradients(op.call(op.best)), gradients(op.variants["torch"].fn), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@small
def test_torch_compile_takes_the_op(op):
    inputs = inputs_of(op, op.check_shapes[2])
    call = functools.partial(op.call(op.best), *inputs)
    torch._dynamo.reset()  # the graphs of one code object are few, and all ops go through the same one here
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True, dynamic=False)
    for value, expected in zip(bench.outputs(compiled()), bench.outputs(call()), strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=0, equal_nan=True)


@small
def test_outputs_share_no_memory_with_inputs(op):
    inputs = inputs_of(op, op.check_shapes[0])
    places = {value.data_ptr() for value in inputs if isinstance(value, torch.Tensor)}
    for variant in ("torch", op.best):
        assert not places & {value.data_ptr() for value in bench.outputs(op.call(variant)(*inputs))}


@small
def test_wrong_arguments(op):
    inputs = inputs_of(op, op.check_shapes[2])
    with pytest.raises(ValueError, match="no variant 'v99'; known: "):
        op.call("v99")(*inputs)
    double = tuple(v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in inputs)
    with pytest.raises(TypeError, match="float32 or bfloat16"):
        op.call(op.best)(*double)
    scalars = tuple(torch.zeros((), dtype=v.dtype) if isinstance(v, torch.Tensor) else v for v in inputs)
    with pytest.raises(ValueError, match="takes"):
        op.call(op.best)(*scalars)


@small
def test_declarations(op):
    assert op.best in op.variants
    assert op.variants[op.baseline].kind == "torch"
    assert op.bench_shape in op.shapes.values()
    assert len(op.chain) >= 1
    assert {"torch", *(() if op.compute_bound else ("compile", "triton"))} <= set(op.variants)
    for dtype in op.dtypes:
        assert dtype in op.variant(op.best_for(dtype)).dtypes
        if op.compute_bound:
            # operations a byte: above what an H200 does while it moves one, 65 (bf16: 790) TFLOP/s over 4.28 TB/s
            ridge = {"float32": 16, "bfloat16": 185, "float8_e4m3fn": 370}[dtype]
            assert op.flops(op.bench_shape) / op.minimum_bytes(op.bench_shape, dtype) > ridge
        elif not op.reads_only and op.name != "softmax":
            assert op.minimum_bytes(op.bench_shape, dtype) >= 5e8
        for shape in op.shapes.values():
            # a rung bound by arithmetic may move more than it has to: its time does not depend on it
            if not op.compute_bound:
                assert op.fused_bytes(shape, dtype) <= op.unfused_bytes(shape, dtype)
            for variant in op.variants:
                assert op.fused_bytes(shape, dtype, variant) >= op.minimum_bytes(shape, dtype)


@small
def test_minimum_bytes_are_those_of_the_operands(op):
    """Where every element of every operand is needed, the model is the size of the operands."""
    if op.name in ("softmax", "softmax_backward", "encoder"):
        pytest.skip("not every element is needed; enumerated elsewhere")
    for shape in op.check_shapes[:3]:
        inputs = inputs_of(op, shape)
        tensors = [v for v in (*inputs, *bench.outputs(op.call("torch")(*inputs))) if isinstance(v, torch.Tensor)]
        assert op.minimum_bytes(shape, "float32") == sum(value.nbytes for value in tensors)


def test_unfused_passes():
    shape = (128, 768)
    elements = 4 * 128 * 768
    assert ops()["gelu"].unfused_bytes((128, 768), "fp32") == 18 * elements
    assert ops()["bias_gelu"].unfused_bytes(shape, "fp32") == 4 * elements + 4 * 768
    assert ops()["residual_layernorm"].unfused_bytes(shape, "fp32") == 5 * elements + 8 * 768 + 8 * 128


def test_gelu_reference_keeps_its_digits_in_the_tail():
    """0.5 y (1 + tanh u) in float64 has lost them at -7; compared with 60 digits by hand."""
    reference = ops()["gelu"].reference(torch.tensor([-7.0]))
    inner = math.sqrt(2 / math.pi) * (7.0 + 0.044715 * 343.0)
    assert float(reference) == pytest.approx(-7.0 * math.exp(-2 * inner) / (1 + math.exp(-2 * inner)), rel=1e-12)


def test_a_benchmark_does_not_write_over_that_of_another_op(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench.csv").write_text("op,variant\nsoftmax,torch\n")
    assert bench.main(["residual", "--out", str(tmp_path)]) == 2
    assert "holds a benchmark of softmax: give another folder." in capsys.readouterr().err
    bench.keep_others(tmp_path, "softmax")
