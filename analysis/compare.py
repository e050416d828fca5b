"""Compare two sides: where the time went, what is FASTER, SLOWER, SAME or UNSURE, and why.

Each side is one run or many: folders of profiled runs, exports of nsys or ncu, traces of torch.profiler, folders of
runs in turns (rounds.csv), bench.csv, the table of a ladder, or a census.

Exit status: 0 compared, and the gate passes; 2 wrong usage, or a rule that matches nothing; 3 unreadable input, or
nothing in common; 4 the gate fails; 5 the gate is unsure.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from analysis.formats.place import program

PROGRAM = program("compare.py", "compare")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    if "--" not in given:
        options = parser.parse_args(given)  # --help, or a wrong option
        parser.error("put -- between the paths of A and those of B")
    place = given.index("--")
    options = parser.parse_args(given[:place])
    after = parser.parse_args(given[place + 1 :], argparse.Namespace(**vars(options)))  # options may follow B as well
    from analysis.formats.errors import LedgerError
    from analysis.formats.writing import failed

    try:
        return _run(after, options.paths, after.paths)
    except LedgerError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"{PROGRAM}: {failed(error)}", file=sys.stderr)
        return 3


def _run(options: argparse.Namespace, a: Sequence[Path], b: Sequence[Path]) -> int:
    from msgspec import structs

    from analysis import show
    from analysis.comparison import gate
    from analysis.comparison.compare import compare
    from analysis.comparison.outputs import junit, sarif
    from analysis.formats.comparison import document
    from analysis.formats.console import tolerant
    from analysis.formats.writing import write
    from analysis.page import comparison, terminal

    rules = gate.read(options.gate) if options.gate else []
    compared = compare(a, b, least=options.least)
    compared = structs.replace(compared, gate=gate.check(compared, rules))
    written = {
        options.markdown: comparison.markdown, options.junit: junit, options.sarif: sarif,
        options.html: comparison.html,
    }  # fmt: skip
    for path, render in written.items():
        if path:
            write(path, render(compared))
    if options.json:
        print(show.dumped(document(compared)))
    else:
        to = terminal.console(tolerant(sys.stdout), plain=options.text or not sys.stdout.isatty())
        to.print(comparison.screen(compared, to.width), crop=False)
    return gate.EXIT[gate.worst(compared.gate)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, usage="%(prog)s [options] A [A …] -- B [B …]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("paths", nargs="+", type=Path, metavar="A", help="runs of side A; those of side B follow --")
    parser.add_argument("--gate", type=Path, metavar="FILE", help="check the rules of a gate.toml")
    parser.add_argument(
        "--least", type=float, metavar="FRAC",
        help="the smallest change that counts (default: 0.005 of interleaved runs, 0.02 of others)",
    )  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print comparison.json")
    form.add_argument("--text", action="store_true", help="print plain text, as into a pipe")
    for name, what in (
        ("html", "the page"), ("markdown", "a comment for a pull request"), ("junit", "the gate as JUnit XML"),
        ("sarif", "the gate as SARIF"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"write {what}")
    return parser


if __name__ == "__main__":
    from analysis.formats.console import name_lacking_packages, run_program

    name_lacking_packages()
    sys.exit(run_program(main))
