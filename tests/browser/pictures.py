"""Draw the pictures of README.md and docs/tour.md: pages of committed runs in headless Chromium.

python -m tests.browser.pictures           # draws all of them, after a change of a page or a run
python -m tests.browser.pictures report    # draws one
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from PIL import Image

from tests.browser.chromium import started

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "pictures"
COLOURS = 256
MOST_BYTES = 600_000  # of all of them
OVERVIEW, LAYERS = "h200-gpt2-fp32", "h200-gpt2-layers"


class Shot(NamedTuple):
    """One picture: a run of reports/, the place in its page, its height in pixels, and the actions before it."""

    run: str
    fragment: str
    height: int
    act: Callable[[Any], None] | None = None


def _at(section: str) -> Callable[[Any], None]:
    def scroll(page: Any) -> None:
        page.locator(f"#{section}").evaluate("section => section.scrollIntoView()")
        page.wait_for_timeout(400)
        page.locator(f"#{section}").evaluate("section => section.scrollIntoView()")

    return scroll


def heaviest() -> str:
    """Return the kernel with the most time in a decode step of the run OVERVIEW."""
    with (ROOT / "reports" / OVERVIEW / "tables" / "kernels.csv").open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["range"].startswith("gpt2/decode/")]
    time: dict[str, float] = {}
    for row in rows:
        time[row["kernel"]] = time.get(row["kernel"], 0.0) + float(row["nsys_time_ns"])
    return max(time, key=lambda kernel: time[kernel])


def _of(range_: str) -> str:
    return f"#range={quote(range_, safe='')}"


SHOTS = {
    "report": Shot(OVERVIEW, "", 545),
    "decode": Shot(OVERVIEW, _of("gpt2/decode"), 480),
    "timeline": Shot(OVERVIEW, _of("gpt2/decode"), 580, _at("timeline")),
    "gaps": Shot(OVERVIEW, _of("gpt2/decode"), 330, _at("gaps")),
    "roofline": Shot(OVERVIEW, _of("gpt2/decode"), 620, _at("roofline")),
    "kernel": Shot(OVERVIEW, "#kernel=", 640),
    "fusion": Shot(OVERVIEW, _of("gpt2/decode"), 480, _at("fusion")),
    "baseline": Shot(LAYERS, "", 500, _at("baseline")),
}


def taken(chromium: Any, names: Sequence[str] = tuple(SHOTS)) -> Iterator[tuple[str, Image.Image]]:
    """Yield each of `names` with its picture."""
    for name in names:
        run, fragment, height, act = SHOTS[name]
        size = {"width": 1280, "height": height}
        context = chromium.new_context(viewport=size, color_scheme="light", reduced_motion="reduce", locale="en-US")
        context.set_default_timeout(20_000)
        page = context.new_page()
        fragment += quote(heaviest(), safe="") if fragment == "#kernel=" else ""
        page.goto((ROOT / "reports" / run / "report.html").as_uri() + fragment)
        page.wait_for_timeout(300)
        if act is not None:
            act(page)
        page.mouse.move(0, 0)
        page.wait_for_timeout(200)
        yield name, Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        context.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the named pictures, or all, into FOLDER."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(SHOTS)} (default: all)")
    names = parser.parse_args(arguments).names or [*SHOTS]
    if unknown := [name for name in names if name not in SHOTS]:
        parser.error(f"there is no picture {unknown[0]}; these are {', '.join(SHOTS)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with started() as chromium:
        for name, picture in taken(chromium, names):
            picture.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
                FOLDER / f"{name}.png", optimize=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
