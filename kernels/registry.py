"""Declare each kernel once. Tests, bench, capture and report read the declaration and keep no list of their own.

`kernels/<op>/op.py` defines and registers an op. The first call of `ops()` imports these files. This module needs
neither torch nor a GPU.

    python -m kernels.registry          lists ops, variants, device symbols and hypotheses
"""

import argparse
import functools
import importlib
import importlib.util
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernels.hypotheses import DTYPES, FLOOR, MOST_BYTES, SHORT_DTYPES, TIME, Hypothesis, sentence
from kernels.spread import Spread

__all__ = [
    "DTYPES", "FLOOR", "MOST_BYTES", "SHORT_DTYPES", "TIME", "Hypothesis", "Op", "Tensor", "Variant", "dtype_name",
    "item_bytes", "ops", "register", "sectors_read", "short_dtype", "takes_all",
]  # fmt: skip

FOLDER = Path(__file__).resolve().parent
LIBRARY_KINDS = ("torch", "compile", "library")  # written by others
KINDS = (*LIBRARY_KINDS, "cuda", "triton")
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8, "float8_e4m3fn": 1, "bool": 1}
SECTOR_BYTES = 32
LARGE = 100e6  # bytes: "at 100 MB and more", far beyond the L2 cache

Shape = tuple[int, ...]
ByteModel = Callable[[Shape, str], int]


@dataclass(frozen=True)
class Tensor:
    """One operand: the names of its axes, and whether the op reads ("in") or writes ("out") it."""

    name: str
    axes: tuple[str, ...]
    role: str


@dataclass(frozen=True)
class Launcher:
    """The host function of a CUDA source, and its Python binding. A rung's is `cudaError_t name(const <Op>Call& call)`.

    function   name in the extension module
    binding    C++ expression that binds it, made from the functions of `<op>.h`
    workspace  C++ function `cudaError_t workspace(call, size_t& bytes)` that returns the size of the workspace; "" if
               the op's header computes it
    """

    name: str
    function: str
    binding: str
    workspace: str = ""


def takes_all(shape: Shape, dtype: str) -> str:
    """Accept every shape and dtype."""
    return ""


@dataclass(frozen=True)
class Variant:
    """One way to compute an op.

    fn(*inputs)         computes the whole op on the device of its inputs
    kind                one of KINDS
    idea                the new idea of this variant, in words
    bytes_model         predicted DRAM traffic in bytes
    symbols             `__global__` names in a capture, all defined in `source`; empty for kernels of other projects
    launcher            the host function of a CUDA source
    hypotheses          bounds on times and counters; `Op.hypothesis` joins them with `idea` into one sentence
    dtypes              supported dtypes, a subset of the op's
    cannot(shape, dtype)  the reason for not supporting a shape, "" if it does
    precision           roof of the arithmetic if it differs from the dtype's ("tf32")
    finite_only         results for infinities and NaN are undefined, so the check skips the op's hostile inputs
    tunables            -D macro -> the values that studies/sweep tries; the first one is the default in the source
    keeps_default       why the build ignores a sweep's recommendation, "" if it follows it
    no_tunables         why a CUDA source has no tunables
    prepared(*inputs)   does one-time work such as laying out weights, and returns the op as a call without arguments
    needs               the module of a library outside PyTorch; without it the variant is left out
    tuned               searches anew for every shape, which takes seconds
    captured            whether the ladder captures counters; without them it has times only
    """

    name: str
    kind: str
    idea: str
    fn: Callable[..., Any]
    bytes_model: ByteModel
    symbols: tuple[str, ...] = ()
    source: str = ""
    launcher: Launcher | None = None
    hypotheses: tuple[Hypothesis, ...] = ()
    dtypes: tuple[str, ...] = DTYPES
    cannot: Callable[[Shape, str], str] = takes_all
    precision: str = ""
    finite_only: bool = False
    tunables: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    keeps_default: str = ""
    no_tunables: str = ""
    prepared: Callable[..., Callable[[], Any]] | None = None
    needs: str = ""
    tuned: bool = False
    captured: bool = True

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"variant {self.name}: kind {self.kind!r} is none of {', '.join(KINDS)}")
        for macro, values in self.tunables.items():
            if self.kind != "cuda" or len(set(values)) != len(values) or len(values) < 2:
                raise ValueError(f"variant {self.name}: {macro} needs two or more different values, of a CUDA source")

    def takes(self, shape: Shape, dtype: str) -> bool:
        """Return whether the variant supports this dtype and shape."""
        return dtype in self.dtypes and not self.cannot(shape, dtype)

    def bind(self, *inputs: Any) -> Callable[[], Any]:
        """Return a call of the op on these inputs, without arguments. The benchmark times this call."""
        return self.prepared(*inputs) if self.prepared else functools.partial(self.fn, *inputs)

    @property
    def lacks(self) -> str:
        """Return the required library if it is not installed, else ""."""
        return self.needs if self.needs and not _installed(self.needs) else ""


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that would hold it
        return False


@dataclass(frozen=True, kw_only=True)
class Op:
    """An operation, its float64 reference, its byte and FLOP model and its variants.

    Units: every `*_bytes` is DRAM traffic in bytes, `flops` counts floating-point operations, both for one call.
    A shape is a tuple in the order of `axes`; a dtype is a name ("fp32", "float32", "torch.float32", …). Inputs come in
    the order of `tensors`, then the numbers. Several outputs are a tuple.

    folder              folder below kernels/, that of its name unless given
    torch_op            name in torch.ops.kernel_ledger, its own unless given; every call ends with the variant's name
    out_dtype           dtype of the outputs if it differs from that of the inputs
    bench_shape         shape of captures and ladders, far beyond the L2 cache
    check_shapes        small shapes that reach every code path
    hostile(*inputs)    the inputs with infinities, NaN and extreme magnitudes
    allowed_error(inputs, references, variant)
                        for each output a float64 tensor: the largest allowed difference from `reference`
    judged(inputs, results)  what the check compares instead of results and reference, for ops with more than one right
                        result
    error_spread        for ops with long sums, with the same arguments: how errors add up over a row and an output, for
                        inputs of `make_inputs` (studies/bench/measure_norms.py)
    chain               PyTorch operations of the baseline, in order
    best                our fastest variant; `best_by_dtype` names that of a dtype for which it is another one
    extras              launchers of kernels that are no rungs: a program of ours calls them, and no benchmark times
                        them. `NAME.h` declares `<op>_NAME`, `NAME.cu` defines it, `<op>.h` binds it
    compute_bound       the floor counts operations as well as bytes
    reads_only          the floor is the read bandwidth, since the output is tiny
    """

    name: str
    folder: str = ""
    torch_op: str = ""
    summary: str
    axes: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    dtypes: tuple[str, ...] = DTYPES
    out_dtype: str = ""
    shapes: Mapping[str, Shape]
    bench_shape: Shape
    check_shapes: tuple[Shape, ...]
    make_inputs: Callable[..., tuple[Any, ...]]
    hostile: Callable[..., tuple[Any, ...]]
    reference: Callable[..., Any]
    allowed_error: Callable[[tuple[Any, ...], tuple[Any, ...], Variant], tuple[Any, ...]]
    tolerance_why: str
    minimum_bytes: ByteModel
    unfused_bytes: ByteModel
    flops: Callable[[Shape], int]
    flops_why: str
    variants: Mapping[str, Variant]
    baseline: str = "torch"
    chain: tuple[str, ...]
    best: str
    best_by_dtype: Mapping[str, str] = field(default_factory=dict)
    judged: Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]] = lambda inputs, results: results
    error_spread: Callable[[tuple[Any, ...], tuple[Any, ...], Variant], tuple[Spread, ...]] | None = None
    extras: tuple[Launcher, ...] = ()
    compute_bound: bool = False
    reads_only: bool = False

    def __post_init__(self) -> None:
        for field_ in ("folder", "torch_op"):
            if not getattr(self, field_):
                object.__setattr__(self, field_, self.name)

    def best_for(self, dtype: Any) -> str:
        """Return the name of the best variant that supports `dtype`."""
        return self.best_by_dtype.get(dtype_name(dtype), self.best)

    def fused_bytes(self, shape: Shape, dtype: str, variant: str = "") -> int:
        """Return predicted DRAM bytes of `variant` (default: the op's best)."""
        return self.variant(variant or self.best).bytes_model(shape, dtype)

    def written_bytes(self, shape: Shape, dtype: str) -> int:
        """Return the bytes of the outputs; C is nh times hs where a shape has heads."""
        sizes = dict(zip(self.axes, shape, strict=True))
        sizes.setdefault("C", sizes.get("nh", 0) * sizes.get("hs", 0))
        outputs = (tensor.axes for tensor in self.tensors if tensor.role == "out")
        return item_bytes(self.out_dtype or dtype) * sum(
            math.prod(sizes[a] if a in sizes else int(a) for a in axes) for axes in outputs
        )

    def cut(self, values: tuple[Any, ...], role: str, start: int, end: int) -> tuple[Any, ...]:
        """Return the operands of a role with elements [start, end) of the op's first axis.

        Operands without that axis stay whole, and so do numbers, which follow the inputs.
        """
        axis, axes = self.axes[0], [tensor.axes for tensor in self.tensors if tensor.role == role]
        places = [names.index(axis) if axis in names else -1 for names in axes] + [-1] * (len(values) - len(axes))
        return tuple(
            value[(slice(None),) * place + (slice(start, end),)] if place >= 0 else value
            for value, place in zip(values, places, strict=True)
        )

    def memory_ns(self, shape: Shape, dtype: str, copy: float, read: float | None = None) -> float:
        """Return the least time (ns) of the op's bytes at the measured byte/s of a copy and, if known, of reads.

        A copy reads as much as it writes. What an op reads beyond that goes at the read bandwidth, the whole if the op
        only reads. An op that writes more than it reads is held against the copy: no roof of writes was measured.
        """
        least = self.minimum_bytes(shape, dtype)
        copied = 0 if self.reads_only and read else least
        if read and not self.reads_only:
            copied = min(least, 2 * self.written_bytes(shape, dtype))
        return (copied / copy + (least - copied) / (read or copy)) * 1e9

    def variant(self, name: str) -> Variant:
        """Return the variant of that name. Raises KeyError with the known names."""
        if name not in self.variants:
            raise KeyError(f"op {self.name} has no variant {name!r}; known: {', '.join(self.variants)}")
        return self.variants[name]

    def expected(self, variant: str) -> str:
        """Return the bounds of a variant in words."""
        declared = self.variant(variant)
        return sentence(declared.hypotheses, declared.dtypes, self.shape_name(self.bench_shape))

    def hypothesis(self, variant: str) -> str:
        """Return the sentence of a variant: its idea, then its bounds.

        For a variant without counters only its own bounds.
        """
        declared = self.variant(variant)
        bounded = declared.captured or declared.hypotheses
        return f"{declared.idea}. Expect {self.expected(variant)}" if bounded else declared.idea

    def call(self, variant: str) -> Callable[..., Any]:
        """Call `variant` through its PyTorch custom op, with checks and autograd, also on the CPU."""
        import torch

        importlib.import_module(f"kernels.{self.folder}.custom_op")
        function = getattr(torch.ops.kernel_ledger, self.torch_op)
        return lambda *inputs: function(*inputs, variant)

    def shape_name(self, shape: Shape) -> str:
        """Return the shape's registered name, else its axes written out (`B8_nh12_Tq1_Tk1024`)."""
        for name, known in self.shapes.items():
            if known == tuple(shape):
                return name
        return "_".join(f"{axis}{size}" for axis, size in zip(self.axes, shape, strict=True))


_ops: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Register an op. Raises ValueError if the name is taken."""
    if op.name in _ops:
        raise ValueError(f"op {op.name!r} is registered twice")
    _ops[op.name] = op
    return op


def ops() -> dict[str, Op]:
    """Return every op by name, sorted; the first call imports every `kernels/<op>/op.py`."""
    for path in sorted(FOLDER.glob("*/op.py")):
        importlib.import_module(f"kernels.{path.parent.name}.op")
    return dict(sorted(_ops.items()))


def dtype_name(dtype: Any) -> str:
    """Return `float32` for "fp32", "float32", "torch.float32" or torch.float32. Raises ValueError if unknown."""
    name = str(dtype).removeprefix("torch.")
    name = SHORT_DTYPES.get(name, name)
    if name not in ITEM_BYTES:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(ITEM_BYTES)}")
    return name


def item_bytes(dtype: Any) -> int:
    """Size of one element, bytes."""
    return ITEM_BYTES[dtype_name(dtype)]


def short_dtype(dtype: Any) -> str:
    """Return `fp32` for float32 and so on, as ops.csv and bench.csv print it."""
    name = dtype_name(dtype)
    return next((short for short, full in SHORT_DTYPES.items() if full == name), name)


def sectors_read(starts: Any, lengths: Any) -> int:
    """Return the number of distinct DRAM sectors in byte intervals that are sorted by start and do not overlap.

    An empty interval touches no sector. A sector that two neighbours share counts once.
    """
    import numpy as np

    starts, lengths = np.asarray(starts, dtype=np.int64), np.asarray(lengths, dtype=np.int64)
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    if not len(starts):
        return 0
    first, last = starts // SECTOR_BYTES, (starts + lengths - 1) // SECTOR_BYTES
    shared = np.count_nonzero(first[1:] == last[:-1])
    return int((last - first + 1).sum() - shared)


def main() -> int:
    """List ops with their variants: the bytes that each should move, its kernels, hypothesis and choices."""
    known = ops()
    parser = argparse.ArgumentParser(prog="python -m kernels.registry", description=main.__doc__)
    parser.add_argument("ops", nargs="*", metavar="OP", help=f"only these of {', '.join(known)}")
    asked = parser.parse_args().ops
    if unknown := [name for name in asked if name not in known]:
        parser.error(f"OP {unknown[0]!r} is unknown: use {', '.join(known)}")
    for op in (known[name] for name in asked or known):
        print(f"{op.name} ({', '.join(op.axes)}): {op.summary}")
        print(f"  tolerance: {op.tolerance_why}")
        print("  shapes: " + ", ".join(f"{name} {shape}" for name, shape in op.shapes.items()))
        shape = op.bench_shape
        print(f"  DRAM bytes below: predicted at {op.shape_name(shape)}, and over the least that the op can move")
        for variant in op.variants.values():
            dtype = next((name for name in variant.dtypes if not variant.cannot(shape, name)), None)
            moved = "does not run at this shape"
            if dtype:
                predicted, least = variant.bytes_model(shape, dtype), op.minimum_bytes(shape, dtype)
                moved = f"{predicted / 1e6:,.2f} MB in {short_dtype(dtype)}, {predicted / least:.2f} times the least"
            print(f"  {variant.name} [{variant.kind}] {moved}")
            print(f"    symbols: {', '.join(variant.symbols) or 'not ours'}")
            print(f"    expects: {op.hypothesis(variant.name)}")
            choices = "; ".join(f"{macro} {values}" for macro, values in variant.tunables.items())
            if choices or variant.no_tunables:
                print(f"    choices: {choices or f'none: {variant.no_tunables}'}")
    return 0


if __name__ == "__main__":
    # under -m, this file is a second module with its own, empty registry
    import signal

    from kernels import registry

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly if `| head` has closed the pipe
    raise SystemExit(registry.main())
