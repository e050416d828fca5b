"""Tabulate the calls of NCCL in an SQLite export of nsys, with the bytes from their NVTX payloads.

The CSV reports of nsys lack the payloads. The SQLite export cannot be shared, because it holds the program's
environment. So `export_csv.sh` keeps these calls as nccl_calls.csv.
"""

from pathlib import Path

from analysis.capture import nsys_sqlite
from analysis.formats.ranks import NCCL_CALLS


def text_of(path: Path) -> str:
    """Return the text of nccl_calls.csv for an export; "" if it has no call of NCCL.

    Raises:
        InputError: the file is damaged, or is no SQLite database.
    """
    calls = nsys_sqlite.read_nccl_calls(path, path.name)
    rows = calls.astype(object).where(calls.notna(), "")[list(NCCL_CALLS.names)]
    return NCCL_CALLS.text(rows.to_numpy().tolist()) if len(rows) else ""
