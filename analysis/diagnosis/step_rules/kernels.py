"""What names, grids and order of kernels tell: fuse, precision, layout, copies, casts, small_grid, serial_streams."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pandas as pd

from analysis.diagnosis.built import AGAIN
from analysis.diagnosis.chains import Chain, planned
from analysis.diagnosis.step_rules.launches import jitted
from analysis.diagnosis.step_rules.view import FEW, Proposal, View, of_each
from analysis.diagnosis.vocabulary import begun, do, library_of
from analysis.formats import intervals, symbols
from analysis.formats.words import count_of, duration, share
from analysis.fusion.opmap import ELEMENTWISE, is_matrix, kind_of_kernel
from analysis.fusion.plan import spelled_out
from analysis.hardware.devices import Device, has_fp64, has_tf32
from analysis.replay import changes
from analysis.replay.graph import Bools, Graph, rows_by

LEAST = 0.01  # of the step: shorter kernels cannot save more
COPIES = 0.12  # of the step: casts and gathers are copies that a program needs, and most programs have some
LONG_NS = 15_000.0  # a shorter kernel is as short as its latency, whatever its grid
TURNS = 0.05  # of the step: most programs turn an input or a weight now and then
MAKES = 1.0  # times the time of a copy at least: kernels that make as many bytes also read some
AUTOCASTS = 16  # conversions to 16 bits in a step of training: autocast makes one for each weight and input
JOB = 0.8  # of the kernels' time: what takes more is what the step is for
BRIDGES = ("reduce", "cat", "copy")  # compilers fuse these with the kernels around them
SMS = 0.375  # of the SMs: kernels with more blocks were small grids in 1 of 15 programs, with fewer in 19 of 33
FILL = 0.25  # share of the GPU's threads that a small grid fills at most
ROUNDS = 3  # of a loop at least: fewer may be calls of one operation
READS = 0.5  # of the step: with fewer, tables and matrices in FP32 are not what the step is for
TENSOR_CORES = (0.6, 0.15)  # time of an FP32 product with TF32 or 16 bits: small products, large ones
RATES = 1 / 16  # rate in FP32 over that of the tensor cores, if the GPU is unknown: that of an A100
HALVES = (0.75, 0.45)  # time of a kernel with half as wide values: a part of it computes in both types
NARROW_READS = (0.9, 0.5)  # the same of one that reads a table: short rows leave sectors half empty
_FP32 = re.compile(
    r"sgemm|f32f32_f32f32_f32|simt_|implicit_convolve_sgemm|gemmSN|gemm_?fp32|s(gemm|conv)_\d|fp32_fp32"
    r"|fmha_cutlass\w_f32|[dw]grad\w*_engine<float",
    re.I,
)
_CONVOLUTION = "fprop|[dw]grad|convolve"
_FP64 = re.compile(r"float64|complex128|<double2?\b|\bdouble2? ?(const ?)?\*|fft\w*<[^>]*\bdouble\b")
# All that such a kernel reads and writes is narrower; it only computes in FP64.
_NARROW = re.compile(r"\((?!.*\bdouble2? ?(const ?)?\*).*\b(float\d?|half2?|__half2?|int\d?) ?(const ?)?\*.*\)$")
# These read each weight or row of a table once, so memory bounds them; their names tell the type of it.
_FLOAT = r"<((int|long|\(\w+\)\w+), )*float\b"
_READS_FP32 = re.compile(rf"(gemv\w*(::kernel)?){_FLOAT}")
_ROWS_FP32 = re.compile(rf"(EmbeddingBag\w*|indexSelect\w*|embedding\w*){_FLOAT}")
_PLAIN = re.compile(r"(?!cupy_)[A-Za-z]\w*")
_TENSOR = re.compile(
    r"tensorop|tf32|bf16|f16|h884|s\d{4,5}gemm|hmma|wgmma|nvjet_(h|t)|xmma_(fprop|gemm)_(bf16|f16|tf32)", re.I
)
# A ufunc of CuPy names its types after two underscores; these are reductions and copies.
_CUPY = re.compile(r"cupy_(?!sum|prod|amax|amin|max__|min__|arg|mean|copy|any|all|take|concat|random)\w+?__\w")
_XLA_OP = re.compile(
    r"wrapped_(?!copy|transpose|reduce|slice|concat|gather|scatter|iota|dynamic)"
)  # XLA fuses nothing here
_XLA_LOOP = re.compile(r"loop_(?!copy|transpose|reduce|slice|concat|gather|scatter|iota|dynamic)\w+_fusion$")
_LAYOUT = r"(?i)nchwToNhwc|nhwcToNchw|nchw2nhwc|(?<!conv)(?<!conv_)transpose(?!d)|permute|tensorTransform|convertTensor"
_CONVERTS = r"(b?float16|half)_copy_kernel|copy_kernel.*LoadWithCast|Cast<|to_copy|(wrapped|loop|input)_\w*convert"
# Compilers name a kernel by all that it does: one that also computes moves or converts for nothing.
_COMPILED = r"triton_[a-z]{3}_fused_|(loop|input)_\w+_fusion"
_ONLY_MOVES = (
    r"triton_poi_fused_(_to_copy_|_unsafe_view_|(view|clone|copy|cat|expand|(un)?squeeze|permute|transpose|slice|select|t|"
    r"b?mm|addmm|convolution)_)+\d|(loop|input)_((convert|copy|transpose|slice|concatenate|bitcast|reshape|pad|gather)_)+fusion"
)
_ON_GPU = "Device-to-Device|DtoD"
# A kernel of one's own called `copy` or `convert` may compute as well.
_COPY = rf"(direct|float16|half)_copy_kernel|copy_kernel_cuda|{_ON_GPU}|wrapped_copy|(?<![a-z])clone|roll_cuda_kernel"

_CAST_LESS = (
    "torch.compile, which fuses the casts of autocast as well; or keep the weights in bfloat16 and need no cast."
)
_APPEND = "Allocate the whole tensor once, and copy each part into its slice."


def propose(view: View) -> Iterator[Proposal]:
    """Propose changes to kernels."""
    yield from _precision(view)
    computes = view.named(_COMPILED) & ~view.named(_ONLY_MOVES)
    casts = _repeated_casts(view, computes)
    yield from _casts(view, casts)
    autocast = _autocasts(view, casts | computes)
    yield from _layout(view, casts | computes | autocast)
    yield from _fuse(view, casts, autocast)
    yield from _small_grids(view)


def _precision(view: View) -> Iterator[Proposal]:
    products = view.each(is_matrix, bool)  # as fast in FP64 as in FP32
    old = None if has_tf32(view.device) else view.device
    doubles = view.named(_FP64) & ~products & ~view.named("multi_tensor|distribution_")
    if has_fp64(view.device):
        doubles &= ~view.named(_NARROW)
    for kind, wide, (least, most), title, what, said, needs, enough in (
        ("precision", view.named(_FP32) & ~view.named(_TENSOR), TENSOR_CORES,
         "Allow 16 bits in {}" if old else "Allow TF32 or 16 bits in {}", "product",
         "Products in FP32 without tensor cores", "FP32", LEAST),
        ("precision", doubles | _of_doubles(view, doubles), HALVES, "Use FP32 in {}",
         "kernel", "Kernels with values in FP64", "FP64", LEAST),
        ("precision", view.named(_READS_FP32), NARROW_READS, "Store in 16 bits what {} read{}", "kernel",
         "Kernels that read matrices of FP32", "FP32", READS),
        ("memory_roof", view.named(_ROWS_FP32), NARROW_READS, "Store in 16 bits what {} read{}", "kernel",
         "Kernels that read rows of tables of FP32", "FP32", READS),
    ):  # fmt: skip
        wide = view.kernels & wide
        time, count = view.time(wide), view.of_step(np.count_nonzero(wide))
        if view.share(time) < enough or (what == "product" and old and not old.fp16_flop_per_s):
            continue

        by = "fp64" if needs == "FP64" else "no_tf32" if what == "product" and old else ""
        if not by and view.library in ("pytorch", "cuda") and view.time(wide & view.named(_CONVOLUTION)) > time / 2:
            by = "convolution"  # what JAX and CuPy are told holds for these, too

        def narrow(base: Graph, share: float, wide: Bools = wide, least: float = least, most: float = most) -> Graph:
            return changes.scale(base, wide, least + share * (most - least))

        yield Proposal(
            kind=kind, about=symbols.short(view.most(wide)),
            title=title.format(count_of(count, what), "s" if round(count) <= 1 else ""),
            sentence=f"{said} take {duration(time)} of each step.", change=narrow,
            count=count, time_ns=time, lossy=True, wrong_if=f"the results need the precision of {needs}",
            most_ns=(1 - _rates(view.device) + AGAIN) * time if what == "product" and view.ranks == 1 else None,
            do=f"{do('precision', by)}." if by else "",
        )  # fmt: skip


def _rates(device: Device | None) -> float:
    """Return the rate in FP32 over that of the fastest tensor cores: a product takes no smaller part of its time."""
    fast = [device.rate(form) or 0.0 for form in ("tf32", "fp16", "bf16")] if device else []
    own = device.fp32_flop_per_s if device else None
    return min(own / max(fast), TENSOR_CORES[1]) if own and any(fast) else RATES


def _of_doubles(view: View, doubles: Bools) -> Bools:
    """Return kernels without a signature, as CuPy compiles those of a user, that one in FP64 follows each time."""
    found = np.zeros(len(view.names), bool)
    if view.library not in ("cupy", "cuda") or not doubles.any():
        return found
    own = view.each(lambda name: bool(_PLAIN.fullmatch(name)) and not symbols.is_closed(name), bool)
    plain = view.kernels & own & ~view.each(is_matrix, bool)
    for rows in rows_by(view.graph.o_stream, len(view.graph.stream_names)):
        rows = rows[view.kernels[rows]]
        following = np.append(rows[1:], rows[:1])
        found[rows[plain[rows] & doubles[following]]] = True
    for name in set(view.names[found]):
        same = view.names == name
        found[same] = found[same].all()
    return found


def _repeated_casts(view: View, computes: Bools) -> Bools:
    """Return the conversions of type that a step makes at least FEW times with one name and grid, or that take long.

    Training converts weights that have changed. `computes`: kernels that do more than convert.
    """
    found = np.zeros(len(view.names), bool)
    casts = view.kernels & view.named(_CONVERTS) & ~computes
    if view.trains or not casts.any():
        return found
    for same in _alike(view, casts):
        if view.of_step(np.count_nonzero(same)) >= FEW or view.share(view.time(same)) >= COPIES:
            found |= same
    return found


def _autocasts(view: View, others: Bools) -> Bools:
    """Return the conversions that autocast makes in training, next to kernels that work element by element.

    The same name may stand for a copy, so only a step that converts to bfloat16 or half often counts.
    """
    found = view.kernels & view.named(_CONVERTS) & ~others
    to_half = found & view.named(r"(b?float16|half)_copy_kernel")
    if view.library != "pytorch" or not view.trains or view.of_step(np.count_nonzero(to_half)) < AUTOCASTS:
        return np.zeros(len(found), bool)
    return found


def _alike(view: View, ops: Bools) -> list[Bools]:
    """Return masks of these operations, one for each name and grid."""
    grids = view.capture.gpu_ops["grid"].astype(object).to_numpy(object)[view.graph.o_row]
    shapes = sorted(set(zip(view.names[ops], grids[ops], strict=True)))
    return [ops & (view.names == name) & (grids == grid) for name, grid in shapes]


def _casts(view: View, casts: Bools) -> Iterator[Proposal]:
    time, count = view.time(casts), view.of_step(np.count_nonzero(casts))
    if view.share(time) < LEAST:
        return
    again = casts.copy()
    for same in _alike(view, casts):
        rows = np.flatnonzero(same)
        if len(rows) > view.graph.steps:  # one of several is left
            again[rows[:: round(view.of_step(len(rows)))]] = False
    yield Proposal(
        kind="repeated_casts", about=symbols.short(view.most(casts)), title="Convert the tensor once",
        sentence=(
            f"{count_of(count, 'kernel a step converts', 'kernels a step convert')} tensors of one shape to "
            f"another type, for {duration(time)}."
        ),
        change=lambda base, share: changes.drop(base, again, share=share), count=count, time_ns=time,
        best_ns=_beside_ns(view, again), better="the kernels beside it that work on what it converts",
        wrong_if="the tensors have different values each time",
    )  # fmt: skip


def _beside_ns(view: View, casts: Bools) -> float:
    """Return the time of these conversions and of what works element by element, or copies, right beside them."""
    near = casts | pointwise(view) | (view.kernels & view.named(_COPY))
    found = [rows for rows in changes.neighbours(view.graph, near) if casts[rows].any()]
    return view.time(casts | view.inside(found))


def _layout(view: View, others: Bools) -> Iterator[Proposal]:
    for kind, pattern, title, one, many in (
        ("layout", _LAYOUT, "Keep one layout of the data", "changes the layout of data", "change the layout of data"),
        ("redundant_copy", _COPY, "Leave copies on the GPU out", "copies data on the GPU", "copy data on the GPU"),
    ):
        moved = view.named(pattern) & ~others
        appended = _old(view, _cats(view)) & np.bool_(kind == "redundant_copy")
        moved |= appended
        time = view.time(moved)
        if view.share(time) < (LEAST if kind == "redundant_copy" else TURNS):
            continue
        if kind == "layout" and time > JOB * view.time(view.kernels):
            continue
        count = view.of_step(np.count_nonzero(moved))

        def change(base: Graph, share: float, moved: Bools = moved) -> Graph:
            return changes.scale(base, moved, 0.5) if share < 0.5 else changes.drop(base, moved)

        yield Proposal(
            kind=kind, about=symbols.short(view.most(moved)), title=title,
            sentence=f"{count_of(count, f'operation a step only {one}', f'operations a step only {many}')}, "
            f"for {duration(time)}.",
            change=change, count=count, time_ns=time, wrong_if="what follows needs the other layout or a second copy",
            do=_APPEND if view.time(appended) > time / 2 else "",
            needed=kind == "redundant_copy" and view.share(time) < COPIES,
        )  # fmt: skip


def _fuse(view: View, casts: Bools, autocast: Bools) -> Iterator[Proposal]:
    runs = pointwise_runs(view, autocast)
    for chain in view.asked(planned_chains):  # what a chain of the plan has is fused there
        runs = [rows for rows in runs if not chain.inside[rows].any()]
    inside = view.inside(runs)
    time = view.time(inside)
    if not runs or view.share(time) < LEAST:
        return
    count = view.of_step(np.count_nonzero(inside))

    wider = bridged_runs(view, inside, casts)  # a kernel that need not run again is not fused, but left out
    jit = jitted(view, _between(view, wider)) if view.library == "jax" else None  # it makes one call of Python there

    def fused(base: Graph, share: float) -> Graph:
        if share >= 1.0:
            fewer = changes.drop(base, autocast & ~inside, share=share) if autocast.any() else base
            return one_kernel_of_each(jit(fewer, share) if jit else fewer, wider, share)
        return one_kernel_of_each(base, runs, share)

    name, call = _spelled_out(view, wider)
    few = round(view.of_step(len(runs))) or 1
    yield Proposal(
        kind="fuse", about=symbols.short(view.most(inside)),
        title=f"Fuse {name and name + ': '}{count_of(count, 'kernel')} into {few}",
        sentence=(
            f"{count_of(count, 'kernel')} that work element by element follow each other and take "
            f"{duration(time)} of each step; each reads what the one before wrote."
        ),
        change=fused, most_ns=None if autocast.any() else view.taken(wider),
        count=count, time_ns=time, wrong_if="other kernels need the values between them",
        do=_CAST_LESS if autocast.any() else begun(call) + "." if call else "",
    )  # fmt: skip


def _spelled_out(view: View, runs: list[np.ndarray]) -> tuple[str, str]:
    """Return the operation of PyTorch that most of these runs spell out, by time, and its call; ('', '') if none."""
    if view.library != "pytorch":
        return "", ""
    kinds, spent = view.each(kind_of_kernel, object), Counter[tuple[str, str]]()
    for rows in runs:
        spent[spelled_out(kinds[rows])] += round(view.graph.o_duration[rows].sum())
    most, time = spent.most_common(1)[0]
    return most if time > spent.total() / 2 else ("", "")


def _cats(view: View) -> Bools:
    cats = view.kernels & view.named("(?i)catarray")  # few: the kind of each name takes long
    cats[cats] = [kind_of_kernel(name) == "cat" for name in view.names[cats]]
    return np.asarray(cats)


def _old(view: View, ops: Bools) -> Bools:
    """Return which of these copy what was there before: the kernels since the last ones were too short to make it."""
    graph, found = view.graph, np.zeros(len(ops), bool)
    for stream in np.unique(graph.o_stream[ops]):
        rows = np.flatnonzero(graph.o_stream == stream)
        parts = np.split(rows, np.flatnonzero(np.diff(ops[rows].astype(int))) + 1)
        for before, part in itertools.pairwise([parts[-1], *parts]):
            if ops[part[0]] and graph.o_duration[before].sum() < MAKES * graph.o_duration[part].sum():
                found[part] = True
    return found


def one_kernel_of_each(base: Graph, runs: list[np.ndarray], share: float) -> Graph:
    """Fuse each run whose kernels each read what the one before wrote.

    At best (`share` 1) the one kernel takes as long as the longest, as that of a compiler which fuses all of it. At
    worst each also reads another operand: of 3 n tensors that they move, n + 2 are left.
    """
    duration, others = base.o_duration.copy(), np.zeros(len(base.o_start), bool)
    if runs:
        every, count = np.concatenate(runs), np.array([len(rows) for rows in runs])
        first = np.cumsum(count) - count
        whole, longest = (one.reduceat(duration[every], first) for one in (np.add, np.maximum))
        worst = np.maximum(longest, whole * (count + 2) / (3 * count))
        others[every] = True
        others[every[first]] = False
        duration[every[first]] = share * longest + (1 - share) * worst
    return changes.drop(replace(base, o_duration=duration), others, share=share)


def _between(view: View, runs: list[np.ndarray]) -> Bools:
    """Return the calls from the first to the last launch of each run."""
    graph, found = view.graph, np.zeros(len(view.graph.c_start), bool)
    for rows in runs:
        calls = graph.o_call[rows][graph.o_call[rows] >= 0]
        if len(calls):
            found[calls.min() : calls.max() + 1] |= graph.c_seq[calls.min() : calls.max() + 1] == graph.c_seq[calls[0]]
    return found


def bridged_runs(view: View, inside: Bools, apart: Bools) -> list[np.ndarray]:
    """Return the runs with these kernels, joined over reductions, concatenations and copies that are not `apart`."""
    known = view.each(lambda name: kind_of_kernel(name) in BRIDGES or name.startswith("cupy_copy"), bool)
    between = ~apart & ((view.kernels & known) | view.named(_ON_GPU))
    runs = changes.neighbours(view.graph, pointwise(view) | between)
    return [rows for rows in runs if inside[rows].any()]


def pointwise_runs(view: View, more: Bools | None = None) -> list[np.ndarray]:
    """Return the runs of kernels that work element by element and follow each other."""
    runs = changes.neighbours(view.graph, pointwise(view) if more is None else pointwise(view) | more)
    return [rows for rows in runs if not _compiled_loop(view.names[rows])]


def planned_chains(view: View) -> list[Chain]:
    """Return the chains of the plan that are no mere rows of kernels that work element by element."""
    return planned(view, view.inside(pointwise_runs(view)))


def _compiled_loop(names: np.ndarray) -> bool:
    """Return whether kernels of XLA repeat ROUNDS times: a compiled loop, of which each round needs the one before."""
    if not all(_XLA_LOOP.match(name) or _XLA_OP.match(name) for name in names):
        return False
    return any((names[period:] == names[:-period]).all() for period in range(1, len(names) // ROUNDS + 1))


def pointwise(view: View) -> Bools:
    """Return which kernels work element by element."""
    single = view.each(lambda name: bool(_XLA_LOOP.match(name)), bool)
    names, counts = np.unique(view.names[single].astype(str), return_counts=True)
    if not (len(names) and view.of_step(counts.max()) >= 2):  # a compiled function numbers kernels of one name
        single[:] = False
    return np.asarray(view.kernels & (view.each(_pointwise, bool) | single))


@lru_cache(maxsize=1 << 16)
def _pointwise(name: str) -> bool:
    if "triton_" in name or re.search(r"_fusion|multi_tensor_apply|foreach", name):
        return False  # a compiler, or a library, has fused this
    if _CUPY.match(name) or _XLA_OP.match(name):
        return True
    if "elementwise_kernel" in name and not re.search(f"{_COPY}|copy_kernel", name):
        return not is_matrix(name)
    return kind_of_kernel(name) in ELEMENTWISE


def _beside(view: View) -> Callable[[Bools, Bools], Bools]:
    """Return a test: which kernels of a stream run beside some of other streams of its GPU for most of their time."""
    graph, took = view.graph, view.graph.o_duration.astype(np.int64)
    places = changes.places(graph)[graph.o_stream]

    def beside(own: Bools, others: Bools) -> Bools:
        others = others & (graph.o_stream != graph.o_stream[own][0]) & (places == places[own][0])
        spans = intervals.union(graph.o_start[others], took[others])
        return np.asarray(intervals.covered(graph.o_start[own], graph.o_start[own] + took[own], spans) > took[own] / 2)

    return beside


def _accompanied(view: View, beside: Callable[[Bools, Bools], Bools]) -> Bools:
    """Return which kernels run beside kernels of another stream of their GPU for most of their time."""
    found = np.zeros(len(view.names), bool)
    for stream in np.unique(view.graph.o_stream[view.kernels]):
        own = view.kernels & (view.graph.o_stream == stream)
        found[own] = beside(own, view.kernels)
    return found


def _hidden(view: View, few: Bools, beside: Callable[[Bools, Bools], Bools]) -> Bools:
    """Return which of these kernels run beside longer ones of another stream for most of their time.

    Kernels of one name and stream are as long as their mean; of kernels as long as each other, the first is not hidden.
    """
    graph, found = view.graph, np.zeros(len(few), bool)
    if not few.any():
        return found
    same = pd.Series(graph.o_duration).groupby([graph.o_stream, view.names.astype(str)], sort=False)
    group, mean = same.ngroup().to_numpy(), same.transform("mean").to_numpy()
    for one in np.unique(group[few]):
        own = few & (group == one)
        length = mean[own][0]
        found[own] = beside(own, view.kernels & ((mean > length) | ((mean == length) & (group < one))))
    return found


def _small_grids(view: View) -> Iterator[Proposal]:
    graph = view.graph
    grids = view.capture.gpu_ops["grid"].astype(object).to_numpy(object)[graph.o_row]
    few = view.kernels & (graph.o_fill < FILL)
    few &= of_each(grids, lambda grid: _blocks(grid) < SMS * graph.sms, bool)  # more blocks keep many SMs at work
    few &= (graph.o_duration > LONG_NS) & ~view.named(r"nccl|ncclDev|multi_tensor_apply")  # it cuts lists of tensors
    few &= ~view.each(is_matrix, bool)  # their grids are the library's
    if view.share(view.time(few)) < LEAST:
        return
    test = _beside(view)
    accompanied = _accompanied(view, test)
    few &= ~_hidden(view, few & accompanied, test)
    time = view.time(few)
    if view.share(time) < LEAST:
        return
    turns = [rows for rows in changes.neighbours(graph, few & ~accompanied) if graph.o_fill[rows].sum() <= 1]
    count = view.of_step(np.count_nonzero(few))
    name = symbols.short(view.most(few))
    longest = view.of_step(sum(graph.o_duration[rows].max() for rows in turns))
    alone = view.step.phase.launches > 1 and longest > JOB * time  # too little can run beside so long a kernel
    if view.time(view.inside(turns)) > 0.8 * time and len(turns) and not alone:
        few &= ~accompanied
        time, count, name = view.time(few), view.of_step(np.count_nonzero(few)), symbols.short(view.most(few))

        def beside(base: Graph, share: float) -> Graph:
            for rows in turns:
                whole, longest = float(base.o_duration[rows].sum()), float(base.o_duration[rows].max())
                base = changes.scale(
                    base, view.inside([rows]), (longest + (1 - share) * (whole - longest) * 0.25) / max(whole, 1.0)
                )
            return base

        single = round(count) <= 1
        yield Proposal(
            kind="serial_streams", about=name, title="Run small kernels of several steps beside each other" if single
            else f"Run {count_of(count, 'small kernel')} beside each other",
            sentence=(
                f"1 kernel a step fills at most {FILL:.0%} of the GPU, and runs alone for {duration(time)}."
                if single
                else f"{count_of(count, 'kernel')} a step fill at most {FILL:.0%} of the GPU each, and run one after "
                f"another for {duration(time)}."
            ),
            change=beside, count=count, time_ns=time, wrong_if="each kernel needs the result of the one before",
            most_ns=None if single else view.time(view.inside(turns)) - (1 - AGAIN) * longest,  # or less in another run
            best_ns=time * (1 - graph.o_fill[few].max()) if single and view.step.phase.launches < 2 else None,
        )  # fmt: skip
        return
    most = view.most(few)
    closed = symbols.is_closed(most)
    if closed and view.share(time) < COPIES:
        return  # the library chose its grid
    yield Proposal(
        kind="small_grid", about=name, title=f"Spread {name} over the whole GPU",
        sentence=(
            f"{count_of(count, 'launch a step fills', 'launches a step fill')} {share(graph.o_fill[few].mean())} "
            f"of the GPU on average, for {duration(time)}."
        ),
        change=lambda base, share: changes.scale(base, few, 0.5) if share < 0.5 else changes.split(base, few),
        count=count, time_ns=time, wrong_if="other kernels run beside it, or its work cannot be split",
        do="" if closed else do("small_grid", library_of([most], [1.0])),  # no compiler of a library splits one's own
    )  # fmt: skip


def _blocks(grid: str) -> int:
    return math.prod(int(part) for part in grid.split("x") if part.isdigit())
