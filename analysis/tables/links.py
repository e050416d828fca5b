"""Build links.csv: the bandwidth of each link over the size of a transfer. It is the roof of copies and collectives."""

from typing import Any

import numpy as np
import pandas as pd

from analysis.formats.words import count_of
from analysis.tables.declare import Column, Facts, part, table


@table(
    "links",
    question="How fast are the links between host and GPUs, over the size of a transfer?",
    title="Links",
    columns=(
        Column(
            "link",
            "host_to_device or device_to_host with pageable or pinned memory, peer_copy between two GPUs, or a "
            "collective of NCCL",
            "key",
        ),
        Column("ranks", "GPUs that take part", "key", "1"),
        Column(
            "bytes",
            "size of the transfer as nccl-tests counts it: what each rank holds at the end of an all-gather, or at the "
            "beginning of a reduce-scatter",
            "row",
        ),
        Column("time_p5_ns", "time of a transfer on the slowest rank, 5th percentile", "timing", shown=False),
        Column("time_p50_ns", "time of a transfer on the slowest rank, median", "timing"),
        Column("time_p95_ns", "time of a transfer on the slowest rank, 95th percentile", "timing", shown=False),
        Column(
            "byte_per_s",
            "bytes over the median time: what one link carries one way. For a collective this is the bus bandwidth, "
            "with the factor of nccl-tests: 2(n-1)/n for an all-reduce, (n-1)/n for an all-gather or reduce-scatter",
            "timing",
            "byte/s",
        ),
    ),
    glance=lambda rows: rows.sort_values("byte_per_s", ascending=False, kind="stable").drop_duplicates("link"),
)
def build_links(facts: Facts) -> pd.DataFrame | None:
    """Return links.csv, one row for each link, number of GPUs and size; None if ceilings.json has no links.

    Source: `harness.links`, which measures the links into ceilings.json.
    """
    rows = [
        {
            "link": one["name"],
            "ranks": one["ranks"],
            "bytes": one["bytes"],
            **{f"time_{name}_ns": one["time_ns"].get(name, np.nan) for name in ("p5", "p50", "p95")},
            "byte_per_s": one["byte_per_s"],
            "tier": "timing",
        }
        for one in (facts.allowed_ceilings[0] or {}).get("links") or []
    ]
    return pd.DataFrame(rows) if rows else None


def roof_at(links: pd.DataFrame, link: str, ranks: int, size: float) -> float:
    """Return the bandwidth of a link at a size, byte/s; NaN if unknown. `size`: bytes.

    Between two measured sizes, interpolate on log axes. A transfer below the smallest measured size takes as long as
    that one. Above the largest, the bandwidth stays the same.
    """
    rows = links[(links["link"] == link) & (links["ranks"] == ranks)].sort_values("bytes") if len(links) else links
    if rows.empty or not size > 0:
        return float("nan")
    sizes, rates = rows["bytes"].to_numpy(float), rows["byte_per_s"].to_numpy(float)
    if size < sizes[0]:
        return float(rates[0] * size / sizes[0])
    return float(np.exp(np.interp(np.log(size), np.log(sizes), np.log(rates))))


@part("note")
def _measured_with(facts: Facts) -> str | None:
    """Say under which conditions the links were measured."""
    said: dict[str, Any] | None = (facts.allowed_ceilings[0] or {}).get("link_conditions")
    if not said:
        return None
    is_off = said["nccl_variables"].get("NCCL_NVLS_ENABLE") == "0"
    multicast = "NVLink multicast (NVLS) off" if is_off else "NVLS allowed"
    library = f"NCCL {said['nccl']}" if said["nccl"] else said["backend"]
    return (
        f"Links: measured on {count_of(said['ranks'], 'GPU')} with {library}, {multicast}; collectives on "
        f"{said['dtype']} data."
    )
