"""Count the words of sentences: in READMEs and other documents, in the help of programs and scripts, in `make help`.

    python -m tests.words [FILE …]    prints the sentences with more than MOST words, of all documents by default

A sentence ends at a full stop, colon, question mark or exclamation mark before a space. A list item, a heading and a
cell of a table are sentences of their own; in a cell, a semicolon separates sentences, too. A code span counts as one
word. Of a link only its text counts. Code blocks do not count.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.checkout import ROOT, files

MOST = 30  # words of a sentence
REPORTS = re.compile(r"reports/[^/]+/")  # report.py writes these, with names and sentences of the run
_BLOCKS = re.compile(r"^```.*?^```|<!--.*?-->", re.DOTALL | re.MULTILINE)
_TAG = re.compile(r"</?\w+>")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
_CODE = re.compile(r"``.+?``|`[^`]*`")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.) +(?:\[[ x]\] )?")
_END = re.compile(r"(?<=[.:!?])[\"”’)*_]*\s+|(?<=[.!?][)”*])\s+")
_WORD = re.compile(r"\w")


def documents() -> list[Path]:
    """Return every Markdown file of the checkout, except the reports of runs."""
    return [ROOT / name for name in files("*.md") if not REPORTS.match(name)]


def _paragraphs(text: str) -> Iterator[tuple[bool, str]]:
    """Yield (is it a cell, its text) for every paragraph, list item, heading and cell."""
    lines: list[str] = []
    for line in [*_BLOCKS.sub("\n\n", text).splitlines(), ""]:
        alone = line.lstrip().startswith(("|", "#"))
        if alone or not line.strip() or _ITEM.match(line):
            yield False, " ".join(lines)
            lines = []
        if line.lstrip().startswith("|"):
            yield from ((True, cell) for cell in re.split(r"(?<!\\)\|", line))
        elif not alone:
            lines.append(_ITEM.sub("", line).strip().removeprefix("> "))


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a Markdown text."""
    for cell, paragraph in _paragraphs(text):
        plain = _TAG.sub(" ", _CODE.sub("CODE", _LINK.sub(r"\1", paragraph)))
        for part in plain.split(";") if cell else [plain]:
            yield from (one for one in _END.split(part.strip()) if one)


def count(sentence: str) -> int:
    """Return the number of words of a sentence; a dash or a sign alone is not a word."""
    return sum(bool(_WORD.search(word)) for word in sentence.split())


def long_sentences(text: str) -> list[str]:
    """Return the sentences with more than MOST words."""
    return [one for one in sentences(text) if count(one) > MOST]


if __name__ == "__main__":
    for path in [Path(name).resolve() for name in sys.argv[1:]] or documents():
        for found in dict.fromkeys(long_sentences(path.read_text("utf-8"))):
            print(f"{path.relative_to(ROOT)}: {count(found)}: {found}")
