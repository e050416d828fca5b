"""Find an idle GPU, calls in which the host waits, and the ranges that take most time in a run without a GPU."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from analysis.diagnosis.claims import About, Claim, cell
from analysis.formats.report import Cell, Confidence
from analysis.formats.words import count_of, duration, share
from analysis.tables.attribution import fold_paths
from analysis.tables.cpu_times import self_times
from analysis.tables.host import CUDA, SYSTEM
from analysis.tables.set_up import SET_UP

BUSY_FROM = 0.5  # of a step's time: a GPU that is busy for less idles too much
FIRST_CALLS = 3.0  # times the median: a longer first call pays for a start
ONE_CALL = 0.5  # of the time of all calls: a longer single call gets a sentence
FEW = 3  # fewer calls show no pattern
LEAST_SHARE = 0.01
MOST = 3
NOT_RECORDED = "the capture does not show what happens in it"
# (pattern, cause, what time in the call means, what to do). The first pattern that matches the whole name counts.
_CALLS: tuple[tuple[str, tuple[str, str, str]], ...] = (
    (r"cu(da)?(Device|Stream|Event|Ctx)Synchronize.*",
     ("sync", "the host waits there for the GPU to finish",
     "reduce the GPU's work, or wait less often")),
    (r"cu(da)?(HostAlloc|MallocHost|MemAllocHost|MemHostAlloc|FreeHost|MemFreeHost|HostRegister|HostUnregister).*",
     ("allocation", "pinning memory takes the host long", "allocate pinned memory once, and use it again")),
    (r"cu(da)?(MallocManaged|MemAllocManaged).*",
     ("allocation", "allocating unified memory takes the host long", "allocate it once, and use it again")),
    (r"cu(da)?(Malloc|MemAlloc|MemCreate|Free|MemFree).*",
     ("allocation", "allocating and freeing wait for the GPU",
     "allocate once and use the memory again, or use cudaMallocAsync")),
    (r"cu(da)?Memcpy.*Async.*",
     ("pageable_copy", "a copy from pageable memory makes even this call wait", "pin the memory on the host")),
    (r"cu(da)?Memcpy.*",
     ("sync", "the call waits for the kernels before it, and returns when the copy is done",
     "use cudaMemcpyAsync from pinned memory, and copy less")),
    (r"cu(da)?GraphLaunch.*",
     ("launch_bound", "the program launches CUDA graphs; a call as long as its graph waits, because the queue is full",
     "")),
    (r"cu(da)?Launch.*",
     ("launch_bound", "a launch costs the host microseconds, and more if the queue is full",
     "launch fewer and longer kernels, or capture them in a CUDA graph")),
    (r"cu(Module|Library)(Load|GetFunction|Get).*|cuLink.*|cudaFuncGetAttributes.*|cudaGetFuncBySymbol.*",
     ("start_up", "the process loads or compiles its kernels there, once", "do not time the first step")),
    (r"cu(da)?(Set|Get|Init|DevicePrimary|CtxCreate|DeviceReset|GraphInstantiate|StreamCreate|EventCreate).*",
     ("start_up", "the process sets CUDA up there, once", "do not time the first step")),
    (r"(pthread_cond_.*wait|sem_.*wait|futex|poll|ppoll|select|pselect|epoll_wait|epoll_pwait|pthread_join|wait.*)",
     ("host_work", "threads sleep there until another thread or a device wakes them; idle helper threads always do",
     "look at what the busy thread does meanwhile")),
    (r"(nanosleep|usleep|sleep|clock_nanosleep|sched_yield)",
     ("host_work", "the program itself pauses there",
     "find the thread that sleeps")),
    (r"ioctl",
     ("start_up", "the driver works there: it sets up, maps memory or submits work",
     "do not time the set-up")),
    (r"(f?(open|close|read|write|sync|getc).*|p(read|write)v?|fgets|fputs|fflush|stat.*|recv.*|send.*)",
     ("storage", "the program uses files or sockets there", "read ahead in another thread, or in larger pieces")),
    (r"(mmap.*|munmap|madvise|mprotect|brk|sbrk|mremap)",
     ("host_work", "the process maps memory there",
     "keep buffers instead of mapping new ones")),
    (r"(pthread_mutex_lock|pthread_rwlock.*|pthread_spin.*)",
     ("host_work", "threads wait there for a lock", "hold it for less")),
    (r"(fork|vfork|exec.*|posix_spawn.*|system|popen|dlopen.*|pthread_create)",
     ("start_up", "processes, threads or libraries start",
     "do not time the start")),
)  # fmt: skip


def idle_gpu(
    gaps: pd.DataFrame, host: pd.DataFrame, clock: str, *, gpus: int = 1, idle_ns: pd.Series | None = None
) -> list[Claim]:  # fmt: skip
    """Return a finding if the GPU is busy for less than half of a step without a bare time, else [].

    Of a step with several instances, judge the one with the median idle share: the first one may set the program up.
    `idle_ns`: time in each row in which no step uses the GPU; without it, the time in which this one does not.

    A capture without steps counts as one step, and steps that only set the program up do not count. With several
    `gpus`, gaps.csv describes the busiest.
    Shape: `gaps` gaps.csv, `host` host.csv; `clock` is the tool that recorded the times.
    """
    judged = gaps[gaps["verdict"].astype(str).ne(SET_UP)]
    seen = judged[judged["bare_wall_ns"].isna() & judged["busy_ns"].notna() & judged["wall_ns"].notna()]
    known = seen["wall_ns"] - seen["busy_ns"] if idle_ns is None else idle_ns.reindex(seen.index)
    idle = known.astype(float)
    share_of = idle / seen["wall_ns"].astype(float).clip(lower=1.0)
    order = share_of.sort_values(kind="stable").index
    kinds = seen["step"].astype(str).str.replace(r"#\d+$", "", regex=True)
    usual = [rows[(len(rows) - 1) // 2] for rows in order.groupby(kinds.reindex(order)).values()]
    idle = idle[share_of > 1 - BUSY_FROM]
    usual_idle = idle[idle.index.isin(usual)]
    if usual_idle.empty:
        return []
    row = seen.loc[usual_idle.idxmax()]
    step, wall = str(row["step"]), float(row["wall_ns"])
    busy = wall - float(usual_idle.max())
    within = "the capture" if step == "capture" else step
    which = "GPU" if gpus < 2 else f"busiest of {gpus} GPUs"
    cells = [cell("gaps", {"step": step}, name, int(row[name])) for name in ("wall_ns", "busy_ns")]
    longest = [float(gap) for gap in str(row["largest_gaps_ns"] or "").split(";") if gap.strip().isdigit()]
    told = f" The longest pause is {duration(max(longest))}." if longest else ""
    told += f" The same holds for {len(idle)} of {count_of(len(seen), 'step')}." if len(seen) > 1 else ""
    told += _most_of_api(host, cells)
    return [
        Claim(
            kind="host_work",
            title=f"The {which} idles for {share(1 - busy / wall)} of {within}, as seen under {clock}",
            sentence=(
                f"It works for {duration(busy)} of {duration(wall)}.{told} "
                "A profiler adds idle time of its own, so this is a hint and no proof."
            ),
            do=f"Time the same work without a profiler: all time above {duration(busy)} is idle time.",
            confidence=Confidence.UNSURE,
            about=About(step=step),
            cells=tuple(cells),
            weight_ns=wall - busy,
        )
    ]


def _most_of_api(host: pd.DataFrame, cells: list[Cell]) -> str:
    """Return a sentence on the CUDA call with most time, and add what it cites to `cells`; "" without CUDA calls."""
    calls = host[host["source"] == CUDA]
    if calls.empty:
        return ""
    row = calls.iloc[0]
    cells.append(_host_cell(row, "host_time_ns"))
    return f" Among CUDA calls, the host spends most time in {row['call']}: {_time_in(row)}."


def _host_cell(row: Any, column: str) -> Cell:
    return cell("host", {"source": row["source"], "call": row["call"]}, column, int(row[column]))


def _time_in(row: Any) -> str:
    calls = "" if pd.isna(row["calls"]) else f" in {count_of(int(row['calls']), 'call')}"
    return f"{duration(float(row['host_time_ns']))}{calls}"


def host_waits(host: pd.DataFrame, *, most: int = MOST) -> list[Claim]:
    """Return findings on the calls in which the host spends most time, for each source the first 2 * `most`.

    Each says what time in the call means. Shape: `host` host.csv.
    """
    found = []
    for source, rows in host.groupby("source", sort=False):
        for _, row in rows.dropna(subset=["host_time_ns", "share_frac"]).head(2 * most).iterrows():
            meaning = explain_call(str(row["call"])) if source in (CUDA, SYSTEM) else None
            spread, headline = _spread(row)
            if float(row["share_frac"]) < LEAST_SHARE or not (meaning or spread):
                continue
            cells = [_host_cell(row, name) for name in ("host_time_ns", "calls", "longest_ns") if pd.notna(row[name])]
            told = f"{_time_in(row)}, {share(float(row['share_frac']))} of all time in {_plural(str(source))}."
            told = f"{told[0].upper()}{told[1:]}"
            once = _once(row) if meaning and meaning[0] == "allocation" else 0.0
            if meaning and once and once > ONE_CALL * float(row["host_time_ns"]) and int(row["calls"]) <= FEW:
                meaning = ("start_up", "the first call sets CUDA up, once", "")
            why = f" {_begin(meaning[1])}." if meaning else ""
            found.append(
                Claim(
                    kind=meaning[0] if meaning else "host_work",
                    title=f"{row['call']}: {meaning[1] if meaning else headline}",
                    sentence=f"{told}{spread}{why}",
                    do=f"{_begin(meaning[2])}." if meaning and meaning[2] else "",
                    about=About(call=str(row["call"]) if source == CUDA else ""),
                    cells=tuple(cells),
                    weight_ns=0.0 if meaning and meaning[0] == "start_up" else float(row["host_time_ns"]) - once,
                )
            )
    found.sort(key=lambda one: one.kind == "start_up")  # what happens once comes last
    return found


def _once(row: Any) -> float:
    """Return the time of the longest call, ns, if the others are shorter by far: the first one sets CUDA up."""
    calls, longest, total = int(row["calls"]), float(row["longest_ns"]), float(row["host_time_ns"])
    others = (total - longest) / max(calls - 1, 1)
    return longest if calls == 1 or longest > 20 * others else 0.0


def _plural(source: str) -> str:
    return {CUDA: "CUDA calls", SYSTEM: "calls of the operating system, summed over threads"}.get(source, "ranges")


def _begin(said: str) -> str:
    return f"{said[0].upper()}{said[1:]}"


def explain_call(name: str) -> tuple[str, str, str] | None:
    """Return the cause, what time in a call means, and what to do; None for an unknown call."""
    return next((told for pattern, told in _CALLS if re.fullmatch(pattern, name)), None)


def _spread(row: Any) -> tuple[str, str]:
    """Return a sentence and a headline on how the time is spread over the calls; empty if unknown or for one call."""
    if pd.isna(row["longest_ns"]) or pd.isna(row["calls"]) or not row["host_time_ns"]:
        return "", ""
    calls, longest, total = int(row["calls"]), float(row["longest_ns"]), float(row["host_time_ns"])
    if calls > 1 and longest > ONE_CALL * total:
        said = f" One call takes {duration(longest)} of that, and the others are short."
        return said, f"one of {count_of(calls, 'call')} is {share(longest / total)} of its time"
    if calls > 1:
        mean = total / calls
        return f" A call takes {duration(mean)} on average, the longest {duration(longest)}.", (
            f"{count_of(calls, 'call')} of {duration(mean)} on average"
        )
    return "", ""


# Ranges of a run without a GPU ------------------------------------------------------------------------------------


def cpu_ranges(
    cpu_times: pd.DataFrame, ranges: pd.DataFrame, ops: pd.DataFrame | None, *, recorded: str = ""
) -> list[Claim]:
    """Return findings on the ranges with most CPU time of their own, for a run without GPU operations; longest first.

    Shape: `cpu_times` cpu_times.csv; `ranges` and `ops` as in Capture. `recorded` is a sentence on which
    capture would show more, for a range about which nothing is known.
    """
    length = pd.Series(self_times(ranges), index=ranges.index, dtype="int64")
    lengths = (
        {str(path): of for path, of in length.groupby(fold_paths(ranges["path"]).to_numpy())} if len(ranges) else {}
    )
    found: list[Claim] = []
    for _, row in cpu_times.head(MOST).iterrows():
        part = float(row["share_frac"]) if pd.notna(row["share_frac"]) else 0.0
        headline, said = _of_calls(lengths.get(str(row["range"]), length.head(0)))
        rate_headline, rate = _rates(str(row["range"]), float(row["self_time_ns"]), int(row["calls"]), ops)
        headline = rate_headline or headline
        if found and (part < LEAST_SHARE or not headline):
            continue
        cells = [
            cell("cpu_times", {"range": row["range"]}, name, row[name])
            for name in ("self_time_ns", "calls", "share_frac")
            if pd.notna(row[name])
        ]
        takes = count_of(int(row["calls"]), "call takes", "calls take")
        told = f"{takes} {duration(float(row['self_time_ns']))}, {share(part)} of the CPU time in ranges."
        found.append(
            Claim(
                kind="host_work",
                title=f"{row['range']}: {headline or NOT_RECORDED}",
                sentence=" ".join(filter(None, (told, rate, said or (not rate and recorded) or ""))),
                about=About(ranges=(str(row["range"]),)),
                cells=tuple(cells),
                weight_ns=float(row["self_time_ns"]),
            )
        )
    return found


def _of_calls(lengths: pd.Series) -> tuple[str, str]:
    """Return a headline and a sentence on how the calls of a range differ; empty for fewer than FEW calls.

    Units: ns.
    """
    if len(lengths) < FEW:
        return "", ""
    median, longest = float(lengths.median()), float(lengths.max())
    first = bool(lengths.iloc[0] == lengths.max())
    if median and longest > FIRST_CALLS * median:
        which = "first" if first else "longest"
        cause = "it pays for a start" if first else "something else ran meanwhile, or its input was larger"
        return (
            f"its {which} call takes {longest / median:,.0f} times the median",
            f"The {which} call takes {duration(longest)}, the median call {duration(median)}: {cause}.",
        )
    return (
        f"{count_of(len(lengths), 'call')} of {duration(median)}, none much longer",
        f"All calls take about as long (median {duration(median)}, longest {duration(longest)}): steady work.",
    )


def _rates(path: str, time_ns: float, calls: int, ops: pd.DataFrame | None) -> tuple[str, str]:
    """Return a headline and a sentence on the FLOP/s and byte/s of a range; empty if ops.csv does not declare it."""
    if ops is None or not time_ns:
        return "", ""
    declared = ops[fold_paths(ops["range"].astype(str)) == path]
    flops, moved = declared["flops"].sum(), declared["minimum_bytes"].sum()
    if declared.empty or not (flops > 0 or moved > 0):
        return "", ""
    repeats = calls / len(declared)
    rates = [(flops * repeats / time_ns, "GFLOP/s"), (moved * repeats / time_ns, "GB/s")]
    named = " and ".join(f"{rate:.3g} {unit}" for rate, unit in rates if rate > 0)
    return f"runs at {named}", f"With the FLOPs and bytes of ops.csv, it runs at {named}."
