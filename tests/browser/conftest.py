"""Provide a headless Chromium and pages of every kind of capture. An error of a page's script fails the test.

Without Playwright or Chromium the tests are skipped and counted.
"""

import functools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import pipeline
from analysis.capture.load import load
from analysis.capture.model import Capture
from analysis.page import comparison
from analysis.page import fleet as fleet_page
from analysis.page.fleet import Answer
from analysis.page.html import page_data, render_html
from analysis.tables.lanes import lanes_of
from tests import committed
from tests.browser.chromium import started
from tests.declared import DECLARED
from tests.fuzz.seeds import seeds

ROOT = Path(__file__).resolve().parents[2]
SIZE = {"width": 1280, "height": 800}


@functools.cache
def browser_missing() -> str:
    """Return why no browser can run here; "" if one can."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "playwright is not installed (pip install -e '.[browser]')"
    return "" if shutil.which("chromium") else "there is no chromium on PATH"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("browser"))
            if browser_missing() and "browser" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason=f"browser test: {browser_missing()}"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One Chromium for all tests."""
    with started() as chromium:
        yield chromium


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a file in a fresh context; a script error, a refused resource or a request to the network fails the test."""
    contexts, errors = [], []

    def open_page(path: Path, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": SIZE, "reduced_motion": "reduce", "locale": "en-US", **options})
        contexts.append(context)
        context.set_default_timeout(5000)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
        page.on("dialog", lambda dialog: (errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(("file:", "data:", "blob:")) else errors.append(asked.url),
        )
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


def page_of(capture: Capture) -> str:
    """Return report.html of a capture, without the figures that other tests draw."""
    made = pipeline.analyse(capture, DECLARED)
    return render_html(made.report, made.tables, {}, page_data(made.report, made.tables, lanes_of(made.facts)))


SEEDS = {"nsys": "sqlite layers 2024", "counters": "ncu raw", "torch": "torch", "host": "sqlite host 2023"}


FOLDERS = {name: ROOT / "tests" / "cpu" / "data" / "profile" / name for name in ("qwen", "ranks", "app")} | {
    "specimens": ROOT / "kernels" / "specimens" / "captures" / "development",
    "layers": ROOT / "examples" / "h100" / "layer_to_line" / "captures",
    "cuda": ROOT / "examples" / "h100" / "source_lines" / "captures",
}


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a comparison: in the layer h.*/mlp, one kernel takes 10 % longer and one was replaced."""
    from analysis.formats.comparison import Bar, Basis, ComparedStep, Comparison, Judged, Match, Row, Side, Verdict

    unsure = Judged(Verdict.UNSURE, Basis.TIME, 1.1, why="one run a side tells nothing about its spread")
    rows = [
        Row("h.*/mlp", ["gemm"], ["gemm"], Match.NAME, 100_000.0, 110_000.0, unsure, cause="its grid is smaller"),
        Row("h.*/attn", ["<b>scale"], ["fused"], Match.REPLACED, 30_000.0, 20_000.0),
    ]
    bars = [Bar("gemm", "h.*/mlp", 10_000, "its grid is smaller", 0), Bar("<b>scale", "h.*/attn", -10_000, "", 1)]
    step = ComparedStep("step", 130_000, 130_000, unsure, "0 µs", bars, rows)
    sides = [Side(name, "capture", 1, {}) for name in ("before", "after")]
    path = tmp_path_factory.mktemp("compared") / "comparison.html"
    path.write_text(comparison.html(Comparison(*sides, False, 0.01, 0.05, unsure, [], [step], [])), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a store with two causes and one histogram."""
    limits = pd.DataFrame({"cause": ["gpu_busy", "launching"], "gpu_hours": [2.0, 0.5], "share_frac": [0.8, 0.2]})
    bins = pd.DataFrame({"step": "train", "host_group": "<i>a", "rank": [0, 0], "from_ns": [1e6, 2e6], "steps": [9, 1]})
    answers = [
        Answer("limits", "What limits the fleet?", "GPU hours by cause.", limits),
        Answer("histogram", "How long do steps take?", "Steps by length.", bins),
    ]
    path = tmp_path_factory.mktemp("fleet") / "fleet.html"
    path.write_text(fleet_page.html("store", "2 captures.", answers), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function: kind of capture (gpt2, user, nsys, counters, torch, host or empty) -> file of its page."""
    folder = tmp_path_factory.mktemp("pages")
    by_name = {seed.name: seed for seed in seeds()}

    @functools.cache
    def made(kind: str) -> Path:
        if kind == "gpt2":
            return committed.folder("overview") / "report.html"
        path = folder / f"{kind}.html"
        source = folder / kind
        if kind == "empty":
            capture = Capture()
        elif kind in FOLDERS:
            capture = load([FOLDERS[kind]])
        elif kind == "user":
            from tests.cpu import test_report as exports

            source.mkdir()
            for name in ("TRACE", "EXEC", "RANGES", "NCU"):
                (source / name).write_text(getattr(exports, name))
            capture = load([source])
        else:
            source.write_bytes(by_name[SEEDS[kind]].data)
            capture = load([source])
        path.write_text(page_of(capture), encoding="utf-8")
        return path

    return made


@pytest.fixture(scope="session")
def committed_tables() -> dict[str, pd.DataFrame]:
    """Return the CSV files of the committed run."""
    folder = committed.folder("overview")
    content = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return {
        entry["name"]: pd.read_csv(folder / entry["file"], low_memory=False)
        for entry in content["tables"]
        if (folder / entry["file"]).exists()
    }
