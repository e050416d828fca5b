"""Print the tables that a study added to a report: python -m studies.show RUN."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from analysis.formats import packed
from analysis.formats.console import run_program
from analysis.page.markdown import table_of
from analysis.page.text import cell
from studies import TABLES

MOST_ROWS, MOST_COLUMNS, WIDEST = 30, 10, 40


def shown(run: Path) -> Iterator[str]:
    """Yield the title and the first rows of each table of a study, as the report in `run` has them."""
    report = json.loads(packed.read_bytes(packed.find(run / "report.json")))
    for table in report["tables"]:
        if table["name"] in TABLES and (run / table["file"]).is_file():  # a committed run keeps few
            rows = pd.read_csv(run / table["file"])
            names = [column["name"] for column in table["columns"]][:MOST_COLUMNS]
            body = [
                [cell(row[name], name)[:WIDEST] for name in names] for row in rows.head(MOST_ROWS).to_dict("records")
            ]
            align = ["right" if pd.api.types.is_numeric_dtype(rows[name]) else "left" for name in names]
            left = f"\n{len(rows) - len(body)} more rows in {table['file']}" if len(rows) > len(body) else ""
            yield f"\n{table['title'] or table['question']}\n{table_of(names, body, align)}{left}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: printed. 2: wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m studies.show", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a report")
    print("\n".join(shown(parser.parse_args(arguments).run)))
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main))
