"""What can go wrong when files are read, as one small tree:

    AnalysisError
    ├── UsageError   exit code 2: the command line asks for something that does not exist
    └── InputError   exit code 3: a file is not what it has to be

Every message is one sentence that names the file, what was found and what to do.
"""

from __future__ import annotations


class AnalysisError(Exception):
    """Base of all errors that are shown to a user without a traceback."""

    exit_code = 1


class UsageError(AnalysisError):
    """The command line cannot be carried out (exit code 2)."""

    exit_code = 2


class InputError(AnalysisError):
    """A file cannot be read as what it is (exit code 3)."""

    exit_code = 3
