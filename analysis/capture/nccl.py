"""Read what NCCL says about its calls in an nsys export: bytes, communicator, rank, number of ranks.

NCCL opens an NVTX range in its own domain around each call. Since version 2.19, the range carries a payload. nsys
exports it as text (`jsonText`) or as bytes (`binaryData`); the tables NVTX_PAYLOAD_SCHEMAS and
NVTX_PAYLOAD_SCHEMA_ENTRIES describe the layout of the bytes.
"""

import re
import struct
from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.capture.folder_table import FolderTables
from analysis.capture.model import NCCL_CALLS_COLUMNS, as_table, empty_table
from analysis.capture.sqlite_table import Tables
from analysis.formats.ranges import NCCL

NVTX = "NVTX_EVENTS"
ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
# Name of a field in NCCL's schemas -> our name.
_FIELDS = {
    "Message size [bytes]": "bytes",
    "NCCL communicator ID": "communicator",
    "Rank": "process_rank",
    "No. of ranks": "ranks",
    "No. of devices": "ranks",
}
# Types of NVTX payload entries (nvToolsExtPayload.h) that NCCL uses for these fields, as `struct` spells them.
_TYPES = {5: "i", 6: "I", 7: "q", 8: "Q", 9: "q", 10: "Q", 15: "i", 16: "I", 17: "q", 18: "Q", 22: "Q"}
# The header that nsys puts before a payload. It holds the domain, the schema and the size of the payload.
_HEADER = struct.Struct("<IIIIQQ")
_JSON = re.compile(r'"([^"]+)"\s*:\s*"?([0-9][0-9,]*)"?')
_MOST = 1 << 53

Schema = list[tuple[str, str, int]]  # field, format, offset


def is_called(ranges: pd.DataFrame) -> bool:
    """Return whether any range is a call of NCCL."""
    return any(name.startswith(NCCL) for name in ranges["name"].unique())


def calls(ranges: pd.DataFrame, payloads: Mapping[int, Mapping[str, int]]) -> pd.DataFrame:
    """Return the calls of NCCL (NCCL_CALLS_COLUMNS): one row for each of its ranges, with the fields of its payload.

    Shape: `ranges` as in `Capture`; `payloads` fields by range_id.
    """
    if not is_called(ranges):
        return empty_table(NCCL_CALLS_COLUMNS)
    own = ranges[ranges["name"].str.startswith(NCCL)]
    said = [payloads.get(one, {}) for one in own["range_id"].tolist()]
    columns: dict[str, Any] = {name: own[name] for name in ("pid", "tid", "start_ns", "end_ns")}
    columns["name"] = own["name"].str.removeprefix(NCCL)
    for name in ("bytes", "process_rank", "ranks"):
        columns[name] = pd.array([one.get(name) for one in said], dtype="Int64")
    columns["communicator"] = [f"{one['communicator']:x}" if one.get("communicator") else "" for one in said]
    return as_table(columns, NCCL_CALLS_COLUMNS)


def process_ranks(nccl_calls: pd.DataFrame) -> dict[int, int]:
    """Return the rank of each process (by id), in the largest communicator that the process entered."""
    entered = nccl_calls[nccl_calls["process_rank"].notna() & nccl_calls["ranks"].notna()]
    entered = entered[entered["name"].str.contains("CommInitRank|CommSplit", regex=True)]
    largest = entered.sort_values("ranks", ascending=False, kind="stable").drop_duplicates("pid")
    return {int(pid): int(rank) for pid, rank in zip(largest["pid"], largest["process_rank"], strict=True)}


def payloads(file: Tables | FolderTables) -> dict[int, dict[str, int]]:
    """Return the fields of NCCL's payloads, by the rowid of the NVTX range. Other payloads are left out."""
    have = file.tables()
    columns = set(have.get(NVTX, ()))
    found: dict[int, dict[str, int]] = {}
    if "jsonText" in columns:
        for row, text in file.cells(NVTX, "jsonText"):
            if isinstance(text, str) and (fields := _of_json(text)):
                found[row] = fields
    if "binaryData" in columns and {"domainId", "schemaId", "name", "type", "offset"} <= set(have.get(ENTRIES, ())):
        schemas = _schemas(file)
        for row, blob in file.cells(NVTX, "binaryData") if schemas else ():
            if isinstance(blob, bytes) and (fields := _decoded(blob, schemas)):
                found[row] = fields
    return found


def _of_json(text: str) -> dict[str, int]:
    """Return the fields of a payload that nsys exported as text. Its numbers may have commas between thousands."""
    pairs = ((_FIELDS[name], value) for name, value in _JSON.findall(text) if name in _FIELDS)
    return {name: int(value.replace(",", "")) for name, value in pairs if len(value) < 30}


def _schemas(file: Tables | FolderTables) -> dict[tuple[int, int], Schema]:
    """Return the layout of the wanted fields by (domain, schema), for schemas that have such fields."""
    read = file.read_table(ENTRIES, ["domainId", "schemaId", "name", "type", "offset"])
    rows = zip(
        *(read[name].values.tolist() for name in ("domainId", "schemaId", "name", "type", "offset")), strict=True
    )
    found: dict[tuple[int, int], Schema] = {}
    for domain, schema, name, kind, offset in rows:
        if name in _FIELDS and kind in _TYPES and 0 <= offset < 1 << 16:  # the offset of the first field may be NULL
            found.setdefault((domain, schema), []).append((_FIELDS[name], _TYPES[kind], int(offset)))
    return found


def _decoded(blob: bytes, schemas: Mapping[tuple[int, int], Schema]) -> dict[str, int]:
    """Return the fields of one payload; {} if it is cut off or has another schema."""
    if len(blob) < _HEADER.size:
        return {}
    domain, _, schema, _, size, _ = _HEADER.unpack_from(blob)
    fields: dict[str, int] = {}
    for name, kind, offset in schemas.get((domain, schema), ()):
        end = offset + struct.calcsize(kind)
        if end > size or _HEADER.size + end > len(blob):
            return {}
        value = struct.unpack_from(f"<{kind}", blob, _HEADER.size + offset)[0]
        if name == "communicator" or 0 <= value < _MOST:
            fields[name] = value
    return fields
