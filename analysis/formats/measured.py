"""Declare the file of `make measure-fix`: how much a step grows when a part of it is delayed."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from analysis.formats import place
from analysis.formats.files import Amount, JsonFile, Positive, Whole

# The calls in which the host is delayed, by the cause that they are measured for.
CALLS = {
    "sync": "Synchronize",
    "allocation": "cudaMalloc|cudaFree|cudaHostAlloc|cudaMallocHost",
    "launch_bound": "^cuLaunchKernel",
}


class Intervention(StrEnum):
    """What was done to the running program."""

    DELAY = "delay"  # a kernel that waits, on the stream of a launch or a copy
    HOST = "host"  # the host waits in a call, or at the end of a range
    REMOVE = "remove"  # launches do nothing: the program's results are wrong
    VIRTUAL = "virtual"  # all others wait, as if this part were faster
    VIRTUAL_HOST = "virtual-host"  # the GPU waits while the host is in a call or range, as if that were faster


class MeasuredTarget(Struct):
    """One part of the step, and what the experiment with it showed.

    `slope` of a delay: growth of the step over the delay. Of a virtual speed-up: what the step would save of the time
    that this part saves. Of a removal: what the step saves, as a share of itself. None: not measured, `why` says why.
    """

    change: Intervention
    target: str
    within: Annotated[str, Meta(description="pattern of the ranges that it was limited to")]
    names: Annotated[list[str], Meta(description="names of launches, copies, calls or ranges that matched")]
    per_step: Annotated[Amount | None, Meta(description="delays in a step")]
    length_ns: Annotated[Amount | None, Meta(description="length of a delay")]
    step_ns: Annotated[Positive | None, Meta(description="the step with delays of length 0")]
    rounds: Whole
    slope: float | None
    low: float | None
    high: float | None
    why: str
    part_ns: Annotated[Amount | None, Meta(description="the host's time in matching calls and ranges, a step")] = None


class Measured(Struct):
    """One run of the program with interleaved delays.

    `step` is the name whose arrival ends a step, `idle_step_ns` the step without any delay.
    """

    command: str
    step: str
    idle_step_ns: Positive | None
    rank: Annotated[Whole | None, Meta(description="the one that was delayed; None: all")]
    targets: list[MeasuredTarget]


MEASURED = JsonFile(
    "measured",
    "measured.json",
    Measured,
    again=f"write it again with `{place.program('make measure-fix', 'measure-fix')}`",
)
