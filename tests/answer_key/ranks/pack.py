"""Pack the cut exports of run.py, and unpack them.

python tests/answer_key/ranks/pack.py FOLDER            adds each NAME.sqlite to captures.tar.xz, and writes times.json.xz
python tests/answer_key/ranks/pack.py --unpack FOLDER   writes FOLDER/NAME.sqlite for each capture

To save room, times are rounded down, those of the host to 256 ns, those of the GPU to its 32 ns, and of a program with
more than 5,000 calls the first four steps are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import lzma
import operator
import sqlite3
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from tests.answer_key import columns  # noqa: E402
from tests.answer_key.columns import Tables  # noqa: E402

CAPTURES = HERE / "captures.tar.xz"
TIMES = CAPTURES.with_name("times.json.xz")
PRIVATE = {"uuid", "busLocation", "pciBusId"}  # columns that tell which machine it was
TICK_NS, HOST_TICK_NS, HOST = 32, 256, {"CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"}
MANY, STEPS = 5_000, 4  # of an export with so many calls, only so many steps are kept
NAME = "coalesce(text, (SELECT value FROM StringIds WHERE id = textId))"  # of a range


def read(export: Path) -> Tables:
    """Return the tables of an export, with times in ticks. Rows of one process stand together."""
    found: Tables = {}
    with contextlib.closing(sqlite3.connect(export)) as file:
        until = _until(file)
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        for table in tables:
            names = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
            order = [name for name in ("globalPid", "globalTid", "start") if name in names]
            sort = f" ORDER BY {', '.join(order)}" if order else ""
            kept = "1"
            if "start" in names:
                kept = f"start < {until}" + (f" OR {NAME} LIKE 'ncclComm%'" if "textId" in names else "")
            rows = file.execute(f"SELECT * FROM {table} WHERE {kept}{sort}").fetchall()
            found[table] = {name: [row[at] for row in rows] for at, name in enumerate(names) if name not in PRIVATE}
            for name in {"start", "end"} & set(found[table]):
                tick = _tick(table)
                found[table][name] = [None if one is None else one // tick for one in found[table][name]]
            for name in {"binaryData"} & set(found[table]):
                found[table][name] = [one and one.hex() for one in found[table][name]]
    return found


def _tick(table: str) -> int:
    return HOST_TICK_NS if table in HOST else TICK_NS


def _until(file: sqlite3.Connection) -> float:
    """Return the start of the first step that is left out."""
    if file.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()[0] < MANY:
        return 1e18
    steps = file.execute(f"SELECT start, globalTid FROM NVTX_EVENTS WHERE {NAME} = 'step' ORDER BY start").fetchall()
    first_out = STEPS * len({thread for _, thread in steps})
    return float(steps[first_out][0]) if first_out < len(steps) else 1e18  # already left out


def write_export(tables: Tables, target: Path) -> None:
    """Write an export."""
    target.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(target)) as file:
        for table, of in tables.items():
            tick = _tick(table)
            times = {name: [one and one * tick for one in of[name]] for name in of.keys() & {"start", "end"}}
            data = {name: [one and bytes.fromhex(one) for one in of[name]] for name in of.keys() & {"binaryData"}}
            rows = list(zip(*(of | times | data).values(), strict=True))
            if "start" in of:
                rows.sort(key=operator.itemgetter(list(of).index("start")))
            file.execute(f"CREATE TABLE {table} ({', '.join(of)})")
            file.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(of))})", rows)
        file.commit()


def unpack(folder: Path) -> dict[str, Path]:
    """Write the export of each packed capture into a folder, and return its path by the name of the capture."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, tables in columns.read(CAPTURES).items():
        found[name] = folder / f"{name}.sqlite"
        write_export(tables, found[name])
    return found


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--unpack", action="store_true")
    options = parser.parse_args()
    if options.unpack:
        unpack(options.folder)
        return 0
    paths = sorted(options.folder.rglob("*.[0-9].sqlite"))  # no whole session
    with ProcessPoolExecutor() as pool:
        found = dict(zip((path.stem for path in paths), pool.map(read, paths), strict=True))
        columns.write(columns.read(CAPTURES) | found, CAPTURES)
    times: dict[str, Any] = json.loads(lzma.decompress(TIMES.read_bytes())) if TIMES.exists() else {}
    for path in sorted(options.folder.rglob("times-*.json")):
        times |= json.loads(path.read_text(encoding="utf-8"))
    TIMES.write_bytes(lzma.compress(json.dumps(times, sort_keys=True).encode(), filters=columns.FILTERS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
