"""Copy nsys and ncu CSV exports without absolute paths and without the machine's host name.

Users commit exports, so they must be fit for publication. ncu's table is valid CSV: this module rewrites it field by
field. nsys does not escape quotation marks inside fields, so this module replaces paths in its lines without parsing.
"""

import argparse
import csv
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

HOST = "host"
# An NVTX range such as /step/forward is not a path: a path begins with a folder that many systems, or this one, have.
# The last component stays: a reader needs the file of a kernel's lambda, but not the folder of that file.
USUAL = (
    "bin boot builds data dev etc home lib lib64 media mnt opt private proc root run sbin scratch srv tmp usr Users var"
    " work workspace"
)
ROOTS = "|".join(sorted({*USUAL.split(), *(re.escape(found.name) for found in os.scandir("/") if found.is_dir())}))
_NAME = r"""[^\s/"',;:()<>|{}]+"""
ABSOLUTE_PATH = re.compile(rf"(?:\bfile:/*|(?<![\w./-])/?)/(?:{ROOTS})(?:/{_NAME})*/({_NAME})/?")
WINDOWS_PATH = re.compile(r"""\b[A-Za-z]:\\(?:[^\s\\"',;:()<>|]+\\)+([^\s\\"',;:()<>|]+)""")


def without_paths(text: str) -> str:
    """Return the text with every absolute path replaced by the path's last component."""
    if "/" in text:
        text = ABSOLUTE_PATH.sub(r"\1", text)
    return WINDOWS_PATH.sub(r"\1", text) if ":\\" in text else text


def scrub_ncu(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the rows of ncu's raw table, from its header on, with a constant host name and without paths.

    A row that was cut off keeps fewer fields than the header, so that readers notice.
    """
    header: list[str] = []
    for line in lines:
        row = next(csv.reader([line]), [])
        if not header:
            header = row if row[:1] == ["ID"] else []
            yield from [header] if header else []
        elif row and (not row[0] or row[0].isdigit()):  # anything else is a message of ncu
            if line.count('"') % 2 and len(row) == len(header):
                row.pop()
            row = [without_paths(field) for field in row]
            host = header.index("Host Name") if "Host Name" in header else len(row)
            if row[0] and host < len(row):  # the row of units has no ID
                row[host] = HOST
            yield row


def scrub_file(source: TextIO, target: TextIO) -> None:
    """Copy one export. Its first line shows whether ncu or nsys wrote it."""
    first = source.readline()
    source.seek(0)
    if first.startswith(('"ID",', "==")):
        csv.writer(target, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(scrub_ncu(source))
    else:
        target.writelines(without_paths(line) for line in source)


def copy(files: Iterable[Path], folder: Path, strip: str = "") -> None:
    """Copy exports into a folder, each whole or not at all; `strip`: the part that leads their names, but no copy's."""
    csv.field_size_limit(2**31 - 1)
    folder.mkdir(parents=True, exist_ok=True)
    for path in files:
        target = folder / path.name.removeprefix(strip)
        partial = target.with_name(target.name + ".partial")
        with (
            path.open(encoding="utf-8", errors="replace", newline="") as source,
            partial.open("w", encoding="utf-8", newline="") as out,
        ):
            scrub_file(source, out)
        partial.replace(target)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line: copy files to a folder."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.profile.scrub", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--to", required=True, type=Path, help="folder for the copies")
    options = parser.parse_args(arguments)
    copy(options.files, options.to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
