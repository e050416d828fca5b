"""Measured numbers in hand-written text: each is a cell of a committed table that the paragraph links to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import prose

LINK = "[waves.csv](../../reports/h200-matmul-bench/waves.csv)"
FILE = "kernels/matmul/README.md"


def test_every_measured_number_is_what_committed_data_say() -> None:
    assert prose.faults() == []


def test_both_kinds_of_evidence_and_both_kinds_of_text_are_there() -> None:
    rows = prose.read().values()
    assert sum(row.measured for row in rows) >= 30
    assert not all(row.measured for row in rows)
    files = {file for file, _ in prose.texts()}
    assert {"README.md", "CHANGELOG.md", "docs/faq.md", FILE, "kernels/include/vec.cuh"} <= files


@pytest.mark.parametrize(
    ("sentence", "why"),
    [
        ("A launch takes 3.5 µs.", "3.5 µs: has no row in docs/numbers.csv"),
        (f"A launch takes 3.5 µs ({LINK}).", "3.5 µs: has no row in docs/numbers.csv"),
        ("| idea | found (µs) |\n|---|---|\n| none | 3.5 |", "3.5 µs: has no row in docs/numbers.csv"),
        (
            "The step is 1.92 ×.",
            "1.92 ×: its paragraph does not link to reports/h200-matmul-bench/waves.csv",
        ),
    ],
)
def test_a_planted_sentence_is_found(sentence: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = [(file, f"{text}\n\n{sentence}\n" if file == FILE else text) for file, text in prose.texts()]
    monkeypatch.setattr(prose, "texts", lambda: iter(planted))
    assert prose.faults() == [f"{FILE}: {why}"]


def test_a_planted_comment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def texts() -> Iterator[tuple[str, str]]:
        yield (
            "kernels/gelu/v01_naive.cu",
            prose.comments("// gelu: 3 % faster\n// Expect   time 0.5 us\n// Source   x\n"),
        )

    monkeypatch.setattr(prose, "texts", texts)
    monkeypatch.setattr(prose, "read", dict)
    assert prose.faults() == ["kernels/gelu/v01_naive.cu: 3 %: has no row in docs/numbers.csv"]


def test_a_number_that_the_table_does_not_hold_is_found() -> None:
    held = next(row for row in prose.read().values() if (row.file, row.number) == (FILE, "1.92"))
    assert prose.fault(LINK, held) == ""
    assert prose.fault(LINK, held._replace(number="1.91")) == f"{held.source} says 1.9207"
    assert prose.fault(LINK, held._replace(source="reports/none.csv")) == "reports/none.csv does not exist"
    declared = next(row for row in prose.read().values() if not row.measured)
    assert prose.fault("", declared) == ""
    assert prose.fault("", declared._replace(column="share = 0.91")) == f"{declared.source} does not say share = 0.91"


def test_a_row_that_no_text_needs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = prose.read()
    held = next(row for row in rows.values() if (row.file, row.number) == (FILE, "1.92"))
    left = {prose.Number(FILE, *one): held._replace(number=one[0], unit=one[1]) for one in (("3.5", "µs"), ("777", ""))}
    monkeypatch.setattr(prose, "read", lambda: rows | left)
    assert prose.faults() == [f"{FILE}: 3.5 µs: no text has this number", f"{FILE}: 777 : no text has this number"]


def test_numbers_are_told_from_sizes_and_names() -> None:
    text = "It takes 0.52 to 0.60 times as long, 4 of 104.8 ms, 1,024.5 GB/s. Tiles are 128 × 128, 4 times larger, 8 MB, 100 %."
    assert [*prose.numbers(text)] == [
        ("0.52", "times"), ("0.60", "times"), ("4", "ms"), ("104.8", "ms"), ("1,024.5", "GB/s"),
    ]  # fmt: skip
    page = "A list:\n\n- one\n- two\n\n| a |\n|---|\n\nNext."
    assert [one.split() for one in prose.paragraphs(page)][1] == ["Next."]
