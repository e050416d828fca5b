"""Judge every call of a collective or a message: does it move data, or does its first rank wait for its last one?

A call lasts from the start of its first rank to the end of its last rank. Two clocks tell the waiting of the first
rank: the aligned starts of all ranks, and, where all ranks end together, the durations of their kernels, which need no
common clock. How far the two differ is the uncertainty of the call.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from analysis.formats.collectives import TOGETHER, Verdict, bus_factor, communicates, protocol_of, verdict
from analysis.formats.distinct import holds
from analysis.formats.place import EXPORT
from analysis.formats.ranges import warms_up
from analysis.formats.report import Missing, Reason
from analysis.formats.run import PEER_COPY
from analysis.formats.words import count_of
from analysis.hardware.devices import find_device
from analysis.samples.overlap import overlap
from analysis.tables.attribution import UNATTRIBUTED, fold_paths
from analysis.tables.collectives import with_bytes
from analysis.tables.declare import Column, Facts, part, table
from analysis.tables.links import roof_at
from analysis.tables.sampled import OfGpu, device_number

SENT = "nvlink_tx_frac"
RAW = 478.1 / 450  # what a share of 1 is, over the datasheet's rate: 18 links of 26.562 GB/s on an H100
PEER_TO_PEER = "Peer-to-Peer"  # in the name of a copy
INSIDE = 0.9  # of what a GPU sends, from which on collectives send all of it


@table(
    "collective_calls",
    question="Does each call of a collective move data, or does it wait for a rank that starts late?",
    title="Calls of collectives",
    columns=(
        Column("call", "number of the call in order of its first start", "key", "1"),
        Column("kind", "all_reduce, all_gather …, or send_recv", "key"),
        Column("range", "folded range that launched it on the first rank", "key"),
        Column("ranks", "ranks that ran it in the capture", "key", "1"),
        Column("bytes", "size as nccl-tests counts it; blank if no file and no sample tells it", "row"),
        Column("bytes_from", "NCCL, torch.profiler, or samples: the mean of its kernel in its range, by the NVLink "
               "traffic that nsys sampled", "row", shown=False),
        Column("protocol", "algorithm and protocol in the name of NCCL's kernel", "row", shown=False),
        Column("channels", "blocks of the kernel of the first rank: NCCL starts one for each channel", "timing", "1"),
        Column("start_ns", "start of its first rank, from the first GPU operation of the capture", "timing"),
        Column("first", "rank that starts first", "row"),
        Column("last", "rank that starts last: the others wait for it", "row"),
        Column("skew_ns", "from the first start to the last one, on aligned clocks: waiting of the first rank",
            "timing"),
        Column("transfer_ns", "from the last start to the last end", "timing"),
        Column("unsure_ns",
            "uncertainty of both: how far starts and durations disagree on the waiting, or skew_ns of ranks.csv, which "
            "is what the clocks of its ranks leave, whichever is larger", "timing"),
        Column("link_ns", "time that the measured link needs for these bytes; blank if unknown", "timing"),
        Column("over_link", "transfer_ns over link_ns", "timing", "1"),
        Column("verdict",
            "TRANSFER or SKEW: at least three quarters of the call. MIXED: both are at least a tenth. UNDECIDED: the "
            "uncertainty allows several, or the starts of all ranks are not known", "row"),
    ),
    glance=lambda calls: calls.sort_values("skew_ns", ascending=False, kind="stable", na_position="last"),
)  # fmt: skip
def build_collective_calls(facts: Facts) -> pd.DataFrame | None:
    """Return collective_calls.csv, one row for each call, in order of time; None without calls of several ranks."""
    rows = facts.matched.rows
    rows = rows[rows["kind"] != PEER_COPY] if len(rows) else rows
    if rows.empty or len(facts.rank_places) < 2:
        return None
    calls = _calls(with_bytes(rows), facts)
    calls = _with_samples(calls, facts)
    known = calls["decidable"].to_numpy(bool)
    for name in ("skew_ns", "transfer_ns", "unsure_ns"):
        calls[name] = calls[name].astype("Float64").round().where(known).astype("Int64")
    calls["link_ns"] = [
        _link_ns(facts.links, *one) for one in calls[["kind", "ranks", "bytes"]].itertuples(index=False)
    ]
    calls["over_link"] = calls["transfer_ns"].astype(float) / calls["link_ns"]
    calls["link_ns"] = calls["link_ns"].round().astype("Int64")
    spans = calls[["skew_ns", "transfer_ns", "unsure_ns"]].astype(float).itertuples(index=False)
    calls["verdict"] = [
        str(verdict(skew, skew + moved, unsure) if decidable else Verdict.UNDECIDED)
        for decidable, (skew, moved, unsure) in zip(known, spans, strict=True)
    ]
    calls = calls.sort_values(["start_ns", "first"], kind="stable", ignore_index=True)
    return calls.drop(columns=["decidable", "op"]).assign(call=np.arange(1, len(calls) + 1), tier="timing")


def _calls(rows: pd.DataFrame, facts: Facts) -> pd.DataFrame:
    """Return one row for each call, without verdict. `decidable`: the starts of all its ranks are known and agree.

    Shape: `rows` of Matched with their sizes. Units: ns.
    """
    number = rows["collective"].where(rows["collective"] >= 0, -1 - np.arange(len(rows)))  # without partners: alone
    start, end = rows["aligned_start_ns"], rows["aligned_end_ns"]
    first = rows.loc[start.groupby(number, sort=False).idxmin()].reset_index(drop=True)
    last = rows.loc[start.groupby(number, sort=False).idxmax()].reset_index(drop=True)
    until, until_least = (getattr(end.groupby(number, sort=False), one)().to_numpy(np.int64) for one in ("max", "min"))
    count = number.groupby(number, sort=False).size().to_numpy(np.int64)
    clocks = facts.matched.clocks["skew_ns"].fillna(0.0)
    spread = rows["place"].map(clocks).groupby(number, sort=False).max().to_numpy(float)
    begin, ready, left = (
        one.to_numpy(np.int64) for one in (first["aligned_start_ns"], last["aligned_start_ns"], first["aligned_end_ns"])
    )
    together = first["kind"].isin(TOGETHER).to_numpy(bool)
    buffered = ~together & (left < ready)  # the first rank left its data in a buffer, and waited for nobody
    skew = np.where(buffered, 0, np.minimum(ready, until) - begin)
    whole = np.where(buffered, left, until) - begin
    ops = facts.gpu_ops.iloc[first["op"].to_numpy(np.int64)]
    labels = facts.rank_places["label"].to_numpy()
    alone = count < 2
    lacking = (first["ranks"].astype("Float64").fillna(0) > count).to_numpy(bool)
    decidable = ~alone & ~lacking & ~holds(first["path"], warms_up) & bool(facts.matched.clocks["aligned"].all())
    return pd.DataFrame(
        {
            "kind": first["kind"],
            "range": fold_paths(first["path"]).replace("", UNATTRIBUTED).to_numpy(),
            "ranks": pd.array(count, dtype="Int64"),
            "bytes": first["bytes"],
            "bytes_from": first["bytes_from"],
            "op": first["op"],
            "protocol": of_each(ops["name"], protocol_of),
            "channels": pd.array(of_each(ops["grid"], _channels), dtype="Int64"),
            "start_ns": begin - int(facts.gpu_ops["start_ns"].min()),
            "first": labels[first["place"].to_numpy(np.int64)],
            "last": np.where(alone, "", labels[last["place"].to_numpy(np.int64)]),
            "skew_ns": skew,
            "transfer_ns": whole - skew,
            "unsure_ns": np.maximum(spread, np.where(together, until - until_least, 0)),
            "decidable": decidable,
        }
    )


def _with_samples(calls: pd.DataFrame, facts: Facts) -> pd.DataFrame:
    """Fill in unknown bytes from the sampled traffic of the first rank's GPU."""
    device = find_device(facts.gpu) if facts.gpu else None
    if not calls["bytes"].isna().any() or device is None or not device.nvlink_bytes_per_s:
        return calls
    sent: dict[tuple[int, int], float] = {}
    for one in facts.sampled:
        rate = RAW * device.nvlink_bytes_per_s / 1e9
        sent |= {(one.found.gpu, start): share * rate for start, share in _sent(one).items()}
    ops = facts.gpu_ops.iloc[calls["op"].to_numpy(np.int64)]
    numbers = of_each(ops["device"].astype(str), device_number)
    known = [sent.get(key) for key in zip(numbers.tolist(), ops["start_ns"].tolist(), strict=True)]
    factors = [bus_factor(kind, int(ranks)) for kind, ranks in calls[["kind", "ranks"]].itertuples(index=False)]
    sizes = pd.Series(
        [round(size / factor) if size and factor else pd.NA for size, factor in zip(known, factors, strict=True)],
        calls.index, dtype="Int64",
    )  # fmt: skip
    filled = calls["bytes"].isna() & sizes.notna()
    source = calls["bytes_from"].mask(filled, "samples")
    return calls.assign(bytes=calls["bytes"].where(~filled, sizes), bytes_from=source)


def _sent(one: OfGpu) -> dict[int, float]:
    """Return what each collective sends, mean of its group, in ns of NVLink's peak, by its start.

    A collective waits for other ranks and then sends in a burst, so it has no rate that a fit could find. All that the
    GPU sends in samples that collectives and copies between GPUs touch is theirs. {} if less than INSIDE of all is.
    """
    found, names = one.found, one.groups["kernel"].astype(str)
    moves = np.array([communicates(name) or PEER_TO_PEER in name for name in names])
    values = np.nan_to_num(found.values.get(SENT, np.zeros(len(found.samples.begin))))
    shares = overlap(found.samples, found.launches, found.clock.offset)[:, np.flatnonzero(moves)].toarray()
    whole = shares.sum(axis=1)
    of_group = (shares / np.where(whole > 0, whole, 1.0)[:, None]).T @ values * found.samples.period
    if not of_group.sum() >= INSIDE * values.sum() * found.samples.period > 0:
        return {}
    mean = np.zeros(len(moves))
    mean[moves] = of_group / one.groups["launches"].to_numpy(np.float64)[moves]
    return {
        int(start): float(mean[group])
        for start, group in zip(found.launches.start, found.launches.group, strict=True)
        if mean[group] > 0
    }


def of_each(names: pd.Series, told: Callable[[str], object]) -> np.ndarray:
    """Return what `told` says of each text, asked once for each that differs."""
    known = {name: told(str(name)) for name in names.unique()}
    return np.array([known[name] for name in names], dtype=object)


def _channels(grid: str) -> object:
    """Return the blocks of a grid such as `24x1x1`, NA if unknown."""
    return int(grid.partition("x")[0]) if grid.partition("x")[0].isdigit() else pd.NA


def _link_ns(links: pd.DataFrame, kind: str, ranks: int, size: object) -> float:
    """Return the time that the measured link needs for a call, ns; NaN if unknown."""
    factor = bus_factor(kind, ranks)
    rate = float("nan") if pd.isna(size) else roof_at(links, kind, ranks, float(size))  # type: ignore[arg-type]
    return float(size) * factor / rate * 1e9 if factor and rate > 0 else float("nan")  # type: ignore[arg-type]


NVLINK_SHARE = 0.6  # of the datasheet's rate, one way: NCCL reaches 0.67 with 256 MB on two H200s
NVLINK_NS = 25_000.0  # besides the bytes; two H200s need 7 µs


def expected_ns(facts: Facts) -> np.ndarray | None:
    """Return how long each GPU operation that is a collective takes at most on a sound link, ns; NaN where unknown.

    The link is the measured one, else the NVLink of the GPU's datasheet, if all ranks run on one host.
    None if none is known. Shape: (gpu_ops,).
    """
    rows = facts.matched.rows
    rows = with_bytes(rows[rows["kind"] != PEER_COPY]) if len(rows) else rows
    device = find_device(facts.gpu) if facts.gpu else None
    nvlink = device.nvlink_bytes_per_s if device and not facts.capture.clock_shifts else None
    if not len(rows) or not (nvlink or len(facts.links)):
        return None
    found = np.full(len(facts.gpu_ops), np.nan)
    for op, kind, ranks, size in rows[["op", "kind", "ranks", "bytes"]].itertuples(index=False):
        if pd.isna(ranks) or pd.isna(size):
            continue
        measured = _link_ns(facts.links, kind, int(ranks), size) if len(facts.links) else float("nan")
        if nvlink and not measured > 0 and (factor := bus_factor(kind, int(ranks))):
            measured = NVLINK_NS + float(size) * factor / (NVLINK_SHARE * nvlink) * 1e9
        found[int(op)] = measured
    return found


@part("note")
def _counted(facts: Facts) -> str | None:
    """Say how many calls have each verdict."""
    calls = facts.collective_calls
    if calls.empty:
        return None
    counts = calls["verdict"].value_counts()
    listed = ", ".join(f"{int(counts[one])} {one}" for one in map(str, Verdict) if one in counts)
    return f"Of {count_of(len(calls), 'call of a collective', 'calls of collectives')}: {listed}."


@part("missing")
def _bytes_unknown(facts: Facts) -> Missing | None:
    """Say that no file states the bytes of collectives, so that no link can be compared."""
    calls = facts.collective_calls
    unknown = int(calls["bytes"].isna().sum()) if len(calls) else 0
    if not unknown:
        return None
    return Missing(
        Reason.NO_PAYLOAD,
        f"the bytes of {count_of(unknown, 'call of a collective', 'calls of collectives')}",
        "the files hold no payload of NCCL's NVTX ranges for them, so no bandwidth can be compared with the link's",
        f"capture with NVTX and NCCL 2.19 or newer, and export with `{EXPORT}`, which keeps the payloads",
    )
