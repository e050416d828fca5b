"""Print a table of the kernels in an nsys SQLite export: count, total, median, p99 and idle time before each.

`python -m analysis.kernel_times FILE.sqlite` takes about a second. The report shows more and takes longer.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


def read_kernel_times(path: Path) -> pd.DataFrame:
    """Return the table of `analysis.tables.kernel_times` for the whole capture. Units: ns.

    A lane, on which idle time is measured, is one GPU of one process.

    Raises:
        InputError: the file is no export of nsys, or holds no kernels.
    """
    import numpy as np

    from analysis.capture.sqlite_table import open_tables
    from analysis.tables.kernel_times import KernelTimes

    with open_tables(path, str(path)) as tables:
        names = tables.read_table("StringIds", ["id", "value"])
        text_of = dict(zip(names["id"].values.tolist(), names["value"].values.tolist(), strict=True))
        of_lane = [name for name in ("globalPid", "deviceId") if name in tables.tables().get(_KERNELS, ())]

        def columns(rows: Any) -> list[Any]:
            # The lowest 24 bits of a global process id are zero: they hold the thread. So the device number fits there.
            # Before 2021 nsys named no process.
            lane = np.bitwise_or.reduce([rows[name].values for name in of_lane])
            return [*(rows[name].values for name in ("demangledName", "start", "end")), lane]

        wanted = ["start", "end", "demangledName", *of_lane]
        times = KernelTimes()
        for rows in tables.batches(_KERNELS, wanted):
            times.add(*columns(rows))
        if not times.in_order:
            whole = columns(tables.read_table(_KERNELS, wanted))
            order = np.argsort(whole[1], kind="stable")
            times = KernelTimes()
            times.add(*(column[order] for column in whole))
    return times.table(text_of)


def main() -> int:
    """Run the command line. Exit code 0: printed. 3: the file cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m analysis.kernel_times", description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, help="SQLite export of nsys")
    arguments = parser.parse_args()
    from tabulate import tabulate

    from analysis.formats.errors import LedgerError

    try:
        table = read_kernel_times(arguments.file)
    except LedgerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(tabulate(table.to_dict("list"), headers="keys", floatfmt=".0f", intfmt=",", tablefmt="simple"))
    return 0


if __name__ == "__main__":
    from analysis.formats.console import run_program

    sys.exit(run_program(main))
