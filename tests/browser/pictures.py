"""Draw the pictures of the documents: the pages of committed captures in headless Chromium, light and dark.

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
EXAMPLES = ROOT / "examples"
COLOURS, MOST_BYTES = 256, 200_000  # MOST_BYTES: of each


class Shot(NamedTuple):
    """One picture: its capture, the section to scroll to ("" is the top), its height in pixels, and the step to zoom to."""

    capture: str
    section: str
    height: int
    step: str = ""


SHOTS = {
    "first": Shot("public/mnist", "", 600),
    "timeline": Shot("h200/qwen_like", "timeline", 480, "Decoder(4 x 1)"),
}


def taken(chromium: Any, page_file: Path, shot: Shot) -> Iterator[tuple[str, Image.Image]]:
    """Yield the ending of each file's name with its picture."""
    for scheme in ("light", "dark"):
        size = {"width": 1280, "height": shot.height}
        context = chromium.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce", locale="en-US")
        page = context.new_page()
        page.goto(page_file.as_uri())
        page.wait_for_timeout(500)
        for _ in range(2 if shot.section else 0):  # what is drawn on the way moves the section
            page.locator(f"#{shot.section}").evaluate("section => section.scrollIntoView()")
            page.wait_for_timeout(400)
        if shot.step:
            steps = page.locator(f"#{shot.section} select option", has_text=shot.step)
            page.locator(f"#{shot.section} select").select_option(steps.nth(1).get_attribute("value"))
            page.wait_for_timeout(400)
        yield "-dark" if scheme == "dark" else "", Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        context.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the named pictures, or all, into FOLDER."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(SHOTS)} (default: all)")
    names = parser.parse_args(arguments).names or [*SHOTS]
    if unknown := [name for name in names if name not in SHOTS]:
        parser.error(f"there is no picture {unknown[0]}; these are {', '.join(SHOTS)}")
    with tempfile.TemporaryDirectory() as folder, started() as chromium:
        for name in names:
            report.build([EXAMPLES / SHOTS[name].capture / "captures"], Path(folder))
            for ending, picture in taken(chromium, Path(folder) / "report.html", SHOTS[name]):
                drawn = picture.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
                file = FOLDER / f"{name}{ending}.png"
                drawn.save(file, optimize=True)
                assert file.stat().st_size <= MOST_BYTES, file
    return 0


if __name__ == "__main__":
    sys.exit(main())
