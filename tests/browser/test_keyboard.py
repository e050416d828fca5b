"""The keyboard alone reaches every control, and the focus is never lost: it stays on something that can be seen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.committed import needs_committed

Opened = Callable[..., Any]
pytestmark = [needs_committed, pytest.mark.slow]
MOST_STOPS = 600
# Numbers the controls, also those that were drawn since.
NUMBER = """() => { window.__n ??= 0;
  for (const one of document.querySelectorAll("a[href], button, input, select, summary, [tabindex]")) one.dataset.k ??= window.__n++; }"""
CONTROLS = """() => [...document.querySelectorAll("a[href], button:not([disabled]), input, select, summary, [tabindex='0']")]
  .filter((one) => one.tabIndex >= 0 && one.checkVisibility() && !one.closest("dialog")).map((one) => one.dataset.k)"""
# What has the focus, and whether a reader sees it.
FOCUS = """() => { const one = document.activeElement, box = one.getBoundingClientRect();
  return { k: one.dataset.k ?? null, said: `${one.tagName} ${one.id} ${(one.textContent ?? "").trim().slice(0, 40)}`,
    seen: one !== document.body && box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight }; }"""


class Keys:
    """Presses keys, and notes each after which the focus is on nothing that can be seen."""

    def __init__(self, page: Any) -> None:
        self.page, self.lost = page, list[str]()

    def press(self, key: str, on: str) -> dict[str, Any]:
        self.page.keyboard.press(key)
        self.page.wait_for_timeout(20)
        self.page.evaluate(NUMBER)
        focus: dict[str, Any] = self.page.evaluate(FOCUS)
        if not focus["seen"]:
            self.lost.append(f"{key} on {on}: {focus['said']}")
        return focus

    def tab_through(self) -> list[str]:
        """Return the controls in the order of Tab, until it begins anew or leaves the page."""
        reached: list[str] = []
        for _ in range(MOST_STOPS):
            self.page.keyboard.press("Tab")
            self.page.evaluate(NUMBER)
            focus = self.page.evaluate(FOCUS)
            if focus["k"] in reached or (reached and focus["k"] is None):
                return reached
            if not focus["seen"]:
                self.lost.append(f"Tab: {focus['said']}")
            reached.append(focus["k"])
        raise AssertionError("Tab never comes to an end")

    def press_all(self, key: str, controls: list[str]) -> None:
        """Press a key on each control that is still there; leave what it opened."""
        for k in controls:
            there = self.page.evaluate(
                "(k) => { const one = document.querySelector(`[data-k='${k}']`); one?.focus(); return document.activeElement === one "
                "&& (one.getAttribute('href') ?? '#').startsWith('#') }",
                k,
            )
            if not there:  # gone, hidden, or a link out of the page
                continue
            said = self.page.evaluate(FOCUS)["said"]
            self.press(key, said)
            if self.page.locator("dialog[open]").count() or self.page.locator("#kernel-page:not([hidden])").count():
                self.press("Escape", f"what {key} on {said} opened")


@pytest.mark.parametrize("kind", ["layers", "ranks", "specimens", "compared", "fleet"])
def test_tab_reaches_every_control_and_enter_loses_no_focus(
    opened: Opened, pages: Callable[[str], Path], kind: str, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(kind) if kind in ("compared", "fleet") else pages(kind)
    page = opened(path)
    page.wait_for_timeout(500)
    keys = Keys(page)
    reached = keys.tab_through()
    assert sorted(set(page.evaluate(CONTROLS)) - set(reached)) == []
    keys.press_all("Enter", reached)
    assert keys.lost == []


# The first rows of a table stand in the page; all are drawn anew as the table comes near the screen.
INTO_EACH_TABLE = """async () => {
  const lost = [];
  for (const table of document.querySelectorAll("table[data-table]")) {
    const one = table.tBodies[0].querySelector("summary, button"), place = (of) => [of?.parentElement?.rowIndex, of?.cellIndex];
    for (let box = table.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    one?.focus({ preventScroll: true });
    if (!one || document.activeElement !== one) continue;
    const before = place(one.closest("td"));
    one.scrollIntoView();
    await new Promise((resolve) => setTimeout(resolve, 200));
    const now = document.activeElement.closest("td");
    if (!table.contains(now) || String(place(now)) !== String(before)) lost.push(table.dataset.table);
  }
  return lost;
}"""


@pytest.mark.parametrize("selects", [False, True])
def test_a_kernel_that_is_left_gives_the_focus_back(
    opened: Opened, pages: Callable[[str], Path], selects: bool
) -> None:
    page = opened(pages("qwen"))
    if selects:
        page.locator("#icicle .part[tabindex='-1']").first.press("Enter")
    page.locator("#work table").scroll_into_view_if_needed()
    opener = page.locator("#work tbody tr:nth-child(3) button.name").first
    opener.focus()
    before = page.evaluate("[document.activeElement.title, Math.round(scrollY)]")
    page.keyboard.press("Enter")
    page.locator("#kernel-page h1").wait_for()
    page.keyboard.press("Escape")
    page.wait_for_timeout(300)
    assert page.evaluate("[document.activeElement.title, Math.round(scrollY)]") == before


@pytest.mark.parametrize("kind", ["layers", "ranks"])
def test_a_cell_keeps_the_focus_while_its_table_is_drawn(
    opened: Opened, pages: Callable[[str], Path], kind: str
) -> None:
    assert opened(pages(kind)).evaluate(INTO_EACH_TABLE) == []


@pytest.mark.parametrize("kind", ["layers", "ranks"])
def test_arrows_move_among_layers_lanes_and_lines(opened: Opened, pages: Callable[[str], Path], kind: str) -> None:
    page = opened(pages(kind))
    keys = Keys(page)
    places = ["#icicle .part[tabindex='0']", "[data-live=timeline] canvas"]
    places += ["[data-live=listing] .pane"] if kind == "layers" else []
    for place in places:
        page.locator("section", has=page.locator(place.split()[0])).first.scroll_into_view_if_needed()
        page.locator(place).first.scroll_into_view_if_needed()
        page.locator(place).first.focus()
        for key in ("ArrowDown", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "Enter"):
            keys.press(key, place)
            if page.locator("#kernel-page:not([hidden])").count():
                keys.press("Escape", place)
    assert keys.lost == []


def test_arrows_choose_a_line_and_its_instructions(opened: Opened, pages: Callable[[str], Path]) -> None:
    page = opened(pages("layers"))
    page.locator("nav a[href='#lines']").press("Enter")
    first = page.locator("[data-live=listing] .pane").first
    first.focus()
    for _ in range(3):
        first.press("ArrowDown")
    chosen = first.locator(".lit")
    assert chosen.count() == 1
    place = chosen.get_attribute("data-place")
    others = page.locator("[data-live=listing] .pane:not(:first-child) .lit")
    assert {one.get_attribute("data-place") for one in others.all()} == {place}
