"""Declare variants, and run them: functions of a compiled extension or a Triton file, or torch.compile of a chain.

Each kind of variant has a constructor here, which derives names in one place. The ops draw inputs with `random_normal`.

The functions that this module returns import, compile and load nothing before their first call.
"""

import functools
import hashlib
import importlib
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kernels import objects, tuned
from kernels.normalised import in_words
from kernels.registry import FOLDER, ByteModel, Launcher, Op, Variant

_modules: dict[str, Any] = {}  # folder -> loaded extension


def from_extension(folder: str, function: str) -> Callable[..., Any]:
    """Return a caller of `function` in the extension of kernels/<folder>."""

    def run(*inputs: Any) -> Any:
        if folder not in _modules:
            from kernels.build import extension

            _modules[folder] = extension(folder)
        return getattr(_modules[folder], function)(*inputs)

    return run


@contextmanager
def calling(folder: str, module: Any) -> Iterator[None]:
    """Use `module` as the extension of kernels/<folder> inside the block. The sweep runs its other builds this way."""
    before = _modules.get(folder)
    _modules[folder] = module
    try:
        yield
    finally:
        del _modules[folder]
        if before is not None:
            _modules[folder] = before


def from_module(module: str, function: str) -> Callable[..., Any]:
    """Return a caller of `function` in a module that needs Triton. The first call imports the module."""

    def run(*inputs: Any) -> Any:
        return getattr(importlib.import_module(module), function)(*inputs)

    return run


def compiled(chain: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """torch.compile of `chain` with static shapes; each combination of shapes, dtypes and devices has its own graph.

    `options` are those of the compiler.
    """

    @functools.lru_cache(maxsize=128)
    def graph(shapes: tuple[Any, ...]) -> Any:
        import torch

        # torch.compile keeps its graphs per code object. A code object for every shape keeps each graph static, and
        # avoids the recompile limit, after which torch.compile would silently run eagerly
        name = "_".join([chain.__name__, *options, *("x".join(map(str, shape)) for shape, _, _ in shapes)])
        code = chain.__code__.replace(co_name=name)
        function = types.FunctionType(code, chain.__globals__)
        return torch.compile(function, dynamic=False, fullgraph=True, options=options or None)

    def run(*inputs: Any) -> Any:
        tensors = [value for value in inputs if hasattr(value, "dtype")]
        return graph(tuple((tuple(value.shape), value.dtype, value.device) for value in tensors))(*inputs)

    return run


def sdpa(backend: str, *inputs: Any, **options: Any) -> Any:
    """PyTorch's scaled_dot_product_attention, restricted to one backend."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    with sdpa_kernel(getattr(SDPBackend, backend)):
        return scaled_dot_product_attention(*inputs, **options)


@functools.cache
def compiled_flex(tuned: bool = False) -> Callable[..., Any]:
    """Return PyTorch's compiled flex_attention; if `tuned`, the compiler searches for the options of its kernel."""
    import torch._dynamo
    from torch.nn.attention.flex_attention import flex_attention

    # one graph for each shape, dtype and list of blocks: by default the ninth is an error. The limit is process-wide
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    options = {"max_autotune": True} if tuned else None
    return torch.compile(flex_attention, dynamic=False, fullgraph=True, options=options)


# A constructor for each kind of variant, which derives from the name everything that follows from it.


def torch_variant(
    idea: str,
    chain: Callable[..., Any],
    bytes_model: ByteModel,
    *,
    name: str = "torch",
    lay_out: Callable[..., tuple[Any, ...]] | None = None,
    **more: Any,
) -> Variant:
    """Return a variant of PyTorch's operations in sequence, with the operands of `lay_out`.

    `more` are fields of Variant.
    """
    fields = laid_out(chain, lay_out) if lay_out else {"fn": chain}
    return Variant(name=name, kind="torch", idea=idea, bytes_model=bytes_model, **fields, **more)


def compile_variant(idea: str, chain: Callable[..., Any], bytes_model: ByteModel, **more: Any) -> Variant:
    """Return a variant with torch.compile of `chain`, see `compiled`."""
    return Variant(name="compile", kind="compile", idea=idea, fn=compiled(chain), bytes_model=bytes_model, **more)


def tuned_variant(
    idea: str,
    chain: Callable[..., Any],
    bytes_model: ByteModel,
    *,
    lay_out: Callable[..., tuple[Any, ...]] | None = None,
    **more: Any,
) -> Variant:
    """Return a variant with torch.compile of `chain` and all of its searches, with the operands of `lay_out`."""
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
    """Return a variant of a library: `fn` calls the module `needs`, which does not come with PyTorch."""
    return Variant(
        name=name, kind="library", idea=idea, fn=fn, bytes_model=bytes_model, needs=needs, captured=False, **more
    )


def quack_variant(
    idea: str,
    fn: Callable[..., Any],
    bytes_model: ByteModel,
    *,
    name: str = "quack",
    cannot: Any = in_words,
    **more: Any,
) -> Variant:
    """Return a variant of QuACK: kernels in the CuTe DSL, which take finite rows of whole words or packets."""
    return library_variant(name, "quack", idea, fn, bytes_model, finite_only=True, cannot=cannot, **more)


def laid_out(function: Callable[..., Any], lay_out: Callable[..., tuple[Any, ...]]) -> dict[str, Any]:
    """Return the fields of a variant that takes its operands in another layout, `lay_out(*inputs)`.

    The timing excludes the change of layout, as a model changes the layout of its weights once, when it is loaded.
    """
    return {
        "fn": lambda *inputs: function(*lay_out(*inputs)),
        "prepared": lambda *inputs: functools.partial(function, *lay_out(*inputs)),
    }


def prepared_first(prepare: Callable[..., Callable[[], Any]]) -> Callable[..., Any]:
    """Return the `fn` of a variant from its `prepared`: it does the one-time work at each call."""
    return lambda *inputs: prepare(*inputs)()


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
    """Return the rung kernels/<folder>/<name>.cu. Defaults are in parentheses.

    `function` is its name in the extension (`name`), and `symbols` are the device symbols (`<folder>_<name>`). The
    function's `binding` calls the host function `launcher` (`<folder>_<name>`). A binding that names `{workspace}` gets
    its size from `<launcher>_workspace`.
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
    """Return a Triton variant: `function` of kernels/<folder>/<module>.py, device symbols (`<folder>_<module>`)."""
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
    """12 hex digits that identify the source of a variant.

    They change with the source of the variant and of the rungs that it calls. They also change with its tunables that
    tuned.toml sets to other values than the default on any GPU. A measurement with another fingerprint is of another
    kernel. For a variant without a source of ours, the digits come from its
    kind, its name and the names of PyTorch's operations.
    """
    declared = op.variant(variant)
    if declared.source:
        return _as_built(op, declared, objects.fingerprint(FOLDER / op.folder / declared.source))
    return hashlib.sha256(" ".join((declared.kind, variant, *op.chain)).encode()).hexdigest()[:12]


def choices(op: Op, variant: Variant) -> list[str]:
    """Return the -D flags of the variant's tunables that tuned.toml sets to non-default values on any GPU."""
    flags = tuned.flags(f"{op.folder}/{variant.source}")
    return [flag for flag in flags if flag.removeprefix("-D").split("=")[0] in variant.tunables]


def _as_built(op: Op, variant: Variant, of_source: str) -> str:
    flags = choices(op, variant)
    return hashlib.sha256(" ".join([of_source, *flags]).encode()).hexdigest()[:12] if flags else of_source


def random_normal(seed: int, device: str) -> Callable[..., Any]:
    """Return a function `normal(*sizes)` of float32 values with mean 0 and variance 1.

    Its calls share one seeded sequence.
    """
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    return lambda *sizes: torch.randn(sizes, generator=generator, device=device, dtype=torch.float32)
