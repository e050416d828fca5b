"""Match kernels to operations: sort kernels into kinds by name, then match both in program order.

A profiler names kernels, and a recorded dataflow names operations. Inside one instance of a range, both stand in the
order of the program. The kinds of kernels that an operation launches are known: a `masked_fill` is a copy and a fill.
An assignment counts only if no other one is possible.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

from analysis.formats import symbols

MATRIX = "matrix"
# Kind of a kernel -> pattern of its name in small letters. The first match decides.
_KINDS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (MATRIX, r"gemm|gemv|xmma|cutlass|splitkreduce|cublas|nvjet|cudnn|flash|fmha|conv\dd|wgmma|::dot_kernel"),
        ("softmax", r"softmax"),
        ("layer_norm", r"layer_?norm|rowwisemoments|rms_?norm"),
        ("gelu", r"gelu"),
        ("masked_fill", r"masked_fill"),
        ("cat", r"catarray"),
        ("copy", r"direct_copy_kernel|(?:bfloat16|float16|float8\w*)_copy_kernel|conj_kernel"),
        ("argmax", r"argmax|argmin"),
        ("reduce", r"(?<![a-z_])reduce_kernel"),
        ("gather", r"gather_kernel|indexselect|index_select|index_elementwise|index_kernel|embedding"),
        ("mul", r"mulfunctor"),
        ("add", r"cudafunctor(?:onself|onother)?_add|addfunctor"),
        ("div", r"divfunctor|div_true"),
        ("pow", r"pow_tensor"),
        ("where", r"where_kernel"),
        ("fill", r"fillfunctor"),
        ("tri", r"tri[ul]_"),
        ("arange", r"arange"),
    )
)
_NAMED = re.compile(
    r"(?<![A-Za-z0-9_])(?!gpu_|elementwise|vectorized|unrolled)([a-z][a-z0-9]*)_(?:scalar_|cuda_)?kernel"
)

ELEMENTWISE = frozenset([
    "add", "sub", "mul", "div", "pow", "tanh", "gelu", "relu", "silu", "sigmoid", "exp", "log", "sqrt", "rsqrt",
    "neg", "abs", "erf", "masked_fill", "where", "clamp", "maximum", "minimum", "reciprocal", "square", "rsub",
    "fill", "zero", "dropout", "bitwise_and", "bitwise_or", "bitwise_not", "logical_and", "logical_or", "eq", "ne",
    "lt", "le", "gt", "ge", "cos", "sin", "lerp", "addcmul", "addcdiv",
])  # fmt: skip
# An optimiser makes its state with these in its first step, and in no later one.
FILLS = frozenset(["zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "zero", "fill"])
MOVES = frozenset(["copy", "clone", "_to_copy", "cat", "stack", "embedding", "index_select", "index", "gather"])
REDUCTIONS = frozenset([
    "_softmax", "_safe_softmax", "_log_softmax", "native_layer_norm", "native_batch_norm", "cudnn_batch_norm",
    "_fused_rms_norm", "sum", "mean", "amax", "amin", "var", "var_mean", "max", "argmax", "argmin", "any", "all",
    "linalg_vector_norm",
])  # fmt: skip
PRODUCTS = frozenset([
    "mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "convolution", "dot", "mv", "addmv", "addbmm",
    "_addmm_activation",
])  # fmt: skip
GATHERS = frozenset(["embedding", "index_select", "index", "gather"])
LAUNCH_NOTHING = frozenset([
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "alias", "lift_fresh",
    "resize_", "set_",
])  # fmt: skip

_ANY = r"(?!matrix )\S+ "
# The launches of an operation, as a pattern over the kinds of its kernels, each kind followed by a blank.
_LAUNCHES = {
    **dict.fromkeys(PRODUCTS, r"(?:memset |memcpy |copy |fill )*matrix (?:matrix |reduce )*(?:add |gelu )?"),
    **dict.fromkeys(("copy", "clone", "_to_copy"), r"(?:memcpy |copy )"),
    "masked_fill": r"(?:memcpy |copy )masked_fill ",
    "masked_fill_": r"masked_fill ",
    "mul": r"mul ",
    "add": r"add ",
    "sub": r"(?:sub|add) ",
    "rsub": r"(?:sub|add) ",
    "div": r"(?:div|mul) ",
    "pow": r"(?:pow|mul) ",
    "gelu": r"gelu ",
    "where": r"where ",
    **dict.fromkeys(("_softmax", "_safe_softmax", "_log_softmax"), r"softmax "),
    "native_layer_norm": r"(?:layer_norm ){1,2}",
    **dict.fromkeys(GATHERS, r"gather "),
    **dict.fromkeys(("argmax", "argmin"), r"(?:argmax |reduce ){1,2}"),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "any", "all", "var", "var_mean"), r"reduce (?:reduce )?"),
    "max": r"(?:reduce |argmax ){1,2}",
    "cat": r"(?:cat |copy |memcpy )+",
    "stack": r"(?:cat |copy |memcpy )+",
    **dict.fromkeys(FILLS, r"(?:fill|memset) "),
    "_fused_rms_norm": r"layer_norm ",
}
_UNKNOWN = r"(?:\S+ ){1,6}"
_LONGEST = 8  # launches of one operation


@lru_cache(maxsize=1 << 14)
def kind_of_kernel(name: str) -> str:
    """Return the kind of a kernel in one word; its short name if no pattern matches."""
    key = symbols.key(name)
    small = key.lower()
    for kind, pattern in _KINDS:
        if pattern.search(small):
            return kind
    named = _NAMED.search(key)
    return named[1] if named else symbols.short(name, 40).replace(" ", "_")


@lru_cache(maxsize=1 << 14)
def is_matrix(name: str) -> bool:
    """Return whether `kind_of_kernel` is MATRIX, without the search for each other kind."""
    return _KINDS[0][1].search(symbols.key(name).lower()) is not None


def base_name(op: str) -> str:
    """Return `mul` for aten.mul.Tensor. Operations outside ATen keep their namespace, in-place forms keep their `_`."""
    space, _, rest = op.partition(".")
    return rest.partition(".")[0] if space == "aten" else f"{space}::{rest.partition('.')[0]}"


def plain_name(base: str) -> str:
    """Return a base name without the `_` of an in-place form."""
    return base.removesuffix("_")


def _pattern(op: str) -> re.Pattern[str]:
    base = base_name(op)
    if base in LAUNCH_NOTHING:
        return re.compile(r"")
    plain = plain_name(base)
    text = _LAUNCHES.get(base) or _LAUNCHES.get(plain) or (_ANY if plain in ELEMENTWISE else _UNKNOWN)
    return re.compile(text)


_compiled = lru_cache(maxsize=1 << 10)(_pattern)


def assign(ops: Sequence[str], kinds: Sequence[str]) -> list[range] | None:
    """Return the places in `kinds` of each operation's launches; None if there is no assignment or more than one.

    Shape: `ops` names such as aten.mul.Tensor, `kinds` words of kind_of_kernel, memcpy or memset; both in order.
    """
    ways, found = _assign(tuple(ops), tuple(kinds))
    return found if ways == 1 else None


def assign_some(ops: Sequence[str], kinds: Sequence[str], absent: Sequence[frozenset[int]]) -> list[range] | None:
    """Return what `assign` returns, where some operations may launch nothing: their ranges are then empty.

    `absent` has sets of places in `ops`. Any union of them may be absent. An assignment counts only if it is the only
    one over all these unions.
    """
    ways, best = 0, None
    for gone in dict.fromkeys(
        frozenset().union(*some) for size in range(len(absent) + 1) for some in combinations(absent, size)
    ):
        kept = [place for place in range(len(ops)) if place not in gone]
        more, found = _assign(tuple(ops[place] for place in kept), tuple(kinds))
        ways += more
        if more == 1:
            places = dict(zip(kept, found, strict=True))
            best = [places.get(place, range(0)) for place in range(len(ops))]
    return best if ways == 1 else None


@lru_cache(maxsize=1 << 10)
def _assign(ops: tuple[str, ...], kinds: tuple[str, ...]) -> tuple[int, list[range]]:
    """Return the number of assignments, 2 for several, and the only one."""
    # ways[j]: number of ways (2 means several) to assign the first j launches to the operations so far, and last cut
    ways: list[dict[int, tuple[int, int]]] = [{0: (1, 0)}]
    for op in ops:
        pattern = _compiled(op)
        reached: dict[int, tuple[int, int]] = {}
        for start, (count, _) in ways[-1].items():
            text = ""
            for end in range(start, min(start + _LONGEST, len(kinds)) + 1):
                text += f"{kinds[end - 1]} " if end > start else ""
                if pattern.fullmatch(text):
                    before = reached.get(end, (0, 0))[0]
                    reached[end] = (min(before + count, 2), start)
        ways.append(reached)
    count = ways[-1].get(len(kinds), (0, 0))[0]
    if count != 1:
        return count, []
    found, end = [], len(kinds)
    for reached in reversed(ways[1:]):
        start = reached[end][1]
        found.append(range(start, end))
        end = start
    return 1, found[::-1]


_SCALARS = re.compile(
    r"(?<![A-Za-z0-9_])(?:float|double|c10::Half|Half|c10::BFloat16|BFloat16|__half|__nv_bfloat16)(?![A-Za-z0-9_])"
)
_ITEM_BYTES = {"float": 4, "double": 8}
_ELEMENTWISE_KERNEL = re.compile(r"^(vectorized_elementwise_kernel|elementwise_kernel|unrolled_elementwise_kernel)<")
_FIXED = re.compile(r"^elementwise_kernel<(\d+), (\d+), ")
_POINTERS = re.compile(r"std::array<char\*, ?(\d+)")
ELEMENTS_A_THREAD = (4, 8, 16)  # of vectorized_elementwise_kernel, by version of PyTorch and size of its operands


def item_bytes(kernel: str) -> int | None:
    """Return bytes of an element, if the kernel's template names exactly one floating type; else None."""
    found = {name.removeprefix("c10::") for name in _SCALARS.findall(kernel)}
    return _ITEM_BYTES.get(found.pop(), 2) if len(found) == 1 else None


def pointers(kernel: str) -> int | None:
    """Return the number of tensors that an elementwise kernel of PyTorch accesses, output included; None if unknown."""
    found = _POINTERS.search(kernel)
    return int(found[1]) if found else None


def element_count(kernel: str, grid: str, block: str, a_thread: int | None) -> tuple[int, int] | None:
    """Return (least, most) elements of a PyTorch elementwise kernel, from its name and its launch.

    None if they do not tell.

    Shape: `kernel` from symbols.key; `a_thread` is the number of elements a thread of this
    vectorized_elementwise_kernel, None if unknown, since the name does not hold it.
    Source: ATen/native/cuda/CUDALoops.cuh and Loops.cuh: grid = ceil(elements / (threads a block x elements a thread)).
    """
    if not _ELEMENTWISE_KERNEL.match(kernel):
        return None
    fixed = _FIXED.match(kernel)
    blocks, threads = int(grid.split("x")[0]), int(block.split("x")[0])
    each = int(fixed[2]) if fixed else a_thread
    if each is None or not kernel.startswith(("elementwise_kernel", "vectorized")):
        return None
    return (blocks - 1) * threads * each + 1, blocks * threads * each
