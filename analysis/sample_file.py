"""Keep the counters that nsys sampled, from an SQLite export of nsys, as captures/nsys/samples.parquet.

No CSV report of nsys has them, and the SQLite export cannot be shared, because it holds the program's environment.
"""

from pathlib import Path

from analysis.capture import nsys_sqlite, samples


def keep(export: Path, folder: Path) -> bool:
    """Write samples.parquet of an export into a folder. Return whether the export has samples and GPU operations.

    Raises:
        InputError: the file is damaged, or is no export of nsys.
    """
    rows, attributes = nsys_sqlite.read_samples(export, export.name)
    if rows is None:
        return False
    samples.write(rows, attributes, folder / "samples.parquet")
    return True
