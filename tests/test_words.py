"""Sentences stay short in documents, in the help of programs and scripts, and in `make help`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import programs, words

ROOT = Path(__file__).resolve().parents[1]
# The only sentences with more words, by the file and how they begin, and why each may stay.
EXCEPTIONS = {
    ("kernels/specimens/README.md", "CODE (CODE), CODE (CODE),"): "a list of names: each defect with what was said",
    ("analysis/COLUMNS.md", "A kernel at 60 %"): "in every committed report, to be split when these are made anew",
    ("reports/README.md", "Events and nsys agree"): "in a committed report, to be split when that is made anew",
}
GLOSSARY = re.compile(r"## Glossary\n.*?(?=\n## )", re.DOTALL)


def excepted(file: str, sentence: str) -> bool:
    return any(file == name and sentence.startswith(start) for name, start in EXCEPTIONS)


def test_no_sentence_of_a_document_is_too_long() -> None:
    found = [
        f"{name}: {words.count(one)} words: {one}"
        for path in words.documents()
        for one in words.long_sentences(path.read_text("utf-8"))
        if not excepted(name := path.relative_to(ROOT).as_posix(), one)
    ]
    assert found == []


def test_every_exception_is_needed() -> None:
    for name, start in EXCEPTIONS:
        found = words.long_sentences((ROOT / name).read_text("utf-8"))
        assert any(one.startswith(start) for one in found), f"{name} has no such sentence any more: {start}"


@pytest.mark.xdist_group("commands")
@pytest.mark.parametrize("program", programs.programs())
def test_no_sentence_of_a_help_text_is_too_long(program: str) -> None:
    texts = list(programs.help_of(program))
    assert texts
    assert [one for text in texts for one in words.long_sentences(text)] == []


def test_no_sentence_of_a_script_or_target_is_too_long() -> None:
    assert len(programs.scripts()) >= 10
    assert len(programs.targets()) >= 25
    texts = {name: programs.help_of_script(name) for name in programs.scripts()} | programs.targets()
    assert {name: found for name, text in texts.items() if (found := words.long_sentences(text))} == {}


def test_a_sentence_is_told_from_the_next() -> None:
    text = (
        "# A heading of no account\n\nIt runs. ncu replays it, see `a. b. c` and [the `x` page](y.md): twice.\n"
        "It ends here\n\n- One item\n- [ ] two, 3.5 items\n\n| a; b | c. d |\n|---|---|\n\n```sh\nno. words. here.\n```\n"
    )
    assert list(words.sentences(text)) == [
        "It runs.", "ncu replays it, see CODE and the CODE page:", "twice.", "It ends here", "One item",
        "two, 3.5 items", "a", "b", "c.", "d", "---", "---",
    ]  # fmt: skip
    assert words.count("v05 takes – at 3.5 µs – half (1/2).") == 7
    assert words.long_sentences("word " * words.MOST) == []
    assert words.long_sentences("word " * (words.MOST + 1)) != []


def test_help_is_read_as_it_is_meant() -> None:
    text = programs.plain("What it does.\n\n    python -m a --b    prints. All of it\n    python -m a\n\nThe end.")
    assert list(words.sentences(text)) == ["What it does.", "CODE:", "prints.", "All of it", "CODE:", "The end."]
    header = programs.help_of_script("nsys_scripts/nsys_capture.sh")
    assert "- `--out DIR`: run folder" in header
    assert "usage:" not in header


def test_the_glossary_is_sorted_and_each_word_is_used() -> None:
    section = GLOSSARY.search((ROOT / "analysis/README.md").read_text("utf-8"))
    assert section
    terms = re.findall(r"^\| ([a-z ]+) \| .+\. \|$", section[0], re.MULTILINE)
    assert len(terms) >= 12
    assert terms == sorted(terms)
    text = " ".join(path.read_text("utf-8").lower() for path in words.documents()).replace(section[0].lower(), "")
    for term in terms:
        assert len(re.findall(rf"\b{term}s?\b", text)) >= 2, f"nothing says {term}"
