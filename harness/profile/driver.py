"""Profile a program or GPT-2, or measure only the roofs: the command line of profile.sh, whose header is its help.

Usage errors need only the standard library. The stages need packages, which `_check_packages` checks first.
"""

import argparse
import errno
import itertools
import os
import shutil
import signal
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from analysis.formats import place
from analysis.formats.writing import read_json, write_json
from analysis.planning import BUDGET_S
from harness.profile.argv import SAMPLE_HZ, sample_rate, whole
from harness.profile.cpu import WithoutGpu
from harness.profile.folder import ASKED, Folder
from harness.profile.gpu import PYTHON, Measuring, Profile
from harness.profile.machine import HERE, ROOT, Machine, look, shown
from harness.profile.program import NOT_FOUND, ProfileError, Program, find, gpt2
from harness.profile.stages import Runner

NEEDED = ("msgspec", "numpy", "pandas", "pyarrow")  # every stage after the first needs these packages
LEAST_FREE_BYTES = 256 << 20
INTERRUPTED = 130


class _Help(argparse.Action):
    """Print the header of profile.sh."""

    def __call__(self, *_: Any) -> None:
        lines = (HERE / "profile.sh").read_text(encoding="utf-8").splitlines()[1:]
        header = itertools.takewhile(lambda line: line.startswith("#"), lines)
        print("\n".join(line[2:] for line in header))
        sys.exit(0)


class _Parser(argparse.ArgumentParser):
    """Report usage errors as one sentence."""

    def error(self, message: str) -> NoReturn:
        raise ProfileError(2, f"{message[:1].upper()}{message[1:]}. See profile.sh --help.")


def _parser() -> _Parser:
    parser = _Parser(prog="profile.sh", add_help=False, allow_abbrev=False)
    parser.add_argument("-n", dest="dry", action="store_true")
    parser.add_argument("-h", "--help", action=_Help, nargs=0)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--budget", type=whole, default=BUDGET_S)
    parser.add_argument("--steps", default="")
    parser.add_argument("--deep", action="store_true")
    parser.add_argument("--source", action="store_true")
    parser.add_argument("--limit", type=whole, default=600)
    parser.add_argument("--timeline-mb", type=whole, default=1000)
    parser.add_argument("--sample-hz", type=sample_rate, default=SAMPLE_HZ)
    parser.add_argument("--window", choices=("auto", "profiler", "all"), default="auto")
    parser.add_argument("--stdin", type=Path)
    parser.add_argument("--no-auto-ranges", dest="auto_ranges", action="store_false")
    parser.add_argument("--no-counters", dest="counters", action="store_false")
    parser.add_argument("--remeasure", action="store_true")
    parser.add_argument("--harness", default="")
    parser.add_argument("--roofs", action="store_true")
    return parser


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line into options with `command` and `folder`, the program's words and its working folder.

    With --run and no command, all three come from that run's profile.json; options on the command line override it.
    Raises: ProfileError for wrong usage.
    """
    mine, command = arguments, []
    if "--" in arguments:
        at = arguments.index("--")
        mine, command = arguments[:at], arguments[at + 1 :]
        if not command:
            raise ProfileError(2, "There is no command after --. See profile.sh --help.")
    options, others = _parser().parse_known_args(mine)
    if others:
        raise ProfileError(2, f"Unknown argument {others[0]}: the command follows after --. See profile.sh --help.")
    if options.source and not options.counters:
        raise ProfileError(2, "--source needs the counters: leave --no-counters out.")
    options.command, options.folder = command, Path.cwd()
    if options.run and not (command or options.roofs or options.harness or options.run.exists()):
        there = f"There is no run {options.run} to go on with"
        raise ProfileError(2, f"{there}: check its path, or give the command of a new run there after --.")
    asked = read_json(options.run / "raw" / ASKED) if options.run else {}
    if asked and not command:
        options = _parser().parse_args(mine, argparse.Namespace(**_restored(asked["options"])))
        options.command, options.folder = asked["command"], Path(asked["folder"])
    if options.command and options.harness:
        raise ProfileError(2, "--harness is for GPT-2: leave it out, or leave the command out.")
    return options


def _restored(options: dict[str, Any]) -> dict[str, Any]:
    stdin = options.pop("stdin", None)
    return {**options, "stdin": Path(stdin) if stdin else None, "dry": False, "remeasure": False}


def _remember(options: argparse.Namespace, folder: Folder) -> None:
    """Store the options, so that --run alone continues with them."""
    others = ("dry", "run", "remeasure", "command", "folder")
    kept = {name: value for name, value in vars(options).items() if name not in others}
    kept["stdin"] = str(options.stdin.resolve()) if options.stdin else None
    write_json(folder.raw / ASKED, {"command": options.command, "folder": str(options.folder), "options": kept})


def _given_stdin() -> Path | None:
    """Return the file that our standard input is redirected from, which every run can read again; None without one."""
    try:
        if stat.S_ISREG(os.fstat(0).st_mode):
            return Path(os.readlink("/proc/self/fd/0"))
    except OSError:
        pass
    return None


def _check_disk(path: Path) -> None:
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    free = shutil.disk_usage(there).free
    if free < LEAST_FREE_BYTES:
        sentence = f"{there} has only {free >> 20} MB left for a profile: free some space, or give another --run."
        raise ProfileError(1, sentence)


def _check_packages() -> None:
    """Check the packages that the stages need. Raises: ProfileError if one is missing."""
    asked = "import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if u.find_spec(n) is None))"
    lacking = subprocess.run([PYTHON, "-c", asked, *NEEDED], capture_output=True, text=True, check=False).stdout.split()
    if lacking:
        them = "it" if len(lacking) == 1 else "them"
        what = place.here(f"`make profile` installs {them}, or pip install .", f"install {them} with pip")
        raise ProfileError(NOT_FOUND, f"{shown(Path(PYTHON))} lacks {' and '.join(lacking)}: {what}")


def _folder_of(options: argparse.Namespace, machine: Machine, name: str) -> Folder:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path = (
        options.run or (ROOT if place.IN_CHECKOUT else options.folder) / "runs" / f"{stamp}-{machine.slug}-{name}"
    ).absolute()
    shorter = Path.cwd() == options.folder == ROOT and path.is_relative_to(ROOT)
    return Folder(path.relative_to(ROOT) if shorter else path)


def drive(arguments: list[str]) -> int:
    """Run the profile that the command line requests, and return the exit code.

    Raises: ProfileError with one sentence for the user.
    """
    options = parse(arguments)
    machine = look()
    program: Program | None = None
    if options.command:
        program = find(options.command, options.folder, options.stdin or _given_stdin(), must_exist=not options.dry)
    if not place.IN_CHECKOUT and not program:
        what = "roofs are measured" if options.roofs else "GPT-2 is profiled"
        raise ProfileError(2, f"{what.capitalize()} in a clone of the repository only: name a program after --.")
    if not machine.gpu and not options.dry:
        if program or options.roofs:
            what = "The self-test" if options.roofs else "A profile"
            raise ProfileError(2, f"{what} needs an NVIDIA GPU, and there is none here ({machine.reason}); try -n.")
        return _without_gpu(options, machine)
    if not options.dry:
        _check_packages()
    folder = _folder_of(options, machine, program.name if program else "roofs" if options.roofs else "gpt2")
    program = program or gpt2(PYTHON, folder.captures, options.harness)
    if not options.dry:
        _check_disk(folder.path.absolute())
        folder.open()
        _remember(options, folder)
    kind = Measuring if options.roofs else Profile
    return _go(kind(program=program, folder=folder, options=options, machine=machine))


def _go(runner: Runner) -> int:
    try:
        return runner.go()
    except KeyboardInterrupt:
        again = runner.folder.continued()
        raise ProfileError(INTERRUPTED, f"Interrupted in {runner.stage}: finished stages are kept, {again}.") from None
    finally:
        runner.folder.close()


def _without_gpu(options: argparse.Namespace, machine: Machine) -> int:
    """Profile GPT-2 on a machine without a GPU: layer times on the CPU, and the report of the committed capture."""
    if not os.environ.get("ANNOUNCED"):
        print(f"No NVIDIA GPU found: {machine.reason}.", flush=True)
    folder = _folder_of(options, Machine(gpu="cpu"), "gpt2")
    folder.open()
    program = gpt2(PYTHON, folder.captures, options.harness)
    return _go(WithoutGpu(program=program, folder=folder))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Run the command line: return the exit code, and print one sentence for an error."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return drive(sys.argv[1:])
    except ProfileError as refused:
        print(f"profile.sh: {refused}", file=sys.stderr)
        return refused.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        why = "free some space" if error.errno == errno.ENOSPC else "check the path and its permissions"
        what = error.filename or "A file of the run"
        print(f"profile.sh: {what}: {error.strerror}; {why}, then continue with --run.", file=sys.stderr)
        return 1
