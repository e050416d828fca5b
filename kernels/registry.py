"""One declaration per kernel: tests, bench, capture and report read it here and keep no list of their own.

An op lives in `kernels/<op>/op.py` and registers itself there; `ops()` finds those files. This module needs
neither torch nor a GPU; ops are loaded on the first call of `ops()`.

    python -m kernels.registry          lists ops, variants, device symbols and hypotheses
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
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
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8, "bool": 1}
LARGE = 100e6  # bytes: "at 100 MB and more", far beyond the L2 cache

Shape = tuple[int, ...]
ByteModel = Callable[[Shape, str], int]


@dataclass(frozen=True)
class Tensor:
    """One operand: its axes by name and whether the op reads ("in") or writes ("out") it."""

    name: str
    axes: tuple[str, ...]
    role: str


@dataclass(frozen=True)
class Launcher:
    """The host function of a CUDA rung, `cudaError_t name(const <Op>Call& call)`, and how Python has it.

    The extension has it as `function`, by `binding`, an expression of C++ over what `<op>.h` offers to bindings.
    `workspace` is a function that says how many bytes of it the rung needs, `cudaError_t workspace(call, size_t&
    bytes)`, "" where the op's header knows.
    """

    name: str
    function: str
    binding: str
    workspace: str = ""


def takes_all(shape: Shape, dtype: str) -> str:
    """Nothing speaks against any shape."""
    return ""


@dataclass(frozen=True)
class Variant:
    """One way to compute an op.

    `fn(*inputs)` computes the whole op on the device of its inputs. `symbols` are the `__global__` names that
    may appear in a capture (empty where the kernels are not ours), all of them in `source`; a CUDA source is called by
    its `launcher`. `bytes_model` is
    the DRAM traffic that the variant should cause, in bytes. `idea` says in words what is new about it, `hypotheses`
    what times and counters have to show; `Op.hypothesis` makes one sentence of both.
    `dtypes` are those it takes, of the op's. `cannot(shape, dtype)` says why it does not take a shape, "" if it does.
    `precision` names the roof of its arithmetic where it is not that of the dtype ("tf32"). One that is `finite_only`
    promises nothing for infinities and NaN: it is not checked on the op's hostile inputs.
    `tunables` are the choices that `source` leaves to the compiler's -D, macro by macro: the values that a sweep tries,
    the first of them the one that the source takes without a -D. studies/sweep reads them. Where `keeps_default` says
    why, it is built with the first ones whatever a sweep recommends. A CUDA source that leaves none says why in
    `no_tunables`.
    `prepared(*inputs)` gives the op as a call without arguments, after what a user does once and not at every call,
    such as laying out weights; `bind` is what is timed. `needs` is the module of a library that does not come with
    PyTorch; without it the variant is left out. One that is `tuned` searches anew for every shape, which takes seconds.
    Of one that is not `captured` the ladder has times alone, no counters.
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
        """Whether the variant runs this dtype and shape."""
        return dtype in self.dtypes and not self.cannot(shape, dtype)

    def bind(self, *inputs: Any) -> Callable[[], Any]:
        """The op on these inputs as a call without arguments: what is timed."""
        return self.prepared(*inputs) if self.prepared else functools.partial(self.fn, *inputs)

    @property
    def lacks(self) -> str:
        """The library that it needs and that is not installed; "" if it runs."""
        return self.needs if self.needs and importlib.util.find_spec(self.needs) is None else ""


@dataclass(frozen=True, kw_only=True)
class Op:
    """An operation, its float64 reference, its byte and FLOP model and its variants.

    Units: every `*_bytes` in bytes of DRAM traffic, `flops` in floating-point operations, for one call.
    `shape` is a tuple in the order of `axes`; `dtype` a name ("fp32", "float32", "torch.float32", ...). Inputs come
    in the order of `tensors`, numbers behind them; several outputs are a tuple.
    `folder` is where it lives under kernels/, `torch_op` its name in torch.ops.kernel_ledger, where every call ends
    with the variant's name. `bench_shape` is the shape that captures and ladders show, far beyond the L2 cache;
    `check_shapes` are small ones that reach every path. `hostile(*inputs)` gives the inputs with infinities, NaN and
    extreme magnitudes. `allowed_error(inputs, references, variant)` is one float64 tensor for each output: how far
    from `reference` an element may be. `error_spread` of the same arguments, where sums are long, is how the errors
    of our variants add up over a row and an output, on inputs as `make_inputs` gives them (harness/norms.py).
    `chain` names the PyTorch operations of the baseline, in order. `best` is the
    fastest variant of ours, `best_by_dtype` that of the dtypes which it does not take. Of a `compute_bound` op the
    floor counts the operations too; of one that `reads_only` (its output is next to nothing) it is the read bandwidth.
    """

    name: str
    folder: str
    torch_op: str
    summary: str
    axes: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    dtypes: tuple[str, ...]
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
    baseline: str
    chain: tuple[str, ...]
    best: str
    in_gpt2: bool = False  # whether harness.gpt2 takes a variant of it by name
    best_by_dtype: Mapping[str, str] = field(default_factory=dict)
    error_spread: Callable[[tuple[Any, ...], tuple[Any, ...], Variant], tuple[Spread, ...]] | None = None
    compute_bound: bool = False
    reads_only: bool = False

    def best_for(self, dtype: Any) -> str:
        """The name of the best variant that takes `dtype`."""
        return self.best_by_dtype.get(dtype_name(dtype), self.best)

    def fused_bytes(self, shape: Shape, dtype: str, variant: str = "") -> int:
        """DRAM bytes that `variant` (default: the op's best) should move."""
        return self.variant(variant or self.best).bytes_model(shape, dtype)

    def variant(self, name: str) -> Variant:
        """The variant of that name; KeyError with the known names otherwise."""
        if name not in self.variants:
            raise KeyError(f"op {self.name} has no variant {name!r}; known: {', '.join(self.variants)}")
        return self.variants[name]

    def expected(self, variant: str) -> str:
        """The bounds of a variant in words."""
        declared = self.variant(variant)
        return sentence(declared.hypotheses, declared.dtypes, self.shape_name(self.bench_shape))

    def hypothesis(self, variant: str) -> str:
        """The sentence of a variant: its idea, then its bounds; of one that is only timed those that it states."""
        declared = self.variant(variant)
        bounded = declared.captured or declared.hypotheses
        return f"{declared.idea}. Expect {self.expected(variant)}" if bounded else declared.idea

    def call(self, variant: str) -> Callable[..., Any]:
        """`variant` as the custom op that PyTorch sees: checked, differentiable, on the CPU too."""
        import torch

        importlib.import_module(f"kernels.{self.folder}.custom_op")
        function = getattr(torch.ops.kernel_ledger, self.torch_op)
        return lambda *inputs: function(*inputs, variant)

    def shape_name(self, shape: Shape) -> str:
        """The shape's registered name, else its axes written out (`B8_nh12_Tq1_Tk1024`)."""
        for name, known in self.shapes.items():
            if known == tuple(shape):
                return name
        return "_".join(f"{axis}{size}" for axis, size in zip(self.axes, shape, strict=True))


_ops: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Add an op; its name must be new."""
    if op.name in _ops:
        raise ValueError(f"op {op.name!r} is registered twice")
    _ops[op.name] = op
    return op


def ops() -> dict[str, Op]:
    """Every op by name, sorted; the first call imports every `kernels/<op>/op.py`."""
    for path in sorted(FOLDER.glob("*/op.py")):
        importlib.import_module(f"kernels.{path.parent.name}.op")
    return dict(sorted(_ops.items()))


def dtype_name(dtype: Any) -> str:
    """`float32` for "fp32", "float32", "torch.float32" or torch.float32; ValueError if unknown."""
    name = str(dtype).removeprefix("torch.")
    name = SHORT_DTYPES.get(name, name)
    if name not in ITEM_BYTES:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(ITEM_BYTES)}")
    return name


def item_bytes(dtype: Any) -> int:
    """Size of one element, bytes."""
    return ITEM_BYTES[dtype_name(dtype)]


def short_dtype(dtype: Any) -> str:
    """`fp32` for float32 and so on, as ops.csv and bench.csv print it."""
    name = dtype_name(dtype)
    return next((short for short, full in SHORT_DTYPES.items() if full == name), name)


def sectors_read(starts: Any, lengths: Any, sector_bytes: int = 32) -> int:
    """Distinct DRAM sectors touched by byte intervals that are sorted by start and do not overlap.

    Intervals of length 0 touch none; a sector shared by two neighbours counts once.
    """
    import numpy as np

    starts, lengths = np.asarray(starts, dtype=np.int64), np.asarray(lengths, dtype=np.int64)
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    if not len(starts):
        return 0
    first, last = starts // sector_bytes, (starts + lengths - 1) // sector_bytes
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
    # under -m this file would be a second module with a second, empty registry
    import signal

    from kernels import registry

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly where nobody reads on, as before `| head`
    raise SystemExit(registry.main())
