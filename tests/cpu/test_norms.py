"""Checks of what no single element shows, and mutants of outputs: a right one passes, a wrong one does not."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels.registry import Op, ops
from studies.bench import measure as bench

pytestmark = pytest.mark.studies

MATMUL, ATTENTION, SOFTMAX, ONE_QUERY = (
    ops()[name] for name in ("matmul", "attention", "softmax", "attention_decode_grouped")
)
K = 2048


def product(a: Any, weight: Any, bias: Any, *, scale: float = 1.0, without: int = 0) -> Any:
    """As our kernels: sums in float32, one rounding."""
    left = a.float().clone()
    left[:, K // 2 : K // 2 + without] = 0.0
    return (left @ weight.float() * scale + bias.float()).to(a.dtype)


def attended(q: Any, k: Any, v: Any, *, scale: float = 1.0, hidden: int = 0) -> Any:
    """As our kernels: scores in float32, weights rounded to bf16; the last 64 rows do not see the first keys."""
    tokens = q.shape[2]
    mask = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    mask[-64:, :hidden] = True
    scores = (q.float() @ k.float().mT * 0.125).masked_fill(mask, -math.inf)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return (powers.to(q.dtype).float() @ v.float() / powers.sum(-1, keepdim=True) * scale).to(q.dtype)


def one_query(q: Any, k: Any, v: Any, spans: Any, factor: float, *, scale: float = 1.0, hidden: int = 0) -> Any:
    """As our kernels: everything in float32, one rounding. No query sees the first keys."""
    k, v = (value.repeat_interleave(q.shape[1] // value.shape[1], 1).float() for value in (k, v))
    weights = (q.float() @ k.mT * factor).softmax(-1)
    weights[..., :hidden] = 0.0
    return (weights @ v / weights.sum(-1, keepdim=True) * scale).transpose(1, 2).to(q.dtype)


def normalised(scores: Any, factor: float, *, scale: float = 1.0, without: int = 0) -> Any:
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    scaled = (scores.float() * factor).masked_fill(mask, -math.inf)
    powers = (scaled - scaled.amax(-1, keepdim=True)).exp()
    sums = powers.sum(-1, keepdim=True)
    sums[:, :, -1] -= powers[:, :, -1, :without].sum(-1, keepdim=True)  # columns that the last row's sum lacks
    return (powers / sums * scale).to(scores.dtype)


CASES = [
    (MATMUL, {"float32": "v13_split_k", "bfloat16": "v14_fitted_tile"}, (64, 128, K), product, "without", (1, 16)),
    (ATTENTION, {"float32": "v03_tiled", "bfloat16": "v05_wgmma"}, (1, 2, 700, 64), attended, "hidden", (1, 64)),
    (
        ONE_QUERY,
        dict.fromkeys(("float32", "bfloat16"), "v03_split"),
        (1, 8, 2, 8192, 128),
        one_query,
        "hidden",
        (1, 64),
    ),
    (SOFTMAX, dict.fromkeys(("float32", "bfloat16"), "v05_early"), (1, 8, 300, 300), normalised, "without", (64,)),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES, ids=[case[0].name for case in CASES])
def test_rounding_passes_and_a_missing_term_or_a_scale_does_not(case: Any, dtype: str) -> None:
    op, variants, shape, run, missing, counts = case
    op = remembering(op)
    inputs = op.make_inputs(shape, dtype, seed=1)

    def check(**wrong: Any) -> bench.Check:
        return bench.compare(op, variants[dtype], inputs, "random", lambda *values: run(*values, **wrong))

    right = check()
    assert right.passed, right
    assert 0 < max(right.norms.values()) < 1
    assert not check(scale=1 + 2.0**-7).passed
    for count in counts:
        assert not check(**{missing: count}).passed, count


def test_a_scale_that_no_element_shows_shows_in_the_norms() -> None:
    inputs = ATTENTION.make_inputs((1, 2, 300, 64), "bfloat16", seed=1)
    found = bench.compare(
        ATTENTION, "v05_wgmma", inputs, "random", lambda *values: attended(*values, scale=1 + 2.0**-8)
    )
    assert found.tolerance_used < 1
    assert found.note == "row projection above its bound, though no element is"


def remembering(op: Op) -> Op:
    """Return the op with a cache: it computes reference and bounds of each piece once for all mutants of outputs."""

    def kept(function: Callable[..., Any]) -> Callable[..., Any]:
        known: dict[Any, Any] = {}

        def call(inputs: tuple[Any, ...], *rest: Any) -> Any:
            key = tuple(
                (value.data_ptr(), tuple(value.shape)) if hasattr(value, "data_ptr") else value for value in inputs
            )
            if key not in known:
                known[key] = function(inputs, *rest)
            return known[key]

        return call

    reference = kept(lambda inputs: op.reference(*inputs))
    spread = kept(op.error_spread) if op.error_spread else None
    return dataclasses.replace(
        op, reference=lambda *inputs: reference(inputs), allowed_error=kept(op.allowed_error), error_spread=spread
    )
