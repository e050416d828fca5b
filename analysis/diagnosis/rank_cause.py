"""Name the rank for which the others wait in a steady step, and why: more work, a slower GPU, or a late host.

All sums are those of one rank, of one step, on aligned clocks.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd

from analysis.capture.model import IntArray
from analysis.diagnosis.step_rules.view import View, of_each
from analysis.formats import symbols
from analysis.formats.collectives import TOGETHER, kind_of
from analysis.replay.graph import Bools, Floats
from analysis.tables.attribution import innermost, paths_of

MOST = 0.5  # of the time by which a rank is late: what explains so much is the cause
MOSTLY = 2 / 3  # of all lateness: below, the ranks are late in turns
ALIKE = 0.5  # of the excess of a slower GPU: so far its kernels may differ from their mean factor
SHARED = 0.9  # of the GPU time of a rank that others spend in the same kernels, if only its GPU is slower
KERNELS = 3  # names that a slower GPU makes longer, at least
ONE_PLACE = 0.5  # of the excess in ranges: a range that holds more is named
CARDS = 1.03  # times as long, the same launches may take on another board of one model: that is no cause
LIKE = 3.0  # times as long: a kernel that takes another's place
SINGLE = 0.75  # of a stage's own work is one kernel, if it is a cause
GATHERED = 1.5  # of its share of the time is what a range has of the excess, if more work is there
HELD_NS, HELD = (
    300_000.0,
    2.0,
)  # what a host does longer at one place of the step, at least, and times what others do there
KNOWN = 0.2  # of the excess lies in ranges, if one is named: gradients take twice as long as what they belong to


class Cause(StrEnum):
    """Why a rank is late."""

    MORE_WORK = "more_work"  # the kernels of the others, and more of it
    OWN_WORK = "own_work"  # kernels that the others do not run
    SLOW_GPU = "slow_gpu"
    HOST = "host"


@dataclass(frozen=True)
class Late:
    """The rank that lets others wait. Units: ns of one step.

    late_ns    sum over the collectives that it starts last of the time since the mean start of the others; NaN if the
               starts are not known
    last, of   collectives of the window that it starts last, and their number
    gpu_ns     GPU time without communication above the mean of the others, for OWN_WORK of kernels that they do not run
               as often; `host_ns` of host work at places where it takes HELD times as long
    ops        for OWN_WORK the operations of these kernels. Shape: (operations,)
    in_turns   the ranks wait for each other in turns, as where the host is slow, but this one has more work
    factor     its kernels take so many times as long as those of the others
    """

    place: int
    cause: Cause
    late_ns: float
    last: int
    of: int
    gpu_ns: float
    host_ns: float
    factor: float = 1.0
    range: str = ""
    kernel: str = ""
    kernel_ns: float = 0.0
    models: tuple[str, ...] = ()  # of GPUs, if they differ
    ops: Bools | None = None
    in_turns: bool = False


def starts_of(view: View, places: IntArray) -> pd.DataFrame:
    """Return the start of each collective (rows) on each place (columns), ns on the clock of the first place.

    Only collectives that all places run. Empty if they are not known, as where the clocks do not agree.
    """
    graph = view.graph
    if view.stragglers is not None and view.stragglers.empty:
        return pd.DataFrame()
    rows = np.flatnonzero(graph.o_group >= 0)
    table = pd.DataFrame(
        {
            "group": graph.o_group[rows], "place": places[graph.o_stream[rows]],
            "start": graph.o_start[rows].astype(float), "end": graph.o_end[rows],
        }
    )  # fmt: skip
    wide = table.pivot_table(index="group", columns="place", values=["start", "end"], aggfunc="first").dropna()
    if wide.empty or wide["start"].shape[1] < 2:
        return pd.DataFrame()
    offsets = wide["end"].sub(wide["end"].iloc[:, 0], axis=0).median()
    return wide["start"] - offsets


def held_up(view: View) -> tuple[dict[int, float], Bools]:
    """Return how much longer the host of each process works than the mean of the others, and before which calls.

    Only single places of the step count that hold it up by HELD_NS and HELD times as long in most steps, in ranges of
    all processes. A profiler slows all calls of one process more than those of another, and that is no cause.
    Shape: (calls,). Units: ns of one step.
    """
    graph, calls = view.graph, view.capture.calls
    pid, held = graph.seq_pid[graph.c_seq], np.zeros(len(graph.c_start), bool)
    found = {int(one): 0.0 for one in np.unique(pid)}
    if len(found) < 2:
        return found, held
    where = np.full(len(pid), "", object)
    if calls is not None and len(view.capture.ranges):
        timed = calls.iloc[graph.c_row].rename(columns={"start_ns": "api_start_ns", "end_ns": "api_end_ns"})
        around = pd.Series(innermost(timed.reset_index(drop=True), view.capture.ranges))
        where = np.asarray(paths_of(around, view.capture.ranges).astype(str), object)
    table = pd.DataFrame({"pid": pid, "where": where, "call": graph.c_name.astype(str), "gap": graph.c_gap})
    table = table[table.groupby("where")["pid"].transform("nunique") == len(found)]
    table = table.sort_values("gap", ascending=False, kind="stable")
    turn = table.groupby(["pid", "where", "call"]).cumcount()
    table["place"] = table["where"] + "|" + table["call"] + "|" + (turn // graph.steps).astype(str)
    usual = table[turn % graph.steps == graph.steps // 2]  # of the longest of each step the middle one, and so on
    wide = usual.pivot_table(index="place", columns="pid", values="gap", aggfunc="sum").fillna(0.0)
    for one in wide:
        others = (wide.sum(axis=1) - wide[one]) / (len(found) - 1)
        longer = (wide[one] - others)[(wide[one] >= HELD * others) & (wide[one] - others >= HELD_NS)]
        found[int(str(one))] = float(longer.sum())
        held[table.index[(table["pid"] == one) & table["place"].isin(longer.index)]] = True
    return found, held


def find_late(view: View, talks: Bools, places: IntArray, host: dict[int, float]) -> Late | None:
    """Return the rank for which the others wait most of the time, or, if they wait in turns, one that has more work.

    Shape: `places` (streams,). `host`: how much longer that of each place works, ns of one step; 0 if several share it.
    """
    graph = view.graph
    place = places[graph.o_stream]
    numbers = [int(one) for one in np.unique(place)]
    gpu = {one: view.of_rank(graph.o_duration[(place == one) & ~talks].sum()) for one in numbers}
    starts = starts_of(view, places)
    late_ns, last, in_turns, slow = float("nan"), 0, False, max(gpu, key=lambda one: gpu[one] + host[one])
    if len(starts):
        by_last, behind = starts.idxmax(axis=1), starts.max(axis=1) - starts.mean(axis=1)
        late = (behind * starts.shape[1] / (starts.shape[1] - 1)).groupby(by_last).sum()
        in_turns = bool(late.max() <= MOSTLY * late.sum())
        slow = max(gpu, key=lambda one: gpu[one]) if in_turns else int(late.idxmax())
        if slow not in late:
            return None
        late_ns, last = view.of_rank(late[slow]), int((by_last == slow).sum())
    more_gpu, more_host = gpu[slow] - float(np.mean([ns for one, ns in gpu.items() if one != slow])), host[slow]
    told = late_ns if late_ns == late_ns else max(more_gpu + more_host, 0.0)  # NaN is no number
    found = Late(slow, Cause.HOST, late_ns, last, len(starts), more_gpu, more_host, in_turns=in_turns)
    if more_gpu < MOST * told and more_gpu < more_host and not in_turns:
        return found
    if len(starts):  # stages of a pipeline have different work, and wait for each other's messages anyway
        message = of_each(view.names, lambda name: kind_of(name) not in TOGETHER, bool) & (graph.o_group >= 0)
        sent = starts.index.isin(np.unique(graph.o_group[message]))
        staged = bool(behind[sent].sum() > behind.sum() / 2)
    else:
        staged = False
    return _on_gpu(view, found, ~talks, place, staged)


def _on_gpu(view: View, late: Late, works: Bools, place: IntArray, staged: bool) -> Late | None:
    """Return the cause of more GPU time, with the range and the kernel that have most of it; None of like boards.

    `staged`: the lateness is that of messages; then only a kernel that the rank alone runs is a cause.
    """
    graph = view.graph
    grids = view.capture.gpu_ops["grid"].astype(str).to_numpy(object)[graph.o_row]
    rows = pd.DataFrame(
        {
            "name": view.keys, "grid": grids, "path": view.placed, "ns": graph.o_duration,
            "mine": place == late.place, "count": 1,
        }
    )[works]  # fmt: skip
    others = len(np.unique(place)) - 1
    models = dict(zip(place.tolist(), (graph.stream_devices[one] for one in graph.o_stream), strict=True))
    cards = tuple(sorted({symbols.split_device(one)[0] for one in models.values()}))
    kernels, ranges, launches = (apart(view, rows, others, by) for by in (["name"], ["path"], ["name", "grid"]))
    if (
        launches["count"].eq(launches["count_others"]).all()
        and launches["ns"].sum() < CARDS * launches["ns_others"].sum()
    ):
        return None
    kernel = str(kernels["more"].idxmax())
    named = ranges["more"].drop("", errors="ignore").clip(lower=0)  # the thread of gradients has no ranges
    where = str(named.idxmax()) if len(named) and named.max() >= max(ONE_PLACE * named.sum(), 1.0) else ""
    if named.sum() < KNOWN * late.gpu_ns:
        where = ""
    cause, factor, gpu_ns = Cause.MORE_WORK, 1.0, late.gpu_ns
    own, ops = own_of(kernels), None
    if own.sum() >= MOST * late.gpu_ns:
        cause = Cause.OWN_WORK  # without kernels that all run: those of ranks that wait are slower beside collectives
        gpu_ns = float(kernels["more"][kernels["count"] != kernels["count_others"]].sum())
        ops = works & (place == late.place) & np.isin(view.keys, own.index[own > 0])
        within = ops & (view.placed == where)
        if where and (inside := view.of_rank(graph.o_duration[within].sum())) >= MOST * gpu_ns:
            gpu_ns, ops = min(inside, gpu_ns), within
    apart_ns = ranges.drop("", errors="ignore").query("ns_others == 0")["ns"].sum()
    staged = staged and apart_ns >= MOST * ranges["ns"].drop("", errors="ignore").sum()
    if staged and (cause != Cause.OWN_WORK or own.max() < SINGLE * gpu_ns):
        return None
    unlike = launches["count"] != launches["count_others"]
    if late.in_turns and (cause != Cause.MORE_WORK or launches["more"][unlike].sum() < MOST * late.gpu_ns or not where):
        return None
    if cause == Cause.MORE_WORK and not _gathered(ranges, where):
        factor = _factor(launches, MOST * late.gpu_ns)
        cause, where = (Cause.SLOW_GPU, "") if factor > 1 else (cause, where)
    name = str(dict(zip(view.keys[works], view.names[works], strict=True)).get(kernel, kernel))
    return replace(
        late, cause=cause, gpu_ns=gpu_ns, factor=factor, range=where, kernel=symbols.short(name),
        kernel_ns=float(kernels["more"].max()), models=cards if len(cards) > 1 else (), ops=ops,
    )  # fmt: skip


def own_of(kernels: pd.DataFrame) -> pd.Series:
    """Return the time of each kernel's launches that the others do not run, ns of one step.

    More rows get other kernels of a library: a launch counts as replaced if the others have one of up to LIKE times its
    length that the rank lacks.
    """
    more = kernels["count"] - kernels["count_others"]
    found, left = kernels["more"].where(more > 0, 0.0).clip(lower=0), more.clip(lower=0)
    extra = (kernels["ns"] / kernels["count"])[more > 0].sort_values(ascending=False)
    lacking = (kernels["ns_others"] / kernels["count_others"])[more < 0].sort_values(ascending=False)
    at = 0
    for name, length in lacking.items():
        need = -more[name]
        while at < len(extra) and need > 0 and extra.iloc[at] >= length / LIKE:
            if extra.iloc[at] <= length * LIKE:
                taken = min(need, left[extra.index[at]])
                need -= taken
                left[extra.index[at]] -= taken
            if need > 0:
                at += 1
    return found * (left / more).where(more > 0, 0.0)


def apart(view: View, rows: pd.DataFrame, others: int, by: list[str]) -> pd.DataFrame:
    """Return the time and the count of a step on the rank and on the mean of the others, and `more`, ns."""
    mine, rest = (rows[rows["mine"] == own].groupby(by)[["ns", "count"]].sum() for own in (True, False))
    both = pd.concat([mine, (rest / others).add_suffix("_others")], axis=1).fillna(0.0) / view.graph.steps
    return both.assign(more=both["ns"] - both["ns_others"])


def _gathered(ranges: pd.DataFrame, where: str) -> bool:
    """Return whether a range has far more of the excess than of the time: a slower GPU is slower in all ranges."""
    if not where:
        return False
    known = ranges.drop("", errors="ignore")
    share, of_time = (known.at[where, name] / known[name].clip(lower=0).sum() for name in ("more", "ns_others"))
    return bool(share >= GATHERED * of_time)


def _factor(both: pd.DataFrame, least_ns: float) -> float:
    """Return how many times as long all kernels of a rank take as the same kernels of others; 1 if not all alike.

    Also 1 if that is less than `least_ns` of a step.
    """
    same = both[(both["count"] == both["count_others"]) & (both["ns_others"] > 0)]
    if len(same) < KERNELS or same["ns"].sum() < SHARED * both["ns"].sum():
        return 1.0
    weight: Floats = same["ns"].to_numpy() / float(same["ns"].sum())
    factor = float(same["ns"].sum() / same["ns_others"].sum())
    apart = float((weight * (same["ns"] / same["ns_others"] - factor).abs().to_numpy()).sum())
    return factor if same["more"].sum() >= least_ns and factor > 1 and apart <= ALIKE * (factor - 1) else 1.0
