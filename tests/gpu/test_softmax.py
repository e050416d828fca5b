"""Every softmax variant on the GPU against float64, as the registry declares them; and the measured roofs."""

import math

import pytest
import torch

from kernels.registry import ops
from kernels.softmax.custom_op import causal_softmax
from studies.bench import measure as bench
from tests import gradients

pytestmark = [pytest.mark.gpu, pytest.mark.studies]

SOFTMAX = ops()["softmax"]
OURS = [name for name, variant in SOFTMAX.variants.items() if variant.kind in ("cuda", "triton")]


def each_dtype(variants):
    """Parametrise a test by variant and by each dtype that the variant declares."""
    pairs = [(name, dtype) for name in variants for dtype in SOFTMAX.variants[name].dtypes]
    return pytest.mark.parametrize(("variant", "dtype"), pairs)


def first_dtype(variant):
    """Return the first declared dtype of a variant, as torch's."""
    return getattr(torch, SOFTMAX.variants[variant].dtypes[0])


@each_dtype(OURS)
def test_every_length_up_to_a_warp_of_packets_and_around_each_mapping(variant, dtype):
    edges = [128, 256, 512, 1024, 2048, 4096]
    lengths = [*range(1, 70), *(edge + step for edge in edges for step in (-8, -4, -2, -1, 0, 1, 2, 4, 8))]
    for length in lengths:
        for rows in (3, 130):  # a handful of rows is mapped otherwise than many
            shape = (1, 2, rows, length)
            inputs = SOFTMAX.make_inputs(shape, dtype, seed=length, device="cuda")
            if SOFTMAX.variants[variant].cannot(shape, dtype):
                with pytest.raises(RuntimeError, match="does not take rows of this length"):
                    SOFTMAX.variants[variant].fn(*inputs)
                continue
            check = bench.compare(SOFTMAX, variant, inputs, "random", SOFTMAX.variants[variant].fn)
            assert check.passed, check


@pytest.mark.parametrize("variant", OURS)
def test_degenerate_rows_give_what_torch_gives(variant):
    for shape in ((1, 2, 7, 7), (1, 2, 9, 4), (2, 1, 6, 1024), (1, 1, 7, 2048)):
        scores, _ = SOFTMAX.hostile(torch.randn(shape, device="cuda", dtype=first_dtype(variant)), 0.125)
        expected = SOFTMAX.variants["torch"].fn(scores, 0.125)
        result = causal_softmax(scores, 0.125, variant)
        assert torch.equal(result.isnan(), expected.isnan())
        limits = (
            {"rtol": 1e-4, "atol": 1e-12} if scores.dtype == torch.float32 else {}
        )  # torch's own for narrower types
        torch.testing.assert_close(result, expected, equal_nan=True, **limits)
        assert causal_softmax(torch.full_like(scores, -math.inf), 0.125, variant).isnan().all()


@each_dtype(OURS)
def test_a_chain_of_launches_gives_the_same_bits_overlapped_and_one_at_a_time(variant, dtype):
    for shape in ((2, 12, 512, 512), (1, 12, 1, 1024), (1, 2, 100, 130)):
        start = torch.randn(shape, device="cuda").to(getattr(torch, dtype))
        overlapped = alone = start
        for _ in range(20):
            overlapped = causal_softmax(overlapped, 40.0, variant)
        for _ in range(20):
            alone = causal_softmax(alone, 40.0, variant)
            torch.cuda.synchronize()
        assert torch.equal(overlapped, alone)


@pytest.mark.parametrize("variant", OURS)
def test_empty_and_gradient(variant):
    kind = {"device": "cuda", "dtype": first_dtype(variant)}
    for shape in ((0, 2, 3, 3), (1, 2, 0, 3), (1, 2, 3, 0)):
        assert causal_softmax(torch.empty(shape, **kind), 1.0, variant).shape == shape
    scores = torch.randn(1, 2, 5, 7, **kind, requires_grad=True)
    (causal_softmax(scores, 0.3, variant) ** 2).sum().backward()
    expected, allowed = gradients.of_squares(scores, 0.3)
    assert ((scores.grad.double() - expected).abs() <= allowed).all()


def test_roofs_are_plausible():
    from kernels.ceilings import measure_ceilings

    roofs = {roof["name"]: roof for roof in measure_ceilings(samples=5, progress=False)["roofs"]}
    assert set(roofs) == {"dram_copy", "dram_read", "l2_read", "l1_read", "fp32", "tf32", "bf16"}
    for roof in roofs.values():
        assert 0 < roof["p5"] <= roof["value"] <= roof["p95"]
    assert roofs["dram_read"]["value"] < roofs["l2_read"]["value"] < roofs["l1_read"]["value"]
    assert roofs["fp32"]["value"] < roofs["bf16"]["value"]


def test_known_bytes_copy_copies():
    from kernels.ceilings import copy_of

    source = torch.randint(0, 256, (3 * 4096,), dtype=torch.uint8, device="cuda")
    target = torch.zeros_like(source)
    copy_of(source, target)()
    assert torch.equal(source, target)
