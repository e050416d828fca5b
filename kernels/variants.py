"""How a variant is run: a function of a compiled extension, of a Triton file, or torch.compile of a chain.

Nothing is imported, compiled or loaded before the first call of what these functions return.
"""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable
from typing import Any


def from_extension(folder: str, function: str) -> Callable[..., Any]:
    """`function` of the extension built from kernels/<folder>."""

    @functools.cache
    def load() -> Callable[..., Any]:
        from kernels.build import extension

        return getattr(extension(folder), function)

    return lambda *inputs: load()(*inputs)


def from_module(module: str, function: str) -> Callable[..., Any]:
    """`function` of a module that is imported at the first call, because it needs Triton."""

    def run(*inputs: Any) -> Any:
        return getattr(importlib.import_module(module), function)(*inputs)

    return run


def compiled(chain: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile of `chain`, static shapes, one graph for each shape, dtype and device of the inputs."""

    @functools.lru_cache(maxsize=128)
    def graph(shapes: tuple[Any, ...]) -> Any:
        import torch

        # torch.compile keeps its graphs per code object: one of our own for every shape keeps each of them static
        # and clear of the recompile limit, after which it would silently run eagerly
        name = "_".join([chain.__name__, *("x".join(map(str, shape)) for shape, _, _ in shapes)])
        code = chain.__code__.replace(co_name=name)
        return torch.compile(types.FunctionType(code, chain.__globals__), dynamic=False, fullgraph=True)

    def run(*inputs: Any) -> Any:
        tensors = [value for value in inputs if hasattr(value, "dtype")]
        return graph(tuple((tuple(value.shape), value.dtype, value.device) for value in tensors))(*inputs)

    return run
