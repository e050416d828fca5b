"""Draw the pictures of the documents: the page of an example's capture in headless Chromium, light and dark.

python -m tests.browser.pictures           # draws all of them, after a change of a page
python -m tests.browser.pictures first     # draws one
"""

import argparse
import io
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from analysis import report
from tests.browser.chromium import started

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "pictures"
CAPTURE = ROOT / "examples" / "h200" / "qwen_like" / "captures"
COLOURS, MOST_BYTES = 256, 200_000  # MOST_BYTES: of each


class Shot(NamedTuple):
    """One picture: the section to scroll to ("" is the top), its height in pixels, and the step to zoom to."""

    section: str
    height: int
    step: str = ""


SHOTS = {"first": Shot("", 560), "timeline": Shot("timeline", 480, "Decoder(4 x 1)")}


def taken(chromium: Any, page_file: Path, names: Sequence[str]) -> Iterator[tuple[str, Image.Image]]:
    """Yield the name of each file with its picture."""
    for name in names:
        for scheme in ("light", "dark"):
            size = {"width": 1280, "height": SHOTS[name].height}
            context = chromium.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce", locale="en-US")
            page = context.new_page()
            page.goto(page_file.as_uri())
            page.wait_for_timeout(500)
            for _ in range(2 if SHOTS[name].section else 0):  # what is drawn on the way moves the section
                page.locator(f"#{SHOTS[name].section}").evaluate("section => section.scrollIntoView()")
                page.wait_for_timeout(400)
            if SHOTS[name].step:
                steps = page.locator(f"#{SHOTS[name].section} select option", has_text=SHOTS[name].step)
                page.locator(f"#{SHOTS[name].section} select").select_option(steps.nth(1).get_attribute("value"))
                page.wait_for_timeout(400)
            yield name + ("-dark" if scheme == "dark" else ""), Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            context.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the named pictures, or all, into FOLDER."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(SHOTS)} (default: all)")
    names = parser.parse_args(arguments).names or [*SHOTS]
    if unknown := [name for name in names if name not in SHOTS]:
        parser.error(f"there is no picture {unknown[0]}; these are {', '.join(SHOTS)}")
    with tempfile.TemporaryDirectory() as folder, started() as chromium:
        report.build([CAPTURE], Path(folder))
        for name, picture in taken(chromium, Path(folder) / "report.html", names):
            drawn = picture.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
            file = FOLDER / f"{name}.png"
            drawn.save(file, optimize=True)
            assert file.stat().st_size <= MOST_BYTES, file
    return 0


if __name__ == "__main__":
    sys.exit(main())
