"""kernels/matmul/traffic.py: strips counted by hand."""

from collections.abc import Iterator

import pytest

from kernels.gpu import Gpu, modelling
from kernels.matmul.traffic import Tiling, minimum_bytes

pytestmark = pytest.mark.studies

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


def test_a_gpu_without_figures_is_one_sentence() -> None:
    with (
        pytest.raises(LookupError, match=r"NVIDIA Imaginary is not in analysis/hardware/devices\.toml: add"),
        modelling("NVIDIA Imaginary"),
    ):
        pass
