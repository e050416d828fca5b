"""Move the finished files of a report into place, in a process of its own: `python moving.py`, orders on stdin.

The process that wrote the files may be killed at any moment; this one gets no signal for it, and takes a few
milliseconds. So a folder holds the old report or the new one, never a part of each. If a move fails, it undoes the
others.

Imports only the standard library, and starts without site-packages.
"""

import contextlib
import errno
import json
import os
import sys
from pathlib import Path


def move(scratch: Path, out: Path, names: list[str], stale: list[str]) -> None:
    """Move `names` from `scratch` to `out`, and `stale` out of `out`.

    Raises: OSError, which names the file in `out`; then `out` is as it was.
    """
    kept, moved, name = scratch / "replaced", [], ""
    try:
        for name in (*names, *stale):
            (kept / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(out / name):
                _rename(out / name, kept / name)
            moved.append(name)
            if name in names:
                _rename(scratch / name, out / name)
    except BaseException as error:
        for done in reversed(moved):
            if os.path.lexists(kept / done):
                _rename(kept / done, out / done)
            else:
                (out / done).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(out / name)) from error
        raise
    remove(scratch)


def _rename(source: Path, target: Path) -> None:
    """Give a file its name, also where a folder of a report is a file system of its own. Raises: OSError."""
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        beside = target.with_name(f".{target.name}.moving")
        try:
            beside.write_bytes(source.read_bytes())
            os.replace(beside, target)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        source.unlink()


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
