"""Judge long columns by their distinct values: a capture has a million launches and few names."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd


def numbered(rows: pd.DataFrame, columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return a number for each row, equal where all these columns of whole numbers are; missing values are equal."""
    found, size = np.zeros(len(rows), np.int64), 1
    for name in columns if len(rows) else ():
        missing = rows[name].isna().to_numpy(bool)
        value = rows[name].to_numpy(np.int64, na_value=0)
        known = value[~missing] if missing.any() else value
        low = int(known.min()) if len(known) else 0
        span = int(known.max() if len(known) else 0) - low + 2
        if (size := size * span) >= 1 << 62:
            return rows.groupby([*columns], sort=False, dropna=False).ngroup().to_numpy(np.int64)
        value = value - low + 1
        value[missing] = 0
        found = found * span + value
    return found


def several(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which numbers occur more than once."""
    if len(numbers) and int(numbers.min()) >= 0 and int(numbers.max()) < 4 * len(numbers):
        return np.asarray(np.bincount(numbers)[numbers] > 1)
    ordered = np.sort(numbers)
    return np.isin(numbers, ordered[1:][ordered[1:] == ordered[:-1]])


def repeats(rows: pd.DataFrame, column: str) -> npt.NDArray[np.bool_]:
    """Return which rows equal an earlier one. Shape (rows,).

    Whole rows are compared only where their value of `column`, whole numbers, repeats: choose the one that is rarely
    equal.
    """
    again = np.flatnonzero(several(rows[column].to_numpy(np.int64, na_value=-1)))
    found = np.zeros(len(rows), dtype=bool)
    found[again] = rows.iloc[again].duplicated()
    return found


def coded(texts: pd.Series) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.object_]]:
    """Return what `pd.factorize` does of a column without missing values; texts that many rows share are read once."""
    cells = texts.to_numpy(object)
    same, objects = pd.factorize(np.fromiter(map(id, cells), np.intp, len(cells)))
    at = np.empty(len(objects), np.intp)
    at[same[::-1]] = np.arange(len(cells))[::-1]
    codes, values = pd.factorize(cells[at])
    return codes[same], values


def holds(column: pd.Series, judge: Callable[[Any], Any]) -> pd.Series:
    """Return whether `judge` holds for each value of a column; missing values are not judged, and do not hold."""
    codes, values = pd.factorize(column)
    known = np.array([*(bool(judge(value)) for value in values), False])
    return pd.Series(known[codes], index=column.index)
