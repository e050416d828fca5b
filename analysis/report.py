"""Turn nsys and ncu exports into tables, figures and one report.

This module reads a capture, lets `pipeline.py` build the tables and figures, and moves the finished files into place.
Run it as `python analysis/report.py [PATH …] [--out DIR]`. It needs neither GPU nor torch.
"""

from __future__ import annotations

import argparse
import gc
import json
import shlex
import signal
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    # Python puts the folder of a script on its path, where `capture` or `tables` could shadow other packages.
    sys.path[0] = str(ROOT)

from analysis.formats.place import IN_CHECKOUT, here, profile, program, runs  # noqa: E402 - as the path has just been set

if TYPE_CHECKING:
    import pandas as pd

    from analysis.api import Analysis
    from analysis.formats.report import Report


JSON_HELP = here("print the report as JSON; analysis/JSON.md describes it", "print the report as JSON")
PROGRAM = program("report.py", "report")
RUNS = runs(Path.cwd())
COMMITTED = ROOT / "reports"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Exit code 0: report written. 2: wrong usage. 3: unreadable input."""
    options = _parse(arguments)
    # Import late, so that --help answers at once.
    from analysis.formats.errors import LedgerError
    from analysis.formats.writing import failed

    gc.set_threshold(1_000_000, 50, 50)  # frequent collections of garbage cost a tenth of the time
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        return _run(options)
    except LedgerError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader of the pipe has closed it
        raise
    except OSError as error:
        print(f"{PROGRAM}: {failed(error)}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted; the report that was there is untouched", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    """Write the requested report, print its path, and return the exit code."""
    from analysis import pipeline, show
    from analysis.formats.errors import UsageError
    from analysis.tables.declare import Table

    paths = options.paths or [_run_with(options.only)]
    if options.trace is not None:
        return _write_trace(options.trace, paths, options.locale)

    def made_of(sources: Sequence[Path]) -> tuple[Path, Analysis]:
        out = options.out or default_out(sources[0])
        if out.exists() and not out.is_dir():
            raise UsageError(f"--out {out} is a file; name a folder")
        analysis = build(
            sources, out, extrapolate=options.extrapolate_siblings, only=options.only, quiet=options.quiet,
            locale=options.locale,
        )  # fmt: skip
        return out, analysis

    out, analysis = made_of(paths)
    if options.only == "fusion" and analysis.tables["fusion"].empty and not options.paths and IN_CHECKOUT:
        committed = committed_run() / "captures"
        if committed.is_dir():
            print(
                f"{PROGRAM}: {_shown(paths[0])}, the newest run with a timeline, has no two neighbouring kernels that "
                f"one could replace; so this shows the committed {_shown(committed)}",
                file=sys.stderr,
            )
            paths = [committed]
            out, analysis = made_of(paths)
    if options.only == "roofline":
        return _show_roofline(analysis.report, out, paths)
    if options.only == "fusion":
        return _show_fusion(analysis.report, analysis.tables, out, paths)
    form = options.format or ("screen" if sys.stdout.isatty() else "text")
    if options.issue is not None:
        show.show_issue(options.issue, analysis.report)
    elif options.kernel is not None:
        tables_declared = [one for one in pipeline.declarations() if isinstance(one, Table)]
        sources = [Path(_shown(path)) for path in paths]
        show.show_kernel(options.kernel, analysis.report, analysis.tables, tables_declared, form, sources)
    else:
        written = [_shown(out / "report.html"), _shown(out / "report.md")]
        show.show_report(analysis.report, analysis.tables, form, written, _run_to_add_to(paths), options.verbose)
    return 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=(
            "Make tables, figures and a report from nsys and ncu exports. The content of a file tells its kind."
        ),
    )
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH",
        help="files or folders of exports (default: the newest run in runs/ with the needed data, else the committed "
        "run)",
    )  # fmt: skip
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where the report goes (default: the run, or runs/NAME-report)",
    )
    parser.add_argument(
        "--extrapolate-siblings", action="store_true",
        help="give kernels without counters those of a sibling layer (same kernel, grid, block); the report says so",
    )  # fmt: skip
    parser.add_argument(
        "--locale", metavar="NAME",
        help="how the exports write numbers where they do not prove it: C, en, de, fr, de_CH …",
    )  # fmt: skip
    parser.add_argument("--only", choices=["roofline", "fusion"], help="write only this figure and its tables")
    parser.add_argument(
        "--kernel", metavar="NAME",
        help="print the page of one kernel: its name, a part of it, or its number by time",
    )  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--format", choices=["text", "json", "agent", "ledger", "ledger-2", "editor", "sarif"],
        help="print text; the report as JSON; a short document for agents; kernel_ledger.yaml of TensorRT-LLM, version "
        "1 or 2; file:line: warning: …; SARIF",
    )  # fmt: skip
    form.add_argument("--issue", metavar="ID", help="print a finding, by its id or rank, as the body of an issue")
    shorthands = {"text": "print plain text, as into a pipe", "json": JSON_HELP}
    for name, said in shorthands.items():
        form.add_argument(f"--{name}", action="store_const", const=name, dest="format", help=said)
    form.add_argument(
        "--for-agent", action="store_const", const="agent", dest="format",
        help="print the answer for a language model: at most 32,000 characters of JSON"
        + here("; analysis/agent.schema.json describes it", ""),
    )  # fmt: skip
    parser.add_argument(
        "--trace", type=Path, metavar="FILE",
        help="write only the timeline: .json or .json.gz for Perfetto; .speedscope.json, only the host's threads",
    )  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="print all details, and how to get what is missing")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args(arguments)
    if options.only and (options.kernel is not None or options.format or options.issue is not None):
        parser.error("--only prints names of files: leave out --kernel, --issue and --format")
    if options.kernel is not None and (options.format not in (None, "text", "json") or options.issue is not None):
        parser.error("--kernel prints text or JSON")
    if options.trace is not None and (options.only or options.kernel is not None or options.format or options.out):
        parser.error("--trace writes only the timeline: leave out --only, --kernel, --format and --out")
    return options


def _write_trace(file: Path, paths: Sequence[Path], locale: str | None) -> int:
    """Write the timeline of a capture for another viewer, and say how to open it."""
    from analysis import api
    from analysis.facts import Facts
    from analysis.page import trace

    facts = Facts(api.load(*paths, locale=locale))
    if facts.gpu_ops.empty and facts.ranges.empty:
        print(f"{PROGRAM}: {', '.join(map(_shown, paths))}: holds no timeline; add a trace of nsys", file=sys.stderr)
        return 3
    trace.write(file, facts)
    where = "speedscope.app" if file.name.endswith(trace.SUFFIXES[0]) else "ui.perfetto.dev"
    print(f"{_shown(file)}\nOpen it at {where}, which reads the file in the browser.")
    return 0


def _head(report: Report, paths: Sequence[Path]) -> str:
    return f"{report.title} ({', '.join(_shown(path) for path in paths)})\n"


def _show_roofline(report: Report, out: Path, paths: Sequence[Path]) -> int:
    figures = [file for figure in report.figures for file in figure.files]
    if not figures:
        print(
            f"{PROGRAM}: this run has no roofline: it has no counters, or only those of a sweep; name another run",
            file=sys.stderr,
        )
        return 3
    print(_head(report, paths))
    print("\n".join(_shown(out / name) for name in (*figures, "tables/roofline.csv")))
    return 0


_NEEDED = {"roofline": "ncu.json", "fusion": "nsys.json"}  # the part of a run that a single figure needs
_HOLDS = {"ncu.json": "counters", "nsys.json": "timeline"}


def _show_fusion(report: Report, tables: dict[str, pd.DataFrame], out: Path, paths: Sequence[Path]) -> int:
    from analysis.page.markdown import render_tables

    if tables["fusion"].empty:
        such = f"RUN={COMMITTED.name}/{committed_run().name}/captures with `make fusion`" if IN_CHECKOUT else ""
        print(
            f"{PROGRAM}: {', '.join(_shown(path) for path in paths)}: has no two neighbouring kernels that one could "
            f"replace; name a capture with a timeline and ranges{such and f', such as {such}'}",
            file=sys.stderr,
        )
        return 3
    print(_head(report, paths))
    listed = [entry for entry in report.tables if entry.name.startswith("fusion")]
    print(render_tables(listed, tables))
    without = tables["fusion"][tables["fusion"]["gain_ns"].isna()]
    if len(without):
        print(f"\n{len(without)} without a gain: {without['evidence'].iloc[0]}.")
    figures = [file for figure in report.figures for file in figure.files]
    names = (*figures, "tables/fusion.csv", "tables/fusion_check.csv")
    print("\n" + "\n".join(_shown(out / name) for name in names))
    print(f"`{program('make report', 'report')}` writes the whole report with this section.")
    return 0


# A failed capture leaves only these files, which are not enough for a report.
_NO_DATA = {"nsys.json", "ncu.json", "manifest.json", "ops.csv", "dataflow.csv", "timing.json", "ceilings.json"}


def _holds_data(run: Path) -> bool:
    return any(
        file.name not in _NO_DATA and file.suffix != ".partial" and file.is_file() and file.stat().st_size > 0
        for file in (run / "captures").rglob("[!.]*")
    )


def _says_ok(status: Path) -> bool:
    """Return whether a tool's status file says that its capture succeeded."""
    try:
        content = json.loads(status.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("status") == "ok"


def committed_run() -> Path:
    """Return the committed run with a timeline, ranges and counters. It replaces a missing run of this machine.

    Raises: InputError if reports/published.toml names none.
    """
    from analysis.formats.errors import InputError

    if not IN_CHECKOUT:
        raise InputError("no run found in runs/ of this folder; name a file or folder of exports")
    file = COMMITTED / "published.toml"
    gpus = tomllib.loads(file.read_text(encoding="utf-8")).values() if file.is_file() else ()
    found = next((gpu["overview"] for gpu in gpus if "overview" in gpu), "")
    if not found:
        raise InputError(f"{COMMITTED.name}/{file.name}: names no overview; name a file or folder of exports")
    return COMMITTED / str(found)


def default_run(needed: str = "*") -> Path:
    """Return the newest folder in runs/ with data, else the committed run, which has a timeline and counters.

    `needed` names a tool whose status file in the newest run must say ok.

    Raises: InputError without any run.
    """
    from analysis.formats.errors import InputError

    found = {path.parents[1] for path in RUNS.glob(f"*/captures/{needed}") if needed == "*" or _says_ok(path)}
    found = {run for run in found if _holds_data(run)}
    if found:
        return max(found, key=lambda run: ((run / "captures").stat().st_mtime_ns, run.name))
    committed = committed_run()  # sort by name, since git changes the times of committed folders
    if _holds_data(committed):
        return committed
    raise InputError(
        f"no run found in runs/, and no {_shown(committed)}; take one with `{profile()}` or name a file or folder of "
        "exports"
    )


def _run_with(figure: str | None) -> Path:
    """Return the default run with the data for `figure`. Print a message if the newest run lacks it."""
    needed = _NEEDED.get(figure or "", "*")
    run, newest = default_run(needed), default_run()
    if run != newest:
        print(
            f"{PROGRAM}: {_shown(newest)}, the newest run, has no {_HOLDS[needed]}; so this shows {_shown(run)}",
            file=sys.stderr,
        )
    return run


def _run_of(path: Path) -> Path:
    """Return the folder above `captures`; any other path unchanged."""
    resolved = path.resolve()
    return resolved.parent if resolved.name == "captures" else resolved


def _run_to_add_to(paths: Sequence[Path]) -> str:
    """Return the run that a command can add to, quoted for a shell.

    "" for a committed run and for exports outside a run.
    """
    run = _run_of(paths[0])
    ours = len(paths) == 1 and (run / "captures").is_dir() and not run.is_relative_to(COMMITTED)
    return shlex.quote(_shown(run)) if ours else ""


def default_out(path: Path) -> Path:
    """Return the folder of a run in runs/ itself, else runs/NAME-report, so that committed runs stay unchanged."""
    run = _run_of(path)
    if run.parent == RUNS and run.is_dir():
        return run
    return RUNS / f"{run.stem if run.is_file() else run.name}-report"


def build(
    paths: Sequence[Path],
    out: Path,
    *,
    extrapolate: bool = False,
    only: str | None = None,
    quiet: bool = True,
    locale: str | None = None,
) -> Analysis:
    """Write a report into `out`, and return it. A failure leaves no file.

    Raises: LedgerError, one sentence, for unusable input.
    """
    from tqdm import tqdm

    from analysis import api

    shown = not quiet and sys.stderr.isatty()
    with tqdm(total=3, disable=not shown, leave=False, unit="stage") as progress:

        def stage(name: str) -> None:
            progress.set_description(name)
            progress.update()

        stage("reading exports")
        capture = api.load(*paths, locale=locale, progress=shown)
        stage("building tables and figures")
        analysis = api.analyse(capture, extrapolate=extrapolate, only=only)
        if only is None or analysis.images or len(analysis.tables.get(only, ())):
            stage("writing the report")
            analysis.save(out)
    return analysis


def _shown(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


if __name__ == "__main__":
    from analysis.formats.console import name_lacking_packages, run_program

    name_lacking_packages()
    sys.exit(run_program(main))
