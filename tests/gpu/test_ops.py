"""Every op of the registry on the GPU, every variant against float64; softmax has more in test_softmax.py."""

import math

import pytest
import torch

from kernels.registry import ops
from studies.bench import measure as bench
from tests import chains

# the compiler of torch.compile warns of its own accord
WARNS = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
pytestmark = [pytest.mark.gpu, pytest.mark.studies, WARNS]

OPS = list(ops().values())
# test_softmax.py tests chains and gradients of softmax; FP8 has none, and opcheck compares with what FP8 lacks
OTHERS = [op for op in OPS if op.name != "softmax" and not op.out_dtype]
VARIANTS = [(op, name) for op in OPS for name in op.variants]
# of matmul and of attention
ALIGNED_ONLY = (
    "v07_float4",
    "v10_mma",
    "v11_wgmma",
    "v14_fitted_tile",
    "v03_tiled",
    "v04_mma",
    "v05_wgmma",
    "v06_small",
    "v07_split_keys",
)
OURS = [(op, name) for op, name in VARIANTS if op.variants[name].kind in ("cuda", "triton")]


def ids(pairs):
    return [f"{op.name}-{name}" for op, name in pairs]


every_variant = pytest.mark.parametrize(("op", "variant"), VARIANTS, ids=ids(VARIANTS))
ours = pytest.mark.parametrize(("op", "variant"), OURS, ids=ids(OURS))


def inputs_of(op, variant=None, dtype=None, first=2):
    """Of a check shape, from the `first` on, that the variant (the op's best) takes."""
    declared = op.variants[variant or op.best]
    dtype = dtype or declared.dtypes[0]
    shape = next(shape for shape in op.check_shapes[first:] if not declared.cannot(shape, dtype))
    return op.make_inputs(shape, dtype, seed=3, device="cuda")


def dtypes_of(op, variant):
    return [dtype for dtype in op.dtypes if dtype in op.variants[variant].dtypes]


@every_variant
def test_against_float64(op, variant):
    if lacks := op.variants[variant].lacks:
        pytest.skip(f"{lacks} is not installed")
    for dtype in dtypes_of(op, variant):
        for check in bench.check_variant(op, variant, dtype, bench.check_shapes(op, variant), "cuda", []):
            assert check.passed, check


@ours
def test_unaligned_bases(op, variant):
    for dtype in dtypes_of(op, variant):

        def moved(value):
            if not isinstance(value, torch.Tensor):
                return value
            flat = torch.empty(value.numel() + 1, dtype=value.dtype, device="cuda")
            flat[1:] = value.reshape(-1)
            return flat[1:].view(value.shape)

        inputs = tuple(map(moved, inputs_of(op, variant, dtype, first=4)))
        if variant in ALIGNED_ONLY or (
            op.folder in ("attention_grouped", "matmul_fp8") and op.variants[variant].kind == "cuda"
        ):
            with pytest.raises(RuntimeError, match="16-byte aligned"):
                op.variants[variant].fn(*inputs)
            continue
        check = bench.compare(op, variant, inputs, "unaligned", op.variants[variant].fn)
        assert check.passed, check


@ours
def test_strides(op, variant):
    def stretched(value):
        if not isinstance(value, torch.Tensor) or value.dim() < 2:
            return value
        wide = torch.empty(*value.shape[:-1], 2 * value.shape[-1], dtype=value.dtype, device="cuda")
        wide[..., ::2] = value
        return wide[..., ::2]

    check = bench.compare(op, variant, tuple(map(stretched, inputs_of(op, variant))), "strided", op.call(variant))
    assert check.passed, check


@ours
def test_empty(op, variant):
    inputs = inputs_of(op, variant)
    empty = op.cut(inputs, "in", 0, 0)
    results = [tensor for tensor in op.tensors if tensor.role == "out"]
    for tensor, value in zip(results, bench.outputs(op.call(variant)(*empty)), strict=True):
        assert value.numel() == 0 or (op.axes[0] not in tensor.axes and not value.any())  # a sum over no rows is 0


def assert_same(op, variant, inputs, values, expected):
    """Equal, with their dtypes; but looking back, a tile adds as many tiles at once as are done."""
    if (op.name, variant) == ("scan", "v04_lookback"):
        errors = op.allowed_error(inputs, expected, op.variants[variant])
        near = [(value - one).abs() <= 2 * most for value, one, most in zip(values, expected, errors, strict=True)]
        values = [torch.where(is_near, one, value) for is_near, one, value in zip(near, expected, values, strict=True)]
    for value, reference in zip(values, expected, strict=True):
        torch.testing.assert_close(value, reference, rtol=0.0, atol=0.0)


@ours
@pytest.mark.parametrize("first", [2, -1], ids=["small", "last"])
def test_current_stream_and_graph(op, variant, first):
    call = op.call(variant)
    if op.variants[variant].cannot(op.check_shapes[first], op.variants[variant].dtypes[0]) and first < 0:
        pytest.skip("it does not take the last shape")
    inputs = inputs_of(op, variant, first=first)
    expected = bench.outputs(call(*inputs))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        late = tuple(torch.zeros_like(v) if isinstance(v, torch.Tensor) else v for v in inputs)
        torch.cuda._sleep(20_000_000)
        for target, source in zip(late, inputs, strict=True):
            if isinstance(target, torch.Tensor):
                target.copy_(source)
        # on another stream this would read the zeros
        results = bench.outputs(call(*late))
    side.synchronize()
    assert_same(op, variant, inputs, results, expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = bench.outputs(call(*inputs))
    for value in captured:
        value.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert_same(op, variant, inputs, captured, expected)


# losses are no logits, the largest are fewer than their row, and prefix sums of prefix sums overflow
FEEDING = [op for op in OTHERS if op.name not in ("cross_entropy", "topk", "scan")]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("op", FEEDING, ids=[op.name for op in FEEDING])
def test_chained_launches_read_what_the_one_before_wrote(op, dtype):
    """Launches overlap: each waits for the one before. Chains give the same bits as launches one at a time."""
    check_chain(op, dtype, chains.shape_of(op))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_chained_products_copy_what_the_one_before_wrote(dtype):
    """Where rows are no multiple of 16 bytes, operands go to a workspace first, which the next call may take over."""
    check_chain(ops()["matmul"], dtype, (1024, 769, 769))


def check_chain(op, dtype, shape):
    call = op.variants[op.best_for(dtype)].fn
    inputs = op.make_inputs(shape, dtype, seed=3, device="cuda")
    steps = chains.steps_of(op)
    one_at_a_time = chains.chain(op, call, inputs, steps, torch.cuda.synchronize)
    assert one_at_a_time.isfinite().all()
    assert not torch.equal(one_at_a_time, chains.chain(op, call, inputs, 1)), "it was fed with the first inputs again"
    assert torch.equal(one_at_a_time, chains.chain(op, call, inputs, steps))


@pytest.mark.parametrize("op", [op for op in OPS if not op.out_dtype], ids=lambda op: op.name)
def test_opcheck_and_compile(op):
    op.call(op.best)  # makes PyTorch know it
    function = getattr(torch.ops.kernel_ledger, op.torch_op).default
    for variant in {op.best, "triton", *op.best_by_dtype.values()} & op.variants.keys():
        torch.library.opcheck(function, (*inputs_of(op, variant), variant))
    inputs = inputs_of(op)
    torch._dynamo.reset()
    call = op.call(op.best)
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    for value, expected in zip(bench.outputs(compiled(*inputs)), bench.outputs(call(*inputs)), strict=True):
        assert torch.equal(value, expected)


@pytest.mark.parametrize("op", OTHERS, ids=[op.name for op in OTHERS])
def test_gradients_are_those_of_the_chain(op):
    def gradients(function):
        inputs = tuple(
            v.requires_grad_() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in inputs_of(op)
        )
        generator = torch.Generator("cuda").manual_seed(5)
        total = 0.0
        for value in bench.outputs(function(*inputs)):
            total = total + (value * torch.randn(value.shape, generator=generator, device="cuda")).sum()
        return torch.autograd.grad(total, [v for v in inputs if isinstance(v, torch.Tensor) and v.requires_grad])

    for mine, theirs in zip(gradients(op.call(op.best)), gradients(op.variants["torch"].fn), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_ids_outside_the_vocabulary_are_nan():
    op = ops()["encoder"]
    ids_, tokens, positions = inputs_of(op)
    ids_[0, 1], ids_[1, 0] = len(tokens), -1
    for variant in (name for name, declared in op.variants.items() if declared.kind == "cuda"):
        out = op.call(variant)(ids_, tokens, positions)
        assert out.isnan().all(-1).sum() == 2
        assert out[0, 1].isnan().all()
        assert out[1, 0].isnan().all()


def test_constant_memory_has_an_end():
    op = ops()["layernorm"]
    inputs = op.make_inputs((2, 8193), "float32", device="cuda")
    with pytest.raises(RuntimeError, match="invalid argument"):
        op.call("v04_constant")(*inputs)


def test_what_a_matmul_does_not_take_is_one_sentence():
    op = ops()["matmul"]
    for variant, shape, dtype in (
        ("v04_constant_bias", (2, 16385, 4), "float32"),
        ("v07_float4", (8, 6, 4), "float32"),
        ("v10_mma", (8, 12, 8), "bfloat16"),
        ("v11_wgmma", (8, 8, 12), "bfloat16"),
        ("v14_fitted_tile", (8, 12, 8), "bfloat16"),
    ):
        assert op.variants[variant].cannot(shape, dtype)
        with pytest.raises(RuntimeError, match="this matmul does not take these sizes"):
            op.call(variant)(*op.make_inputs(shape, dtype, device="cuda"))
    with pytest.raises(TypeError, match="v11_wgmma takes bfloat16, got float32"):
        op.call("v11_wgmma")(*op.make_inputs((8, 8, 8), "float32", device="cuda"))


def test_large_rows_of_layernorm_stay_accurate_far_from_zero():
    op = ops()["layernorm"]
    x, weight, bias, eps = op.make_inputs((256, 768), "float32", device="cuda")
    inputs = (x * 1e-3 + 100.0, weight, bias, eps)
    for variant in ("v05_vector", "v03_shuffle", "triton"):
        check = bench.compare(op, variant, inputs, "offset", op.variants[variant].fn)
        assert check.passed, check
        assert math.isfinite(check.largest_error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gpt2_with_fused_ops_gives_the_logits_of_the_torch_ops(dtype):
    from harness.weights import build_model, load_weights

    plain = build_model(load_weights(seed=2), device="cuda", dtype=dtype)
    fused = plain.with_softmax(ops()["softmax"].best, ops="fused")
    ids_ = torch.randint(plain.config.vocab_size, (2, 65), generator=torch.Generator().manual_seed(1)).cuda()
    caches = plain.new_cache(2), fused.new_cache(2)
    with torch.inference_mode():
        for start, end in ((0, 64), (64, 65)):
            expected, got = (
                model(ids_[:, start:end], cache) for model, cache in zip((plain, fused), caches, strict=True)
            )
            # rounded to bf16 some fifty times in either model
            limit = 1e-4 if dtype == torch.float32 else 0.1
            assert float((got - expected).abs().max()) < limit * float(expected.abs().max())


@pytest.mark.parametrize(
    "variant", ["v01_passes", "triton", "v03_online", "v04_cluster", "v04_in_place", "v05_ring", "v06_resident"]
)
def test_targets_of_cross_entropy_outside_the_row_are_nan(variant):
    op = ops()["cross_entropy_gradient"]
    logits, target, scale = op.make_inputs((9, 50257), "bfloat16", device="cuda")
    target[0], target[1], target[2] = 50257, -1, -100
    gradient, losses = op.variants[variant].fn(logits, target, scale)
    assert losses.isnan().tolist() == gradient.isnan().all(1).tolist() == [True, True, *[False] * 7]
    assert losses[2] == 0
    assert not gradient[2].any()


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("cross_entropy", "v06_resident"),
        ("cross_entropy_gradient", "v05_ring"),
        ("cross_entropy_gradient", "v06_resident"),
    ],
)
def test_a_dominating_logit_leaves_the_rounding_of_float32_alone(name, variant):
    op = ops()[name]
    logits, target, *scale = op.make_inputs((64, 50257), "bfloat16", device="cuda")
    rows = torch.arange(64, device="cuda")
    logits[rows, target] = (32.4 + 12.4 * rows).to(logits.dtype)  # each power has the rounding of its row's shift
    exact = torch.nn.functional.cross_entropy(logits.double(), target, reduction="none")
    found = op.variants[variant].fn(logits, target, *scale)
    losses = found[1] if scale else found
    assert float((losses.double() - exact).abs().max()) < 1e-6
