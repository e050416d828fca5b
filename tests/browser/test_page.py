"""The page in a real browser: what a reader wants to know, in three interactions; every kind of capture; no script."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.bench import page as bench
from tests.browser.screenshots import SETTLED, click
from tests.committed import needs_committed

KINDS = ("gpt2", "user", "nsys", "counters", "torch", "host", "empty")
Opened = Callable[..., Any]
Pages = Callable[[str], Path]
pytestmark = needs_committed


@pytest.fixture
def gpt2(opened: Opened, pages: Pages) -> Any:
    return opened(pages("gpt2"))


def part(page: Any, name: str, place: int = 0) -> Any:
    """A part of the icicle by its name, once the sections above it are drawn and move it no more."""
    page.locator("#icicle").evaluate(SETTLED)
    return page.locator(".part").filter(has_text=re.compile(f"^{re.escape(name)}$")).nth(place)


def soon(locator: Any, pattern: str) -> None:
    """Wait until the text of an element matches."""
    from playwright.sync_api import expect

    expect(locator).to_have_text(re.compile(pattern), timeout=5000)


def drawn(page: Any, name: str) -> Any:
    """The plot of this name, once it is on the screen."""
    page.locator(f"section:has([data-live={name}])").evaluate("section => section.scrollIntoView()")
    plot = page.locator(f"[data-live={name}]").locator("canvas, .plot svg").first
    plot.scroll_into_view_if_needed()
    return plot


# What a reader wants to know ----------------------------------------------------------------------------------------


def test_the_first_screen_says_what_was_measured_whether_to_trust_it_and_what_to_do(gpt2: Any) -> None:
    height = gpt2.viewport_size["height"]
    for selector in (
        "p.measured >> nth=0",
        ".step:first-of-type .waits",
        ".step:first-of-type .legend",
        ".trust",
        "#finding-1 .do",
    ):
        box = gpt2.locator(selector).bounding_box()
        assert box["y"] + box["height"] <= height, selector
    assert gpt2.locator("h1").inner_text() == "GPT-2 on NVIDIA H200"
    assert gpt2.locator(".measured").first.inner_text().startswith("driver 580.159.04 · cuda 13.0")


def test_the_slowest_layer_is_the_widest_part(gpt2: Any, committed_tables: dict[str, pd.DataFrame]) -> None:
    """0 interactions: of the components inside the prefill, the widest is the one with most time."""
    part(gpt2, "prefill").click()  # 1
    program = committed_tables["program"]
    inside = program[program["range"].str.fullmatch(r"gpt2/prefill/h\.\*/[^/]+(/[^/]+)?") & program["kernel"].isna()]
    leaves = inside[~inside["range"].isin(inside["range"].str.rpartition("/")[0])]
    longest = leaves.sort_values("time_ns").iloc[-1]["range"].rpartition("/")[2]
    widths = gpt2.eval_on_selector_all(
        ".part.is-range",
        "all => all.map(one => [one.getAttribute('aria-label').split(':')[0], one.offsetWidth, one.offsetTop])",
    )
    deepest = max(top for _, _, top in widths)
    assert max((width, name) for name, width, top in widths if top == deepest)[1] in (longest, "proj")


def test_which_kernel_of_a_layer_waits_for_what_is_two_clicks_away(gpt2: Any) -> None:
    part(gpt2, "prefill").click()  # 1
    gpt2.locator("[data-live=stalls]").evaluate("box => box.scrollIntoView()")
    first = gpt2.locator("[data-live=stalls] .stall-bar").first
    first.wait_for()
    assert re.search(r"in gpt2/prefill/.* waits: [a-z_]+ [\d.]+ %", first.get_attribute("aria-label"))


def test_a_kernel_is_opened_from_the_icicle(gpt2: Any) -> None:
    click(gpt2.locator(".part.is-kernel:has(span)").first)  # 1
    assert gpt2.locator("#kernel-page h1").is_visible()
    assert "#kernel=" in gpt2.url
    for title in ("Diagnosis", "Where it runs", "Times of its launches", "Roofline", "Bytes against the minimum",
                  "What its warps wait for", "Source", "What ncu's rules say", "Commands"):  # fmt: skip
        assert gpt2.locator("#kernel-page h2", has_text=title).count() == 1, title
    gpt2.keyboard.press("Escape")
    assert not gpt2.locator("#kernel-page").is_visible()
    assert gpt2.locator("#overview").is_visible()


def test_parts_too_narrow_for_a_name_are_told_apart_by_the_pointer(opened: Opened, tmp_path: Path) -> None:
    """They share an element: the tip and a click find which of them stands there."""
    (tmp_path / "report.html").write_text(bench.page(bench.capture(1000, 1000)), encoding="utf-8")
    page = opened(tmp_path / "report.html")
    run = max(page.locator("i.part").all(), key=lambda one: one.bounding_box()["width"])
    run.scroll_into_view_if_needed()
    told = set()
    for at in range(0, 40, 4):  # each part has less than 4 pixels
        run.hover(position={"x": at + 0.5, "y": 8})
        told.add(page.locator("#tip b").inner_text())
    assert len(told) == 10
    run.click(position={"x": 0.5, "y": 8})
    assert page.locator("#kernel-page h1").inner_text()


def test_a_finding_is_copied_as_markdown(opened: Opened, pages: Pages) -> None:
    page = opened(pages("gpt2"), permissions=["clipboard-read", "clipboard-write"])
    title = page.locator(".card h3").first.inner_text()
    page.locator("#finding-1 summary").click()  # 1
    page.get_by_label("copy as Markdown: finding 1", exact=True).click()  # 2
    soon(page.locator("#status"), "^Finding copied as Markdown$")
    copied = pasted(page)
    assert copied.startswith(f"**{title}** (launch bound, saves 1.86 ms to 3.87 ms (46% to 96%) of step gpt2/decode")
    assert "- 4.004 ms: `changes.time_ns` at gpt2/decode launch_bound launches" in copied
    assert "**Check:** `python analysis/" in copied
    assert "NVIDIA H200 · driver 580.159.04" in copied


def test_a_table_is_copied_with_short_names_and_what_ran_where(opened: Opened, pages: Pages) -> None:
    page = opened(pages("gpt2"), permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("copy as Markdown: kernels", exact=True).click()
    soon(page.locator("#status"), "^Table copied as Markdown$")
    copied = pasted(page)
    assert len(copied) < 20_000
    names = [line.split(" | ")[0].removeprefix("| ") for line in copied.splitlines()[2:] if line.startswith("| ")]
    assert len(set(names)) > 10
    assert max(map(len, names)) <= 70  # 60 letters, some of them escaped
    assert copied.rstrip().splitlines()[-1].startswith("NVIDIA H200 · driver 580.159.04")


def pasted(page: Any) -> str:
    """What the clipboard holds, by pasting it."""
    page.locator("#search").focus()
    page.evaluate(
        "() => { const area = document.createElement('textarea'); area.id = 'pasted'; document.body.append(area); area.focus(); }"
    )
    page.keyboard.press("Control+V")
    return str(page.evaluate("() => document.getElementById('pasted').value"))


def test_a_cell_with_a_bar_is_laid_out_as_a_cell(gpt2: Any) -> None:
    styles = gpt2.locator("td.bar").first.evaluate(
        "cell => [getComputedStyle(cell).display, getComputedStyle(cell).position]"
    )
    assert styles == ["table-cell", "static"]


def test_the_bytes_of_a_kernel_stand_beside_the_minimum(gpt2: Any) -> None:
    gpt2.keyboard.press("/")
    gpt2.keyboard.type("softmax_warp")  # 1: search
    gpt2.keyboard.press("Enter")  # 2: open
    block = gpt2.locator(".byte-block", has_text="gpt2/prefill/h.*/attn/softmax")
    assert "910.6 MB" in block.inner_text()
    assert "1.208 GB" in block.inner_text()
    assert "measured 0.75× of the minimum" in block.inner_text()


def test_a_kernel_is_found_by_a_part_of_its_name(gpt2: Any) -> None:
    gpt2.locator("#search").fill("layer_norm kernel")  # 1
    found = gpt2.locator("#found li[data-at]")
    assert "layer_norm" in found.first.inner_text()
    found.first.click()  # 2
    assert "layer_norm" in gpt2.locator("#kernel-page h1").inner_text()


def test_why_a_number_is_missing_stands_in_its_place(gpt2: Any) -> None:
    click(gpt2.locator(".part.is-kernel:has(span)").first)  # 1
    lines = gpt2.locator("#kernel-page .block", has_text="Source").locator(".missing")
    assert "with -lineinfo" in lines.inner_text()


# The parts ----------------------------------------------------------------------------------------------------------


def test_tables_and_plots_follow_the_selection(gpt2: Any) -> None:
    part(gpt2, "decode").click()
    assert "#range=gpt2%2Fdecode" in gpt2.url
    gpt2.locator("#kernels").scroll_into_view_if_needed()
    soon(gpt2.locator("[data-count=kernels]"), "in gpt2/decode")
    ranges = set(gpt2.locator("table[data-table=kernels] tbody tr td:nth-child(2)").all_inner_texts())
    assert ranges
    assert all(one.startswith("gpt2/decode") for one in ranges)
    drawn(gpt2, "roofline")
    labels = gpt2.eval_on_selector_all(
        "[data-live=roofline] circle", "all => all.map(one => one.getAttribute('aria-label'))"
    )
    assert labels
    assert all(" in gpt2/decode" in one for one in labels)
    gpt2.keyboard.press("Escape")
    gpt2.keyboard.press("Escape")
    gpt2.locator("#kernels").scroll_into_view_if_needed()
    soon(gpt2.locator("[data-count=kernels]"), "^104 rows$")


def test_the_roofline_is_saved_as_svg_and_png(gpt2: Any) -> None:
    drawn(gpt2, "roofline")
    with gpt2.expect_download() as svg:
        gpt2.get_by_label("SVG: save the roofline").click()
    with gpt2.expect_download() as png:
        gpt2.get_by_label("PNG: save the roofline").click()
    assert Path(svg.value.path()).read_text(encoding="utf-8").startswith("<svg")
    assert Path(png.value.path()).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    gpt2.locator("[data-live=roofline] circle").first.click(force=True)
    assert gpt2.locator("#kernel-page h1").is_visible()


def test_the_timeline_answers(gpt2: Any) -> None:
    canvas = drawn(gpt2, "timeline")
    said = gpt2.locator("[data-live=timeline] > p")
    said.wait_for()
    assert "848 of 848 rows" in said.inner_text()
    gpt2.get_by_label("Step", exact=True).select_option("gpt2/decode")
    soon(said, r"^\d+ of 848 rows in (9|10)")
    assert "4.013 ms without a profiler" in said.inner_text()
    box = canvas.bounding_box()
    gpt2.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)  # the row of findings
    assert gpt2.locator("#tip").inner_text().startswith("1. Launch the step as one CUDA graph in gpt2/decode")
    gpt2.mouse.move(box["x"] + box["width"] / 2, box["y"] + 48)  # the outermost range of the host
    assert gpt2.locator("#tip").inner_text().startswith("gpt2\non the host")


def test_the_keyboard_reaches_everything(gpt2: Any) -> None:
    gpt2.locator(".part").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        gpt2.keyboard.press(key)
    assert "decode" in gpt2.evaluate("document.activeElement.getAttribute('aria-label')")
    gpt2.keyboard.press("Enter")
    assert gpt2.locator(".crumbs b").inner_text() == "decode"
    gpt2.keyboard.press("?")
    assert gpt2.locator("#keys").is_visible()
    gpt2.keyboard.press("Escape")
    assert not gpt2.locator("#keys").is_visible()


def test_next_and_previous_go_by_time(gpt2: Any, committed_tables: dict[str, pd.DataFrame]) -> None:
    kernels = committed_tables["program"].dropna(subset=["kernel"])
    by_time = kernels[kernels["kind"] == "kernel"].groupby("kernel")["time_ns"].sum().sort_values(ascending=False)
    gpt2.goto(gpt2.url.split("#")[0] + "#kernel=" + gpt2.evaluate("name => encodeURIComponent(name)", by_time.index[0]))
    gpt2.keyboard.press("n")
    soon(gpt2.locator("#kernel-page header"), "kernel 2 of")
    assert by_time.index[1] in gpt2.locator("#kernel-page header").inner_text()
    gpt2.keyboard.press("p")
    soon(gpt2.locator("#kernel-page header"), "kernel 1 of")


def test_columns_are_explained(gpt2: Any) -> None:
    gpt2.locator("#gaps > summary").click()
    gpt2.get_by_label("columns ? of gaps").click()
    assert "bare time of the same step" in gpt2.locator("[data-columns=gaps]").inner_text()


def test_rows_are_sorted_by_value_and_unknown_ones_stay_last(gpt2: Any) -> None:
    head = gpt2.locator("table[data-table=kernels] th", has_text="ncu time")
    head.click()
    column = gpt2.eval_on_selector_all(
        "table[data-table=kernels] th", "all => all.findIndex(one => one.textContent.includes('ncu time'))"
    )
    cells = gpt2.eval_on_selector_all(
        f"table[data-table=kernels] tbody td:nth-child({column + 1})", "all => all.map(one => one.textContent)"
    )
    sizes = {"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1}
    values = [float(text.split()[0]) * sizes[text.split()[1]] for text in cells if text]
    assert len(values) > 20
    assert values == sorted(values, reverse=True)
    assert "" not in cells[: len(values)]


# Without a script, saved, and of every kind -------------------------------------------------------------------------


def cells(page: Any) -> dict[str, list[list[str]]]:
    return dict(
        page.evaluate(
            """() => [...document.querySelectorAll('table[data-table]')].map(table => [table.dataset.table,
            [...table.tBodies[0].rows].map(row => [...row.cells].map(cell =>
              cell.querySelector('summary')?.textContent ?? cell.textContent))])"""
        )
    )


@pytest.mark.parametrize("kind", ["gpt2", "counters"])
def test_the_script_writes_cells_as_they_stand_without_it(kind: str, opened: Opened, pages: Pages) -> None:
    bare = cells(opened(pages(kind), java_script_enabled=False))
    page = opened(pages(kind))
    for name in bare:
        page.locator(f"#{name}").evaluate("box => { box.open = true; }")
        page.locator(f"#{name} .scroll").scroll_into_view_if_needed()
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    drawn = cells(page)
    assert bare.keys() == drawn.keys()
    for name, rows in bare.items():
        assert drawn[name][: len(rows)] == rows, name


def test_without_a_script_findings_and_tables_remain(opened: Opened, pages: Pages) -> None:
    page = opened(pages("gpt2"), java_script_enabled=False)
    assert page.locator(".card").count() == 11
    assert page.locator("table[data-table=kernels] tbody tr").count() == 15
    assert not page.locator(".js").first.is_visible()
    assert page.locator("#search").count() == 1
    assert not page.locator("#search").is_visible()


def test_a_saved_page_is_the_page(opened: Opened, pages: Pages, tmp_path: Path) -> None:
    page = opened(pages("gpt2"))
    part(page, "decode").click()
    page.locator("#kernels").scroll_into_view_if_needed()
    saved = tmp_path / "saved.html"
    saved.write_text(page.content(), encoding="utf-8")
    again = opened(saved)
    assert again.locator(".crumbs b").inner_text() == "whole capture"
    part(again, "decode").click()
    assert again.locator(".parts").count() == 1
    click(again.locator(".part.is-kernel:has(span)").first)
    assert again.locator("#kernel-page h1").count() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_capture_is_a_sensible_page(kind: str, opened: Opened, pages: Pages) -> None:
    page = opened(pages(kind))
    for section in page.locator("section[id]").all():
        section.scroll_into_view_if_needed()
    assert page.locator("h1").first.inner_text()
    assert page.locator("#findings").inner_text()
    assert "undefined" not in page.locator("main").inner_text()
    assert "NaN" not in page.locator("main").inner_text()
    assert page.locator(".parts").count() == (kind not in ("host", "empty"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    kernel = page.locator("button.name[data-kernel]").first
    if kernel.count():
        kernel.click()
        assert page.locator("#kernel-page h1").is_visible()
        assert "undefined" not in page.locator("#kernel-page").inner_text()
        assert "NaN" not in page.locator("#kernel-page").inner_text()


@pytest.mark.parametrize("kind", ["gpt2", "counters"])
def test_a_phone_shows_it_without_scrolling_sideways(kind: str, opened: Opened, pages: Pages) -> None:
    page = opened(pages(kind), viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    kernel = page.locator(".part.is-kernel").last
    kernel.dispatch_event("click")
    page.locator("#kernel-page h1").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


OVERLAPS = """() => { const boxes = [...document.querySelectorAll("[data-live=roofline] svg text")].map((one) => one.getBoundingClientRect());
  return boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) => a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom).map((b) => [a.top, b.top])); }"""


@pytest.mark.parametrize("kind", ["gpt2", "specimens"])
def test_labels_of_roofs_do_not_overlap_on_a_phone(kind: str, opened: Opened, pages: Pages) -> None:
    page = opened(pages(kind), viewport={"width": 390, "height": 844})
    page.locator("[data-live=roofline]").scroll_into_view_if_needed()
    page.locator("[data-live=roofline] svg").wait_for()
    assert page.locator("[data-live=roofline] svg g text").count() > 1
    assert page.evaluate(OVERLAPS) == []
