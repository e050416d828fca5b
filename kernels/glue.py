"""Generate the bindings of extensions from the declarations, into build/.

`kernels/<op>/<op>.h` holds the parts that an op writes itself: the argument struct of its launchers; with
KERNEL_LEDGER_BINDING defined, the conversion from tensors to this struct. This module reads `op.py` and writes the list
of launchers and their Python names.
"""

from collections.abc import Iterable
from pathlib import Path

from kernels.registry import FOLDER, Launcher, Op, Variant, ops

BUILD = FOLDER.parent / "build" / "bindings"


def folders() -> dict[str, list[tuple[Op, Variant]]]:
    """Return folder of kernels/ -> the CUDA rungs of its ops, in the order of their declaration."""
    found: dict[str, list[tuple[Op, Variant]]] = {}
    for op in ops().values():
        rungs = [(op, variant) for variant in op.variants.values() if variant.launcher]
        if rungs:
            found.setdefault(op.folder, []).extend(rungs)
    return found


def extras(folder: str) -> list[Launcher]:
    """Return the launchers of a folder that are no rungs."""
    return [launcher for op in ops().values() if op.folder == folder for launcher in op.extras]


def call_type(folder: str) -> str:
    """Return the name of the launchers' argument struct: `ResidualLayernormCall`."""
    return "".join(part.capitalize() for part in folder.split("_")) + "Call"


def _declarations(folder: str, rungs: Iterable[tuple[Op, Variant]]) -> list[str]:
    lines = []
    for _, variant in rungs:
        assert variant.launcher is not None
        lines.append(f"cudaError_t {variant.launcher.name}(const {call_type(folder)}& call);")
        if variant.launcher.workspace:
            lines.append(f"cudaError_t {variant.launcher.workspace}(const {call_type(folder)}& call, size_t& bytes);")
    return list(dict.fromkeys(lines))


def binding_text(folder: str) -> str:
    """Return the text of a folder's binding.cpp: the part from its header, and a line for each rung and extra."""
    rungs = folders()[folder]
    lines = [
        "// Written by kernels/glue.py.",
        "#define KERNEL_LEDGER_BINDING",
        f'#include "{folder}.h"',
        "",
        *_declarations(folder, rungs),
        "",
        "PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {",
    ]
    for launcher in (*(variant.launcher for _, variant in rungs), *extras(folder)):
        assert launcher is not None
        lines.append(f'  module.def("{launcher.function}", {launcher.binding});')
    return "\n".join([*lines, "}"]) + "\n"


def binding(folder: str) -> Path:
    """Return the path of the binding of kernels/<folder>; writes the file if its text is out of date."""
    return _written(BUILD / folder / "binding.cpp", binding_text(folder))


def bound() -> list[str]:
    """Return the folders with an extension."""
    return sorted(folders())


def _written(path: Path, text: str) -> Path:
    if not path.is_file() or path.read_text("utf-8") != text:  # an unchanged file keeps its time, which ninja compares
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path
