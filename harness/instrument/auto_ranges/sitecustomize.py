"""Set up automatic ranges (module_ranges.py) when Python starts: Python imports a `sitecustomize` on PYTHONPATH.

This file hides the program's own sitecustomize, so it runs that one afterwards.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _own():
    """Run the sitecustomize that Python would have found without this folder."""
    folders = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", folders)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def _ours():
    path = os.path.join(_HERE, "module_ranges.py")
    spec = importlib.util.spec_from_file_location("kernel_ledger_module_ranges", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.wait_for_torch(os.environ.get("KERNEL_LEDGER_RANGES", ""))


if os.environ.get("KERNEL_LEDGER_RANGES"):
    try:
        _ours()
    except Exception as error:  # the program goes on without ranges
        print(f"kernel-ledger: no automatic ranges: {error}", file=sys.stderr)
_own()
