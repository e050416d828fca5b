"""Declare nccl_calls.csv and process_ranks.csv: what nsys' CSV reports lack about programs with several ranks."""

from msgspec import Struct

from analysis.formats.files import CsvFile, Whole
from analysis.formats.place import EXPORT, profile


class NcclCall(Struct):
    """One call of NCCL, on the clock of nsys. Units: ns, byte.

    `bytes` is the size of what one rank passes to NCCL; for an all-gather, its own part. None means unknown.
    """

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
    """The rank of a process, from its environment variables RANK, WORLD_SIZE and LOCAL_RANK."""

    pid: Whole
    process_rank: Whole
    ranks: Whole | None
    local_rank: Whole | None


NCCL_CALLS = CsvFile("nccl-calls", "nccl_calls.csv", NcclCall, f"export it again with `{EXPORT}`")
PROCESS_RANKS = CsvFile("process-ranks", "process_ranks.csv", ProcessRank, f"capture again with `{profile()}`")
