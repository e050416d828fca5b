"""What axe-core has to say of the page in each of its states: nothing serious."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser import axe
from tests.committed import needs_committed

pytestmark = needs_committed


@pytest.fixture(scope="module")
def checker() -> str:
    found = axe.source()
    if found is None:
        pytest.skip("browser test: axe-core could not be had from npm")
    return found


def serious(page: Any, checker: str) -> list[str]:
    """The rules that are broken seriously, each with the first element that breaks it."""
    page.evaluate(checker)  # by the debugger, which the page's policy does not concern
    found = page.evaluate("async () => (await axe.run(document, { resultTypes: ['violations'] })).violations")
    return [
        f"{one['id']}: {len(one['nodes'])} × {one['nodes'][0]['html'][:200]} {one['nodes'][0].get('failureSummary', '')[:300]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_program_is_accessible(
    scheme: str, opened: Callable[..., Any], pages: Callable[[str], Path], checker: str
) -> None:
    page = opened(pages("gpt2"), color_scheme=scheme)
    for name in ("timeline", "roofline", "stalls"):
        page.locator(f"#{name}").scroll_into_view_if_needed()
    assert serious(page, checker) == []


def test_a_kernel_search_and_help_are_accessible(
    opened: Callable[..., Any], pages: Callable[[str], Path], checker: str
) -> None:
    page = opened(pages("gpt2"))
    page.locator(".part.is-kernel:has(span)").first.click()
    page.locator("#search").fill("softmax")
    assert serious(page, checker) == []
    page.locator("#search").fill("")
    page.locator("#help").click()
    assert serious(page, checker) == []


@pytest.mark.parametrize("kind", ["counters", "empty"])
def test_other_captures_are_accessible(
    kind: str, opened: Callable[..., Any], pages: Callable[[str], Path], checker: str
) -> None:
    assert serious(opened(pages(kind), color_scheme="dark"), checker) == []
