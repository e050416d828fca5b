"""Assign each GPU operation to a rank, and find the kernels of collectives and the copies between GPUs.

Here a *place* is one GPU as one process uses it. In a distributed program, a place is a rank. In a program of one
process with several GPUs, it is a GPU. Places are numbered from 0.
"""

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.capture.model import FROM_ORDER, IntArray, empty_table
from analysis.formats.collectives import UNKNOWN, communicates, kind_of
from analysis.formats.distinct import holds
from analysis.formats.place import profile
from analysis.formats.ranges import NCCL
from analysis.formats.report import Missing, Reason
from analysis.formats.run import PEER_COPY
from analysis.formats.symbols import split_device
from analysis.formats.words import count_of
from analysis.tables import attribution
from analysis.tables.copies import WORK, direction_of
from analysis.tables.declare import Facts, part
from analysis.tables.gaps import gpu_label

PEER = "Peer-to-Peer"
_GROUP_BEGIN, _GROUP_END = "ncclGroupStart", "ncclGroupEnd"
_MARKERS = ("Group", "Comm", "MemAlloc", "MemFree")  # calls of NCCL that move nothing
# The columns of `communication`, and their types.
COMMUNICATION = {
    "op": "int64", "place": "int64", "start_ns": "int64", "end_ns": "int64", "launched_ns": "int64", "kind": "object",
    "path": "object", "payload_bytes": "Int64", "ranks": "Int64", "communicator": "object", "call": "object",
}  # fmt: skip
_PLACES = {
    "pid": "Int64", "device": "str", "process": "int64", "process_rank": "Int64", "rank_from": "str", "label": "str",
}  # fmt: skip


def place_of_op(gpu_places: pd.DataFrame) -> IntArray:
    """Return the place of each GPU operation, in the order of `activities`. Shape: (operations,)."""
    process = gpu_places["process"].to_numpy(np.int64)
    number = gpu_places["device"].cat.codes.to_numpy(np.int64) * (process.max(initial=0) + 1) + process
    return (np.cumsum(np.bincount(number) > 0) - 1)[number]


def rank_places(
    gpu_ops: pd.DataFrame,
    place_of_op: IntArray,
    gpu_places: pd.DataFrame,
    process_ranks: dict[int, int],
    ranks_from: str,
) -> pd.DataFrame:
    """Return one row for each place: device, process (0 for a single process), pid, process_rank, rank_from and label.

    If the files name no ranks and every process has collectives of its own, ranks follow the order of process ids.
    """
    if gpu_ops.empty:
        return empty_table(_PLACES).astype({"device": "category"})
    first = pd.DataFrame({"place": place_of_op, "pid": gpu_ops["pid"], **gpu_places}, copy=False)
    first = first.drop_duplicates(["place", "pid"]).sort_values("pid", kind="stable")
    found = first.drop_duplicates("place").sort_values("place", ignore_index=True)
    pids = found["pid"].dropna().astype(int)
    source = ranks_from
    if not process_ranks and pids.nunique() > 1:
        talking = set(gpu_ops.loc[_is_collective(gpu_ops), "pid"].dropna())
        if set(pids) == talking:
            process_ranks, source = {pid: at for at, pid in enumerate(sorted(set(pids)))}, FROM_ORDER
    ranks = pids.map(process_ranks) if len(found) > 1 or process_ranks else pids.head(0)
    found["process_rank"] = ranks.astype("Int64").reindex(found.index)
    found["rank_from"] = np.where(found["process_rank"].notna(), source, "")
    named = found["process_rank"].notna() & ~found["process_rank"].duplicated(keep=False)
    by_rank = "rank " + found["process_rank"].astype("string").fillna("")
    several = found["process"].gt(0) & found["device"].astype(str).duplicated(keep=False)
    labels = [  # in Python: pyarrow's texts cannot be added where there is no row
        rank if is_rank else f"{gpu_label(str(device))}{f', process {process}' if beside else ''}"
        for rank, is_rank, device, process, beside in zip(
            by_rank, named, found["device"], found["process"], several, strict=True
        )
    ]
    return found.assign(label=pd.Series(labels, index=found.index, dtype=object).astype(str)).drop(columns="place")


def _is_collective(gpu_ops: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which operations are kernels that communicate."""
    names = gpu_ops["name"]
    known = {name: communicates(str(name)) for name in names.unique()}
    return (names.map(known).astype(bool) & (gpu_ops["kind"] == "kernel")).to_numpy(np.bool_)


def communication(
    gpu_ops: pd.DataFrame, place_of_op: IntArray, nccl_calls: pd.DataFrame, graph_nodes: pd.DataFrame
) -> pd.DataFrame:
    """Return one row for each kernel of a collective and each copy between GPUs, by place, then in launch order.

    Columns: op (row of gpu_ops), place, start_ns, end_ns, launched_ns, kind, payload_bytes (as NCCL counts them),
    ranks (of the communicator), communicator, call, path. Unknown numbers are NA, unknown texts are "".
    """
    moves = np.flatnonzero(~gpu_ops["kind"].isin(WORK).to_numpy(bool))
    peer = np.zeros(len(gpu_ops), bool)
    peer[moves] = holds(gpu_ops["name"].iloc[moves], lambda name: direction_of(str(name)) == PEER)
    if not peer.any() and not any(communicates(str(name)) for name in gpu_ops["name"].unique()):
        return empty_table(COMMUNICATION)
    talks = _is_collective(gpu_ops)
    at = np.flatnonzero(talks | peer)
    ops = gpu_ops.iloc[at]
    kernels = ops["name"].map({name: kind_of(str(name)) for name in ops["name"].unique()}).astype(object)
    found = pd.DataFrame(
        {
            "op": at,
            "place": place_of_op[at],
            "start_ns": ops["start_ns"].to_numpy(np.int64),
            "end_ns": (ops["start_ns"] + ops["duration_ns"]).to_numpy(np.int64),
            "launched_ns": ops["api_start_ns"].fillna(ops["start_ns"]).to_numpy(np.int64),
            "kind": np.where(peer[at], PEER_COPY, kernels),
            "path": _without_nccl(ops["path"]),
        }
    )
    told = _told(gpu_ops, at, nccl_calls, graph_nodes)
    found = pd.concat([found, told], axis=1)
    found["kind"] = found["kind"].where(found["kind"] != UNKNOWN, found.pop("said_kind"))
    found["payload_bytes"] = found["payload_bytes"].mask(peer[at], ops["bytes"].array)
    found["ranks"] = found["ranks"].mask(peer[at], 2)
    return found.sort_values(["place", "launched_ns", "start_ns"], kind="stable", ignore_index=True)


def _without_nccl(paths: pd.Series) -> npt.NDArray[Any]:
    """Remove NCCL's own range from the end of each path."""
    return paths.astype(str).str.replace(rf"(^|/){NCCL}[^/]*$", "", regex=True).to_numpy(object)


def _told(gpu_ops: pd.DataFrame, at: IntArray, calls: pd.DataFrame, graph_nodes: pd.DataFrame) -> pd.DataFrame:
    """Return what NCCL's call says about each operation that it launched: kind, bytes, ranks, communicator, call.

    Shape: `at` rows of `gpu_ops`; one row of the result for each of them.
    """
    blank = {"said_kind": UNKNOWN, "payload_bytes": pd.NA, "ranks": pd.NA, "communicator": "", "call": ""}
    found = [blank] * len(at)
    if len(calls) and len(at):
        calls = calls.reset_index(drop=True)
        as_ranges = calls.assign(range_id=np.arange(len(calls)))
        ops = gpu_ops.iloc[at].reset_index(drop=True)
        direct = attribution.attribute(ops, as_ranges).to_numpy(np.int64)
        recorded = attribution.attribute_recorded(ops, as_ranges, graph_nodes).to_numpy(np.int64)
        entered = calls[calls["communicator"].ne("") & calls["ranks"].notna()]
        ranks_of = dict(zip(entered["communicator"], entered["ranks"], strict=True))
        records = calls.to_dict("records")
        for row, rows in _meant(calls, np.where(recorded >= 0, recorded, direct)).items():
            found[row] = _said([records[one] for one in rows], ranks_of)
    table = pd.DataFrame(found, columns=list(blank))
    return table.astype({"payload_bytes": "Int64", "ranks": "Int64"})


def _said(calls: list[dict[Hashable, Any]], ranks_of: dict[str, int]) -> dict[str, Any]:
    """Join what the calls of one kernel say. If they have one kind and communicator, add up their bytes."""
    kinds, within = {kind_of(one["name"]) for one in calls}, {one["communicator"] for one in calls}
    sizes = [one["bytes"] for one in calls]
    ranks = {ranks_of.get(one["communicator"], one["ranks"]) for one in calls}
    same = len(kinds) == 1 and len(within) == 1
    return {
        "said_kind": kinds.pop() if same else UNKNOWN,
        "payload_bytes": sum(sizes) if same and not any(pd.isna(one) for one in sizes) else pd.NA,
        "ranks": ranks.pop() if len(ranks) == 1 else pd.NA,
        "communicator": within.pop() if len(within) == 1 else "",
        "call": calls[0]["name"] if len(calls) == 1 else f"{len(calls)} calls",
    }


def _meant(calls: pd.DataFrame, call: IntArray) -> dict[int, list[int]]:
    """Map each operation to the NCCL calls that it carries out.

    These are the call around its launch or, if a group's end launched it, the calls of that group. If a group has as
    many calls as kernels, each kernel gets one.
    Shape: `call` (operations,) row of the innermost call around the launch of each operation, -1 for none.
    """
    names = calls["name"].tolist()
    groups = _groups(calls)
    launched: dict[int, list[int]] = {}
    for row, one in enumerate(call.tolist()):
        if one >= 0:
            launched.setdefault(one, []).append(row)
    found: dict[int, list[int]] = {}
    for one, rows in launched.items():
        if not names[one].startswith(_MARKERS_OF_NCCL):
            found |= {row: [one] for row in rows}
            continue
        pending = groups.get(one, [])
        if len(pending) == len(rows):
            found |= {row: [of] for row, of in zip(rows, pending, strict=True)}
        elif len(rows) == 1 and pending:
            found[rows[0]] = pending
    return found


_MARKERS_OF_NCCL = tuple(f"nccl{marker}" for marker in _MARKERS)


def _groups(calls: pd.DataFrame) -> dict[int, list[int]]:
    """Map the call that ends each group to the calls of the group. All are rows of `calls`."""
    found: dict[int, list[int]] = {}
    for _, rows in calls.sort_values("start_ns", kind="stable").groupby(["pid", "tid"], sort=False):
        depth = 0
        pending: list[int] = []
        for row, name in zip(rows.index.tolist(), rows["name"].tolist(), strict=True):
            if name.startswith(_GROUP_BEGIN):
                depth += 1
            elif name.startswith(_GROUP_END):
                depth = max(depth - 1, 0)
                if not depth:
                    found[row], pending = pending, []
            elif depth and not name.startswith(_MARKERS_OF_NCCL):
                pending.append(row)
    return found


@part("missing")
def _ranks_from_order(facts: Facts) -> Missing | None:
    rank_places = facts.rank_places
    if not rank_places["rank_from"].eq(FROM_ORDER).any():
        return None
    return Missing(
        Reason.NO_RANKS,
        f"which of {count_of(len(rank_places), 'process', 'processes')} is which rank",
        "the capture has neither ncclCommInitRank nor the ranks of its processes, so the report takes the order of "
        "process ids",
        f"capture with `{profile()}`, or start the capture before torch.distributed starts",
    )


@part("missing")
def _ranks_that_are_missing(facts: Facts) -> Missing | None:
    """Name the ranks of a communicator that the capture lacks."""
    communication, rank_places = facts.communication, facts.rank_places
    ranks = communication.loc[communication["kind"] != PEER_COPY, "ranks"].max()
    if pd.isna(ranks) or len(rank_places) >= int(ranks):
        return None
    missing = int(ranks) - len(rank_places)
    return Missing(
        Reason.NO_RANKS,
        f"the captures of {missing} of {count_of(int(ranks), 'rank')}",
        f"NCCL's communicator has {int(ranks)} ranks, and the files have {len(rank_places)}",
        "add the captures of the others: without them, the report cannot separate waiting from transfer",
    )


@part("note")
def _other_models(facts: Facts) -> str | None:
    """Say which ranks run on another model of GPU than most of them."""
    places = facts.rank_places
    if len(places) < 2:
        return None
    models = places["device"].astype(str).map(lambda device: split_device(device)[0])
    usual = models.value_counts().idxmax()
    others = [f"{label} on {model}" for label, model in zip(places["label"], models, strict=True) if model != usual]
    if not others:
        return None
    return f"The ranks run on different GPUs ({', '.join(others)}, the rest on {usual}): equal work takes unequal time."
