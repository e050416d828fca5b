"""All that differs between Linux, macOS and Windows in what the analysis calls. Nothing else may import these modules.

Imports only the standard library.
"""

import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

Made = TypeVar("Made")


_most_cores = 2
_MOST_S = 120.0  # to wait for a copy once its answer is asked for; one that hangs would hang the report
_LOOK_S = 0.005


def use_one_core() -> None:
    """From now on, use no second core: other processes like this one have the others."""
    global _most_cores
    _most_cores = 1


def aside(work: Callable[[], Made]) -> Callable[[], Made]:
    """Begin `work` in a copy of this process, if another core is there for it; return what waits for its answer.

    The copy shares what this process holds, and changes nothing here; its answer is pickled. The work is done when it
    is asked for where no process can be copied safely (Windows, macOS, other threads in Python), or the copy fails or
    hangs.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "memfd_create") else 1
    threads = [one for one in threading.enumerate() if one.name != "tqdm_monitor"]  # it only redraws bars of progress
    if min(cores, _most_cores) < 2 or len(threads) > 1:
        return work
    gc.freeze()  # a search for garbage would write to the memory that both share, and so copy it
    answer = os.memfd_create("answer")  # unlike a pipe, it lets a copy that is done end, and give its memory back
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries, which wait for work
            copy = os.fork()
    except OSError:  # no process or no memory is left
        gc.unfreeze()
        os.close(answer)
        return work
    if not copy:
        _write(work, answer)

    def result() -> Made:
        unused.detach()
        gc.unfreeze()
        status = _ended(copy)
        with open(answer, "rb") as file:
            file.seek(0)
            made: Made = work() if status else pickle.load(file)
        return made

    unused = weakref.finalize(result, _end, answer, copy)
    return result


def _ended(copy: int) -> int:
    """Wait for the end of a copy, and return its status; one that takes too long is killed."""
    until = time.monotonic() + _MOST_S
    while time.monotonic() < until:
        ended, status = os.waitpid(copy, os.WNOHANG)
        if ended:
            return status
        time.sleep(_LOOK_S)
    print(f"a second process gave no answer in {_MOST_S:g} s; its work is done in this one now", file=sys.stderr)
    os.kill(copy, signal.SIGKILL)
    return os.waitpid(copy, 0)[1]


def _end(answer: int, copy: int) -> None:
    """End a copy of a process whose answer nobody wants."""
    gc.unfreeze()
    os.close(answer)
    os.kill(copy, signal.SIGKILL)
    os.waitpid(copy, 0)


def _write(work: Callable[[], Any], answer: int) -> NoReturn:
    """Write what the work makes, and end this copy of a process: nothing that its original began is done twice."""
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        with open(answer, "wb") as file:
            pickle.dump(work(), file, pickle.HIGHEST_PROTOCOL)
        status = 0
    except BaseException:
        pass  # the original does the work itself, and meets what this met
    finally:
        os._exit(status)


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
