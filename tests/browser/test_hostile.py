"""A corpus of hostile names goes through the browser: nothing executes, nothing is inserted, nothing breaks the layout."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from msgspec import structs

from analysis import pipeline
from analysis.capture.model import GPU_OPS_COLUMNS, RANGES_COLUMNS, Capture, as_table, nest_ranges
from analysis.formats.report import Cell, Condition, Finding, Missing, Reason, Saving
from analysis.page.html import page_data, render_html
from analysis.tables.lanes import lanes_of
from tests.declared import DECLARED

ATTACK = "globalThis.hacked=1"
NAMES = (
    f"<script>{ATTACK}</script>",
    f"</script><script>{ATTACK}</script>",
    f"</style><img src=x onerror={ATTACK}>",
    f"<svg onload={ATTACK}><a href='javascript:{ATTACK}'>x</a></svg>",
    f"<!--<script>--><script>{ATTACK}//-->",
    f'"onmouseover="{ATTACK}" x="',
    f"'onfocus='{ATTACK}' autofocus='",
    f"`onclick={ATTACK}`",
    "a\"b'c`d&quot;e&#39;f&amp;g",
    "]]>]]&gt;<![CDATA[<b>bold</b>]]>",
    "{{ 7 * 7 }} {% raw %} ${7*7} #{7*7}",
    f"javascript:{ATTACK}",
    f"data:text/html,<script>{ATTACK}</script>",
    "left\u202eright\u2066inner\u2069\u200f\u061c",
    "zero\u200bwidth\u200djoin\ufeff\u00ad\u2060",
    "control\x00\x01\x07\x08\x1b[31mred\x7f\x9b",
    "line\nbreak\r\nand\ttab\u2028and\u2029separator",
    "lone \ud800 high, \udfff low, \ud83d",
    "核函数 🦙 ядро नमस्ते עברית العربية",
    "Z\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308" * 40,
    "<" * 200 + ">" * 200,
    "a" * 65_536,
    "wide " * 13_107,
    "\\u003cscript\\u003e \\x3cscript\\x3e %3Cscript%3E &lt;script&gt;",
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "toString",
    "<tests.csv; rm -rf ~> $(id) `id` '; id; '",
    "| a | b |\n|---|---|\n[x](javascript:1) ![y](z)",
    "=cmd|' /C calc'!A0",
    " ",
    ".*+?^${}()|[]\\",
    "h.*", "*", "%", "%E0%A4%A", "#kernel=x", "?", ":",
)  # fmt: skip
READ = tuple(name for name in NAMES if name.isascii() or name.encode("utf-8", "ignore").decode() == name)  # by a reader


def hostile() -> Capture:
    """Each name is that of a kernel and of a range around it, inside a step."""
    count = len(READ)
    start = np.arange(count, dtype=np.int64) * 10_000
    ops = {
        "start_ns": start + 500, "duration_ns": np.arange(count, dtype=np.int64) * 20 + 3000, "kind": "kernel",
        "name": list(READ), "grid": "8x1x1", "block": "128x1x1", "registers": 32, "stream": 7, "device": NAMES[0],
        "api_start_ns": start + 100, "api_end_ns": start + 200, "pid": 1, "tid": 1, "correlation_id": np.arange(count),
    }  # fmt: skip
    inner = pd.DataFrame(
        {"start_ns": start + 50, "end_ns": start + 300, "name": [name.replace("/", "\u2215") for name in READ]}
    )
    step = pd.DataFrame({"start_ns": [0], "end_ns": [int(start[-1]) + 5000], "name": ["step"]})
    ranges = pd.concat([step, inner], ignore_index=True)
    ranges = nest_ranges(ranges.assign(range_id=np.arange(len(ranges)), pid=1, tid=1)).astype(dict(RANGES_COLUMNS))
    return Capture(gpu_ops=as_table(dict(pd.DataFrame(ops)), GPU_OPS_COLUMNS), ranges=ranges)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("hostile") / "report.html"
    made = pipeline.analyse(hostile(), DECLARED)
    cited = [Cell("kernels", {"kernel": name}, name, name) for name in NAMES]
    content = structs.replace(
        made.report,
        title=NAMES[0],
        notes=list(NAMES),
        missing=[Missing(Reason.UNREAD, name, name, name) for name in NAMES],
        conditions=[Condition(name, name) for name in ("GPU", "workload", *NAMES)],
        findings=[
            Finding(
                id=name, rank=1 + place, kind="unknown", title=name, sentence=name, do=name,
                saves_ns=Saving(None, 10.0), cells=cited[place : place + 2],
            )
            for place, name in enumerate(NAMES)
        ],
    )  # fmt: skip
    written.write_text(
        render_html(content, made.tables, {}, page_data(content, made.tables, lanes_of(made.facts))), encoding="utf-8"
    )
    return written


def is_sound(page: Any) -> bool:
    """Nothing ran, nothing was inserted, nothing is wider than the screen, every link is one of ours."""
    return bool(
        page.evaluate(
            r"""() => globalThis.hacked === undefined && !document.querySelector('img, iframe, object, embed, svg script, b > b')
            && document.scripts.length === 2 && document.documentElement.scrollWidth <= innerWidth
            && [...document.querySelectorAll('*')].every((one) => [...one.attributes].every(({ name }) => !name.startsWith('on')))
            && [...document.querySelectorAll('a')].every((one) => /^(#|tables\/[a-z_]+\.csv$)/.test(one.getAttribute('href')))"""
        )
    )


@pytest.mark.parametrize("size", [(1280, 800), (360, 740)], ids=["desk", "phone"])
def test_the_page_of_hostile_names_is_sound(size: tuple[int, int], path: Path, opened: Callable[..., Any]) -> None:
    page = opened(path, viewport={"width": size[0], "height": size[1]})
    for section in page.locator("section[id]").all():
        section.scroll_into_view_if_needed()
    assert is_sound(page)
    for place in page.locator(".part.is-range").all()[-12:] + page.locator("i.part").all()[:12]:
        place.hover(force=True)
    assert is_sound(page)
    assert page.locator("i.part, .part.is-kernel").count() > 0


def test_every_hostile_kernel_has_a_page_and_is_found(path: Path, opened: Callable[..., Any]) -> None:
    page = opened(path)
    names = page.evaluate("JSON.parse(document.getElementById('data').textContent).strings")
    kernels = page.eval_on_selector_all("[data-kernel]", "all => all.map(one => one.dataset.kernel)")
    page.locator("#kernels .scroll").scroll_into_view_if_needed()
    page.locator("[data-kernel]").first.wait_for()
    kernels = page.eval_on_selector_all("#kernels [data-kernel]", "all => all.map(one => one.dataset.kernel)")
    assert len(set(kernels)) >= len(READ) - 2  # what differs in blanks alone is one kernel
    assert set(kernels) <= set(names)
    for kernel in kernels:
        page.evaluate("name => { location.hash = 'kernel=' + encodeURIComponent(name); }", kernel)
        page.wait_for_timeout(5)
        assert page.locator("#kernel-page .kernel-facts").count() == 1, kernel[:80]
    assert is_sound(page)
    page.evaluate("location.hash = 'top'")
    for word in ("<script>", "proto", "🦙", "\\", "h.*", "javascript:"):
        page.locator("#search").fill(word)
        assert page.locator("#found li[data-at]").count() > 0, word
        assert is_sound(page)


def test_hostile_links_lead_nowhere(path: Path, opened: Callable[..., Any]) -> None:
    page = opened(path)
    for link in ("#kernel=<img src=x onerror=globalThis.hacked=1>", "#kernel=%E0%A4%A", "#range=__proto__", "#range=%00",
                 "#kernel=", "#range=" + "x" * 5000, "#%", "#kernel=constructor"):  # fmt: skip
        page.evaluate("link => { location.hash = link; }", link)
        page.wait_for_timeout(20)
        assert is_sound(page), link
