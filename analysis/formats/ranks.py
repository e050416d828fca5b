"""What the CSV reports of nsys lack of programs with several ranks: the calls of NCCL, and the ranks of processes."""

from __future__ import annotations

from msgspec import Struct

from analysis.formats.files import CsvFile, Whole


class NcclCall(Struct):
    """One call of NCCL, on nsys' clock; `bytes` is what a rank gives NCCL, of an all-gather its own part."""

    pid: Whole
    tid: Whole
    start_ns: Whole
    end_ns: Whole
    name: str
    bytes: Whole | None
    communicator: str
    process_rank: Whole | None
    ranks: Whole | None


class ProcessRank(Struct):
    """The rank of a process, as its environment has it (RANK, WORLD_SIZE, LOCAL_RANK)."""

    pid: Whole
    process_rank: Whole
    ranks: Whole | None
    local_rank: Whole | None


NCCL_CALLS = CsvFile("nccl-calls", "nccl_calls.csv", NcclCall, "export it again with `nsys_scripts/export_csv.sh`")
PROCESS_RANKS = CsvFile("process-ranks", "process_ranks.csv", ProcessRank, "capture again with `make profile`")
