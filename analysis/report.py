"""Turn nsys and ncu exports into tables, figures and one report.

The only composer and the only writer of `analysis/`: it reads a capture, calls the tables, then the views, and moves
the finished folder into place. Run it as `python analysis/report.py [PATH …] [--out DIR]`; needs no GPU and no torch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    # Run as a script, Python puts analysis/ on the path, where `capture` or `tables` could shadow other packages.
    sys.path[0] = str(ROOT)

if TYPE_CHECKING:
    import pandas as pd


RUNS = ROOT / "runs"
COMMITTED = ROOT / "reports"
PARTS = ("tables", "figures", "report.json", "report.md", "report.html")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: report written. 2: wrong usage. 3: input that cannot be read."""
    options = _parse(arguments)
    # Imported late so that --help answers at once.
    from analysis.capture.errors import AnalysisError

    try:
        paths = options.paths or [default_run(with_counters=options.only == "roofline")]
        out = options.out or default_out(paths[0])
        report, tables = build(
            paths, out, extrapolate=options.extrapolate_siblings, only=options.only, quiet=options.quiet
        )
        if options.update_readmes:
            update_readmes(report, tables, out)
    except AnalysisError as error:
        print(f"report.py: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(
            f"report.py: {error.filename or 'file'}: {error.strerror}; check the path and its permissions",
            file=sys.stderr,
        )
        return 3
    from analysis.views.markdown import render_terminal

    if options.only == "roofline":
        return _show_roofline(report, out)
    print(render_terminal(report))
    print(f"\nreport: {_shown(out / 'report.html')}  {_shown(out / 'report.md')}")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="report.py",
        description=(
            "Tables, figures and a report from nsys and ncu exports. The kind of a file is told from its content."
        ),
    )
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH",
        help="files or folders of exports (default: the newest run in runs/, else the committed one)",
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
    parser.add_argument("--only", choices=["roofline"], help="write only this figure and its table")
    parser.add_argument(
        "--update-readmes",
        action="store_true",
        help="rewrite the generated parts of this repository's READMEs from this run",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser.parse_args(arguments)


def _show_roofline(report: dict[str, Any], out: Path) -> int:
    figures = [file for figure in report["figures"] for file in figure["files"]]
    if not figures:
        print("report.py: this run holds no counters, so it has no roofline; name one that does", file=sys.stderr)
        return 3
    print("\n".join(_shown(out / name) for name in (*figures, "tables/roofline.csv")))
    return 0


def default_run(*, with_counters: bool = False) -> Path:
    """Return the newest folder in runs/ that holds captures (with ncu's status, if wanted), else the committed run.

    Raises: InputError if there is neither.
    """
    from analysis.capture.errors import InputError

    for folder in (RUNS, COMMITTED):
        # names of runs begin with their UTC time stamp, so the newest is the last by name
        wanted = "*/captures/ncu.json" if with_counters else "*/captures/*"
        found = sorted({path.parents[1] for path in folder.glob(wanted)})
        if found:
            return found[-1]
    raise InputError(
        "no run found in runs/ or reports/; take one with `make profile` or name a file or folder of exports"
    )


def default_out(path: Path) -> Path:
    """A run of runs/ gets its report inside; everything else, committed runs above all, one in runs/NAME-report."""
    resolved = path.resolve()
    run = resolved.parent if resolved.name == "captures" else resolved
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
) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """Read, analyse, write a report into `out`; return report.json's content and the tables. Leaves nothing on failure.

    Raises: AnalysisError with one sentence for input that cannot be used.
    """
    from tqdm import tqdm

    from analysis import pipeline
    from analysis.capture.load import load

    with tqdm(total=5, disable=quiet or not sys.stderr.isatty(), leave=False, unit="stage") as progress:

        def stage(name: str) -> None:
            progress.set_description(name)
            progress.update()

        stage("reading exports")
        sources = [path / "captures" if (path / "captures").is_dir() else path for path in paths]
        capture = load(sources, progress=not quiet and sys.stderr.isatty())
        stage("building tables")
        report, tables, roofs = pipeline.analyse(capture, extrapolate=extrapolate)
        stage("drawing figures")
        images = pipeline.draw(report, tables, roofs, only=only)
        stage("writing the report")
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
            written = write(Path(scratch), report, tables, images, only=only)
            stage("moving it into place")
            _move_into_place(Path(scratch), out, written)
    return report, tables


def update_readmes(report: dict[str, Any], tables: dict[str, pd.DataFrame], run: Path) -> None:
    """Rewrite the generated parts of README.md and analysis/README.md from the committed run at `run`."""
    for name, text in readmes(report, tables, run).items():
        (ROOT / name).write_text(text, encoding="utf-8", newline="\n")


def _index() -> str:
    """Return the list of the committed runs that have a report."""
    lines = ["| run | what | conditions |", "|---|---|---|"]
    for file in sorted(COMMITTED.glob("*/report.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        named = {row["name"]: row["value"] for row in content["conditions"]}
        told = "; ".join(
            f"{name} {named[name]}" for name in ("driver", "torch", "nsys", "ncu", "weights") if name in named
        )
        lines.append(f"| [{file.parent.name}]({file.parent.name}/report.md) | {content['title']} | {told} |")
    return "\n".join(lines)


def readmes(report: dict[str, Any], tables: dict[str, pd.DataFrame], run: Path) -> dict[str, str]:
    """Return the READMEs with generated parts, by name, as they should be.

    Raises: InputError if the committed benchmark is missing.
    """
    import pandas as pd

    from analysis.capture.errors import InputError
    from analysis.tables.schema import document_columns
    from analysis.views.readme import render_results, replace_part

    bench = COMMITTED / "h200-softmax-bench" / "bench.csv"
    if not bench.is_file():
        raise InputError(f"{bench.relative_to(ROOT)} is missing; make it with `make bench-softmax` on a GPU")
    status = {tool: run / "captures" / f"{tool}.json" for tool in ("nsys", "ncu")}
    seconds = {tool: json.loads(file.read_text(encoding="utf-8")).get("seconds") for tool, file in status.items()}
    folder = run.resolve().relative_to(ROOT).as_posix()
    parts = {
        "reports/README.md": ("runs", _index()),
        "README.md": ("results", render_results(report, tables, pd.read_csv(bench), seconds, folder)),
        "analysis/README.md": ("columns", document_columns()),
    }
    return {
        name: replace_part((ROOT / name).read_text(encoding="utf-8"), part, text)
        for name, (part, text) in parts.items()
    }


def write(
    folder: Path, report: dict[str, Any], tables: dict[str, pd.DataFrame], images: dict[str, dict[str, bytes]],
    *, only: str | None,
) -> list[str]:  # fmt: skip
    """Write the report's parts into `folder`; return their names relative to it."""
    from analysis.views.html import render_html
    from analysis.views.markdown import render_markdown

    (folder / "tables").mkdir()
    (folder / "figures").mkdir()
    written = []
    for name, table in tables.items():
        if only in (None, name):
            table.to_csv(folder / "tables" / f"{name}.csv", index=False, lineterminator="\n", float_format="%.6g")
            written.append(f"tables/{name}.csv")
    for name, image in images.items():
        for suffix, content in image.items():
            (folder / "figures" / f"{name}.{suffix}").write_bytes(content)
            written.append(f"figures/{name}.{suffix}")
    if only is not None:
        return written
    texts = {
        "report.json": json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False, default=_plain) + "\n",
        "report.md": render_markdown(report, tables),
        "report.html": render_html(report, tables, {name: image["svg"].decode() for name, image in images.items()}),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return list(PARTS)


def _move_into_place(scratch: Path, out: Path, names: list[str]) -> None:
    """Swap finished parts in; what was there is kept until every part has moved, and comes back if one cannot."""
    out.mkdir(parents=True, exist_ok=True)
    kept = scratch / "replaced"
    moved: list[str] = []
    try:
        for name in names:
            (kept / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            if (out / name).exists():
                os.replace(out / name, kept / name)
            moved.append(name)
            os.replace(scratch / name, out / name)
    except BaseException:
        for name in reversed(moved):
            if (kept / name).exists():
                if (out / name).is_dir():
                    shutil.rmtree(out / name)
                os.replace(kept / name, out / name)
        raise


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in report.json")


def _shown(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # the reader of our output has seen enough, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
