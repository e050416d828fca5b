"""Find what a loop shows over its repetitions: host and GPU that take turns, and elementwise kernels in a row."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from analysis.diagnosis.claims import About, Claim, cell
from analysis.formats import symbols
from analysis.formats.report import Confidence
from analysis.formats.words import count_of, duration, share
from analysis.fusion.opmap import kind_of_kernel
from analysis.tables import intervals
from analysis.tables.attribution import UNATTRIBUTED, fold_paths
from analysis.tables.gaps import step_paths, takes_turns

WAIT_LESS = (
    "Wait less often (`.item()`, `.cpu()`, printing a tensor), or launch the next step before waiting for this one."
)
LEAST_IDLE = 0.01  # of the bare time; less is not worth a finding
LEAST_CHAIN = 2  # kernels in a row
_ELEMENTWISE = re.compile(r"^(vectorized_|unrolled_)?elementwise_kernel<")


def share_in_steps(gpu_ops: pd.DataFrame, step_ranges: pd.DataFrame) -> float:
    """Return the share of the copies' time that was launched after the first step began; 1 without steps or copies."""
    moved = gpu_ops[gpu_ops["kind"].eq("memcpy")]
    total = float(moved["duration_ns"].sum())
    if step_ranges.empty or not total:
        return 1.0
    launched = moved["api_start_ns"].fillna(moved["start_ns"]).astype(float)
    return float(moved.loc[launched >= float(step_ranges["start_ns"].min()), "duration_ns"].sum()) / total


def idle_in_windows(gpu_ops: pd.DataFrame, step_ranges: pd.DataFrame, gaps: pd.DataFrame) -> pd.Series | None:
    """Return the time in each row of gaps.csv in which no GPU operation ran, not even one of another step. Units: ns.

    None without steps, or with several GPUs.
    """
    if step_ranges.empty or len(gaps) != len(step_ranges) or gpu_ops["device"].nunique() != 1:
        return None
    busy = intervals.union(gpu_ops["start_ns"].to_numpy(np.int64), gpu_ops["duration_ns"].to_numpy(np.int64))
    start, wall = step_ranges["start_ns"].to_numpy(np.int64), gaps["wall_ns"].fillna(0).to_numpy(np.int64)
    return pd.Series(wall - intervals.covered(start, start + wall, busy), index=gaps.index).astype(float)


def turns(steps: pd.DataFrame, gaps: pd.DataFrame, filled: dict[str, float]) -> list[Claim]:
    """Return a finding if the steps keep the GPU busy, but one of them waits for it and so lets it idle for a moment.

    Shape: `steps` steps.csv, `gaps` gaps.csv, `filled` as in bare.py.
    """
    if steps.empty:
        return []
    rows = steps[steps["step"].isin(list(filled)) & steps["blocked_ns"].notna()]
    rows = rows[[takes_turns(float(row.bare_wall_ns), float(row.blocked_ns)) for row in rows.itertuples()]]
    if rows.empty:
        return []
    row = rows.loc[rows["blocked_ns"].astype(float).idxmax()]
    idle = 1 - filled[str(row["step"])]
    if not LEAST_IDLE <= idle < 1:
        return []
    names = step_paths(gaps["step"])
    won = float(gaps.loc[names.isin(list(filled)), "busy_ns"].astype("Float64").sum()) * idle / (1 - idle)
    label = str(gaps.loc[names == row["step"], "step"].iloc[-1]) if (names == row["step"]).any() else ""
    return [
        Claim(
            kind="sync",
            title=f"{row['step']}: host and GPU take turns",
            sentence=(
                f"Each time the host waits for the GPU for {duration(float(row['blocked_ns']))} and launches nothing. "
                f"The GPU then idles until the next launch: {share(idle)} of the time of all steps without a profiler."
            ),
            do=WAIT_LESS,
            scope=f"step {row['step']}",
            bound_ns=round(won),
            about=About(step=label),
            cells=tuple(
                cell("steps", {"step": row["step"]}, name, int(row[name])) for name in ("blocked_ns", "bare_wall_ns")
            ),
        )
    ]


def elementwise_chains(
    gpu_ops: pd.DataFrame, kernels: pd.DataFrame, waiting: tuple[str, ...], root: str | None
) -> list[Claim]:
    """Return findings on PyTorch's elementwise kernels that follow each other on a stream with equal grids.

    For programs whose dataflow was not recorded: names and grids tell that they may be a chain, not that they are.
    Shape: `waiting` beginnings of ranges to leave out; `root` the outermost range to judge, None for all.
    """
    rows = gpu_ops[gpu_ops["kind"].eq("kernel")].sort_values(["device", "stream", "start_ns"], kind="stable")
    if rows.empty:
        return []
    names = {name: symbols.key(name) for name in rows["name"].unique()}
    key, path = rows["name"].map(names).astype(str), rows["path"].astype(str)
    fits = key.map({one: bool(_ELEMENTWISE.match(one)) for one in key.unique()}).astype(bool)
    fits &= ~path.str.startswith(waiting or ("\0",)) & (path.str.startswith(root) if root else True)
    place = pd.Series(list(zip(rows["device"], rows["stream"], path, rows["grid"], rows["block"], fits, strict=True)))
    rows = rows.assign(key=key, path=path, chain=place.ne(place.shift()).cumsum().to_numpy())[fits.to_numpy()]
    found: dict[tuple[str, tuple[str, ...]], list[float]] = {}
    folded = dict(zip(path.unique(), fold_paths(pd.Series(path.unique())), strict=True))
    for _, own in rows.groupby("chain", sort=False):
        if len(own) >= LEAST_CHAIN:
            times = own["duration_ns"].to_numpy(float)
            at = found.setdefault((folded[own["path"].iloc[0]] or UNATTRIBUTED, tuple(own["key"])), [0.0, 0.0, 0.0])
            at[0], at[1], at[2] = at[0] + 1, at[1] + times.sum(), at[2] + times.max()
    best = sorted(found.items(), key=lambda one: one[1][2] - one[1][1])[:1]
    return [_chain(*place, [int(value) for value in values], kernels) for place, values in best]


def _chain(where: str, chain: tuple[str, ...], values: list[int], kernels: pd.DataFrame) -> Claim:
    times, total, longest = values
    kinds = [kind_of_kernel(one) for one in chain]
    known = kernels[kernels["kernel"].isin(chain) & kernels["range"].eq(where)]
    return Claim(
        kind="fuse",
        title=f"{where}: fuse {len(chain)} elementwise kernels in a row ({' > '.join(kinds)})",
        sentence=(
            f"They follow each other {count_of(times, 'time')} with equal grids and take {duration(total)}. One kernel "
            f"for all of them, as torch.compile makes it, wins at most {duration(total - longest)}: it takes at least "
            "as long as the longest of them."
        ),
        do="Write one kernel for them, or let `torch.compile` do it.",
        wrong_if="A kernel does not read what the one before it wrote. The capture does not hold this.",
        confidence=Confidence.UNSURE,
        bound_ns=total - longest,
        about=About(kernel=chain[0], ranges=(where,)),
        cells=tuple(
            cell("kernels", {"kernel": row.kernel, "range": where}, "nsys_time_ns", int(row.nsys_time_ns))
            for row in known.dropna(subset=["nsys_time_ns"]).drop_duplicates("kernel").itertuples()
        ),
        covers=chain,
    )
