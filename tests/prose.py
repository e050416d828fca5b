"""List every hand-written sentence of kernels/ with a measured number, and the file that the number is from.

    python -m tests.prose     updates kernels/prose.csv: adds new sentences, drops those that no longer exist

Sentences come from READMEs outside their generated parts; a row of a table there counts as one. `source` is a committed
CSV file: for a new sentence, the file that it links to. Every sentence needs a source, or words that say why not.
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
    """Yield the sentences and table rows of a Markdown text that hold a measured number, each on one line."""
    for block in re.split(r"\n\s*\n", _GENERATED.sub("\n\n", text)):
        lines = block.strip().splitlines()
        rows = [line for line in lines if line.startswith("|")]
        prose = " ".join(line.strip() for line in lines if not line.startswith(("|", "#")))
        for part in [*rows, *re.split(r"(?<=[.:;)])\s+(?=[A-Z`])", prose)]:
            if _MEASURED.search(part) or (part in rows and _DECIMAL.search(part)):
                yield " ".join(part.split())


def found() -> dict[tuple[str, str], str]:
    """Return (file, sentence) -> its numbers, for every such sentence."""
    return {
        (path.relative_to(ROOT).as_posix(), sentence): " ".join(_NUMBER.findall(sentence))
        for path in sorted(ROOT.glob("kernels/*/README.md"))
        for sentence in sentences(path.read_text("utf-8"))
    }


def read() -> dict[tuple[str, str], str]:
    """Return (file, sentence) -> source, from the committed table."""
    with TABLE.open(newline="", encoding="utf-8") as stream:
        return {(row["file"], row["sentence"]): row["source"] for row in csv.DictReader(stream)}


def text() -> str:
    """Return the table of today's sentences, with the sources of the committed table."""
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
