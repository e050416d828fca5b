"""Read counters that nsys sampled while the program ran: from its exports, and from the small file that we keep.

GPU_METRICS holds one row for each metric and sample. A sample has one time for all metrics of a GPU. `typeId & 0xFF` is
nsys' number of the GPU. Names and units depend on the architecture (analysis/hardware/sampled.toml).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.capture.folder_table import FolderTables
from analysis.capture.sqlite_table import Tables
from analysis.formats.errors import InputError
from analysis.formats.report import Missing, Reason
from analysis.hardware.sampled import PERCENT, column_of, quantities

ROWS, NAMES, CUDA = "GPU_METRICS", "TARGET_INFO_GPU_METRICS", "TARGET_INFO_CUDA_DEVICE"
KIND, VERSION = "samples", "1"
_DESCRIBES = b"kernel_ledger"  # the key of our metadata
_AGAIN = "capture again with `nsys profile --gpu-metrics-devices=all`"


def of_export(file: Tables | FolderTables, where: str) -> tuple[pd.DataFrame | None, list[Missing]]:
    """Return the samples of an export, one row for each GPU and time, and what is missing of them.

    Columns: gpu (its CUDA number where the export tells it), time_ns, and the columns of sampled.toml as fractions,
    bytes or Hz, NaN where a GPU lacks the metric. None if the export has no samples.

    Raises:
        InputError: the file is damaged.
    """
    tables = file.tables()
    if not {"timestamp", "typeId", "metricId", "value"} <= set(tables.get(ROWS, ())):
        return None, []
    if not {"typeId", "metricId", "metricName"} <= set(tables.get(NAMES, ())):
        why = f"{where} holds {ROWS} without {NAMES}, so the names of the metrics are unknown"
        return None, [Missing(Reason.UNREAD, "the sampled counters", why, f"export both tables, or {_AGAIN}")]
    listed = file.read_table(NAMES, ["typeId", "metricId", "metricName"])
    keys = zip(listed["typeId"].values.tolist(), listed["metricId"].values.tolist(), strict=True)
    known = {key: column_of(str(name)) for key, name in zip(keys, listed["metricName"].values.tolist(), strict=True)}
    read = file.read_table(ROWS, ["timestamp", "typeId", "metricId", "value"])
    if not any(known.values()) or not len(read["timestamp"].values):
        names = ", ".join(sorted({str(name) for name in listed["metricName"].values.tolist()})[:3]) or "none"
        why = f"{where} samples no metric that this program knows (it has {names})"
        return None, [Missing(Reason.UNREAD, "the sampled counters", why, _AGAIN)]
    cuda = _cuda_numbers(file, tables)
    kind = read["typeId"].values.astype(np.int64)
    found = [
        _wide({name: read[name].values[kind == one] for name in ("timestamp", "metricId", "value")},
              {metric: column for (of, metric), column in known.items() if of == one and column}
              ).assign(gpu=cuda.get(int(one) & 0xFF, int(one) & 0xFF))
        for one in np.unique(kind)
    ]  # fmt: skip
    return _ordered(pd.concat(found, ignore_index=True)), []


def _cuda_numbers(file: Tables | FolderTables, tables: Mapping[str, Any]) -> dict[int, int]:
    """Return the CUDA number of each GPU of nsys, if all processes agree on it."""
    if not {"gpuId", "cudaId"} <= set(tables.get(CUDA, ())):
        return {}
    read = file.read_table(CUDA, ["gpuId", "cudaId"])
    pairs = set(zip(read["gpuId"].values.tolist(), read["cudaId"].values.tolist(), strict=True))
    numbers = {int(gpu): int(number) for gpu, number in pairs}
    return numbers if len(numbers) == len(pairs) == len(set(numbers.values())) else {}


def _wide(read: Mapping[str, Any], columns: Mapping[int, str]) -> pd.DataFrame:
    """Return one row for each time of one GPU; metrics of one column are added."""
    times, place = np.unique(read["timestamp"].astype(np.int64), return_inverse=True)
    table: dict[str, Any] = {"time_ns": times}
    for metric, column in columns.items():
        rows = read["metricId"] == metric
        values = np.full(len(times), np.nan)
        values[place[rows]] = read["value"][rows].astype(np.float64) * (PERCENT if column.endswith("_frac") else 1)
        if column.endswith("_hz"):
            values[values < 1e6] *= 1e6  # older versions store MHz
        table[column] = table[column] + values if column in table else values
    return pd.DataFrame(table)


def _ordered(rows: pd.DataFrame) -> pd.DataFrame:
    columns = [one.name for one in quantities() if one.name in rows]
    rows = rows[["gpu", "time_ns", *columns]].astype(dict.fromkeys(columns, "float64") | {"gpu": "int64"})
    return rows.sort_values(["gpu", "time_ns"], kind="stable", ignore_index=True)


def write(rows: pd.DataFrame, attributes: Mapping[str, float], path: Path) -> None:
    """Write samples.parquet: the samples, and `attributes` of the GPU (see Capture.gpu_attributes); nothing else."""
    about = {"kind": KIND, "schema_version": VERSION, "gpu": dict(attributes)}
    columns = [name for name in rows if name != "time_ns"]
    narrow = rows.astype({name: "float32" for name in rows if name not in ("gpu", "time_ns")} | {"gpu": "int16"})
    table = pa.Table.from_pandas(narrow, preserve_index=False)
    table = table.replace_schema_metadata({_DESCRIBES: json.dumps(about).encode()})
    pq.write_table(
        table, path, compression="zstd", compression_level=19, use_dictionary=columns,
        column_encoding={"time_ns": "DELTA_BINARY_PACKED"}, write_statistics=False,
    )  # fmt: skip


def described(path: Path) -> dict[str, Any]:
    """Return what samples.parquet says about itself; {} for another Parquet file.

    Raises:
        InputError: the file is damaged.
    """
    try:
        told = (pq.read_schema(path).metadata or {}).get(_DESCRIBES, b"{}")
        return dict(json.loads(told))
    except (OSError, ValueError, pa.ArrowException):
        raise InputError(f"{path.name}: is damaged or cut off; {_AGAIN}.") from None


def read(path: Path, name: str) -> tuple[pd.DataFrame, dict[str, float]]:
    """Return the samples of samples.parquet (columns as `of_export`), and the attributes of the GPU.

    Raises:
        InputError: the file is damaged, or a newer version of this program wrote it.
    """
    about = described(path)
    if about.get("schema_version") != VERSION:
        raise InputError(f"{name}: has version {about.get('schema_version')} of the format, not {VERSION}; update.")
    try:
        rows = pq.read_table(path).to_pandas()
        return _ordered(rows), {str(key): float(value) for key, value in about.get("gpu", {}).items()}
    except (OSError, KeyError, ValueError, pa.ArrowException):
        raise InputError(f"{name}: is damaged or cut off; {_AGAIN}.") from None
