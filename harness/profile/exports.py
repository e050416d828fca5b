"""Finish the exports of export_csv.sh: scrub them, reduce them to what is kept, and note a failure for the report.

python -m harness.profile.exports pages DIR [--dry]      print ncu's options for each page to export, after its name
python -m harness.profile.exports nsys DIR [--nsys P]    from DIR/raw/exports to DIR/captures
python -m harness.profile.exports ncu DIR
python -m harness.profile.exports fail DIR --tool TOOL --reason SENTENCE
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from analysis.formats.console import documented
from analysis.formats.errors import LedgerError
from analysis.formats.writing import read_json
from harness.profile import scrub, status

RATIO = re.compile(r"\.ratio$|pct$|\.pct_of_peak\w*$|\.per_cycle\w*$")
Fail = Callable[[str], None]


def pages(run: Path, dry: bool = False) -> list[str]:
    """Return the pages that a capture of ncu has: name, then ncu's options.

    ncu prints one unit a column: counts come in base units, ratios scaled. Without a list of the captured metrics, all
    come scaled, since ratios matter more than last digits; `dry` prints what counts get once they are captured.
    """
    captured = read_json(run / "captures" / "ncu.json")
    metrics = captured.get("metrics", [])
    counts = [name for name in metrics if not RATIO.search(name)]
    ratios = [name for name in metrics if RATIO.search(name)]
    base = " --print-units base" + (f" --metrics {','.join(counts)}" if counts else "")
    found = ["ncu_raw --page raw" + (base if counts or dry else "")]
    found += [f"ncu_ratios --page raw --metrics {','.join(ratios)}"] if ratios else []
    sampled = "--import-source" in captured.get("command", [])
    return found + (["ncu_lines --page source --print-source cuda,sass"] if sampled else [])


def finish_nsys(run: Path, nsys: str, fail: Fail) -> None:
    """Turn raw/exports/nsys_*.csv into captures/nsys/, with the kernels of CUDA graphs and the calls of NCCL."""
    exports, kept = run / "raw" / "exports", run / "captures" / "nsys"
    found = [path for path in sorted(exports.glob("nsys_*.csv")) if path.stat().st_size]
    if not found:
        log = exports / "nsys.log"
        sys.stderr.write(log.read_text(encoding="utf-8", errors="replace") if log.is_file() else "")
        fail("nsys stats wrote no report from timeline.nsys-rep.")
        return
    try:
        scrub.copy(found, kept, strip="nsys_")
    except OSError:
        fail("the exports of the timeline could not be written.")
        return
    status.mend(run / "captures" / "nsys.json")
    database = run / "raw" / "timeline.sqlite"
    if database.is_file() and database.stat().st_size:
        try:
            _of_graphs(database, kept)
            _of_nccl(database, kept, nsys, exports)
            _of_samples(database, kept)
        except ImportError as error:
            lacks = f"export_csv.sh: CUDA graphs, NCCL and samples are left out, as Python lacks {error.name}."
            print(lacks, file=sys.stderr)


def _of_graphs(database: Path, kept: Path) -> None:
    """Write graph_kernels.csv: only the SQLite file says in which range each kernel of a CUDA graph was recorded."""
    from analysis import nsys_extras

    calls = kept / "cuda_api_sum.csv"
    if not (calls.is_file() and "GraphLaunch" in calls.read_text(encoding="utf-8", errors="replace")):
        return
    try:
        if text := nsys_extras.graph_kernels(database):
            (kept / "graph_kernels.csv").write_text(text, encoding="utf-8")
    except LedgerError as error:
        print(error, file=sys.stderr)


def _of_nccl(database: Path, kept: Path, nsys: str, exports: Path) -> None:
    """Write nccl_calls.csv. The file of nsys stats lacks the bytes of the calls, so nsys exports another one."""
    from analysis import nsys_extras

    try:
        text = nsys_extras.nccl_calls(database)
        if text:
            payloads = exports / "payloads.sqlite"
            command = [nsys, "export", "--type", "sqlite", "--include-blobs=true", "--force-overwrite=true"]
            command += ["--output", str(payloads), str(database.with_suffix(".nsys-rep"))]
            print(shlex.join(command), flush=True)
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                text = nsys_extras.nccl_calls(payloads)
    except (LedgerError, OSError) as error:
        print(f"export_csv.sh: the bytes of collectives are not known: {error}", file=sys.stderr)
        return
    if text:
        (kept / "nccl_calls.csv").write_text(text, encoding="utf-8")


def _of_samples(database: Path, kept: Path) -> None:
    """Write samples.parquet: the counters that nsys sampled are in no CSV report of it."""
    from analysis import nsys_extras

    try:
        nsys_extras.keep_samples(database, kept)
    except (LedgerError, OSError) as error:
        print(f"export_csv.sh: the samples are left out: {error}", file=sys.stderr)


def finish_ncu(run: Path, fail: Fail) -> None:
    """Turn the pages in raw/exports into tables in captures/; shorten the page of sources."""
    for page in sorted((run / "raw" / "exports").glob("ncu_*.csv")):
        with page.open(encoding="utf-8", errors="replace", newline="") as stream:
            if page.stem == "ncu_lines":
                _sources(run, page, fail)
                continue
            lines = [line for line in stream if line.startswith(('"ID",', "==ERROR=="))][:1]
        if not lines or lines[0].startswith("=="):
            fail(f"ncu --import gave no table: {(lines or ['nothing was printed'])[0].strip()}")
            continue
        try:
            scrub.copy([page], run / "captures")
        except OSError:
            fail(f"{page.name} could not be written.")


def _sources(run: Path, page: Path, fail: Fail) -> None:
    """Write ncu_lines.csv and ncu_source.csv."""
    from analysis.hot_lines import keep

    try:
        keep(page, run / "raw" / "counters.ncu-rep", run / "captures")
    except (LedgerError, OSError):
        fail("the page of sources could not be exported, so the hottest lines are not known.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Exit code 1: an export failed."""
    parser = documented("python -m harness.profile.exports", __doc__)
    parser.add_argument("what", choices=("pages", "nsys", "ncu", "fail"))
    parser.add_argument("run", type=Path, metavar="DIR", help="run folder")
    parser.add_argument("--dry", action="store_true", help="before a capture")
    parser.add_argument("--nsys", default="nsys", help="the nsys that exports the bytes of collectives")
    parser.add_argument("--tool", choices=("nsys", "ncu"))
    parser.add_argument("--reason", default="")
    options = parser.parse_args(arguments)
    tool = options.tool or options.what
    failed = []

    def fail(reason: str) -> None:
        failed.append(reason)
        print(f"export_csv.sh: {reason}", file=sys.stderr)
        status.fail(options.run / "captures" / f"{tool}.json", tool, reason)

    if options.what == "pages":
        print("\n".join(pages(options.run, options.dry)))
    elif options.what == "nsys":
        finish_nsys(options.run, options.nsys, fail)
    elif options.what == "ncu":
        finish_ncu(options.run, fail)
    else:
        fail(options.reason)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
