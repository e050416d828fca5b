"""Draw eight states of the page. This module makes their capture, so the pictures only change with the page.

python -m tests.browser.screenshots    # draws them again, after an intended change
"""

import argparse
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from tests.browser.chromium import started

FOLDER = Path(__file__).parent / "screenshots"
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


# Sections that were never on the screen have a guessed height. The page has its own once 20 frames change nothing.
SETTLED = """section => new Promise((resolve) => {
  let quiet = 0, before = "";
  const frame = () => {
    section.scrollIntoView();
    const now = `${section.getBoundingClientRect().top} ${document.documentElement.scrollHeight}`;
    quiet = now === before ? quiet + 1 : 0;
    before = now;
    if (quiet < 20) requestAnimationFrame(frame); else resolve();
  };
  frame();
})"""


def click(place: Any) -> None:
    """Click a place once the sections around it are drawn and move it no more."""
    place.evaluate(SETTLED)
    place.click()


def _at(name: str) -> Callable[[Any], None]:
    def scroll(page: Any) -> None:
        live = page.locator(f"[data-live={name}]")
        live.evaluate(SETTLED)
        live.locator("canvas, svg, .stall-bar, .part").first.wait_for()
        live.evaluate(SETTLED)

    return scroll


def _click(selector: str) -> Callable[[Any], None]:
    return lambda page: page.locator(selector).first.click()


def _search(page: Any) -> None:
    page.locator("#search").fill("kernel_1")


# name -> size, scheme, what is done
STATES: dict[str, tuple[dict[str, int], str, Callable[[Any], None] | None]] = {
    "overview": (DESK, "light", None),
    "overview-dark": (DESK, "dark", _search),
    "zoomed": (DESK, "light", _click(".part.is-range:has(span):has-text('mlp')")),
    "timeline": (DESK, "light", _at("timeline")),
    "roofline": (DESK, "light", _at("roofline")),
    "stalls-dark": (DESK, "dark", _at("stalls")),
    "kernel": (DESK, "light", _click(".part.is-kernel")),
    "phone": (PHONE, "light", None),
}


def page() -> str:
    """Return the page to draw: 24 kernels in 4 layers, with counters."""
    from tests.bench import page as bench

    return bench.page(bench.capture(24, 960, steps=2, layers=4))


def taken(chromium: Any, path: Path) -> Iterator[tuple[str, Image.Image]]:
    """Yield every state with its picture."""
    for name, (size, scheme, act) in STATES.items():
        context = chromium.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce", locale="en-US")
        context.set_default_timeout(5000)
        tab = context.new_page()
        tab.goto(path.as_uri())
        if act is not None:
            act(tab)
        tab.mouse.move(0, 0)
        tab.wait_for_timeout(120)
        yield name, Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
        context.close()


def main() -> int:
    """Draw all states into FOLDER."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    FOLDER.mkdir(exist_ok=True)
    with started() as chromium, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(page(), encoding="utf-8")
        for name, picture in taken(chromium, path):
            picture.quantize(128, dither=Image.Dither.NONE).save(FOLDER / f"{name}.png", optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
