"""What the programs of this folder say, and how each of them ends: an exit code, one sentence for what went wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import TracebackType

from harness.errors import HarnessError

# The `make` target that installs what a program needs, where it is not called like the program.
_TARGETS = {
    "harness.run": "profile",
    "studies.ladder.build": "report",
    "studies.layers.measure_alone": "kernels-of-layers",
}


def say(text: str) -> None:
    """A result of a program, on stdout."""
    print(text, flush=True)


def progress(text: str) -> None:
    """What a program is at, on stderr."""
    print(f"harness: {text}", file=sys.stderr, flush=True)


def guarded(program: Callable[[], int], lighter: str = "a smaller model") -> int:
    """The exit code of `program`; `lighter` is what to use where the GPU's memory does not suffice."""
    try:
        code = program()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has seen enough, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: Interrupted: files that were not finished are not there, so run it again.", file=sys.stderr)
        return 130
    except Exception as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's; not every program of this folder imports it
            raise
        print(f"error: The GPU ran out of memory: close other programs on it, or use {lighter}.", file=sys.stderr)
        return 3
    return code


def name_lacking_packages() -> None:
    """From here on a package that is not installed ends the program with one sentence and 127, not with a traceback.

    A hook, as most programs import packages in their first lines, before anything of theirs could be guarded.
    """
    sys.excepthook = _ended


def _ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    spec = sys.modules["__main__"].__spec__
    if package in ("", "harness", "kernels", "studies") or spec is None:  # a fault of ours: the traceback says where
        sys.__excepthook__(kind, error, trace)
        return
    target = _TARGETS.get(spec.name, spec.name.split(".")[1].replace("_", "-"))
    print(
        f"{sys.executable} lacks the Python package {package}; run `make {target}`, which installs what it needs, or "
        f"`.venv/bin/python -m {spec.name} …`.",
        file=sys.stderr,
    )
    sys.exit(127)
