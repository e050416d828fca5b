"""Read many captures into a store, and ask it: what limits the fleet, what is unlike, what changed, what would save.

Addresses are folders, or any address that fsspec knows (s3://…, gs://…). Captures already in the store are not read
again. Without addresses, the store that is there answers.

Exit status: 0 done; 2 wrong usage; 3 no captures, no store, or one of a newer version; 127 a package is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from analysis.formats.console import documented
from analysis.formats.place import here, program

if TYPE_CHECKING:
    from analysis.page.fleet import Answer
    from analysis.store.questions import Store

PROGRAM = program("fleet.py", "fleet")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    options = _parser().parse_args(arguments)
    from analysis.formats.errors import MISSING, LedgerError

    try:
        return _run(options)
    except LedgerError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if error.name not in ("cloudpickle", "dask", "distributed", "duckdb", "fsspec", "scipy"):
            raise
        install = here("make fleet", f"pip install {error.name}")
        print(f"{PROGRAM}: needs the package {error.name}; install it with {install}.", file=sys.stderr)
        return MISSING
    except OSError as error:
        print(
            f"{PROGRAM}: {error.filename or options.out}: {error.strerror}; nothing is lost, so run it again.",
            file=sys.stderr,
        )
        return 3
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted; what was read is in {options.out}: run it again to go on.", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    from analysis.formats.writing import write
    from analysis.page import fleet as page
    from analysis.store.questions import Store

    if options.addresses:
        from analysis.store.gather import fleet

        store, counts = fleet(
            options.addresses, options.out, scheduler=options.scheduler, n_workers=options.workers,
            timeout_s=options.timeout, memory_bytes=options.memory, key=options.anonymise, again=options.again,
            progress=sys.stderr.isatty(),
        )  # fmt: skip
        print(f"{counts.read} captures read, {counts.failed} could not be, {counts.known} were known.", file=sys.stderr)
    else:
        store = Store(options.out)
    answers = _answers(store, options)
    for one in answers:
        print(one.rows.to_csv(index=False, lineterminator="\n") if options.csv else page.text(one))
    if options.page:
        said = store.sql("SELECT count(*) AS n, coalesce(sum(launches), 0)::BIGINT AS launches FROM captures").iloc[0]
        sentence = f"{said['n']:,} captures with {said['launches']:,} GPU operations."
        write(options.page, page.html(options.out.name, sentence, answers))
        print(options.page)
    return 0


def _answers(store: Store, options: argparse.Namespace) -> list[Answer]:
    from analysis.page.fleet import Answer
    from analysis.store.questions import QUESTIONS

    if options.sql:
        return [Answer("sql", "", "", store.sql(options.sql))]
    names = options.ask or ([] if options.since and not options.page else list(QUESTIONS))
    found = [(name, store.ask(name)) for name in names]
    answers = [Answer(name, QUESTIONS[name].title, QUESTIONS[name].says, rows) for name, rows in found]
    if options.since:
        says = "Verdicts by the rules of compare.py: before the date is A, from it on is B, and a capture is a run."
        answers.append(Answer("since", f"What changed since {options.since}?", says, store.since(options.since)))
    return answers


def _bytes(text: str) -> int:
    number, unit = text.rstrip("KMGTBi"), text.lstrip("0123456789.").removesuffix("B").removesuffix("i")
    if unit not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 1.5GB")
    return int(float(number) * _UNITS[unit])


def _parser() -> argparse.ArgumentParser:
    parser = documented(PROGRAM, __doc__)
    parser.add_argument("addresses", nargs="*", metavar="DIR", help="folders or fsspec addresses of captures")
    parser.add_argument("--out", type=Path, required=True, metavar="STORE", help="the folder of the store")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="a Dask scheduler, tcp://… (default: this machine)")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="captures at a time on this machine (default: its CPUs)"
    )
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="the longest for one capture (default: 600)"
    )
    parser.add_argument(
        "--memory", type=_bytes, default=8 << 30, metavar="SIZE", help="the most for one capture (default: 8GB)"
    )
    parser.add_argument(
        "--anonymise", nargs="?", const="", metavar="KEY", help="hash names of kernels and ranges; leave sentences out"
    )
    parser.add_argument("--again", action="store_true", help="read those once more that could not be read")
    parser.add_argument(
        "--ask",
        action="append",
        metavar="QUESTION",
        help="limits, savings, unlike, slow_kernels, histogram, unread (default: all)",
    )
    parser.add_argument("--since", metavar="DATE", help="what changed since a date, by the rules of compare.py")
    parser.add_argument("--sql", metavar="QUERY", help="any query over captures, steps, kernels, findings, missing")
    parser.add_argument("--csv", action="store_true", help="print answers as CSV")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the answers as a page")
    return parser


if __name__ == "__main__":
    from analysis.formats.console import run_program

    sys.exit(run_program(main))
