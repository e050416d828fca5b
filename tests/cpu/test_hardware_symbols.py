"""One kernel, one key, whichever tool and version printed its name."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.formats import symbols

NAMES = Path(__file__).parent / "data" / "kernel_names.csv"
PAIRS = list(csv.DictReader(NAMES.read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("pair", PAIRS, ids=range(len(PAIRS)))
def test_nsys_and_ncu_agree_on_a_real_program(pair: dict[str, str]) -> None:
    assert symbols.key(pair["nsys"]) == symbols.key(pair["ncu"])


def test_different_kernels_of_a_real_program_stay_apart() -> None:
    assert len({symbols.key(pair["nsys"]) for pair in PAIRS}) == len(PAIRS)


@pytest.mark.parametrize(
    ("name", "key", "base"),
    [
        ("void gmem_coalesce<(int)32>(const float *, float *)", "gmem_coalesce<32>", "gmem_coalesce"),
        ("kernel<(bool)0, (int)7>", "kernel<0, 7>", "kernel"),
        ("kernel<false, 7u>(int)", "kernel<0, 7>", "kernel"),
        ("kernel<true>(int)", "kernel<1>", "kernel"),
        ("unnamed>::saxpy_kernel(float, float *)", "saxpy_kernel", "saxpy_kernel"),
        ("void unnamed>::gemm_tiled_kernel<32>(float *)", "gemm_tiled_kernel<32>", "gemm_tiled_kernel"),
        ("void <unnamed>::w13_kernel<4, 1>(int)", "w13_kernel<4, 1>", "w13_kernel"),
        ("void (anonymous namespace)::k<4>(int)", "k<4>", "k"),
        (
            "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, (bool)0>(T13)",
            "gemvx::kernel<int, 0>",
            "kernel",
        ),
        ("triton_poi_fused__softmax_0", "triton_poi_fused__softmax_0", "triton_poi_fused__softmax_0"),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", None),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64>(T1::Params)",
            "cutlass::Kernel2<cutlass_80_simt_sgemm_64x64>",
            "Kernel2",
        ),
        ("sigma_gpp_gpu_29", "sigma_gpp_gpu_29", "sigma_gpp_gpu_29"),
        ("softmax_v03(float const*, float*, int)", "softmax_v03", "softmax_v03"),
        (
            "copy_blocked[v1,cw51cXTLSUwv1s](Array<long long, 1, C, mutable, aligned>)",
            "copy_blocked[v1, cw51cXTLSUwv1s]",
            "copy_blocked[v1, cw51cXTLSUwv1s]",
        ),
        ("void f<lambda>(int)", "f<lambda>", "f"),
        ("[CUDA memcpy Host-to-Device]", "[CUDA memcpy Host-to-Device]", None),
        ("", "", ""),
    ],
)
def test_keys_and_bases(name: str, key: str, base: str | None) -> None:
    assert symbols.key(name) == key
    if base is not None:
        assert symbols.base(name) == base


def test_lambdas_of_both_compilers_agree() -> None:
    one = "void at::native::f<(int)4, g(at::Tensor &)::{lambda(float)#2}>(int)"
    other = "void at::f<4, g(at::Tensor &)::[lambda(float) (instance 2)]>(int)"
    assert symbols.key(one) == symbols.key(other)


def test_a_call_operator_is_no_parameter_list() -> None:
    assert symbols.key("void run<A>(int)::operator ()() const") == symbols.key("void run<A>(int)::operator()() const")


@pytest.mark.parametrize("pair", PAIRS, ids=range(len(PAIRS)))
def test_keys_are_stable_and_short_names_short(pair: dict[str, str]) -> None:
    for name in pair.values():
        assert symbols.key(symbols.key(name)) == symbols.key(name)
        for width in (8, 24, 48):
            assert 0 < len(symbols.short(name, width)) <= width


def test_short_names_say_what_is_wrapped() -> None:
    short = {symbols.short(pair["ncu"], 60) for pair in PAIRS}
    assert "cutlass_80_simt_sgemm_64x64_8x5_nn_align1" in short
    assert "elementwise_kernel<direct_copy_kernel_cuda>" in short
    assert symbols.short("void internal::gemvx::kernel<int, int>(T1)") == "gemvx::kernel"


@given(st.text("abcT12<>()[]{}:, *&~@-", max_size=40))
def test_no_name_breaks_the_normaliser(name: str) -> None:
    assert isinstance(symbols.key(name), str)
    assert isinstance(symbols.base(name), str)
    assert len(symbols.short(name, 20)) <= 20


def test_tools_that_disagree_on_namespaces_still_match() -> None:
    nsys = "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, (bool)0, ns::Params<int>>(T13)"
    ncu = "std::enable_if<!T7, void>::type internal::kernel<int, 0, Params<int>>(T13)"
    assert symbols.match_key(nsys) == symbols.match_key(ncu) == "kernel<int, 0, Params<int>>"
    assert symbols.match_key("a::k<b::X>") != symbols.match_key("a::k<b::Y>")


@pytest.mark.parametrize("cut", ["...", "…"])
@pytest.mark.parametrize(
    ("name", "function", "pattern"),
    [
        (
            "void vec::detail::spread_kernel<(int)128, vec::(anonymous namespace)::Half(",
            "spread_kernel",
            "^spread_kernel$",
        ),
        ("void spread_kernel<float, (int)4>(const floa", "spread_kernel", "^spread_kernel$"),
        ("spread_and_gather_over_row", "spread_and_gather_over_row", "^spread_and_gather_over_row"),
        ("void vec::spread_and_gath", "spread_and_gath", "^spread_and_gath"),
    ],
)
def test_a_name_that_a_console_cut_keeps_its_function(name: str, function: str, pattern: str, cut: str) -> None:
    assert symbols.base(name + cut).removesuffix(cut) == function
    assert symbols.pattern(name + cut, 200) == pattern
    assert symbols.short(name + cut).startswith(function)


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(T1::Params)", 1),
        ("cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x6_tn_align2", 2),
        ("cutlass_80_wmma_tensorop_s161616gemm_f16_16x16_32x1_tn_align2", 2),
        ("cutlass_80_tensorop_h16816gemm_128x256_32x3_tn_align4", 4),
        ("cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align1", 1),
        (
            "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x16_aligna2_alignc8",
            2,
        ),
        ("ampere_fp16_s1688gemm_fp16_128x128_ldg1_f2f_stages_32x1_nn", 1),
        ("cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x256_32x3_nn_align8", 0),
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_tensor16x8x16_aligna8_alignc4", 0),
        ("ampere_fp16_s1688gemm_fp16_128x128_ldg8_f2f_stages_32x1_nn", 0),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", 0),
        ("cutlass_80_tensorop_s1688bf16gemm_128x128_16x3_nn_align4", 0),
        ("cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1", 0),
        ("cutlass_80_simt_sgemm_128x256_8x4_tn_align1", 0),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", 0),
    ],
)
def test_names_of_products_tell_the_alignment_of_operands(name: str, elements: int) -> None:
    multiple = 4 if "s1688gemm_64x64" in name else 8
    assert symbols.odd_operands(name) == ((elements, multiple) if elements else None)


def test_a_pattern_of_a_whole_or_a_long_name() -> None:
    assert symbols.pattern("void a::scan<int>(int *)", 200) == "^scan$"
    assert symbols.pattern("scan_" * 50, 200) == "^" + "scan_" * 40


@pytest.mark.parametrize(
    ("name", "closed"),
    [
        ("sgemm_naive(int, int, float*)", False), ("my_gemm", False), ("gemv_v02_warp", False), ("matmul_tiled", False),
        ("ampere_sgemm_128x64_tn", True), ("void gemvNSP_kernel<float, 1>", True), ("sgemm_largek_lds64", True),
        ("void gemv2T_kernel_val<int, float>", True), ("implicit_convolve_sgemm", True), ("gemm_fusion_dot_48", True),
    ],
)  # fmt: skip
def test_a_product_is_a_library_s_by_the_library_s_names_alone(name: str, closed: bool) -> None:
    assert symbols.is_closed(name) == closed
