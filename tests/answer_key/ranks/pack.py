"""Pack the cut exports of run.py, all captures of a table in one, and unpack them.

python tests/answer_key/ranks/pack.py FOLDER            adds each NAME.sqlite to captures.tar.xz, and writes times.json.xz
python tests/answer_key/ranks/pack.py --unpack FOLDER   writes FOLDER/NAME.sqlite for each capture

To save room, times are rounded down, those of the host to 256 ns, those of the GPU to its 32 ns, and of a program with
more than 5,000 calls the first four steps are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import lzma
import sqlite3
import sys
import tarfile
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

CAPTURES = Path(__file__).resolve().parent / "captures.tar.xz"
TIMES = CAPTURES.with_name("times.json.xz")
PRIVATE = {"uuid", "busLocation", "pciBusId"}  # columns that tell which machine it was
TICK_NS, HOST_TICK_NS, HOST = 32, 256, {"CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"}
MANY, STEPS = 5_000, 4  # of an export with so many calls, only so many steps are kept
NAME = "coalesce(text, (SELECT value FROM StringIds WHERE id = textId))"  # of a range
ALIKE = (
    "nameId",
    "textId",
    "demangledName",
    "gridX",
    "bytes",
)  # rows alike in these have like times, and stand together
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 3, "lp": 0, "pb": 0}]
Columns = dict[str, list[Any]]
Export = dict[str, Columns]  # the columns of each table


def read(export: Path) -> Export:
    """Return the tables of an export, with times in ticks. Rows of one process stand together."""
    found: Export = {}
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


def _alike(columns: Columns, before: bool) -> Any:
    """Return the order in which rows of one kind stand together; `before`: also alike in the row before."""
    seen: dict[Any, int] = {}
    codes = [
        seen.setdefault(one, len(seen))
        for one in zip(*(columns[name] for name in ALIKE if name in columns), strict=True)
    ]
    kind = np.array(codes, np.int64)
    if before:
        kind = kind * (len(seen) + 1) + np.concatenate([[0], kind[:-1] + 1])
    return np.argsort(kind, kind="stable")


def _numbers(values: Any) -> bytes:
    """Return integers in pieces of seven bits, the lowest first; the sign is the lowest bit of all."""
    left = np.asarray(values, np.int64)
    left = (left << 1) ^ (left >> 63)
    pieces = (left[:, None].view(np.uint64) >> np.arange(0, 64, 7, dtype=np.uint64)) & np.uint64(127)
    rest = np.logical_or.accumulate(pieces[:, ::-1] > 0, axis=1)[:, ::-1]
    pieces[:, :-1] |= rest[:, 1:].astype(np.uint64) << np.uint64(7)
    rest[:, 0] = True
    return bytes(pieces[rest].astype(np.uint8))


def _integers(packed: bytes) -> Any:
    """Return the integers of `_numbers`."""
    pieces = np.frombuffer(packed, np.uint8)
    first = np.concatenate([[True], pieces[:-1] < 128])
    at = np.arange(len(pieces)) - np.flatnonzero(first)[np.cumsum(first) - 1]
    parts = (pieces & 127).astype(np.uint64) << (7 * at).astype(np.uint64)
    found = np.add.reduceat(parts, np.flatnonzero(first))
    return (found >> np.uint64(1)).astype(np.int64) ^ -(found & np.uint64(1)).astype(np.int64)


def _packed(values: list[Any]) -> bytes:
    """Return the values of a column: integers, or steps between them if these are smaller, or else JSON."""
    if all(one is None for one in values):
        return b""
    if all(isinstance(one, int) for one in values):
        ways = b"=" + _numbers(values), b"+" + _numbers(np.diff(values, prepend=0))
        return min(ways, key=lambda one: len(zlib.compress(one, 1)))
    return json.dumps([one.hex() if isinstance(one, bytes) else one for one in values], separators=(",", ":")).encode()


def _unpacked(packed: bytes, count: int) -> list[Any]:
    if not packed:
        return [None] * count
    if packed[:1] in b"=+":
        found = _integers(packed[1:])
        return list((found.cumsum() if packed[:1] == b"+" else found).tolist())
    return list(json.loads(packed))


def write(exports: dict[str, Export], target: Path) -> None:
    """Write the archive: an index, and for each table the columns of all captures together.

    A start is kept as the time since the end before, an end as the time since the start, -1 if there is none.
    """
    names, index, members = sorted(exports), {}, {}
    for table in sorted({table for export in exports.values() for table in export}):
        have = [exports[name].get(table, {}) for name in names]
        counts = [len(next(iter(one.values()), [])) for one in have]
        heads = list(dict.fromkeys(head for one in have for head in one))
        columns = {
            head: [value for one, count in zip(have, counts, strict=True) for value in one.get(head, [None] * count)] for head in heads
        }  # fmt: skip
        index[table] = {"counts": counts, "columns": heads}
        if "end" in columns:
            start = np.array(columns["start"], np.int64)
            span = np.array(
                [-1 if end is None else end - at for at, end in zip(columns["start"], columns["end"], strict=True)]
            )
            before = np.concatenate([[0], (start + np.maximum(span, 0))[:-1]])
            members[f"{table}.start"] = _numbers((start - before)[_alike(columns, before=True)])
            members[f"{table}.end"] = _numbers(span[_alike(columns, before=False)])
        for head in heads:
            members.setdefault(f"{table}.{head}", _packed(columns[head]))
    members["index.json"] = json.dumps({"captures": names, "tables": index}, separators=(",", ":")).encode()
    with lzma.open(target, "wb", filters=FILTERS) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def exports(packed: Path = CAPTURES) -> dict[str, Export]:
    """Return the tables of each packed capture, with times in ticks."""
    if not packed.exists():
        return {}
    with tarfile.open(packed) as archive:
        members = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    index = json.loads(members["index.json"])
    found: dict[str, Export] = {name: {} for name in index["captures"]}
    for table, about in index["tables"].items():
        count = sum(about["counts"])
        timed = "end" in about["columns"] and count
        columns = {
            head: [] if timed and head in ("start", "end") else _unpacked(members[f"{table}.{head}"], count)
            for head in about["columns"]
        }
        if timed:
            gap, span = np.empty(count, np.int64), np.empty(count, np.int64)
            kinds = {head: of for head, of in columns.items() if of}
            gap[_alike(kinds, before=True)] = _integers(members[f"{table}.start"])
            span[_alike(kinds, before=False)] = _integers(members[f"{table}.end"])
            end = (gap + np.maximum(span, 0)).cumsum()
            columns["start"] = (end - np.maximum(span, 0)).tolist()
            columns["end"] = [at if of >= 0 else None for at, of in zip(end.tolist(), span.tolist(), strict=True)]
        at = 0
        for name, of in zip(index["captures"], about["counts"], strict=True):
            if of:
                found[name][table] = {head: values[at : at + of] for head, values in columns.items()}
            at += of
    return found


def write_export(tables: Export, target: Path) -> None:
    """Write an export."""
    target.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(target)) as file:
        for table, columns in tables.items():
            tick = _tick(table)
            timed = {
                name: [one and one * tick for one in columns[name]] for name in ("start", "end") if name in columns
            }
            bytes_of = {
                name: [one and bytes.fromhex(one) for one in columns[name]]
                for name in ("binaryData",)
                if name in columns
            }
            rows = list(zip(*(columns | timed | bytes_of).values(), strict=True))
            if "start" in columns:
                at = list(columns).index("start")
                rows.sort(key=lambda row: row[at])
            file.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            file.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)
        file.commit()


def unpack(folder: Path) -> dict[str, Path]:
    """Write the export of each packed capture into a folder, and return its path by the name of the capture."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, tables in exports().items():
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
        write(exports() | dict(zip((path.stem for path in paths), pool.map(read, paths), strict=True)), CAPTURES)
    times: dict[str, Any] = json.loads(lzma.decompress(TIMES.read_bytes())) if TIMES.exists() else {}
    for path in sorted(options.folder.rglob("times-*.json")):
        times |= json.loads(path.read_text(encoding="utf-8"))
    TIMES.write_bytes(lzma.compress(json.dumps(times, sort_keys=True).encode(), filters=FILTERS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
