"""Move the finished files of a report into place, in a process of its own: `python moving.py`, orders on stdin.

The process that wrote the files may be killed at any moment; this one gets no signal for it, and takes a few
milliseconds. So a folder holds the old report or the new one, never a part of each. If a move fails, it undoes the
others.

Imports only the standard library, and starts without site-packages.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path


def move(scratch: Path, out: Path, names: list[str], stale: list[str]) -> None:
    """Move `names` from `scratch` to `out`, and `stale` out of `out`. Raises: OSError; then `out` is as it was."""
    kept, moved = scratch / "replaced", []
    try:
        for name in (*names, *stale):
            (kept / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(out / name):
                os.replace(out / name, kept / name)
            moved.append(name)
            if name in names:
                os.replace(scratch / name, out / name)
    except BaseException:
        for name in reversed(moved):
            if os.path.lexists(kept / name):
                os.replace(kept / name, out / name)
            else:
                (out / name).unlink(missing_ok=True)
        raise
    remove(scratch)


def remove(folder: Path) -> None:
    """Remove a folder of ours with its files; what cannot be removed stays."""
    for place, folders, files in os.walk(folder, topdown=False):
        for name in (*files, *folders):
            path = Path(place, name)
            with contextlib.suppress(OSError):
                (path.rmdir if path.is_dir() and not path.is_symlink() else path.unlink)()
    with contextlib.suppress(OSError):
        folder.rmdir()


if __name__ == "__main__":
    orders = sys.stdin.read()
    if orders:  # nothing: the writer was killed before it gave any
        scratch, out, names, stale = json.loads(orders)
        try:
            move(Path(scratch), Path(out), names, stale)
        except OSError as error:
            print(json.dumps([error.errno, error.strerror, error.filename]))
