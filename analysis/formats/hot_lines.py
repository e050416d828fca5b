"""Declare the file of `analysis.hot_lines`: the hottest source lines of each launch."""

from msgspec import Struct

from analysis.formats.files import CsvFile, Whole


class HotLine(Struct):
    """One of the source lines of a launch with most samples; `ordinal` counts the launches of its kernel."""

    kernel: str
    ordinal: Whole
    source_file: str
    line: Whole
    text: str
    samples: Whole
    launch_samples: Whole
    stall: str
    stall_samples: Whole | None


HOT_LINES = CsvFile("ncu_lines", "ncu_lines.csv", HotLine, "make it again", captured=False)
