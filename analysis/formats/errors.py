"""What can go wrong when files are read, as one small tree:

    AnalysisError
    ├── UsageError   exit code 2: the command line asks for something that does not exist
    └── InputError   exit code 3: a file is not what it has to be

Every message is one sentence that names the file, what was found and what to do.
"""

from __future__ import annotations

_LONGEST = 600


class AnalysisError(Exception):
    """Base of all errors that are shown to a user without a traceback.

    What a damaged file puts into a message stays on its line and short: control characters are shown as escapes, and
    the middle of a long message is left out.
    """

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        plain = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in message)
        if len(plain) > _LONGEST:
            plain = f"{plain[: _LONGEST // 2]} … {plain[-_LONGEST // 2 :]}"
        super().__init__(plain)


class UsageError(AnalysisError):
    """The command line cannot be carried out (exit code 2)."""

    exit_code = 2


class InputError(AnalysisError):
    """A file cannot be read as what it is (exit code 3)."""

    exit_code = 3
