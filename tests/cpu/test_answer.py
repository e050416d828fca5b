"""The answer as data: its Structs, its schema, and what they refuse."""

import msgspec
import pytest

from analysis.formats import schema
from analysis.formats.report import Finding, KernelRow, Report, Saving, kind_of, kinds


@pytest.mark.parametrize("name", schema.FORMS)
def test_the_committed_schema_is_that_of_the_structs(name: str) -> None:
    committed = schema.__file__.replace("formats/schema.py", f"{name}.schema.json")
    with open(committed, encoding="utf-8") as file:
        assert file.read() == schema.render(name) + "\n"


def test_every_earlier_name_of_a_cause_leads_to_one_of_today() -> None:
    assert kind_of("item_in_loop") == kind_of("synchronise_each_op") == "sync"
    assert kind_of("launch_bound") == "launch_bound"
    assert {kind_of(name) for name in kinds()} == kinds().keys()


def test_a_saving_without_a_low_end_counts_by_its_bound() -> None:
    assert Saving(None, 8.0).middle == 8.0
    assert Saving(2.0, 8.0).middle == 5.0
    assert Saving().middle is None


def test_an_unknown_disposition_is_refused() -> None:
    row = {"name": "k", "short": "k", "step": "", "launches": 1, "ns": 5, "frac": 0.1, "disposition": "dance"}
    with pytest.raises(msgspec.ValidationError, match="dance"):
        msgspec.convert(row, KernelRow)


def test_the_answer_cannot_change() -> None:
    finding = Finding("a", 1, "sync", "t", "s", "d")
    with pytest.raises(AttributeError):
        finding.rank = 2  # type: ignore[misc]
    assert Report.__struct_config__.frozen
