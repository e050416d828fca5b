"""The generated parts of the Markdown files: what they show is what the committed tables hold."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.formats.errors import InputError
from studies import runs
from studies.publish import __main__ as publish
from tests import committed

pytestmark = pytest.mark.studies

ROOT = Path(__file__).resolve().parents[2]


@committed.needs_committed
def test_the_markdown_files_say_what_the_committed_runs_say() -> None:
    for name, text in publish.render().items():
        assert (ROOT / name).read_text(encoding="utf-8") == text, f"{name}: run `make readme`"


def test_a_form_shows_values_with_units_and_leaves_out_what_is_missing() -> None:
    row = {"time_ns": 1500.0, "low_ns": 1000.0, "high_ns": None, "name": "a_b"}
    assert publish.filled("{name}", row) == "a_b"
    assert publish.filled("{time_ns} ({low_ns} – {high_ns})", row) == "1.5 µs"
    assert publish.filled("{time_ns} ({low_ns} – {time_ns})", row) == "1.5 µs (1 µs – 1.5 µs)"
    assert publish.filled("{high_ns} ({low_ns})", row) == "–"


def test_a_table_names_blank_columns_below_it_and_is_left_out_without_measurements() -> None:
    shown = publish.Shown("x", {"rung": "{rung}", "time": "{time_ns}", "counted": "{bytes}"}, measured="time_ns")
    rows = pd.DataFrame({"rung": ["a", "b"], "time_ns": [1000.0, np.nan], "bytes": [np.nan, np.nan]})
    table, blank = publish._blocks(shown, rows)
    assert [line.split() for line in table.splitlines()][2:] == [
        ["|", "a", "|", "1", "µs", "|"],
        ["|", "b", "|", "–", "|"],
    ]
    assert blank == "Blank in every row: counted."
    assert not list(publish._blocks(shown, rows.assign(time_ns=np.nan)))


def test_a_goal_needs_its_share_of_shapes_and_none_far_below() -> None:
    goal = {"goal": 1, "what": "fast", "least": 1.0, "op": "gelu", "dtype": "fp32", "found_p5": 0.9, "found_p95": 1.2}
    rows = [goal | {"shape_name": f"s{at}", "found": found} for at, found in enumerate((0.96, 1.1))]
    for share, never, met in ((0.5, 0.95, "yes"), (0.9, 0.95, "**no**"), (0.5, 0.97, "**no**")):
        table = pd.DataFrame([row | {"share": share, "never_below": never} for row in rows])
        row = [cell.strip() for cell in publish.goals_table(table).splitlines()[-1].split("|")]
        assert (row[4], row[-2]) == ("0 of 2", met)  # all intervals begin at 0.9
        assert "1 of 2" in publish.goals_table(table)


@pytest.mark.parametrize("text", ["[a\n", "[a]\ngpu = 1\n", '[a]\ngpu = "x"\nspeed = "y"\n'])
def test_a_damaged_list_of_runs_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / runs.FILE).write_text(text)
    with pytest.raises(InputError, match=f"^{tmp_path.name}/{runs.FILE}: ") as error:
        runs.read(tmp_path)
    assert "\n" not in str(error.value)
