"""Generate C++ from the declarations into build/: bindings of extensions, and the sanitizer's driver.

`kernels/<op>/<op>.h` holds the parts that an op writes itself: the argument struct of its launchers; with
KERNEL_LEDGER_BINDING defined, the conversion from tensors to this struct; with KERNEL_LEDGER_DRIVER defined, sizes for
runs without torch. This module reads `op.py` and writes the list of launchers and their Python names.

    python -m kernels.glue build/sanitize/driver.cu    writes the driver, and prints its sources, one per line
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from kernels.registry import FOLDER, Launcher, Op, Variant, ops

BUILD = FOLDER.parent / "build" / "bindings"
DTYPES = ("float32", "bfloat16", "float16")  # of dtype.h, then that of half.cuh


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


def driver_text() -> str:
    """Return the text of driver.cu: every CUDA rung on each of its dtypes, at the sizes in its folder's header."""
    lines = ["// Written by kernels/glue.py.", "#define KERNEL_LEDGER_DRIVER", '#include "tests/gpu/driver.h"', ""]
    found = folders()
    lines += [f'#include "kernels/{folder}/{folder}.h"' for folder in found]
    for folder, rungs in found.items():
        lines += ["", *_declarations(folder, rungs)]
    lines += ["", "int main(int argc, char** argv) {", "  const Parts parts(argc, argv);"]
    for folder, rungs in found.items():
        dtypes: dict[str, set[str]] = {}
        workspaces: dict[str, str] = {}
        for _, variant in rungs:
            assert variant.launcher is not None
            dtypes.setdefault(variant.launcher.name, set()).update(variant.dtypes)
            workspaces[variant.launcher.name] = variant.launcher.workspace or "nullptr"
        kind = "compute" if any(op.compute_bound for op, _ in rungs) else "memory"
        lines += [f'  if (parts.wants("{folder}", "{kind}")) {{', f"    Rungs<{call_type(folder)}> rungs{{"]
        for name, taken in dtypes.items():
            takes = ", ".join("true" if dtype in taken else "false" for dtype in DTYPES)
            lines.append(f'        {{"{name}", {name}, {workspaces[name]}, {{{takes}}}}},')
        lines += ["    };", f"    drive_{folder}(rungs);", f'    rungs.finish("{folder}");', "  }"]
    return "\n".join([*lines, "  return finish();", "}"]) + "\n"


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m kernels.glue", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("driver", type=Path, help="where the driver is to be written")
    _written(parser.parse_args().driver, driver_text())
    for folder in folders():
        for path in sorted((FOLDER / folder).glob("*.cu")):
            print(path.relative_to(FOLDER.parent))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
