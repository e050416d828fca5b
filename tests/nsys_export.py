"""Write small SQLite exports in the schema of any nsys version, for the tests of the reader.

Tables and columns come from real files of each year's nsys. Like nsys, it creates no table without rows, unless a test
requests one.
"""

import itertools
import sqlite3
import struct
from pathlib import Path
from typing import Any

ERAS = (2021, 2022, 2023, 2024, 2025, 2026)
LAUNCH = "cudaLaunchKernel_v7000"

_NVTX = "start end eventType rangeId category color text globalTid endGlobalTid textId domainId uint64Value int64Value"
_PLACE = "start end deviceId contextId"
_KERNEL = (
    "streamId correlationId globalPid demangledName shortName {mangled} launchType cacheConfig registersPerThread gridX "
    "gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal "
    "gridId sharedMemoryExecuted {node}"
)
# Name, type of NVTX's payload entries, and layout of the fields of NCCL's payloads.
_NCCL_FIELDS = {
    "comm": ("NCCL communicator ID", 18, "<Q"),
    "bytes": ("Message size [bytes]", 22, "<Q"),
    "ranks": ("No. of ranks", 5, "<i"),
    "rank": ("Rank", 5, "<i"),
}
_TEXT = {"text", "value", "name", "jsonText", "chipName", "busLocation"}


def columns_of(era: int) -> dict[str, list[str]]:
    """Return table -> columns in the exports of that year."""
    mangled = "mangledName" if era >= 2023 else ""
    node = "graphNodeId sharedMemoryLimitConfig" if era >= 2022 else ""
    green = " greenContextId " if era >= 2025 else " "
    late = " qmdBulkReleaseDone graphId clusterX clusterY clusterZ" if era >= 2025 else ""
    late += " sharedMemoryRequestedPercentage tensorSizeMinusOneElements" if era >= 2026 else ""
    graph = " graphNodeId" if era >= 2022 else ""
    nodes = "start end eventClass globalTid nameId graphNodeId originalGraphNodeId"
    tables = {
        "StringIds": "id value",
        "NVTX_EVENTS": _NVTX + (" jsonTextId jsonText" if era >= 2022 else "") + (" binaryData" if era >= 2025 else ""),
        "CUPTI_ACTIVITY_KIND_KERNEL": _PLACE + green + _KERNEL.format(mangled=mangled, node=node) + late,
        "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
        "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_PLACE}{green}streamId correlationId globalPid bytes copyKind deprecatedSrcId "
        f"srcKind dstKind srcDeviceId srcContextId dstDeviceId dstContextId migrationCause{graph}",
        "CUPTI_ACTIVITY_KIND_MEMSET": f"{_PLACE}{green}streamId correlationId globalPid value bytes{graph} memKind",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_PLACE}{green}streamId correlationId globalPid graphId graphExecId",
        "TARGET_INFO_GPU": "id name smCount clockRate memoryBandwidth l2CacheSize chipName computeMajor computeMinor",
        "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime localTime",
        "PROFILER_OVERHEAD": "start end globalTid correlationId nameId returnValue",
        "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
        "META_DATA_CAPTURE": "name value",
        "PROCESSES": "globalPid pid name",
        "CUDA_GRAPH_EVENTS": nodes,
        "ENUM_CUDA_MEMCPY_OPER": "id name label",
        "ENUM_CUDA_MEM_KIND": "id name label",
    }
    if era >= 2024:
        tables["CUDA_GRAPH_NODE_EVENTS"] = nodes
        tables["CUDA_GRAPH_EVENTS"] = "start end eventClass globalTid nameId graphId originalGraphId graphExecId"
    if era >= 2025:
        tables["NVTX_PAYLOAD_SCHEMA_ENTRIES"] = "domainId schemaId idx flags type name description offset"
    if era >= 2024:
        tables["META_DATA_EXPORT"] = "name value"
    elif era >= 2022:
        tables["EXPORT_META_DATA"] = "name value"
    return {name: names.split() for name, names in tables.items()}


class Export:
    """An export that a test fills. Times are in ns; `pid` and `tid` are packed as nsys packs them."""

    def __init__(self, era: int = 2023, *, host: int = 1) -> None:
        self.era = era
        self.host = host
        self.columns = columns_of(era)
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self._strings: dict[str, int] = {}
        self._next = itertools.count(1)
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            if table in self.columns:
                self.add(table, name="EXPORT_SCHEMA_VERSION", value=f"3.{era - 2020}.1")
        self.add("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value="SECRET_TOKEN=hunter2")
        self.add("PROCESSES", globalPid=self.gpid(1), pid=1, name="/home/somebody/secret_program")

    def add(self, table: str, **values: Any) -> None:
        self.rows.setdefault(table, []).append(values)

    def string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.add("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def gtid(self, pid: int, tid: int) -> int:
        whole = (self.host << 48) | (pid << 24) | tid
        return whole - (1 << 64) if whole >> 63 else whole  # SQLite's integers are signed

    def gpid(self, pid: int) -> int:
        return self.gtid(pid, 0)

    def gpu(self, number: int = 0, name: str = "NVIDIA H200") -> None:
        self.add("TARGET_INFO_GPU", id=number, name=name, smCount=132)

    def call(
        self, start: int, end: int, *, pid: int = 1, tid: int = 1, corr: int | None = None, name: str = LAUNCH, driver: bool = False
    ) -> int:  # fmt: skip
        corr = next(self._next) if corr is None else corr
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, eventClass=int(driver), globalTid=self.gtid(pid, tid),
            correlationId=corr, nameId=self.string(name), returnValue=0,
        )  # fmt: skip
        return corr

    def _place(self, start: int, end: int, corr: int | None, pid: int, device: int, stream: int) -> dict[str, Any]:
        return {
            "start": start, "end": end, "deviceId": device, "contextId": 1, "streamId": stream, "correlationId": corr,
            "globalPid": self.gpid(pid),
        }  # fmt: skip

    def kernel(
        self, name: str, start: int, end: int, corr: int | None, *, pid: int = 1, device: int = 0, stream: int = 7,
        grid: tuple[int, int, int] = (1, 1, 1), block: tuple[int, int, int] = (32, 1, 1), node: int | None = None,
    ) -> None:  # fmt: skip
        self.add(
            "CUPTI_ACTIVITY_KIND_KERNEL", **self._place(start, end, corr, pid, device, stream),
            demangledName=self.string(name), shortName=self.string(name.split("<")[0]), launchType=0, cacheConfig=0,
            mangledName=self.string("_Z" + name), registersPerThread=32, gridX=grid[0], gridY=grid[1], gridZ=grid[2],
            blockX=block[0], blockY=block[1], blockZ=block[2], staticSharedMemory=0, dynamicSharedMemory=0,
            localMemoryPerThread=0, localMemoryTotal=0, gridId=1, graphNodeId=node,
        )  # fmt: skip

    def launch(self, name: str, call: tuple[int, int], run: tuple[int, int], *, tid: int = 1, **place: Any) -> int:
        """Add a launch call with its kernel; return the correlation id."""
        corr = self.call(*call, pid=place.get("pid", 1), tid=tid)
        self.kernel(name, *run, corr, **place)
        return corr

    def memcpy(
        self, start: int, end: int, corr: int | None, size: int, kind: int = 1, *, device: int = 0,
        memory: tuple[int | None, int | None] = (None, None),
    ) -> None:  # fmt: skip
        self.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY", **self._place(start, end, corr, 1, device, 7), bytes=size, copyKind=kind,
            srcKind=memory[0], dstKind=memory[1],
        )  # fmt: skip

    def memset(self, start: int, end: int, corr: int | None, size: int) -> None:
        self.add("CUPTI_ACTIVITY_KIND_MEMSET", **self._place(start, end, corr, 1, 0, 7), bytes=size, value=0)

    def graph(self, start: int, end: int, corr: int, *, graph: int = 5, pid: int = 1) -> None:
        place = self._place(start, end, corr, pid, 0, 7)
        self.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **place, graphId=graph, graphExecId=graph + 1)

    def node(self, node: int, start: int, *, original: int | None = None, pid: int = 1, tid: int = 1) -> None:
        """Add the event that created a graph node: recorded, or cloned from another node."""
        table = "CUDA_GRAPH_NODE_EVENTS" if self.era >= 2024 else "CUDA_GRAPH_EVENTS"
        self.add(
            table, start=start, end=start + 1, eventClass=31, globalTid=self.gtid(pid, tid), nameId=self.string("node"),
            graphNodeId=node, originalGraphNodeId=original,
        )  # fmt: skip

    def push(
        self, name: str, start: int, end: int | None, *, pid: int = 1, tid: int = 1, domain: int = 0,
        registered: bool = False, kind: int = 59, end_tid: int | None = None,
    ) -> None:  # fmt: skip
        self.add(
            "NVTX_EVENTS", start=start, end=end, eventType=kind, rangeId=None, globalTid=self.gtid(pid, tid),
            text=None if registered else name, textId=self.string(name) if registered else None, domainId=domain,
            endGlobalTid=None if end_tid is None else self.gtid(pid, end_tid),
        )  # fmt: skip

    def span(self, name: str, start: int, end: int | None, **place: Any) -> None:
        """Add a start/end range."""
        self.push(name, start, end, kind=60, **place)

    def domain(self, name: str, number: int, *, start: int = 0, pid: int = 1, tid: int = 1) -> None:
        self.push(name, start, None, pid=pid, tid=tid, domain=number, kind=75)

    def nccl(
        self, name: str, start: int, end: int, *, pid: int = 1, tid: int = 1, domain: int = 3, **fields: int
    ) -> None:
        """Add a call of NCCL with its payload (`bytes`, `comm`, `rank`, `ranks`) in the layout of nsys 2026."""
        self.push(name, start, end, pid=pid, tid=tid, domain=domain)
        if not fields:
            return
        schema = 1 << 24 | sum(1 << list(_NCCL_FIELDS).index(one) for one in fields)
        self.payload(domain, schema, [(*_NCCL_FIELDS[field], value) for field, value in fields.items()])

    def payload(self, domain: int, schema: int, fields: list[tuple[str, int, str, int]]) -> None:
        """The payload of the last range: (name, type of NVTX's payload entries, layout, value) of each field."""
        payload = b""
        known = {(row["schemaId"], row["idx"]) for row in self.rows.get("NVTX_PAYLOAD_SCHEMA_ENTRIES", ())}
        for place, (label, kind, packed, value) in enumerate(fields):
            payload += b"\0" * (-len(payload) % struct.calcsize(packed))
            if (schema, place) not in known:
                self.add(
                    "NVTX_PAYLOAD_SCHEMA_ENTRIES", domainId=domain, schemaId=schema, idx=place, type=kind, name=label,
                    offset=len(payload) or None,
                )  # fmt: skip
            payload += struct.pack(packed, value)
        header = struct.pack("<IIIIQQ", domain, 0, schema, 0, len(payload), 32 + len(payload))
        self.rows["NVTX_EVENTS"][-1]["binaryData"] = header + payload

    def mark(self, name: str, at: int, **place: Any) -> None:
        self.push(name, at, None, kind=34, **place)

    def overhead(self, start: int, end: int, *, pid: int = 1, tid: int = 1) -> None:
        name = self.string("CUDA profiling data flush overhead")
        self.add("PROFILER_OVERHEAD", start=start, end=end, globalTid=self.gtid(pid, tid), nameId=name)

    def save(self, path: Path, *, without: dict[str, tuple[str, ...]] | None = None) -> Path:
        """Write the file. `without` maps a table to columns to leave out, or to () to leave out the whole table."""
        left_out = without or {}
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA synchronous = OFF")  # the file outlives no crash, so nothing waits for the disk
            for table, rows in self.rows.items():
                if table not in self.columns or left_out.get(table) == ():
                    continue
                names = [name for name in self.columns[table] if name not in left_out.get(table, ())]
                types = ", ".join(
                    f'"{name}" {"TEXT" if name in _TEXT else "INTEGER"}{" PRIMARY KEY" if table == "StringIds" and name == "id" else ""}'
                    for name in names
                )
                db.execute(f"CREATE TABLE {table} ({types})")
                marks = ", ".join("?" * len(names))
                db.executemany(f"INSERT INTO {table} VALUES ({marks})", [[row.get(n) for n in names] for row in rows])
        db.close()
        return path
