"""Record which tensors each operation of a program reads and writes. The fusion planner needs this file, dataflow.csv.

A profiler sees kernels and no tensors. So the captured program runs once more, without timing and without a profiler. A
`TorchDispatchMode` sees every ATen and custom operation with its operands. Operations that only make views (transpose,
chunk, view) move no data and are left out; a view keeps the storage of its tensor.

dataflow.csv has one row an operand, in the order of the program. Cells that do not apply are blank:
- range, call    full path of the innermost range, and which instance of that path this is (0-based)
- ordinal, op    place of the operation among those of that instance, and its name such as aten.mul.Tensor
- operand        in0, in1, … and out0, out1, …; a tensor that is changed in place is an input and an output
- storage        number of the tensor's memory: two tensors have the same number exactly if they share memory. It counts
                 allocations by first use, so memory that was freed and reused has a new number
- offset, shape, strides, dtype
                 of the tensor, in elements, `x` between the axes
- bytes          distinct bytes of the tensor: axes of stride 0 count once
- view           0 if the tensor is its whole storage in order, else 1
- masked_frac    for boolean inputs: share of true elements
- freed          for outputs: number of the operation before which the memory was freed (0-based over the program);
                 blank if it was never freed. Memory that outlives its readers is a result
"""

import weakref
from collections import Counter
from typing import Any, Protocol

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# These operations overwrite an operand without reading it.
_WRITE_ONLY = frozenset({"aten::copy_", "aten::fill_", "aten::zero_"})
_OPERAND, _STORAGE = 4, 5  # places in a row


class Listener(Protocol):
    """Is told what a recorder sees, in the order of the program, such as harness.instrument.range_work.WorkOfRanges."""

    def opened(self, path: str) -> None: ...

    def closed(self) -> None: ...

    def ran(self, call: tuple[Any, Any, Any, Any], operands: list[tuple[str, int, Any]], made: set[int]) -> None: ...

    def died(self, storage: int) -> None: ...


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Record operations inside `with recorder:`. It is also a `harness.ranges.Tracer`, which gives their paths.

    With `keeps` off, it adds no rows and only tells its listener.
    """

    enabled = True

    def __init__(self, listener: Listener | None = None) -> None:
        super().__init__()
        self._listener, self.keeps = listener, True
        self._rows: list[tuple[Any, ...]] = []
        self._operations = 0
        self._stack: list[tuple[str, int]] = [("", 0)]
        self._calls: Counter[str] = Counter()
        self._ordinals: Counter[tuple[str, int]] = Counter()
        # The weak reference keeps PyTorch from reusing the address of a freed storage, so each address has one number.
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}
        self._alive: dict[int, Any] = {}  # storages that operations wrote: number -> weak reference
        self._freed: dict[int, int] = {}
        self._dead: list[int] = []  # storages that were freed since the last operation
        self._tells = _storages_tell()

    def push(self, name: str) -> None:
        path = f"{self._stack[-1][0]}/{name}".lstrip("/")
        self._stack.append((path, self._calls[path]))
        self._calls[path] += 1
        if self._listener:
            self._listener.opened(path)

    def pop(self) -> None:
        self._stack.pop()
        if self._listener:
            self._note_freed()
            self._listener.closed()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._note_freed()
        if _is_composite(func.name(), args):
            # Under inference mode, a composite operation arrives whole; decompose it into the operations that run.
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        inputs, written = self._inputs(func._schema, args, kwargs)
        # Describe operands before the call, which may change them in place.
        operands = [(f"in{place}", tensor, self._masked(tensor)) for place, tensor in enumerate(inputs)]
        result = func(*args, **kwargs)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        known = {self._storage(tensor) for tensor in (*inputs, *written)}
        made = [tensor for tensor in outputs if self._storage(tensor) not in known]
        if made or written:
            outputs = [*written, *made]
            operands += [(f"out{place}", tensor, "") for place, tensor in enumerate(outputs)]
            for tensor in outputs:
                self._watch(tensor)
            if self._listener:
                told = [(operand, self._storage(tensor), tensor) for operand, tensor, _ in operands]
                self._listener.ran((func, args, kwargs, result), told, {self._storage(tensor) for tensor in made})
            if self.keeps:
                self._add(str(func), operands)
        return result

    def _inputs(self, schema: Any, args: Any, kwargs: Any) -> tuple[list[Any], list[Any]]:
        """Return (tensors that the operation reads, tensors that it writes in place)."""
        read, written = [], []
        named = {argument.name: value for argument, value in zip(schema.arguments, args, strict=False)} | kwargs
        for argument in schema.arguments:
            tensors = [leaf for leaf in tree_leaves(named.get(argument.name)) if isinstance(leaf, torch.Tensor)]
            changed = argument.alias_info is not None and argument.alias_info.is_write
            written += tensors if changed else []
            read += [] if changed and (argument.is_out or schema.name in _WRITE_ONLY) else tensors
        return read, written

    def _storage(self, tensor: Any) -> int:
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self._storages:
            number = len(self._storages)
            self._storages[address] = StorageWeakRef(storage), number
        return self._storages[address][1]

    def _watch(self, tensor: Any) -> None:
        """Notice when the storage of a tensor is freed."""
        number = self._storage(tensor)
        if number in self._alive:
            return
        if self._tells:
            storage, dead = tensor.untyped_storage(), self._dead
            self._alive[number] = weakref.ref(storage, lambda _: dead.append(number))
        else:
            self._alive[number] = int(self._storages[tensor.untyped_storage()._cdata][0].cdata)

    def _note_freed(self) -> None:
        """Note the storages that were freed since the last operation.

        A training step holds thousands of storages. If they do not tell their end, each one is asked here.
        """
        if not self._tells:
            expired = torch.UntypedStorage._expired
            self._dead += [number for number, reference in self._alive.items() if expired(reference)]
        while self._dead:
            number = self._dead.pop()
            del self._alive[number]
            self._freed[number] = self._operations
            if self._listener:
                self._listener.died(number)

    def _masked(self, tensor: Any) -> str:
        if not self.keeps or tensor.dtype != torch.bool or not tensor.numel():
            return ""
        once = _without_repeats(tensor)
        return f"{float(once.sum()) / once.numel():.6g}"

    def _add(self, op: str, operands: list[tuple[str, Any, str]]) -> None:
        path, call = self._stack[-1]
        ordinal = self._ordinals[path, call]
        self._ordinals[path, call] += 1
        self._operations += 1
        for operand, tensor, masked in operands:
            item = tensor.element_size()
            whole = tensor.is_contiguous() and tensor.numel() * item == tensor.untyped_storage().nbytes()
            self._rows.append(
                (
                    path,
                    call,
                    ordinal,
                    op,
                    operand,
                    self._storage(tensor),
                    tensor.storage_offset(),
                    "x".join(map(str, tensor.shape)),
                    "x".join(map(str, tensor.stride())),
                    str(tensor.dtype).removeprefix("torch."),
                    _without_repeats(tensor).numel() * item,
                    int(not whole),
                    masked,
                )
            )

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows of dataflow.csv; what is still alive now was never freed."""
        self._note_freed()
        freed = (self._freed.get(row[_STORAGE], "") if row[_OPERAND].startswith("out") else "" for row in self._rows)
        return [(*row, when) for row, when in zip(self._rows, freed, strict=True)]

    def text(self) -> str:
        """Return the text of dataflow.csv."""
        from analysis.formats.run import (
            DATAFLOW,
        )  # a program with automatic ranges has torch, and may lack our packages

        return DATAFLOW.text(self.rows())


def _is_composite(name: str, args: Any) -> bool:
    """Return whether other operations run in place of this one: it is composite, and its device has no kernel for it.

    `_fused_rms_norm` is one kernel on a GPU, and seven operations elsewhere.
    """
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    if not has_kernel(name, "CompositeImplicitAutograd"):
        return False
    devices = {leaf.device.type.upper() for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)}
    return not any(has_kernel(name, device) for device in devices if device in ("CPU", "CUDA"))


def _storages_tell() -> bool:
    """Return whether a weak reference to a storage calls back exactly when the last tensor on it is gone.

    It does since PyTorch keeps the Python object of a storage as long as the storage. Else it calls back too early.
    """
    called: list[bool] = []
    tensor = torch.empty(1)
    held = StorageWeakRef(tensor.untyped_storage())  # as the recorder holds one
    watched = weakref.ref(tensor.untyped_storage(), lambda _: called.append(True))
    view = tensor.view(1)
    del tensor
    early = bool(called) or watched() is None
    del view
    return not early and bool(called) and held.expired()


def _without_repeats(tensor: Any) -> Any:
    """Return the tensor with its axes of stride 0 cut to one element: each element of memory once."""
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor
