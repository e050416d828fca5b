"""What grids, times and names of one's own kernels tell a rule: chains that fuse, and what looks like one."""

from __future__ import annotations

import pytest

from tests.cpu.test_step_rules import WARM_UP, WIDE, claims_on, spaced
from tests.toy import US, Action

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
    "one function along two axes": launched(("blur_x(float *)", 70, WIDE), ("blur_y(float *)", 75, WIDE)),
    "variants of a template": launched(("void half<(int)0>(float *)", 70, WIDE), ("void half<(int)1>(float *)", 70, WIDE)),
    "other grids": launched(("scale(float *)", 70, WIDE), ("shift(float *)", 70, "1024x2x1")),
    "a much longer kernel": launched(("scale(float *)", 20, WIDE), ("integrate(float *)", 900, WIDE)),
    "one kernel, again": launched(("wave(const float *, float *)", 70, WIDE)) * 4,
    "another stream between": [*launched(("scale(float *)", 70, WIDE)), ("launch", "other", 5 * US, 20, "1x1x1"),
                               *launched(("shift(float *)", 70, WIDE)), ("sync",)],
    "passes of a library": launched(("void regular_fft<1024>(a)", 70, WIDE), ("void vector_fft<512>(a)", 70, WIDE)),
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
