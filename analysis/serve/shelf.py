"""Find captures below the folders given at the start, and refuse every path that leaves them."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis.formats.errors import InputError, UsageError

DEEPEST = 6  # folders below a given one
MOST_FOLDERS = 20_000  # looked at below a given one
MOST_FILES = 5_000  # of a capture
SUFFIXES = (".csv", ".sqlite", ".json", ".txt", ".xz", ".gz", ".ncu-rep")  # of files that may be exports
State = tuple[tuple[str, int, int], ...]  # name, size and time of each file of a capture


class Shelf:
    """The captures that may be read. A capture has the name FOLDER/PATH; FOLDER is the name of a given folder."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Take the folders.

        Raises: UsageError if one is no folder.
        """
        self._roots: dict[str, Path] = {}
        for folder in folders:
            if not folder.is_dir():
                raise UsageError(f"{folder}: is no folder")
            root = folder.resolve()
            name = root.name or "root"
            while name in self._roots:
                name += "+"
            self._roots[name] = root

    def captures(self) -> Iterator[str]:
        """Yield the names of the captures, sorted within each folder. A run with captures/ is one capture."""
        for name, root in self._roots.items():
            for place, (folder, below, files) in enumerate(os.walk(root)):
                if place >= MOST_FOLDERS:
                    break
                inside = Path(folder).relative_to(root)
                below[:] = sorted(one for one in below if not one.startswith("."))
                run = "captures" in below or "report.json" in files
                exports = any(file.endswith(SUFFIXES) and not file.startswith("report.") for file in files)
                if "captures" in below or exports:  # a report without its captures answers nothing
                    yield "/".join((name, *inside.parts))
                if run or len(inside.parts) >= DEEPEST:
                    below.clear()

    def place(self, name: str) -> tuple[Path, State]:
        """Return the folder or file of a capture, and the state of its files.

        Raises: InputError if the name, or a link in the capture, leads outside the given folders.
        """
        first, *parts = name.split("/")
        parts = [part for part in parts if part]
        root = self._roots.get(first)
        known = ", ".join(sorted(self._roots))
        if root is None:
            raise InputError(f"{name[:200]}: names no capture; a name begins with a folder given at the start: {known}")
        if any(part in (".", "..") or "\0" in part or "\\" in part for part in parts):
            raise InputError(f"{name[:200]}: names no capture; a name has no . or .. and no backslash")
        path = root.joinpath(*parts)
        try:
            if not path.resolve(strict=True).is_relative_to(root):
                raise InputError(f"{name[:200]}: a link leads outside the folders given at the start")
            source = path / "captures" if (path / "captures").is_dir() else path
            if source == path and (path / "tables").is_dir() and (path / "report.json").is_file():
                raise InputError(f"{name[:200]}: is a report without its captures; start the server on their folder")
            return source, tuple(_files(source, root, name))
        except (OSError, ValueError, RuntimeError):
            raise InputError(f"{name[:200]}: there is no such capture; list_captures names them all") from None


def _files(path: Path, root: Path, name: str) -> Iterator[tuple[str, int, int]]:
    """Yield each file of a capture.

    Raises: InputError for a link to outside, a file that is no regular one, or too many files.
    """
    found = [path] if path.is_file() else sorted(one for one in path.rglob("*") if not one.is_dir() or one.is_symlink())
    if len(found) > MOST_FILES:
        raise InputError(f"{name[:200]}: has more than {MOST_FILES} files; name a folder below it")
    for one in (path, *found):
        if not one.resolve(strict=True).is_relative_to(root):
            raise InputError(f"{name[:200]}: a link in it leads outside the folders given at the start")
        known = one.stat()
        if one is not path and stat.S_ISDIR(known.st_mode):
            raise InputError(f"{name[:200]}: a link in it leads to a folder; captures hold files")
        if not (stat.S_ISREG(known.st_mode) or stat.S_ISDIR(known.st_mode)):
            raise InputError(f"{name[:200]}: holds something that is no regular file")
        yield str(one), known.st_size, known.st_mtime_ns
