"""Weigh a step's timeline at once: how likely is each cause, given what steps of known causes look like?

Rules propose changes, and the replay says what each saves. These weights only help to say which one comes first. They
are of the kind of `likelihood.py`, over quantities of a steady step. step_likelihood.json holds them, and
`tests/answer_key/weigh.py` computes the file and says how right the order is on sets that it left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.diagnosis import likelihood
from analysis.formats.report import PartKind
from analysis.replay.graph import NONE, Bools

if TYPE_CHECKING:
    from analysis.diagnosis.step_rules.view import View

FILE = Path(__file__).with_name("step_likelihood.json")
SMALL = 65_536.0  # bytes
HALF = 0.5  # of the GPU: fewer blocks leave much of it idle
SOBER = 16.0  # see likelihood.SOBER: shares are right about as often as they say on sets left out
TRUST = 0.5  # the power of a likelihood: the rule and its saving saw the same timeline. 0.25 to 1 order sets alike
RANKS = (PartKind.COMMUNICATION, PartKind.RANK_WAIT)  # too few programs of several ranks are known to weigh these
LIBRARIES = ("pytorch", "jax", "cupy", "cuda")
KERNELS = {
    "elementwise": r"elementwise|vectorized|unrolled|cupy_|fusion|triton_poi",
    "products": r"gemm|nvjet|cutlass|xmma|matmul|wgmma",
    "fp32_products": r"sgemm|f32f32|ffma|simt",
    "copies": r"copy|cat_|CatArray|transpose|permute|clone",
    "layouts": r"nchw|nhwc|transpose|permute|Permute",
    "reductions": r"reduce|norm|softmax",
    "own": r"^[a-z_0-9]+$",
    "halves": r"half|bf16|f16|BFloat",
    "triton": r"triton",
}
CALLS = {
    "waits": r"cu(da)?(Device|Ctx|Thread|Stream|Event)Synchronize",
    "asks": r"cu(da)?(Stream|Event)Query",
    "allocates": r"cu(da)?(Mem)?(Malloc|Alloc)",
    "frees": r"cu(da)?(Mem)?Free",
    "loads": r"cu(da)?(Module(Load|Get)|LibraryLoad|Link)|nvrtc",
    "records": r"cu(da)?GraphInst",
    "graphs": r"cu(da)?GraphLaunch",
    "pins": r"cu(da)?(MemAllocHost|HostAlloc|MemHostAlloc)",
}


def _many(view: View, rows: Bools) -> float:
    """Return the logarithm of how many of these a step has."""
    return float(np.log10(1 + np.count_nonzero(rows) / view.graph.steps))


def _kernels(view: View) -> dict[str, float]:
    """Return how many kernels a step has, how long, how full and of which kinds they are."""
    graph, of = view.graph, view.kernels
    took, fill = graph.o_duration[of], graph.o_fill[of]
    names, whole = view.names[of], max(float(took.sum()), 1.0)
    sums = pd.Series(took).groupby(names).sum()

    def part(rows: Bools) -> float:
        return float(took[rows].sum()) / whole

    return {
        "kernels": _many(view, of),
        "kernel_long": float(np.log10(max(took.mean(), 1.0))) if len(took) else 0.0,
        "kernel_frac": view.share(view.time(of)),
        "kernel_names": float(np.log10(max(len(sums), 1))),
        "longest_name": float(sums.max()) / whole if len(sums) else 0.0,
        "small_grids": part(fill < HALF),
        "filled": float((took * np.minimum(fill, 1.0)).sum()) / whole,
        "streams": float(np.log2(max(len(np.unique(graph.o_stream[of])), 1))),
        "graphed": view.graphed,
        "collectives": part(view.talks[of]),
        **{f"kernels_{kind}": part(view.named(pattern)[of]) for kind, pattern in KERNELS.items()},
    }


def _moves(view: View) -> dict[str, float]:
    """Return how many copies, sets and migrations a step has, their time and their bytes."""
    copies, up, down = np.asarray(view.graph.o_kind == "memcpy"), view.to_gpu(), view.to_host()
    kinds = {
        "up": up,
        "down": down,
        "inside": copies & view.named(r"Device-to-Device|DtoD"),
        "sets": np.asarray(view.graph.o_kind == "memset"),
        "pages": view.migrates,
    }
    found = {}
    for kind, rows in kinds.items():
        found[f"{kind}_many"], found[f"{kind}_frac"] = _many(view, rows), view.share(view.time(rows))
        found[f"{kind}_bytes"] = float(np.log10(1 + view.bytes[rows].sum() / view.graph.steps / 1e3))
    return found | {
        "pageable": float(view.pageable[copies].mean()) if copies.any() else 0.0,
        "up_small": _many(view, up & (view.bytes <= SMALL)),
        "down_small": _many(view, down & (view.bytes <= SMALL)),
    }


def _host(view: View) -> dict[str, float]:
    """Return what the host does in a step: its work, its waits and its calls."""
    graph, long = view.graph, view.long_gaps
    found = {
        "host_frac": view.share(view.of_step((graph.c_gap + graph.c_own).sum())),
        "gaps_frac": view.share(view.of_step(long.sum())),
        "gaps_many": _many(view, long > 0),
        "gap_longest": view.share(float(graph.c_gap.max(initial=0.0))),
        "waiting_many": _many(view, graph.c_wait != NONE),
    }
    for kind, pattern in CALLS.items():
        rows = view.called(pattern)
        found[f"{kind}_many"] = _many(view, rows)
        found[f"{kind}_frac"] = view.share(view.of_step(graph.c_own[rows].sum()))
    return found


def quantities(view: View) -> dict[str, float]:
    """Return what the weights look at. Shares are of the step; counts are logarithms of those of one step."""
    parts = dict(view.parts.busy_parts)
    return {
        **{f"part_{part}": parts.get(part, 0) / max(view.parts.wall_ns, 1) for part in PartKind if part not in RANKS},
        **{library: float(view.library == library) for library in LIBRARIES},
        **_kernels(view), **_moves(view), **_host(view),
    }  # fmt: skip


@cache
def weights() -> pd.DataFrame:
    """Return step_likelihood.json, in the form of `likelihood.weights`."""
    return likelihood.read(FILE)


def chances(view: View) -> Mapping[str, float]:
    """Return how likely each cause is, by what the step looks like; the sum over causes is 1."""
    return weighed(quantities(view), weights())


def weighed(found: Mapping[str, float], table: pd.DataFrame) -> dict[str, float]:
    """Return the likelihood of each cause, given the quantities of one step."""
    rows = table.drop(index="bias")
    values = np.array([found[name] for name in rows.index])
    z = likelihood.scaled(values, rows["mean"].to_numpy(), rows["spread"].to_numpy())
    scores = z @ rows.iloc[:, 2:].to_numpy() + table.loc["bias"].iloc[2:].to_numpy(np.float64)
    odds = likelihood.odds(scores, SOBER)
    return dict(zip(table.columns[2:], odds.tolist(), strict=True))


def chance(likely: Mapping[str, float], kind: str) -> float:
    """Return what a saving counts, from how likely its cause is: one that was not weighed, as much as the likeliest."""
    return float(likely.get(kind, max(likely.values(), default=1.0)) ** TRUST)
