"""Explain the time of a kernel with the available tables, the strongest reason first.

A reason is a headline, a clause with its numbers, and the cells with these numbers. Each kernel is judged over all its
ranges: several rows of one kernel are weighted by their time, or the longest one counts.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from analysis.diagnosis.claims import cell
from analysis.diagnosis.evidence import count
from analysis.diagnosis.vocabulary import cure, do
from analysis.formats import symbols
from analysis.formats.collectives import communicates
from analysis.formats.report import Cell, kinds
from analysis.formats.words import begin, count_of, duration, share
from analysis.hardware.metrics import of_8_bits
from analysis.tables.stalls import NOT_WAITING

Tables = Mapping[str, pd.DataFrame]
Row = dict[str, Any]  # a row of a table, None for a blank cell
Cells = list[Cell]

LEAST_SPEEDUP = 0.05  # the least estimate of ncu for a headline
NEAR_ROOF = 0.8
FAR_ROOF = 0.1  # below, the roof does not limit the kernel, so the distance to it is no saving
BUSY = 0.6  # of its peak: a busier unit limits the kernel; otherwise the kernel waits for something else
IMPOSSIBLE = 1.5  # of a peak: data from L2 and clocks above that of the datasheet explain less
NEAR_PEAK = 0.8  # from here on ncu too calls a unit well used: little is left to win at the same amount of work
# a launch costs the host some microseconds, which counts beside a kernel shorter than this
SHORT_NS = 10_000
TINY_NS = 3_750  # a launch and the latency of one access take this long (judge.FEW_LAUNCHES): nothing inside it counts
FEW_SMS = 0.75  # of the GPU's SMs: with fewer blocks, many SMs are idle
FEW_BLOCKS = 8  # fewer than the SMs of any data-centre GPU
MANY_REGISTERS = 128
FULL_OCCUPANCY = 0.85  # of an SM's warps: more warps can hardly hide more latency
MANY_SPILLS = 0.1  # of the requests of local memory
MANY_SECTORS = 17  # a load of 128 bits per thread needs 16
FEW_THREADS = 20
MANY_CONFLICTS = 8  # a warp: with so many further passes, conflicts are no accident
CONFLICTS = {"bank_conflicts_load": "loads", "bank_conflicts_store": "stores", "bank_conflicts_atomic": "atomics"}
SM_REGISTERS = 65_536  # of all architectures since Maxwell
WARP = 32
# Stall reason -> what the warp waits for, in shortened words of ncu's documentation.
STALLS = {
    "long_scoreboard": "for data of global or local memory",
    "short_scoreboard": "for shared memory or special functions",
    "mio_throttle": "for the queue of shared memory and special functions",
    "lg_throttle": "for the queue of global and local memory",
    "tex_throttle": "for the queue of textures",
    "math_pipe_throttle": "for a busy arithmetic pipe",
    "wait": "for the fixed latency of an instruction before",
    "barrier": "at a barrier of their block",
    "membar": "for a memory barrier",
    "drain": "for stores to leave at the end",
    "imc_miss": "for constants that are not cached",
    "no_instruction": "for instructions to be fetched",
    "branch_resolving": "for the target of a branch",
    "dispatch_stall": "for the dispatcher",
    "sleeping": "asleep by their own instruction",
    "gmma": "for the tensor cores",
}


@dataclass(frozen=True)
class Reason:
    """`headline` follows the kernel's name, `said` is a sentence without its full stop; `do` is what to do, or "".

    `kind`: the cause, of kinds.toml; `of_time`: whether it depends on the kernel's duration.
    """

    kind: str
    headline: str
    said: str
    do: str = ""
    cells: Cells = field(default_factory=list)
    of_time: bool = False


@dataclass(frozen=True)
class Kernel:
    """One kernel with its rows by table. `time_ns` is the sum over all its launches; `sm_count` is None if unknown."""

    name: str
    launches: int
    time_ns: float
    rows: Mapping[str, list[Row]]
    sm_count: int | None = None
    library: str = "cuda"  # that launches most of the program's GPU time
    tf32: bool = True  # whether the GPU has it

    @property
    def mean_ns(self) -> float:
        return self.time_ns / max(self.launches, 1)


def rows_of(table: pd.DataFrame) -> list[Row]:
    """Return the rows of a table as plain values: for the few rows of a kernel, pandas is slower than Python."""
    names = list(table.columns)
    columns = [_plain(table[name]) for name in names] if len(table) else []
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _plain(column: pd.Series) -> list[Any]:
    """Return the values of a column, None where it has none."""
    return [None if missing else value for value, missing in zip(column.tolist(), column.isna(), strict=True)]


def _digits(value: float) -> float:
    """Round to the digits of the tables."""
    return float(f"{value:.6g}")


def reasons(kernel: Kernel) -> Iterator[Reason]:
    """Yield every known reason for the kernel's time, the strongest first; only the first one says to compute less."""
    computes = False
    looks = (_short,) if 0 < kernel.mean_ns < TINY_NS else _LOOKS
    wrong = _impossible(kernel)
    if wrong:
        yield wrong
        looks = tuple(look for look in looks if look not in (_near, _roof, _throughput))
    for look in looks:
        found = look(kernel)
        if found:
            inside = kinds()[found.kind]["part"] == "kernel" and symbols.is_closed(kernel.name)
            again = computes and found.kind == "compute_roof"
            computes |= found.kind == "compute_roof" or (look is _near and found.kind == "unknown")  # the tensor cores
            yield replace(found, do="" if again else cure(found.kind, kernel.name)) if inside or again else found


def place(row: Any) -> dict[str, Any]:
    """Return the columns that name a row of a table of kernels."""
    return {name: row[name] for name in ("kernel", "range") if row[name] is not None}


# The subjects of ncu's rules, in our words; rules.csv has ncu's own.
_RULES = {
    "TheoreticalOccupancy": "its registers, shared memory or block size allow few resident warps",
    "AchievedOccupancy": "fewer warps are resident than fit: the blocks are few, or end at different times",
    "Occupancy": "few warps are resident",
    "IssueSlotUtilization": "the schedulers often find no warp that is ready",
    "CPIStall": "its warps wait long between two instructions",
    "HighPipeUtilization": "one pipe is busy or none is",
    "LaunchConfiguration": "grid or block do not fit the GPU",
    "SMLaunchConfiguration": "grid or block do not fit the GPU",
    "WorkloadImbalance": "some SMs work longer than others",
    "MemoryCacheAccessPattern": "it uses only a part of what its memory accesses fetch",
    "UncoalescedGlobalAccess": "the threads of a warp access global memory at addresses far apart",
    "UncoalescedSharedAccess": "accesses of a warp to shared memory take several passes",
    "SharedMemoryConflicts": "accesses to shared memory hit the same banks",
    "ThreadDivergence": "threads of a warp take different branches",
    "FPInstructions": "multiplications and additions are not fused",
    "SlowPipeLimiter": "a slow pipe limits it",
}
# Headlines for the rule without an estimate that names the bottleneck, by words of its text.
_BOTTLENECKS = (
    (
        "low compute throughput and memory",
        "neither memory nor arithmetic is busy, so it waits: for latency, or for work",
    ),
    ("Memory is more heavily", "memory is busier than arithmetic"),
    ("Compute is more heavily", "arithmetic is busier than memory"),
    ("balanced", "memory and arithmetic are equally busy"),
    ("utilizing greater than 80", "it uses more than 80% of what the GPU has"),
)


# Column of units.csv -> the unit, and what makes a kernel faster that is near to its peak.
_UNITS = {
    "dram_busy_frac": ("DRAM is", "fewer bytes"),
    "l2_busy_frac": ("L2 is", "fewer bytes between L2 and the SMs (tiles in shared memory, neighbouring addresses)"),
    "l1_busy_frac": ("L1, which holds shared memory, is", "fewer or wider accesses of L1 and shared memory"),
    "sm_busy_frac": ("the SMs are", "fewer or cheaper instructions"),
    "tensor_busy_frac": ("the tensor cores are", "fewer or cheaper operations (a smaller data type)"),
}


def busiest(kernel: Kernel) -> tuple[Row, str, float] | None:
    """Return the row of units.csv, the column of the busiest unit and its share of its peak; None if it is unknown."""
    row = next(iter(kernel.rows["units"]), None)
    known = {name: float(row[name]) for name in _UNITS if row and row[name] is not None}
    if not row or not known:
        return None
    name = max(known, key=lambda one: known[one])
    if name == "sm_busy_frac" and known.get("tensor_busy_frac", 0.0) >= BUSY:
        name = "tensor_busy_frac"  # one pipe of the SMs
    return row, name, known[name]


def _impossible(kernel: Kernel) -> Reason | None:
    """Return a share of a peak that no GPU reaches: then a counter or the duration is wrong, or those of other GPUs."""
    for table, names in (
        ("units", _UNITS),
        ("counters", (*_MEMORY, "sm_throughput_frac")),
        ("roofline", ("roof_frac", "bandwidth_frac")),
    ):
        for row in kernel.rows.get(table, ()):
            name = next((one for one in names if (row.get(one) or 0.0) > IMPOSSIBLE), None)
            if name is None:
                continue
            unit = "it is" if table == "roofline" else _UNITS.get(name, (f"{name} is",))[0]
            of = f"the {nearest_roof(row)} limit" if table == "roofline" else "its peak"
            said = f"by its counters, {unit} at {share(float(row[name]))} of {of}, which no GPU reaches"
            where = {**place(row), "level": row["level"]} if table == "roofline" else place(row)
            return Reason(
                "unknown",
                "its counters contradict each other",
                f"{said}: its counts, its duration (gpu__time_duration.sum) or the name of the GPU is wrong",
                "Capture it again, in one run of ncu.",
                [cell(table, where, name, _digits(float(row[name])))],
            )
    return None


def _on_tensor_cores(kernel: Kernel) -> bool:
    """Return whether the tensor cores are busy: few warps with many registers are the design of such a kernel."""
    return any((row["tensor_busy_frac"] or 0.0) >= BUSY for row in kernel.rows["units"][:1])


def _spills(kernel: Kernel) -> Reason | None:
    """Return the share of the requests of local memory that only spill registers."""
    row = next(iter(kernel.rows["units"]), None)
    if not row or not row["spill_requests"] or (row["spill_frac"] or 0.0) < MANY_SPILLS:
        return None
    part, requests = float(row["spill_frac"]), int(row["spill_requests"])
    beside = f", with {int(row['registers'])} registers a thread" if row["registers"] is not None else ""
    shown = [name for name in ("spill_requests", "spill_frac", "registers") if row[name] is not None]
    return Reason(
        "register_spills",
        f"registers are spilled: {share(part)} of its requests of local memory",
        f"{requests:,} requests of local memory spill registers, {share(part)} of its requests{beside}",
        kinds()["register_spills"]["cure"],
        [cell("units", place(row), name, row[name]) for name in shown],
    )


def _near(kernel: Kernel) -> Reason | None:
    """Return the unit near its peak: what another rule says of a part of the kernel wins little beside it."""
    found = busiest(kernel)
    if found is None:
        return None
    row, name, frac = found
    if frac < (BUSY if name == "tensor_busy_frac" else NEAR_PEAK):
        return None
    unit, remedy = _UNITS[name]
    if name == "tensor_busy_frac" and of_8_bits(kernel.name):
        remedy = "fewer operations"
    others = [one for one in ("dram_busy_frac", "l2_busy_frac", "sm_busy_frac") if one != name and row[one] is not None]
    beside = ", ".join(f"{_UNITS[one][0].rsplit(' ', 1)[0]} at {share(float(row[one]))}" for one in others)
    is_near = frac >= NEAR_PEAK
    return Reason(
        (
            "unknown"
            if not is_near
            else "compute_roof"
            if name in ("sm_busy_frac", "tensor_busy_frac")
            else "memory_roof"
        ),
        f"{unit} busy at {share(frac)}",
        f"{unit} at {share(frac)} of {'their' if unit.endswith('are') else 'its'} peak{', ' if beside else ''}{beside}",
        f"Only {remedy} make it much faster." if is_near else f"{begin(remedy)} make it faster.",
        [cell("units", place(row), one, _digits(float(row[one]))) for one in (name, *others)],
    )


def _rule(kernel: Kernel) -> Reason | None:
    """Return the rule of ncu with the largest estimate; near the peak of a unit, only one of the whole kernel."""
    rules = [row for row in kernel.rows["rules"] if row["type"] in ("OPT", "WRN") and row["speedup_frac"] is not None]
    if _near(kernel):
        rules = [row for row in rules if row["speedup_type"] != "local"]
    if any(row["occupancy_achieved_frac"] and not row["occupancy_theoretical_frac"] for row in kernel.rows["kernels"]):
        rules = [row for row in rules if row["rule"] != "TheoreticalOccupancy"]  # ncu could not place its blocks
    row = max(rules, key=lambda row: float(row["speedup_frac"]), default=None)
    if row is None or row["speedup_frac"] < LEAST_SPEEDUP:
        return None
    estimate, name = float(row["speedup_frac"]), str(row["rule"])
    of = " of the part that it looks at" if row["speedup_type"] == "local" else ""
    why = f": {_RULES[name]}" if name in _RULES else "; rules.csv has the reason"
    return Reason(
        "unknown",
        f"ncu's rule {name} estimates {share(estimate)}",
        f"ncu's rule {name} estimates a speed-up of {share(estimate)}{of}{why}",
        "",
        [cell("rules", place(row), "speedup_frac", estimate)],
    )


def _bottleneck(kernel: Kernel) -> Reason | None:
    """Return the busiest part of the GPU, from the rule of ncu that gives no estimate."""
    for row in kernel.rows["rules"]:
        if row["rule"] != "SOLBottleneck":
            continue
        said = next((ours for theirs, ours in _BOTTLENECKS if theirs in str(row["text"])), None)
        if said:
            cells = [cell("rules", place(row), "launches", int(row["launches"]))]
            return Reason("unknown", said, f"by ncu's rule SOLBottleneck {said}", "", cells)
    return None


def _roof(kernel: Kernel) -> Reason | None:
    """Return the kernel's share of the nearest roof; of a bandwidth if its FLOPs are unknown and it is near to it."""
    named = "roof_frac"
    roofline = [row for row in kernel.rows["roofline"] if row[named] is not None]
    if not roofline:
        named = "bandwidth_frac"
        roofline = [row for row in kernel.rows["roofline"] if (row[named] or 0) >= NEAR_ROOF]
    if not roofline:
        return None
    row = sorted(roofline, key=lambda row: float(row[named]))[-1]
    frac = float(row[named])
    roof = nearest_roof(row)
    headline = f"reaches {share(frac)} of the {roof} limit"
    near = frac >= NEAR_ROOF
    told = "it is near that limit" if near else f"a faster kernel could save up to {share(1 - frac)} of its time"
    if frac < FAR_ROOF:
        told = "it is far from that limit"
    kind = "compute_roof" if row["bound"] == "compute" else "memory_roof"
    return Reason(
        kind if near else "unknown",
        headline,
        f"it reaches {share(frac)} of the {roof} limit: {told}",
        f"{kinds()[kind]['cure']}" if near else "",
        [cell("roofline", {**place(row), "level": row["level"]}, named, _digits(frac))],
    )


def nearest_roof(row: Row | pd.Series) -> str:
    """Return the roof of a roofline row in words."""
    roof = "compute" if row["bound"] == "compute" else f"{str(row['level']).upper()} bandwidth"
    return f"datasheet's {roof}" if row.get("roof_from") == "datasheet" else roof


def _sizes(row: Row) -> tuple[int, int] | None:
    """Return the blocks of a grid and the threads of a block; None if they are not known."""
    if "x" not in str(row["grid"]) or "x" not in str(row["block"]):
        return None
    blocks, threads = count(str(row["grid"])), count(str(row["block"]))
    return (int(blocks), int(threads)) if blocks * threads > 0 else None


def _shape(kernel: Kernel) -> Reason | None:
    """Return a grid with fewer blocks than the GPU has SMs, or a block with less than a warp, in most of its time."""
    row, sizes = next(((row, sizes) for row in kernel.rows["kernels"] if (sizes := _sizes(row))), (None, None))
    if row is None or sizes is None or communicates(kernel.name):  # a collective takes as few SMs as it can
        return None
    blocks, threads = sizes
    cells = [cell("kernels", place(row), name, str(row[name])) for name in ("grid", "block")]
    if blocks < (FEW_SMS * kernel.sm_count if kernel.sm_count else FEW_BLOCKS):
        of = f" of the GPU's {kernel.sm_count}" if kernel.sm_count else ""
        return Reason(
            "grid_too_small",
            f"its grid of {count_of(blocks, 'block')} leaves SMs without work",
            f"its grid of {count_of(blocks, 'block')} gives work to at most {count_of(blocks, 'SM')}{of}",
            "Split the work over more blocks.",
            cells,
        )
    if threads < WARP:
        return Reason(
            "occupancy_block_size",
            f"its blocks of {count_of(threads, 'thread')} leave lanes idle",
            f"a block of {count_of(threads, 'thread')} fills {threads} of the {WARP} lanes of its warp",
            "Use blocks of a multiple of 32 threads.",
            cells,
        )
    return None


def _throughput(kernel: Kernel) -> Reason | None:
    """Return the throughput of memory and arithmetic, relative to their peaks, if no unit is near its peak."""
    if _near(kernel) or _spills(kernel):
        return None
    row = next((row for row in kernel.rows["counters"] if row["sm_throughput_frac"] is not None), None)
    memory = next((name for name in _MEMORY if row and row[name] is not None), None)
    if row is None or memory is None:
        return None
    moved, computed = float(row[memory]), float(row["sm_throughput_frac"])
    cells = [cell("counters", place(row), name, _digits(float(row[name]))) for name in (memory, "sm_throughput_frac")]
    what = "DRAM" if memory.startswith("dram") else "the memory system"
    both = f"{what} is at {share(moved)} of its peak and the SMs at {share(computed)}"
    if max(moved, computed) < BUSY and _ADDS.search(kernel.name) and not symbols.is_closed(kernel.name):
        return Reason(
            "global_atomics_one_address",
            f"probably atomics to few addresses: memory is busy at {share(moved)}, the SMs at {share(computed)}",
            f"{both}: by its name it does atomics, and those to one address run one after the other",
            "Reduce in a block first, then do one atomic a block.",
            cells,
        )
    if max(moved, computed) < BUSY:
        return Reason(
            "unknown",
            f"neither memory nor the SMs are busy ({share(moved)}, {share(computed)})",
            f"{both}: it waits, for latency or for work",
            ""
            if symbols.is_closed(kernel.name)
            else "Give each warp more independent work: most warps that fit are resident."
            if (row["occupancy_achieved_frac"] or 0.0) >= FULL_OCCUPANCY
            else "Give it more warps or more independent work.",
            cells,
        )
    busy, remedy = (what, "fewer bytes") if moved >= computed else ("the SMs", "fewer or cheaper instructions")
    is_near = max(moved, computed) >= NEAR_PEAK
    told = f"Only {remedy} make it much faster." if is_near else f"{remedy} make it faster, or more independent work."
    verb = "are" if busy == "the SMs" else "is"
    kind = "unknown" if not is_near else "memory_roof" if moved >= computed else "compute_roof"
    headline = f"{busy} {verb} busy at {share(max(moved, computed))}"
    return Reason(kind, headline, both, begin(told), cells)


_MEMORY = ("dram_throughput_frac", "memory_throughput_frac")
_ADDS = re.compile(r"atomic(?!s?_?free)|histogram", re.IGNORECASE)  # a reduction may do without atomics


def _access(kernel: Kernel) -> Reason | None:
    """Return the reason: loads of scattered addresses, or warps with few active threads; None for neither."""
    if not kernel.rows["counters"]:
        return None
    row = kernel.rows["counters"][0]
    sectors, threads = row["sectors_per_request_load"], row["threads_per_inst"]
    if sectors is not None and float(sectors) > MANY_SECTORS:
        cells = [cell("counters", place(row), "sectors_per_request_load", round(float(sectors), 2))]
        read = f"a load of a warp touches {float(sectors):.1f} sectors"
        return Reason(
            "uncoalesced_loads",
            f"{read}, and 4 to 16 are enough",
            f"{read}, but loads of neighbouring addresses need 4 to 16: it is not coalesced",
            kinds()["uncoalesced_loads"]["cure"],
            cells,
        )
    if threads is not None and float(threads) < FEW_THREADS:
        cells = [cell("counters", place(row), "threads_per_inst", round(float(threads), 2))]
        told = f"{float(threads):.1f} of a warp's {WARP} threads are active"
        said = f"on average {told}: the others take another branch, or have nothing to do"
        return Reason("divergence", told, said, kinds()["divergence"]["cure"], cells)
    return None


def _conflicts(kernel: Kernel) -> Reason | None:
    """Return many bank conflicts a warp, where no counter tells the passes of an access."""
    of, sizes = next(((of, sizes) for of in kernel.rows["kernels"] if (sizes := _sizes(of))), (None, None))
    row = next(iter(kernel.rows.get("conflicts", ())), {})
    counted = {name: float(row[name]) for name in CONFLICTS if row.get(name)}
    if of is None or sizes is None or not counted or row.get("shared_ways_load") is not None:
        return None
    warps = sizes[0] * -(-sizes[1] // WARP)
    each = sum(counted.values()) / warps
    if each < MANY_CONFLICTS:
        return None
    most = max(counted, key=counted.__getitem__)
    told = f"{sum(counted.values()):,.0f} bank conflicts in shared memory, {each:,.0f} a warp"
    return Reason(
        "shared_bank_conflicts",
        told,
        f"{told}, most of them of {CONFLICTS[most]}: lanes of a warp access different words of one bank",
        kinds()["shared_bank_conflicts"]["cure"],
        [cell("kernels", place(of), name, str(of[name])) for name in ("grid", "block")],
    )


def _stall(kernel: Kernel) -> Reason | None:
    """Return the stall reason of most of its warps."""
    # the longest range comes first, and in it the largest share
    row = next((row for row in kernel.rows["stalls"] if row["reason"] not in NOT_WAITING), None)
    if row is None:
        return None
    reason, frac = str(row["reason"]), float(row["share_frac"])
    known = STALLS.get(reason.removesuffix("_not_issued"))
    told = f"its warps wait {known} ({reason})" if known else f"the largest of its stalls is {reason}"
    return Reason(
        "unknown",
        f"{share(frac)} of its stalls are {reason}",
        f"{told}: {share(frac)} of its stalls",
        "",
        [cell("stalls", {**place(row), "reason": reason}, "share_frac", _digits(frac))],
    )


def _line(kernel: Kernel) -> Reason | None:
    """Return the kernel's hottest source line."""
    row = max(kernel.rows["source"], key=lambda row: float(row["share_frac"]), default=None)
    if row is None:
        return None
    frac = float(row["share_frac"])
    waits = f", most of them {row['stall']}" if row["stall"] else ""
    return Reason(
        "unknown",
        f"{share(frac)} of its samples are at {row['place']}",
        f"{share(frac)} of its samples are at {row['place']}{waits}",
        "",
        [
            cell(
                "source",
                {"kernel": row["kernel"], "place": row["place"]},
                "share_frac",
                _digits(frac),
            )
        ],
    )


def _occupancy(kernel: Kernel) -> Reason | None:
    """Few resident warps, as ncu computed or measured."""
    if _on_tensor_cores(kernel):
        return None
    row = next((row for row in kernel.rows["kernels"] if row["occupancy_theoretical_frac"] is not None), None)
    if row is None:
        return None
    most, seen = float(row["occupancy_theoretical_frac"]), row["occupancy_achieved_frac"]
    cells = [cell("kernels", place(row), "occupancy_theoretical_frac", _digits(most))]
    if most <= 0.5:
        known = kernel.rows["counters"]
        limiter = (known[0]["occupancy_limiter"] or "") if known else ""
        registers = "" if row["registers"] is None else f", with {int(row['registers'])} registers a thread"
        registers += f"; the limit is {limiter}" if limiter else ""
        said = f"its resources allow {share(most)} of an SM's warps at a time{registers}"
        kind = {"registers": "occupancy_registers", "shared": "occupancy_shared"}.get(limiter.split(" ")[0], "unknown")
        cure = "" if kind == "unknown" else kinds()[kind]["cure"]
        return Reason(kind, f"occupancy of {share(most)} at most", said, cure, cells)
    if seen is not None and float(seen) < 0.6 * most:
        cells.append(cell("kernels", place(row), "occupancy_achieved_frac", _digits(float(seen))))
        said = f"{share(float(seen))} of an SM's warps are resident although {share(most)} fit: its blocks are few or "
        told = f"{said}end at different times"
        return Reason("uneven_blocks", f"{share(float(seen))} occupancy of {share(most)}", told, "", cells)
    return None


# Products for Hopper and Blackwell: a few warps start asynchronous copies (TMA), which hide latency in place of warps.
_ASYNCHRONOUS = re.compile(r"nvjet_sm\d+|wgmma|warpspecialized|sm(90|100|103|120)_xmma_gemm", re.IGNORECASE)


# Products on tensor cores by their names: few warps with many registers are their design.
_TENSOR = re.compile(r"(?<![a-z])[shid]\d{4,5}gemm|tensorop|wmma|[hi]mma|f16f16_f\d+f\d+_|_s\d{4,5}_", re.IGNORECASE)


def _registers(kernel: Kernel) -> Reason | None:
    """So many registers that few warps fit, fewer than the grid has for an SM: known from a trace without counters."""
    if _ASYNCHRONOUS.search(kernel.name) or _TENSOR.search(kernel.name):
        return None
    traced = (row for row in kernel.rows["kernels"] if row["occupancy_theoretical_frac"] is None)
    row = next((row for row in traced if row["registers"] is not None), None)
    if row is None or int(row["registers"]) < MANY_REGISTERS:
        return None
    registers = int(row["registers"])
    warps, whole = SM_REGISTERS // (WARP * -(-registers // 8) * 8), ""
    if sizes := _sizes(row):
        blocks, threads = sizes
        each = -(-threads // WARP)
        if kernel.sm_count and -(-blocks // kernel.sm_count) * each <= warps:
            return None  # all warps that the grid gives an SM fit
        if each <= warps and warps % each:
            warps, whole = warps // each * each, f" in whole blocks of {threads} threads"
    return Reason(
        "occupancy_registers",
        f"{registers} registers a thread allow only {warps} warps an SM",
        f"with {registers} registers a thread, at most {warps} warps{whole} fit into the {SM_REGISTERS:,} registers of "
        "an SM, and so few warps hide little latency",
        kinds()["occupancy_registers"]["cure"],
        [cell("kernels", place(row), "registers", registers)],
    )


# Pattern of the whole name of a library's kernel, as in the tables -> what the name tells; "": do as advice.toml says.
_NAMES: tuple[tuple[str, tuple[str, str, str, str]], ...] = (
    (r"nccl|rccl|AllReduce|AllGather|ReduceScatter", ("exposed_communication",
     "a collective, which waits for other GPUs",
     "by its name it is a collective: its time includes the wait for the slowest rank", "Compare the ranks.")),
    (r"_simt_sgemm|(ampere|volta|maxwell|turing|hopper)_sgemm|f32f32_f32f32_f32_.*ffma|^sgemm_(\d|largek|sm_)",
     ("precision",
     "FP32 without tensor cores", "by its name it multiplies in FP32 without tensor cores",
     "")),
    (symbols.ODD_OPERANDS.pattern, ("alignment",
     "a product of operands that are not aligned",
     "by its name it multiplies operands that are not aligned to 16 bytes", "")),
    (r"gemv|gemmk1_kernel|dot_kernel", ("memory_roof", "a matrix times a vector",
     "by its name it multiplies a matrix by a vector, which takes as long as reading the matrix",
     "Use smaller types, or several vectors at a time.")),
    (r"nchwToNhwc|nhwcToNchw|[Tt]ranspose|[Pp]ermute|convertTensor", ("layout",
     "it only changes a layout", "by its name it only changes the layout of a tensor",
     "")),
    (r"elementwise|FillFunctor|copy_kernel|CatArray|_copy_|CopyKernel", ("fuse",
     "one pass over memory for a simple operation",
     "by its name it does one simple operation for each element, so memory limits it",
     "")),
)  # fmt: skip


def _named(kernel: Kernel) -> Reason | None:
    """Return the meaning of a library kernel's name."""
    found = next((Reason(*told) for name, told in _NAMES if re.search(name, kernel.name)), None)
    if found is None or found.do:
        return found
    by = kernel.library if kernel.tf32 or found.kind != "precision" else "no_tf32"
    return replace(found, do=f"{do(found.kind, by)}.")


def _short(kernel: Kernel) -> Reason | None:
    """Return kernels so short that launching them counts."""
    if kernel.mean_ns >= SHORT_NS:
        return None
    cells, own = [], "and launching a kernel costs the host some microseconds"
    timed = (row for row in kernel.rows["host"] if row["median_ns"] is not None)
    call = next((row for row in timed if re.match(r"(cuda|cu)Launch(Cooperative)?Kernel", str(row["call"]))), None)
    in_graphs = 2 * sum(row["launches"] for row in kernel.rows.get("graphed", ())) > kernel.launches
    way_out = "Do more in each, fuse them, or capture them in a CUDA graph."
    if in_graphs:
        way_out = "Do more in each, or fuse them: CUDA graphs launch most of them already."
        own = "and starting a kernel takes a part of that"
    if call and not in_graphs:
        own = f"and {call['call']} itself takes {duration(float(call['median_ns']))} of the host (median)"
        cells.append(
            cell("host", {"source": call["source"], "call": call["call"]}, "median_ns", int(call["median_ns"]))
        )
    many = kernel.launches > 1
    return Reason(
        "launch_bound",
        f"{count_of(kernel.launches, 'short launch', 'short launches')}, {duration(kernel.mean_ns)}{' each' * many}",
        f"{'a' if many else 'its'} launch runs for {duration(kernel.mean_ns)}{' on average' * many}, {own}",
        way_out if many else "Time it on more work.",
        cells,
        of_time=True,
    )


_LOOKS: tuple[Callable[[Kernel], Reason | None], ...] = (
    _spills, _near, _rule, _roof, _shape, _throughput, _stall, _line, _access, _conflicts, _named, _occupancy,
    _registers, _bottleneck, _short,
)  # fmt: skip
