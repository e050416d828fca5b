"""Measure report.html in headless Chromium on captures of 10,000 kernels, 100,000 and 1,000,000 launches.

    python -m tests.bench.page [--update]    # --update writes tests/bench/page.csv

Chromium's own clock measures the first paint, from a file on disk. The time of an interaction is from the event to the
end of the next frame, the median of three. It counts processor time of the page's main thread, so other load does not
matter. The goals are a reader's: the page appears at once, and it answers without a noticeable delay.
`tests/browser/test_speed.py` allows three times as much, on whatever machine it runs.
"""

import argparse
import csv
import gzip
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis import pipeline
from analysis.capture.model import COUNTERS_COLUMNS, GPU_OPS_COLUMNS, RANGES_COLUMNS, Capture, as_table, nest_ranges
from analysis.page.html import page_data, render_html, script
from analysis.tables.lanes import lanes_of
from tests.committed import folder as folder_of

KERNELS, COPIES = 10_000, 10  # each with counters; so many times the tables of a tenth of them
FEW, LAUNCHES, MANY = 500, 100_000, 1_000_000  # kernels of timelines, and their lengths
FIRST_PAINT_MS, INTERACTION_MS = 500, 100
USABLE_MS, MANY_BYTES = 1500, 8_000_000
PAGE_BYTES, SCRIPT_BYTES, SCRIPT_GZIP_BYTES = 1_200_000, 150_000, 60_000
OUT = Path("tests/bench/page.csv")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
_ARITHMETIC = ("fadd", "fmul", "dadd", "dmul", "dfma", "hadd", "hmul", "hfma")
_PARTS = ("attn/qkv", "attn/softmax", "mlp/fc", "mlp/proj")
_STALLS = ("long_scoreboard", "short_scoreboard", "wait", "barrier", "not_selected", "math_pipe_throttle")


def capture(
    kernels: int = FEW, launches: int = LAUNCHES, *, counted: bool = True, steps: int = 20, layers: int = 48
) -> Capture:  # fmt: skip
    """Return a capture with so many different kernels and launches, in steps of layers; it is always the same."""
    random = np.random.default_rng(7)
    gap = 3000
    duration = random.lognormal(8.5, 1.2, launches).astype(np.int64) + 800
    start = np.cumsum(duration + random.integers(200, gap, launches))
    call = np.arange(launches, dtype=np.int64) * 1000
    name = np.arange(launches) % kernels
    names = np.array(
        [f"void layer_{i % 97}::kernel_{i}<float, {i % 7}>(float *)" for i in range(kernels)], dtype=object
    )
    columns = {
        "start_ns": start, "duration_ns": duration, "kind": np.full(launches, "kernel", object), "name": names[name],
        "grid": np.full(launches, "128x1x1", object), "block": np.full(launches, "256x1x1", object),
        "registers": np.full(launches, 64), "stream": 7 + np.arange(launches) % 3,
        "device": np.full(launches, "NVIDIA H200 (0)", object), "api_start_ns": call, "api_end_ns": call + 500,
        "pid": np.ones(launches, np.int64), "tid": np.ones(launches, np.int64), "correlation_id": np.arange(launches),
    }  # fmt: skip
    ranges = _ranges(launches, steps, layers)
    counters = _counters(names, ranges, name) if counted else as_table({"ncu_id": []}, COUNTERS_COLUMNS)
    return Capture(
        gpu_ops=as_table(columns, GPU_OPS_COLUMNS),
        ranges=ranges,
        counters=counters,
        counter_units={name: unit for name, (unit, _) in _METRICS.items()} if counted else {},
    )


# metric -> its unit, and the mean of its logarithm; None: it is 0
_METRICS: dict[str, tuple[str, float | None]] = {
    "gpu__time_duration.sum": ("ns", 9.0), "dram__bytes_read.sum": ("byte", 15.5), "dram__bytes_write.sum": ("byte", 15.0),
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": ("inst", 17.0), "smsp__inst_issued.sum": ("inst", 13.0),
    **{f"smsp__sass_thread_inst_executed_op_{one}_pred_on.sum": ("inst", 10.0) for one in _ARITHMETIC},
    "sm__inst_executed_pipe_tensor.sum": ("inst", None),
    **{f"smsp__average_warps_issue_stalled_{one}_per_issue_active.ratio": ("ratio", 0.5) for one in _STALLS},
}  # fmt: skip


def _ranges(launches: int, steps: int, layers: int) -> pd.DataFrame:
    """Return the ranges around the calls: steps, layers, and parts with equal numbers of launches."""
    rows: list[tuple[int, int, str]] = []
    parts = steps * layers * len(_PARTS)
    edges = np.linspace(0, launches, parts + 1).astype(np.int64) * 1000
    for step in range(steps):
        low = step * layers * len(_PARTS)
        rows.append((int(edges[low]), int(edges[low + layers * len(_PARTS)]), "step"))
        for layer in range(layers):
            at = low + layer * len(_PARTS)
            rows.append((int(edges[at]), int(edges[at + len(_PARTS)]), f"h.{layer}"))
            rows += [(int(edges[at + i]), int(edges[at + i + 1]), part) for i, part in enumerate(_PARTS)]
    found = pd.DataFrame(rows, columns=["start_ns", "end_ns", "name"])
    return nest_ranges(found.assign(range_id=np.arange(len(found)), pid=1, tid=1)).astype(dict(RANGES_COLUMNS))


def _counters(names: np.ndarray, ranges: pd.DataFrame, kernel: np.ndarray) -> pd.DataFrame:
    """Return a row of ncu for every launch: kernels differ, and the launches of one kernel hardly do."""
    random, count = np.random.default_rng(11), len(kernel)
    leaf = ranges[~ranges["range_id"].isin(ranges["parent_id"])].sort_values("start_ns")
    place = np.searchsorted(leaf["start_ns"].to_numpy(), np.arange(count) * 1000, side="right") - 1
    rows: dict[str, Any] = {
        "ncu_id": np.arange(count), "file": "ncu.csv", "pid": 1, "name": names[kernel], "grid": "128x1x1",
        "block": "256x1x1", "device": "NVIDIA H200", "cc": "9.0", "path": leaf["path"].to_numpy(object)[place],
    }  # fmt: skip
    for name, (_, mean) in _METRICS.items():
        rows[name] = 0.0 if mean is None else random.lognormal(mean, 1, len(names))[kernel]
    return pd.DataFrame(rows).astype({"file": "str", "pid": "Int64"})


def page(of: Capture, copies: int = 1) -> str:
    """Return report.html of a capture, without figures; it holds every kernel `copies` times, under different names."""
    made = pipeline.analyse(of)
    tables = {name: _copied(table, copies) for name, table in made.tables.items()}
    return render_html(made.report, tables, {}, page_data(made.report, tables, lanes_of(made.facts)))


def _copied(table: pd.DataFrame, copies: int) -> pd.DataFrame:
    """Return the rows: those without a kernel once, those of kernels `copies` times."""
    if copies == 1 or "kernel" not in table or "lane" in table:
        return table
    of_kernel = table["kernel"].notna()
    named = table[of_kernel]
    more = [named.assign(kernel=named["kernel"].map(lambda name, i=i: f"{name}::copy_{i}")) for i in range(copies)]
    return pd.concat([table[~of_kernel], *more], ignore_index=True)


def page_of_kernels() -> str:
    """Return the page of KERNELS kernels."""
    return page(capture(KERNELS // COPIES, KERNELS // COPIES), COPIES)


# The interactions that the script below runs in an open page: each is an expression.
INTERACTIONS = {
    "zoom into a step": "$('.part.is-step, .part.is-range').click()",
    "zoom out": "$('.crumbs button').click()",
    "filter the kernels": "type($('[data-filter=kernels]'), 'kernel_99')",
    "clear the filter": "type($('[data-filter=kernels]'), '')",
    "sort the kernels": "$('table[data-table=kernels] th:nth-child(6)').click()",
    "search": "type($('#search'), 'kernel_77')",
    "open a kernel": "(location.hash = 'kernel=' + encodeURIComponent($('.name[data-kernel]').dataset.kernel))",
    "next kernel": "document.dispatchEvent(new KeyboardEvent('keydown', { key: 'n', bubbles: true }))",
    "leave the kernel": "(location.hash = 'top')",
    "roofline at L2 or DRAM": "($('[data-live=roofline] select') ?? document.body).dispatchEvent(new Event('change'))",
    "zoom the timeline": "label('Zoom in').click()",
    "whole timeline": "label('Show the whole timeline').click()",
    "copy a table": "$('#kernels [data-copy=table]').click()",
}
_HELPERS = """
  const label = (text) => document.querySelector(`[aria-label="${text}"]`);
  const $ = (selector) => document.querySelector(selector);
  const type = (field, text) => { field.value = text; field.dispatchEvent(new Event('input')); };
"""


def timed(tab: Any, clock: Any, act: str) -> float:
    """Return the processor time of the page's main thread in ms, from an event to the end of the next frame."""
    before = _thread_ms(clock)
    tab.evaluate(
        f"""async () => {{ {_HELPERS}
              const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
              await frame();
              {act};
              document.body.offsetHeight;
              await frame(); }}"""
    )
    return _thread_ms(clock) - before


def _thread_ms(clock: Any) -> float:
    """Return the processor time of a page's main thread so far, in ms."""
    metrics = clock.send("Performance.getMetrics")["metrics"]
    return 1000 * float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_DRAWN = "performance.now()"  # layers and timeline are drawn once the page has loaded


def first_paint(chromium: Any, path: Path, repeats: int = 3, moment: str = _PAINTED) -> float:
    """Return the median time to the first contentful paint, or to another moment, in ms."""
    found = []
    for _ in range(repeats):
        context = chromium.new_context(viewport={"width": 1280, "height": 800})
        tab = context.new_page()
        tab.goto(path.resolve().as_uri())
        tab.wait_for_timeout(100 if moment == _PAINTED else 0)
        found.append(tab.evaluate(moment))
        context.close()
    return float(statistics.median(found))


def interactions(chromium: Any, path: Path, repeats: int = 3) -> Iterator[tuple[str, float]]:
    """Yield each interaction with its median time in ms."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    tab = context.new_page()
    clock = context.new_cdp_session(tab)
    clock.send("Performance.enable", {"timeDomain": "threadTicks"})
    tab.goto(path.resolve().as_uri())
    tab.wait_for_timeout(300)
    for section in ("timeline", "kernels", "roofline", "stalls"):  # all that is drawn when it is seen
        tab.evaluate("id => document.getElementById(id)?.scrollIntoView()", section)
        tab.wait_for_timeout(150)
    taken: dict[str, list[float]] = {name: [] for name in INTERACTIONS}
    for _ in range(repeats):
        for name, act in INTERACTIONS.items():
            near = {"kernel": "kernels", "table": "kernels", "roofline": "roofline", "timeline": "timeline"}
            section = next((of for word, of in near.items() if word in name), "top")
            tab.evaluate("id => document.getElementById(id)?.scrollIntoView()", section)
            tab.wait_for_timeout(60)
            taken[name].append(timed(tab, clock, act))
            tab.wait_for_timeout(30)
    context.close()
    yield from ((name, statistics.median(times)) for name, times in taken.items())


def pages() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the name of each page to measure, and the function that makes it."""
    yield "10,000 kernels", page_of_kernels
    yield "100,000 launches", lambda: page(capture(counted=False))
    yield "1,000,000 launches", lambda: page(capture(launches=MANY, counted=False))


def measure(chromium: Any, folder: Path) -> list[dict[str, Any]]:
    """Return every figure with its unit and goal."""
    rows: list[dict[str, Any]] = []

    def add(what: str, value: float, unit: str, goal: float | None) -> None:
        rows.append({"what": what, "value": round(value, 1), "unit": unit, "goal": goal})

    committed = folder_of("overview") / "report.html"
    if committed.is_file():
        add("page of the committed run", committed.stat().st_size, "byte", PAGE_BYTES)
        add("first paint, committed run", first_paint(chromium, committed), "ms", FIRST_PAINT_MS)
    add("script", len(script().encode()), "byte", SCRIPT_BYTES)
    add("script, gzip", len(gzip.compress(script().encode(), mtime=0)), "byte", SCRIPT_GZIP_BYTES)
    for label, make in pages():
        path = folder / f"{label}.html"
        start = time.perf_counter()
        path.write_text(make(), encoding="utf-8")
        add(f"tables and page of {label}", time.perf_counter() - start, "s", None)
        add(f"page of {label}", path.stat().st_size, "byte", MANY_BYTES)
        add(f"first paint, {label}", first_paint(chromium, path), "ms", FIRST_PAINT_MS)
        add(f"usable, {label}", first_paint(chromium, path, moment=_DRAWN), "ms", USABLE_MS)
        for name, value in interactions(chromium, path):
            add(f"{name}, {label}", value, "ms", INTERACTION_MS)
    return rows


def main() -> int:
    """Print the figures. Return 1 if one misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help=f"write {OUT}")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started, tempfile.TemporaryDirectory() as folder:
        chromium = started.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        rows = measure(chromium, Path(folder))
        version = chromium.version
        chromium.close()
    for row in rows:
        missed = row["goal"] is not None and row["value"] > row["goal"]
        print(f"{row['what']:48} {row['value']:>12,} {row['unit']:4} {row['goal'] or '':>9} {'MISSED' * missed}")
    if options.update:
        OUT.parent.mkdir(parents=True, exist_ok=True)
        with OUT.open("w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, [*rows[0], "browser"], lineterminator="\n")
            writer.writeheader()
            writer.writerows({**row, "browser": f"Chromium {version}"} for row in rows)
    return int(any(row["goal"] is not None and row["value"] > row["goal"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
