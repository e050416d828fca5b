"""The limits for a run: `[limits]` of kernels/goals.toml. Its other goals are in ladder.json."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

import msgspec

from analysis.formats.errors import InputError

PATH = Path(__file__).resolve().parents[2] / "kernels" / "goals.toml"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The largest value of each number, or the smallest ("at least").

    `selftest_*_frac`: deviation of ncu from known bytes and operations. `counted_kernels_frac`: at least this share of
    the kernels in captured ranges has counters. `fusion_*_frac`: deviation of a fused kernel from its prediction.
    `capture_seconds`: nsys and ncu together. For the fused softmax at B 8, T 1024: `softmax_floor_frac`, at least this
    share of the floor; `softmax_fp32_time_us`, its time; `softmax_read_ratio`, DRAM bytes read over the bytes of its
    input.
    """

    selftest_bytes_frac: float
    selftest_flops_frac: float
    counted_kernels_frac: float
    softmax_floor_frac: float
    softmax_fp32_time_us: float
    softmax_read_ratio: float
    fusion_bytes_frac: float
    fusion_time_frac: float
    capture_seconds: float


@functools.cache
def limits(path: Path = PATH) -> Limits:
    """Return the limits in a file. Raises InputError, one sentence, if the file does not match the declaration."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8"))["limits"], Limits)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"kernels/{path.name} has no sound [limits] ({error}): restore it with git.") from None
