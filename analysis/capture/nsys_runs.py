"""Cut a log with the output of several runs of nsys, such as a job with a loop prints."""

import mmap
import re

from analysis.formats.report import Missing, Reason
from analysis.formats.words import count_of

_MOST_BYTES = 16 << 20  # the largest log; a larger file is an export and holds one run
# Each run of `nsys profile` prints one of the first two lines (the second until 2021), `nsys stats` the last. A pattern
# is tried at every line, so the text that its line begins with is searched for before.
_BEGINNINGS = {
    b"Generating '": re.compile(rb"^Generating '[^'\n]*?(?P<name>[^'/\\\n]+\.qdstrm)'", re.M),
    b'Saving temporary "': re.compile(rb'^Saving temporary "[^"\n]*?(?P<name>[^"/\\\n]+\.qdstrm)"', re.M),
    b"Generating SQLite file ": re.compile(rb"^Generating SQLite file (?P<name>[^\n]+?) from ", re.M),
}


def first_run(raw: bytes | mmap.mmap, where: str) -> tuple[bytes | mmap.mmap, list[Missing]]:
    """Return a log's part from its first run, with its line numbers kept, and what names the other runs."""
    if len(raw) > _MOST_BYTES:
        return raw, []
    for text, beginning in _BEGINNINGS.items():
        if raw.find(text) < 0:
            continue
        found = {match["name"]: match.start() for match in reversed(list(beginning.finditer(raw)))}
        starts = sorted(found.values())
        if len(starts) > 1:
            lines = bytes(raw[: starts[1]]).count(b"\n")
            return bytes(raw[: starts[1]]), [
                Missing(
                    Reason.OTHER_RUN,
                    f"{count_of(len(starts) - 1, 'further run')} of nsys in {where}",
                    f"the log holds the output of {len(starts)} runs; this report is of the first, up to line {lines}",
                    "cut the log before each of its lines `Generating …` and give the pieces one by one",
                )
            ]
    return raw, []
