"""Hold the report to columns: more launches may not take more calls of Python, whatever their shape."""

import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis import pipeline
from analysis.capture.load import load
from tests.bench.big import SHAPES, write

SMALL, LARGE = 30_000, 60_000  # launches; beyond the windows from which steps and fusions are judged
MOST_BYTES = 400  # of Python and NumPy, for each further launch: an object for each event takes a thousand or more
MOST = 0.2  # calls for each further launch: a loop over launches in Python takes at least one, and most take several
pytestmark = pytest.mark.slow


def calls_of(made: Callable[[], Any]) -> int:
    """Return the calls of Python's and of C's functions in this thread."""
    count = 0

    def tell(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tell)
    try:
        made()
    finally:
        sys.setprofile(None)
    return count


# The others have ranges, with which the replay takes more proposals.
@pytest.mark.parametrize("shape", ["plain CSV", "elementwise CSV", "one name"])
def test_the_work_for_a_further_launch_is_columns(shape: str, tmp_path: Path) -> None:
    counts = []
    for size in (1000, SMALL, LARGE):  # the first run fills caches
        folder = tmp_path / str(size)
        folder.mkdir()
        write(SHAPES[shape], size, folder)
        counts.append(calls_of(lambda folder=folder: pipeline.analyse(load([folder]))))
    assert (counts[2] - counts[1]) / (LARGE - SMALL) < MOST


def test_a_loop_over_launches_would_be_seen() -> None:
    assert calls_of(lambda: [abs(one) for one in range(LARGE)]) > LARGE * MOST


@pytest.mark.parametrize("shape", ["ranges", "plain CSV", "torch trace"])
def test_a_further_launch_takes_few_bytes_to_read(shape: str, tmp_path: Path) -> None:
    peaks = []
    for size in (SMALL, LARGE):
        folder = tmp_path / str(size)
        folder.mkdir()
        write(SHAPES[shape], size, folder)
        tracemalloc.start()
        load([folder])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert 0 < (peaks[1] - peaks[0]) / (LARGE - SMALL) < MOST_BYTES
