"""Count the least work of each range of a program: the bytes that it must move, and its FLOPs.

A recorder of operations (harness/dataflow.py) tells of them while the program runs. A program with automatic ranges
runs this in its own process: it needs torch alone.

    minimum_bytes  every tensor from outside that the range reads, once, and every result that outlives it, once
    flops          of matrix products, convolutions and attention, as torch.utils.flop_counter counts them: two for each
                   multiplication with its addition, a causal mask not subtracted; all other operations count none

A number is unknown where an operation is: one that is not PyTorch's own, a product without a formula, a part that
torch.compile compiled, or a kernel that no operation launched, of which only the memory that it writes is seen. It is
unknown, too, where calls of one path differ, or the last two recorded steps of one name do.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, NamedTuple

import torch

try:
    from torch.utils.flop_counter import flop_registry
except ImportError:  # an older torch
    flop_registry = {}

# Operations of ATen that are no products and touch each element of their operands, beside those that torch tags.
_WHOLE = re.compile(
    r"_foreach_\w+|_fused_(?:adam|adamw|sgd|adagrad|rms_norm|dropout)\w*|\w*(?:batch|layer|group|rms)_norm\w*"
    r"|_?(?:log_|safe_|masked_)?softmax(?:_backward_data)?|\w*(?:pool|pad)\dd\w*|constant_pad_nd|\w*_loss(?:2d)?(?:_\w+)?"
    r"|upsample_\w+|cat|stack|copy|clone|_to_copy|fill|zero|(?:new_)?(?:zeros|ones|full)(?:_like)?|arange|linspace"
    r"|scalar_tensor|eye|tri[lu]|roll|flip|repeat|_unsafe_view|native_dropout(?:_backward)?|bernoulli|uniform|normal"
    r"|random|exponential|rand\w*|pixel_(?:un)?shuffle|(?:slice|select|diagonal|unfold|glu|embedding_dense)_backward"
    r"|glu|sort|topk|multinomial|nonzero|isin|(?:log)?cum\w+|im2col|col2im|index_add|index_put|scatter\w*|index_copy"
    r"|index_fill|masked_scatter|masked_fill|dequantize|_amp_\w+"
)
_ALLOCATES = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})
_GATHERS = frozenset({"embedding", "index", "index_select", "gather", "take", "_unsafe_index", "masked_select"})
# In place, these write as many elements as their last operand has, somewhere in their first one.
_SCATTERS = frozenset({"index_put_", "index_copy_", "index_add_", "scatter_", "scatter_add_", "masked_scatter_"})
MOST_VIEWS = 32  # of a storage that may hold others: a storage of all parameters has thousands of views
_TAGS = frozenset({"pointwise", "reduction"})


class Work(NamedTuple):
    """The least work of a range; None where unknown."""

    minimum_bytes: int | None
    flops: int | None


class View(NamedTuple):
    """The part of a storage that an operation touches: `bytes` distinct ones between two places.

    `axes`: (stride in bytes, size) of each axis, longest stride first; None if it does not touch all elements there.
    """

    begin: int
    end: int
    bytes: int
    axes: tuple[tuple[int, int], ...] | None = None


Holds = Callable[[View, View], bool]  # analysis/formats/views.py has it, which the hook loads by its path


class Operation(NamedTuple):
    """The parts of storages that an operation reads and writes; those that it makes or overwrites as a whole.

    `flops` is None where its work is unknown.
    """

    reads: list[tuple[int, View]]
    writes: list[tuple[int, View]]
    made: set[int]
    whole: set[int]
    flops: int | None


class Span(NamedTuple):
    """A closed range: its operations, when it closed, and whether something ran in it that no recorder sees."""

    path: str
    begin: int
    end: int
    order: int
    is_unseen: bool


def view_of(tensor: Any) -> View:
    """Return the part of its storage that a tensor covers; axes of stride 0 count once."""
    item, begin = tensor.element_size(), tensor.storage_offset() * tensor.element_size()
    reach, distinct = 0, item
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        reach += (size - 1) * stride
        distinct *= size if stride or not size else 1
    axes = ((stride * item, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    whole = tuple(sorted((one for one in axes if one[1] > 1), reverse=True))
    return View(begin, begin + (reach + 1) * item if distinct else begin, distinct, whole)


def bytes_of(views: Iterable[View], holds: Holds) -> int:
    """Return the least distinct bytes of some views of one storage, which may overlap.

    `holds`: whether its first view has all elements of its second.
    """
    kept: list[View] = []
    for view in sorted(set(views), key=lambda one: -one.bytes):
        if not any(holds(other, view) for other in kept[:MOST_VIEWS]):
            kept.append(view)
    views = kept
    covered = until = 0
    for view in sorted(kept, key=lambda one: one[:3]):
        covered += max(view.end - max(view.begin, until), 0)
        until = max(until, view.end)
    return min(covered, sum(view.bytes for view in views))


def _is_whole(func: Any) -> bool:
    """Return whether an operation of ATen is no product, and touches each element of its operands."""
    name = func._schema.name.removeprefix("aten::")
    plain = name.removesuffix("_")
    packet = getattr(torch.ops.aten, plain, func._overloadpacket)
    tags = {tag.name for overload in packet.overloads() for tag in getattr(packet, overload).tags}
    return bool(tags & _TAGS) or plain in _GATHERS or bool(_WHOLE.fullmatch(plain))


class WorkOfRanges:
    """Listens to a recorder, and counts the work of the ranges of each step when the step closes.

    `holds`: as in `bytes_of`.
    """

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self._steps: dict[str, list[dict[str, Work]]] = {}
        self._known: dict[Any, bool] = {}
        self._open: list[tuple[str, int]] = []
        self._begin()

    def _begin(self) -> None:
        self._operations: list[Operation] = []
        self._spans: list[Span] = []
        self._deaths: dict[int, int] = {}
        self._unwritten: dict[int, int] = {}  # storage -> the operation that allocated it
        self._unseen: list[tuple[int, int]] = []  # first and last operation around something that no recorder sees
        self._unseen_in: set[int] = set()  # depths of open ranges

    def opened(self, path: str) -> None:
        self._open.append((path, len(self._operations)))

    def closed(self) -> None:
        path, begin = self._open.pop()
        depth = len(self._open)
        is_unseen = depth in self._unseen_in
        self._unseen_in.discard(depth)
        self._spans.append(Span(path, begin, len(self._operations), len(self._spans), is_unseen))
        if not self._open:
            self._steps.setdefault(path, []).append(self._work())
            self._begin()

    def unseen(self) -> None:
        """Something runs inside the open ranges that the recorder does not see."""
        self._unseen_in.update(range(len(self._open)))

    def died(self, storage: int) -> None:
        self._deaths[storage] = len(self._spans)

    def ran(self, call: tuple[Any, Any, Any, Any], operands: list[tuple[str, int, Any]], made: set[int]) -> None:
        name = call[0]._schema.name.removeprefix("aten::")
        reads, writes = (
            [(storage, view_of(tensor)) for operand, storage, tensor in operands if operand.startswith(side)]
            for side in ("in", "out")
        )
        at, written = len(self._operations), {storage for storage, _ in writes}
        if name in _ALLOCATES:
            self._unwritten |= dict.fromkeys(written, at)
            self._operations.append(Operation([], [], made, made, 0))
            return
        for storage in {storage for storage, _ in reads} - written & self._unwritten.keys():
            if storage in self._unwritten:
                self._unseen.append((self._unwritten.pop(storage), at))
        for storage in written:
            self._unwritten.pop(storage, None)
        whole = {
            storage
            for operand, storage, tensor in operands
            if operand.startswith("out") and view_of(tensor).bytes == tensor.untyped_storage().nbytes()
        }
        if name in _GATHERS and reads:
            reads[0] = _at_most(reads[0], sum(view.bytes for _, view in writes))
        elif name in _SCATTERS and reads:
            writes, whole = [_at_most(one, reads[-1][1].bytes) for one in writes], set()
            reads = [one for one in reads if one[0] not in written]
        self._operations.append(Operation(reads, writes, made, whole | made, self._flops(*call)))

    def _flops(self, func: Any, args: Any, kwargs: Any, result: Any) -> int | None:
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            try:
                return int(formula(*args, **kwargs, out_val=result))
            except Exception:  # of another torch, or for another kind of tensor
                return None
        if func not in self._known:
            self._known[func] = func.namespace == "aten" and _is_whole(func)
        return 0 if self._known[func] else None

    def _work(self) -> dict[str, Work]:
        """Return the work of each range of the step that closed; None where calls of a range differ."""
        edges = [0] * (len(self._operations) + 1)
        for first, last in [*self._unseen, *((at, at) for at in self._unwritten.values())]:
            edges[first] += 1
            edges[last + 1] -= 1
        for at, covers in enumerate(accumulate(edges[:-1])):
            if covers:
                self._operations[at] = self._operations[at]._replace(flops=None)
        found: dict[str, Work] = {}
        for span in self._spans:
            work = Work(None, None) if span.is_unseen else self._work_of(span)
            found[span.path] = _agreed(found.get(span.path, work), work)
        return found

    def _work_of(self, span: Span) -> Work:
        read: dict[int, set[View]] = defaultdict(set)
        wrote: dict[int, set[View]] = defaultdict(set)
        made: set[int] = set()
        inside: set[int] = set()
        flops = 0
        for operation in self._operations[span.begin : span.end]:
            if operation.flops is None:
                return Work(None, None)
            flops += operation.flops
            for storage, view in operation.reads:
                if storage not in inside:
                    read[storage].add(view)
            for storage, view in operation.writes:
                wrote[storage].add(view)
            made |= operation.made
            inside |= operation.whole
        stays = [
            views
            for storage, views in wrote.items()
            if storage not in made or self._deaths.get(storage, len(self._spans)) > span.order
        ]
        return Work(sum(bytes_of(views, self._holds) for views in [*read.values(), *stays]), flops)

    def found(self) -> dict[str, Work]:
        """Return the work of each path: that of the last two of its steps, if they agree."""
        found: dict[str, Work] = {}
        for steps in self._steps.values():
            last, before = steps[-1], steps[-2:][0]
            unknown = Work(None, None)
            found |= {path: _agreed(work, before.get(path, unknown)) for path, work in last.items()}
        return found


def _at_most(one: tuple[int, View], size: int) -> tuple[int, View]:
    storage, view = one
    return storage, view._replace(bytes=min(view.bytes, size), axes=view.axes if view.bytes <= size else None)


def _agreed(one: Work, other: Work) -> Work:
    return Work(*(first if first == second else None for first, second in zip(one, other, strict=True)))
