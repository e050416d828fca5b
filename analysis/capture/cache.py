"""Cache the tables of large captures on disk, so that a second read takes a tenth of a second.

An entry is one file: the tables as Arrow streams, then everything else as JSON, then a checksum. `recall` maps the
tables into memory and copies nothing. The name of an entry is a digest of three things: the files that were read
(names, sizes, times, inodes, and samples of their content), the source code of the readers, and this format. A change
in any of them therefore leads to a new read. `recall` removes a damaged entry, and the caller reads the capture again.
A failure to write or to read an entry is never an error.

Entries lie in `kernel-ledger` below $XDG_CACHE_HOME (~/.cache); KERNEL_LEDGER_CACHE names another folder, or `off`.
Together they take at most 4 GB: the ones not used for longest go first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import mmap
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from analysis.capture.model import Capture, SourceFile
from analysis.formats.report import Missing

FORMAT = 2
ENVIRONMENT = "KERNEL_LEDGER_CACHE"
WORTH_BYTES = 16 << 20  # a smaller capture is read as fast as its entry
MOST_BYTES = 4 << 30
_MAGIC = b"KLCACHE\0"
_ALIGN = 64  # Arrow's own alignment
_DIGEST = 32
_BLOCK = 4096
_PLACES = 512  # blocks of a file whose content is part of its key
_SUM_WORDS = 1 << 17
_LISTS: dict[str, type] = {"missing": Missing, "files": SourceFile}


def folder() -> Path | None:
    """Return the folder of the entries, or None if the cache is switched off."""
    named = os.environ.get(ENVIRONMENT, "")
    if named.lower() == "off":
        return None
    if named:
        return Path(named)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernel-ledger"
    except RuntimeError:  # no home
        return None


def key_of(files: Sequence[tuple[Path, str]], options: Sequence[object] = ()) -> str | None:
    """Return the name of the entry for these files and their shown names; None for files that are not cached.

    Raises:
        OSError: a file cannot be read.
    """
    if folder() is None:
        return None
    parts: list[object] = [FORMAT, pd.__version__, _sources(), [repr(option) for option in options]]
    total = 0
    for path, name in files:
        stat = path.stat()
        total += stat.st_size
        parts.append([name, stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_dev, _sample(path, stat.st_size)])
        if any(_is_filled(path.with_name(path.name + end)) for end in ("-wal", "-journal")):
            return None  # SQLite keeps a part of its content in a second file
    if total < WORTH_BYTES:
        return None
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _is_filled(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _sources() -> list[list[object]]:
    """Return a digest of the readers' source code, since other code could read other tables."""
    here = Path(__file__).parent
    paths = sorted([*here.glob("*.py"), *here.parent.glob("formats/*.py")])
    return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in paths]


def _sample(path: Path, size: int) -> str:
    """Return a digest of the file's content: the whole of it up to 2 MB, else both ends and blocks between them."""
    places: Sequence[int] = range(0, size, _BLOCK)
    if len(places) > _PLACES:
        places = [round(i * (size - _BLOCK) / (_PLACES - 1)) for i in range(_PLACES)]
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as stream:
        for place in places:
            stream.seek(place)
            digest.update(stream.read(_BLOCK))
    return digest.hexdigest()


def recall(key: str) -> Capture | None:
    """Return the capture that `keep` stored under the key, or None."""
    where = folder()
    if where is None:
        return None
    path = where / f"{key}.capture"
    try:
        capture = _read(path)
        os.utime(path)
    except FileNotFoundError:
        return None
    except Exception:  # a damaged entry can raise anything; the caller then reads the capture again
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    return capture


def keep(key: str, capture: Capture) -> bool:
    """Store the capture under the key, and return whether that worked."""
    where = folder()
    if where is None:
        return False
    temporary = None
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix="unfinished-", dir=where)
        with os.fdopen(handle, "w+b") as stream:
            _write(stream, capture)
        os.replace(temporary, where / f"{key}.capture")
        temporary = None
        _tidy(where)
    except (OSError, ValueError, TypeError):  # no space, no right to write, or a table Arrow cannot hold
        return False
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    return True


def _tidy(where: Path) -> None:
    """Remove the least recently used entries until the rest fit, and the partial files of writers that were killed."""
    entries = []
    for path in where.iterdir():
        with contextlib.suppress(OSError):
            stat = path.stat()
            if path.suffix == ".capture":
                entries.append((stat.st_mtime_ns, stat.st_size, path))
            elif path.name.startswith("unfinished-") and stat.st_mtime < time.time() - 86400:
                path.unlink()
    left = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if left <= MOST_BYTES:
            break
        with contextlib.suppress(OSError):  # another process may have removed it
            path.unlink()
        left -= size


def _tables(capture: Capture) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
    """Return the tables of a capture (a table in a dictionary as `field/key`), and the rest in a form for JSON."""
    tables: dict[str, pd.DataFrame] = {}
    rest: dict[str, Any] = {}
    for field in dataclasses.fields(capture):
        value = getattr(capture, field.name)
        if isinstance(value, pd.DataFrame):
            tables[field.name] = value
        elif isinstance(value, dict) and any(isinstance(item, pd.DataFrame) for item in value.values()):
            tables |= {f"{field.name}/{key}": item for key, item in value.items() if isinstance(item, pd.DataFrame)}
            rest[field.name] = {key: item for key, item in value.items() if not isinstance(item, pd.DataFrame)}
        elif field.name in _LISTS:
            rest[field.name] = msgspec.to_builtins(value)
        else:
            rest[field.name] = value
    return tables, rest


def _write(stream: io.BufferedRandom, capture: Capture) -> None:
    """Write an entry.

    Raises:
        ValueError, TypeError: the capture holds a value that the entry could not give back unchanged.
    """
    import pyarrow as pa

    tables, rest = _tables(capture)
    stream.write(_MAGIC.ljust(_ALIGN, b"\0"))
    placed = {}
    for name, table in tables.items():
        if not table.index.equals(pd.RangeIndex(len(table))):
            raise ValueError(f"the rows of {name} are labelled")
        start = stream.tell()
        arrow = pa.Table.from_pandas(table, preserve_index=False)
        with pa.ipc.new_stream(stream, arrow.schema) as writer:
            writer.write_table(arrow, max_chunksize=max(1, len(table)))
        placed[name] = [start, stream.tell() - start, [str(dtype) for dtype in table.dtypes]]
        stream.write(b"\0" * (-stream.tell() % _ALIGN))
    text = json.dumps({"tables": placed, "rest": rest})
    if json.loads(text)["rest"] != rest:
        raise ValueError("JSON cannot hold it")
    opening = stream.tell()
    encoded = text.encode()
    stream.write(encoded + b" " * (-len(encoded) % 8) + opening.to_bytes(8, "little"))
    stream.flush()
    length = stream.tell()
    with mmap.mmap(stream.fileno(), length, access=mmap.ACCESS_READ) as mapped:
        digest = _checksum(mapped, length)
    stream.write(digest)


def _read(path: Path) -> Capture:
    """Read an entry. Any exception means that the entry is damaged."""
    import pyarrow as pa

    with path.open("rb") as stream:
        # Private, so that nothing written to a table could reach the file. The tables keep the mapping open.
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    length = len(mapped) - _DIGEST
    if mapped[: len(_MAGIC)] != _MAGIC or _checksum(mapped, length) != mapped[length:]:
        raise ValueError("damaged")
    opening = int.from_bytes(mapped[length - 8 : length], "little")
    entry = json.loads(mapped[opening : length - 8])
    buffer = pa.py_buffer(mapped)
    values: dict[str, Any] = dict(entry["rest"])
    for name, kind in _LISTS.items():
        values[name] = [msgspec.convert(item, kind) for item in values[name]]
    for name, (start, size, dtypes) in entry["tables"].items():
        table = pa.ipc.open_stream(buffer.slice(start, size)).read_all().to_pandas(split_blocks=True)
        if [str(dtype) for dtype in table.dtypes] != dtypes:
            raise ValueError("other types than those that were kept")
        outer, _, inner = name.partition("/")
        if inner:
            values.setdefault(outer, {})[inner] = table
        else:
            values[name] = table
    return Capture(**values)


def _checksum(mapped: mmap.mmap, length: int) -> bytes:
    """Return a digest of the sums of all words, block by block. It finds damage, and runs at the speed of memory."""
    words = np.frombuffer(mapped, dtype="<u8", count=length // 8)
    whole = len(words) // _SUM_WORDS * _SUM_WORDS
    sums = words[:whole].reshape(-1, _SUM_WORDS).sum(axis=1, dtype=np.uint64)
    digest = hashlib.blake2b(sums.tobytes(), digest_size=_DIGEST)
    digest.update(words[whole:].tobytes())
    digest.update(length.to_bytes(8, "little"))
    return digest.digest()
