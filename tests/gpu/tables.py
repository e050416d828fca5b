"""Write the results of a GPU as tables to commit: of the sanitizers, of the mutants, and of tests/gpu.

    python -m tests.gpu.tables --out DIR [--sanitize build/sanitize] [--tests JUNIT.xml] [--mutants FILE.csv]
                               [--gpu NAME] [--driver VERSION] [--tool VERSION] [--when TIME] [--sources DIGEST]

`make gpu-checks` runs all three and then this program, which writes four files into DIR. sanitize.csv has a row for
each run of a tool, and one for each place in a source that it names. Older runs on the same GPU keep their rows, if the
logs have none of them. tests.csv has a row for each test; tests that did not run again keep their rows. Each row of both
has a digest of the sources that ran (`sources_digest`), which shows whether kernels have changed since; it is blank where
it was not kept. mutants.csv has a row for each mutant. checks.json has the GPU, the driver, the time and the digest of
the last run. The last five arguments are for logs of another machine; by default they describe this one.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from xml.etree import ElementTree

from kernels import objects

RUN = (
    "tool",
    "build",
    "part",
    "launches",
    "findings",
    "exit_status",
    "time_s",
    "what",
    "where",
    "kernel",
    "times",
    "sources",
)
TESTS = ("test", "outcome", "time_s", "message", "sources")
# "=========     at void name<…>(…)+0xc80 in file.cuh:165", then perhaps the kernel that it was inlined into
PLACE = re.compile(r"=========\s+at (?P<function>.+?)(?:\+0x[0-9a-f]+)? in (?P<where>\S+:\d+)")
FRAME = re.compile(r"=========\s+Device Frame: (?P<function>.+?)(?:\+0x[0-9a-f]+)? in \S+")
SUMMARY = re.compile(r"========= (?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards? displayed)(?!\S| were)")
FINDING = re.compile(r"========= (?!ERROR|RACECHECK|COMPUTE|Target)(\S.*)")


def sources_digest() -> str:
    """Return 12 hex digits that change with any CUDA source or header of kernels/, but not with comments."""
    found = [f"{path.parent.name}/{path.stem} {objects.fingerprint(path)}" for path in objects.sources()]
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:12]


def name_of(function: str) -> str:
    """Return the name in a whole signature, such as `fitted_product`."""
    return re.sub(r"[<(].*", "", function.removeprefix("void ")).strip()


def findings(log: str) -> Iterator[tuple[str, str, str]]:
    """Yield (what, file:line, kernel) of every finding in a log of compute-sanitizer."""
    for block in re.split(r"^=========\s*$", log, flags=re.MULTILINE):
        what, place = FINDING.search(block), PLACE.search(block)
        if what and place:
            kernel = FRAME.search(block) or place
            yield what[1].strip(), place["where"], name_of(kernel["function"])


def read_sanitize(folder: Path) -> Iterator[dict[str, object]]:
    """Yield the rows of sanitize.csv, from the logs that tests/gpu/sanitize.sh keeps."""
    for file in sorted(folder.glob("*.status")):
        tool, build, part, status, seconds = file.read_text("utf-8").split()
        log = file.with_suffix(".log").read_text("utf-8", errors="replace")
        said = [*SUMMARY.finditer(log)]
        launches = re.findall(r"^(\d+) launches$", log, flags=re.MULTILINE)
        row = {"tool": tool, "build": build, "part": part}
        yield row | {
            "launches": launches[-1] if launches else "", "exit_status": status, "time_s": seconds,
            "findings": max((int(found[1]) for found in said), default=""),
        }  # fmt: skip
        for (what, where, kernel), times in sorted(Counter(findings(log)).items()):
            yield row | {"what": what, "where": where, "kernel": kernel, "times": times}


def _merged(old: str, rows: list[dict[str, object]], *keys: str) -> list[Mapping[str, object]]:
    """Return the rows, behind those that the old table has of what they lack, by the columns `keys`."""
    key = itemgetter(*keys)
    new = set(map(key, rows))
    return [*(row for row in csv.DictReader(io.StringIO(old, newline="")) if key(row) not in new), *rows]


def read_tests(file: Path) -> Iterator[dict[str, object]]:
    """Yield the rows of tests.csv, from pytest's JUnit file."""
    for case in ElementTree.parse(file).iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        outcome = "passed" if bad is None else {"failure": "failed"}.get(bad.tag, bad.tag)
        message = "" if bad is None else (bad.get("message") or "").splitlines()[0][:120]
        module = (case.get("classname") or "").rpartition(".")[2]
        yield {
            "test": f"{module}::{case.get('name')}", "outcome": outcome,
            "time_s": f"{float(case.get('time') or 0):.1f}", "message": message,
        }  # fmt: skip


def text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return a table as CSV; a column that a row lacks stays blank."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _asked(command: Sequence[str], pattern: str = r"(.+)") -> str:
    if shutil.which(command[0]) is None:
        return ""
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(pattern, said)
    return found[1].strip() if found else ""


def write(out: Path, options: argparse.Namespace) -> None:
    """Write the tables that the options name, and checks.json, which keeps its entries for other tables."""
    out.mkdir(parents=True, exist_ok=True)
    query = ["nvidia-smi", "--format=csv,noheader"]
    about = {
        "gpu": options.gpu or _asked([*query, "--query-gpu=name"]),
        "driver": options.driver or _asked([*query, "--query-gpu=driver_version"]),
        "compute_sanitizer": options.tool or _asked(["compute-sanitizer", "--version"], r"Version (\S+)"),
        "when": options.when or datetime.now(UTC).isoformat(timespec="seconds"),
        "sources": options.sources or sources_digest(),
    }
    file = out / "checks.json"
    known = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    tables: dict[str, str] = {}

    def with_older(table: str, rows: Iterable[dict[str, object]], *keys: str) -> list[Mapping[str, object]]:
        same = known.get(table, {}).get("gpu") == about["gpu"]
        old = (out / f"{table}.csv").read_text("utf-8") if same else ""
        return _merged(old, [row | {"sources": about["sources"]} for row in rows], *keys)

    if options.sanitize:
        runs = ("tool", "build", "part")
        rows = with_older("sanitize", read_sanitize(options.sanitize), *runs)
        tables["sanitize"] = text(RUN, sorted(rows, key=itemgetter(*runs)))
    if options.tests:
        tables["tests"] = text(TESTS, with_older("tests", read_tests(options.tests), "test"))
    if options.mutants:
        tables["mutants"] = options.mutants.read_text("utf-8")
    for name, content in tables.items():
        (out / f"{name}.csv").write_text(content, encoding="utf-8")
        known[name] = about if name == "sanitize" else {k: v for k, v in about.items() if k != "compute_sanitizer"}
    file.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.tables", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables")
    for name in ("sanitize", "tests", "mutants"):
        parser.add_argument(f"--{name}", type=Path)
    for name in ("gpu", "driver", "tool", "when", "sources"):
        parser.add_argument(f"--{name}", default="")
    options = parser.parse_args(arguments)
    write(options.out, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
