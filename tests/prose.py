"""Lists every hand-written sentence of kernels/ that holds a measured number, with the file that the number is from.

    python -m tests.prose     writes kernels/prose.csv: adds sentences that it lacks, drops those that are gone

A sentence is one of a README outside its generated parts, or a row of a table there. `source` is a committed CSV file,
without more said the one that the sentence links to. Every sentence needs one; what has none says it in words.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "kernels" / "prose.csv"
COLUMNS = ("file", "sentence", "numbers", "source")
_GENERATED = re.compile(r"<!-- begin: (\S+) -->.*?<!-- end: \1 -->|```.*?```", re.DOTALL)
_MEASURED = re.compile(r"\d(?:\s|\s?%\s)?\s?(?:µs|ms\b|ns\b|%|×|times\b|[TG]B/s|TFLOP/s|cycles\b)|\d → \d")
_DECIMAL = re.compile(r"\d\.\d")
_LINK = re.compile(r"\((?:\.\./)*(reports/[^)\s]+\.csv)\)")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w])")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a Markdown text and the rows of its tables that hold a measured number, in one line each."""
    for block in re.split(r"\n\s*\n", _GENERATED.sub("\n\n", text)):
        lines = block.strip().splitlines()
        rows = [line for line in lines if line.startswith("|")]
        prose = " ".join(line.strip() for line in lines if not line.startswith(("|", "#")))
        for part in [*rows, *re.split(r"(?<=[.:;)])\s+(?=[A-Z`])", prose)]:
            if _MEASURED.search(part) or (part in rows and _DECIMAL.search(part)):
                yield " ".join(part.split())


def found() -> dict[tuple[str, str], str]:
    """The numbers of every such sentence, by file and sentence."""
    return {
        (path.relative_to(ROOT).as_posix(), sentence): " ".join(_NUMBER.findall(sentence))
        for path in sorted(ROOT.glob("kernels/*/README.md"))
        for sentence in sentences(path.read_text("utf-8"))
    }


def read() -> dict[tuple[str, str], str]:
    """The source of every sentence of the committed table."""
    with TABLE.open(newline="", encoding="utf-8") as stream:
        return {(row["file"], row["sentence"]): row["source"] for row in csv.DictReader(stream)}


def text() -> str:
    """The table of the sentences as they are, with the sources of the committed one."""
    known = read() if TABLE.is_file() else {}
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for key, numbers in found().items():
        link = _LINK.search(key[1])
        writer.writerow([*key, numbers, known.get(key) or (link[1] if link else "")])
    return stream.getvalue()


if __name__ == "__main__":
    TABLE.write_text(text(), encoding="utf-8")
