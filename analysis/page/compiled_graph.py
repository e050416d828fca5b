"""Draw the graph that torch.compile made: its kernels in the order of their calls, by module, with what each reads."""

from __future__ import annotations

import pandas as pd

from analysis.formats.inductor import INDUCTOR
from analysis.page import mpl
from analysis.page.canvas import BLUE, GREEN, GREY, ORANGE, draw_legend, drawable, new_canvas, place_axes, style_context
from analysis.tables.declare import picture

MOST = 40  # kernels of one picture
_ARC = {"arrowstyle": "-|>", "color": "#999999", "lw": 0.6, "shrinkA": 3, "shrinkB": 3,
        "connectionstyle": "arc3,rad=-0.25"}  # fmt: skip
KINDS = {"product": BLUE, "reduction": ORANGE, "pointwise": GREEN, "other": GREY}


_drawn = picture("compiled_graph", of="compiled")(lambda facts, said: plot_graph(facts.capture.of(INDUCTOR.kind), said))


def kind_of(kernel: str) -> str:
    """Return the kind of a kernel of Inductor, by the prefix that it gives it, or of a library's."""
    if kernel.startswith(("triton_red", "triton_per")):
        return "reduction"
    if kernel.startswith(("triton_poi", "cpp_fused")):
        return "pointwise"
    return "product" if kernel.endswith((".mm", ".addmm", ".bmm", ".baddbmm")) or "triton_tem" in kernel else "other"


def module_of(modules: str) -> str:
    """Return the last of the modules whose operations a kernel fuses: the others feed it."""
    named = [one for one in str(modules).split(";") if one and one != "nan"]
    return named[-1] if named else "no module"


def first_graph(calls: pd.DataFrame) -> pd.DataFrame:
    """Return the first MOST calls of the largest forward graph."""
    forward = calls[calls["backward"] == 0] if (calls["backward"] == 0).any() else calls
    largest = forward["graph"].value_counts(sort=False).idxmax()
    return forward[forward["graph"] == largest].sort_values("call").reset_index(drop=True)


def plot_graph(calls: pd.DataFrame | None, caption: str) -> mpl.Figure | None:
    """Draw one point a kernel: the order of calls to the right, its module below, an arc from each that it reads."""
    if calls is None or calls.empty:
        return None
    graph = first_graph(calls)
    total, graph = len(graph), graph.head(MOST)
    names = [module_of(one) for one in graph["modules"]]
    rows = {name: place for place, name in enumerate(dict.fromkeys(names))}
    at = {int(call): (place, rows[name]) for place, (call, name) in enumerate(zip(graph["call"], names, strict=True))}
    notes = [f"The first {len(graph)} of {total} kernels."] if total > len(graph) else []
    with style_context():
        figure, foot = new_canvas("compiled_graph", 1.6 + 0.26 * len(rows), caption, notes, "Graph of torch.compile")
        axes = place_axes(figure, 2.4, 0.4, 0.75, foot + 0.5)
        for call, reads in zip(graph["call"], _reads(graph), strict=True):
            for source in reads:
                if source in at:
                    axes.annotate("", at[int(call)], at[source], arrowprops=_ARC, zorder=1)
        for name, colour in KINDS.items():
            of = [
                at[int(call)]
                for call, kernel in zip(graph["call"], graph["kernel"], strict=True)
                if kind_of(kernel) == name
            ]
            axes.scatter([x for x, _ in of], [y for _, y in of], s=30, color=colour, zorder=3)
        axes.set_yticks(list(rows.values()), [drawable(name, 36) for name in rows], fontsize=7.5)
        axes.set_ylim(len(rows) - 0.5, -0.6)
        axes.set_xlabel("kernel, in the order of calls", fontsize=8)
        draw_legend(
            figure, [mpl.Line2D([], [], marker="o", ls="", color=colour, label=name) for name, colour in KINDS.items()]
        )
        return figure


def _reads(graph: pd.DataFrame) -> list[list[int]]:
    if "reads" not in graph:
        return [[]] * len(graph)
    return [[int(one) for one in str(value).split(";") if one.isdecimal()] for value in graph["reads"]]
