"""Hold samples against launches of known bytes, which harness/known_bytes.cu makes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pandas as pd

from analysis.tables.declare import Column, table
from analysis.tables.sampled import READ, WRITE, OfGpu

if TYPE_CHECKING:
    from analysis.facts import Facts

_KNOWN = re.compile(r"(?:^|/)known (read|copy|write|spin)(\d+)MiB$")
_READS, _WRITES = ("read", "copy"), ("write", "copy")
_HOW = ("alone", "among", "graph")


@table(
    "known_bytes",
    question="Do the samples give the bytes that each launch is known to move?",
    title="Known bytes",
    optional=True,
    columns=(
        Column("how", "", "alone, among others in a stream, or among others in a CUDA graph", "key"),
        Column("range", "", "what the launches do, in MiB", "key"),
        Column("metric", "", "read or written; writes of launches among others also hold what L2 kept before", "key"),
        Column("launches", "1", "launches", "timing"),
        Column("launch_ns", "ns", "mean time of one", "timing"),
        Column("known_bytes", "byte", "what one launch moves", "static"),
        Column("sampled_bytes", "byte", "what the samples say", "sampled"),
        Column("error_bytes", "byte", "half of its 95 % interval", "sampled"),
        Column("off_frac", "0-1", "sampled over known, minus 1; blank where nothing is moved", "sampled"),
        Column("inside", "", "whether the interval holds the known bytes", "sampled"),
    ),
)
def build_known_bytes(facts: Facts) -> pd.DataFrame | None:
    """Return known_bytes.csv: one row for each kind of launch and each metric; None for another program."""
    if not any(_KNOWN.search(str(path)) for path in facts.ranges["path"].unique()):
        return None
    rows = [row for one in facts.sampled for group in range(len(one.groups)) for row in _of_group(one, group)]
    return pd.DataFrame(rows) if rows else None


def _of_group(one: OfGpu, group: int) -> list[dict[str, object]]:
    path = str(one.groups["folded"].iloc[group])
    found = _KNOWN.search(path)
    if not found:
        return []
    launches, time = int(one.groups["launches"].iloc[group]), float(one.found.time[group])
    rows: list[dict[str, object]] = []
    for metric, kinds in ((READ, _READS), (WRITE, _WRITES)):
        figure = one.found.figure(metric, [group])
        how = next((word for word in _HOW if path.startswith(word)), "")
        if figure is None or (metric == WRITE and how != _HOW[0]):
            continue
        known = int(found[2]) * 2**20 if found[1] in kinds else 0
        of_launch = one.peak * time / launches / 1e9
        sampled, error = figure.rate * of_launch, figure.half * of_launch
        rows.append(
            {
                "how": how, "range": f"{found[1]} {found[2]} MiB", "metric": "read" if metric == READ else "written",
                "launches": launches, "launch_ns": time / launches, "known_bytes": known, "sampled_bytes": sampled,
                "error_bytes": error, "off_frac": sampled / known - 1 if known else pd.NA,
                "inside": "yes" if abs(sampled - known) <= error else "no", "tier": "sampled",
            }
        )  # fmt: skip
    return rows
