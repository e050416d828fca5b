"""kernels/bounds.csv: the committed history of every bound is that of what is declared today. No git is needed."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from kernels.hypotheses import Hypothesis
from studies.ladder import bounds, dates
from tests import committed

ROOT = Path(__file__).resolve().parents[2]
ROWS = dates.read()
CURRENT = dates.current(ROWS)


def test_the_table_ends_with_what_is_declared_today() -> None:
    declared = bounds.stated()
    assert len(declared) > 200
    assert declared == CURRENT, "run `python -m studies.ladder.bounds`"


def test_every_hypothesis_of_the_committed_ladder_is_in_the_table() -> None:
    points = json.loads((committed.folder("ladder") / "ladder.json").read_text("utf-8"))["points"]
    found = 0
    for point in points:
        for said in point["hypotheses"]:
            if not said.get("stated", True):
                key = (*[bounds.ANY] * 4, "measured_over_predicted", "")
            else:
                shape = said.get("at", point["shape_name"])
                key = (point["op"], point["variant"], point["dtype"], shape, said["metric"], said["versus"])
            low, high, equals, _ = CURRENT[key]
            assert (float(low or 0), float(high) if high else None, equals) == (
                said["low"], said["high"], said["equals"],
            ), key  # fmt: skip
            found += 1
    assert found > 400


def test_every_bound_begins_with_its_declaration() -> None:
    first: dict[bounds.Key, str] = {}
    for row in sorted(ROWS, key=lambda row: row["date"]):
        if row["event"] != "measured":
            first.setdefault(dates.key_of(row), row["event"])
    assert set(first.values()) <= {"declared", "said"}
    assert {key for key, event in first.items() if event == "said"} == {
        key for key in first if key[4] == bounds.SENTENCE
    }


def test_every_row_says_when_and_where() -> None:
    assert ROWS
    for row in ROWS:
        assert row["date"].endswith("Z")
        assert row["event"] in {"declared", "changed", "withdrawn", "measured", "said"}
        assert bool(row["seen_in"]) == (row["event"] == "measured")
        if row["event"] == "measured":
            assert row["commit"]


def test_the_table_is_as_the_program_writes_it() -> None:
    assert bounds.text(ROWS) == dates.TABLE.read_text("utf-8")


def events(*rows: str) -> list[dates.Row]:
    head = ",".join(dates.COLUMNS)
    return list(csv.DictReader(io.StringIO("\n".join([head, *rows]))))


def test_the_last_event_counts() -> None:
    key = "gelu,v01,fp32,large,bench_time_p50_ns,floor"
    rows = events(
        f"{key},declared,2026-01-01T00:00:00Z,a,,1.1,,,",
        f"{key},measured,2026-01-02T00:00:00Z,b,,,,,x.csv",
        f"{key},changed,2026-01-03T00:00:00Z,c,,1.2,,,",
    )
    assert dates.current(rows) == {tuple(key.split(",")): ("", "1.2", "", "")}
    gone = events(f"{key},withdrawn,2026-01-04T00:00:00Z,d,,,,,")
    assert dates.current([*rows, *gone]) == {}


@pytest.mark.parametrize(
    ("before", "now", "event"),
    [
        ({}, "1.1", "declared"),
        ({"": "1.1"}, "1.2", "changed"),
        ({"": "1.1"}, "", "withdrawn"),
        ({"": "1.1"}, "1.1", ""),
    ],
)
def test_an_event_is_a_difference_from_every_parent(before: dict[str, str], now: str, event: str) -> None:
    key = ("gelu", "v01", "fp32", "large", "local_bytes", "")
    old = {key: ("", before[""], "", "")} if before else {}
    new = {key: ("", now, "", "")} if now else {}
    commit = bounds.Commit("c", "2026-01-01T00:00:00Z", ())
    assert [row["event"] for row in bounds._events(commit, new, [old])] == ([event] if event else [])
    # a merge that takes the bound from one of its parents is no event
    assert list(bounds._events(commit, new, [old, new])) == []


def test_what_is_declared_and_not_in_the_table_is_added_without_a_commit() -> None:
    less = [row for row in ROWS if dates.key_of(row)[:2] != ("gelu", "v02_vector")]
    added = [row for row in bounds.with_today(less) if not row["commit"]]
    lacking = {key for key in CURRENT if key[:2] == ("gelu", "v02_vector")}
    assert {dates.key_of(row) for row in added} - {dates.key_of(row) for row in less} == lacking


def test_a_bound_says_when_it_was_written_first_measured_and_changed() -> None:
    before, after = (f"gelu,{name},fp32,large,bench_time_p50_ns,floor" for name in ("v01", "v02"))
    rows = events(
        f"{before},declared,2026-01-01T00:00:00Z,a,,1.1,,,",
        f"{before},measured,2026-01-02T00:00:00Z,b,,,,,x.csv",
        f"{before},changed,2026-01-03T00:00:00Z,c,,1.2,,,",
        f"{after},measured,2026-01-02T00:00:00Z,b,,,,,x.csv",
        f"{after},declared,2026-01-02T00:00:00Z,b,,1.1,,,",
    )
    first, second = dates.dated(rows)
    assert (first.written, first.measured, first.changed) == (
        "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", ("2026-01-03T00:00:00Z",),
    )  # fmt: skip
    assert not first.afterwards
    assert second.afterwards


def test_ends_that_refute_are_a_bound_of_their_own() -> None:
    (said,) = {key for key in CURRENT if key[4].endswith(dates.REFUTED) and key[2] == "fp32"}
    assert said[:2] == ("attention", "v02_per_query")
    expected = CURRENT[(*said[:4], said[4].removesuffix(dates.REFUTED), said[5])]
    refuting = CURRENT[said]
    assert float(refuting[0]) < float(expected[0]) < float(expected[1]) < float(refuting[1])


def test_the_check_names_what_the_table_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert bounds.check(ROWS) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{len(CURRENT)} bounds: ")
    less = [row for row in ROWS if dates.key_of(row)[:2] != ("gelu", "v02_vector")]
    assert bounds.check(less) == 1
    assert "not in bounds.csv: declared gelu v02_vector" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"metric": "local_bytes", "low": 1.0}, "says no more than that there is any"),
        ({"metric": "fma_active_frac", "high": 1.0}, "always between 0 and 1"),
        ({"metric": "sectors_per_request_load", "low": 1.0}, "always between 1 and 32"),
        ({"metric": "local_bytes", "low": 1e6, "refuted": (2e6, 3e6)}, "must lie beyond what is expected"),
    ],
)
def test_a_bound_that_cannot_fail_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Hypothesis(**wrong)
