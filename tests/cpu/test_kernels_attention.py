"""attention: byte and FLOP models by enumeration, the float64 reference against SDPA, windows, what a rung does not take."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from kernels.attention import op as declared
from kernels.attention.custom_op import attention, attention_windowed
from kernels.registry import ops

pytestmark = pytest.mark.studies

FULL, WINDOWED = ops()["attention"], ops()["attention_windowed"]


def seen(tokens, window):
    """Bool (T, T), True where a query sees a key, element by element."""
    mask = np.zeros((tokens, tokens), dtype=bool)
    for query in range(tokens):
        for key in range(tokens):
            mask[query, key] = key <= query and key > query - window
    return mask


@pytest.mark.parametrize(("tokens", "window"), [(1, 1), (5, 1), (5, 3), (8, 8), (7, 100), (33, 16)])
def test_models_against_enumeration(tokens, window):
    pairs = int(seen(tokens, window).sum())
    assert declared.visible_pairs(tokens, window) == pairs
    shape = (2, 3, tokens, 64, window)
    assert WINDOWED.flops(shape) == 6 * pairs * (4 * 64 + 5)
    for dtype, size in (("fp32", 4), ("bf16", 2)):
        operands = 4 * 6 * tokens * 64 * size
        assert WINDOWED.minimum_bytes(shape, dtype) == operands
        assert WINDOWED.unfused_bytes(shape, dtype) == operands + 8 * 6 * tokens**2 * size + tokens**2
        assert WINDOWED.fused_bytes(shape, dtype, "sdpa_efficient") == operands + tokens**2 * size
        if window >= tokens:
            assert FULL.flops(shape[:4]) == WINDOWED.flops(shape)
            assert FULL.fused_bytes(shape[:4], dtype, "v01_separate") == operands + 7 * 4 * 6 * pairs
            assert FULL.fused_bytes(shape[:4], dtype, "v02_per_query") == operands  # the array stays in L2
    hidden = declared.hidden(tokens, window, "cpu")
    assert np.array_equal(~hidden.numpy(), seen(tokens, window))


def test_a_window_costs_its_share():
    full, window = FULL.flops(FULL.shapes["b1_t16384"]), WINDOWED.flops(WINDOWED.shapes["b1_t16384_w1024"])
    assert full / window == pytest.approx(8.26, abs=0.01)


@pytest.mark.parametrize("tokens", [1, 7, 65])
def test_reference_is_sdpa(tokens):
    q, k, v = (value.double() for value in FULL.make_inputs((2, 3, tokens, 64), "fp32", seed=4))
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(FULL.reference(q, k, v), expected, rtol=1e-12, atol=1e-12)
    for window in (1, 3, 64, 1000):
        mask = torch.from_numpy(seen(tokens, window))
        expected = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        torch.testing.assert_close(WINDOWED.reference(q, k, v, window), expected, rtol=1e-12, atol=1e-12)


def test_reference_in_pieces_is_the_whole(monkeypatch):
    inputs = WINDOWED.make_inputs((1, 2, 50, 64, 9), "fp32")
    whole = WINDOWED.reference(*inputs)
    (allowed,) = WINDOWED.allowed_error(inputs, (whole,), WINDOWED.variants["v03_tiled"])
    for scores in (1, 100, 1000):
        monkeypatch.setattr(declared, "PIECE_SCORES", scores)
        torch.testing.assert_close(WINDOWED.reference(*inputs), whole, rtol=1e-12, atol=1e-12)
        pieces = WINDOWED.allowed_error(inputs, (whole,), WINDOWED.variants["v03_tiled"])[0]
        torch.testing.assert_close(pieces, allowed, rtol=1e-12, atol=1e-12)


def test_a_window_of_one_key_is_the_value_itself():
    q, k, v, _ = WINDOWED.make_inputs((1, 2, 9, 64, 1), "fp32")
    torch.testing.assert_close(attention_windowed(q, k, v, 1), v)
    torch.testing.assert_close(attention_windowed(q, k, v, 9), attention(q, k, v))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_a_row_does_not_see_leaves_it_alone(bad):
    q, k, v, window = WINDOWED.make_inputs((1, 2, 20, 64, 6), "fp32")
    expected = WINDOWED.reference(q, k, v, window)
    k[0, 1, 8], v[0, 0, 5, 2] = math.nan, bad
    got = WINDOWED.reference(q, k, v, window)
    sees_value, sees_key = torch.zeros(2, 20, 64, dtype=torch.bool), torch.zeros(2, 20, 64, dtype=torch.bool)
    sees_value[0, 5:11, 2] = sees_key[1, 8:14] = True
    assert bool(got[0][sees_key].isnan().all())
    torch.testing.assert_close(got[0][sees_value], torch.full((6,), bad).double(), equal_nan=True)
    rest = ~(sees_value | sees_key)
    torch.testing.assert_close(got[0][rest], expected[0][rest], rtol=0, atol=0)


def test_a_missing_key_is_beyond_the_tolerance():
    """A key of average weight left out of a row of 200."""
    for dtype in ("float32", "bfloat16"):
        q, k, v = FULL.make_inputs((1, 1, 200, 64), dtype)
        q.zero_()
        reference = FULL.reference(q, k, v)
        without = WINDOWED.reference(q, k, v, 199)  # the last row alone loses a key, the first one
        variant = FULL.variants["v03_tiled"]
        (allowed,) = FULL.allowed_error((q, k, v), (reference,), variant)
        beyond = (without - reference).abs()[0, 0, 199] > allowed[0, 0, 199]
        assert bool(beyond.any())


def test_the_tolerance_knows_what_is_stored_in_bf16():
    q, k, v = FULL.make_inputs((1, 1, 64, 64), "bfloat16")
    reference = FULL.reference(q, k, v)
    allowed = {
        name: float(FULL.allowed_error((q, k, v), (reference,), FULL.variants[name])[0].mean())
        for name in ("v04_mma", "torch")
    }
    chain = (declared.attention_chain(q, k, v).double() - reference).abs()
    limit = FULL.allowed_error((q, k, v), (reference,), FULL.variants["torch"])[0]
    assert bool((chain <= limit).all())
    assert allowed["v04_mma"] < allowed["torch"] / 5


def test_what_a_rung_does_not_take():
    long, short = FULL.shapes["b1_t16384"], FULL.shapes["b8_t1024"]

    def refusing(shape):
        return {name for name, variant in FULL.variants.items() if variant.cannot(shape, "bfloat16")}

    assert refusing(short) == set()
    assert refusing(long) == {"torch", "compile", "v01_separate", "v02_per_query"}
    assert "T is above 1024" in FULL.variants["v02_per_query"].cannot((1, 1, 1025, 64), "float32")
    assert FULL.variants["v03_tiled"].cannot((1, 1, 8, 32), "float32") == "the head size is 32, not 64"
