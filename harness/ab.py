"""Run two commands in turns, each time in a fresh process under nsys, capture counters once each, and compare them.

    kernel-ledger ab [-n] [--rounds N] [--out DIR] [--no-counters] [--bare] --a COMMAND --b COMMAND [-- ARGUMENTS…]

Each round runs A and B in an order that is drawn at random. DIR/a and DIR/b then hold rounds.csv, the captures of every
run, and one capture with counters; ARGUMENTS go to the comparison, such as --gate gate.toml. With --bare, only the
time of the whole process is measured, without nsys. Exit: that of the comparison; 1 if a command fails; 2 wrong usage.
"""

import argparse
import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from analysis.formats.comparison import TURNS
from analysis.formats.console import documented
from analysis.formats.place import DOCTOR, program

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "nsys_scripts"
PROGRAM = program("ab", "ab")
SIDES = ("a", "b")
MISSING = 127


class _FailedError(Exception):
    """One sentence about a command that failed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    place = given.index("--") if "--" in given else len(given)
    options, rest = _parser().parse_args(given[:place]), given[place + 1 :]
    commands, out = {"a": options.a, "b": options.b}, options.out.resolve()
    try:
        for number in range(1, options.rounds + 1):
            order = random.SystemRandom().sample(SIDES, 2)
            for turn, side in enumerate(order):
                folder = out / side / f"{number:02}-{2 * (number - 1) + turn}"
                _measure(commands[side], folder, options.bare, options.dry)
        for side in SIDES:
            _run([sys.executable, "-m", "analysis.comparison.rounds", str(out / side)], options.dry, cwd=ROOT)
            if not (options.bare or options.no_counters):
                once = [str(SCRIPTS / "profile.sh"), "--run", str(out / side), "--", *_words(commands[side])]
                _run(["bash", *once], options.dry)
    except _FailedError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    compare = [str(ROOT / "analysis" / "compare.py"), *rest, str(out / "a"), "--", str(out / "b")]
    if options.dry:
        print(shlex.join([sys.executable, *compare]))
        return 0
    return subprocess.run([sys.executable, *compare], check=False).returncode


def _words(command: str) -> list[str]:
    return ["bash", "-c", command]


def _measure(command: str, folder: Path, bare: bool, dry: bool) -> None:
    """Run a command once: under nsys, or only timed."""
    if not bare:
        capture = [str(SCRIPTS / "nsys_capture.sh"), "--window", "all", "--out", str(folder), "--", *_words(command)]
        _run(["bash", *capture], dry)
        _run(["bash", str(SCRIPTS / "export_csv.sh"), "--only", "nsys", str(folder)], dry)
        return
    begin = time.perf_counter()
    _run(_words(command), dry)
    if not dry:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "wall.txt").write_text(f"{time.perf_counter() - begin:.9f}\n", encoding="utf-8")


def _run(words: list[str], dry: bool, cwd: Path | None = None) -> None:
    """Run a command, or print it.

    Raises: _FailedError, with the last line of its output, if it fails.
    """
    if dry:
        print(shlex.join(words))
        return
    done = subprocess.run(
        words, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env=os.environ | {"PYTHON": sys.executable},  # for the scripts; make names another one
    )  # fmt: skip
    if done.returncode == MISSING:
        raise _FailedError(f"nsys is missing; install it (`{DOCTOR}` says how), or time whole processes with --bare")
    if done.returncode:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise _FailedError(f"`{shlex.join(words)}` ended with {done.returncode}: {last}")


def _parser() -> argparse.ArgumentParser:
    parser = documented(PROGRAM, __doc__)
    parser.add_argument("--a", required=True, metavar="COMMAND", help="the command of side A")
    parser.add_argument("--b", required=True, metavar="COMMAND", help="the command of side B")
    parser.add_argument("--rounds", type=int, default=TURNS, metavar="N", help=f"rounds (default: {TURNS})")
    default = Path("runs") / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-ab"
    parser.add_argument("--out", type=Path, default=default, metavar="DIR", help="where everything goes")
    parser.add_argument("--no-counters", action="store_true", help="capture no counters")
    parser.add_argument("--bare", action="store_true", help="time whole processes, without nsys")
    parser.add_argument("-n", dest="dry", action="store_true", help="print every command, run nothing")
    return parser


if __name__ == "__main__":
    from analysis.formats.console import run_program

    sys.exit(run_program(main))
