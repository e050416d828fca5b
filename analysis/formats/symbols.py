"""Give a kernel one name, independent of the tool that printed it.

nsys prints `void at::native::<unnamed>::f<(int)16, (bool)0>(int, T1)`. For the same kernel, ncu 2025 prints `void
at::<unnamed>::f<16, 0>(int, T1)`, and older versions something between. `key` removes the differences and keeps the
template arguments, which separate two instances of one template. Names that are not C++ (Triton, cuBLAS, Numba,
Fortran) stay unchanged.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from analysis.formats.words import tell_apart

_ANONYMOUS = re.compile(
    r"\(anonymous namespace\)|<unnamed>|\{anonymous\}|_GLOBAL__N__[A-Za-z0-9_]+|(?:^|(?<=\s))unnamed>"
)
_UNNAMED = ("anonymous", "unnamed>", "_GLOBAL__N__", "@")
# Namespaces that one of the tools leaves out, and inline ones that only hold a version.
_NAMESPACE = re.compile(
    r"(?<![A-Za-z0-9_])(?:at|native|internal|detail|impl|__1|__2|__cxx11|CUB_[0-9A-Z_]+|THRUST_[0-9A-Z_]+|_V2)::"
)
_CAST = re.compile(r"(?<=[<,( ])\((?:[A-Za-z_][A-Za-z0-9_:<>]*(?: (?!instance)[A-Za-z_][A-Za-z0-9_]*)*)\)(?=-?[0-9])")
_LITERAL = re.compile(r"(?<![A-Za-z0-9_.])(-?[0-9]+)[uUlL]+(?![A-Za-z0-9_])")
_MAYBE_CAST, _MAYBE_LITERAL = re.compile(r"\)-?[0-9]"), re.compile(r"[0-9][uUlL]")
_GNU_LAMBDA = re.compile(r"\{lambda\((.*?)\)#([0-9]+)\}")
_CLOSED = re.compile(
    r"\b(at|c10|cub|thrust|cutlass|cudnn|cufft|cublas\w*|gemvx?|internal)::|cutlass|nvjet|xmma|cudnn|cublas|nccl"
    r"|\bgemv\d?[NT]\w*_kernel|\bgemvNSP_|\bgemmSN_|\bgemmk1_|\bgemm_kernel\dx\d|gemm_(largek|\d+x\d+)|convolve_\w*gemm|splitKreduce"
    r"|softmax_warp_|elementwise_kernel|^(maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell|sm\d+)_"
    r"|^triton_(poi|red|per|tem|mm)_|^(loop|input|wrapped)_\w+|_fusion"
)
# Products for operands that are not aligned to 16 bytes: eight elements of 16 bits, or four of TF32. The names of
# cuBLAS, cuDNN and CUTLASS tell the elements of a load. `s1688gemm` without a type is TF32; `simt` always loads one.
ODD_OPERANDS = re.compile(
    r"(?:f16|fp16|h\d{3,6}gemm)_(?:\w*_)?(?:aligna?|ldg)([124])(?!\d)"
    r"|(?:tf32|tensorop_s1688gemm_\d)\w*_aligna?([12])(?!\d)"
)
_OPEN, _CLOSE = "<([{", ">)]}"
_SIGN = re.compile(r"->|[][<>(){}]")
_BLANKS = (*((f" {sign}", sign) for sign in "*&,<>"), *((f"{sign} ", sign) for sign in "*&,<"))
_BRACKET, _BRACKET_OR_COLONS = re.compile(r"[][<>(){}]"), re.compile(r"[][<>(){}]|:(?=:)")


def _without_parameters(name: str) -> str:
    """Return `name` without the parameter list at its end, which is the last balanced pair of parentheses."""
    trailed = name.rstrip()[-1:] in ("t", "e", "&", "]")  # how each word of the pattern ends
    text = re.sub(r"\s*(?:const|volatile|&|noexcept|\[clone [^\]]*\])\s*$", "", name) if trailed else name
    if not text.endswith(")"):
        return text
    depth = 0
    for i in range(len(text) - 1, -1, -1):
        depth += (text[i] == ")") - (text[i] == "(")
        if depth == 0:
            head = text[:i]
            return text if not head or head.rstrip().endswith("operator") else head
    return text


def _without_return_type(name: str) -> str:
    """Return `name` after the last blank that stands outside all brackets."""
    depth = start = last = 0
    for found in _SIGN.finditer(name):
        sign = found[0]
        if sign == "->":
            continue
        if depth == 0:
            start = max(start, name.rfind(" ", last, found.start()) + 1)
        depth += 1 if sign in _OPEN else -1
        if depth < 0:
            return name  # `operator>`, or a name without its beginning: leave it unchanged
        last = found.end()
    return name[max(start, name.rfind(" ", last) + 1) :] if depth == 0 else name


_CUT = re.compile(r"(?:\.\.\.|…)$")


def _parts_of_cut(name: str) -> tuple[str, str]:
    """Return a name that a console cut, `void fill<float, at::Arr...`, before and after its first open bracket."""
    opened: list[int] = []
    for place, sign in enumerate(name):
        if sign in _OPEN:
            opened.append(place)
        elif sign in _CLOSE and opened and not (sign == ">" and name[place - 1] == "-"):
            opened.pop()
    at = opened[0] if opened and not name[: opened[0]].endswith("operator") else len(name)
    return name[:at], name[at:]


@lru_cache(maxsize=1 << 16)
def key(name: str) -> str:
    """Return the same text for the names that nsys and ncu print for one kernel.

    It removes the return type, the parameters, anonymous, `internal`, `detail` and `at::native` namespaces, casts of
    template values such as `(int)4`, literal suffixes and blanks. It keeps template arguments, and what is left of them
    where a console cut the name.
    """
    text = " ".join(name.split())
    if text.endswith(("...", "…")) and (parts := _parts_of_cut(text))[1]:
        return key(parts[0]) + ("" if parts[1].startswith("(") else parts[1])
    text = text.replace("operator ()", "operator()")
    # to look whether a pattern may match takes less time than the pattern
    if "{lambda(" in text:
        text = _GNU_LAMBDA.sub(r"[lambda(\1) (instance \2)]", text)
    if any(mark in text for mark in _UNNAMED):
        text = re.sub(r"@(?:::)?", "", _ANONYMOUS.sub("@", text))
    if _MAYBE_CAST.search(text):
        text = _CAST.sub("", text)
    if _MAYBE_LITERAL.search(text):
        text = _LITERAL.sub(r"\1", text)
    for word, digit in (("true", "1"), ("false", "0")):
        text = re.sub(rf"(?<=[<,] ){word}\b|(?<=<){word}\b", digit, text) if word in text else text
    text = _without_return_type(_without_parameters(text).strip())
    text = _NAMESPACE.sub("", text) if "::" in text else text
    for blank, sign in _BLANKS:
        while blank in text:
            text = text.replace(blank, sign)
    return text.replace(",", ", ") or name


_QUALIFIER = re.compile(r"(?<![A-Za-z0-9_])(?:[A-Za-z_][A-Za-z0-9_]*::)+(?=[A-Za-z_~])")


@lru_cache(maxsize=1 << 16)
def match_key(name: str) -> str:
    """Return `key` without any namespace, which finds a kernel of one tool among those of the other.

    ncu 2025 leaves out some inner namespaces (it prints `internal::gemvx::kernel` as `internal::kernel`).
    """
    return _QUALIFIER.sub("", key(name))


_LAMBDA = re.compile(r"\[lambda\(((?:[^()]|\([^()]*\))*)\) \(instance ([0-9]+)\)\]")
_PARAMETERS = re.compile(r"\([^()]*\)")
_WRITTEN_BY_SOME = re.compile(r"\bconst\b|(?<=[<, ])void (?=[A-Za-z_])|\s")


@lru_cache(maxsize=1 << 16)
def demangled_key(name: str) -> str:
    """Return `match_key` without what demanglers write differently inside template arguments.

    For the function around a lambda, nsys prints `void f<S>(A&, const T1&)`, and libstdc++ `f<S>(A&, S const&)`.
    """
    text, before = _LAMBDA.sub(r"[\1#\2]", match_key(name)), ""
    while before != text:
        before, text = text, _PARAMETERS.sub("", text)
    return _WRITTEN_BY_SOME.sub("", text)


def _split_template(text: str) -> tuple[str, str]:
    """Return (function with its namespaces, its template arguments) of a key."""
    depth = 0
    for found in reversed([*_BRACKET.finditer(text)] if text.endswith(">") else []):
        depth += 1 if found[0] in _CLOSE else -1
        if depth == 0 and found[0] == "<":
            return text[: found.start()], text[found.end() : -1]
    return text, ""


def is_closed(name: str) -> bool:
    """Return whether a kernel is of a library or a compiler, whose grid and loops nobody edits."""
    return _CLOSED.search(name) is not None


def odd_operands(name: str) -> tuple[int, int] | None:
    """Return how many elements a library's product for operands that are not aligned loads at a time, and how many are
    16 bytes; None for another kernel.
    """
    found = ODD_OPERANDS.search(name)
    return (int(found[1] or found[2]), 4 if found[2] else 8) if found else None


@lru_cache(maxsize=1 << 16)
def base(name: str) -> str:
    """Return the function name alone, without namespaces and template arguments (`ncu --kernel-name-base function`)."""
    head = _split_template(key(name))[0]
    if _CUT.search(head):
        head = _split_template(_parts_of_cut(head)[0])[0]
    depth = 0
    for found in reversed([*_BRACKET_OR_COLONS.finditer(head)]):
        if found[0] == ":" and depth == 0:
            return head[found.start() + 2 :]
        depth += 0 if found[0] == ":" else 1 if found[0] in _CLOSE else -1
    return head


def pattern(name: str, longest: int) -> str:
    """Return a regular expression that matches the function of a kernel from its first letter on.

    It matches to the end if the name is neither cut nor longer than `longest` letters.
    """
    function = base(name)
    part = _CUT.sub("", function)[:longest]
    return f"^{re.escape(part)}{'$' if part == function else ''}"


_HINT = re.compile(
    r"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*(?:Functor[A-Za-z0-9_]*|Ops?|_kernel(?:_impl|_cuda)?[a-z_]*|_forward|_backward))(?![A-Za-z0-9_])"
)
_GENERIC = frozenset({"AUnaryFunctor", "BUnaryFunctor", "BinaryFunctor", "gpu_kernel_impl", "ReduceOp"})
_DEVICE = re.compile(r"\((\d+)\)$|^(\d+)$")
WIDTH = 60  # letters of a kernel's name wherever there is room
_WRAPPERS = frozenset({"Kernel", "Kernel2", "kernel", "device_kernel", "_kernel_agent"})


def short(name: str, width: int = WIDTH) -> str:
    """Return a display name, at most `width` characters, ending with … if it was cut.

    It is the function. If a template only wraps the work (elementwise kernels, cutlass), it also has the wrapped
    function.
    """
    text = _shown(name)
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


@lru_cache(maxsize=1 << 16)
def _shown(name: str) -> str:
    function = base(name)
    path, arguments = _split_template(key(name))
    if not arguments:
        return function
    if function in _WRAPPERS:
        first = re.split("[,<]", arguments)[0]
        wraps = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_:]{7,}", first)
        return first.split("::")[-1] if wraps else "::".join(path.split("::")[-2:])
    words = (found[1] for found in _HINT.finditer(arguments))
    word = next((one for one in words if one not in _GENERIC and not one.startswith("gpu_kernel_impl")), "")
    return f"{function}<{word}>" if word else function


def short_all(names: Iterable[str], width: int = WIDTH) -> dict[str, str]:
    """Return `short` of each name; equal short names show the part in which they differ."""
    return tell_apart(names, lambda name: short(name, width), width, key)


def split_device(device: str) -> tuple[str, int | None]:
    """Return name and number of a GPU such as `NVIDIA H200 (0)` or `0`; None for a name without a number."""
    found = _DEVICE.search(device)
    return (device[: found.start()].strip(), int(found[1] or found[2])) if found else (device, None)
