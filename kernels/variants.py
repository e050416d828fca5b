"""How a variant is run: a function of a compiled extension, of a Triton file, or torch.compile of a chain.

And how it is declared: a constructor for each kind, so that names stand in one place. Inputs share `random_normal`.

Nothing is imported, compiled or loaded before the first call of what these functions return.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import tomllib
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kernels import objects, tuned
from kernels.registry import FOLDER, ByteModel, Launcher, Op, Variant, ops

_modules: dict[str, Any] = {}  # by folder


def from_extension(folder: str, function: str) -> Callable[..., Any]:
    """`function` of the extension built from kernels/<folder>."""

    def run(*inputs: Any) -> Any:
        if folder not in _modules:
            from kernels.build import extension

            _modules[folder] = extension(folder)
        return getattr(_modules[folder], function)(*inputs)

    return run


@contextmanager
def calling(folder: str, module: Any) -> Iterator[None]:
    """Inside the block `module` stands for the extension of kernels/<folder>: the sweep's other builds of it."""
    before = _modules.get(folder)
    _modules[folder] = module
    try:
        yield
    finally:
        del _modules[folder]
        if before is not None:
            _modules[folder] = before


def from_module(module: str, function: str) -> Callable[..., Any]:
    """`function` of a module that is imported at the first call, because it needs Triton."""

    def run(*inputs: Any) -> Any:
        return getattr(importlib.import_module(module), function)(*inputs)

    return run


def compiled(chain: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """torch.compile of `chain`, static shapes, one graph for each shape, dtype and device of the inputs; `options` are
    those of the compiler.
    """

    @functools.lru_cache(maxsize=128)
    def graph(shapes: tuple[Any, ...]) -> Any:
        import torch

        # torch.compile keeps its graphs per code object: one of our own for every shape keeps each of them static
        # and clear of the recompile limit, after which it would silently run eagerly
        name = "_".join([chain.__name__, *options, *("x".join(map(str, shape)) for shape, _, _ in shapes)])
        code = chain.__code__.replace(co_name=name)
        function = types.FunctionType(code, chain.__globals__)
        return torch.compile(function, dynamic=False, fullgraph=True, options=options or None)

    def run(*inputs: Any) -> Any:
        tensors = [value for value in inputs if hasattr(value, "dtype")]
        return graph(tuple((tuple(value.shape), value.dtype, value.device) for value in tensors))(*inputs)

    return run


# A variant of each kind: what follows from its name is not written again.


def torch_variant(
    idea: str,
    chain: Callable[..., Any],
    bytes_model: ByteModel,
    *,
    name: str = "torch",
    lay_out: Callable[..., tuple[Any, ...]] | None = None,
    **more: Any,
) -> Variant:
    """PyTorch's own operations, one after another, operands as `lay_out` gives them. `more` are fields of Variant."""
    fields = laid_out(chain, lay_out) if lay_out else {"fn": chain}
    return Variant(name=name, kind="torch", idea=idea, bytes_model=bytes_model, **fields, **more)


def compile_variant(idea: str, chain: Callable[..., Any], bytes_model: ByteModel, **more: Any) -> Variant:
    """torch.compile of `chain`, see `compiled`."""
    return Variant(name="compile", kind="compile", idea=idea, fn=compiled(chain), bytes_model=bytes_model, **more)


def tuned_variant(
    idea: str,
    chain: Callable[..., Any],
    bytes_model: ByteModel,
    *,
    lay_out: Callable[..., tuple[Any, ...]] | None = None,
    **more: Any,
) -> Variant:
    """torch.compile of `chain` with every search that it has; operands as `lay_out` gives them."""
    fn = compiled(chain, max_autotune=True, coordinate_descent_tuning=True, shape_padding=True)
    fields = laid_out(fn, lay_out) if lay_out else {"fn": fn}
    return Variant(
        name="compile_tuned",
        kind="compile",
        idea=idea,
        bytes_model=bytes_model,
        tuned=True,
        captured=False,
        **fields,
        **more,
    )


def library_variant(
    name: str, needs: str, idea: str, fn: Callable[..., Any], bytes_model: ByteModel, **more: Any
) -> Variant:
    """`fn` calls the module `needs`, which does not come with PyTorch."""
    return Variant(
        name=name, kind="library", idea=idea, fn=fn, bytes_model=bytes_model, needs=needs, captured=False, **more
    )


def laid_out(function: Callable[..., Any], lay_out: Callable[..., tuple[Any, ...]]) -> dict[str, Any]:
    """Fields of a variant that takes its operands in another layout, `lay_out(*inputs)`, laid out before it is timed,
    as weights are when a model is loaded.
    """
    return {
        "fn": lambda *inputs: function(*lay_out(*inputs)),
        "prepared": lambda *inputs: functools.partial(function, *lay_out(*inputs)),
    }


def cuda_variant(
    folder: str,
    name: str,
    idea: str,
    bytes_model: ByteModel,
    *,
    function: str = "",
    launcher: str = "",
    binding: str = "run<{launcher}>",
    symbols: tuple[str, ...] = (),
    **more: Any,
) -> Variant:
    """The rung kernels/<folder>/<name>.cu: `function` of the extension (`name`), device symbols (`<folder>_<name>`).

    The function's `binding` calls the host function `launcher` (`<folder>_<name>`). One that names `{workspace}` asks
    `<launcher>_workspace` for the size of it.
    """
    host = launcher or f"{folder}_{name}"
    workspace = f"{host}_workspace"
    return Variant(
        name=name,
        kind="cuda",
        idea=idea,
        fn=from_extension(folder, function or name),
        bytes_model=bytes_model,
        symbols=symbols or (f"{folder}_{name}",),
        source=f"{name}.cu",
        launcher=Launcher(
            host,
            function or name,
            binding.format(launcher=host, workspace=workspace),
            workspace if "{workspace}" in binding else "",
        ),
        **more,
    )


def triton_variant(
    folder: str,
    module: str,
    function: str,
    idea: str,
    bytes_model: ByteModel,
    *,
    name: str = "triton",
    symbols: tuple[str, ...] = (),
    **more: Any,
) -> Variant:
    """`function` of kernels/<folder>/<module>.py, device symbols (`<folder>_<module>`)."""
    return Variant(
        name=name,
        kind="triton",
        idea=idea,
        fn=from_module(f"kernels.{folder}.{module}", function),
        bytes_model=bytes_model,
        symbols=symbols or (f"{folder}_{module}",),
        source=f"{module}.py",
        **more,
    )


def fingerprint(op: Op, variant: str) -> str:
    """12 hex digits that change with the source of a variant and of the rungs that it calls, and with which of its own
    tunables tuned.toml has other than the default on any GPU: a measurement with another fingerprint is of another
    kernel, unless `equivalents` says otherwise. What PyTorch brings is told by the names of its operations.
    """
    declared = op.variant(variant)
    if declared.source:
        return _as_built(op, declared, objects.fingerprint(FOLDER / op.folder / declared.source))
    return hashlib.sha256(" ".join((declared.kind, variant, *op.chain)).encode()).hexdigest()[:12]


def choices(op: Op, variant: Variant) -> list[str]:
    """The -D flags of its tunables that tuned.toml has other than the default on any GPU."""
    flags = tuned.flags(f"{op.folder}/{variant.source}")
    return [flag for flag in flags if flag.removeprefix("-D").split("=")[0] in variant.tunables]


def _as_built(op: Op, variant: Variant, of_source: str) -> str:
    flags = choices(op, variant)
    return hashlib.sha256(" ".join([of_source, *flags]).encode()).hexdigest()[:12] if flags else of_source


def equivalents() -> dict[str, str]:
    """Older fingerprints with those of today, where kernels/equivalent.toml says that sources are the same kernels: a
    measurement with either counts.
    """
    entries = tomllib.loads((FOLDER / "equivalent.toml").read_text("utf-8"))["equivalent"]
    return {
        _as_built(op, variant, entry["older"]): _as_built(op, variant, entry["now"])
        for entry in entries
        for op in ops().values()
        for variant in op.variants.values()
        if f"{op.folder}/{variant.source}" == entry["source"]
    }


def random_normal(seed: int, device: str) -> Callable[..., Any]:
    """`normal(*sizes)`, float32 of mean 0 and variance 1: successive calls go on in one seeded sequence."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    return lambda *sizes: torch.randn(sizes, generator=generator, device=device, dtype=torch.float32)
