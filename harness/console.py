"""Print the results and the progress of this folder's programs."""

import sys


def say(text: str) -> None:
    """Print a result to stdout."""
    print(text, flush=True)


def progress(text: str) -> None:
    """Print progress to stderr."""
    print(f"harness: {text}", file=sys.stderr, flush=True)
