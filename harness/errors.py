"""Errors a user can cause; each carries one sentence (what was found, what to do) and the exit code.

HarnessError
├── UsageError   2  an argument that cannot be meant
└── InputError   3  a file, a device or an installation that does not serve
"""

from __future__ import annotations


class HarnessError(Exception):
    """A sentence for the user; never shown with a traceback."""

    exit_code = 3


class UsageError(HarnessError):
    exit_code = 2


class InputError(HarnessError):
    exit_code = 3
