"""Draw the figures of the study: speed-up over batch, the parts of the trap, and timelines of the forward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.page.canvas import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    WIDTH,
    draw_bar,
    draw_legend,
    new_canvas,
    place_axes,
    style_context,
)
from analysis.tables.declare import picture
from studies.multi_gpu import predict
from studies.multi_gpu.claims import FORWARD, OPS
from studies.multi_gpu.predict import GPUS

MODES = {"dp": "data parallel", "tp": "tensor parallel"}
_COLOURS = dict(zip(predict.TOKENS, (SKY, GREEN, ORANGE, BLUE), strict=True))
WAYS = ("trap", "resident")
_PARTS = {"allocate_ns": (VERMILION, "allocate and free"), "copy_ns": (PURPLE, "copy"), "compute_ns": (BLUE, "compute")}
_KINDS = {"kernel": BLUE, "memcpy": PURPLE, "memset": GREY}
_UNSEEN_NS = 15_000.0  # of a timeline of 70 ms and a thousand pixels
# ranges of a call, measure_trap.Slices
_HOST = {"allocate and copy": VERMILION, "compute": SKY, "copy back": ORANGE, "free": BLACK}


@picture("multi_gpu", of="multi_gpu")
def plot_speedups(multi_gpu: pd.DataFrame, caption: str) -> Figure:
    """Plot the speed-up of two GPUs over the batch: predictions as lines, measurements as points."""
    panels = [(mode, step) for mode in MODES for step in ("prefill", "decode")]
    width = (WIDTH - 0.3) / len(panels)
    with style_context():
        figure, foot = new_canvas("multi_gpu", 3.6, caption, (), "Speed-up of two GPUs, GPU time")
        for place, (mode, step) in enumerate(panels):
            left = place * width + 0.5
            axes = place_axes(figure, left, WIDTH - left - width + 0.55, 1.0, foot + 0.5)
            rows = multi_gpu[(multi_gpu["mode"] == mode) & (multi_gpu["step"] == step)]
            _speedup_panel(axes, rows)
            axes.set_title(f"{MODES[mode]}, {step}", fontsize=8.5)
        handles = [Line2D([], [], color=colour, label=f"T {tokens}") for tokens, colour in _COLOURS.items()]
        handles.append(Line2D([], [], color=BLACK, marker="o", ls="", ms=4, label="measured"))
        draw_legend(figure, handles)
        return figure


def _speedup_panel(axes: Axes, rows: pd.DataFrame) -> None:
    for tokens, of in rows.groupby("tokens"):
        axes.plot(of["batch"], of["speedup"], "--", color=_COLOURS[int(tokens)], lw=1.2)
        found = of.dropna(subset=["measured_speedup"])
        axes.plot(found["batch"], found["measured_speedup"], "o", color=_COLOURS[int(tokens)], ms=4)
    axes.axhline(1, color=GREY, lw=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(predict.BATCHES), [str(batch) for batch in predict.BATCHES])
    axes.set_ylim(0, 2.2)
    axes.set_xlabel("batch")


@picture("multi_gpu_claims", of="multi_gpu_claims")
def plot_trap(multi_gpu_claims: pd.DataFrame, caption: str) -> Figure:
    """Plot predicted times of one GPU, of the trap by its parts, and of resident slices; measured times as points."""
    found = multi_gpu_claims.set_index(["op", "way"])[["found_one_ns", "found_ns"]].astype(float)
    expected = {one["op"]: one for one in predict.frozen(predict.TRAP_TABLE) if int(one["gpus"]) == GPUS}
    ops = (*OPS, FORWARD)
    width = (WIDTH - 0.5) / len(ops)
    with style_context():
        figure, foot = new_canvas("multi_gpu_claims", 2.6, caption, (), "The trap on two GPUs, and its cure: predicted")
        for place, op in enumerate(ops):
            left = place * width + 0.75
            axes = place_axes(figure, left, WIDTH - left - width + 0.35, 0.9, foot + 0.5)
            measured = [found.at[(op, "trap"), "found_one_ns"], *(found.at[(op, way), "found_ns"] for way in WAYS)]
            _trap_panel(axes, {name: float(expected[op][name]) for name in _NUMBERS}, measured, first=place == 0)
            axes.set_title(op, fontsize=8.5)
        handles = [Patch(color=colour, label=label) for colour, label in _PARTS.values()]
        draw_legend(figure, [*handles, Line2D([], [], color=BLACK, marker="o", ls="", ms=4, label="measured")])
        return figure


_NUMBERS = ("one_ns", "allocate_ns", "copy_ns", "trap_ns", "resident_speedup")


def _trap_panel(axes: Axes, one: dict[str, float], found: list[float], *, first: bool) -> None:
    """Draw the three bars of one op, in ms: one GPU, the trap, resident slices; `found` their measured ns, or NaN."""
    compute = one["trap_ns"] - one["allocate_ns"] - one["copy_ns"]
    resident = one["one_ns"] / one["resident_speedup"]
    draw_bar(axes, 0, 0, one["one_ns"] / 1e6, 0.6, color=BLUE)
    start = 0.0
    for name, (colour, _) in _PARTS.items():
        part = compute if name == "compute_ns" else one[name]
        draw_bar(axes, 1, start / 1e6, part / 1e6, 0.6, color=colour)
        start += part
    draw_bar(axes, 2, 0, resident / 1e6, 0.6, color=BLUE)
    axes.plot([value / 1e6 for value in found], range(3), "o", color=BLACK, ms=4)
    axes.set_xlim(0, 1.05 * np.nanmax([one["trap_ns"], one["one_ns"], *found]) / 1e6)
    axes.set_ylim(2.6, -0.6)
    axes.set_yticks(range(3), ["one GPU", "trap", "resident"] if first else [""] * 3)
    axes.set_xlabel("ms")


@picture("multi_gpu_timeline", of="multi_gpu_claims")
def plot_timeline(gpu_ops: pd.DataFrame, ranges: pd.DataFrame, caption: str) -> Figure | None:
    """Plot what host and GPUs do over time in the forward pass (nsys), as the trap and with resident slices."""
    ways = {way: gpu_ops[gpu_ops["path"].str.startswith(f"{FORWARD} {way}")] for way in WAYS}
    if any(rows.empty for rows in ways.values()):
        return None
    calls = {way: ranges[ranges["path"] == f"{FORWARD} {way}"].iloc[0] for way in WAYS}
    lanes = ["host", *sorted(set(gpu_ops["device"]))]
    last = max(
        max(float((rows["start_ns"] + rows["duration_ns"]).max()), float(calls[way]["end_ns"]))
        - float(calls[way]["start_ns"])
        for way, rows in ways.items()
    )
    with style_context():
        height = 0.35 * len(lanes) + 0.75
        figure, foot = new_canvas("multi_gpu_timeline", 1.0 + 2 * height, caption, (), "The forward pass on two GPUs")
        for place, (way, rows) in enumerate(ways.items()):
            below = foot + 0.1 + (1 - place) * height
            axes = place_axes(figure, 1.1, 0.3, 0.7 + place * height + 0.25, below + 0.4)
            _timeline_panel(axes, rows, _parts_of_call(ranges, calls[way]), lanes, float(calls[way]["start_ns"]))
            axes.set_xlim(0, last / 1e6)
            names = ["host", *(f"GPU {number}" for number in range(len(lanes) - 1))]
            axes.set_yticks(range(len(lanes)), [f"{way}, {name}" for name in names])
        drawn = {kind: _KINDS[kind] for kind in _KINDS if (gpu_ops["kind"] == kind).any()}
        drawn |= {f"host: {name}": colour for name, colour in _HOST.items()}
        draw_legend(figure, [Patch(color=colour, label=label) for label, colour in drawn.items()])
        return figure


def _parts_of_call(ranges: pd.DataFrame, call: pd.Series) -> pd.DataFrame:
    """Return the ranges directly inside a call, by name: what the host does."""
    inside = ranges["start_ns"].ge(call["start_ns"]) & ranges["end_ns"].le(call["end_ns"])
    return ranges[inside & ranges["name"].isin(_HOST) & ranges["path"].str.startswith(f"{call['path']}/")]


def _drawn_as_one(rows: pd.DataFrame) -> list[tuple[float, float]]:
    """Return (start, end) in ns of operations of one kind, as one where less than a fifth of a pixel lies between."""
    spans: list[tuple[float, float]] = []
    for begin, duration in rows.sort_values("start_ns")[["start_ns", "duration_ns"]].astype(float).to_numpy():
        if spans and begin - spans[-1][1] < _UNSEEN_NS:
            spans[-1] = (spans[-1][0], max(spans[-1][1], begin + duration))
        else:
            spans.append((begin, begin + duration))
    return spans


def _timeline_panel(axes: Axes, rows: pd.DataFrame, parts: pd.DataFrame, lanes: list[Any], start: float) -> None:
    """Draw what the host does in its lane, and the GPUs' operations in theirs, in ms since `start`."""
    for part in parts.itertuples(index=False):
        begin, end = (float(part.start_ns) - start) / 1e6, (float(part.end_ns) - start) / 1e6
        draw_bar(axes, 0, begin, end - begin, 0.7, color=_HOST[str(part.name)], lw=0)
    for (device, kind), own in rows.groupby(["device", "kind"], sort=False):
        colour, lane = _KINDS.get(str(kind), GREY), lanes.index(device)
        for begin, end in _drawn_as_one(own):
            draw_bar(axes, lane, (begin - start) / 1e6, (end - begin) / 1e6, 0.7, color=colour, lw=0)
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_xlabel("ms")
