"""Match the kernels of collectives across ranks, align the clocks of the ranks, and find out who waits for whom.

A collective is one call that every rank of a communicator makes. On each rank, its kernel has the same number in the
order of launches. If every rank needs data from all others, all end together. So differences between these ends show
how far the clocks differ.
"""

import functools
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pandas as pd

from analysis.capture.model import IntArray, empty_table
from analysis.formats.collectives import LEAST_TOGETHER, TOGETHER, UNKNOWN, bus_factor, most_skew, size_of, skew
from analysis.formats.distinct import holds
from analysis.formats.place import profile
from analysis.formats.ranges import NCCL, warms_up
from analysis.formats.report import Missing, Reason
from analysis.formats.run import PEER_COPY
from analysis.formats.words import count_of, duration
from analysis.tables.attribution import fold_paths, or_outside
from analysis.tables.declare import Column, Facts, part, table
from analysis.tables.kernels import by_share
from analysis.tables.links import roof_at
from analysis.tables.rank_places import COMMUNICATION

LEAST_LEAD_NS = 1_000_000  # ranks begin so far apart by themselves; a profiler takes longer to open its window
WAITING_KINDS = (*TOGETHER, "broadcast", "reduce", "barrier")  # collectives in which a rank waits for another


@dataclass(frozen=True)
class Matched:
    """The collectives of a program.

    rows     `communication` with `collective` (number of the kernel's collective, -1 for none) and the columns that
             `_with_waiting` adds, NA where unknown; start_ns and end_ns stay as recorded, but for `_without_lead`
    clocks   one row for each place: offset_ns, skew_ns, pairs (collectives that both come from), aligned, lead_ns (by
             which its process is recorded before that of the last place)
    missing     which collectives or clocks do not match
    """

    rows: pd.DataFrame
    clocks: pd.DataFrame
    missing: list[Missing] = field(default_factory=list)


def matched(
    communication: pd.DataFrame, rank_places: pd.DataFrame, gpu_ops: pd.DataFrame, ranges: pd.DataFrame
) -> Matched:
    """Match collectives by their order in each communicator, then align the clocks of the places by them.

    Shape: `gpu_ops` and `ranges` as in `Capture`.
    """
    if communication.empty:
        return _nothing_matched(len(rank_places))
    number, missing = _numbered(communication, rank_places["label"].tolist())
    rows = communication.assign(collective=number)
    clocks = _clocks(rows, len(rank_places))
    missing += _not_aligned(clocks, rank_places)
    clocks["lead_ns"] = _leads(gpu_ops, ranges, rank_places, clocks["offset_ns"].to_numpy(np.int64))
    return Matched(_with_waiting(_without_warm_up(_without_lead(rows, clocks), clocks), clocks), clocks, missing)


@functools.cache
def _nothing_matched(places: int) -> Matched:
    """Return the collectives of a program whose GPUs send each other nothing: most programs."""
    rows = empty_table(COMMUNICATION).assign(collective=np.empty(0, dtype=np.int64))
    clocks = _clocks(rows, places)
    return Matched(_with_waiting(rows, clocks), clocks)


# Which kernels belong together ------------------------------------------------------------------------------------


def _numbered(rows: pd.DataFrame, labels: list[str]) -> tuple[IntArray, list[Missing]]:
    """Return the number of each row's collective, -1 for none, and the missing.

    Shape: (rows,).
    """
    number = np.full(len(rows), -1, dtype=np.int64)
    missing: list[Missing] = []
    collectives = rows[rows["kind"] != PEER_COPY]
    by = [collectives["kind"] == "send_recv"]  # which messages two ranks send each other is no matter of all ranks
    if collectives["communicator"].ne("").all():
        by.append(collectives["communicator"])
    groups = collectives.groupby(by).indices.values()
    first = 0
    for group in groups:
        part_ = collectives.iloc[group]
        places = {int(place): part_.index[at].to_numpy() for place, at in part_.groupby("place").indices.items()}
        if len(places) < 2 or (len(places) > 2 and part_["kind"].iloc[0] == "send_recv"):
            continue
        kept, found = _fitted(rows, places, labels)
        missing += found
        count = len(next(iter(kept.values())))
        for at in kept.values():
            number[at] = first + np.arange(count)
        first += count
    return number, missing


def _fitted(
    rows: pd.DataFrame, places: dict[int, IntArray], labels: list[str]
) -> tuple[dict[int, IntArray], list[Missing]]:
    """Return, for each place, its rows that have a partner at every other place, in order; and the missing.

    Every place keeps equally many. If the ranks ran different numbers of collectives, cut those at the end or those
    at the beginning, whichever makes kinds, bytes and ends agree better.
    """
    counts = {place: len(at) for place, at in places.items()}
    least = min(counts.values())
    missing: list[Missing] = []
    kept = {place: at[:least] for place, at in places.items()}
    if max(counts.values()) > least:
        late = {place: at[len(at) - least :] for place, at in places.items()}
        kept = min((kept, late), key=lambda one: (_differing(rows, one) is not None, _spread(rows, one)))
        listed = ", ".join(f"{labels[place]} {count}" for place, count in counts.items())
        missing.append(
            Missing(
                Reason.UNMATCHED_RANKS,
                f"the partners of {count_of(sum(counts.values()) - least * len(counts), 'collective')}",
                f"the ranks ran different numbers of them ({listed}): the capture cut some off, or the programs differ",
                "let the capture begin and end at a collective of all ranks, such as a barrier",
            )
        )
    differing = _differing(rows, kept)
    if differing is not None:
        kinds = {place: rows["kind"].to_numpy()[at[differing]] for place, at in kept.items()}
        said = ", ".join(f"{kind} on {labels[place]}" for place, kind in kinds.items())
        missing.append(
            Missing(
                Reason.UNMATCHED_RANKS,
                f"waiting and transfer of the collectives from number {differing + 1} on",
                f"the ranks ran different programs: that collective is {said}",
                "capture ranks that make the same calls in the same order",
            )
        )
        kept = {place: at[:differing] for place, at in kept.items()}
    return kept, missing


def _differing(rows: pd.DataFrame, kept: dict[int, IntArray]) -> int | None:
    """Return the number of the first collective whose kind or bytes differ between places, or None."""
    for name, unknown in (("kind", UNKNOWN), ("payload_bytes", -1)):
        values = rows[name].fillna(-1).to_numpy() if name != "kind" else rows[name].to_numpy()
        columns = [values[at] for at in kept.values()]
        for one, other in pairwise(columns):
            differs = (one != other) & (one != unknown) & (other != unknown)
            if differs.any():
                return int(np.argmax(differs))
    return None


def _spread(rows: pd.DataFrame, kept: dict[int, IntArray]) -> float:
    """Return how much the ends of other places scatter against the first: the largest median absolute deviation, ns."""
    ends = [rows["end_ns"].to_numpy(np.int64)[at] for at in kept.values()]
    apart = [other - ends[0] for other in ends[1:]]
    return max((float(np.median(np.abs(one - np.median(one)))) for one in apart if len(one)), default=0.0)


# Clocks -----------------------------------------------------------------------------------------------------------


def _clocks(rows: pd.DataFrame, places: int) -> pd.DataFrame:
    """Return the offset and skew of each place against the first, from collectives that two places share.

    A place that shares none with the first is compared with one that is already known. Units: ns.
    """
    ends = rows[(rows["collective"] >= 0) & rows["kind"].isin((*TOGETHER, UNKNOWN))]
    table_ = ends.pivot_table(index="collective", columns="place", values="end_ns", aggfunc="last")
    found = pd.DataFrame({"offset_ns": 0.0, "skew_ns": np.nan, "pairs": 0}, index=range(places))
    known: list[int] = []
    waiting = sorted(int(place) for place in table_)
    while waiting:
        shared = {(place, by): table_[[place, by]].dropna() for place in waiting for by in known}
        best = max(shared, key=lambda pair: len(shared[pair]), default=None)
        if best is None or not len(shared[best]):
            known.append(waiting.pop(0))
            continue
        place, by = best
        apart = (shared[best][place] - shared[best][by]).to_numpy(float)
        offset = float(np.median(apart)) if len(apart) >= LEAST_TOGETHER else 0.0
        found.loc[place, "offset_ns"] = round(found.loc[by, "offset_ns"] + offset)
        found.loc[place, "skew_ns"] = skew(apart.tolist(), offset)
        found.loc[place, "pairs"] = len(apart)
        known.append(place)
        waiting.remove(place)
    most = most_skew((ends["end_ns"] - ends["start_ns"]).tolist())
    return found.assign(aligned=~(found["skew_ns"] > most))


def _not_aligned(clocks: pd.DataFrame, rank_places: pd.DataFrame) -> list[Missing]:
    bad = clocks[~clocks["aligned"]]
    if bad.empty:
        return []
    listed = ", ".join(f"{rank_places['label'].iloc[at]} by {duration(row.skew_ns)}" for at, row in bad.iterrows())
    return [
        Missing(
            Reason.CLOCKS,
            "which rank waits for which",
            f"the clocks of the ranks cannot be aligned: collectives that should end together end apart ({listed})",
            f"capture all ranks of a machine in one `{profile()}`, so that they have one clock",
        )
    ]


def _leads(gpu_ops: pd.DataFrame, ranges: pd.DataFrame, rank_places: pd.DataFrame, offset: IntArray) -> IntArray:
    """Return by how many ns each place's process is recorded before the last one. Shape: (places,).

    A process in a range is recorded, though it launches nothing yet. 0 for one process, for captures that share no
    time, and below LEAST_LEAD_NS.
    """
    own = rank_places["pid"].astype("Int64")
    first = gpu_ops[["start_ns", "api_start_ns"]].astype("Int64").min(axis=1)
    own_ranges = ranges[~holds(ranges["name"], lambda name: name.startswith(NCCL))]
    starts = pd.concat([first, own_ranges["start_ns"].astype("Int64")])
    begin = starts.groupby(pd.concat([gpu_ops["pid"], own_ranges["pid"]]).astype("Int64")).min()
    end = (gpu_ops["start_ns"] + gpu_ops["duration_ns"]).groupby(gpu_ops["pid"]).max()
    if own.isna().any() or own.nunique() < 2:
        return np.zeros(len(own), dtype=np.int64)
    begins, ends = (of.reindex(own).to_numpy(np.int64) - offset for of in (begin, end))
    leads = begins.max() - begins
    return leads * (leads >= LEAST_LEAD_NS) * bool(begins.max() < ends.min())


def _without_lead(rows: pd.DataFrame, clocks: pd.DataFrame) -> pd.DataFrame:
    """Let the first matched collective of each place begin later by the place's lead.

    Each process opens its capture window by itself. A rank that is recorded first is ahead by the lead, and waits at
    its first collective for the profiler of the others. That wait is not the program's.
    """
    waits = rows[(rows["collective"] >= 0) & rows["kind"].isin((*WAITING_KINDS, UNKNOWN))]
    at = waits.index[~waits["place"].duplicated()]
    lead = clocks["lead_ns"].to_numpy(np.int64)[rows.loc[at, "place"].to_numpy(np.int64)]
    begin = rows["start_ns"].copy()
    begin[at] = np.minimum(rows.loc[at, "start_ns"] + lead, rows.loc[at, "end_ns"])
    return rows.assign(start_ns=begin)


def _without_warm_up(rows: pd.DataFrame, clocks: pd.DataFrame) -> pd.DataFrame:
    """Let the collectives of a warm-up begin on all places when the last place begins: they wait for the profiler."""
    own = rows[holds(rows["path"], warms_up) & (rows["collective"] >= 0)]
    offset = clocks["offset_ns"].to_numpy(np.int64)[own["place"].to_numpy(np.int64)]
    last = (own["start_ns"] - offset).groupby(own["collective"]).transform("max") + offset
    begin = rows["start_ns"].copy()
    begin[own.index] = np.minimum(last, own["end_ns"])
    return rows.assign(start_ns=begin)


def _with_waiting(rows: pd.DataFrame, clocks: pd.DataFrame) -> pd.DataFrame:
    """Add `waiting_ns`, from a kernel's start to the start of the last rank's kernel, and `transfer_ns`, the rest.

    Both are NA in a warm-up, and if a kernel has no partner, a rank of the communicator is missing, or the clocks do
    not agree. Also add aligned_start_ns, aligned_end_ns, last_start_ns (of the last rank, NA where unknown) and
    partners (places).
    """
    offset = clocks["offset_ns"].to_numpy(np.int64)[rows["place"].to_numpy(np.int64)]
    start, end = (rows[name].to_numpy(np.int64) - offset for name in ("start_ns", "end_ns"))
    inside = rows["collective"] >= 0
    groups = rows["collective"].where(inside)
    last = pd.Series(start, index=rows.index).groupby(groups).transform("max")
    partners = rows["place"].groupby(groups).transform("nunique")
    known = inside & rows["kind"].isin((*WAITING_KINDS, UNKNOWN)) & bool(clocks["aligned"].all())
    known &= ~holds(rows["path"], warms_up)
    known &= rows["ranks"].isna() | (rows["ranks"].astype("Float64") <= partners)
    waiting = (np.minimum(last.fillna(0), end) - start).clip(lower=0)
    transfer = pd.Series(end - start, index=rows.index) - waiting
    return rows.assign(
        aligned_start_ns=start,
        aligned_end_ns=end,
        last_start_ns=last.where(known).astype("Int64"),
        partners=partners.fillna(1).astype(np.int64),
        waiting_ns=waiting.where(known).astype("Int64"),
        transfer_ns=transfer.where(known).astype("Int64"),
    )


@part("missing")
def _what_did_not_fit(facts: Facts) -> list[Missing]:
    return facts.matched.missing


# The table --------------------------------------------------------------------------------------------------------


@table(
    "collectives",
    question="What does each kind of collective move, how fast, and how much of its time is waiting for another rank?",
    title="Collectives",
    columns=(
        Column("kind", "all_reduce, all_gather …, as the call or the kernel names it, or peer_copy", "key"),
        Column("range", "folded range that launched it", "key"),
        Column("ranks", "ranks of its communicator, from NCCL; otherwise the number of ranks that ran it", "key", "1"),
        Column(
            "bytes",
            "size of one collective as nccl-tests counts it; for an all-gather, what a rank holds at the end. Blank if "
            "neither NCCL nor torch states it",
            "row",
        ),
        Column("bytes_from", "source of the bytes: NCCL (payload of its NVTX range), torch.profiler, or a copy", "row"),
        Column("count", "number of collectives, or of copies", "timing", "1"),
        Column("time_ns", "sum of the durations of their kernels over all ranks", "timing"),
        Column("share_frac", "time_ns over the time of all GPU operations", "timing", style="bar"),
        Column(
            "waiting_ns",
            "part of time_ns from the start of a kernel to the start of the last rank's kernel: no data moves before "
            "that. Blank in a warm-up, and if a rank is not in the capture or the clocks do not agree",
            "timing",
        ),
        Column("transfer_ns", "part of time_ns after the start of the last rank's kernel", "timing"),
        Column("exposed_ns", "part of time_ns in which no kernel computed on the same GPU", "timing"),
        Column(
            "transfer_p50_ns",
            "from the start of the last rank's kernel to the end of the collective, median of all",
            "timing",
        ),
        Column(
            "bus_byte_per_s",
            "bus bandwidth as nccl-tests defines it: bytes / transfer_p50_ns × factor. For n ranks the factor is "
            "2(n-1)/n (all-reduce) or (n-1)/n (all-gather, reduce-scatter)",
            "timing",
        ),
        Column(
            "roof_byte_per_s",
            "bandwidth in links.csv for this kind, number of ranks and size; blank if not measured",
            "timing",
        ),
        Column("roof_frac", "bus_byte_per_s over roof_byte_per_s", "timing"),
    ),
    glance=by_share,
)
def build_collectives(facts: Facts) -> pd.DataFrame | None:
    """Return collectives.csv, one row for each kind, range, number of ranks and size, most time first.

    None for a program without communication between GPUs. Shape: `exposed` as of ranks.exposed; `links` links.csv.
    """
    rows = facts.matched.rows
    if rows.empty:
        return None
    sized = with_bytes(rows.assign(exposed_ns=facts.exposed["exposed_ns"], time_ns=rows["end_ns"] - rows["start_ns"]))
    sized["range"] = or_outside(fold_paths(sized["path"]))
    # The first kernel of a collective carries its count and its transfer; the others count zero.
    sized["one"] = ~sized["collective"].duplicated() | (sized["collective"] < 0)
    both = sized.groupby("collective")["aligned_end_ns"].transform("max") - sized["last_start_ns"]
    alone = (sized["kind"] == PEER_COPY) | (sized["kind"] == "send_recv")
    sized["moved_ns"] = both.astype("Float64").mask(alone, sized["time_ns"]).where(sized["one"])
    key = ["kind", "range", "ranks", "bytes"]
    groups = sized.groupby(key, sort=False, dropna=False)
    found = groups.agg(
        bytes_from=("bytes_from", "first"),
        count=("one", "sum"),
        time_ns=("time_ns", "sum"),
        waiting_ns=("waiting_ns", lambda cells: cells.sum(min_count=1)),
        transfer_ns=("transfer_ns", lambda cells: cells.sum(min_count=1)),
        exposed_ns=("exposed_ns", "sum"),
        transfer_p50_ns=("moved_ns", "median"),
    ).reset_index()
    found["share_frac"] = found["time_ns"] / max(int(facts.gpu_ops["duration_ns"].sum()), 1)
    found["bus_byte_per_s"] = [
        _bus(*one) for one in found[["kind", "ranks", "bytes", "transfer_p50_ns"]].itertuples(index=False)
    ]
    found["roof_byte_per_s"] = [
        _roof(facts.links, *one) for one in found[["kind", "ranks", "bytes"]].itertuples(index=False)
    ]
    found["roof_frac"] = found["bus_byte_per_s"] / found["roof_byte_per_s"]
    found["transfer_p50_ns"] = found["transfer_p50_ns"].astype("Float64").round().astype("Int64")
    for name in ("count", "time_ns", "waiting_ns", "transfer_ns", "exposed_ns"):
        found[name] = found[name].astype("Int64")
    return found.assign(tier="timing").sort_values(["time_ns", *key], ascending=[False, True, True, True, True])


def with_bytes(rows: pd.DataFrame) -> pd.DataFrame:
    """Add `bytes` as nccl-tests counts them, and their source `bytes_from`. Fill in `ranks` if NCCL does not say it."""
    ranks = rows["ranks"].fillna(rows["partners"].astype("Int64").where(rows["collective"] >= 0))
    sizes = [
        pd.NA if pd.isna(size) or pd.isna(count) else size_of(kind, int(size), int(count))
        for kind, size, count in zip(rows["kind"], rows["payload_bytes"], ranks, strict=True)
    ]
    sizes_ = pd.array(sizes, dtype="Int64")
    by_nccl = rows["call"].str.startswith("nccl") | rows["call"].str.endswith(" calls")
    source = np.where(by_nccl, "NCCL", "torch.profiler")
    source = np.where(rows["kind"] == PEER_COPY, "copy", source)
    return rows.assign(bytes=sizes_, ranks=ranks, bytes_from=np.where(pd.isna(sizes_), "", source))


def _bus(kind: str, ranks: object, size: object, time_ns: object) -> float:
    """Return the bus bandwidth, byte/s; NaN if an input is unknown."""
    if pd.isna(ranks) or pd.isna(size) or pd.isna(time_ns) or not float(time_ns) > 0:  # type: ignore[arg-type]
        return float("nan")
    factor = 1.0 if kind == PEER_COPY else bus_factor(kind, int(ranks))  # type: ignore[call-overload]
    return float("nan") if factor is None else float(size) * factor / float(time_ns) * 1e9  # type: ignore[arg-type]


def _roof(links: pd.DataFrame, kind: str, ranks: object, size: object) -> float:
    if pd.isna(ranks) or pd.isna(size):
        return float("nan")
    return roof_at(links, kind, int(ranks), float(size))  # type: ignore[call-overload,arg-type]
