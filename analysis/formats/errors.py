"""What can go wrong in a way that a user can mend, as one small tree:

    LedgerError
    ├── UsageError   exit code 2: the command line asks for something that does not exist
    └── InputError   exit code 3: a file, a device or an installation is not what it has to be

Every message is one sentence that says what was found and what to do, and names the file if there is one. Beside them a
program of ours ends with 127 where a tool or a package is missing, and with 130 where it was interrupted.
"""

from __future__ import annotations

MISSING, INTERRUPTED = 127, 130
_LONGEST = 600


class LedgerError(Exception):
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


class UsageError(LedgerError):
    """The command line cannot be carried out (exit code 2)."""

    exit_code = 2


class InputError(LedgerError):
    """A file, a device or an installation does not serve (exit code 3)."""

    exit_code = 3
