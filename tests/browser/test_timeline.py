"""The timeline of the page, by hand: launches, pauses, measuring, folded ranges, keys, links, and the trace it saves."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.capture.load import load
from tests.browser.conftest import page_of
from tests.nsys_export import Export

Opened = Callable[..., Any]
THIN, LANE, LABELS = 17, 26, 104  # as in timeline.js
DEPTH = 40  # ranges of the chain


def capture() -> Export:
    """Streams 10 and 9; a chain of ranges around two kernels; then 5 ms without a GPU operation, in cudaMalloc."""
    export = Export(2025)
    export.gpu()
    for step in range(8):
        at = 1_000_000 + step * 1_000_000 + (5_000_000 if step > 3 else 0)
        for depth in range(DEPTH):
            export.push(f"r{depth}", at + depth, at + 500_000 - depth)
        export.launch("late", (at + 10_000, at + 20_000), (at + 30_000, at + 330_000), stream=10)
        export.launch("early", (at + 30_000, at + 40_000), (at + 50_000, at + 850_000), stream=9)
    export.push("x/y", 4_990_000, 9_910_000)  # one range, whose name has a slash
    export.call(5_000_000, 9_900_000, name="cudaMalloc_v3020")
    return export


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("timeline")
    (folder / "page.html").write_text(page_of(load([capture().save(folder / "x.sqlite")])), encoding="utf-8")
    return folder / "page.html"


@pytest.fixture
def page(opened: Opened, path: Path) -> Any:
    page = opened(path)
    page.locator("#timeline").evaluate("section => section.scrollIntoView()")
    canvas(page).wait_for()
    page.wait_for_function("() => document.querySelector('[data-live=timeline] > p').textContent")
    return page


def test_what_stands_below_keeps_its_place_when_the_timeline_is_drawn(opened: Opened, path: Path) -> None:
    page = opened(path)
    place = "() => document.querySelector('#where').getBoundingClientRect().top + scrollY"
    page.wait_for_function("() => document.querySelector('[data-live=timeline] > p').textContent")
    before, scrolled = page.evaluate(place), page.evaluate("scrollY")
    page.locator("#timeline").evaluate("section => section.scrollIntoView()")
    page.wait_for_timeout(300)
    assert scrolled == 0
    assert page.evaluate(place) == before


def canvas(page: Any) -> Any:
    return page.locator("[data-live=timeline] canvas")


def said(page: Any) -> str:
    return str(page.locator("[data-live=timeline] > p").inner_text())


def about(page: Any, pattern: str) -> None:
    from playwright.sync_api import expect

    expect(page.locator(".about")).to_have_text(re.compile(pattern), timeout=5000)


def rows(page: Any) -> list[str]:
    """The lanes that the arrow keys walk through, by what the first box of each says."""
    canvas(page).focus()
    found: list[str] = []
    for _ in range(20):
        page.keyboard.press("ArrowDown")
        text = page.locator(".about").inner_text()
        if found and text == found[-1]:
            break
        found.append(text)
    return found


def test_the_keys_reach_every_lane_and_streams_come_by_number(page: Any) -> None:
    found = rows(page)
    kinds = [re.match(r"Pause|\d+\. |r0|cuda|early|late", text) for text in found]
    names = [one[0] for one in kinds if one is not None]
    assert len(names) == len(found)
    assert names[0] == "Pause"
    assert names[-2:] == ["early", "late"]  # stream 9 before stream 10
    assert names.count("r0") == 2  # a chain of 40 ranges is one lane of the host, and one of the GPU


def test_a_chain_of_single_ranges_is_one_box(page: Any) -> None:
    text = next(text for text in rows(page) if text.startswith("r0"))
    assert text.startswith("/".join(f"r{depth}" for depth in range(DEPTH))[:100])


def test_pauses_are_found_by_key_and_by_button(page: Any) -> None:
    page.get_by_label("Next pause").click()
    about(page, r"^Pause 1 of 7")
    page.get_by_label("Previous pause").click()
    about(page, r"^Pause 7 of 7")
    canvas(page).focus()
    for _ in range(7):
        if "cudaMalloc" in page.locator(".about").inner_text():
            break
        page.keyboard.press("n")
    about(
        page,
        r"Pause \d of \d no GPU operation for 5\.18 ms · start 0\.00485\d* s · the host then cudaMalloc, 94\.6 % of it",
    )
    page.keyboard.press("p")
    about(page, r"no GPU operation for 180 µs")


def test_a_launch_leads_to_its_kernel_and_back(page: Any) -> None:
    rows(page)  # ends in the lane of stream 10
    about(page, r"^late time 300 µs · start .* · launched 20 µs earlier")
    page.get_by_role("button", name="go to its launch").click()
    about(page, r"^cudaLaunchKernel time 10 µs .* launches 1 · first begins 20 µs later")
    page.get_by_role("button", name="go to its kernel").click()
    about(page, r"^late time 300 µs")


def test_enter_opens_and_a_double_click_only_zooms(page: Any) -> None:
    box = canvas(page).bounding_box()
    x, y = box["x"] + LABELS + 0.3 * (box["width"] - LABELS), box["y"] + box["height"] - LANE / 2 - LANE
    page.mouse.click(x, y)
    about(page, r"^early time 800 µs")
    assert not page.locator("#kernel-page").is_visible()
    page.mouse.dblclick(x, y)
    page.wait_for_function("() => /in 2\\.4 ms/.test(document.querySelector('[data-live=timeline] > p').textContent)")
    assert not page.locator("#kernel-page").is_visible()
    page.keyboard.press("Enter")
    assert page.locator("#kernel-page h1").inner_text().startswith("early")


def test_a_drag_measures_and_snaps_to_edges(page: Any) -> None:
    box = canvas(page).bounding_box()
    y = box["y"] + box["height"] - LANE / 2 - LANE  # stream 9
    page.mouse.click(box["x"] + LABELS + 0.3 * (box["width"] - LABELS), y)
    canvas(page).focus()
    page.keyboard.press("z")  # the kernel fills the third in the middle
    page.wait_for_timeout(100)
    third = (box["width"] - LABELS) / 3
    page.mouse.move(box["x"] + LABELS + third + 2, y)
    page.mouse.down()
    page.mouse.move(box["x"] + LABELS + 1.5 * third, y)
    page.mouse.move(box["x"] + LABELS + 2 * third - 2, y)
    page.mouse.up()
    about(page, r"Measured 800 µs from .*: the GPU works for 100\.0 % of it")
    page.get_by_label("End the measurement").click()
    assert "Measured" not in page.locator(".about").inner_text()


def test_the_keyboard_measures(page: Any) -> None:
    rows(page)
    page.keyboard.press("m")
    about(page, r"Measured 300 µs")
    page.keyboard.press(".")
    page.keyboard.press("m")  # from the start of the first to the end of the second
    about(page, r"Measured 1\.3 ms")
    page.keyboard.press("Escape")
    about(page, r"^$")


def test_a_finding_leads_to_its_stretch_on_the_clock_of_its_sentence(page: Any) -> None:
    link = page.locator("#finding-1").get_by_role("link", name="timeline")
    start, end = map(float, re.findall(r"(\d\.\d+) s", link.get_attribute("title"))[:2])
    link.click()
    about(page, rf"from {start:.4f}\d* s")
    assert page.evaluate("document.activeElement.tagName") == "CANVAS"
    length = re.search(r"Measured ([\d.]+) ms", page.locator(".about").inner_text())
    assert length is not None
    assert float(length[1]) == pytest.approx((end - start) * 1e3, rel=0.01)
    page.go_back()
    assert "#time=" not in page.url


@pytest.mark.parametrize("link", ["#time=5-", "#time=a-b", "#time=-9-9", "#time=99999999999999999999-1"])
def test_a_broken_link_breaks_nothing(link: str, opened: Opened, path: Path) -> None:
    page = opened(path)
    page.goto(page.url + link)
    page.locator("#timeline").evaluate("section => section.scrollIntoView()")
    canvas(page).wait_for()


def test_the_saved_trace_has_the_same_slices(page: Any) -> None:
    with page.expect_download() as saved:
        page.get_by_role("button", name="open in Perfetto").click()
    events = json.loads(Path(saved.value.path()).read_text(encoding="utf-8"))["traceEvents"]
    kernels = [(one["name"], one["ts"], one["dur"]) for one in events if one.get("cat") == "kernel"]
    assert sorted(kernels, key=lambda one: one[1])[:2] == [("late", 1030.0, 300.0), ("early", 1050.0, 800.0)]
    assert len(kernels) == 16
    calls = [one for one in events if one.get("cat") == "cuda_runtime"]
    assert {one["name"] for one in calls} == {"cudaLaunchKernel", "cudaMalloc"}
    assert len([one for one in events if one["ph"] == "s"]) == len([one for one in events if one["ph"] == "f"]) == 16
    tracks = {(one["pid"], one["tid"]) for one in events if one["ph"] == "X"}
    named = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    assert tracks <= named
