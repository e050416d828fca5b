"""Share the basis of every figure: style, colours, a canvas with title and foot, and deterministic bytes.

Every figure is a bare `Figure` (no pyplot, no global state). `to_bytes` gives SVG and PNG with the same bytes on every
run: fixed hash salt, no date, no creator. SVG text stays text (`svg.fonttype: none`). This gives small files, names
that a reader can select and search, and no glyph outlines in the bytes. The layout uses the widths of DejaVu Sans,
which matplotlib ships. A viewer without it uses Verdana, which has the same widths. So only another matplotlib or
Pillow can cause differences between machines, and both are pinned.
"""

from __future__ import annotations

import functools
import io
import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.page import colours, mpl, text

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

STYLE: dict[str, Any] = {
    "figure.dpi": 100,
    "savefig.dpi": 120,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.labelcolor": "#333333",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "text.parse_math": False,  # a `$` in a kernel's name is a character, not a formula
    "text.usetex": False,
    "text.hinting": "no_hinting",  # hinted letters are no sharper at this size, and take half as long again
    "svg.fonttype": "none",
    "path.simplify": False,
}

BLUE, ORANGE, GREEN, SKY = colours.BLUE, colours.ORANGE, colours.GREEN, colours.SKY
SLATE, WINE = colours.SLATE, colours.WINE
VERMILION, PURPLE, YELLOW, BLACK = colours.VERMILION, colours.PURPLE, colours.YELLOW, colours.BLACK
GREY, LIGHT_GREY = colours.GREY, colours.LIGHT_GREY

WIDTH = 10.5  # inches, for every figure


def style_context(**more: Any) -> AbstractContextManager[None]:
    settings: Any = {**STYLE, **more}  # matplotlib types the keys as a literal of all its 300 names
    return mpl.rc_context(settings)


def to_bytes(figure: mpl.Figure) -> dict[str, bytes]:
    """{'svg': …, 'png': …}; the same figure gives the same bytes."""
    return {"svg": to_svg(figure), "png": to_png(figure)}


def to_png(figure: mpl.Figure) -> bytes:
    """Return the PNG with a palette of 256: a colour is off by 1 of 255 on average, and by 40 at most."""
    from PIL import Image

    pixels, png = io.BytesIO(), io.BytesIO()
    with style_context():
        figure.savefig(pixels, format="rgba")
        width = int(figure.get_figwidth() * mpl.rcParams["savefig.dpi"])
    drawn = pixels.getvalue()
    image = Image.frombytes("RGBA", (width, len(drawn) // 4 // width), drawn).convert("RGB")
    image.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(png, "PNG")
    return png.getvalue()


def to_svg(figure: mpl.Figure) -> bytes:
    """Return the SVG alone. Its ids start with the figure's label, so that one page can hold several figures inline."""
    name = str(figure.get_label()) or "figure"
    with style_context(**{"svg.hashsalt": name}):
        svg = io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    source = svg.getvalue().decode("utf-8")
    for mark in (' id="', "url(#", 'href="#'):
        source = source.replace(mark, f"{mark}{name}-")
    source = source.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    # a screen does not show 0.01 pt
    source = re.sub(r' (?:d|x|y|transform)="[^"]*"', lambda place: re.sub(r"(\.\d\d)\d+", r"\1", place[0]), source)
    return source.encode("utf-8")


def compact(svg: bytes) -> bytes:
    """Return the same picture in fewer bytes, for figures with many texts and patches.

    Repeated styles appear once, and no group is empty or holds only one element.
    """
    font = b"font-family: 'DejaVu Sans', Verdana, sans-serif, sans-serif"
    svg = re.sub(rb' transform="rotate\(-0 [^"]*\)"', b"", svg.replace(font + b"; ", b""))
    svg = re.sub(rb'\s*<g id="[^"]*line2d_[0-9]+"/>', b"", svg)
    one = rb"(<text [^>]*>[^<]*</text>|<path [^>]*/>)"
    for _ in range(2):  # the group of a text is inside that of its tick
        svg = re.sub(rb'<g id="[^"]*(?:text|patch|tick)_[0-9]+">\s*' + one + rb"\s*</g>", rb"\1", svg)
    svg = re.sub(rb"\n +", b"\n", svg)
    svg = re.sub(rb'(?<= d=")[^"]*', lambda path: re.sub(rb"\s*([A-Za-z])\s*", rb"\1", path[0]), svg)
    svg = re.sub(rb"M([-\d.]+) ([-\d.]+)L([-\d.]+) \2L\3 ([-\d.]+)L\1 \4z", _rectangle, svg)
    return _share_styles(svg).replace(b"<svg ", b'<svg style="' + font + b'" ', 1)


def _rectangle(corners: re.Match[bytes]) -> bytes:
    """Return the path of a rectangle by its width and height."""
    left, top, right, bottom = (float(one) for one in corners.groups())
    width = f"{right - left:.2f}".rstrip("0").rstrip(".")
    return f"M{corners[1].decode()} {corners[2].decode()}h{width}v{bottom - top:.2f}h-{width}z".replace(
        "--", ""
    ).encode()


def _share_styles(svg: bytes) -> bytes:
    """Turn styles that occur more than once into classes, named after the figure like its ids."""
    figure = re.search(rb'id="([^"]*-)figure_1"', svg)
    assert figure is not None
    counts = Counter(re.findall(rb' style="([^"]*)"', svg))
    rules = b""
    for number, style in enumerate(style for style, count in counts.items() if count > 1):
        name = figure[1] + b"%d" % number
        svg = svg.replace(b' style="' + style + b'"', b' class="' + name + b'"')
        rules += b".%s{%s}" % (name, style)
    return svg.replace(b"</style>", rules + b"</style>", 1)


def drawable(value: Any, width: int, head: float = 0.6) -> str:
    """Return the shortened name, with `?` for characters that the figure's font lacks (they would become boxes)."""
    known = _glyphs()
    return "".join(c if ord(c) in known else "?" for c in text.shorten(value, width, head))


@functools.cache
def _glyphs() -> Mapping[int, int]:
    font = mpl.get_font(mpl.findfont("DejaVu Sans"))
    return font.get_charmap()


def new_canvas(
    label: str, body: float, caption: str, notes: Sequence[str] = (), title: str = ""
) -> tuple[mpl.Figure, float]:
    """Return a figure with `body` inches above a foot of notes and caption, and the height of the foot."""
    columns = int(WIDTH * 16.5)  # number of characters of the caption's size that fit
    lines = [line for note in notes for line in textwrap.wrap(note, columns)]
    lines += textwrap.wrap(drawable(caption, 600), columns)
    foot = 0.16 * len(lines) + 0.12
    height = body + foot
    figure = mpl.Figure(figsize=(WIDTH, height), label=label)
    for i, line in enumerate(lines):
        y = (foot - 0.16 * (i + 1)) / height
        figure.text(0.12 / WIDTH, y, line, fontsize=7.5, color="#555555", va="bottom")
    figure.text(0.12 / WIDTH, 1 - 0.27 / height, title, fontsize=11, weight="bold")
    return figure, foot


def place_axes(figure: mpl.Figure, left: float, right: float, top: float, bottom: float) -> mpl.Axes:
    """Return axes with margins in inches: longer labels move nothing, so the output stays deterministic."""
    width, height = figure.get_size_inches()
    return figure.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    )


def draw_bar(axes: mpl.Axes, y: float, left: float, width: float, height: float, **style: Any) -> None:
    """Draw one bar at `y`, in data units.

    It is far faster than `barh`, which checks all bars each time; it sets no limits.
    """
    axes.add_patch(mpl.Rectangle((left, y - height / 2), width, height, **style))


def draw_legend(figure: mpl.Figure, handles: Sequence[Any]) -> None:
    """Draw the legend of the colours, in rows of five below the title."""
    top = 1 - 0.36 / figure.get_size_inches()[1]
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.0, top),
        ncols=5,
        fontsize=7.5,
        handlelength=1.3,
        columnspacing=1.4,
    )
