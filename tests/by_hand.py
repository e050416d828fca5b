"""Graphs of a few calls and operations, and the view of a rule on such a step; times in ns."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.capture.model import CALLS_COLUMNS, GPU_OPS_COLUMNS, Capture, as_table
from analysis.diagnosis.step_rules.view import Proposal, View
from analysis.replay import changes
from analysis.replay.decompose import Decomposition
from analysis.replay.graph import ALLOCATION, NONE, Graph
from analysis.replay.savings import Step
from analysis.replay.simulate import simulate
from analysis.replay.steady import Phase, Steady

LAG, AFTER = 4.0, 1.0
LAUNCH = "cudaLaunchKernel"


def bools(*rows: int, of: int) -> np.ndarray:
    return np.isin(np.arange(of), rows)


def graph(calls: list[dict[str, Any]], ops: list[dict[str, Any]], **more: Any) -> Graph:
    """Return a graph. calls: name, gap, own, wait, target, tail, seq; ops: name, ns, call, stream and what else differs.

    An operation begins LAG after its call in the timeline; calls follow each other without waits.
    """
    usual_call = {
        "name": "cudaLaunchKernel",
        "gap": 10.0,
        "own": 5.0,
        "wait": NONE,
        "target": -1,
        "tail": 0.0,
        "seq": 0,
    }
    c = pd.DataFrame(
        [usual_call | {"launches": one.get("name", "") in ("", "cudaLaunchKernel")} | one for one in calls]
    )
    end = (c["gap"] + c["own"]).groupby(c["seq"]).cumsum().to_numpy(np.int64)
    start = end - c["own"].to_numpy(np.int64)
    usual = {"name": "k", "ns": 2.0, "stream": 0, "kind": "kernel", "bytes": 0.0, "fill": 1.0, "dep": -1, "dep_gap": 0.0,
             "group": -1, "before": -1}  # fmt: skip
    rows = [usual | {"call": at} | one for at, one in enumerate(ops)]
    o = pd.DataFrame([{"start": start[one["call"]] + LAG if one["call"] >= 0 else 0} | one for one in rows])
    streams = int(o["stream"].max()) + 1
    seqs = int(c["seq"].max()) + 1
    whole = lambda values: values.to_numpy(np.int64)  # noqa: E731
    real = lambda values: values.to_numpy(np.float64)  # noqa: E731
    given = {
        "start_ns": 0, "end_ns": int(end.max()), "steps": 1, "c_start": start, "c_end": end, "c_seq": whole(c["seq"]),
        "c_name": c["name"].to_numpy(object), "c_gap": real(c["gap"]), "c_own": real(c["own"]), "c_wait": whole(c["wait"]),
        "c_target": whole(c["target"]), "c_tail": real(c["tail"]), "c_launches": c["launches"].to_numpy(bool),
        "c_row": np.arange(len(c)), "o_start": whole(o["start"]), "o_duration": real(o["ns"]), "o_call": whole(o["call"]),
        "o_host": whole(o["call"]), "o_stream": whole(o["stream"]), "o_lag": np.full(len(o), LAG),
        "o_after": np.full(len(o), AFTER), "o_before": whole(o["before"]), "o_dep": whole(o["dep"]),
        "o_dep_gap": real(o["dep_gap"]), "o_group": whole(o["group"]), "o_name": o["name"].to_numpy(object),
        "o_kind": o["kind"].to_numpy(object), "o_row": np.arange(len(o)), "o_bytes": real(o["bytes"]), "o_fill": real(o["fill"]),
        "stream_names": tuple(f"GPU 0/{at}" for at in range(streams)), "stream_free": np.zeros(streams),
        "stream_pid": np.ones(streams, np.int64), "seq_pid": np.ones(seqs, np.int64), "seq_begin": np.zeros(seqs, np.int64),
        "main": 1,
    }  # fmt: skip
    return Graph(**(given | more))


def launches(*durations: float, **more: Any) -> Graph:
    """Launches 15 ns apart on one stream."""
    return graph([{} for _ in durations], [{"ns": ns} for ns in durations], **more)


def op(start: int, ns: int, called: int | None = None, **more: Any) -> dict[str, Any]:
    """An operation, and the start of its call, which lasts 5."""
    usual = {"kind": "kernel", "name": "k", "grid": "", "block": "", "stream": 7, "device": "GPU 0", "pid": 1, "tid": 1,
             "bytes": None, "memory": ""}  # fmt: skip
    times = {"start_ns": start, "duration_ns": ns, "api_start_ns": called}
    return usual | times | {"api_end_ns": None if called is None else called + 5, "correlation_id": called} | more


def captured(ops: list[dict[str, Any]], calls: list[tuple[Any, ...]] | None = None) -> Capture:
    """calls: start, end, name, thread, process. Without a list, each operation with a call has one in it."""
    if calls is None:
        calls = [(one["api_start_ns"], one["api_end_ns"], LAUNCH, one["tid"], one["pid"]) for one in ops
                 if one["api_start_ns"] is not None]  # fmt: skip
    rows = pd.DataFrame(
        [[*one, *(1, 1)][:5] for one in sorted(calls)], columns=["start_ns", "end_ns", "name", "tid", "pid"]
    )
    table = pd.DataFrame(ops).astype(
        dict.fromkeys(("api_start_ns", "api_end_ns", "correlation_id", "pid", "bytes", "stream"), "Int64")
    )
    table = table.sort_values("start_ns", ignore_index=True)
    return Capture(
        gpu_ops=as_table(dict(table), GPU_OPS_COLUMNS), calls=as_table(dict(rows), CALLS_COLUMNS) if calls else None
    )


def view(one: Graph, *, wall: int = 1_000_000, count: int = 9, **more: Any) -> View:
    """Return the view on a step of `wall` ns that repeats `count` times; memory and grid are of each operation."""
    columns = {"memory": more.pop("memory", ""), "grid": more.pop("grid", "1x1x1")}
    named = {
        "start_ns": one.o_start,
        "duration_ns": one.o_duration,
        "kind": one.o_kind,
        "name": one.o_name,
        "bytes": one.o_bytes,
    }
    rows = pd.DataFrame(named).assign(pid=1, **columns)
    capture = Capture(gpu_ops=as_table(dict(rows.items()), GPU_OPS_COLUMNS), **more.pop("capture", {}))
    ends = np.array(more.pop("ends", np.arange(1, count + 1) * wall))
    begin = np.insert(ends[:-1], 0, 0)
    phase = Phase(
        more.pop("name", "step"), 1, "", begin, ends, begin, ends, ends - begin, len(rows), 0, np.zeros(0, np.int64)
    )
    step = Step(phase, one, simulate(one), (one,), (float(wall),), False, float(wall))
    parts = Decomposition(wall, (), (), pd.DataFrame(), ())
    return View(capture, Steady((phase,), reason=more.pop("reason", "")), step, parts, **more)


def proposal(kind: str = "sync", change: Any = None, *, about: str = "x", **more: Any) -> Proposal:
    return Proposal(kind, about, kind.title(), f"{kind}.", change, 1.0, 0.0, **more)


def on_step(one: Graph | None = None, *, reason: str = "", busy: dict[str, int] | None = None, **more: Any) -> View:
    """Return a step of 1000 ns that comes 10 times; `busy`: its parts."""
    found = view(launches(2.0, 3.0) if one is None else one, **({"wall": 1000, "count": 10} | more))
    step = replace(found.step, bare_wall_ns=(900.0, 1000.0, 1200.0), reason=reason)
    parts = tuple((busy or {}).items())
    return replace(found, step=step, parts=replace(found.parts, parts=parts, busy_parts=parts))


def allocate_once(of: Graph, share: float = 1.0) -> Graph:
    """Leave out all calls that allocate or free memory."""
    called = np.array([bool(ALLOCATION.match(str(name))) for name in of.c_name], bool)
    return changes.drop(of, np.zeros(len(of.o_start), bool), called, share)
