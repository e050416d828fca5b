"""End every program of this project alike: an exit code, and one sentence for an error, even if a package is missing.

Imports only the standard library.
"""

import argparse
import codecs
import sys
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any

from analysis.formats import system
from analysis.formats.errors import INTERRUPTED, MISSING, InputError, LedgerError
from analysis.formats.place import here
from analysis.formats.writing import failed

_OURS = ("", "analysis", "harness", "kernels", "studies")
# The `make` target that installs a program's packages, if it has another name than the program.
_TARGETS = {
    "harness.run": "profile",
    "studies.ladder.build": "report",
    "studies.layers.measure_alone": "kernels-of-layers",
    "studies.multi_gpu.measure": "multi-gpu",
    "studies.accounting.measure": "accounting",
}
# The other targets of the Makefile, each named as the program that it runs.
_NAMED = {"baseline", "bench", "census", "decode", "layers", "ladder", "report", "sweep"}
_ANY = "profile"  # installs what all of them need


# What stands for a sign of ours on a terminal without it; any other becomes ?. Signs of bars and of a tree keep their
# width.
_PLAIN = {
    **dict(zip("µ–—−×·∕“”’⚠†\xa0\u202f\u2009", 'u---x-/""\'!+   ', strict=True)),
    **{"…": "...", "±": "+-", "≥": ">=", "≤": "<=", "→": "->", "✓": "ok", "✗": "no", "Σ": "sum", "∞": "inf", "³": "^3"},
    **dict(zip("▏▎▍▌▋▊▉█░▒▓─├└▁▂▃▄▅▆▇", "   #####.:%-|`_.-=+*%", strict=True)),
}


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(_PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


codecs.register_error("plain", _plain)


def tolerant(stream: Any) -> IO[str]:
    """Return a stream that prints plain letters for those outside its encoding, such as `us` for `µs` in ASCII."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="plain")
    found: IO[str] = stream
    return found


def documented(program: str, text: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help shows a text, such as the docstring of the program, line by line."""
    return argparse.ArgumentParser(prog=program, description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def run_program(main: Callable[[], int]) -> int:
    """Return the exit code of `main`: 0 if the reader of our output closes the pipe, as `| head` does.

    A file or an output that cannot be read or written ends it with one sentence.
    """
    tolerant(sys.stdout)
    tolerant(sys.stderr)
    code = 0
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        system.discard_output(sys.stdout.fileno())
    except OSError as error:
        if not code:  # else `main` has said so, and the rest of its output meets the same full disk
            print(f"error: {failed(error)}", file=sys.stderr)
        system.discard_output(sys.stdout.fileno())
        code = code or InputError.exit_code
    return code


def guarded(program: Callable[[], int], lighter: str = "a smaller model") -> int:
    """Return the exit code of a program that measures; `lighter` is the advice if the GPU's memory does not suffice."""
    try:
        return run_program(program)
    except LedgerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: Interrupted: files that were not finished are not there, so run it again.", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if type(error).__name__ != "OutOfMemoryError":  # the class belongs to torch, which not every program imports
            raise
        print(f"error: The GPU ran out of memory: close other programs on it, or use {lighter}.", file=sys.stderr)
        return InputError.exit_code


def name_lacking_packages() -> None:
    """From now on, end the program with one sentence and exit code 127 if a package is missing, without a traceback.

    This is a hook, because most programs import packages in their first lines, before they could guard anything.
    """
    sys.excepthook = _ended


def target_of(module: str) -> str:
    """Return the target of the Makefile that installs what a program needs; it runs the program, if one does."""
    part = "report" if module.startswith("analysis.") else module.split(".")[1]
    return _TARGETS.get(module, part if part in _NAMED else _ANY)


def _ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    lacking: BaseException | None = error
    while isinstance(lacking, ImportError) and not isinstance(lacking, ModuleNotFoundError):
        lacking = lacking.__cause__  # pandas says in words of its own that numpy is missing
    package = (lacking.name or "").partition(".")[0] if isinstance(lacking, ModuleNotFoundError) else ""
    if package in _OURS:  # a fault in our own code, not a missing package: the traceback shows the place
        sys.__excepthook__(kind, error, trace)
        return
    spec = sys.modules["__main__"].__spec__
    name = spec.name if spec else "analysis.report"
    remedy = here(
        f"run `make {target_of(name)}`, which installs what it needs, or "
        f"`.venv/bin/python {f'-m {name}' if spec else 'analysis/report.py'} …`",
        f"`{sys.executable} -m pip install {package}` installs it",
    )
    print(f"{sys.executable} lacks the Python package {package}; {remedy}.", file=sys.stderr)
    sys.exit(MISSING)
