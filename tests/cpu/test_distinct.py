"""Long columns are judged and written by their distinct values, and give what pandas gives row by row."""

import numpy as np
import pandas as pd
import pytest

from analysis.formats import csv_text
from analysis.formats.distinct import numbered, several
from analysis.tables.attribution import parent_rows

ROWS = pd.DataFrame(
    {
        "text": ["a", 'say "x"', "with, comma", "two\nlines", None, "a", "", "'=1+1", " blank"],
        "category": pd.Categorical(["x", "y,z", "x", None, "x", "y,z", "x", "x", "x"]),
        "whole": pd.array([1, None, 3, -4, 5, 1 << 60, 0, 8, 9], dtype="Int64"),
        "fraction": [0.1, np.nan, 1e30, -0.0, 123456.789, np.inf, -np.inf, 3.0, 1 / 3],
        "masked": pd.array([0.1, None, 2.5, 3, 4, 5, 6, 7, 8], dtype="Float64"),
        "bool": [True, False, True, True, False, True, False, True, False],
        "mixed": ["a", 1, 2.5, None, "b", "c", "d", "e", "f"],
    }
)


@pytest.mark.parametrize("left_out", [[], ["mixed"], ["mixed", "fraction"], [*ROWS.columns[1:]]])
def test_a_table_is_written_as_pandas_writes_it(left_out: list[str]) -> None:
    rows = ROWS.drop(columns=left_out)
    for table in (rows, rows.head(0), rows.iloc[[4, 4, 3]]):
        assert csv_text.written(table) == table.to_csv(index=False, lineterminator="\n", float_format="%.6g")


@pytest.mark.parametrize("far", [1, 1 << 40])  # with the last one, the numbers of both columns exceed 64 bits
def test_equal_rows_have_equal_numbers(far: int) -> None:
    random = np.random.default_rng(1)
    rows = pd.DataFrame({"one": random.integers(0, 5, 200) * far, "other": random.integers(-3, 3, 200) * far})
    rows = rows.astype("Int64").mask(random.random((200, 2)) < 0.1)
    number = numbered(rows, ["one", "other"])
    assert (several(number) == rows.duplicated(keep=False)).all()
    assert len(np.unique(number)) == len(rows.drop_duplicates())
    assert not len(numbered(rows.head(0), ["one", "other"]))


@pytest.mark.parametrize("far", [1, 1_000_003])  # ids far apart are looked up, not counted off
def test_a_parent_is_found_by_its_id(far: int) -> None:
    ranges = pd.DataFrame({"range_id": np.array([5, 2, 9, 2, 7]) * far})
    ranges["parent_id"] = pd.array([2 * far, None, 4 * far, 9 * far, 100 * far], dtype="Int64")
    assert parent_rows(ranges).tolist() == [1, -1, -1, 2, -1]
