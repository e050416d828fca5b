"""Hold the report to columns: more launches may not take more calls of Python, whatever their shape.

Twice as many names, ranges, streams, ranks or counted kernels take twice the calls at most.
"""

import cProfile
import csv
import io
import lzma
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis import pipeline
from analysis.capture.load import load
from analysis.capture.model import Capture
from analysis.replay.savings import step
from analysis.replay.steady import find
from tests.bench.big import SHAPES, Shape, write

COUNTED = Path("reports/h200-gpt2-fp32/captures/ncu_raw.csv.xz")
TWICE = 2.2  # calls for twice as much; a loop in a loop takes 4 times as many
SMALL, LARGE = 30_000, 60_000  # launches; beyond the windows from which steps and fusions are judged
MOST_BYTES = 400  # of Python and NumPy, for each further launch: an object for each event takes a thousand or more
MOST = 0.2  # calls for each further launch: a loop over launches in Python takes at least one, and most take several
MOST_REPLAYED = (
    40  # and for each further operation of the steps that are replayed: a few steps of each phase, however long
)
pytestmark = pytest.mark.slow


def calls_of(made: Callable[[], Any]) -> int:
    """Return the calls of Python's and of C's functions in this thread."""
    counting = cProfile.Profile()
    counting.runcall(made)
    return sum(function.callcount for function in counting.getstats())


# The others have ranges, with which the replay takes more proposals.
@pytest.mark.parametrize("shape", ["plain CSV", "elementwise CSV", "one name"])
def test_the_work_for_a_further_launch_is_columns(shape: str, tmp_path: Path) -> None:
    counts, replayed = [], []
    for size in (1000, SMALL, LARGE):  # the first run fills caches
        folder = tmp_path / str(size)
        folder.mkdir()
        write(SHAPES[shape], size, folder)
        read: list[Capture] = []  # by the work that is counted, and used again

        def work(folder: Path = folder, read: list[Capture] = read) -> None:
            read.append(load([folder]))
            pipeline.analyse(read[0])

        counts.append(calls_of(work))
        [capture] = read
        replayed.append(sum(len(step(capture, phase).graph.o_duration) for phase in find(capture).phases))
    of_steps = MOST_REPLAYED * max(replayed[2] - replayed[1], 0)
    assert counts[2] - counts[1] < MOST * (LARGE - SMALL) + of_steps


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


@pytest.mark.parametrize(
    ("mix", "once"),
    [("names", 500), ("around", 50), ("streams", 32), ("processes", 32)],
)
def test_twice_as_much_takes_twice_the_calls(mix: str, once: int, tmp_path: Path) -> None:
    counts = []
    for number, launches in ((8, 500), (once, 1000), (2 * once, 1000)):  # the first run fills caches
        folder = tmp_path / str(number)
        folder.mkdir()
        many: Any = tuple(range(7, 7 + number)) if mix == "streams" else number
        write(Shape("capture.sqlite", {mix: many, "least_chars": 300}), launches, folder)
        counts.append(calls_of(lambda folder=folder: pipeline.analyse(load([folder]))))
    assert counts[2] / counts[1] < TWICE


def test_twice_as_many_counted_kernels_take_twice_the_calls(tmp_path: Path) -> None:
    head, units, *rows = csv.reader(io.StringIO(lzma.decompress(COUNTED.read_bytes()).decode()))
    number, name = head.index("ID"), head.index("Kernel Name")
    counts = []
    for kernels in (100, 500, 1000):
        file = tmp_path / f"{kernels}.csv"
        with file.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
            writer.writerows([head, units])
            for at in range(kernels):
                row = rows[at % len(rows)].copy()
                row[number], row[name] = str(at), f"kernel_{at}"
                writer.writerow(row)
        counts.append(calls_of(lambda file=file: pipeline.analyse(load([file]))))
    assert counts[2] / counts[1] < TWICE


def test_matplotlib_is_left_to_the_process_that_draws() -> None:
    code = "import sys, analysis.api, analysis.pipeline; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
