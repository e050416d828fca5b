"""Write the hottest instructions of ncu reports into the committed captures, in the form of ncu's source page.

    python -m studies.specimens.source_page REPORT.ncu-rep…

A block is one file of one kernel: a row for each source line with the sums of its instructions, which follow below it.
Kernels of earlier reports stay. The program needs NVIDIA's package (`pip install -e '.[ncu-rep]'`), because ncu's own
export of this page takes minutes. Exit: 0 done; 3 a report cannot be read.
"""

from __future__ import annotations

import argparse
import csv
import io
import lzma
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from analysis.capture.ncu_rep import read_report
from analysis.formats.console import guarded
from kernels.specimens.registry import FOLDER, SETS
from studies.specimens.merge import pack

MOST = 400  # most instructions kept of a launch
NUMBERS = {
    "samples": "Warp Stall Sampling (All Samples)",
    "samples_not_issued": "Warp Stall Sampling (Not-issued Samples)",
    "inst_executed": "Instructions Executed",
    "thread_inst_executed": "Thread Instructions Executed",
    "sectors_global": "L2 Theoretical Sectors Global",
    "sectors_global_ideal": "L2 Theoretical Sectors Global Ideal",
}
TARGET = re.compile(r"\s*0x[0-9a-f]{9,}")  # the address of the code, which differs from run to run


def hottest(lines: pd.DataFrame) -> pd.DataFrame:
    """At most MOST instructions of each launch: the first, and those with most samples or needless sectors."""
    lines = lines[lines["instruction"].notna()]
    needless = (lines["sectors_global"] > lines["sectors_global_ideal"]).fillna(False)
    order = lines.assign(first=lines["instruction"] == 0, needless=needless, hot=lines["samples"].fillna(0))
    order = order.sort_values(
        ["ncu_id", "first", "needless", "hot"], ascending=[True, False, False, False], kind="stable"
    )
    return order.groupby("ncu_id").head(MOST).sort_values(["ncu_id", "source_file", "line", "instruction"])


def source_text(file: str) -> list[str]:
    """Return the lines of a file of the specimens; [] for a library's file."""
    found = sorted(FOLDER.rglob(file)) if file else []
    return found[0].read_text("utf-8").splitlines() if len(found) == 1 else []


def block(rows: pd.DataFrame, texts: list[str]) -> str:
    """Return the text for a file of one launch: titles, a header, and each line, followed by its instructions."""
    stalls = sorted(set(rows["stall"]) - {""})
    columns = [*NUMBERS, *(f"stall_{one}" for one in stalls)]
    table = rows.assign(**{f"stall_{one}": rows["stall_samples"].where(rows["stall"] == one) for one in stalls})
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["File Path", rows["source_file"].iloc[0]])
    writer.writerow(["Function Name", rows["kernel"].iloc[0]])
    writer.writerow(["Line No", "Source", "Address", "Source", *NUMBERS.values(), *columns[len(NUMBERS) :]])
    for line, below in table.groupby("line", dropna=False):
        if pd.notna(line):
            text = texts[int(line) - 1].strip() if int(line) <= len(texts) else ""
            writer.writerow([int(line), text, "-", "-", *_numbers(below[columns].sum(min_count=1))])
        for at, text, *values in below[["instruction", "text", *columns]].itertuples(index=False):
            writer.writerow(["", "", hex(16 * at), TARGET.sub("", text), *_numbers(values)])
    return out.getvalue()


def _numbers(values: Iterable[float]) -> list[str]:
    return ["-" if pd.isna(value) else f"{value:.0f}" for value in values]


def blocks(report: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (half, kernel, blocks) for each launch of a report.

    Raises:
        InputError: the report cannot be read.
    """
    found = read_report(report, report.name)
    paths = found.counters.set_index("ncu_id")["path"]
    for launch, rows in hottest(found.source_lines).groupby("ncu_id"):
        half = next(half for half in SETS if half in paths[launch])
        folder = FOLDER / half
        text = ""
        for file, part in rows.groupby("source_file", sort=False):
            beside = folder / str(file)
            text += block(part, beside.read_text("utf-8").splitlines() if beside.is_file() else source_text(str(file)))
        yield half, str(rows["kernel"].iloc[0]), text


def known(path: Path) -> dict[str, str]:
    """Return the blocks of a packed page, by kernel."""
    if not path.is_file():
        return {}
    found: dict[str, str] = {}
    for text in re.split(r'^(?="File Path",)', lzma.decompress(path.read_bytes()).decode(), flags=re.MULTILINE)[1:]:
        kernel = next(csv.reader([text.splitlines()[1]]))[1]
        found[kernel] = found.get(kernel, "") + text
    return found


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m studies.specimens.source_page", description=__doc__)
    parser.add_argument("reports", nargs="+", type=Path)
    reports = parser.parse_args().reports

    def program() -> int:
        pages = {half: known(FOLDER / "captures" / half / "full_source.csv.xz") for half in SETS}
        for report in reports:
            for half, kernel, text in blocks(report):
                pages[half][kernel] = text
        for half, page in pages.items():
            if page:
                pack(
                    FOLDER / "captures" / half / "full_source.csv.xz", "".join(page[kernel] for kernel in sorted(page))
                )
        return 0

    return guarded(program)


if __name__ == "__main__":
    raise SystemExit(main())
