import numpy as np
import pandas as pd
import pytest

from analysis.formats.distinct import coded, holds, repeats


@pytest.mark.parametrize("size", [0, 1, 300])
def test_repeats_are_what_pandas_finds_in_whole_rows(size):
    random = np.random.default_rng(size)
    rows = pd.DataFrame({"a": random.integers(0, 3, size), "start": random.integers(0, 40, size)})
    assert repeats(rows, "start").tolist() == rows.duplicated().tolist()
    known = rows.astype("Int64").mask(random.random((size, 2)) < 0.1)
    assert repeats(known, "start").tolist() == known.duplicated().tolist()


def test_each_value_is_judged_once_and_missing_ones_do_not_hold():
    asked = []

    def judge(name):
        asked.append(name)
        return name.startswith("a")

    column = pd.Series(["a", "b", None, "ab", "a"], index=[4, 3, 2, 1, 0], dtype="string")
    found = holds(column, judge)
    assert found.tolist() == [True, False, False, True, True]
    assert found.index.tolist() == column.index.tolist()
    assert asked == ["a", "b", "ab"]
    assert holds(pd.Series([], dtype="string"), judge).tolist() == []


def test_texts_are_numbered_as_pandas_does_whether_rows_share_them_or_not():
    shared = ["step", "step/h.0"]
    for texts in ([], [*shared, *shared], [*shared, *("".join(text) for text in shared), "a", shared[0]]):
        column = pd.Series(texts, dtype="str")
        for found, expected in zip(coded(column), pd.factorize(column.to_numpy(object)), strict=True):
            assert found.tolist() == expected.tolist()
