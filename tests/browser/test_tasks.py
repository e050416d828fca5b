"""Eight questions of a reader, each answered by at most three actions on unlike captures.

An action is a click, a key, or a word that is typed. Each test counts its own and says where the answer stands.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.screenshots import click
from tests.committed import needs_committed

Opened = Callable[..., Any]
Pages = Callable[[str], Path]
pytestmark = needs_committed
# two steps, a loop of decode steps, two processes, CUDA without ranges, Triton in layers
TIMED = ("gpt2", "qwen", "ranks", "app", "layers")
ALL = (*TIMED, "specimens")  # the last has counters and sources, and no timeline
MOST_ACTIONS = 3


class Reader:
    """A reader of a page, who counts actions and only sees what is on the screen."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.actions = 0

    def click(self, selector: str) -> None:
        self.actions += 1
        click(self.page.locator(selector).first)

    def press(self, key: str) -> None:
        self.actions += 1
        self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.actions += 1
        self.page.keyboard.type(text)

    def sees(self, selector: str, pattern: str = r"\S") -> str:
        """Return what stands at the first match, once it is on the screen; the reader may scroll."""
        from playwright.sync_api import expect

        place = self.page.locator(selector).first
        place.evaluate("one => one.scrollIntoView({block: 'nearest'})")  # a table may draw its rows anew meanwhile
        expect(place).to_be_visible()
        expect(place).to_have_text(re.compile(pattern, re.DOTALL))
        assert self.actions <= MOST_ACTIONS
        return str(place.inner_text())


@pytest.fixture
def reader(opened: Opened, pages: Pages, request: pytest.FixtureRequest) -> Reader:
    return Reader(opened(pages(request.param)))


def on(*kinds: str) -> Any:
    return pytest.mark.parametrize("reader", kinds, indirect=True)


@on(*ALL)
def test_which_kernel_takes_most_time(reader: Reader) -> None:
    reader.click("nav a[href='#work']")
    reader.sees("#work tbody tr:first-child td:first-child")


@on(*ALL)
def test_why_a_kernel_takes_its_time(reader: Reader) -> None:
    reader.click("nav a[href='#work']")
    reader.click("#work tbody tr:first-child button.name")
    reader.sees("#kernel-page .block:has(h2:text('Diagnosis'))", r"Diagnosis.*\w")
    reader.sees("#kernel-page .badge.bound", r"-bound$|limit unknown")


@on(*ALL)
def test_what_to_do_stands_on_the_first_screen(reader: Reader) -> None:
    height = reader.page.viewport_size["height"]
    box = reader.page.locator("#finding-1 h3").bounding_box()
    assert box["y"] + box["height"] <= height
    reader.sees("#finding-1", r"Do: \w|Nothing saves")


@on(*TIMED)
def test_where_the_pause_is(reader: Reader) -> None:
    reader.click("nav a[href='#timeline']")
    reader.sees("[data-live=timeline]", r"longest (wait|pause)|pause")


@on("ranks")
def test_where_the_pause_of_several_ranks_is(reader: Reader) -> None:
    """Two processes start apart: no GPU works for 236.9 ms."""
    reader.click("nav a[href='#timeline']")
    reader.click("button[aria-label='Next pause']")
    reader.sees("[data-live=timeline] .about", r"Pause 1 of 1.*no GPU operation for 236\.9 ms.*start 0\.0367 s")


@on(*TIMED)
def test_a_finding_leads_to_its_place_in_the_timeline(reader: Reader) -> None:
    reader.click("#finding-1 .look a[href^='#time=']")
    reader.page.locator("[data-live=timeline] canvas").first.wait_for()
    assert reader.page.locator("#timeline").evaluate("one => Math.abs(one.getBoundingClientRect().top) < innerHeight")


def test_whether_the_layer_changed(opened: Opened, compared: Path) -> None:
    reader = Reader(opened(compared))
    reader.click("nav a[href='#where']")
    click(reader.page.locator(".part", has_text="mlp").first)
    reader.actions += 1
    reader.sees("table[data-table=kernels] tbody tr", r"gemm.*UNSURE|gemm.*SLOWER")


@on(*ALL)
def test_how_sure_a_finding_is(reader: Reader) -> None:
    assert reader.sees("#finding-1 .sure") in ("sure", "probably", "unsure")


@on(*ALL)
def test_what_is_missing_and_how_to_get_it(reader: Reader) -> None:
    reader.click("nav a[href='#missing']")
    reader.sees("#missing tbody tr td:nth-child(3)")


@on("specimens")
def test_the_line_of_a_kernel(reader: Reader) -> None:
    reader.click("nav a[href='#lines']")
    rows = reader.page.locator("[data-live=listing] .pane:first-child .source-row")
    rows.first.wait_for()
    heats = rows.evaluate_all("all => all.map(one => [Number(one.style.getPropertyValue('--h')), one.innerText])")
    assert "counts[kind_of(i, s)] += s" in max(heats)[1]
    reader.page.locator("[data-live=listing] .source-row", has_text="counts[kind_of").click()
    reader.actions += 1
    assert reader.page.locator("[data-live=listing] .pane:nth-child(2) .lit").count() > 10
    assert reader.actions <= MOST_ACTIONS


SOURCES = {
    # page, kernel: the language of its lines, a part of its hottest line, and of an instruction of PTX in that line
    ("cuda", "transpose"): ("CUDA", "out[x * kSide + y + i] = in[(y + i) * kSide + x]", "ld.global"),
    ("layers", "mean_over_tokens"): ("Python", "total += tl.load(source + row * width + column", "ld.global"),
    ("layers", "triton_poi_fused_add_cos_mul_sigmoid_0"): ("Python", "tmp5 = tl_math.cos(tmp0)", "fma.rn.ftz.f32"),
}


@pytest.mark.parametrize(("reader", "kernel"), list(SOURCES), indirect=["reader"], ids=lambda one: str(one))
def test_cuda_triton_and_inductor_have_their_lines_beside_ptx_and_sass(
    reader: Reader, kernel: str, request: Any
) -> None:
    kind = request.node.callspec.params["reader"]
    language, line, ptx = SOURCES[kind, kernel]
    reader.click("nav a[href='#lines']")
    choose = reader.page.locator("[data-live=listing] select[aria-label=Kernel]")
    choose.wait_for()
    if choose.input_value() != kernel:
        choose.select_option(kernel)
        reader.actions += 1
    panes = reader.page.locator("[data-live=listing] .pane")
    assert panes.locator(".language").all_inner_texts() == [language, "PTX", "SASS"]
    heats = panes.first.locator(".source-row").evaluate_all(
        "all => all.map(one => [Number(one.style.getPropertyValue('--h')), one.innerText])"
    )
    assert line in max(heats)[1]
    click(panes.first.locator(".source-row", has_text=line).first)
    reader.actions += 1
    assert any(ptx in one for one in panes.nth(1).locator(".lit").all_inner_texts())
    assert panes.nth(2).locator(".lit").count() > 0
    assert reader.actions <= MOST_ACTIONS


@on("layers")
def test_a_layer_leads_to_its_kernel_and_the_kernel_to_its_line(reader: Reader) -> None:
    layers = reader.page.locator("#icicle .part", has_text=re.compile(r"^\*$"))
    click(layers.nth(1))  # step Sequential(4096 x 2048)/*/*
    reader.actions += 1
    reader.sees(".crumbs", r"Sequential.*\*.*\*")
    reader.click("#icicle .part:has-text('mean_over_tokens')")
    assert "total += tl.load(source + row * width + column" in reader.sees("#kernel-page .source-row[style*='--h: 1;']")


@on("layers")
def test_a_finding_names_the_line(reader: Reader) -> None:
    assert "line layer_to_line.py:33" in reader.sees(".card:has-text('mean_over_tokens') .look")


@on("gpt2", "specimens", "layers")
def test_a_link_to_a_section_stays_there_while_parts_above_are_drawn(reader: Reader) -> None:
    reader.click("nav a[href='#limits']" if reader.page.locator("#lines").count() == 0 else "nav a[href='#lines']")
    section = reader.page.locator(reader.page.evaluate("location.hash"))
    reader.page.wait_for_timeout(1000)
    assert 0 <= section.bounding_box()["y"] <= 80


@on("gpt2")
def test_a_layer_leads_to_its_kernels(reader: Reader) -> None:
    reader.click(".part:has-text('decode')")
    ranges = reader.page.locator("#work tbody tr td:nth-child(2)")
    reader.sees("[data-count=kernels]", "in gpt2/decode$")
    assert all("decode" in one for one in ranges.all_inner_texts())


@on("qwen")
def test_the_search_finds_causes_and_tells_kernels_apart(reader: Reader) -> None:
    reader.press("/")
    reader.type("launch bound")
    reader.sees("#found li[data-at]")
    reader.page.locator("#search").fill("elementwise_kernel")
    names = [one for one in reader.page.locator("#found .text").all_inner_texts() if one]
    assert len(names) == len(set(names)) > 1


@on("gpt2", "specimens")
def test_a_table_is_saved_from_the_page_alone(reader: Reader) -> None:
    import io

    import pandas as pd

    with reader.page.expect_download() as saved:
        reader.click("[data-csv=kernels]")
    found = pd.read_csv(io.StringIO(Path(saved.value.path()).read_text(encoding="utf-8")))
    shown = reader.page.locator("[data-count=kernels]").inner_text()
    assert f"{len(found):,} rows" in shown
    assert {"kernel", "range", "launches"} <= set(found.columns)


@on("gpt2", "ranks")
def test_the_keyboard_alone_reaches_the_layers_and_keeps_the_focus(reader: Reader) -> None:
    page = reader.page
    for _ in range(2):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the layers"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.classList.contains('part')")
    page.keyboard.press("ArrowDown")
    before = page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == before
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement !== document.body")


@on(*ALL)
def test_a_printed_page_is_short(reader: Reader) -> None:
    written = reader.page.pdf(format="A4")
    assert len(re.findall(rb"/Type /Page\b", written)) <= 8
