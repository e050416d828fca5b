"""Engine `persistent`: one launch for many tokens, by blocks that stay on their multiprocessors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.decode import device
from kernels.decode.contract import Gpu, Sampling, Sizes, State


def refuses(sizes: Sizes, gpu: Gpu) -> str:
    """Why it does not take these sizes or this GPU, in one sentence; "" if it does."""
    return device.refuses("persistent", device.PERSISTENT_SLOTS, sizes, gpu)


def make(weights: Mapping[str, Any], sizes: Sizes, state: State, sampling: Sampling) -> device.DeviceProgram:
    """A Program whose launch decodes up to as many tokens as the cache holds."""
    return device.make(
        "persistent", "decode_run_persistent", device.PERSISTENT_SLOTS, sizes.capacity, weights, sizes, state, sampling
    )
