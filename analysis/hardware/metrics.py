"""The metric catalogue (metrics.toml): which ncu metrics to capture, and how the report's columns follow from them.

`python -m analysis.hardware.metrics --cc 9.0` prints the argument of `ncu --metrics`.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.capture.errors import InputError, UsageError

if TYPE_CHECKING:
    import pandas as pd

_CATALOGUE = Path(__file__).with_name("metrics.toml")
_OLDEST = 70  # the oldest architecture of the ncu versions that are read


@dataclass(frozen=True)
class Way:
    """One way to compute a column: sum of coefficient * metric, times / over a metric, on cc min_cc..max_cc (* 10)."""

    terms: dict[str, float]
    times: str | None = None
    over: str | None = None
    min_cc: int = 0
    max_cc: int = 999
    capture: bool | str = False

    def needed(self) -> list[str]:
        """The ncu metrics of this way."""
        return [*self.terms, *([self.times] if self.times else []), *([self.over] if self.over else [])]

    def formula(self) -> str:
        """The way as text."""
        text = " + ".join(name if weight == 1 else f"{weight:g} * {name}" for name, weight in self.terms.items())
        if self.times:
            text = f"({text}) * {self.times}"
        return f"({text}) / {self.over}" if self.over else text


@dataclass(frozen=True)
class Column:
    """One short column: its unit, what it answers, where its definition comes from, and the ways to compute it."""

    name: str
    unit: str
    why: str
    source: str
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class Stalls:
    """The stall reasons of the counter family."""

    metric: str
    unit: str
    reasons: tuple[str, ...]
    reasons_from_90: tuple[str, ...]
    not_captured: tuple[str, ...]

    def all_reasons(self) -> list[str]:
        """Every reason of any architecture, sorted."""
        return sorted({*self.reasons, *self.reasons_from_90})

    def name(self, reason: str) -> str:
        """The ncu metric of a reason."""
        return self.metric.format(reason=reason)


@cache
def catalogue() -> tuple[tuple[Column, ...], Stalls]:
    """The columns in their order, and the stall reasons."""
    data = tomllib.loads(_CATALOGUE.read_text(encoding="utf-8"))
    columns = tuple(
        Column(row["name"], row["unit"], row["why"], row["source"], tuple(Way(**way) for way in row["from"]))
        for row in data["column"]
    )
    stall = data["stall"]
    return columns, Stalls(
        stall["metric"],
        stall["unit"],
        tuple(stall["reasons"]),
        tuple(stall["reasons_from_90"]),
        tuple(stall["not_captured"]),
    )


def capture_metrics(cc: str, deep: bool = False) -> list[str]:
    """The raw metrics that a capture on compute capability `cc` ('9.0') needs for every column of `derive`.

    Raises:
        UsageError: `cc` is no compute capability of 7.0 or later.
    """
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9])", cc.strip())
    arch = int(match[1]) * 10 + int(match[2]) if match else 0
    if arch < _OLDEST:
        raise UsageError(
            f"--cc {cc}: is no compute capability that the metric catalogue knows; give one from 7.0 on, such as 9.0."
        )
    columns, stalls = catalogue()
    names: list[str] = []
    for column in columns:
        for way in column.ways:
            wanted = way.capture is True or (deep and way.capture == "deep")
            if wanted and way.min_cc <= arch <= way.max_cc:
                names.extend(way.needed())
                break
    reasons = [*stalls.reasons, *(stalls.reasons_from_90 if 90 <= arch < 100 else ())]
    names.extend(stalls.name(reason) for reason in sorted(reasons) if deep or reason not in stalls.not_captured)
    return list(dict.fromkeys(names))


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
    """The values of one way, NaN where one of its metrics has none."""
    total: Any = 0.0
    for name, weight in way.terms.items():
        total = total + counters[name] * weight
    if way.times:
        total = total * counters[way.times]
    if way.over:
        total = total / counters[way.over].where(counters[way.over] != 0)
    return total


def _tensor_children(counters: pd.DataFrame) -> dict[str, Any]:
    """Tensor FLOPs by format from the op_* children (10.x, 12.x, or hand-picked metrics), one level of them only."""
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
    """The catalogue's columns for each profiled kernel, NaN where what they need was not collected.

    Shape: same index as `counters` (raw ncu metrics in base units); besides the catalogue's columns l2_bytes, flops
    (all FLOPs: NaN also where tensor instructions may have run but were not counted), flops_pipe (where most FLOPs are,
    None where there are none) and stall_<reason> (warps in that state per issued instruction).
    Units: by name.

    Raises:
        InputError: by `units`, a metric did not come in base units.
    """
    import numpy as np
    import pandas as pd

    _check_units(units)
    columns, stalls = catalogue()
    derived: dict[str, Any] = {}
    missing = pd.Series(np.nan, index=counters.index)
    for column in columns:
        values = missing
        for way in column.ways:
            if all(name in counters for name in way.needed()):
                values = values.fillna(_compute(way, counters))
        derived[column.name] = values.astype("float64")
    for fmt, values in _tensor_children(counters).items():
        name = f"flops_tensor_{fmt}"
        derived[name] = derived[name].fillna(values) if name in derived else values.astype("float64")
    derived["flops_fp16"] = _without_constant_moves(counters, derived["flops_fp16"], derived["inst_issued"])
    derived["l2_bytes"] = derived["l2_read_bytes"] + derived["l2_write_bytes"]
    frame = pd.DataFrame(derived, index=counters.index)

    tensor_names = [name for name in frame if name.startswith("flops_tensor_")]
    tensor = frame[tensor_names].sum(axis=1, min_count=1)
    tensor = tensor.fillna(_no_tensor(counters, frame))
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
    return pd.concat([frame, pd.DataFrame(reasons, index=counters.index)], axis=1)


def _without_constant_moves(counters: pd.DataFrame, flops: Any, inst_issued: Any) -> Any:
    """FP16 FLOPs, 0 where the only half instructions are a few HFMA2.

    Compilers load constants with `HFMA2 R, -RZ, RZ, c`: on an H200 fp32 copy and where kernels show 1 to 8 of them a
    thread, at most 4 % of their instructions, and no HADD2 or HMUL2. A kernel that computes in half has far more.
    Unknown stays NaN.
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
    """Refuses a time, a clock or a byte count that did not come in base units."""
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
    """0 for kernels that provably ran no tensor instruction, NaN for the others."""
    import numpy as np
    import pandas as pd

    proof = pd.Series(False, index=counters.index)
    names = [name for name in counters.columns if _TENSOR_INSTRUCTIONS.fullmatch(name)]
    # One op of the pipe at 0 says nothing of the others: only the whole pipe, or all of its ops together, is proof.
    whole = [name for name in names if "_op_" not in name]
    for name in whole:
        proof |= counters[name] == 0
    proof |= frame["tensor_active_frac"] == 0
    if "cc" in counters:
        proof |= counters["cc"].isin(["5.0", "5.2", "5.3", "6.0", "6.1", "6.2"])
    return pd.Series(np.where(proof, 0.0, np.nan), index=counters.index)


# ------------------------------------------------------------------------------------------------ command line


def _print_list() -> None:
    columns, stalls = catalogue()
    for column in columns:
        print(f"{column.name} [{column.unit}]: {column.why}")
        for way in column.ways:
            where = "" if (way.min_cc, way.max_cc) == (0, 999) else f"  (cc {way.min_cc / 10} to {way.max_cc / 10})"
            print(f"    {way.formula()}{where}")
        print(f"    source: {column.source}")
    print(f"stall_<reason> [{stalls.unit}]: {stalls.metric}")
    print(f"    reasons: {', '.join(stalls.all_reasons())}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the metrics of a capture as ncu's `--metrics` takes them; exit code 2 for an unknown architecture."""
    parser = argparse.ArgumentParser(prog="python -m analysis.hardware.metrics", description=main.__doc__)
    parser.add_argument("--cc", metavar="X.Y", help="compute capability of the GPU, such as 9.0")
    parser.add_argument("--deep", action="store_true", help="add what only a slow, complete capture needs")
    parser.add_argument("--list", action="store_true", help="print the whole catalogue: column, unit, formula, source")
    options = parser.parse_args(arguments)
    if options.list:
        _print_list()
        return 0
    if not options.cc:
        parser.error("give --cc X.Y or --list")
    try:
        print(",".join(capture_metrics(options.cc, deep=options.deep)))
    except UsageError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
