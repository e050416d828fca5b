"""The Python interface: `load` captures and `analyse` them. An installed package has the project's folders in `tree`.

import kernel_ledger

analysis = kernel_ledger.analyse(kernel_ledger.load("runs/mine/captures"))
print(analysis.report.findings[0].title)
"""

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.api import Analysis, analyse, compare, load
    from analysis.capture.model import Capture
    from analysis.formats.comparison import Comparison
    from analysis.formats.errors import LedgerError
    from analysis.formats.report import Report
    from analysis.store.gather import fleet
    from analysis.store.questions import Store

__all__ = [
    "Analysis", "Capture", "Comparison", "LedgerError", "Report", "Store", "__version__", "analyse", "compare", "fleet",
    "load",
]  # fmt: skip
_HERE = Path(__file__).resolve().parent
TREE = _HERE.parent if (_HERE.parent / "Makefile").is_file() else _HERE / "tree"  # the folders of the project
_MODULES = {
    "Capture": "analysis.capture.model", "Comparison": "analysis.formats.comparison",
    "LedgerError": "analysis.formats.errors", "Report": "analysis.formats.report", "Store": "analysis.store.questions",
    "fleet": "analysis.store.gather",
}  # fmt: skip

try:
    __version__ = version("kernel-ledger")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0"


def __getattr__(name: str) -> Any:
    """Import a name of the interface at its first use: `import kernel_ledger` alone loads no pandas."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_ours()
    found = getattr(import_module(_MODULES.get(name, "analysis.api")), name)
    globals()[name] = found
    return found


def load_ipython_extension(shell: Any) -> None:
    """Register the cell magic %%kernel_ledger, for `%load_ext kernel_ledger`."""

    def kernel_ledger(line: str, cell: str) -> Any:
        from kernel_ledger.magic import profile_cell

        return profile_cell(line, cell, shell)

    shell.register_magic_function(kernel_ledger, "cell")


def import_ours() -> None:
    """Import the project's package `analysis` once, whatever else bears that name; other names of TREE come last.

    Raises: ImportError: the program has imported another package of that name.
    """
    if "analysis" not in sys.modules:
        sys.path.insert(0, str(TREE))
        import_module("analysis")
        sys.path.remove(str(TREE))
        sys.path.append(str(TREE))
    found = sys.modules["analysis"].__file__ or ""
    if Path(found).resolve().parent.parent != TREE:
        raise ImportError(
            f"kernel_ledger brings a package `analysis`, and this program has imported {found or 'another'}"
        )
