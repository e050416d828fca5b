"""Draw the bandwidth of each link over the size of a transfer, with the program's collectives as rings."""

from __future__ import annotations

from analysis.page import mpl, text
from analysis.page.canvas import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    draw_legend,
    new_canvas,
    place_axes,
    style_context,
)
from analysis.tables.declare import Facts, picture

# Link or kind of collective -> colour. Links of the host are drawn dashed.
_COLOURS = {
    "all_reduce": BLUE,
    "all_gather": GREEN,
    "reduce_scatter": PURPLE,
    "peer_copy": VERMILION,
    "host_to_device_pinned": ORANGE,
    "host_to_device_pageable": SKY,
    "device_to_host_pinned": GREY,
    "device_to_host_pageable": BLACK,
}


@picture("links", of="links")
def plot_links(facts: Facts, caption: str) -> mpl.Figure | None:
    """Draw bandwidth over size on two log axes: one line for each link, one ring for each kind of collective.

    A kind of collective without bytes or bandwidth gets no ring; a note counts these. Without links, return None.
    Shape: `links` links.csv, `collectives` collectives.csv.
    """
    links, collectives = facts.links, facts.collectives
    if links.empty:
        return None
    known = collectives.dropna(subset=["bytes", "bus_byte_per_s"]) if len(collectives) else collectives
    unknown = len(collectives) - len(known)
    notes = (
        ["For collectives, the rate is the bus bandwidth of nccl-tests. Rings are collectives of the program."]
        if len(known)
        else ["For collectives, the rate is the bus bandwidth of nccl-tests."]
    )
    if unknown:
        notes.append(
            f"{unknown} of {len(collectives)} kinds of collectives have no ring: their bytes or waiting are unknown."
        )
    with style_context():
        figure, foot = new_canvas("links", 5.0, caption, notes, "Links: rate over the size of a transfer")
        axes = place_axes(figure, 0.9, 0.3, 0.85, foot + 0.55)
        handles = []
        for (name, ranks), rows in links.sort_values("bytes").groupby(["link", "ranks"], sort=False):
            style = "--" if str(name).startswith(("host", "device")) else "-"
            label = f"{name}, {ranks} GPUs" if int(ranks) > 1 else str(name)
            handles += axes.plot(
                rows["bytes"].astype(float), rows["byte_per_s"].astype(float), style, marker=".", ms=3.5, lw=1.3,
                color=_COLOURS.get(str(name), GREY), label=label,
            )  # fmt: skip
        for row in known.itertuples():
            axes.plot(
                float(row.bytes), float(row.bus_byte_per_s), "o", ms=7, mfc="none", mew=1.4,
                color=_COLOURS.get(str(row.kind), GREY),
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(mpl.FuncFormatter(lambda value, _: text.number(value, "byte")))
        axes.yaxis.set_major_formatter(mpl.FuncFormatter(lambda value, _: text.number(value, "byte/s")))
        axes.set_xlabel("size of the transfer")
        axes.set_ylabel("rate of the link, one way")
        axes.grid(visible=True)
        draw_legend(figure, handles)
        return figure
