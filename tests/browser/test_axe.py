"""What axe-core has to say of every page in each of its states: nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser import axe
from tests.browser.screenshots import click
from tests.browser.test_page import soon
from tests.committed import needs_committed

pytestmark = needs_committed


@pytest.fixture(scope="module")
def checker() -> str:
    found = axe.source()
    if found is None:
        pytest.skip("browser test: axe-core could not be had from npm")
    return found


def violations(page: Any, checker: str) -> list[str]:
    """The rules that are broken, each with the first element that breaks it."""
    page.evaluate(checker)  # by the debugger, which the page's policy does not concern
    found = page.evaluate("async () => (await axe.run(document, { resultTypes: ['violations'] })).violations")
    return [
        f"{one['id']}: {len(one['nodes'])} × {one['nodes'][0]['html'][:200]} {one['nodes'][0].get('failureSummary', '')[:300]}"
        for one in found
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_program_is_accessible(
    scheme: str, opened: Callable[..., Any], pages: Callable[[str], Path], checker: str
) -> None:
    page = opened(pages("gpt2"), color_scheme=scheme)
    for name in ("timeline", "roofline", "stalls"):
        page.locator(f"[data-live={name}]").scroll_into_view_if_needed()
    for closed in page.locator("details.table, .why-card").all():
        closed.evaluate("box => { box.open = true; }")
    assert violations(page, checker) == []


def test_a_kernel_search_and_help_are_accessible(
    opened: Callable[..., Any], pages: Callable[[str], Path], checker: str
) -> None:
    page = opened(pages("gpt2"))
    click(page.locator(".part.is-kernel:has(span)").first)
    page.locator("#search").fill("softmax")
    assert violations(page, checker) == []
    page.locator("#search").fill("")
    page.locator("#help").click()
    assert violations(page, checker) == []


@pytest.mark.parametrize("kind", ["specimens", "ranks", "counters", "empty"])
def test_other_captures_are_accessible(
    kind: str, opened: Callable[..., Any], pages: Callable[[str], Path], checker: str
) -> None:
    assert violations(opened(pages(kind), color_scheme="dark"), checker) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_comparison_is_accessible(scheme: str, opened: Callable[..., Any], compared: Path, checker: str) -> None:
    page = opened(compared, color_scheme=scheme)
    page.locator(".part").first.wait_for()
    assert violations(page, checker) == []


def test_a_fleet_is_accessible(opened: Callable[..., Any], fleet: Path, checker: str) -> None:
    page = opened(fleet)
    assert page.locator("table[data-table=limits] tbody tr").count() == 2
    page.locator("[data-filter=limits]").fill("launching")
    soon(page.locator("[data-count=limits]"), "^1 of 2 rows$")
    assert violations(page, checker) == []
