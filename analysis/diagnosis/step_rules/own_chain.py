"""fuse: kernels of one's own that go over the same elements one after another, each from memory to memory.

A timeline has no arrays. But kernels of unlike functions that follow each other on a stream with one grid and one
block, for about as long, and whose names tell of work on each element or row by itself, most likely give each thread
the same elements. Any other name may stand for a kernel that reads what other blocks wrote, as stencils do. Variants of
one function (`add_x` and `add_y`, `scale<0>` and `scale<1>`) go along other axes.
"""

import math
import re
from collections.abc import Iterator

import numpy as np

from analysis.diagnosis.step_rules.kernels import FILL, LEAST, LONG_NS, one_kernel_of_each
from analysis.diagnosis.step_rules.view import SYNCHRONISES, Proposal, View, of_each
from analysis.formats import symbols
from analysis.formats.words import count_of, duration
from analysis.fusion.opmap import is_matrix
from analysis.replay import changes
from analysis.replay.graph import Bools

WAVES, MOVES = 4, 512.0  # of a grid; bytes a thread: a kernel that takes longer is not limited by DRAM
ALIKE = 2.5  # times the shortest kernel of a chain at most, the longest takes: all move about as many tensors
THREADS = 2048  # of an SM
# Kernels of libraries besides those that `symbols.is_closed` knows; their passes depend on other blocks.
_LIBRARY = re.compile(r"(?i)cupy_|fft|rand|sparse|solver|trsm|getrf|potrf|sort|scan|flash|attention|fmha|spmv|gemm")
# Words in names of kernels that need no other element, or row. Codes on lattices often make one of their two steps.
_APART = re.compile(
    r"(element|point)wise|ewise|functor|add|sub|mul|div|[sd]?axpb?y|fma|scale|bias|(re|ge|si)lu|act|activation|sigmoid|tanh"
    r"|swish|exp|log|sqrt|abs|neg|pow|square|clip|clamp|dropout|mask|lerp|blend|gain|offset|gamma|threshold|tonemap|gr[ae]y"
    r"|(de)?quanti[sz]e|collide|collision|propagate|rows?"
)

_TIMED = r"(?i)triad"  # STREAM times each kernel by itself, with the clock of the host


def propose(view: View) -> Iterator[Proposal]:
    """Propose one kernel for each chain of own kernels that work on each element, or row, by itself."""
    if view.library == "jax" or view.named(_TIMED).any():
        return  # a compiler chose what it fuses
    runs = chains(view)
    inside = view.inside(runs)
    time, count = view.time(inside), view.of_step(np.count_nonzero(inside))
    if view.share(time) < LEAST:
        return
    yield Proposal(
        kind="fuse", about=symbols.short(view.most(inside)),
        title=f"Fuse {count_of(count, 'kernel')} into {round(view.of_step(len(runs))) or 1}",
        sentence=(
            f"{count_of(count, 'kernel')} of one grid follow each other and take {duration(time)} of each step; "
            "each likely reads what the one before wrote."
        ),
        change=lambda base, share: one_kernel_of_each(base, runs, share), most_ns=view.taken(runs),
        count=count, time_ns=time, wrong_if="a block needs what another block of the kernel before wrote",
        do="Let one kernel keep the values in registers between these steps, and write the last ones alone.",
    )  # fmt: skip


def chains(view: View) -> list[np.ndarray]:
    """Return the runs of own kernels of unlike functions with one grid that follow each other on a stream."""
    graph, found = view.graph, []
    own = view.kernels & view.each(_is_own, bool) & (graph.o_fill >= FILL) & (graph.o_duration >= LONG_NS)
    shapes = view.capture.gpu_ops[["grid", "block"]].astype(object).to_numpy(object)[graph.o_row]
    own &= ~_computes(view, shapes)
    waits = view.called(f"{SYNCHRONISES}|cu(da)?(StreamWaitEvent|EventRecord)")  # STREAM times each kernel by itself
    for rows in changes.neighbours(graph, own):
        run = [int(rows[0])]
        for row in [*rows[1:].tolist(), -1]:
            if row >= 0 and _follows(view, run, row, shapes, waits):
                run.append(row)
                continue
            found += [np.array(run)] if len(run) > 1 else []
            run = [row]
    return found


def _computes(view: View, shapes: np.ndarray) -> Bools:
    """Return which kernels take longer than all that memory can move for their threads: fusing them saves no work.

    A thread of a grid of few waves may go through many elements.
    """
    threads = of_each(shapes[:, 0], _product, float) * of_each(shapes[:, 1], _product, float)
    rate = view.device.dram_bytes_per_s if view.device is not None else np.nan
    moved = view.graph.o_duration * rate / 1e9 / np.maximum(threads, 1.0)
    return np.asarray((threads >= WAVES * THREADS * view.graph.sms) & (moved > MOVES))


def _product(shape: str) -> float:
    return float(math.prod(int(part) for part in shape.split("x") if part.isdigit()))


def _follows(view: View, run: list[int], row: int, shapes: np.ndarray, waits: Bools) -> bool:
    """Return whether a kernel goes on with a chain: at once, and the host asks for nothing else between."""
    graph, last = view.graph, run[-1]
    took = graph.o_duration[[*run, row]]
    if (shapes[row] != shapes[last]).any() or took.max() > ALIKE * took.min():
        return False
    if graph.o_start[row] - graph.o_start[last] - graph.o_duration[last] > LONG_NS:
        return False
    between = slice(int(graph.o_call[last]) + 1, max(int(graph.o_call[row]), 0))
    joins = graph.c_launches[between] | waits[between]
    return not joins.any() and _stem(view.names[row]) not in {_stem(view.names[one]) for one in run}


def _is_own(name: str) -> bool:
    if symbols.is_closed(name) or _LIBRARY.search(name) or is_matrix(name):
        return False
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", symbols.base(name).split("<")[0])
    return any(_APART.fullmatch(word.lower()) for word in words)


def _stem(name: str) -> str:
    """Return a function's name without its last word, or the whole of one word."""
    function = symbols.base(name).split("<")[0]
    return re.sub(r"(?<=[A-Za-z0-9])(_[A-Za-z0-9]+|[XYZ]|[0-9]+)$", "", function)
