"""Declare the file of nsys_scripts/bare.sh: the start and end of each NVTX range, recorded without a profiler."""

from typing import Annotated

from msgspec import Meta, Struct

from analysis.formats import place
from analysis.formats.files import CsvFile, Whole

PUSH, START = "push", "start"
# The owner of the ranges, if automatic ones were requested: the automatic ranges, or the program's own if it has any.
AUTO_ON, AUTO_OWN = "on", "own"


class BareRange(Struct):
    """One range.

    `process` and `thread` count from 0 in the order of their start. `end_ns` is blank if the range never closed.
    `style` is push (closed on its own thread, nests there) or start (may end on another thread, nests nowhere).
    """

    process: Whole
    process_rank: Whole | None
    thread: Whole
    start_ns: Whole
    end_ns: Whole | None
    style: Annotated[str, Meta(pattern=f"{PUSH}|{START}", description=f"{PUSH} or {START}")]
    name: str


BARE_RANGES = CsvFile(
    "bare_ranges", "bare_ranges.csv", BareRange, again=place.again("nsys_scripts/bare.sh"), alone=True
)
