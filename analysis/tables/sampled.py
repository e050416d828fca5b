"""Show what nsys' samples of the running program say of kernels, layers, steps and pauses.

Evidence `sampled`: counters of the GPU, read every 100 µs while the program runs with warm caches, and attributed to
its launches. They are never mixed with counters of ncu, which replays each kernel alone.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.formats.place import DOCTOR
from analysis.formats.report import Missing, Reason
from analysis.formats.words import count_of, duration, share
from analysis.hardware.sampled import quantities
from analysis.samples.attribute import Attributed, attribute, of_repeats
from analysis.samples.fit import FAINT_MOST
from analysis.samples.neighbours import RESOLVED, Figure
from analysis.samples.overlap import Floats, Ints, Launches, samples_of
from analysis.tables.attribution import UNATTRIBUTED, paths_of
from analysis.tables.declare import Column, Facts, part, table
from analysis.tables.groups import GROUP, with_groups

READ, WRITE, CLOCK = "dram_read_frac", "dram_write_frac", "gpc_clock_hz"
CAPTURE, PAUSES = "capture", "pauses"  # stretches of sampled_steps beside the steps
MOST_GROUPS = 256  # fitted one by one; the others, with least time, share one rate
MOST_TIMES = 5000  # stretches of a lane; a page shows fewer pixels
LEAST_PAUSE = 3  # periods without any operation, from which on a stretch counts as a pause
OTHERS = "(others)"
ALONE, NEIGHBOURS, OPEN = "alone", "with neighbours", "no"
ACTIVITY = ("tensor_active_frac", "sm_issue_frac", "sm_active_frac", "warps_frac")
LINKS = ("nvlink_rx_frac", "nvlink_tx_frac", "pcie_rx_frac", "pcie_tx_frac")
USUAL = 3.0  # times the median: a longer step is start-up or a slow one
ALIKE = 1.1  # launches of one kernel and range whose mean times differ by less count as one group, whatever their place
LEAST_LINK = 0.01  # of a link: nsys prints 1 % for anything below
# Units that a sentence on a step names, with their columns in sampled_steps; links with the stems of theirs.
_SAID = {"DRAM": "dram_frac", "tensor cores": "tensor_active_frac", "schedulers": "sm_issue_frac"}
_LINKS_SAID = {"NVLink": "nvlink", "PCIe": "pcie"}
_MEANING = {one.name: one.meaning for one in quantities()}
_ERROR = "half of its 95 % interval: of the fit, and of traffic at the edges of launches"


@dataclass(frozen=True)
class OfGpu:
    """The samples of one GPU with its launches; `groups`: one row for each group, with GROUP and `launches`.

    `rows`: row of facts.launches of each launch, -1 for copies and sets. `peak`: what a share of 1 means for DRAM,
    byte/s; NaN if unknown.
    """

    found: Attributed
    groups: pd.DataFrame
    rows: Ints
    peak: float


def attribute_samples(facts: Facts) -> list[OfGpu]:
    """Return the samples of each GPU that was sampled and ran something."""
    rows, ops = facts.capture.samples, facts.gpu_ops
    if rows is None or rows.empty or ops.empty:
        return []
    keyed = _keyed(facts)
    number = keyed["device"].map({one: device_number(str(one)) for one in keyed["device"].unique()}).astype("int64")
    only = rows["gpu"].nunique() == 1 and keyed["device"].nunique() == 1
    peak = _peak(facts)
    found = []
    for gpu, own in rows.groupby("gpu", sort=True):
        ran = keyed if only else keyed[number == gpu]
        if len(ran) and len(own) > 1:
            found.append(_of_gpu(int(gpu), own, ran, peak))
    return found


def _peak(facts: Facts) -> float:
    stated = facts.capture.gpu_attributes.get("dram_bytes_per_s")
    device = facts.device.dram_bytes_per_s if facts.device else None
    return float(stated or device or np.nan)


def device_number(device: str) -> int:
    found = re.search(r"(\d+)\)?$", device)
    return int(found[1]) if found else 0


def _keyed(facts: Facts) -> pd.DataFrame:
    """Return every operation with GROUP: kernels as the counting plan groups them, copies and sets by their names.

    Places of about equal time are joined: a program without ranges launches one kernel at dozens of places. `row` is
    that of facts.launches, -1 for copies and sets.
    """
    ranges, launches = facts.placed  # kernels of CUDA graphs and of torch.compile lie in their own ranges
    kernels = with_groups(launches.assign(path=paths_of(launches["owner"], ranges), row=np.arange(len(launches))))
    others = facts.gpu_ops[facts.gpu_ops["kind"] != "kernel"]
    folded = others["path"].map(lambda path: facts.folded.get(path, path))
    others = others.assign(folded=folded, kernel=others["name"].astype(str), place=0, row=-1)
    names = ["start_ns", "duration_ns", "device", "row", *GROUP]
    text = dict.fromkeys(("device", "folded", "kernel", "grid", "block"), "str")
    found = pd.concat([one[names].astype(text) for one in (kernels, others) if len(one)], ignore_index=True)
    found["place"] = _places_of_one_time(found)
    return found.sort_values("start_ns", kind="stable", ignore_index=True)


def _places_of_one_time(rows: pd.DataFrame) -> pd.Series:
    """Return the place of each row, or the quickest place of its kernel and range whose mean time is within ALIKE."""
    group = rows.groupby(GROUP, sort=False)
    mean = group["duration_ns"].mean().reset_index().sort_values("duration_ns", kind="stable")
    first: dict[tuple[Any, ...], tuple[int, float]] = {}
    place = {}
    for at, *kernel, number, time in mean[[*GROUP, "duration_ns"]].itertuples():
        if time > ALIKE * first.get(tuple(kernel), (0, 0.0))[1]:
            first[tuple(kernel)] = (number, time)
        place[at] = first[tuple(kernel)][0]
    return group.ngroup().map(place).astype("int64")


def _of_gpu(gpu: int, rows: pd.DataFrame, ran: pd.DataFrame, peak: float) -> OfGpu:
    code, keys = pd.factorize(pd.MultiIndex.from_frame(ran[GROUP]))
    groups = pd.DataFrame(keys.tolist(), columns=GROUP)
    time = np.bincount(code, weights=ran["duration_ns"].to_numpy(float))
    if len(groups) > MOST_GROUPS:
        kept = np.sort(np.argsort(-time)[: MOST_GROUPS - 1])
        place = np.full(len(groups), len(kept))
        place[kept] = np.arange(len(kept))
        code = place[code]
        last = pd.DataFrame([{name: 0 if name == "place" else "" for name in GROUP} | {"kernel": OTHERS}])
        groups = pd.concat([groups.iloc[kept], last], ignore_index=True)
    groups["launches"] = np.bincount(code, minlength=len(groups))
    start = ran["start_ns"].to_numpy(np.float64)
    launches = Launches(start, start + ran["duration_ns"].to_numpy(np.float64), code.astype(np.int64), len(groups))
    rows = rows.sort_values("time_ns").drop_duplicates("time_ns")
    values = {name: rows[name].to_numpy(np.float64) for name in rows if name not in ("gpu", "time_ns")}
    known = {name: one for name, one in values.items() if not np.isnan(one).all()}
    samples = samples_of(rows["time_ns"].to_numpy(np.int64))
    counted = _counted(known, peak * samples.period / 1e9)
    shares = {name: one for name, one in known.items() if not name.endswith("_bytes")} | counted
    found = attribute(gpu, samples, shares, launches, frozenset(counted))
    return OfGpu(found, groups, ran["row"].to_numpy(np.int64), peak)


def _counted(values: dict[str, Floats], most: float) -> dict[str, Floats]:
    """Return reads and writes of DRAM as exact shares of `most`, the bytes of a sample at the peak, where counted.

    A counter that stands still while nsys prints percents, or passes its 32 bits, counts nothing.
    """
    found = {}
    for name, column in ((READ, "dram_read_bytes"), (WRITE, "dram_write_bytes")):
        moved = values.get(column)
        if moved is None or np.isnan(moved).any() or moved.min() < 0 or not most > 0:
            continue
        if moved.max() > 0 or float(np.nanmax(values.get(name, 0.0))) <= FAINT_MOST:
            found[name] = moved / most
    return found


def named(one: OfGpu, members: list[int]) -> dict[str, Any]:
    """Return the columns that name some groups: their kernels, their ranges and the GPU."""
    groups = one.groups.iloc[members]
    names = list(dict.fromkeys(groups["kernel"]))
    ranges = list(dict.fromkeys(name or UNATTRIBUTED for name in groups["folded"]))
    return {
        "kernel": " + ".join(names[:3]) + (f" + {len(names) - 3} others" if len(names) > 3 else ""),
        "range": ranges[0] if len(ranges) == 1 else f"{ranges[0]} and {len(ranges) - 1} more",
        "gpu": one.found.gpu,
    }


def figures(one: OfGpu, members: list[int], names: Iterable[str]) -> dict[str, Figure]:
    """Return the figure of each metric that the GPU has, of some groups together."""
    found = {name: one.found.figure(name, members) for name in names}
    return {name: figure for name, figure in found.items() if figure is not None}


def _traffic(one: OfGpu, members: list[int]) -> dict[str, float]:
    """Return the columns about DRAM of some groups: bytes, half intervals, and the share of the peak."""
    known = figures(one, members, (READ, WRITE))
    bytes_at = one.peak * float(one.found.time[members].sum()) / 1e9
    found = {}
    for name, column in ((READ, "dram_read"), (WRITE, "dram_write")):
        figure = known.get(name)
        found[f"{column}_bytes"] = figure.rate * bytes_at if figure else np.nan
        found[f"{column}_error_bytes"] = figure.half * bytes_at if figure else np.nan
    found["dram_frac"] = sum(figure.rate for figure in known.values()) if len(known) == 2 else np.nan
    return found


def _activity(one: OfGpu, members: list[int]) -> dict[str, float]:
    names = (*ACTIVITY, *LINKS)
    known = figures(one, members, names)
    return {name: min(known[name].rate, 1.0) if name in known else np.nan for name in names}


_TRAFFIC = (
    Column("dram_read_bytes", "bytes read from DRAM while they ran, of all launches", "sampled"),
    Column("dram_read_error_bytes", _ERROR, "sampled"),
    Column("dram_write_bytes",
        "bytes written to DRAM while they ran: L2 also writes then what earlier kernels left in it", "sampled"),
    Column("dram_write_error_bytes", _ERROR, "sampled", shown=False),
    Column("dram_frac", "both, over what DRAM could move in that time", "sampled", style="bar"),
)  # fmt: skip
_SHOWN = ("tensor_active_frac", "sm_issue_frac", "warps_frac")
_ACTIVITY = tuple(
    Column(name, f"{_MEANING[name]}, while they ran", "sampled", "0-1", shown=name in _SHOWN)
    for name in (*ACTIVITY, *LINKS)
)
_CLOCK = Column("sm_clock_hz", "mean clock of the SMs while they ran", "sampled", shown=False)


@table(
    "sampled_kernels",
    question="What does each kernel move and use in the program as it runs, with warm caches?",
    title="Kernels in the running program",
    columns=(
        Column("kernel", "kernel; several that follow each other, joined with +, if samples do not tell them apart",
            "key"),
        Column("range", "innermost range, repeated layers folded (h.*)", "key"),
        Column("gpu", "number of the GPU", "key", "1", shown=False),
        Column("stands", f"{ALONE}; {NEIGHBOURS}: their sum is known, and some may stand alone, too; {OPEN}: an "
            "interval is wider than ± 10 % of what the busiest of DRAM reads, tensor cores and schedulers has",
            "sampled"),
        Column("kernels", "groups of equal launches that share this figure", "timing", "1", shown=False),
        Column("launches", "launches in the timeline", "timing", "1"),
        Column("nsys_time_ns", "sum of their times", "timing"),
        Column("launch_ns", "mean time of a launch; of neighbours, of one launch of each", "timing"),
        Column("share_frac", "nsys_time_ns over all GPU time of the capture", "timing", style="bar"),
        *_TRAFFIC,
        *_ACTIVITY,
        _CLOCK,
    ),
)  # fmt: skip
def build_sampled_kernels(facts: Facts) -> pd.DataFrame | None:
    """Return sampled_kernels.csv, one row for each figure, most time first; None without samples."""
    rows = []
    for one in facts.sampled:
        whole = float(one.found.time.sum())
        for members in one.found.joints:
            groups, time = one.groups.iloc[members], float(one.found.time[members].sum())
            stands = OPEN if not one.found.knows(members) else ALONE if len(members) == 1 else NEIGHBOURS
            times = one.found.time[members] / groups["launches"].to_numpy(float)
            rows.append(
                {
                    **named(one, members),
                    "stands": stands,
                    "kernels": len(members),
                    "launches": int(groups["launches"].sum()),
                    "nsys_time_ns": int(time),
                    "launch_ns": float(times.sum()),
                    "share_frac": time / max(whole, 1.0),
                    **_traffic(one, members),
                    **_activity(one, members),
                    "sm_clock_hz": one.found.mean_clock(members),
                    "tier": "sampled",
                }
            )
    return pd.DataFrame(rows).sort_values("nsys_time_ns", ascending=False, kind="stable") if rows else None


@table(
    "sampled_layers",
    question="What does each layer move and use in the program as it runs?",
    title="Layers in the running program",
    columns=(
        Column("range", "range, repeated layers folded, nested ranges included", "key"),
        Column("gpu", "number of the GPU", "key", "1", shown=False),
        Column("launches", "launches inside", "timing", "1"),
        Column("nsys_time_ns", "sum of their times", "timing"),
        *_TRAFFIC,
        *_ACTIVITY,
        _CLOCK,
    ),
)
def build_sampled_layers(facts: Facts) -> pd.DataFrame | None:
    """Return sampled_layers.csv: a row for each folded range of each GPU, outer ranges first; None without samples."""
    rows = []
    for one in facts.sampled:
        inside: dict[str, list[int]] = {}
        for group, path in enumerate(one.groups["folded"]):
            parts = str(path).split("/") if path else []
            for depth in range(1, len(parts) + 1):
                inside.setdefault("/".join(parts[:depth]), []).append(group)
        for path, members in sorted(inside.items()):
            rows.append(
                {
                    "range": path,
                    "gpu": one.found.gpu,
                    "launches": int(one.groups["launches"].iloc[members].sum()),
                    "nsys_time_ns": int(one.found.time[members].sum()),
                    **_traffic(one, members),
                    **_activity(one, members),
                    "sm_clock_hz": one.found.mean_clock(members),
                    "tier": "sampled",
                }
            )
    return pd.DataFrame(rows) if rows else None


@table(
    "sampled_steps",
    question="What moves through DRAM and links in each step, and in the pauses between the work?",
    title="Steps in the running program",
    columns=(
        Column("range", "kind of step; `pauses`: three periods or more without any operation; `capture`: all", "key"),
        Column("gpu", "number of the GPU", "key", "1", shown=False),
        Column("instances", "steps that samples cover whole", "timing", "1"),
        Column("time_ns", "mean time from its first GPU operation to its last", "timing"),
        Column("dram_read_bytes", "bytes read from DRAM in one, mean", "sampled"),
        Column(
            "dram_read_error_bytes",
            "half of the 95 % interval of that mean, and what is open where nsys prints 1 %, "
            "which it does for anything below 1.5 %; blank for a single one",
            "sampled",
        ),
        Column("dram_write_bytes", "bytes written to DRAM in one, mean", "sampled"),
        Column("dram_write_error_bytes", "the same of that mean", "sampled", shown=False),
        Column("dram_frac", "both, over what DRAM could move in that time", "sampled", style="bar"),
        *(Column(name, f"{_MEANING[name]}, mean", "sampled", "0-1", shown=False) for name in (*ACTIVITY, *LINKS)),
        Column("sm_clock_hz", "clock of the SMs, mean", "sampled"),
        Column("lowest_clock_hz", "its 5th percentile over the samples inside", "sampled", shown=False),
    ),
)
def build_sampled_steps(facts: Facts) -> pd.DataFrame | None:
    """Return sampled_steps.csv: each kind of step, the pauses and the whole capture, for each GPU."""
    rows = []
    for one, steps in zip(facts.sampled, facts.once(_steps), strict=True):
        stretches = {**steps, **_rest(one)}
        rows += [{"range": name, "gpu": one.found.gpu, **_stretch(one, *ends)} for name, ends in stretches.items()]
    return pd.DataFrame(rows) if rows else None


def use_of_step(facts: Facts) -> dict[str, float]:
    """Return how busy each unit is in a step, mean of all GPUs: a share of its peak. {} without samples.

    The step is the kind with most time, without its start-up; without any, it is the whole capture. Links count if they
    carry LEAST_LINK.
    """
    rows = facts.once(build_sampled_steps)
    rows = rows[rows["range"] != PAUSES].dropna(subset=["time_ns"]) if len(rows) else rows
    if rows.empty:
        return {}
    steps = rows[rows["range"] != CAPTURE]
    time = (steps["instances"] * steps["time_ns"]).groupby(steps["range"], sort=False).sum()
    if len(time):
        name, each = str(time.idxmax()), zip(facts.sampled, facts.once(_steps), strict=True)
        rows = pd.DataFrame([_usual(one, *steps[name]) for one, steps in each if name in steps])
    else:
        rows = rows[rows["range"] == CAPTURE]
    mean = rows.mean(numeric_only=True)
    link = {name: float(max(mean[f"{one}_rx_frac"], mean[f"{one}_tx_frac"])) for name, one in _LINKS_SAID.items()}
    used = {name: float(mean[column]) for name, column in _SAID.items()}
    used |= {name: value for name, value in link.items() if value >= LEAST_LINK}
    return {name: value for name, value in used.items() if value == value}


def say_use(facts: Facts) -> str:
    """Say how busy each unit is in a step; "" without samples."""
    used = [f"{name} at {share(min(value, 1.0))}" for name, value in use_of_step(facts).items()]
    if not used:
        return ""
    gpus = f", mean of {len(facts.sampled)} GPUs" if len(facts.sampled) > 1 else ""
    listed = f"{', '.join(used[:-1])} and {used[-1]}" if len(used) > 1 else used[0]
    return f"{listed} of the peak{gpus}"


Ends = tuple[np.ndarray, np.ndarray]


def _steps(facts: Facts) -> list[dict[str, Ends]]:
    """Return start and end of each step, by the kind of step, on each sampled GPU."""
    return [_steps_of(facts, one) for one in facts.sampled]


def _steps_of(facts: Facts, one: OfGpu) -> dict[str, Ends]:
    steps, ops = facts.step_ranges, facts.gpu_ops
    if steps.empty:
        return {}
    only = ops["device"].astype(str).nunique() == 1
    step = facts.step_of_op
    own = (step >= 0) & (
        True if only else (ops["device"].astype(str).map(device_number) == one.found.gpu).to_numpy(bool)
    )
    start = ops["start_ns"].to_numpy(np.float64)[own]
    end = start + ops["duration_ns"].to_numpy(np.float64)[own]
    spans = pd.DataFrame({"start": start, "end": end}).groupby(step[own]).agg({"start": "min", "end": "max"})
    kind = steps["path"].reindex(spans.index).map(lambda path: facts.folded.get(path, path))
    return {str(name): (rows["start"].to_numpy(), rows["end"].to_numpy()) for name, rows in spans.groupby(kind)}


def _usual(one: OfGpu, start: np.ndarray, end: np.ndarray) -> dict[str, Any]:
    """Return `_stretch` of the steps that are no longer than usual: the first ones compile and load kernels."""
    kept = end - start < USUAL * np.median(end - start)
    return _stretch(one, start[kept], end[kept])


def _rest(one: OfGpu) -> dict[str, Ends]:
    """Return the pauses, and the stretch from the first launch to the end of the last."""
    launches = one.found.launches
    until = np.maximum.accumulate(launches.end)
    idle = launches.start[1:] - until[:-1] >= LEAST_PAUSE * one.found.samples.period
    found = {CAPTURE: (launches.start[:1], until[-1:])}
    return {PAUSES: (until[:-1][idle], launches.start[1:][idle]), **found} if idle.any() else found


def _stretch(one: OfGpu, start: np.ndarray, end: np.ndarray) -> dict[str, Any]:
    """Return the columns of stretches of one kind. Only those count that samples cover whole."""
    values = one.found.values
    whole = one.found.moved(next(iter(values)), start, end)[1]
    start, end = start[whole], end[whole]
    time = float((end - start).mean()) if len(start) else np.nan
    found: dict[str, Any] = {"instances": len(start), "time_ns": time, "tier": "sampled"}
    for name, column in ((READ, "dram_read"), (WRITE, "dram_write")):
        known = name in values and len(start) > 0
        moved = one.found.moved(name, start, end)[0] * one.peak / 1e9 if known else np.array([])
        doubt = float(one.found.doubt(name, start, end).mean()) * one.peak / 1e9 if known else np.nan
        found[f"{column}_bytes"], half = of_repeats(moved)
        found[f"{column}_error_bytes"] = half + doubt
    both = found["dram_read_bytes"] + found["dram_write_bytes"]
    found["dram_frac"] = both / (one.peak * time / 1e9) if time else np.nan

    def mean(name: str) -> float:
        whole = float((end - start).sum())
        return float(one.found.moved(name, start, end)[0].sum()) / whole if name in values and whole else np.nan

    found |= {name: mean(name) for name in (*ACTIVITY, *LINKS)} | {"sm_clock_hz": mean(CLOCK)}
    inside = _inside(one, start, end)
    clock = values[CLOCK][inside] if CLOCK in values else np.array([])
    return found | {"lowest_clock_hz": float(np.quantile(clock, 0.05)) if len(clock) else np.nan}


def _inside(one: OfGpu, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return which samples lie inside one of the stretches, which do not overlap."""
    begin = one.found.samples.begin + one.found.clock.offset
    if not len(start):
        return np.zeros(len(begin), dtype=bool)
    at = np.searchsorted(start, begin, "right") - 1
    return (at >= 0) & (begin + one.found.samples.period <= end[np.maximum(at, 0)])


LANES = {
    "DRAM": (READ, WRITE), "tensor cores": ("tensor_active_frac",), "SM issue": ("sm_issue_frac",),
    "links": LINKS, "SM clock": (CLOCK,),
}  # fmt: skip


@table(
    "sampled_times",
    question="How busy were DRAM, tensor cores, SMs and links over time, and how did the clock move?",
    columns=(
        Column("gpu", "number of the GPU", "key", "1"),
        Column("lane", "what was sampled: reads and writes together, the busiest link, the clock of the SMs", "key"),
        Column("start_ns", "begin of the stretch, counted from the first GPU operation of the capture", "timing"),
        Column("extent_ns", "length of the stretch: one sample, or several neighbours", "timing"),
        Column("share_frac", "mean over the stretch; of the clock, over the highest of the capture", "sampled"),
    ),
)
def build_sampled_times(facts: Facts) -> pd.DataFrame | None:
    """Return sampled_times.csv: each lane of each GPU in order of time, at most about MOST_TIMES rows a lane."""
    found = []
    for one in facts.sampled:
        samples, zero = one.found.samples, float(facts.gpu_ops["start_ns"].min())
        begin = samples.begin + one.found.clock.offset - zero
        many = -(-len(begin) // MOST_TIMES)
        first = np.arange(0, len(begin), many)
        for lane, names in LANES.items():
            values = [one.found.filled(name) for name in names if name in one.found.values]
            if not values:
                continue
            whole = np.max(values, axis=0) if names is LINKS else np.sum(values, axis=0)
            mean = np.add.reduceat(whole, first) / np.diff(first, append=len(whole))
            highest = max(float(np.nanmax(mean)), 1.0)
            found.append(
                pd.DataFrame(
                    {
                        "gpu": one.found.gpu,
                        "lane": lane,
                        "start_ns": begin[first].round().astype(np.int64),
                        "extent_ns": np.diff(first, append=len(whole)) * round(samples.period),
                        "share_frac": (mean / highest if lane == "SM clock" else np.minimum(mean, 1.0)).round(4),
                    }
                )
            )
    return pd.concat(found, ignore_index=True).assign(tier="sampled") if found else None


@part("note")
def _said(facts: Facts) -> list[str]:
    """Say how each GPU was sampled, and in which share of its time the figures are known."""
    said = []
    for one in facts.sampled:
        samples, clock = one.found.samples, one.found.clock
        found = [members for members in one.found.joints if one.found.knows(members)]
        alone = _share(one, (members for members in found if len(members) == 1))
        of_each = one.found.time / one.groups["launches"].to_numpy(float)
        lengths = pd.Series([of_each[members].sum() for members in found if len(members) > 1], dtype=float)
        long = f", which take {duration(lengths.median())} once each (median, at most {duration(lengths.max())})"
        reads = ((members, one.found.figure(READ, members)) for members in one.found.joints)
        exact = (members for members, read in reads if read is not None and read.half <= RESOLVED * read.rate)
        counted = "nsys counted the bytes of DRAM. " if READ in one.found.counted else ""
        said.append(
            f"GPU {one.found.gpu}: {len(samples.begin):,} samples, one each {duration(samples.period)}, "
            f"{count_of(samples.lost, 'sample')} lost; their clock is {clock.offset / 1e3:+.1f} ± "
            f"{clock.error * 2 / 1e3:.1f} µs from that of the launches. {counted}The busiest unit is known within "
            f"± {RESOLVED:.0%} for single kernels in {share(alone)} of the GPU time, and for kernels together with "
            f"their neighbours in another {share(_share(one, found) - alone)}{long if len(lengths) else ''}; the bytes "
            f"read are known as well in {share(_share(one, exact))}."
        )
    return said


def _share(one: OfGpu, joints: Iterable[list[int]]) -> float:
    """Return the share of the GPU time of the groups that any of these figures holds."""
    groups = sorted({group for members in joints for group in members})
    return float(one.found.time[groups].sum() / max(one.found.time.sum(), 1.0))


@part("missing")
def _unsampled(facts: Facts) -> list[Missing]:
    """Name lost samples, a clock that jumps, and GPUs without samples."""
    rows, found = facts.capture.samples, []
    for tool in facts.capture.tools:
        if why := tool.get("unsampled"):
            do = f"allow it (`{DOCTOR}` says how), and capture again"
            found.append(Missing(Reason.NO_COUNTERS, "counters of the running program", str(why), do))
    again = "sample at a lower rate (--sample-hz), or capture a shorter window"
    for one in facts.sampled:
        samples, name = one.found.samples, f"GPU {one.found.gpu}"
        if samples.lost > 0.001 * len(samples.begin):
            lost = samples.lost / (samples.lost + len(samples.begin))
            why = f"{share(lost)} of them are lost; the longest gap is {duration(samples.largest_gap)}"
            found.append(Missing(Reason.LOST_RECORDS, f"some samples of {name}", why, again))
        if one.found.jumped:
            why = "the clock of the samples jumps against that of the launches within the capture"
            found.append(Missing(Reason.CLOCKS, f"exact samples of {name}", why, "capture again, in a shorter window"))
    if rows is None or rows.empty or facts.gpu_ops.empty:
        return found
    ran = {device_number(str(one)) for one in facts.gpu_ops["device"].unique()}
    without = sorted(ran - {one.found.gpu for one in facts.sampled})
    if without and (len(ran) > 1 or not facts.sampled):
        names = ", ".join(f"GPU {one}" for one in without)
        do = "sample all GPUs: `nsys profile --gpu-metrics-devices=all`"
        found.append(Missing(Reason.NO_COUNTERS, f"samples of {names}", "nsys sampled other GPUs only", do))
    return found
