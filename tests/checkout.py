"""List the files of the project, in a checkout and in a copy of one without git."""

from __future__ import annotations

import fnmatch
import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_NOT_OURS = {"runs", "build", "dist", "node_modules", "__pycache__"}


@functools.cache
def _all() -> tuple[str, ...]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return tuple(name for name in sorted(listed.stdout.splitlines()) if (ROOT / name).is_file())
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return tuple(sorted(str(path) for path in found if not any(map(_is_foreign, path.parts[:-1]))))


def _is_foreign(folder: str) -> bool:
    return folder in _NOT_OURS or folder.endswith(".egg-info") or (folder.startswith(".") and folder != ".ci")


def files(pattern: str = "*") -> list[str]:
    """Names relative to the checkout, sorted, whose path matches `pattern`; `*` matches `/` too."""
    return fnmatch.filter(_all(), pattern)
