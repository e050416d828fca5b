"""All that differs between Linux, macOS and Windows in what the analysis calls. Nothing else may import these modules.

Imports only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def lock(folder: Path) -> int | None:
    """Lock a folder against a second writer; return what `unlock` takes, or None where the system has no such lock.

    The lock ends with this process and with those that inherit it. It needs no file.

    Raises: BlockingIOError: another process has locked the folder.
    """
    if fcntl is None:
        return None
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        raise
    except OSError:  # a network file system without locks of folders
        os.close(number)
        return None
    return number


def unlock(number: int | None) -> None:
    """Release a lock."""
    if number is not None:
        os.close(number)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Hold Ctrl-C and termination back until the end of the block. Windows cannot: there, the block runs as it is."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def limit_memory(more: int) -> None:
    """Limit this process to so many bytes beyond those that it has mapped. Windows has no such limit."""
    if resource is None:
        return
    try:
        mapped = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except OSError:  # not Linux
        mapped = 0
    resource.setrlimit(resource.RLIMIT_AS, (mapped + more, mapped + more))


def apart(inherits: int | None) -> dict[str, Any]:
    """Return the arguments of subprocess for a process that no signal for us reaches and that inherits a lock."""
    if os.name == "nt":
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    return {"start_new_session": True, "pass_fds": () if inherits is None else (inherits,)}


def discard_output(number: int) -> None:
    """Send what is still to be written to a file number, such as that of stdout, to nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)
