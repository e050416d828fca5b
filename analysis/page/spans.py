"""Draw what shows a finding: a step before and after its change, else a stretch of the timeline, the host above."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.diagnosis.scenes import Bars, Scene, scenes_of
from analysis.page import mpl, text
from analysis.page.canvas import (
    BLACK,
    GREEN,
    GREY,
    LIGHT_GREY,
    ORANGE,
    SKY,
    SLATE,
    VERMILION,
    draw_legend,
    drawable,
    new_canvas,
    place_axes,
    style_context,
)
from analysis.tables.declare import Drawn, Facts, picture

_COLOURS = {
    "about": VERMILION, "kernel": SLATE, "graph": GREEN, "memcpy": SKY, "memset": SKY, "migration": SKY,
    "range": LIGHT_GREY, "launch": ORANGE, "call": GREY,
}  # fmt: skip
_MEANINGS = {
    "about": "what the finding is about", "kernel": "other kernels", "graph": "CUDA graphs as a whole",
    "memcpy": "copies and sets", "range": "ranges", "launch": "launches", "call": "calls that wait or set up",
}  # fmt: skip
_INK = "#10151a"  # on a bright bar, in light and dark mode
_ROW = 0.24  # inches
_LETTERS = 120  # that fit across the whole width in the smallest font
_NOTE = "Upper rows: the host. Lower rows: the GPU at the same time. A kernel runs later than its launch."
_REPLAYED = "Both begin at 0; a step ends where the next one begins."


@picture("finding_[0-9]*", of="spans", compact=True)
def plot_spans(facts: Facts, caption: str) -> Iterator[Drawn]:
    """Draw one figure for each scene: the host's ranges and calls in its span, and each stream of the GPU."""
    for scene in facts.once(scenes_of):
        if scene.lanes:
            yield Drawn(
                name=f"finding_{scene.rank}",
                figure=_figure(scene, caption),
                caption=f"{scene.span.shows}  ·  {caption}",
            )


def _figure(scene: Scene, caption: str) -> mpl.Figure:
    """Draw one scene. Each lane is 0.24 inches high."""
    notes = [scene.span.shows, _NOTE if scene.after is None else _REPLAYED]
    with style_context():
        figure, foot = new_canvas(
            f"finding_{scene.rank}", 1.5 + _ROW * len(scene.lanes), caption, notes,
            f"{scene.rank}. {drawable(scene.title, 120)}",
        )  # fmt: skip
        axes = place_axes(figure, 1.9, 0.2, 0.9, foot + 0.5)
        begin, length = scene.span.start_ns, scene.span.end_ns - scene.span.start_ns
        for place, lane in enumerate(scene.lanes):
            _draw_bars(axes, lane.bars, place, begin, length)
        if scene.after is not None:
            _mark_saving(axes, scene.after, len(scene.lanes), length)
        labels = [drawable(lane.label, 34) for lane in scene.lanes]
        axes.set_yticks(range(len(labels)), labels, fontsize=7)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_xlim(0, length)
        axes.xaxis.set_major_formatter(mpl.FuncFormatter(lambda value, _: text.number(value, "ns") if value else "0"))
        axes.set_xlabel(f"after {begin / 1e9:.9f} s" if scene.after is None else "time since the step began")
        axes.grid(visible=True, axis="x")
        used = {kind for lane in scene.lanes for kind in lane.bars.kind}
        used = {"memcpy" if kind in ("memset", "migration") else kind for kind in used}
        handles = [mpl.Patch(color=_COLOURS[kind], label=said) for kind, said in _MEANINGS.items() if kind in used]
        draw_legend(figure, handles)
        return figure


def _mark_saving(axes: mpl.Axes, after: tuple[int, float, str], lanes: int, length: int) -> None:
    """Draw a line between the step before and after, and hatch what is saved. Units: ns for `length`."""
    old, end, said = after
    axes.axhline(old - 0.5, color=BLACK, lw=0.8)
    if end < length:
        axes.add_artist(
            mpl.Rectangle((end, old - 0.45), length - end, lanes - old - 0.1, fc="white", ec=GREEN, hatch="///", lw=0.8)
        )
        if (length - end) / length * _LETTERS > len(said):
            box = {"facecolor": "white", "edgecolor": "none", "pad": 2}
            middle = (old + lanes) / 2 - 0.5
            axes.text((end + length) / 2, middle, said, ha="center", va="center", fontsize=8, color=BLACK, bbox=box)


def _draw_bars(axes: mpl.Axes, bars: Bars, place: int, begin: int, length: int) -> None:
    """Draw the bars of one lane, with one path for each colour, and write names where they fit.

    Units: ns for `begin` and `length`.
    """
    for colour in dict.fromkeys(_COLOURS[kind] for kind in bars.kind):
        points, codes = [], []
        for start, end, kind in zip(bars.start.tolist(), bars.end.tolist(), bars.kind, strict=True):
            if _COLOURS[kind] == colour:
                left, right = start - begin, max(end - begin, start - begin + length // 1000)
                corners = [(left, place - 0.38), (right, place - 0.38), (right, place + 0.38), (left, place + 0.38)]
                points += [*corners, corners[0]]
                codes += [mpl.Path.MOVETO, *[mpl.Path.LINETO] * 3, mpl.Path.CLOSEPOLY]
        axes.add_artist(
            mpl.PathPatch(
                mpl.Path(points, codes), facecolor=colour, edgecolor="white", lw=0.4 if len(bars.start) < 80 else 0
            )
        )
    for start, end, name, kind in zip(bars.start.tolist(), bars.end.tolist(), bars.name, bars.kind, strict=True):
        room = int((end - start) / length * _LETTERS)
        if name and room >= 4:
            ink = "white" if _COLOURS[kind] in (SLATE, VERMILION, GREEN, GREY) else _INK
            middle, shown = (start + end) / 2 - begin, drawable(name, room)
            axes.text(middle, place, shown, ha="center", va="center", fontsize=6.5, color=ink)
