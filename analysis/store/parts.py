"""Keep the store on disk: parts that appear whole or not at all.

    STORE/version=2/part-4f…/captures.parquet, steps.parquet, kernels.parquet, findings.parquet, missing.parquet
    STORE/version=2/part-7a….arrow

A part holds one capture as a file of Arrow, with a column for each table: writing and reading it takes a seventh of
the time of Parquet files. `merge` puts many captures into a folder of Parquet files. A part is written beside its place
and renamed, so a process that dies leaves a hidden file or folder that nobody reads. Its name is the digest of its
captures: two workers that read the same capture write the same name. A capture that two parts hold counts in the
larger one.
"""

import functools
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import structs

from analysis.formats.errors import InputError
from analysis.formats.store import ROWS, VERSION, Rows, columns
from analysis.formats.writing import replacing

Made = TypeVar("Made")
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), list[int]: pa.list_(pa.int64())}
MOST_CAPTURES = 4096  # of a part: larger ones are not merged again
SINGLE = ".arrow"  # of a part that is a file
_STALE_S = 24 * 3600  # a hidden file or folder of this age belongs to no running process


@functools.cache
def schema(table: str) -> pa.Schema:
    """Return the Arrow schema of a table of the store."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in columns(table).items()])


def write(store: Path, rows: Rows) -> str:
    """Add a part, and return its name; one that is there stays.

    Raises: OSError: the disk is full, or the folder cannot be written.
    """
    held = {name: [[structs.asdict(row) for row in rows.get(name, [])]] for name in ROWS}
    nested = pa.schema([(name, pa.list_(pa.struct(list(schema(name))))) for name in ROWS])
    name = _name([row["capture"] for row in held["captures"][0]])
    path = store / f"version={VERSION}" / f"{name}{SINGLE}"
    if not path.exists() and not path.with_suffix("").exists():
        with replacing(path) as partial, partial.open("wb") as stream:
            with pa.ipc.new_file(stream, nested) as writer:
                writer.write_table(pa.table(held, schema=nested))
            stream.flush()
            os.fsync(stream.fileno())
    return name


def _name(captures: list[str]) -> str:
    return f"part-{hashlib.blake2b(''.join(sorted(captures)).encode(), digest_size=16).hexdigest()}"


def _add(store: Path, tables: dict[str, pa.Table]) -> str:
    name, folder = _name(tables["captures"]["capture"].to_pylist()), store / f"version={VERSION}"
    if (folder / name).exists():
        return name
    folder.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
    beside.chmod(folder.stat().st_mode)
    try:
        for table, content in tables.items():
            pq.write_table(content, beside / f"{table}.parquet", compression="zstd")
            with (beside / f"{table}.parquet").open("rb") as stream:
                os.fsync(stream.fileno())
        try:
            beside.rename(folder / name)
        except OSError:
            if not (folder / name).exists():
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return name


def parts(store: Path) -> list[Path]:
    """Return the parts, of every version that is read.

    Raises: InputError: the store is of a newer version.
    """
    newer = [path.name for path in store.glob("version=*") if _version(path) > VERSION]
    if newer:
        raise InputError(f"{store}: is a store of {newer[0]}, and this program reads up to {VERSION}; update it.")
    return sorted(store.glob("version=*/part-*"))


def _version(path: Path) -> int:
    """Return the version of a folder `version=2`, or of a part in it."""
    text = (path if path.name.startswith("version=") else path.parent).name.removeprefix("version=")
    return int(text) if text.isdecimal() else 0


def read(path: Path, table: str, held: Mapping[Path, pa.Table] | None = None) -> pa.Table:
    """Return a table of a part in today's columns: one that an earlier version lacks is blank.

    `held`: the content of parts that are a file, if it was read already.
    """
    single = path.suffix == SINGLE
    file = path if single else path / f"{table}.parquet"
    wanted = schema(table)
    try:
        if single:
            rows = (held[path] if held else _content(path, [table]))[table].combine_chunks()
            found = pa.Table.from_struct_array(rows.flatten())
        else:
            found = pq.ParquetFile(file).read(use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file}: cannot be read ({str(error).splitlines()[0]}); delete {path.name}, and add its "
                         "captures again.") from None  # fmt: skip
    if found.schema.equals(wanted):
        return found
    made = [
        found[field.name].cast(field.type) if field.name in found.column_names else pa.nulls(len(found), field.type)
        for field in wanted
    ]
    return pa.table(made, schema=wanted)


def _content(path: Path, tables: Iterable[str] = ROWS) -> pa.Table:
    """Return tables of a part that is a file. Shape: one row, with a list of rows of each."""
    columns = pa.ipc.IpcReadOptions(included_fields=[list(ROWS).index(one) for one in tables], use_threads=False)
    with pa.OSFile(str(path)) as stream:
        return pa.ipc.open_file(stream, options=columns).read_all()


def live(store: Path) -> dict[Path, pa.Array]:
    """Return the captures that count in each part: a capture of two parts counts in the larger one."""
    owner: dict[str, tuple[int, Path]] = {}
    found_in = parts(store)
    for path, held in zip(found_in, _each(_held, found_in), strict=True):
        for capture in held:
            owner[capture] = max(owner.get(capture, (0, path)), (len(held), path))
    found: dict[Path, list[str]] = {}
    for capture, (_, path) in owner.items():
        found.setdefault(path, []).append(capture)
    return {path: pa.array(captures) for path, captures in found.items()}


def _held(path: Path) -> list[str]:
    """Return the captures of a part."""
    captures: list[str] = read(path, "captures")["capture"].to_pylist()
    return captures


def _each(made: Callable[[Path], Made], paths: Iterable[Path]) -> list[Made]:
    """Return what `made` makes of each path, in threads: readers of Parquet and file systems use all cores."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(made, paths))


def known(store: Path) -> dict[tuple[str, str], str]:
    """Return the status of each capture that the store holds, by its address and the state of its files."""
    found: dict[tuple[str, str], str] = {}
    for path in live(store):
        rows = read(path, "captures").select(["address", "state", "status"]).to_pylist()
        found |= {(row["address"], row["state"]): row["status"] for row in rows}
    return found


def table_of(
    store: Path, table: str, counted: dict[Path, pa.Array] | None = None, held: Mapping[Path, pa.Table] | None = None
) -> pa.Table:
    """Return a table of the whole store, each capture once; of the parts that are `counted`, if these are known."""
    counted = live(store) if counted is None else counted
    if not counted:
        return schema(table).empty_table()
    found = _each(lambda path: read(path, table, held), counted)
    rows, captures = pa.concat_tables(found).combine_chunks(), pa.concat_arrays(counted.values())
    part, owner = (np.repeat(np.arange(len(counted)), [len(one) for one in of]) for of in (found, counted.values()))
    at = pc.index_in(rows["capture"], value_set=captures)
    return rows.filter(pc.equal(pc.take(pa.array(owner), at), pa.array(part)))


def merge(store: Path) -> int:
    """Put small parts and those of earlier versions together; return how many. It may be stopped at any time."""
    for left in store.glob("version=*/.part-*"):
        if time.time() - left.stat().st_mtime > _STALE_S:
            _delete(left)
    counted = live(store)
    _each(_delete, set(parts(store)) - set(counted))
    small = [path for path in counted if len(counted[path]) < MOST_CAPTURES or _version(path) < VERSION]
    if len(small) < 2 and all(_version(path) == VERSION and path.suffix != SINGLE for path in small):
        return 0
    for group in _groups(small, counted):
        files = [path for path in group if path.suffix == SINGLE]
        held = dict(zip(files, _each(_content, files), strict=True))
        tables = {name: table_of(store, name, {path: counted[path] for path in group}, held) for name in ROWS}
        name = _add(store, tables)
        _each(_delete, (path for path in group if path != store / f"version={VERSION}" / name))
    return len(small)


def _delete(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part, ignore_errors=True)
    else:
        part.unlink(missing_ok=True)


def _groups(paths: Iterable[Path], counted: dict[Path, Any]) -> list[Sequence[Path]]:
    """Return groups of parts with at most MOST_CAPTURES captures each."""
    groups: list[list[Path]] = [[]]
    size = 0
    for path in paths:
        if size and size + len(counted[path]) > MOST_CAPTURES:
            groups.append([])
            size = 0
        groups[-1].append(path)
        size += len(counted[path])
    return list(groups)
