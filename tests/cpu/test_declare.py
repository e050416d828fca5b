"""Declarations: what each must say, in which order they are built, and that nothing is declared for nobody."""

import itertools
import types
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import studies
from analysis.capture.model import Capture
from analysis.facts import Facts
from analysis.page.text import unit_of
from analysis.tables import declare, order
from analysis.tables.declare import Column, Part, Table, part, table
from tests.declared import DECLARED, LADDER_TABLES, STUDY_TABLES, TABLES

EVERY = [*TABLES.values(), *STUDY_TABLES.values(), *LADDER_TABLES.values()]
SAID = {"ns": "ns", "byte": "byte", "byte/s": "byte/s", "flop/s": "FLOP/s", "flop/byte": "FLOP/byte", "hz": "Hz"}


def toy(name: str = "toy", **more: Any) -> Any:
    return table(name, question="?", columns=[Column("a", "an a", "key")], **more)


def test_a_column_without_evidence_is_an_error() -> None:
    with pytest.raises(TypeError, match="evidence"):
        Column("time_ns", "a time")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="column time_ns: evidence 'guess' is none of"):
        Column("time_ns", "a time", "guess")
    with pytest.raises(ValueError, match="style"):
        Column("time_ns", "a time", "timing", style="loud")


@pytest.mark.parametrize("declared", EVERY, ids=lambda declared: declared.name)
def test_a_table_says_what_it_answers_and_what_each_column_means(declared: Table) -> None:
    assert declared.question.endswith("?")
    assert declared.column_names[-1] == "tier"
    assert len(set(declared.column_names)) == len(declared.columns) + 1
    for column in declared.columns:
        assert column.description, column.name
        unit = unit_of(column.name)
        if unit and column.unit:  # the name states a unit: the declared one is no other
            assert column.unit in (SAID.get(unit, column.unit), "0-1", "1", "byte/block"), column
        if column.unit:  # a number rests on something
            assert column.evidence in (*declare.TIERS, "row", "key"), column
            assert column.evidence != "key" or column.unit in ("blocks", "threads", "1"), column


def test_tables_have_places_of_their_own() -> None:
    assert set(order.TABLES) <= TABLES.keys() | STUDY_TABLES.keys()
    assert list(STUDY_TABLES)[: len(studies.TABLES)] == list(studies.TABLES)
    parts = {one.name for one in DECLARED if isinstance(one, Part)}
    assert {*order.NOTES, *order.MISSING} <= parts
    assert len({declared.name for declared in EVERY}) == len(EVERY)


def test_whatever_is_built_is_built_once() -> None:
    built: list[str] = []

    @toy()
    def rows(facts: Facts) -> pd.DataFrame:
        built.append("rows")
        return pd.DataFrame({"a": [len(facts.gpu_ops)], "tier": "static"})

    @toy("other")
    def other(facts: Facts) -> None:
        built.append(f"other of {len(facts.once(rows))} rows")

    facts = Facts(Capture())
    assert facts.once(other).empty
    assert facts.once(other).columns.tolist() == ["a", "tier"]
    assert facts.once(rows)["a"].tolist() == [0]
    assert built == ["rows", "other of 1 rows"]


def test_a_table_of_the_facts_is_its_rows() -> None:
    assert Facts.kernels.name == "kernels"
    facts = Facts(Capture())
    assert facts.kernels is facts.once(Facts.kernels)


def test_rows_of_another_shape_are_a_defect() -> None:
    declared = toy()(lambda facts: pd.DataFrame({"b": [1], "tier": "static"}))
    with pytest.raises(ValueError, match=r"table toy: missing \['a'\], unknown \['b'\]"):
        Facts(Capture()).once(declared)


def test_the_first_answer_counts_and_all_notes_do() -> None:
    said = [
        ("title", None),
        ("title", "second"),
        ("title", "third"),
        ("note", "a"),
        ("note", ["b", "c"]),
        ("note", None),
    ]
    parts = [part(kind)(lambda facts, answer=answer: answer) for kind, answer in said]
    assert declare.first(parts, "title", Facts(Capture())) == "second"
    assert declare.every(parts, "note", Facts(Capture())) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="nothing that a report has"):
        part("rumour")


def test_one_name_is_declared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = types.ModuleType("toys")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(__import__("sys").modules, "toys", package)
    text = "from analysis.tables.declare import table\nsame = table('same', question='?', columns=())(lambda facts: None)\n"
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "silent.py").write_text("raise RuntimeError('declares nothing, and is not imported')\n")
    with pytest.raises(ValueError, match=r"same is declared twice: toys\.first, toys\.second"):
        declare.find(package)


def test_a_glance_is_the_first_rows_and_the_shown_columns() -> None:
    columns = [Column("a", "an a", "key"), Column("b", "a b", "row", shown=False)]
    rows = pd.DataFrame({"a": range(20), "b": 1, "tier": "static"})
    plain = table("toy", question="?", columns=columns)(lambda facts: rows)
    assert plain.entry(rows)["glance"] == {"rows": list(range(12)), "columns": ["a", "tier"]}
    picked = table("toy", question="?", columns=columns, glance=lambda rows: rows[["b"]].tail(2))(lambda facts: rows)
    assert picked.entry(rows)["glance"] == {"rows": [18, 19], "columns": ["b"]}


def test_every_column_of_the_documentation_is_declared() -> None:
    text = (Path(declare.__file__).parents[1] / "COLUMNS.md").read_text(encoding="utf-8")
    for declared in EVERY:
        section = text.split(f"### `{declared.name}.csv`", 1)[1].split("### ", 1)[0]
        listed = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
        assert listed == declared.column_names
    assert len(list(itertools.filterfalse(str.strip, text.splitlines()))) > 0
