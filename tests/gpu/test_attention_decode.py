"""attention_decode where test_ops.py does not look: caches with strides, heads far from ordinary."""

import pytest
import torch

from kernels.registry import ops
from studies.bench import measure as bench

pytestmark = [pytest.mark.gpu, pytest.mark.studies]

OP = ops()["attention_decode"]
OURS = [name for name, variant in OP.variants.items() if variant.kind in ("cuda", "triton")]


@pytest.mark.parametrize("variant", OURS)
@pytest.mark.parametrize("dtype", OP.dtypes)
@pytest.mark.parametrize("keys", [1, 33, 1000])
def test_a_slice_of_a_cache_gives_what_its_copy_gives(variant, dtype, keys):
    """The same bits; Triton compiles other code for other strides, whose sums are in another order."""
    q, k, v, scale = OP.make_inputs((3, 4, keys, 64), dtype, seed=keys, device="cuda")
    run = OP.variants[variant].fn
    expected = run(q, k, v, scale)

    def same(q, k, v):
        check = bench.compare(OP, variant, (q, k, v, scale), "strided", run)
        assert check.passed, check
        if OP.variants[variant].kind == "cuda":
            torch.testing.assert_close(run(q, k, v, scale), expected, rtol=0, atol=0)

    for capacity, shift in ((keys + 5, 0), (keys + 5, 1)):
        longer = torch.full((2, 3, 4, capacity, 64 + 8), torch.nan, dtype=k.dtype, device="cuda")
        cached = longer[..., :keys, shift : 64 + shift]
        cached[0], cached[1] = k, v
        same(q, cached[0], cached[1])
    same(q, *(value.transpose(1, 2).contiguous().transpose(1, 2) for value in (k, v)))
    qkv = torch.zeros(3, 1, 3 * 4 * 64, dtype=k.dtype, device="cuda")
    view = qkv.chunk(3, -1)[0].unflatten(-1, (4, 64)).transpose(1, 2)
    view.copy_(q)
    same(view, k, v)


@pytest.mark.parametrize("variant", OURS)
def test_the_shapes_of_the_bench(variant):
    for name, shape in OP.shapes.items():
        inputs = OP.make_inputs(shape, "bfloat16", seed=1, device="cuda")
        check = bench.compare(OP, variant, inputs, name, OP.variants[variant].fn)
        assert check.passed, check
        del inputs
        torch.cuda.empty_cache()


@pytest.mark.parametrize("variant", OURS)
@pytest.mark.parametrize("dtype", OP.dtypes)
def test_huge_scores_leave_the_largest_alone(variant, dtype):
    """Scores up to 1e6, far beyond what exp takes: the key with the largest score is the output."""
    q, k, v, scale = OP.make_inputs((2, 4, 500, 64), dtype, device="cuda")
    k[:, :, 123] = 1e5 * q[:, :, 0]
    out = OP.variants[variant].fn(q, k, v, scale)
    torch.testing.assert_close(out[:, :, 0], v[:, :, 123], rtol=0, atol=0)
