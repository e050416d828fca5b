"""matmul and gemv: byte and FLOP models, tolerance, what a rung does not take, floors, waves, the build for Hopper."""

import pytest
import torch

from kernels import build, objects
from kernels.registry import ops
from studies.bench import measure as bench
from studies.bench.files import BENCH_ROWS

pytestmark = pytest.mark.studies

MATMUL, GEMV = ops()["matmul"], ops()["gemv"]


def test_bytes_and_flops():
    assert MATMUL.flops((2, 3, 5)) == 2 * 2 * 3 * 5 + 2 * 3
    assert MATMUL.minimum_bytes((2, 3, 5), "bf16") == 2 * (10 + 15 + 3 + 6)
    assert MATMUL.fused_bytes((2, 3, 5), "fp32", "v04_constant_bias") == 4 * (10 + 15 + 3 + 6)
    assert GEMV.flops((3, 5)) == 2 * 15 + 3
    assert GEMV.minimum_bytes((50257, 768), "bf16") == 2 * (50257 * 768 + 768 + 2 * 50257)


def test_the_models_of_the_ledger_are_the_same():
    from harness import op_rows

    row = op_rows.linear("qkv", 1024, 2304, 768, 4)
    assert (row.flops, row.minimum_bytes) == (MATMUL.flops((1024, 2304, 768)), MATMUL.minimum_bytes(row.shape, "fp32"))


def test_a_missing_product_is_beyond_the_tolerance():
    """One average product left out, at the longest K of GPT-2's linear layers."""
    a, weight, bias = MATMUL.make_inputs((4, 8, 3072), "float32")
    reference = MATMUL.reference(a, weight, bias)
    (allowed,) = MATMUL.allowed_error((a, weight, bias), (reference,), MATMUL.variants["v09_warp_tile"])
    assert bool((allowed < (a.double().abs() @ weight.double().abs()) / 3072).all())


def test_the_tolerance_knows_who_cuts_operands():
    inputs = MATMUL.make_inputs((4, 8, 64), "float32")
    reference = MATMUL.reference(*inputs)

    def allowed(variant, values=inputs):
        return float(MATMUL.allowed_error(values, (reference,), MATMUL.variants[variant])[0].mean())

    halves = tuple(value.bfloat16() for value in inputs)
    assert allowed("torch") == allowed("v09_warp_tile") < allowed("torch_tf32") / 100
    assert allowed("v11_wgmma", halves) < allowed("torch", halves)
    cut = tuple((v.view(torch.int32) & ~0x1FFF).view(torch.float32) for v in inputs[:2])  # 10 bits are left
    error = (MATMUL.reference(*cut, inputs[2]) - reference).abs().mean()
    assert allowed("torch") < float(error) < allowed("torch_tf32")


@pytest.mark.parametrize("name", ["matmul_fp8", "matmul_fp8_blocks"])
def test_a_missing_step_or_a_wrong_scale_of_fp8_is_found(name):
    op = ops()[name]
    a, weight, scale_a, scale_weight = inputs = op.make_inputs((64, 256, 3072), op.dtypes[0])
    without = a.float()
    without[:, 256:384] = 0.0

    def passes(*values):
        return bench.compare(op, op.best, inputs, "random", lambda *_: op.reference(*values).bfloat16()).passed

    assert passes(*inputs)
    assert not passes(without.to(a.dtype), weight, scale_a, scale_weight)
    if name == "matmul_fp8_blocks":
        assert not passes(a, weight, scale_a.roll(1, 0), scale_weight)
        assert not passes(a, weight, scale_a, scale_weight.roll(1, 1))
        assert not passes(a, weight, scale_a, scale_weight.roll(1, 0))


def test_what_a_rung_does_not_take():
    lm_head, padded = MATMUL.shapes["lm_head"], MATMUL.shapes["lm_head_padded"]
    refusing = {name for name, variant in MATMUL.variants.items() if variant.cannot(lm_head, variant.dtypes[0])}
    assert refusing == {
        "deep_gemm",
        "triton",  # rows of N that are not aligned
        *("v04_constant_bias", "v07_float4", "v10_mma", "v11_wgmma", "v14_fitted_tile"),
    }
    searched = MATMUL.variants["compile_tuned"]
    assert [name for name, shape in MATMUL.shapes.items() if searched.cannot(shape, "bfloat16")] == ["square_16384"]
    assert not MATMUL.variants["v11_wgmma"].cannot(padded, "bfloat16")


def timed(op, dtype, shape, seconds):
    return bench.Timed(dtype, shape, "cold", 2, {name: [value] * 3 for name, value in seconds.items()})


def test_the_floor_is_the_longer_of_bytes_and_operations():
    roofs = {"fp32": 50e12, "tf32": 400e12, "bf16": 800e12}
    shape = (4096, 4096, 4096)
    rows = bench.rows_of(MATMUL, timed(MATMUL, "float32", shape, {"torch": 3e-3, "torch_tf32": 4e-4}), 4e12, roofs)
    flops = MATMUL.flops(shape)
    assert [row["floor_time_ns"] for row in rows] == [round(flops / 50e3), round(flops / 400e3)]
    assert rows[0]["achieved_flop_per_s"] == round(flops / 3e-3)
    assert tuple(rows[0]) == BENCH_ROWS.names
    small = (1024, 8, 8)
    (row,) = bench.rows_of(MATMUL, timed(MATMUL, "bfloat16", small, {"v11_wgmma": 1e-5}), 4e12, roofs)
    assert row["floor_time_ns"] == round(MATMUL.minimum_bytes(small, "bf16") / 4e3)
    (row,) = bench.rows_of(GEMV, timed(GEMV, "float32", (512, 64), {"torch": 1e-5}), 4e12, {"dram_read": 4.6e12})
    assert row["floor_time_ns"] == round(GEMV.minimum_bytes((512, 64), "fp32") / 4.6e3)
    assert row["achieved_flop_per_s"] == ""


def test_the_instructions_of_hopper_alone_are_compiled_for_it():
    for name in ("v11_wgmma", "v12_ring", "v13_split_k", "v14_fitted_tile", "v15_padded", "v16_any_rows"):
        assert [objects.target(build.FOLDER / "matmul" / f"{name}.cu", arch) for arch in (80, 90)] == ["80", "90a"]
    assert objects.target(build.FOLDER / "matmul" / "v10_mma.cu", 90) == "90"
