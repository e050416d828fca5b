"""Write and read the committed results of a benchmark: results.csv, and conditions.json beside it."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write(folder: Path, rows: Sequence[Mapping[str, Any]], conditions: Mapping[str, Any]) -> None:
    """Write both files into the folder; creates it if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "results.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (folder / "conditions.json").write_text(json.dumps(conditions, indent=1) + "\n", encoding="utf-8")


def read(folder: Path) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """Return (the rows, with cells as texts; the conditions) of a folder."""
    with (folder / "results.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return rows, json.loads((folder / "conditions.json").read_text(encoding="utf-8"))
