"""List the files of the project, in a checkout and in a copy of one without git."""

import fnmatch
import functools
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
_NOT_OURS = {"runs", "build", "dist", "node_modules", "__pycache__"}


@functools.cache
def by_git() -> tuple[str, ...] | None:
    """Return the names of all files that git tracks or does not ignore; None outside of a git checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        return None
    return tuple(name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


@functools.cache
def _all() -> tuple[str, ...]:
    if (tracked := by_git()) is not None:
        return tuple(sorted(tracked))
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return tuple(sorted(str(path) for path in found if not any(map(_is_foreign, path.parts[:-1]))))


def _is_foreign(folder: str) -> bool:
    return folder in _NOT_OURS or folder.endswith(".egg-info") or (folder.startswith(".") and folder != ".ci")


def files(pattern: str = "*") -> list[str]:
    """Return the sorted names, relative to the checkout, that match `pattern`; `*` matches `/`, too."""
    return fnmatch.filter(_all(), pattern)


def loaded(file: str) -> ModuleType:
    """Return the module in a file of a folder that is no package."""
    spec = importlib.util.spec_from_file_location(file.removesuffix(".py").replace("/", "_"), ROOT / file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look it up
    spec.loader.exec_module(module)
    return module
