"""Engine `persistent`: one launch for many tokens, with blocks that stay on their SMs."""

from collections.abc import Mapping
from typing import Any

from kernels.decode import device
from kernels.decode.contract import Gpu, Sampling, Sizes, State


def refuses(sizes: Sizes, gpu: Gpu, *, build: bool = True) -> str:
    """Why the engine does not run these sizes on this GPU, in one sentence; "" if it does. See device.refuses."""
    return device.refuses("persistent", device.PERSISTENT_SLOTS, sizes, gpu, build=build)


def make(
    weights: Mapping[str, Any], sizes: Sizes, state: State, sampling: Sampling, stamped: int = 0
) -> device.DeviceProgram:
    """Return a Program whose launch decodes as many tokens as the cache holds. Raises: ValueError for sampling."""
    device.check_greedy("persistent", sampling)
    return device.DeviceProgram(
        device.gpu_library(), device.PERSISTENT, weights, sizes, state, slots=device.PERSISTENT_SLOTS,
        most=sizes.capacity, stamped=stamped,
    )  # fmt: skip
