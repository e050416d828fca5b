"""Declarations: what each must say, in which order they are built, and that nothing is declared for nobody."""

from __future__ import annotations

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
from analysis.tables.declare import Column, Part, Table, World, fact, part, table
from tests.declared import DECLARED, LADDER_TABLES, STUDY_TABLES, TABLES

EVERY = [*TABLES.values(), *STUDY_TABLES.values(), *LADDER_TABLES.values()]
SAID = {"ns": "ns", "byte": "byte", "byte/s": "byte/s", "flop/s": "FLOP/s", "flop/byte": "FLOP/byte", "hz": "Hz"}


def toy(name: str = "toy", **more: Any) -> Any:
    return table(name, question="?", columns=[Column("a", "", "an a", "key")], **more)


def test_a_column_without_evidence_is_an_error() -> None:
    with pytest.raises(TypeError, match="evidence"):
        Column("time_ns", "ns", "a time")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="column time_ns: evidence 'guess' is none of"):
        Column("time_ns", "ns", "a time", "guess")
    with pytest.raises(ValueError, match="style"):
        Column("time_ns", "ns", "a time", "timing", style="loud")


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


def test_whatever_is_declared_can_be_built() -> None:
    report = World(DECLARED, facts=Facts(Capture()), caption="")
    for one in DECLARED:
        assert report.has_inputs(one), one.name


def test_inputs_are_built_first_and_once() -> None:
    built: list[str] = []

    @fact("number")
    def number(given: int) -> int:
        built.append("number")
        return given + 1

    @toy()
    def rows(number: int) -> pd.DataFrame:
        return pd.DataFrame({"a": [number], "tier": "static"})

    @toy("other")
    def other(toy: pd.DataFrame, number: int, unknown: int = 7) -> None:
        built.append(f"other of {len(toy)} rows, {number}, {unknown}")

    world = World([other, rows, number], given=1)
    assert world["other"].empty
    assert world["other"].columns.tolist() == ["a", "tier"]
    assert built == ["number", "other of 1 rows, 2, 7"]
    assert "other" in world
    assert "nothing" not in world
    assert [one.name for one in World([other, rows, number]).tables()] == []  # nobody gives them a number


def test_a_circle_of_needs_is_named() -> None:
    one = fact("one")(lambda two: two)
    two = fact("two")(lambda one: one)
    world = World([one, two])
    world._known["capture"] = Capture()
    with pytest.raises(ValueError, match="need each other: one -> two -> one"):
        world["one"]


def test_rows_of_another_shape_are_a_defect() -> None:
    declared = toy()(lambda: pd.DataFrame({"b": [1], "tier": "static"}))
    with pytest.raises(ValueError, match=r"table toy: missing \['a'\], unknown \['b'\]"):
        declared()


def test_the_first_answer_counts_and_all_notes_do() -> None:
    parts = [
        part("title")(lambda: None), part("title")(lambda: "second"), part("title")(lambda: "third"),
        part("note")(lambda: "a"), part("note")(lambda: ["b", "c"]), part("note")(lambda: None),
    ]  # fmt: skip
    world = World(parts)
    assert world.first("title") == "second"
    assert world.every("note") == ["a", "b", "c"]
    with pytest.raises(ValueError, match="nothing that a report has"):
        part("rumour")


def test_one_name_is_declared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = types.ModuleType("toys")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(__import__("sys").modules, "toys", package)
    text = "from analysis.tables.declare import fact\n@fact('same')\ndef same() -> int:\n    return 1\n"
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "silent.py").write_text("raise RuntimeError('declares nothing, and is not imported')\n")
    with pytest.raises(ValueError, match=r"same is declared twice: toys\.first, toys\.second"):
        declare.find(package)


def test_two_packages_declare_one_name_once() -> None:
    with pytest.raises(ValueError, match="number is declared twice"):
        World([fact("number")(lambda: 1), fact("number")(lambda: 2)])


def test_a_glance_is_the_first_rows_and_the_shown_columns() -> None:
    columns = [Column("a", "", "an a", "key"), Column("b", "", "a b", "row", shown=False)]
    rows = pd.DataFrame({"a": range(20), "b": 1, "tier": "static"})
    plain = table("toy", question="?", columns=columns)(lambda: rows)
    assert plain.entry(rows)["glance"] == {"rows": list(range(12)), "columns": ["a", "tier"]}
    picked = table("toy", question="?", columns=columns, glance=lambda rows: rows[["b"]].tail(2))(lambda: rows)
    assert picked.entry(rows)["glance"] == {"rows": [18, 19], "columns": ["b"]}


def test_every_column_of_the_documentation_is_declared() -> None:
    text = (Path(declare.__file__).parents[1] / "COLUMNS.md").read_text(encoding="utf-8")
    for declared in EVERY:
        section = text.split(f"### `{declared.name}.csv`", 1)[1].split("### ", 1)[0]
        listed = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
        assert listed == declared.column_names
    assert len(list(itertools.filterfalse(str.strip, text.splitlines()))) > 0
