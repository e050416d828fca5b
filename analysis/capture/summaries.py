"""Turn nsys' own summaries into tidy tables: the schema as data, and the one function that fills it.

A time in the name of a column is in ns, a size in bytes. A value that an older nsys does not print is NA. These tables
hold facts that the traces lack: time in API and system calls, sizes of copies, ranges as nsys sums them. osrt_sum adds
up threads, so its times are no share of the wall time. A projected range is the span from its first to its last GPU
operation, gaps included, and not a sum of kernel time.
"""

from collections.abc import Mapping

import pandas as pd

from analysis.capture.model import Field, as_table, dtypes
from analysis.capture.nsys_numbers import Table
from analysis.capture.nsys_reports import UNKNOWN_SIZE

_FILE = Field("file", "str", "", "file it was read from")
_TIMES = (
    Field("total_ns", "Int64", "ns", "sum"),
    Field("mean_ns", "Float64", "ns", "arithmetic mean"),
    Field("median_ns", "Float64", "ns", "median (2022 and later)"),
    Field("min_ns", "Int64", "ns", "shortest"),
    Field("max_ns", "Int64", "ns", "longest"),
    Field("stddev_ns", "Float64", "ns", "sample standard deviation, 0 for one sample"),
)
_SIZES = (
    Field("total_bytes", "Int64", "byte", "sum; nsys rounds to 1 kB unless it was asked for bytes"),
    Field("mean_bytes", "Float64", "byte", "arithmetic mean"),
    Field("median_bytes", "Float64", "byte", "median (2022 and later)"),
    Field("min_bytes", "Int64", "byte", "smallest"),
    Field("max_bytes", "Int64", "byte", "largest"),
    Field("stddev_bytes", "Float64", "byte", "sample standard deviation"),
)
_PHASES = {"T": "whole", "A": "api", "Q": "queue", "K": "kernel"}


def _named(name: str, meaning: str) -> tuple[Field, ...]:
    return (_FILE, Field("name", "str", "", meaning))


def _of_phase(letter: str) -> tuple[Field, ...]:
    phase = _PHASES[letter]
    return tuple(
        Field(f"{phase}_{field.name}", field.dtype, field.unit, f"{field.meaning}: {phase} time")
        for field in _TIMES[1:]
    )


_COUNT = Field("count", "Int64", "1", "calls, operations or instances")
_STYLE = Field("style", "str", "", "PushPop or StartEnd; '' where nsys does not say")
_THREAD = (Field("pid", "Int64", "", "process"), Field("tid", "Int64", "", "thread"))

SUMMARIES: Mapping[str, tuple[Field, ...]] = {
    "cuda_api_sum": (*_named("name", "CUDA API call, without a version"), _COUNT, *_TIMES),
    "osrt_sum": (*_named("name", "call of the operating system's runtime"), _COUNT, *_TIMES),
    "cuda_gpu_mem_time_sum": (*_named("name", "operation, as 2023 and later call it"), _COUNT, *_TIMES),
    "cuda_gpu_mem_size_sum": (*_named("name", "operation, as 2023 and later call it"), _COUNT, *_SIZES),
    "nvtx_sum": (*_named("name", "range"), _STYLE, _COUNT, *_TIMES),
    "nvtx_range_sum": (*_named("name", "range, push/pop or start/end: both reports have this header"), _COUNT, *_TIMES),
    "nvtx_gpu_proj_sum": (
        *_named("name", "range"),
        _STYLE,
        Field("projected_ns", "Int64", "ns", "sum of the spans on the GPU"),
        Field("range_ns", "Int64", "ns", "sum of the ranges on the CPU"),
        _COUNT,
        Field("gpu_operations", "Int64", "1", "kernels, copies and sets; a graph counts once"),
    ),
    "nvtx_gpu_proj_trace": (
        *_named("name", "range"),
        _STYLE,
        *_THREAD,
        Field("start_ns", "Int64", "ns", "start of the first GPU operation"),
        Field("duration_ns", "Int64", "ns", "from there to the end of the last one, gaps included"),
        Field("range_start_ns", "Int64", "ns", "start of the range on the CPU"),
        Field("range_duration_ns", "Int64", "ns", "its duration there"),
        Field("gpu_operations", "Int64", "1", "kernels, copies and sets; a graph counts once"),
        Field("level", "Int64", "", "depth among push/pop and start/end ranges together"),
        Field("range_id", "Int64", "", "id in this export"),
        Field("parent_id", "Int64", "", "id of the range around it"),
    ),
    "cuda_kern_exec_sum": (
        *_named("name", "kernel"),
        Field("api_name", "str", "", "launching call, without a version"),
        *_THREAD,
        Field("device", "str", "", "device number"),
        _COUNT,
        Field("queued", "Int64", "1", "of these, launches that returned before the kernel started"),
        *(field for letter in _PHASES for field in _of_phase(letter)),
    ),
}
_STATISTICS = ("Avg", "Med", "Min", "Max", "StdDev")
_SOURCES = {
    "style": ("Style",),
    "count": ("Instances", "Num Calls", "Count", "Range Instances"),
    "total_ns": ("Total Time",),
    "total_bytes": ("Total",),
    "projected_ns": ("Total Proj Time",),
    "range_ns": ("Total Range Time",),
    "gpu_operations": ("NumGPUOps", "Total GPU Ops"),
    "pid": ("PID",),
    "tid": ("TID",),
    "start_ns": ("Projected Start",),
    "duration_ns": ("Projected Duration",),
    "range_start_ns": ("Orig Start",),
    "range_duration_ns": ("Orig Duration",),
    "level": ("Lvl",),
    "range_id": ("RangeId",),
    "parent_id": ("ParentId",),
    "api_name": ("API Name",),
    "device": ("DevId",),
    "queued": ("QCount",),
    **{
        f"{prefix}{word}_{unit}": (f"{letter}{column}",)
        for letter, prefix in (("", ""), *((letter, f"{phase}_") for letter, phase in _PHASES.items()))
        for word, column in zip(("mean", "median", "min", "max", "stddev"), _STATISTICS, strict=True)
        for unit in ("ns", "bytes")
    },
}
_NAMES = ("Kernel Name", "Operation", "NVTX Range", "Range", "Name")


def summary(table: Table, names: pd.Series) -> pd.DataFrame:
    """Return the summary of an nsys table, with the columns of SUMMARIES[table.report].

    Sizes without a unit (nsys 2020 prints none) stay NA: they may be bytes, KiB or MB.
    """
    schema = SUMMARIES["cuda_gpu_mem_time_sum" if table.report == "cuda_gpu_sum" else table.report]
    sizes_known = table.report != "cuda_gpu_mem_size_sum" or table.raw.unit("Total") != UNKNOWN_SIZE
    columns = {}
    for field in schema:
        source = next((name for name in _SOURCES.get(field.name, ()) if table.has(name)), None)
        if field.name == "file":
            columns["file"] = pd.Series([table.where], dtype="str").repeat(len(table)).reset_index(drop=True)
        elif field.name == "name":
            columns["name"] = names
        elif source is None or (field.unit == "byte" and not sizes_known):
            continue
        elif field.dtype == "str":
            columns[field.name] = table.texts(source).str.strip()
        else:
            columns[field.name] = table.integers(source) if field.dtype == "Int64" else table.floats(source)
    return as_table(columns, dtypes(schema))


def name_column(table: Table) -> str:
    """Return the column of a summary that names its rows."""
    return next(name for name in _NAMES if table.has(name))
