"""allocation, compile_in_loop, graph_each_step: calls that belong before the loop."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from analysis.diagnosis.step_rules.view import COMPILES, GRAPHS, Proposal, View
from analysis.formats.words import count_of, duration
from analysis.replay.graph import ALLOCATION, NONE, Bools, Graph

_KEEPS = "Let the pool keep its memory: cudaMemPoolSetAttribute with cudaMemPoolAttrReleaseThreshold."
_PLANS = (
    "Keep cuFFT's plans, one for each shape: cupyx.scipy.fft.get_fft_plan, a larger cupy.fft.config.get_plan_cache() "
    "or torch.backends.cuda.cufft_plan_cache, or cufftPlanMany before the loop."
)
LEAST = 3  # calls that allocate or build graphs in a step that does not repeat: fewer are no loop


def propose(view: View) -> Iterator[Proposal]:
    """Propose to do once what the steps do again and again."""
    yield from _again(view, view.called(ALLOCATION.pattern) & ~view.recording, "allocation", "Allocate memory once",
                      "allocate{0} or free{0} memory", "sizes grow from step to step", False)  # fmt: skip
    yield from _again(view, view.compiles, "compile_in_loop", "Compile and load kernels before the loop",
                      "load{0} or compile{0} kernels", "each step needs a kernel that no earlier step had",
                      True)  # fmt: skip
    if view.of_step(np.count_nonzero(view.recording & view.compiles)) >= COMPILES:
        return  # a compiler makes a graph of what it has just compiled
    yield from _again(view, view.called(GRAPHS), "graph_each_step", "Instantiate the CUDA graph once",
                      "record{0} or instantiate{0} CUDA graphs", "the graph differs in each step", True)  # fmt: skip


def _again(
    view: View, called: Bools, kind: str, title: str, does: str, wrong_if: str, with_host: bool
) -> Iterator[Proposal]:
    """Propose to leave these calls out, with the host work before them if that is theirs (a compiler)."""
    graph = view.graph
    count = view.of_step(np.count_nonzero(called))
    if count < (COMPILES if view.repeats or kind == "compile_in_loop" else LEAST):
        return
    if with_host and view.is_run:
        kind, title = "start_up", "Do not count what happens once"
    names = sorted({str(name) for name in graph.c_name[called]})
    called = view.recording if kind == "graph_each_step" else called
    time = view.of_step((graph.c_end - graph.c_start)[called].sum())
    trims = view.trims & np.bool_(kind == "allocation")
    time += view.of_step(graph.c_tail[trims].sum())
    plans = kind == "compile_in_loop" and "fft" in view.most(view.kernels)
    own = called | (view.compiling if kind == "compile_in_loop" else False)
    if with_host:
        time += view.of_step(graph.c_gap[own].sum())

    def change(base: Graph, share: float) -> Graph:
        gap = np.where(own & np.bool_(with_host), 0.0, base.c_gap)
        gap = np.where(called & ~np.bool_(with_host), gap * (1 - share), gap)
        return replace(
            base, c_own=np.where(called, 0.0, base.c_own), c_gap=gap, c_wait=np.where(called, NONE, base.c_wait),
            c_tail=np.where(called | trims, 0.0, base.c_tail),
        )  # fmt: skip

    yield Proposal(
        kind=kind, about=names[0], title=title,
        sentence=f"{count_of(count, 'call a step ' + does.format('s'), 'calls a step ' + does.format(''))}, "
        f"for {duration(time)}: {', '.join(names[:3])}."
        + (" The waits last on after the GPU is done, as where a pool gives its memory back." if trims.any() else ""),
        change=change, count=count, time_ns=time, wrong_if=wrong_if,
        do=_KEEPS if trims.any() else _PLANS if plans else "",
    )  # fmt: skip
