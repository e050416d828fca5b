"""The causes that counters tell of single kernels, as changes of the step."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from analysis.diagnosis.step_rules.view import Proposal, View
from analysis.formats import symbols
from analysis.formats.report import Confidence
from analysis.formats.words import count_of, duration
from analysis.replay import changes
from analysis.replay.graph import Bools, Graph

LEAST = 0.005  # of the step: what a shorter kernel could save is not worth a look
# Kernels of libraries and compilers: nobody edits their grid or their loops, so other rules say what to call instead.
_CLOSED = re.compile(
    r"\b(at|c10|cub|thrust|cutlass|cudnn|cufft|cublas\w*|gemvx?|internal)::|cutlass|nvjet|xmma|cudnn|cublas|nccl|gemm|gemv"
    r"|splitKreduce|softmax_warp_|elementwise_kernel|^(ampere|volta|turing|hopper|sm\d+)_|^triton_(poi|red|per|tem|mm)_|^(loop|input|wrapped)_\w+|_fusion"
)
LOW = 0.25  # of the bound: of built fixes, few win less than a quarter of it


def propose(view: View) -> Iterator[Proposal]:
    """Propose to make a kernel faster, by the share of its time that its first cause explains."""
    rows = view.counted
    if rows is None or rows.empty:
        return
    first = rows[(rows["rank"] == 1) & (rows["gain_bound_frac"].astype(float) > 0)]
    for kernel, own in first.groupby("kernel", sort=False):
        ops = view.kernels & (view.keys == symbols.key(str(kernel)))
        time = view.time(ops)
        if view.share(time) < LEAST or any(_CLOSED.search(name) for name in {str(kernel), *view.names[ops]}):
            continue
        row = own.iloc[0]
        gain = float(own["gain_bound_frac"].astype(float).mean())

        def faster(base: Graph, share: float, ops: Bools = ops, gain: float = gain) -> Graph:
            return changes.scale(base, ops, 1 - gain * (LOW + share * (1 - LOW)))

        name, count = symbols.short(str(kernel)), view.of_step(np.count_nonzero(ops))
        yield Proposal(
            kind=str(row["defect"]), about=name, title=f"Make {name} faster",
            sentence=(
                f"{count_of(round(count), 'launch', 'launches')} a step take {duration(time)}. {row['reason']}"
            ),
            change=faster, count=count, time_ns=time,
            sure=Confidence.LIKELY if float(row["sure_frac"]) >= 0.7 else Confidence.UNSURE,
        )  # fmt: skip
