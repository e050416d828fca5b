"""Measured numbers in hand-written text: each sentence is a row of kernels/prose.csv, and a new one has a source."""

from __future__ import annotations

from tests import prose


def test_every_sentence_with_a_measured_number_is_in_the_table() -> None:
    assert prose.TABLE.read_text("utf-8") == prose.text(), "run `python -m tests.prose`, and name the sources"


def test_every_source_is_a_committed_table() -> None:
    sources = prose.read().values()
    assert sources
    assert all(source.endswith(".csv") and (prose.ROOT / source).is_file() for source in sources)


def test_a_sentence_is_told_from_its_numbers() -> None:
    page = "# T\n\nIt takes 3.5 µs. Tiles are 128 × wide; v05 is\nahead.\n\n| idea | 75.3 → 74.9 |\n| --- | --- |\n| a | b |\n\n"
    page += "<!-- begin: ladder -->\n\n9 µs\n\n<!-- end: ladder -->\n"
    assert [*prose.sentences(page)] == [
        "It takes 3.5 µs.",
        "Tiles are 128 × wide; v05 is ahead.",
        "| idea | 75.3 → 74.9 |",
    ]
