"""Say what ran, and what to do with each kernel of a steady step."""

import re
import shlex

import numpy as np
import pandas as pd
from msgspec import structs

from analysis.diagnosis import sampled_reasons, step_findings
from analysis.diagnosis.each import reasons_of_kernels
from analysis.diagnosis.findings import settled
from analysis.diagnosis.savers import Saver, StepAnswer, touched
from analysis.diagnosis.spans import show_findings
from analysis.diagnosis.step_tables import answer_steps
from analysis.formats import symbols
from analysis.formats.report import Bound, Disposition, KernelRow, Program, Saving, Tier, kind_of
from analysis.replay.graph import rows_by
from analysis.tables.conditions import user_command
from analysis.tables.declare import Facts
from analysis.tables.picks import short_names

VERSIONS = ("cuda", "torch", "triton", "transformers", "python", "nsys", "ncu")
Bounds = dict[str, tuple[Bound | None, Tier]]  # of each kernel that has one, and what it rests on
_UNBOUND = (None, Tier.TIMING)
LEAST = 0.005  # of a step: a kernel with less gets no row
# What a cause means for the kernels that its cure changes; of others, the kernel has to become faster.
_DISPOSITIONS = {
    "fuse": Disposition.FUSE, "layout": Disposition.REMOVE, "redundant_copy": Disposition.REMOVE,
    "serial_streams": Disposition.OVERLAP, "exposed_communication": Disposition.OVERLAP,
    "copies_not_overlapped": Disposition.OVERLAP,
}  # fmt: skip


def describe_program(facts: Facts) -> Program:
    """Return what ran; unknown fields are blank."""
    capture = facts.capture
    known = capture.session | {name: value for name, value in (capture.manifest or {}).items() if value}
    commands = dict.fromkeys(filter(None, (shlex.join(user_command(tool)) for tool in capture.tools)))
    devices = set(capture.gpu_ops["device"].dropna().unique()) - {""}
    gpus = [re.sub(r" \(\d+\)$", "", one) for one in sorted(devices)]  # nsys adds the device's number
    return Program(
        command=next(iter(commands)) if len(commands) == 1 else None,
        gpus=gpus or ([facts.gpu] if facts.gpu else []),
        driver=str(known["driver"]) if known.get("driver") else None,
        date=str(known["date"]) if known.get("date") else None,
        versions={name: str(known[name]) for name in VERSIONS if known.get(name)},
        wall_ns=_wall_ns(facts),
        start_up=step_findings.start_up(facts.once(answer_steps)),
    )


def _wall_ns(facts: Facts) -> float | None:
    """Return the time from the first call, range or GPU operation to the end of the last; None without a timeline."""
    ops, others = facts.capture.gpu_ops, (facts.capture.ranges, facts.capture.calls)
    if not facts.has_timeline:
        return None
    known = [rows for rows in others if rows is not None and len(rows)]
    start = [ops["start_ns"].min(), *(rows["start_ns"].min() for rows in known)]
    end = [(ops["start_ns"] + ops["duration_ns"]).max(), *(rows["end_ns"].max() for rows in known)]
    return float(max(end) - min(start))


def list_kernels(facts: Facts) -> list[KernelRow]:
    """Return the kernels with at least LEAST of a steady step, or of the GPU's time without one, most time first."""
    bounds = _known(sampled_reasons.bounds(facts), Tier.SAMPLED) if facts.sampled else {}
    bounds |= _known(_bounds(facts.roofline), Tier.COUNTERS)
    cures = _cures(facts.once(reasons_of_kernels))
    bounds = {
        name: (structs.replace(bound, saves_frac=cures.get(name)) if bound else bound, tier)
        for name, (bound, tier) in bounds.items()
    }
    answers = facts.once(answer_steps)
    rows = [row for answer in answers for row in _of_step(answer, bounds)] if answers else _of_capture(facts, bounds)
    short = short_names(facts.kernels)
    hidden, left = facts.once(settled).hidden, {"finding": None, "disposition": Disposition.LEAVE}
    named = (
        structs.replace(one, short=short.get(one.name, one.short), **(left if one.finding in hidden else {}))
        for one in rows
    )
    return sorted(named, key=lambda one: (-(one.ns or 0.0), one.step, one.name))


def _cures(diagnosis: pd.DataFrame) -> dict[str, Saving]:
    """Return what fixes of the first cause of each kernel save of its time, of the range with most time to win."""
    if "rank" not in diagnosis:
        return {}
    first = diagnosis[diagnosis["rank"].eq(1) & diagnosis["gain_bound_frac"].gt(0)]
    first = first.sort_values("time_to_win_ns", ascending=False, kind="stable").drop_duplicates("kernel")
    ends = first[["gain_low_frac", "gain_bound_frac"]].astype(float).to_numpy()
    return {
        str(kernel): Saving(None if np.isnan(low) else float(low), float(high))
        for kernel, (low, high) in zip(first["kernel"], ends, strict=True)
    }


def _known(bounds: dict[str, Bound], tier: Tier) -> Bounds:
    return {name: (bound, tier) for name, bound in bounds.items()}


def _of_capture(facts: Facts, bounds: Bounds) -> list[KernelRow]:
    """Return the kernels of a capture without a step. No replay says which of them can be left alone."""
    kernels = facts.kernels
    if kernels.empty:
        return []
    times = (kernels[name].astype("Float64") for name in ("nsys_time_ns", "ncu_time_ns"))
    timed = kernels.assign(ns=next(times).fillna(next(times)))
    sums = timed.groupby("kernel", sort=False)[["ns", "launches"]].sum(min_count=1)
    sums = sums.assign(frac=sums["ns"] / sums["ns"].sum())
    told = {
        str(cell.row["kernel"]): one
        for one in reversed(facts.once(show_findings))
        for cell in one.cells
        if "kernel" in cell.row
    }
    return [
        KernelRow(
            name=str(name), short=symbols.short(str(name)), step="",
            launches=float(row.launches), ns=float(row.ns), frac=float(row.frac),
            disposition=_DISPOSITIONS.get(told[name].kind, Disposition.FASTER) if name in told else None,
            finding=told[name].id if name in told else None, bound=(of := bounds.get(str(name), _UNBOUND))[0],
            evidence=of[1],
        )
        for name, row in sums[sums["frac"] >= LEAST].iterrows()
    ]  # fmt: skip


def _of_step(answer: StepAnswer, bounds: Bounds) -> list[KernelRow]:
    view = answer.view
    graph = view.graph
    slack = view.parts.operations["slack_ns"].to_numpy(float)
    changed = [(one, touched(answer, one)) for one in answer.savers]
    own, found = np.flatnonzero(view.kernels), []
    codes, names = pd.factorize(view.keys[own])
    for name, rows in zip(names, (own[part] for part in rows_by(codes, len(names))), strict=False):
        ns = view.of_step(graph.o_duration[rows].sum())
        if view.share(ns) < LEAST:
            continue
        saver = next((one for one, ops in changed if ops[rows].any()), None)
        bound, tier = bounds.get(str(name), _UNBOUND)
        found.append(
            KernelRow(
                name=str(name), short=symbols.short(str(name)), step=answer.name, launches=view.of_step(len(rows)),
                ns=ns, frac=view.share(ns), slack_ns=float(np.median(slack[rows])), disposition=_disposition(saver),
                finding=step_findings.id_of(answer, saver) if saver else None, bound=bound,
                evidence=tier,
            )
        )  # fmt: skip
    return found


def _disposition(saver: Saver | None) -> Disposition:
    return Disposition.LEAVE if saver is None else _DISPOSITIONS.get(kind_of(saver.proposal.kind), Disposition.FASTER)


def _bounds(roofline: pd.DataFrame) -> dict[str, Bound]:
    """Return the roof that each kernel is nearest to, of the launch that is nearest to one."""
    if roofline.empty:
        return {}
    known = roofline.dropna(subset=["roof_frac"]).sort_values("roof_frac", kind="stable")
    last = known.drop_duplicates("kernel", keep="last")
    return {
        str(row.kernel): Bound("compute" if row.bound == "compute" else str(row.level), float(row.roof_frac))
        for row in last.itertuples()
    }
