"""Run a program until it ends, takes too long, or nsys has recorded too much.

    within.py --seconds S [--megabytes N --folder DIR] -- COMMAND…

A profiler ends with its program and keeps what it saw, so this script ends the program. nsys stores data in DIR until
it imports them. Files that were in DIR before do not count.
exit: the program's; 124 after S seconds, 125 if DIR grew by more than N MB, 126 or 127 if it cannot be started
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

TOO_LONG, TOO_LARGE, CANNOT_RUN, NOT_FOUND = 124, 125, 126, 127
EVERY_SECONDS = 0.2
GRACE_SECONDS = 10.0


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder, without files that vanish meanwhile."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(where, name).lstat().st_size
    return total


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program's process group with SIGTERM, and after ten seconds with SIGKILL."""
    for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return


def watch(command: list[str], seconds: float, most_bytes: int | None, folder: Path) -> int:
    """Run a command, and return the exit code that the module's docstring describes."""
    limit = time.monotonic() + seconds
    before = size_of(folder) if most_bytes else 0
    process = subprocess.Popen(command, process_group=0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda given, _: os.killpg(process.pid, given))
    while True:
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(EVERY_SECONDS)
            return 128 - code if code < 0 else code
        if time.monotonic() > limit:
            _end(process)
            return TOO_LONG
        if most_bytes and size_of(folder) - before > most_bytes:
            print(
                f"The timeline reached {most_bytes >> 20} MB: the program ends now, and its timeline is kept.",
                flush=True,
            )
            _end(process)
            return TOO_LARGE


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--megabytes", type=int)
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("TMPDIR") or "/tmp") / "nvidia")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    try:
        return watch(options.command, options.seconds, options.megabytes and options.megabytes << 20, options.folder)
    except OSError as error:
        print(f"{options.command[0]}: {error.strerror}.", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main())
