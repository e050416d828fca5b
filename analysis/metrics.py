"""Print which ncu metrics to capture, or which questions a capture answers.

python -m analysis.metrics --cc 9.0                    the argument of `ncu --metrics`
python -m analysis.metrics --cc 9.0 --question NAME    the metrics for one question alone; --columns A,B for columns
python -m analysis.metrics FILE                        which questions that file can answer, and what it lacks
python -m analysis.metrics --list                      the whole catalogue (hardware/metrics.toml)
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.formats.errors import InputError, LedgerError, UsageError
from analysis.formats.place import program
from analysis.formats.words import count_of
from analysis.hardware.metrics import (
    Way,
    answers,
    capture_metrics,
    catalogue,
    check_names,
    column_metrics,
    question_metrics,
    questions,
    samples,
    verified,
)


def _span(way: Way) -> str:
    """Return the architectures of a way, as text."""
    text = "" if (way.min_cc, way.max_cc) == (0, 999) else f"cc {way.min_cc / 10} to {way.max_cc / 10}"
    without, alone = (", ".join(str(arch / 10) for arch in archs) for archs in (way.not_cc, way.only_cc))
    said = [text, f"not {without}" if without else "", f"only {alone}" if alone else ""]
    return f"  ({', '.join(filter(None, said))})" if any(said) else ""


def _print_list() -> None:
    columns, stalls = catalogue()
    for question, asks in questions().items():
        print(f"{question}: {asks}")
        for column in columns:
            if column.question != question:
                continue
            print(f"  {column.name} [{column.unit}]: {column.why}")
            for way in column.ways:
                print(f"      {way.formula()}{_span(way)}")
            print(f"      source: {column.source}")
        for family, name, prefix in ((stalls, "stalls", "stall"), (samples(), "samples", "sample")):
            if question == name:
                print(f"  {prefix}_<reason> [{family.unit}]: {family.metric}")
                print(f"      reasons: {', '.join(family.all_reasons())}")
                print(f"      source: {family.source}")
    tool, chips, others = (verified()[name] for name in ("tool", "chips", "by_library"))
    print(f"Names verified with {tool} for {', '.join(chips)}; with NVIDIA's library for {', '.join(others)}.")


def _print_answers(paths: Sequence[Path], cc: str) -> None:
    """Print which questions the counters of some files answer, and which metrics the others need.

    Raises:
        LedgerError: the files are unreadable or hold no counters.
    """
    # import here, so that the lists need only the standard library
    from analysis.capture.load import load
    from analysis.tables.join import prepare_counters

    capture = load(paths)
    shown = ", ".join(path.name for path in paths)
    if capture.counters.empty:
        raise InputError(f"{shown}: holds no counters of ncu; give a raw page, a details page or a report of ncu.")
    counters = prepare_counters(capture.counters)
    print(f"{shown}: {count_of(len(counters), 'kernel')}, {count_of(len(capture.counter_units), 'metric')}")
    for answer in answers(counters, capture.counter_units, cc):
        if not answer.columns:
            continue
        verdict = "yes" if not answer.missing else "no" if not answer.answered else "in part"
        print(f"{verdict:8}{answer.question}: {questions()[answer.question]}")
        for column, metrics in answer.missing.items():
            print(f"          {column}: not collected: {', '.join(metrics)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the argument of ncu's `--metrics`, or the questions that a capture answers.

    Exit code 2: unknown architecture or question. 3: unreadable file.
    """
    parser = argparse.ArgumentParser(
        prog=program("python -m analysis.metrics", "metrics"),
        description="Metrics for `ncu --metrics`; or, with files, which questions these can answer.",
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="exports or reports of ncu to look at")
    parser.add_argument("--cc", metavar="X.Y", help="compute capability of the GPU, such as 9.0")
    parser.add_argument("--deep", action="store_true", help="add what only a slow, complete capture needs")
    parser.add_argument("--question", metavar="A,B", help="only the metrics for these questions (--list names them)")
    parser.add_argument("--columns", metavar="A,B", help="only the metrics for these columns, and stalls")
    parser.add_argument("--list", action="store_true", help="print the whole catalogue: column, unit, formula, source")
    options = parser.parse_args(arguments)
    files: list[Path] = options.files
    if options.list:
        _print_list()
        return 0
    wanted = options.question.split(",") if options.question else []
    columns = options.columns.split(",") if options.columns else []
    try:
        check_names(wanted, columns)
        if not options.cc and not files:
            parser.error("give --cc X.Y, a file, or --list")
        if files:
            _print_answers(files, options.cc or "")
            return 0
        if columns:
            names = column_metrics(options.cc, columns)
        else:
            names = question_metrics(options.cc, wanted) if wanted else capture_metrics(options.cc, deep=options.deep)
        if options.cc not in verified()["chips"]:
            print(f"metric names for {options.cc} are not verified with any ncu", file=sys.stderr)
        if wanted and not names:
            raise UsageError(f"--question {options.question}: needs `ncu --section SourceCounters`, no --metrics.")
        print(",".join(names))
    except LedgerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    from analysis.formats.console import run_program

    sys.exit(run_program(main))
