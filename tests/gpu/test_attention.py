"""attention on the GPU beyond test_ops.py: what a row does not see, huge scores, other windows, what is not taken."""

import math

import pytest
import torch

from kernels.registry import ops
from studies.bench import measure as bench

pytestmark = [pytest.mark.gpu, pytest.mark.studies]

FULL, WINDOWED = ops()["attention"], ops()["attention_windowed"]
OURS = [
    (op, name, dtype)
    for op in (FULL, WINDOWED)
    for name, variant in op.variants.items()
    if variant.kind == "cuda"
    for dtype in variant.dtypes
]
ours = pytest.mark.parametrize(("op", "variant", "dtype"), OURS, ids=[f"{o.name}-{n}-{d}" for o, n, d in OURS])


def inputs_of(op, dtype, tokens=300, window=70):
    shape = (1, 3, tokens, 64) + ((window,) if op is WINDOWED else ())
    return op.make_inputs(shape, dtype, seed=6, device="cuda")


@ours
def test_what_a_row_does_not_see_leaves_it_alone(op, variant, dtype):
    q, k, v, *window = inputs_of(op, dtype)
    v[0, 0, 5, 2], v[0, 0, 130, 9], v[0, 1, 64, 0] = math.inf, math.nan, -math.inf
    k[0, 2, 200, 3] = math.nan
    check = bench.compare(op, variant, (q, k, v, *window), "spoiled values", op.variants[variant].fn)
    assert check.passed, check


@ours
def test_scores_beyond_the_range_of_a_shifted_exponential(op, variant, dtype):
    """At scores of 10^12 the largest takes all the weight, and 100 keys with the same score share it."""
    q, k, v, *window = inputs_of(op, dtype)
    k[:, :, ::3] = k[:, :, :1]
    q *= 1e12
    out = op.variants[variant].fn(q, k, v, *window)
    scores = q.double() @ k.double().transpose(-1, -2) / 8
    visible = torch.ones(300, 300, dtype=torch.bool, device="cuda").tril()
    if window:
        visible &= visible.new_ones(300, 300).triu(1 - window[0])
    scores = scores.where(visible, -math.inf)
    first, second = scores.where(scores < scores.amax(-1, keepdim=True), -math.inf), scores.amax(-1)
    clear = second - first.amax(-1) > 1e-4 * second.abs()  # in float32 too
    expected = scores.softmax(-1) @ v.double()
    assert int(clear.sum()) > 500
    torch.testing.assert_close(out.double()[clear], expected[clear], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 191, 300, 299])
def test_every_edge_of_a_window(window):
    for dtype in WINDOWED.dtypes:
        inputs = inputs_of(WINDOWED, dtype, window=window)
        for name, variant in WINDOWED.variants.items():
            if variant.kind == "cuda" and dtype in variant.dtypes:
                check = bench.compare(WINDOWED, name, inputs, "random", variant.fn)
                assert check.passed, check


def test_what_is_not_taken_is_one_sentence():
    assert FULL.variants["v02_per_query"].cannot((1, 1, 1025, 64), "float32")
    with pytest.raises(RuntimeError, match="this attention does not take these sizes"):
        FULL.call("v02_per_query")(*FULL.make_inputs((1, 1, 1025, 64), "float32", device="cuda"))
    with pytest.raises(TypeError, match="v04_mma takes bfloat16, got float32"):
        FULL.call("v04_mma")(*FULL.make_inputs((1, 1, 8, 64), "float32", device="cuda"))
