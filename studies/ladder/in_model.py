"""Read the time of an operation inside GPT-2: the time of its kernels in the timeline of a committed run.

A report of GPT-2 beside a ladder `x-ladder` is named `x-gpt2-…`. Its captures/ops.csv describes what each range
computes, and its tables/layers.csv has the kernel time of each range. A range counts if it holds the whole operation
and nothing else: a range that does more, or only a part of a chain, has a note in ops.csv.
"""

from __future__ import annotations

import io
import math
from pathlib import Path

import pandas as pd

from analysis.formats import packed
from analysis.formats.run import OPS
from analysis.formats.spans import QUANTILES, quantiles
from analysis.tables.declare import Column

COLUMNS = (
    *(
        Column(
            f"in_model_time_{at}_ns",
            "ns",
            f"its kernels inside GPT-2, as nsys recorded them, of all places with these sizes: {at}",
            "timing",
        )
        for at in QUANTILES
    ),
    Column("in_model_calls", "1", "places of the model with these sizes", "static"),
    Column("in_model_run", "", "folder of the report that recorded them", "key"),
)
POINT = ["op", "variant", "dtype", "shape"]


def read_in_model(folder: Path) -> pd.DataFrame:
    """Return POINT and COLUMNS, one row for each operation, variant, dtype and sizes, from the last run that has it.

    Shape: `folder` is that of a ladder; the reports lie beside it.
    """
    names = [*POINT, *(column.name for column in COLUMNS)]
    resolved = folder.resolve()
    prefix = resolved.name.removesuffix("ladder")
    parts = []
    for file in sorted(resolved.parent.glob(f"{prefix}gpt2*/captures/{OPS.name}*")) if prefix else []:
        report = file.parents[1]
        layers = report / "tables" / "layers.csv"
        if layers.is_file():
            known = pd.read_csv(io.BytesIO(packed.read_bytes(file)), keep_default_na=False)
            parts.append(_times(known, pd.read_csv(layers)).assign(in_model_run=report.name))
    if not parts:
        return pd.DataFrame(columns=names)
    return pd.concat(parts, ignore_index=True).drop_duplicates(POINT, keep="last")[names]


def _times(declared: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """Return POINT with the times of one run. Shape: `declared` as ops.csv, `layers` as layers.csv."""
    whole = declared[(declared["note"] == "") & declared["range"].str.startswith("gpt2")]
    placed = whole.merge(layers[["range", "calls", "gpu_time_ns"]], on="range").apply(_as_registered, axis="columns")
    rows = []
    for point, same in placed[placed["op"] != ""].groupby(POINT, sort=False) if len(placed) else ():
        p5, p50, p95 = quantiles((same["gpu_time_ns"] / same["calls"]).tolist())
        times = {f"in_model_time_{at}_ns": round(value) for at, value in zip(QUANTILES, (p5, p50, p95), strict=True)}
        rows.append(dict(zip(POINT, point, strict=True)) | times | {"in_model_calls": int(same["calls"].sum())})
    return pd.DataFrame(rows, columns=[*POINT, *(column.name for column in COLUMNS[:-1])])


def _as_registered(row: pd.Series) -> pd.Series:
    """Return a row of ops.csv with op, variant and shape in the registry's terms; op "" if the registry has no such op.

    `encoder` computes the embeddings. A linear layer is `torch.addmm` with weights as (K, N): a matrix product, or with
    one token a matrix-vector product. The LM head has weights as (N, K) and no bias, which its operations show.
    """
    if row["op"] != "linear":
        return pd.Series({**row, "op": "encoder" if row["op"] == "embeddings" else row["op"]})
    m, n, k = sizes = [int(size) for size in str(row["shape"]).split("x")]
    if row["flops"] in ("", None) or int(row["flops"]) != 2 * math.prod(sizes) + m * n:
        return pd.Series({**row, "op": ""})
    if m == 1:
        return pd.Series({**row, "op": "gemv", "variant": "columns", "shape": f"{n}x{k}"})
    return pd.Series({**row, "op": "matmul"})
