"""Find calls in which the host waits, and the ranges that take most time in a run without a GPU."""

import re
from typing import Any

import pandas as pd

from analysis.diagnosis.claims import Claim, cell
from analysis.formats.report import Cell
from analysis.formats.words import begin, count_of, duration, share
from analysis.tables.attribution import fold_paths
from analysis.tables.cpu_times import self_times
from analysis.tables.host import CUDA, SYSTEM

FIRST_CALLS = 3.0  # times the median: a longer first call pays for a start
ONE_CALL = 0.5  # of the time of all calls: a longer single call gets a sentence
FEW = 3  # fewer calls show no pattern
LEAST_SHARE = 0.01
MOST = 3
LAUNCHES = "launching costs more than computing"
ALLOCATING = "allocating and freeing wait for the GPU"
ALMOST_ALL = 0.9  # of the time of all calls: the first call that takes it sets CUDA up, however many follow
MANY_COPIES, SHORT_NS = 1_000, 20_000  # calls of cudaMemcpy that are shorter: starting them takes their time
SLEEPING = "threads sleep there until another thread or a device wakes them; idle helper threads always do"
RECORD = "Record what works meanwhile: `nsys profile --trace=cuda,nvtx,osrt --sample=process-tree APP`."
OWN_CODE = "the time outside the ranges in it"
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
     ("allocation", ALLOCATING,
     "allocate once and use the memory again, or use cudaMallocAsync")),
    (r"cu(da)?Memcpy.*Async.*",
     ("pageable_copy", "a copy from pageable memory may make even this call wait",
     "pin the memory on the host, if it is pageable")),
    (r"cu(da)?Memcpy.*",
     ("sync", "the call waits for the kernels before it, and returns when the copy is done",
     "use cudaMemcpyAsync from pinned memory, and copy less")),
    (r"cu(da)?GraphLaunch.*",
     ("launch_bound", "it launches CUDA graphs; a call as long as its graph waits for room in the queue",
     "")),
    (r"cu(da)?Launch.*",
     ("launch_bound", LAUNCHES,
     "launch fewer and longer kernels, or capture them in a CUDA graph")),
    (r"cu(Module|Library)(Load|GetFunction|Get).*|cuLink.*|cudaFuncGetAttributes.*|cudaGetFuncBySymbol.*",
     ("start_up", "the process loads or compiles its kernels there, once", "do not time the first step")),
    (r"cu(da)?(Set|Get|Init|DevicePrimary|CtxCreate|DeviceReset|GraphInstantiate|StreamCreate|EventCreate).*",
     ("start_up", "the process sets CUDA up there, once", "do not time the first step")),
    (r"(pthread_cond_.*wait|sem_.*wait|futex|poll|ppoll|select|pselect|epoll_wait|epoll_pwait|pthread_join|wait.*)",
     ("host_work", SLEEPING,
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


_SETS_UP = re.compile(r"cu(da)?(MemcpyToSymbol|Launch.*Kernel|Memset).*")  # as the first call of a program
_SHORT_COPIES = (
    "small_copies", "many short copies, so starting them takes the time",
    "combine the copies, or let one kernel move the data",
)  # fmt: skip
_NOT_COMPARED = (
    "unknown", "the times of the kernels were not recorded", "add the report cuda_gpu_trace of `nsys stats`"
)  # fmt: skip


def _host_cell(row: Any, column: str) -> Cell:
    return cell("host", {"source": row["source"], "call": row["call"]}, column, int(row[column]))


def _time_in(row: Any) -> str:
    calls = "" if pd.isna(row["calls"]) else f" in {count_of(int(row['calls']), 'call')}"
    return f"{duration(float(row['host_time_ns']))}{calls}"


def host_waits(host: pd.DataFrame, *, most: int = MOST, computed: bool = True) -> list[Claim]:
    """Return findings on the calls in which the host spends most time, for each source the first 2 * `most`.

    Each says what time in the call means. `computed`: the times of kernels are known, so that launches can be compared
    with them. Shape: `host` host.csv.
    """
    awake: list[Claim] = []
    asleep: list[Claim] = []
    for source, rows in host.groupby("source", sort=False):
        known = rows.dropna(subset=["host_time_ns", "share_frac"]).head(2 * most)
        looped = known[[source == CUDA and _allocates(row) for _, row in known.iterrows()]]
        if len(looped) > 1:
            awake.append(_of_loop(looped))
        for _, row in known.drop(looped.index if len(looped) > 1 else []).iterrows():
            meaning = explain_call(str(row["call"])) if source in (CUDA, SYSTEM) else None
            spread, headline = _spread(row)
            if float(row["share_frac"]) < LEAST_SHARE or not (meaning or spread):
                continue
            cells = [_host_cell(row, name) for name in ("host_time_ns", "calls", "longest_ns") if pd.notna(row[name])]
            told = f"{_time_in(row)}, {share(float(row['share_frac']))} of all time in {_plural(str(source))}."
            told = begin(told)
            once = _once(row) if meaning and (meaning[0] == "allocation" or _SETS_UP.fullmatch(row["call"])) else 0.0
            if meaning and once and (int(row["calls"]) <= FEW or once >= ALMOST_ALL * float(row["host_time_ns"])):
                meaning = ("start_up", "the first call sets CUDA up, once", "")
            elif meaning and _many_short(row):
                meaning = _SHORT_COPIES
            elif meaning and meaning[1] == LAUNCHES and not computed:
                meaning = _NOT_COMPARED
            sleeps = meaning is not None and meaning[1] == SLEEPING
            idle = sleeps or (meaning is not None and meaning[0] == "start_up")
            (asleep if sleeps else awake).append(
                Claim(
                    kind=meaning[0] if meaning else "host_work",
                    title=f"{row['call']}: {meaning[1] if meaning else headline}",
                    sentence=f"{told}{spread}",
                    do=f"{begin(meaning[2])}." if meaning and meaning[2] else "",
                    cells=tuple(cells),
                    weight_ns=0.0 if idle else float(row["host_time_ns"]) - once,
                )
            )
    awake.sort(key=lambda one: one.kind == "start_up")  # what happens once comes last
    return awake or ([_asleep(asleep)] if asleep else [])


def _asleep(found: list[Claim]) -> Claim:
    """Return one finding in place of those on calls in which threads sleep, where nothing else is known."""
    waits = " ".join(one.sentence for one in found)
    names = " and ".join(str(one.cells[0].row["call"]) for one in found)
    return Claim(
        kind="nothing", title=f"Nothing here limits the program: threads sleep in {names}",
        sentence=f"{waits} {begin(SLEEPING)}. What the program does meanwhile is not in the file.", do=RECORD,
        cells=tuple(item for one in found for item in one.cells), weight_ns=0.0,
    )  # fmt: skip


def _allocates(row: Any) -> bool:
    """Return whether a call allocates or frees device memory again and again."""
    meaning = explain_call(str(row["call"]))
    counted = pd.notna(row["calls"]) and pd.notna(row["longest_ns"]) and float(row["share_frac"]) >= LEAST_SHARE
    return bool(meaning and meaning[1] == ALLOCATING and counted and int(row["calls"]) > FEW)


def _of_loop(rows: pd.DataFrame) -> Claim:
    """Return one finding on the calls that allocate and free in the loop, without a first one that sets CUDA up."""
    parts, cells, total = [], list[Cell](), 0.0
    for _, row in rows.sort_values("longest_ns", kind="stable").iterrows():
        once = _once(row)
        time, calls = float(row["host_time_ns"]) - once, int(row["calls"]) - (once > 0)
        without = f" without the first one, which takes {duration(once)} to set CUDA up, once" if once else ""
        each = duration(time / calls)
        parts.append(f"{row['call']} takes {duration(time)} in {count_of(calls, 'call')} of {each} on average{without}")
        cells += [_host_cell(row, name) for name in ("host_time_ns", "calls", "longest_ns")]
        total += time
    names = " and ".join(str(row["call"]) for _, row in rows.sort_values("longest_ns", kind="stable").iterrows())
    meaning = explain_call(str(rows["call"].iloc[0]))
    assert meaning is not None
    return Claim(
        kind="allocation", title=f"{names}: {meaning[1]}",
        sentence=f"{'; '.join(parts)}: {duration(total)} in all. {begin(meaning[1])}.",
        do=f"{begin(meaning[2])}.", cells=tuple(cells), weight_ns=total,
    )  # fmt: skip


def _many_short(row: Any) -> bool:
    """Return whether a row is of many blocking copies, each too short for the bytes or the wait to count."""
    calls = 0 if pd.isna(row["calls"]) else int(row["calls"])
    return (
        calls >= MANY_COPIES
        and float(row["host_time_ns"]) / calls < SHORT_NS
        and re.fullmatch(r"cu(da)?Memcpy.*", str(row["call"])) is not None
    )


def _once(row: Any) -> float:
    """Return the time of the longest call, ns, if the others are shorter by far: the first one sets CUDA up."""
    if pd.isna(row["calls"]) or pd.isna(row["longest_ns"]):
        return 0.0
    calls, longest, total = int(row["calls"]), float(row["longest_ns"]), float(row["host_time_ns"])
    others = (total - longest) / max(calls - 1, 1)
    return longest if longest > 20 * others else 0.0


def _plural(source: str) -> str:
    return {CUDA: "CUDA calls", SYSTEM: "calls of the operating system, summed over threads"}.get(source, "ranges")


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
        if not headline and cpu_times["range"].astype(str).str.startswith(f"{row['range']}/").any():
            headline, said = OWN_CODE, "That is its own code between the ranges in it, such as Python's."
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
