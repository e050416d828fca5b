"""Define the errors that a user can fix, as one small tree:

    LedgerError
    ├── UsageError   exit code 2: the command line names something that does not exist
    └── InputError   exit code 3: a file, a device or an installation is not usable

Every message is one sentence: what was found and what to do, with the file's name if there is one. Our programs also
end with 127 if a tool or a package is missing, and with 130 after an interrupt.
"""

MISSING, INTERRUPTED = 127, 130
_LONGEST = 600


def plain(text: str) -> str:
    """Return a text on one line that no terminal obeys: control characters appear as escapes."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


class LedgerError(Exception):
    """Base of all errors that a user sees without a traceback.

    Text from a damaged file stays short and on its line: control characters appear as escapes, and a long message loses
    its middle.
    """

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        text = plain(message)
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
        super().__init__(text)


class UsageError(LedgerError):
    """The command line cannot be carried out (exit code 2)."""

    exit_code = 2


class InputError(LedgerError):
    """A file, a device or an installation is not usable (exit code 3)."""

    exit_code = 3
