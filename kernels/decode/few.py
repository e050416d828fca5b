"""Engine `few`: four launches a layer and one for the output embedding, each starting while the one before runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.decode import device
from kernels.decode.contract import Gpu, Sampling, Sizes, State


def refuses(sizes: Sizes, gpu: Gpu) -> str:
    """Why it does not take these sizes or this GPU, in one sentence; "" if it does."""
    return device.refuses("few", device.FEW_SLOTS, sizes, gpu)


def make(weights: Mapping[str, Any], sizes: Sizes, state: State, sampling: Sampling) -> device.DeviceProgram:
    """A Program whose launches of one step the caller records in a CUDA graph."""
    return device.make("few", "decode_run_few", device.FEW_SLOTS, 1, weights, sizes, state, sampling)
