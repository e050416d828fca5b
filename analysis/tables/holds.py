"""Handle captures with a deliberately held GPU, so that a step's kernels run without waiting for launches."""

from dataclasses import replace

import numpy as np

from analysis.capture.model import Capture
from analysis.tables import attribution

HOLD = "hold"  # the range of the kernel that occupies the GPU during the launches of a step


def is_held(capture: Capture) -> bool:
    """Return whether this capture holds the GPU, as the layer profiler does."""
    return capture.layer_events is not None and bool((capture.ranges["name"] == HOLD).any())


def without_holds(capture: Capture) -> Capture:
    """Return the capture without the kernels that hold the GPU, their ranges and nsys' sums of them.

    A capture without ranges of this name stays unchanged.
    """
    if not is_held(capture):
        return capture
    ranges = capture.ranges.reset_index(drop=True)
    held = (ranges["name"] == HOLD).to_numpy(bool)
    gpu_ops = capture.gpu_ops.reset_index(drop=True)
    owner = attribution.attribute(gpu_ops, ranges).to_numpy(np.int64)
    is_hold = (owner >= 0) & held[np.maximum(owner, 0)]
    sums, kernels = capture.nsys_range_sums, capture.nsys_kernel_sums
    names = set(gpu_ops.loc[is_hold, "name"].astype(str))
    return replace(
        capture,
        gpu_ops=gpu_ops[~is_hold].reset_index(drop=True),
        ranges=ranges[~held].reset_index(drop=True),
        nsys_range_sums=sums[sums["name"] != HOLD].reset_index(drop=True),
        nsys_kernel_sums=kernels[~kernels["kernel"].astype(str).isin(names)].reset_index(drop=True),
    )
