"""Read the metric catalogue (metrics.toml): which ncu metrics to capture, and how to compute the report's columns.

`python -m analysis.metrics` is its command line.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.formats.errors import InputError, UsageError

if TYPE_CHECKING:
    import pandas as pd

_CATALOGUE = Path(__file__).with_name("metrics.toml")
# Shares of a unit's peak: one below 0 or far beyond 1 is no measurement. Counters of several passes differ by less.
_OF_PEAK = ("dram_throughput_frac", "memory_throughput_frac", "l2_throughput_frac", "l1_throughput_frac",
            "sm_throughput_frac", "tensor_active_frac")  # fmt: skip
_BEYOND = 1.15
# The end of a column's name -> its unit.
_UNITS = {"_byte_per_s": "byte/s", "_bytes": "byte", "_frac": "1", "_ns": "ns", "_hz": "hz", "_inst": "inst"}
_OLDEST = 70  # the oldest architecture that the supported versions of ncu profile


@dataclass(frozen=True)
class Way:
    """One way to compute a column: sum of coefficient * metric, over the sum of others.

    It is valid on architectures min_cc..max_cc (compute capability * 10), except those of not_cc; or on those
    of only_cc alone.
    """

    terms: dict[str, float]
    over: tuple[str, ...] = ()
    min_cc: int = 0
    max_cc: int = 999
    not_cc: tuple[int, ...] = ()
    only_cc: tuple[int, ...] = ()
    ask_only: bool = False
    capture: bool | str = False

    def needed(self) -> list[str]:
        """Return the ncu metrics of this way."""
        return [*self.terms, *self.over]

    def holds_on(self, arch: int) -> bool:
        """Return whether architecture `arch` (compute capability * 10) has these metrics."""
        spanned = self.min_cc <= arch <= self.max_cc and arch not in self.not_cc
        return spanned and (not self.only_cc or arch in self.only_cc)

    def asked_on(self, arch: int) -> bool:
        """Return whether a capture may ask for these metrics on architecture `arch`."""
        lacks = tuple(verified()["lacks"].get(f"{arch // 10}.{arch % 10}", ()))
        return self.holds_on(arch) and not any(name.startswith(lacks) for name in self.needed())

    def formula(self) -> str:
        """Return the way as text."""
        text = " + ".join(name if weight == 1 else f"{weight:g} * {name}" for name, weight in self.terms.items())
        return f"({text}) / ({' + '.join(self.over)})" if self.over else text


@dataclass(frozen=True)
class Column:
    """One column: its unit, its question, the source of its definition, and the ways to compute it."""

    name: str
    question: str
    unit: str
    why: str
    source: str
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class Stalls:
    """The stall reasons of one family: counters (warps per issued instruction) or samples of the program counter."""

    metric: str
    unit: str
    source: str
    reasons: tuple[str, ...]
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    not_captured: tuple[str, ...] = ()
    count: str = ""

    def all_reasons(self) -> list[str]:
        """Return every reason of any architecture, sorted."""
        return sorted(self.reasons)

    def name(self, reason: str) -> str:
        """Return the ncu metric of a reason."""
        return self.metric.format(reason=reason)


@cache
def catalogue() -> tuple[tuple[Column, ...], Stalls]:
    """Return the columns in their order, and the stall reasons."""
    data = tomllib.loads(_CATALOGUE.read_text(encoding="utf-8"))
    return tuple(itertools.starmap(_column, data["column"].items())), _stalls(data["stall"])


@cache
def columns_by_name() -> dict[str, Column]:
    """Return the columns of the catalogue by their names."""
    return {column.name: column for column in catalogue()[0]}


def _column(name: str, row: dict[str, Any]) -> Column:
    unit = row.get("unit") or next(unit for end, unit in _UNITS.items() if name.endswith(end))
    return Column(name, row["question"], unit, row["why"], row["source"], tuple(map(_way, row["from"])))


def _way(way: dict[str, Any]) -> Way:
    lists = {key: way.get(key, ()) for key in ("over", "not_cc", "only_cc")}
    return Way(**way | {key: (value,) if isinstance(value, str) else tuple(value) for key, value in lists.items()})


def _stalls(table: dict[str, Any]) -> Stalls:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return Stalls(**{key: value for key, value in values.items() if key != "question"})


@cache
def samples() -> Stalls:
    """Return the stall reasons of the sampled family."""
    return _stalls(tomllib.loads(_CATALOGUE.read_text(encoding="utf-8"))["samples"])


@cache
def questions() -> dict[str, str]:
    """Return the questions in their order: name -> question."""
    data = tomllib.loads(_CATALOGUE.read_text(encoding="utf-8"))
    return dict(data["question"])


@cache
def verified() -> dict[str, Any]:
    """Return how the metric names were verified: version of ncu, chips by compute capability, and what these lack."""
    data = tomllib.loads(_CATALOGUE.read_text(encoding="utf-8"))
    return dict(data["verified_with"])


def capture_metrics(cc: str, deep: bool = False) -> list[str]:
    """Return the raw metrics that `derive` needs for all its columns on compute capability `cc` ('9.0').

    Raises:
        UsageError: `cc` is no compute capability of 7.0 or later.
    """
    arch = architecture(cc)
    names: list[str] = []
    for column in catalogue()[0]:
        for way in column.ways:
            wanted = way.capture is True or (deep and way.capture == "deep")
            if wanted and way.asked_on(arch):
                names.extend(way.needed())
                break
    names.extend(_stall_metrics(arch, deep=deep))
    return list(dict.fromkeys(names))


def _stall_metrics(arch: int, *, deep: bool) -> list[str]:
    _, stalls = catalogue()
    spans = {reason: stalls.spans.get(reason, (0, arch)) for reason in stalls.all_reasons()}
    known = [reason for reason, (first, last) in spans.items() if first <= arch <= last]
    return [stalls.name(reason) for reason in known if deep or reason not in stalls.not_captured]


def architecture(cc: str) -> int:
    """Compute capability * 10 of '9.0'.

    Raises:
        UsageError: it is no compute capability of 7.0 or later.
    """
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9])", cc.strip())
    arch = int(match[1]) * 10 + int(match[2]) if match else 0
    if arch < _OLDEST:
        raise UsageError(
            f"--cc {cc}: is not a compute capability of the metric catalogue; give one from 7.0 on, such as 9.0."
        )
    return arch


def check_names(asked: Sequence[str], columns: Sequence[str]) -> None:
    """Raise UsageError for the first unknown name of a question or a column; `stalls` names a group of columns."""
    for name in asked:
        if name not in questions():
            raise UsageError(f"--question {name}: is not a question; give some of {', '.join(questions())}.")
    known = {"stalls", *(column.name for column in catalogue()[0])}
    for name in columns:
        if name not in known:
            raise UsageError(f"--columns {name}: is not a column; --list names them.")


def question_metrics(cc: str, names: Sequence[str]) -> list[str]:
    """Return the raw metrics of the best way to answer the questions `names` on compute capability `cc`.

    It leaves out samples: ncu takes them with its section SourceCounters instead of `--metrics`.

    Raises:
        UsageError: an unknown architecture or question.
    """
    arch = architecture(cc)
    check_names(names, ())
    metrics: list[str] = []
    for column in catalogue()[0]:
        if column.question in names:
            way = next((way for way in column.ways if way.asked_on(arch)), None)
            metrics.extend(way.needed() if way else ())
    if "stalls" in names:
        metrics += [*_stall_metrics(arch, deep=True), "smsp__inst_issued.sum"]
    return list(dict.fromkeys(metrics))


def column_metrics(cc: str, names: Sequence[str]) -> list[str]:
    """Return the raw metrics of the best way to compute the columns `names` on compute capability `cc`.

    `stalls`: all reasons.

    Raises:
        UsageError: an unknown architecture or column.
    """
    arch = architecture(cc)
    check_names((), names)
    metrics: list[str] = []
    for name in names:
        if name == "stalls":
            metrics += [*_stall_metrics(arch, deep=True), "smsp__inst_issued.sum"]
        else:
            way = next((way for way in columns_by_name()[name].ways if way.asked_on(arch)), None)
            metrics.extend(way.needed() if way else ())
    return list(dict.fromkeys(metrics))


# ------------------------------------------------------------------------------------------------- derived columns

_TENSOR_CHILD = re.compile(
    r"sm__ops_path_tensor_op_(?P<stem>[a-z]+_src_(?P<fmt>[a-z0-9_]*?)(?:_dst_[a-z0-9]+)?)(?P<sparsity>_sparsity_o[nf]f?)?\.sum"
)
_TENSOR_INSTRUCTIONS = re.compile(
    r"sm(sp)?__inst_executed_pipe_tensor(_op_[a-z]+)?\.(sum|avg)(\.pct_of_peak_sustained_(active|elapsed))?"
)
_PIPES = {
    "flops_fp32": "fp32",
    "flops_fp64": "fp64",
    "flops_fp16": "fp16",
    "flops_tensor_fp16": "fp16_tensor",
    "flops_tensor_fp64": "fp64_tensor",
}


def _compute(way: Way, counters: pd.DataFrame) -> Any:
    """Return the values of one way; NaN if one of its metrics has no value."""
    total: Any = 0.0
    for name, weight in way.terms.items():
        total = total + counters[name] * weight
    if way.over:
        below: Any = sum(counters[name] for name in way.over)
        total = total / below.where(below != 0)
    if way.not_cc and "cc" in counters:
        total = total.mask(counters["cc"].isin(_spelled(way.not_cc)))
    if way.only_cc:
        total = total.where(counters["cc"].isin(_spelled(way.only_cc)) if "cc" in counters else False)
    return total


def _spelled(archs: Sequence[int]) -> list[str]:
    return [f"{arch // 10}.{arch % 10}" for arch in archs]


def stands_in(name: str, counters: pd.DataFrame) -> bool:
    """Return whether a launch has its column `name` by a way that only some architectures need (`only_cc`)."""
    import numpy as np

    known = np.zeros(len(counters), bool)
    for way in columns_by_name()[name].ways:
        if all(metric in counters for metric in way.needed()):
            has = _compute(way, counters).notna()
            if way.only_cc and (has & ~known).any():
                return True
            known = has | known
    return False


def with_equivalents(counters: pd.DataFrame) -> pd.DataFrame:
    """Return the counters, with missing sums of the catalogue computed from other forms of the same metric.

    A sum over the SMs equals the sum over their partitions (`sm__sass_…` for `smsp__sass_…`). A rate times the
    duration, or a number per cycle times the cycles, is also a sum. No collected value is replaced.
    """
    seconds = _seconds(counters)
    found: dict[str, Any] = {}
    for name in _sums_of_the_catalogue():
        values = counters.get(name)
        for other, factor in _forms(name, counters, seconds):
            form = counters[other].astype("float64") * factor
            found[name] = values = form if values is None else values.fillna(form)
    found |= _stalls_of_shares(counters)
    return counters.assign(**found) if found else counters


def _stalls_of_shares(counters: pd.DataFrame) -> dict[str, Any]:
    """Return the stall reasons per issued instruction that a file gives as shares of the resident warps instead.

    The share of warps that issue belongs to one instruction. Else the cycles between two instructions scale them.
    """
    stalls, share = catalogue()[1], "smsp__warp_issue_stalled_{}_per_warp_active.pct"
    cycles = counters.get("smsp__average_warp_latency_per_inst_issued.ratio")
    scale = None if cycles is None else cycles.astype("float64") / 100
    if (issues := counters.get(share.format("selected"))) is not None:
        own = 1 / issues.astype("float64").where(issues > 0)
        scale = own if scale is None else own.fillna(scale)
    names = {reason: stalls.name(reason) for reason in stalls.all_reasons() if share.format(reason) in counters}
    found = {name: counters[share.format(reason)].astype("float64") * scale
             for reason, name in names.items() if scale is not None}  # fmt: skip
    return {name: counters[name].fillna(own) if name in counters else own for name, own in found.items()}


def _seconds(counters: pd.DataFrame) -> Any:
    """Return the duration of each launch in seconds; None if the capture has no durations."""
    seconds: Any = None
    for way in columns_by_name()["duration_ns"].ways:
        if all(name in counters for name in way.needed()):
            values = _compute(way, counters) * 1e-9
            seconds = values if seconds is None else seconds.fillna(values)
    return seconds


def _forms(name: str, counters: pd.DataFrame, seconds: Any) -> Iterator[tuple[str, Any]]:
    """Yield the metrics of the file that give the sum `name`, each with its factor."""
    for other in dict.fromkeys((name, name.replace("smsp__sass_", "sm__sass_", 1))):
        cycles = f"{other.partition('__')[0]}__cycles_elapsed.avg"
        if other != name and other in counters:
            yield other, 1.0
        if (form := f"{other}.per_cycle_elapsed") in counters and cycles in counters:
            yield form, counters[cycles]
        if form in counters and seconds is not None and f"{cycles}.per_second" in counters:
            yield form, counters[f"{cycles}.per_second"] * seconds
        if (form := f"{other}.per_second") in counters and seconds is not None:
            yield form, seconds


@cache
def _sums_of_the_catalogue() -> tuple[str, ...]:
    names = (name for column in catalogue()[0] for way in column.ways for name in way.needed())
    return tuple(dict.fromkeys(name for name in names if name.endswith(".sum") and not name.startswith("gpu__time")))


def _tensor_children(counters: pd.DataFrame) -> dict[str, Any]:
    """Tensor FLOPs by format from the op_* children (10.x, 12.x, or hand-picked metrics), one level deep."""
    stems: dict[str, tuple[str, list[str]]] = {}
    for name in counters.columns:
        match = _TENSOR_CHILD.fullmatch(name)
        if match and not match["fmt"].startswith("int"):
            stems.setdefault(match["stem"], (match["fmt"], []))[1].append(name)
    sums: dict[str, Any] = {}
    for fmt, names in stems.values():
        whole = [name for name in names if "_sparsity_" not in name] or names
        fmt = "fp8" if "fp8" in fmt else fmt
        for name in whole:
            sums[fmt] = sums[fmt] + counters[name] if fmt in sums else counters[name]
    return sums


def derive(counters: pd.DataFrame, units: dict[str, str]) -> pd.DataFrame:
    """Return the catalogue's columns for each profiled kernel; NaN if a needed metric was not collected.

    Shape: same index as `counters` (raw ncu metrics in base units). Further columns:
    l2_bytes           bytes through L2
    flops              all FLOPs; NaN also if tensor instructions may have run without being counted
    flops_pipe         the pipe with most FLOPs; None without FLOPs
    occupancy_limiter  the resource that allows the fewest blocks on an SM; None if unknown
    stall_<reason>     warps in that state per issued instruction
    sample_<reason>    samples of the program counter, another family than the counters
    Units: by name.

    Raises:
        InputError: a metric is not in base units (by `units`).
    """
    _check_units(units)
    if counters.empty:
        return _of_nothing(tuple(counters.columns)).set_axis(counters.index)
    return _derive(with_equivalents(counters))


@cache
def _of_nothing(columns: tuple[str, ...]) -> pd.DataFrame:
    """Return the catalogue's columns for an export without kernels.

    Most captures have none, and their columns are equal.
    """
    import pandas as pd

    return _derive(with_equivalents(pd.DataFrame(columns=list(columns))))


def _derive(counters: pd.DataFrame) -> pd.DataFrame:
    """See `derive`; `counters` with all equivalents."""
    import numpy as np
    import pandas as pd

    columns, stalls = catalogue()
    derived: dict[str, Any] = {}
    missing = pd.Series(np.nan, index=counters.index)
    for column in columns:
        values = missing
        for way in column.ways:
            if not way.ask_only and all(name in counters for name in way.needed()):
                values = values.fillna(_compute(way, counters))
        derived[column.name] = values if values is missing else values.astype("float64")
    for fmt, values in _tensor_children(counters).items():
        name = f"flops_tensor_{fmt}"
        derived[name] = derived[name].fillna(values) if name in derived else values.astype("float64")
    derived["flops_fp16"] = _without_constant_moves(counters, derived["flops_fp16"], derived["inst_issued"])
    derived["l2_bytes"] = derived["l2_read_bytes"] + derived["l2_write_bytes"]
    if "lts__t_bytes.sum" in counters:
        derived["l2_bytes"] = derived["l2_bytes"].fillna(counters["lts__t_bytes.sum"].astype("float64"))
    derived["branch_efficiency_frac"] = _without_branches(counters, derived["branch_efficiency_frac"])
    for name in _OF_PEAK:
        derived[name] = derived[name].where(derived[name].between(0, _BEYOND))
    derived["duration_ns"] = derived["duration_ns"].where(derived["duration_ns"] > 0)
    unplaced = derived["occupancy_limit_shared_mem"] < 1  # no block fits, ncu says, though it measured the kernel
    for name in ("occupancy_limit_shared_mem", "occupancy_theoretical_frac", "waves"):
        derived[name] = derived[name].mask(unplaced)
    frame = pd.DataFrame(derived, index=counters.index)
    frame["occupancy_limiter"] = _limiter(frame)

    tensor_names = [name for name in frame if name.startswith("flops_tensor_")]
    tensor = frame[tensor_names].sum(axis=1, min_count=1)
    tensor = tensor.fillna(_no_tensor(counters, frame)).mask(_uncounted_tensor(counters, frame, tensor_names))
    scalar = frame[["flops_fp32", "flops_fp64", "flops_fp16"]].sum(axis=1).where(frame["flops_fp32"].notna())
    frame["flops"] = scalar + tensor
    kinds = ["flops_fp32", "flops_fp64", "flops_fp16", *tensor_names]
    most = frame[kinds].fillna(0.0)
    pipes = most.idxmax(axis=1) if len(frame) else pd.Series([], dtype="object")
    labels = {name: _PIPES.get(name, name.removeprefix("flops_tensor_")) for name in kinds}
    has_flops = (most.max(axis=1) > 0) & frame["flops"].notna()
    frame["flops_pipe"] = pipes.map(labels).astype("object").where(has_flops, None)
    reasons = {}
    for reason in stalls.all_reasons():
        name = stalls.name(reason)
        reasons[f"stall_{reason}"] = counters[name].astype("float64") if name in counters else missing
    for reason in samples().all_reasons():
        name = samples().name(reason)
        reasons[f"sample_{reason}"] = counters[name].astype("float64") if name in counters else missing
    return pd.concat([frame, pd.DataFrame(reasons, index=counters.index)], axis=1)


def _without_branches(counters: pd.DataFrame, efficiency: Any) -> Any:
    """Branch efficiency; NaN for a kernel without branches, which has 0 and no divergent branch."""
    name = "smsp__sass_branch_targets_threads_divergent.avg"
    diverges = counters[name] > 0 if name in counters else False
    return efficiency.mask((efficiency == 0) & ~(diverges | (efficiency != 0)))


def _limiter(frame: pd.DataFrame) -> Any:
    """Return the limiter of each kernel's occupancy: the smallest limits, joined with '+'.

    None if a limit is unknown.
    """
    import pandas as pd

    names = [name for name in frame if name.startswith("occupancy_limit_")]
    least = frame[names].min(axis=1)
    text = pd.Series("", index=frame.index, dtype="object")
    for name in names:
        short = name.removeprefix("occupancy_limit_")
        text = text.mask(frame[name] == least, text + "+" + short)
    return text.str.removeprefix("+").where(frame[names].notna().all(axis=1), None)


def _without_constant_moves(counters: pd.DataFrame, flops: Any, inst_issued: Any) -> Any:
    """FP16 FLOPs; 0 if the only half instructions are a few HFMA2.

    Compilers load constants with `HFMA2 R, -RZ, RZ, c`. On an H200, fp32 `copy` and `where` kernels have 1 to 8 of them
    a thread, at most 4 % of their instructions, and no HADD2 or HMUL2. A kernel that computes in half has far more.
    Unknown values stay NaN.
    """
    only_fma = False
    for suffix in (".sum", ".sum.per_cycle_elapsed"):
        hadd, hmul = (f"smsp__sass_thread_inst_executed_op_{op}_pred_on{suffix}" for op in ("hadd", "hmul"))
        if hadd in counters and hmul in counters:
            only_fma = only_fma | ((counters[hadd] == 0) & (counters[hmul] == 0))
    thread_fma = flops / 4
    few = thread_fma < 0.1 * 32 * inst_issued
    return flops.mask(only_fma & few, 0.0).mask(only_fma & inst_issued.isna() & (flops > 0))


def _check_units(units: dict[str, str]) -> None:
    """Raise InputError for a time, a clock or a byte count that is not in base units."""
    columns, _ = catalogue()
    for column in columns:
        for way in column.ways:
            for name, weight in way.terms.items():
                unit = units.get(name, "")
                if column.unit in ("ns", "hz", "byte") and weight == 1 and unit not in ("", column.unit):
                    raise InputError(
                        f"{name}: comes in {unit} where {column.unit} is needed; export the raw page again with "
                        "`ncu --csv --page raw`."
                    )


def _no_tensor(counters: pd.DataFrame, frame: pd.DataFrame) -> Any:
    """0 for kernels that provably ran no tensor instruction, else NaN."""
    import numpy as np
    import pandas as pd

    proof = pd.Series(False, index=counters.index)
    names = [name for name in counters.columns if _TENSOR_INSTRUCTIONS.fullmatch(name)]
    # One op of the pipe at 0 proves nothing about the others; only the whole pipe, or all its ops together, does.
    whole = [name for name in names if "_op_" not in name]
    for name in whole:
        proof |= counters[name] == 0
    proof |= frame["tensor_active_frac"] == 0
    if "cc" in counters:
        proof |= counters["cc"].isin(["5.0", "5.2", "5.3", "6.0", "6.1", "6.2"])
    return pd.Series(np.where(proof, 0.0, np.nan), index=counters.index)


_TENSOR_NAMES = {  # column -> what the names of kernels of this format hold
    "flops_tensor_fp8": re.compile(r"e4m3|e5m2|fp8|f8f6f4|qgmma|nvjet_(?:sm\d+_)?[qr]{2}", re.IGNORECASE),
    "tensor_ops_int8": re.compile(r"int8|imma|igmma|s8s8|i8i8|(?<![a-z0-9])[su]8(?![a-z0-9])", re.IGNORECASE),
    "flops_tensor_fp4": re.compile(r"e2m1|fp4|mxf4|nvf4", re.IGNORECASE),
    "flops_tensor_fp64": re.compile(r"dmma|_d884|d16n8k", re.IGNORECASE),
}


def of_8_bits(name: str) -> bool:
    """Return whether a kernel's name tells that tensor cores multiply operands of 8 bits or less."""
    narrow = ("flops_tensor_fp8", "tensor_ops_int8", "flops_tensor_fp4")
    return any(_TENSOR_NAMES[column].search(name) for column in narrow)


def _uncounted_tensor(counters: pd.DataFrame, frame: pd.DataFrame, names: Sequence[str]) -> Any:
    """Return the kernels that used tensor cores although every format that was counted has 0 operations.

    Tensor instructions prove the use, or the name of a format that was not counted.
    """
    import pandas as pd

    counted = [*names, "tensor_ops_int8"]
    none = frame[counted].fillna(0.0).sum(axis=1) == 0
    ran = (frame["tensor_instructions"] > 0) | (frame["tensor_active_frac"] > 0)
    for column, pattern in _TENSOR_NAMES.items():
        unknown = frame[column].isna() if column in frame else pd.Series(True, index=frame.index)
        if "name" in counters and unknown.any():
            ran |= unknown & counters["name"].astype(str).str.contains(pattern) & (frame["tensor_active_frac"] != 0)
    return none & ran


# ---------------------------------------------------------------------------------------------- what a capture answers


@dataclass(frozen=True)
class Answer:
    """How far a capture answers a question: launches with all columns, launches with some, and the missing columns.

    `missing`: column -> the metrics that the nearest way to compute it lacks.
    """

    question: str
    columns: int
    answered: int
    missing: dict[str, tuple[str, ...]]


def answers(counters: pd.DataFrame, units: dict[str, str], cc: str = "") -> list[Answer]:
    """Return an answer for each question: how many columns the counters give, and the metrics that the others lack.

    `counters` as in Capture. If they hold the compute capability, it replaces `cc`.
    """
    named = counters["cc"][counters["cc"] != ""].mode().tolist() if "cc" in counters else []
    cc = str(named[0]) if named else cc
    arch = architecture(cc) if cc else None
    derived = derive(counters, units)
    result = []
    for question in questions():
        columns = [column for column in catalogue()[0] if column.question == question]
        missing: dict[str, tuple[str, ...]] = {}
        total = 0
        for column in columns:
            ways = [way for way in column.ways if arch is None or way.holds_on(arch)]
            if not ways:
                continue  # this architecture lacks the unit
            total += 1
            if derived[column.name].notna().any() or all(name in counters for name in ways[0].needed()):
                continue
            lacking = [tuple(name for name in way.needed() if name not in counters) for way in ways]
            missing[column.name] = min(lacking, key=len)
        families = {"stalls": (catalogue()[1], "stall"), "samples": (samples(), "sample")}
        if question in families:
            family, prefix = families[question]
            total += 1
            if not any(derived[f"{prefix}_{reason}"].notna().any() for reason in family.all_reasons()):
                missing[f"{prefix}_<reason>"] = (family.metric.format(reason="*"),)
        result.append(Answer(question, total, total - len(missing), missing))
    return result
