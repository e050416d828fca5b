"""Judge long columns by their distinct values: a capture has a million launches and few names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd


def repeats(rows: pd.DataFrame, column: str) -> npt.NDArray[np.bool_]:
    """Return which rows equal an earlier one. Shape (rows,).

    Whole rows are compared only where their value of `column` repeats: choose the one that is rarely equal.
    """
    again = np.flatnonzero(rows[column].duplicated(keep=False))
    found = np.zeros(len(rows), dtype=bool)
    found[again] = rows.iloc[again].duplicated()
    return found


def holds(column: pd.Series, judge: Callable[[Any], bool]) -> pd.Series:
    """Return whether `judge` holds for each value of a column; missing values are not judged, and do not hold."""
    codes, values = pd.factorize(column)
    known = np.array([*(bool(judge(value)) for value in values), False])
    return pd.Series(known[codes], index=column.index)
