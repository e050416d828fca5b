"""Hold the report to columns: twice as many launches may not take twice as many calls of Python."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import analysis
from analysis import pipeline
from analysis.capture.load import load
from tests.bench.big import SHAPES, write

SMALL, LARGE = 30_000, 60_000  # launches; beyond the windows from which steps and fusions are judged
# Lines of our code for each further launch: a loop over launches in Python runs one or more.
MOST = 0.2
OF_AN_EVENT = 80  # the same of a torch trace: each event of its JSON is an object of Python, still
BOUNDED = (
    "/replay/simulate.py",
    "/replay/changes.py",
)  # they replay a window of a few steps, whatever the capture's size
FOLDER = str(Path(analysis.__file__).parent)
pytestmark = pytest.mark.slow


def lines_of(made: Callable[[], Any], folder: str = FOLDER) -> Counter[str]:
    """Return how many lines of the analysis this thread ran, by function; each turn of a comprehension is one."""
    count: Counter[str] = Counter()

    def tell(frame: Any, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(folder):
            return None
        count[f"{frame.f_code.co_filename.removeprefix(folder)}: {frame.f_code.co_qualname}"] += event == "line"
        return tell

    sys.settrace(tell)
    try:
        made()
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("shape", ["ranges", "plain CSV", "one name", "torch trace"])
def test_the_work_for_a_further_launch_is_columns(shape: str, tmp_path: Path) -> None:
    counts = []
    for size in (1000, SMALL, LARGE):  # the first run fills caches
        folder = tmp_path / str(size)
        folder.mkdir()
        write(SHAPES[shape], size, folder)
        counts.append(lines_of(lambda folder=folder: pipeline.analyse(load([folder]))))
    further = counts[2]
    further.subtract(counts[1])
    lines = sum(count for name, count in further.items() if not name.startswith(BOUNDED))
    most = OF_AN_EVENT if shape == "torch trace" else MOST
    assert lines / (LARGE - SMALL) < most, further.most_common(5)


def test_a_loop_over_launches_would_be_seen() -> None:
    here = str(Path(__file__).parent)
    assert lines_of(lambda: [one for one in range(LARGE)], here).total() > LARGE * MOST  # noqa: C416
