"""Keep the tables of many captures in one archive, which has each column of all captures together, as xz packs it best."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 0, "pb": 0}]
# Rows alike in these columns take like times, and their times stand together.
ALIKE = ("nameId", "textId", "demangledName", "gridX", "bytes", "Name", "GrdX", "Bytes (MB)")
Columns = dict[str, list[Any]]
Tables = dict[str, Columns]  # the columns of each table of a capture


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
    """Return the lowest bytes of all integers, then the next ones; the sign is the lowest bit."""
    left = np.asarray(values, np.int64)
    return ((left << 1) ^ (left >> 63)).view(np.uint8).reshape(-1, 8).T.tobytes()


def _integers(packed: bytes) -> Any:
    """Return the integers of `_numbers`."""
    left = np.frombuffer(packed, np.uint8).reshape(8, -1).T.copy().view(np.uint64)[:, 0]
    return (left >> np.uint64(1)).astype(np.int64) ^ -(left & np.uint64(1)).astype(np.int64)


def _packed(values: list[Any]) -> bytes:
    """Return the values of a column: integers, or steps between them if these are smaller, or numbers of texts."""
    if all(isinstance(one, int) for one in values):
        ways = b"=" + _numbers(values), b"+" + _numbers(np.diff(values, prepend=0))
        return min(ways, key=lambda one: len(zlib.compress(one, 1)))
    at = {one: number for number, one in enumerate(dict.fromkeys(values))}
    return json.dumps(list(at), separators=(",", ":")).encode() + b"\n" + _packed([at[one] for one in values])


def _unpacked(packed: bytes) -> list[Any]:
    if packed[:1] in b"=+":
        found = _integers(packed[1:])
        return list((found.cumsum() if packed[:1] == b"+" else found).tolist())
    texts, _, numbers = packed.partition(b"\n")
    known = json.loads(texts)
    return [known[one] for one in _unpacked(numbers)]


def write(captures: dict[str, Tables], target: Path) -> int:
    """Write the archive, an index and the columns of each table, and return its size.

    A `start` is kept as the time since the `end` before, an `end` as the time since the start, -1 if there is none.
    """
    names, index, members = sorted(captures), {}, {}
    for table in sorted({table for tables in captures.values() for table in tables}):
        have = [captures[name].get(table, {}) for name in names]
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
    return target.stat().st_size


def read(packed: Path) -> dict[str, Tables]:
    """Return the tables of each capture of an archive."""
    if not packed.exists():
        return {}
    with tarfile.open(packed) as archive:
        members = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    index = json.loads(members["index.json"])
    found: dict[str, Tables] = {name: {} for name in index["captures"]}
    for table, about in index["tables"].items():
        times = {"start", "end"} if "end" in about["columns"] else set()
        columns = {head: [] if head in times else _unpacked(members[f"{table}.{head}"]) for head in about["columns"]}
        if times:
            gap, span = np.empty(sum(about["counts"]), np.int64), np.empty(sum(about["counts"]), np.int64)
            kinds = {head: of for head, of in columns.items() if head not in times}
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
