"""Pack the cut exports of run.py as text, a line for each column with the differences of its numbers, and unpack them.

python tests/answer_key/ranks/pack.py FOLDER            writes captures/NAME.txt.xz for each NAME.sqlite, and times.json
python tests/answer_key/ranks/pack.py --unpack FOLDER   writes FOLDER/NAME.sqlite for each of captures/
"""

from __future__ import annotations

import argparse
import contextlib
import json
import lzma
import sqlite3
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

CAPTURES = Path(__file__).resolve().parent / "captures"
TIMES = CAPTURES.with_name("times.json")
PRIVATE = {"uuid", "busLocation", "pciBusId"}  # columns that tell which machine it was


def text_of(export: Path) -> str:
    """Return the tables of an export as text. Rows of one process stand together."""
    lines = []
    with contextlib.closing(sqlite3.connect(export)) as file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        for table in tables:
            names = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
            order = [name for name in ("globalPid", "globalTid", "start") if name in names]
            sort = f" ORDER BY {', '.join(order)}" if order else ""
            rows = file.execute(f"SELECT * FROM {table}{sort}").fetchall()
            columns = {name: [row[at] for row in rows] for at, name in enumerate(names) if name not in PRIVATE}
            lines.append(f"\f{table} {len(rows)}")
            lines += [f"{name} {_packed(of)}" for name, of in columns.items()]
    return "\n".join(lines) + "\n"


def packed_of(export: Path) -> bytes:
    """Return the compressed text of an export."""
    return lzma.compress(text_of(export).encode("utf-8"), preset=9 | lzma.PRESET_EXTREME)


def _packed(values: list[Any]) -> str:
    if all(one is None for one in values):
        return "-"
    if all(isinstance(one, int) for one in values):
        return "+" + " ".join(map(str, [values[0], *(b - a for a, b in pairwise(values))]))
    return json.dumps([one.hex() if isinstance(one, bytes) else one for one in values], separators=(",", ":"))


def _unpacked(text: str, count: int) -> list[Any]:
    if text == "-":
        return [None] * count
    return list(accumulate(map(int, text[1:].split()))) if text.startswith("+") else json.loads(text)


def write_export(text: str, target: Path) -> None:
    """Write an export from its text."""
    target.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(target)) as file:
        for block in text.split("\f")[1:]:
            head, *lines = block.splitlines()
            table, count = head.split()
            columns = {name: _unpacked(rest, int(count)) for name, _, rest in (line.partition(" ") for line in lines)}
            if "binaryData" in columns:
                columns["binaryData"] = [one and bytes.fromhex(one) for one in columns["binaryData"]]
            rows = list(zip(*columns.values(), strict=True))
            if "start" in columns:
                at = list(columns).index("start")
                rows.sort(key=lambda row: row[at])
            file.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            file.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)
        file.commit()


def unpack(name: str, target: Path) -> Path:
    """Write the export of a packed capture into a folder, and return its path."""
    target.mkdir(parents=True, exist_ok=True)
    packed = (CAPTURES / f"{name}.txt.xz").read_bytes()
    write_export(lzma.decompress(packed).decode("utf-8"), target / f"{name}.sqlite")
    return target / f"{name}.sqlite"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--unpack", action="store_true")
    options = parser.parse_args()
    if options.unpack:
        for path in sorted(CAPTURES.glob("*.txt.xz")):
            unpack(path.name.removesuffix(".txt.xz"), options.folder)
        return 0
    CAPTURES.mkdir(exist_ok=True)
    paths = sorted(options.folder.rglob("*.[0-9].sqlite"))  # no whole session
    with ProcessPoolExecutor() as pool:
        for path, packed in zip(paths, pool.map(packed_of, paths), strict=True):
            (CAPTURES / f"{path.stem}.txt.xz").write_bytes(packed)
            print(f"{len(packed):8d} {path.stem}")
    times: dict[str, Any] = {}
    for path in sorted(options.folder.rglob("times-*.json")):
        times |= json.loads(path.read_text(encoding="utf-8"))
    lines = [f"{json.dumps(name)}: {json.dumps(of)}" for name, of in sorted(times.items())]
    TIMES.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
