"""Read what the generated parts show: tables of committed runs, and the first looks at the answer key."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.formats import packed
from analysis.formats.errors import InputError
from analysis.page import markdown
from analysis.page.text import MISSING, cell, is_missing

ROOT = Path(__file__).resolve().parents[2]
KEY = Path("tests/answer_key")
FIELD = re.compile(r"\{(\w+)\}")


def read_table(folder: Path, name: str) -> pd.DataFrame:
    """Return a committed table of a run. Raises: InputError if it is missing."""
    file = packed.find(folder / "tables" / f"{name}.csv")
    if not file.is_file():
        raise InputError(f"{folder.name}/tables/{name}.csv is missing; build it with `make readme`")
    return pd.read_csv(file)


def filled(form: str, row: Mapping[str, Any]) -> str:
    """Return a form such as `{time_ns} ({time_p5_ns} – {time_p95_ns})` with the values of a row.

    A form whose first value is missing is a dash. What stands in parentheses disappears if a value there is missing.
    """
    names = FIELD.findall(form)
    if names and is_missing(row[names[0]]):
        return MISSING
    lacking = [name for name in names if is_missing(row[name])]
    if lacking:
        form = re.sub(r" \([^)]*\)", "", form)
    said = FIELD.sub(lambda found: cell(row[found[1]], found[1]), form)
    return markdown.escape_prose(said)


def plain(headers: list[str], body: list[list[str]]) -> str:
    """Return a Markdown table without padding: a long table stays small, and a change of one row is one line."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [headers, ["---"] * len(headers), *body])


def looks(root: Path, pattern: str) -> dict[str, pd.DataFrame]:
    """Return {set: table} of the answer key's sets with such a file, in the order in which they were written."""
    files = sorted((root / KEY).glob(pattern), key=lambda file: (len(file.parent.name), file.parent.name))
    return {file.parent.name: pd.read_csv(file) for file in files}


def yes(column: pd.Series) -> str:
    """Return `7 of 11`: how many of the judged rows hold."""
    judged = column.dropna().astype(str).str.lower()
    return f"{judged.isin(['yes', 'true']).sum()} of {len(judged)}"
