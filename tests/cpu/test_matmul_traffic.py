"""kernels/matmul/traffic.py: strips counted by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from kernels.gpu import Gpu, modelling
from kernels.matmul.traffic import Tiling, minimum_bytes

LARGE = (4096, 4096, 4096)
STRIP = 128 * 4096 * 4  # bytes of 128 rows of `a`, or of 128 columns of `weight`
OUT = (4096 * 4096 + 4096) * 4


@pytest.fixture(autouse=True)
def gpu() -> Iterator[Gpu]:
    """What is counted by hand is counted for this GPU, whatever is at hand."""
    with modelling("NVIDIA H200") as found:
        yield found


def test_operands_that_fit_into_l2_are_read_once(gpu: Gpu) -> None:
    m, n, k = shape = (1024, 3072, 768)
    assert (m * k + k * n) * 4 < gpu.l2_bytes
    assert Tiling(16, 16).bytes(shape, "float32") == minimum_bytes(shape, "float32")


def test_going_along_a_row_every_wave_reads_all_of_the_weights() -> None:
    # 16 x 32 tiles: 132 are 8 rows and a quarter, so that the four waves touch 9, 9, 9 and 8 rows of tiles, all columns
    assert Tiling(128, 256).bytes(LARGE, "float32") == OUT + (9 + 9 + 9 + 8) * STRIP + 4 * 32 * STRIP


def test_groups_of_tile_rows_share_the_columns() -> None:
    along, grouped = Tiling(128, 256).bytes(LARGE, "float32"), Tiling(128, 256, group=16).bytes(LARGE, "float32")
    # 132 tiles of 16 rows are 8 columns and a quarter; the second wave ends with 8 rows of the second group
    assert grouped == OUT + (16 + 24 + 16 + 16) * STRIP + (9 + 9 + 9 + 8) * 2 * STRIP
    assert grouped < along


def test_the_whole_matrix_can_be_one_group() -> None:
    down, transposed = Tiling(16, 32, blocks=4, group=0), Tiling(32, 16, blocks=4)
    assert down.bytes(LARGE, "float32") == transposed.bytes(LARGE, "float32")


def test_pieces_of_k_share_nothing(gpu: Gpu) -> None:
    tiling = Tiling(128, 256, group=16, split_k=True)
    shared = 512 % gpu.multiprocessors + gpu.multiprocessors
    whole = dataclasses.replace(tiling, split_k=False)
    assert tiling.bytes(LARGE, "float32") > shared * 3 * STRIP + OUT
    # 12 x 11 tiles of 1536 x 2816 are one wave, which no piece has to fill up
    assert tiling.bytes((1536, 2816, 8192), "float32") == whole.bytes((1536, 2816, 8192), "float32")


@pytest.mark.parametrize("shape", [(1, 50257, 768), (1024, 50257, 768), (5, 3, 70000), (130, 70001, 515)])
def test_odd_sizes_are_at_least_the_minimum(shape: tuple[int, int, int]) -> None:
    for tiling in (Tiling(128, 256), Tiling(16, 16, 8, 0), Tiling(8, 128, 8), Tiling(128, 256, 1, 16, True)):
        assert tiling.bytes(shape, "float32") >= minimum_bytes(shape, "float32")


def test_what_is_copied_first_is_read_and_written_once_more() -> None:
    plain, padded = Tiling(128, 256, group=16), Tiling(128, 256, group=16, padded=True)

    def more(*shape: int) -> int:
        return padded.bytes(shape, "float32") - plain.bytes(shape, "float32")

    assert more(4096, 4096, 4096) == 0
    assert more(1024, 50257, 768) == 8 * 768 * 50257
    assert more(4096, 4096, 4095) == 8 * 4096 * 4095
    assert more(64, 64, 63) == 0  # all of it stays in L2
    in_bf16 = [tiling.bytes((1024, 50260, 768), "bfloat16") for tiling in (plain, padded)]
    assert in_bf16[1] - in_bf16[0] == 4 * 768 * 50260  # rows of 16-byte packets are multiples of 8


def test_fewer_multiprocessors_and_less_l2_change_the_bytes() -> None:
    """On a GPU of 114 multiprocessors and 50 MiB of L2, 4096 x 4096 products make other waves."""
    tiling, on_h200 = Tiling(128, 256), Tiling(128, 256).bytes(LARGE, "float32")
    with modelling("NVIDIA H100 PCIe"):
        assert tiling.bytes(LARGE, "float32") > on_h200
        assert tiling.bytes((3072, 3072, 2200), "float32") > minimum_bytes((3072, 3072, 2200), "float32")
    assert tiling.bytes((3072, 3072, 2200), "float32") == minimum_bytes((3072, 3072, 2200), "float32")
    assert tiling.bytes(LARGE, "float32") == on_h200


def test_a_gpu_without_figures_is_one_sentence() -> None:
    with (
        pytest.raises(LookupError, match=r"NVIDIA Imaginary is not in analysis/hardware/devices\.toml: add"),
        modelling("NVIDIA Imaginary"),
    ):
        pass
