"""Engine `few`: two launches per layer and one for the output embedding. Each runs beside the one before it."""

from collections.abc import Mapping
from typing import Any

from kernels.decode import device
from kernels.decode.contract import Gpu, Sampling, Sizes, State


def refuses(sizes: Sizes, gpu: Gpu, *, build: bool = True) -> str:
    """Why the engine does not run these sizes on this GPU, in one sentence; "" if it does. See device.refuses."""
    return device.refuses("few", device.FEW_SLOTS, sizes, gpu, build=build)


def make(
    weights: Mapping[str, Any], sizes: Sizes, state: State, sampling: Sampling, stamped: int = 0
) -> device.DeviceProgram:
    """Return a Program whose launches of one step the caller records in a CUDA graph: nsys sees them, so no stamps.

    Raises: ValueError for sampling.
    """
    device.check_greedy("few", sampling)
    return device.DeviceProgram(device.gpu_library(), device.FEW, weights, sizes, state, slots=device.FEW_SLOTS, most=1)
