"""What the programs of this folder say while they run."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """A result of a program, on stdout."""
    print(text, flush=True)


def progress(text: str) -> None:
    """What a program is at, on stderr."""
    print(f"harness: {text}", file=sys.stderr, flush=True)
