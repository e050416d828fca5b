"""What grids, times, names and rounds of kernels tell a rule, and what only looks like it."""

import pytest

from analysis.diagnosis import savers
from analysis.hardware.devices import find_device
from tests.cpu.test_step_rules import WARM_UP, WIDE, claims_on, spaced
from tests.toy import US, Action, Machine

ROWS = "8192x4x1"


def launched(*kernels: tuple[str, int, str]) -> list[Action]:
    return [("launch", name, us * US, 7, grid) for name, us, grid in kernels]


CHAINS = {
    "filters in CUDA": launched(
        ("to_grey(const uchar4 *, float *, int)", 70, WIDE), ("gamma(const float *, float *, int)", 60, WIDE),
        ("threshold(const float *, unsigned char *, int)", 40, WIDE), ("histogram(const unsigned char *, int *)", 90, "264x1x1"),
    ),
    "rows in Triton": launched(("scale_rows", 120, ROWS), ("rotate_rows", 150, ROWS)) * 2,
}  # fmt: skip
NO_CHAINS = {
    "one function along two axes": launched(("scale_x(float *)", 70, WIDE), ("scale_y(float *)", 75, WIDE)),
    "variants of a template": launched(("void mask<(int)0>(float *)", 70, WIDE), ("void mask<(int)1>(float *)", 70, WIDE)),
    "other grids": launched(("scale(float *)", 70, WIDE), ("bias(float *)", 70, "1024x2x1")),
    "a much longer kernel": launched(("scale(float *)", 20, WIDE), ("bias(float *)", 900, WIDE)),
    "one kernel, again": launched(("gain(const float *, float *)", 70, WIDE)) * 4,
    "another stream between": [*launched(("scale(float *)", 70, WIDE)), ("launch", "other", 5 * US, 20, "1x1x1"),
                               *launched(("bias(float *)", 70, WIDE)), ("sync",)],
    "names that tell nothing": launched(("relax(float *)", 70, WIDE), ("advect(float *)", 70, WIDE)),
    "kernels that STREAM times": launched(*[(f"{name}(double *, const double *)", 70, WIDE) for name in ("Scale", "Add", "Triad")]),
    "passes of a library": launched(("void scale_fft<1024>(a)", 70, WIDE), ("void mask_fft<512>(a)", 70, WIDE)),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_own_kernels_of_one_grid_are_fused(name: str) -> None:
    first = claims_on([*WARM_UP, *spaced(3, CHAINS[name], 1) * 14])[0]
    assert first.kind == "fuse"
    assert first.saves_frac is not None
    assert 0.2 < (first.saves_frac.low or 0) < 0.5


@pytest.mark.parametrize("name", NO_CHAINS)
def test_other_own_kernels_are_no_chain(name: str) -> None:
    assert "fuse" not in {one.kind for one in claims_on([*WARM_UP, *spaced(3, NO_CHAINS[name], 1) * 14])}


@pytest.mark.parametrize(("us", "grid", "fuses"), [(200, WIDE, True), (5_000, WIDE, False), (5_000, "264x1x1", True)])
def test_a_kernel_that_memory_does_not_limit_wins_nothing_in_a_chain(us: int, grid: str, fuses: bool) -> None:
    """In 5 ms, memory moves 5.7 kB for each of 4 million threads; few threads may go through many elements."""
    step = launched(("scale(float *)", us, grid), ("clip(float *)", us, grid))
    found = savers.answers(Machine([*WARM_UP, *step * 14]).capture(), device=find_device("NVIDIA H200"))[0].savers
    assert ("fuse" in {one.proposal.kind for one in found}) is fuses


TYPES = {
    "sums in FP64": ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<double, at::native::MeanOps<double, double>>>(T3)", 0.2),
    "a transform in FP64": ("void vector_fft<1024u, 8u, 2u, (padding_t)1, (twiddle_t)0, (loadstore_modifier_t)2, unsigned int, double>(a)", 0.2),
    "attention in FP32": ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)", 0.4),
    "a table in FP32": ("void at::native::EmbeddingBag_updateOutputKernel_sum_mean<float, long>(const T2 *)", 0.2),
    "matrices of a decoder in FP32": ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4>(T13)", 0.2),
}  # fmt: skip
NARROW = {
    "sums in FP32": "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>>>(T3)",
    "a transform in FP32": "void vector_fft<1024u, 8u, 2u, (padding_t)1, (twiddle_t)0, (loadstore_modifier_t)2, unsigned int, float>(a)",
    "products in FP64, which tensor cores take": "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x128x32_cublas",
    "attention in 16 bits": "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>(Params)",
    "a table in 16 bits": "void at::native::EmbeddingBag_updateOutputKernel_sum_mean<c10::Half, long>(const T2 *)",
    "matrices of a decoder in 16 bits": "void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4>(T13)",
    "an optimiser with a rate in FP64": "void at::native::multi_tensor_apply_kernel<FusedSgdMathFunctor<double, 2>, double, double>(T1)",
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_wide_types_in_names_are_seen(name: str) -> None:
    kernel, least = TYPES[name]
    first = claims_on([*WARM_UP, *spaced(3, launched((kernel, 400, WIDE)), 4) * 14])[0]
    assert first.kind == ("memory_roof" if "table" in name else "precision")
    assert first.saves_frac is not None
    assert (first.saves_frac.low or 0) > least


@pytest.mark.parametrize("name", NARROW)
def test_narrow_types_are_left_alone(name: str) -> None:
    found = claims_on([*WARM_UP, *spaced(3, launched((NARROW[name], 400, WIDE)), 4) * 14])
    assert "precision" not in {one.kind for one in found}


SUM = "void cub::DeviceReduceKernel<Policy, {0} *, {0}>({0} const *)"


@pytest.mark.parametrize(("kernel", "of", "wide"), [("series", "double", True), ("series", "float", False), ("series(float *)", "double", False), ("sm90_xmma_gemm_f64f64_f64f64_f64_nn_n", "double", False)])  # fmt: skip
def test_a_kernel_without_a_signature_has_the_type_of_the_one_after_it(kernel: str, of: str, *, wide: bool) -> None:
    found = claims_on([*WARM_UP, *spaced(3, launched((kernel, 400, WIDE), (SUM.format(of), 9, WIDE)), 4) * 14])
    assert [one.subject for one in found if one.kind == "precision"] == ["series"] * wide


def test_a_cast_may_take_what_works_on_its_result_with_it() -> None:
    cast = ("void at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda, LoadWithCast<1>>(int)", 200, WIDE)
    scaled = ("void at::native::vectorized_elementwise_kernel<4, MulFunctor<float>>(int)", 190, WIDE)
    highs = []
    for kernels in ((cast, ("work", 190, WIDE)), (cast, scaled)):
        first = claims_on([*WARM_UP, *spaced(3, launched(*kernels, ("gemm_tensorop", 100, WIDE)), 4) * 14])[0]
        assert first.kind == "repeated_casts"
        assert first.saves_frac is not None
        highs.append(first.saves_frac.high or 0.0)
    assert highs[0] < 0.7 < highs[1]


def test_kernels_of_several_steps_may_run_beside_each_other() -> None:
    first = claims_on([*WARM_UP, *spaced(3, launched(("filter(float *)", 500, "2x1x1")), 4) * 40])[0]
    assert first.kind == "serial_streams"
    assert first.saves_frac is not None
    assert (first.saves_frac.high or 0.0) > 0.9


@pytest.mark.parametrize(("other", "kind"), [(70, "small_grid"), (400, "serial_streams")])
def test_a_block_that_takes_most_of_the_step_needs_more_blocks(other: int, kind: str) -> None:
    """CuPy sums over the first axis in one block, and counts in two blocks beside it at best."""
    few = [("launch", "cupy_sum", 700_000, 7, "1x1x1"), ("launch", "cupy_count", other * 1_000, 7, "2x1x1")]
    rest = launched(("cupy_argmin", 30, WIDE), ("cupy_argmin", 30, WIDE))
    first = claims_on([*WARM_UP, *[*few, *rest] * 14])[0]
    assert first.kind == kind
    assert ("CUPY_ACCELERATORS=cub" in first.do) is (kind == "small_grid")


COMPILED = {
    "triton_poi_fused__to_copy_mm_t_3": "repeated_casts",
    "loop_convert_fusion_2": "repeated_casts",
    "triton_poi_fused_permute_view_1": "layout",
    "loop_transpose_fusion": "layout",
    "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0": None,
    "triton_poi_fused__to_copy_add_24": None,
    "triton_poi_fused_add_clone_mul_transpose_7": None,
    "loop_add_convert_fusion": None,
    "input_multiply_transpose_fusion": None,
}


@pytest.mark.parametrize("name", COMPILED)
def test_a_fused_kernel_that_also_computes_is_neither_cast_nor_copy(name: str) -> None:
    found = claims_on([*WARM_UP, *spaced(3, launched((name, 400, WIDE), ("other", 900, WIDE)), 4) * 14])
    moves = {one.kind for one in found} & {"repeated_casts", "layout", "redundant_copy"}
    assert moves == ({COMPILED[name]} if COMPILED[name] else set())


ROUND = spaced(
    5, [a for i in range(8) for a in (("work", 5 * US), *launched((f"part{i}(float *)", 40, f"{600 + i}x8x1")))], 1
)
STOPS: dict[str, list[Action]] = {
    "lists neighbours": [*ROUND * 10, ("d2h", "x", 9 * US, 7, 9216), ("work", 30_000 * US), ("h2d", "x", 60 * US, 7, 393_216)],
    "logs": [*ROUND * 25, ("read", "x", 50 * US, 7, 1 << 20), ("sync",), ("work", 12_000 * US)],
}  # fmt: skip


@pytest.mark.parametrize("name", STOPS)
@pytest.mark.parametrize("times", [3, 6])
def test_work_of_the_host_after_many_rounds_is_a_pause(name: str, times: int) -> None:
    assert claims_on([*WARM_UP, *STOPS[name] * times])[0].kind == "pause"
