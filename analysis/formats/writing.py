"""Write files so that a reader sees the old ones or the new ones whole, whatever happens to the writer.

An OSError of these functions names the file that was to be written, never a temporary one.

Imports only the standard library.
"""

import contextlib
import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from analysis.formats import moving, system
from analysis.formats.errors import UsageError

_SCRATCH = ".report-"


def failed(error: OSError, what: str = "the output") -> str:
    """Return the sentence for a file that cannot be read or written: which, why, and what to do.

    An error that names no file comes from what a program prints.
    """
    do = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the path and its permissions"
    return f"{error.filename or what}: {error.strerror or error}; {do}"


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an OSError of the block name `path`. Raises: OSError."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write(path: Path, content: str | bytes) -> None:
    """Write a file under another name and rename it. A failure leaves the old file. Raises: OSError."""
    with replacing(path) as partial:
        partial.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON so that no reader sees half a file. Raises: OSError."""
    write(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file; {} if the file is missing or damaged, or holds no object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a file to write, which gets the name `path` at the end. A failure leaves the old file.

    Raises: OSError.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


Put = Callable[[str, bytes], None]
Finish = Callable[[Sequence[str]], None]


@contextlib.contextmanager
def exchanged(out: Path) -> Iterator[tuple[Put, Finish]]:
    """Replace files of a folder all at once: yield `put(name, data)` and, to call at the end, `finish(stale)`.

    The new files wait in a hidden folder inside `out`, so that a rename reaches it: `out` may be a mount point. Before
    `finish`, or if that fails, `out` is as it was.

    Raises: OSError; UsageError: another process writes there, or a folder in `out` is a link to elsewhere.
    """
    made = [path for path in (out, *out.parents) if not path.exists()]
    scratch, held, names = None, None, list[str]()

    def put(name: str, data: bytes) -> None:
        assert scratch is not None
        with naming(out / name):
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes(data)
        names.append(name)

    def finish(stale: Sequence[str]) -> None:
        _move(Path(str(scratch)), out, names, stale, held)

    try:
        out.mkdir(parents=True, exist_ok=True)
        try:
            held = system.lock(out)
        except BlockingIOError:
            busy = f"{out}: another report is being written there; wait for its end, or name another folder."
            raise UsageError(busy) from None
        with naming(out):
            for left in out.glob(f"{_SCRATCH}*"):  # of a process that was killed
                moving.remove(left)
            scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=out))
        yield put, finish
    finally:
        if scratch is not None:
            moving.remove(scratch)
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()  # an empty one, if nothing was written
        system.unlock(held)


def _move(scratch: Path, out: Path, names: Sequence[str], stale: Sequence[str], held: int | None) -> None:
    """Let a process of its own move the files. Raises: OSError, UsageError."""
    inside = out.resolve()
    for folder in {(out / name).parent for name in (*names, *stale)}:
        if not folder.resolve().is_relative_to(inside):
            raise UsageError(f"{folder} is a link out of {out}; remove it, or name another folder.")
    orders = json.dumps([str(scratch), str(out), list(names), list(stale)])
    if not sys.executable:  # Python inside another program
        moving.move(scratch, out, list(names), list(stale))
        return
    command = [sys.executable, "-I", "-S", str(Path(moving.__file__).resolve())]
    with (
        system.signals_held(),
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii", **system.apart(held)
        ) as mover,
    ):
        said, _ = mover.communicate(orders)
    if said:
        raise OSError(*json.loads(said))
    if mover.returncode:
        raise OSError(errno.EIO, "the files could not be moved into place", str(out))
