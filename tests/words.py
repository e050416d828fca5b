"""Counts the words of sentences: in READMEs and other documents, in the help of programs and scripts, in `make help`.

    python -m tests.words [FILE …]    prints the sentences with more than MOST words, of all documents by default

A sentence ends at a full stop, a colon, a question mark or an exclamation mark that a space follows. A list item, a
heading and a cell of a table are sentences of their own; in a cell a semicolon separates the items of a list. A code
span, a link and a formula in it count by what a reader sees: a code span as one word. Code blocks do not count.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.checkout import ROOT, files

MOST = 30  # words of a sentence
REPORTS = re.compile(r"reports/[^/]+/")  # what report.py writes of a run, which holds names and sentences of the run
_BLOCKS = re.compile(r"^```.*?^```|<!--.*?-->", re.DOTALL | re.MULTILINE)
_TAG = re.compile(r"</?\w+>")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
_CODE = re.compile(r"``.+?``|`[^`]*`")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.) +(?:\[[ x]\] )?")
_END = re.compile(r"(?<=[.:!?])[\"”’)*_]*\s+|(?<=[.!?][)”*])\s+")
_WORD = re.compile(r"\w")


def documents() -> list[Path]:
    """Every Markdown file that is committed, but the reports of runs."""
    return [ROOT / name for name in files("*.md") if not REPORTS.match(name)]


def _paragraphs(text: str) -> Iterator[tuple[bool, str]]:
    """Whether it is a cell, and the text, of every paragraph, list item, heading and cell."""
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
    """The sentences of a Markdown text."""
    for cell, paragraph in _paragraphs(text):
        plain = _TAG.sub(" ", _CODE.sub("CODE", _LINK.sub(r"\1", paragraph)))
        for part in plain.split(";") if cell else [plain]:
            yield from (one for one in _END.split(part.strip()) if one)


def count(sentence: str) -> int:
    """How many words a sentence has; a dash or a sign alone is none."""
    return sum(bool(_WORD.search(word)) for word in sentence.split())


def long_sentences(text: str) -> list[str]:
    """The sentences with more than MOST words."""
    return [one for one in sentences(text) if count(one) > MOST]


if __name__ == "__main__":
    for path in [Path(name).resolve() for name in sys.argv[1:]] or documents():
        for found in dict.fromkeys(long_sentences(path.read_text("utf-8"))):
            print(f"{path.relative_to(ROOT)}: {count(found)}: {found}")
