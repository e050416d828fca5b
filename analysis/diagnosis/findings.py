"""Find what could win most time, and cite the table cells that each finding rests on.

Where the capture has a timeline, the replay of its steps says what each change saves. No replay covers counters alone,
sums alone or a run without a GPU. There, the sums say which kernels, copies, calls and ranges take most time, and why.
"""

import re
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.diagnosis import step_findings
from analysis.diagnosis.claims import Claim, cell
from analysis.diagnosis.clocks import lowered_clocks
from analysis.diagnosis.copies import large_copies
from analysis.diagnosis.each import KEY, reasons_of_kernels, tables_of_kernels
from analysis.diagnosis.host import cpu_ranges, host_waits
from analysis.diagnosis.hot import hot_kernels
from analysis.diagnosis.measured import Settled, settle
from analysis.diagnosis.reasons import STALLS
from analysis.diagnosis.step_rules.copies import size_of
from analysis.diagnosis.step_tables import answer_steps
from analysis.diagnosis.vocabulary import words
from analysis.formats import symbols
from analysis.formats.report import Confidence, Saving
from analysis.formats.words import duration, share
from analysis.hardware.devices import has_tf32
from analysis.hardware.metrics import catalogue, columns_by_name
from analysis.tables.attribution import UNATTRIBUTED
from analysis.tables.declare import Facts, part
from analysis.tables.host import CUDA

LEAST_HOST = 0.01  # of the kernels' time: a shorter call is worth no finding
EXPLAINED = 0.5  # of a call that waits: with so much work of the GPU known, the call only waits for it
COUNT = 3  # at most so many findings on kernels whose cause is not known
MOST = 5  # findings in all
BESIDE_NS = 5_000  # least time on either side of a span, so that the neighbours of a launch are visible
SURE = 0.8  # a cause from here on counts as sure
_LIKELY = 0.5  # a cause whose `sure_frac` is below this gets no finding
_LAUNCH = re.compile(r"--kernel-id .*?(?= --launch-count)")
_INSIDE = "It contains no other range. To see what it does, add NVTX ranges inside, or trace it with torch.profiler."


def findings_of(facts: Facts) -> list[Claim]:
    """Return the findings, the one that wins most first. A capture that is not of a program has none."""
    return facts.once(settled).claims


def settled(facts: Facts) -> Settled:
    """Return the findings, and those that an experiment with the running program refuted."""
    if not facts.is_program:
        return Settled([])
    found = [*(step_findings.claims(facts.once(answer_steps)) or _of_sums(facts)), *lowered_clocks(facts)]
    return settle(found, facts.capture)


@part("note")
def _hidden(facts: Facts) -> list[str]:
    return list(facts.once(settled).hidden.values())


def _of_sums(facts: Facts) -> list[Claim]:
    """Return what takes most time by the sums: causes that counters tell first, then the rest by its time."""
    tables = facts.once(tables_of_kernels)
    won = _causes(facts.once(reasons_of_kernels))
    hot = hot_kernels(
        tables,
        "torch.profiler" if facts.capture.clock == "torch" else "nsys",
        sm_count=facts.sm_count,
        tf32=has_tf32(facts.device),
        vendor=facts.capture.vendor,
        most=max(COUNT - len(won), 1),
        skip={str(one.cells[0].row["kernel"]) for one in won},
    )
    rest = [*hot, *large_copies(facts.copies)]
    if not rest and not won:
        ranges = cpu_ranges(facts.cpu_times, facts.capture.ranges, facts.capture.ops, recorded=_INSIDE)
        calls = _of_each(host_waits(facts.host, computed=False))
        rest = [*ranges, *(one for one in calls if not ranges or one.kind != "nothing")]
    elif not won:
        calls = [one for one in host_waits(facts.host, most=1) if one.cells[0].row["source"] == CUDA]
        told = [one for one in calls if one.kind != "start_up" and not _explained(one, facts)][:1]
        rest += [one for one in told if one.weight_ns >= LEAST_HOST * sum(other.weight_ns for other in hot)]
        setting_up = [one for one in calls if one.kind == "start_up"]
        rest += [one for one in setting_up if _takes(one) > sum(map(_takes, rest))][:1]
    rest.sort(key=lambda one: -one.weight_ns)
    won = won[: MOST - min(len(rest), 1)]  # the hottest of those without a cause is always told
    return [_placed(one, facts) for one in (*won, *rest[: MOST - len(won)])]


def _takes(one: Claim) -> float:
    """Return the time that a finding on kernels, copies or a call cites first; 0 if it cites none. Units: ns."""
    first = one.cells[0]
    return float(first.value) if first.column.endswith("time_ns") and isinstance(first.value, int | float) else 0.0


def _explained(call: Claim, facts: Facts) -> bool:
    """Return whether the GPU's kernels and copies, which other findings name, explain a call: it waits for them, or it
    launches kernels that take longer than the launches, or whose times are unknown.
    """
    least = {"sync": EXPLAINED, "launch_bound": 1.0}.get(call.kind)
    if least is None:
        return False
    kernels = facts.once(tables_of_kernels)["kernels"]
    computing = float(kernels["nsys_time_ns"].sum())
    if not computing and call.kind == "launch_bound":
        return True
    return computing + float(facts.copies["time_ns"].sum()) >= least * _takes(call)


def _placed(one: Claim, facts: Facts) -> Claim:
    """Return a claim on a kernel, on copies or on a range with its span: the operation or range of median length."""
    ops, ranges, row = facts.gpu_ops, facts.ranges, one.cells[0].row
    if one.cells[0].table == "cpu_times":
        own = ranges["path"].map(facts.folded).eq(row["range"])
        rows = np.flatnonzero(own.to_numpy(bool))
        start, end = (ranges[name].to_numpy(np.int64)[rows] for name in ("start_ns", "end_ns"))
    else:
        names = {name for name in ops["name"].unique() if symbols.key(name) == row.get("kernel")}
        of_kind = ops["kind"].eq(str(row.get("kind"))) & ops["memory"].astype(str).eq(str(row.get("memory", "<NA>")))
        rows = np.flatnonzero((ops["name"].isin(names) | of_kind).to_numpy(bool))
        start, end = ops["start_ns"].to_numpy(np.int64)[rows], ops["duration_ns"].to_numpy(np.int64)[rows]
        end = start + end
    if not len(rows):
        return one
    place = np.argsort(end - start, kind="stable")[(len(rows) - 1) // 2]
    begin, until = int(start[place]), int(end[place])
    beside = max(until - begin, BESIDE_NS)
    span = max(begin - beside, min(begin, 0)), until + beside
    return replace(one, ops=None if one.cells[0].table == "cpu_times" else rows, span=span)


def _of_each(found: list[Claim], most: int = 2) -> list[Claim]:
    """Keep the first `most` findings of each source. Otherwise calls in which threads sleep would hide all others."""
    kept: list[Claim] = []
    for one in found:
        if sum(other.cells[0].row["source"] == one.cells[0].row["source"] for other in kept) < most:
            kept.append(one)
    return kept


def _causes(diagnosis: pd.DataFrame) -> list[Claim]:
    """Return a finding on the first likely cause of each kernel and range with a time to win, most time first."""
    if "defect" not in diagnosis:
        return []
    causes = diagnosis.dropna(subset="rank").sort_values("rank", kind="stable")
    likely = causes[causes["time_to_win_ns"].gt(0) & causes["sure_frac"].ge(_LIKELY)].drop_duplicates(KEY)
    before = causes.groupby(KEY, dropna=False)["reason"].transform("first").where(causes["rank"].gt(1), "")
    won = likely.sort_values("time_to_win_ns", ascending=False, kind="stable")
    first = pd.NA if won.empty else won["recapture"].iloc[0]
    return [_cause(row, before[at], first if place else pd.NA) for place, (at, row) in enumerate(won.iterrows())]


def _cause(row: pd.Series, other: str = "", first: object = pd.NA) -> Claim:
    """Return the finding of one verdict: the cause, its cure, the gain, and commands to look closer.

    `other`: what a cause says that is less sure, but would explain more. `first`: the command of finding 1, or NA.
    """
    label = {"kernel": row["kernel"], "range": row["range"], "rank": int(row["rank"])}
    doubt = "".join(f" {one}" for one in (row["doubt"], other and f"Less sure: {other}") if one)
    inside = "" if row["range"] == UNATTRIBUTED else f"{row['range']}: "
    numbers = "" if pd.isna(row["evidence"]) else "; ".join(map(_in_words, str(row["evidence"]).split("; ")))
    rests = f" It rests on {numbers}." if numbers else ""
    return Claim(
        kind=str(row["defect"]),
        title=f"{inside}{symbols.short(row['kernel'])}: {words(str(row['defect']))['title']}",
        sentence=f"{row['reason']}{doubt}{rests}",
        do=f"{row['do']} {_look_closer(row['recapture'], first)}".strip(),
        saves_ns=Saving(
            None if pd.isna(row["least_to_win_ns"]) else float(row["least_to_win_ns"]), float(row["time_to_win_ns"])
        ),
        confidence=Confidence.SURE if row["sure_frac"] >= SURE else Confidence.LIKELY,
        cells=(
            *(cell("diagnosis", label, name, float(row[name])) for name in ("gain_bound_frac", "sure_frac")),
            cell("diagnosis", label, "time_to_win_ns", int(row["time_to_win_ns"])),
        ),
    )


def _in_words(number: str) -> str:
    """Return a number of the evidence with its unit and the words of the catalogue: `waves = 2 (grid over …)`."""
    label, _, value = number.partition(" = ")
    name = label.removesuffix(" (derived)")
    amount, column = float(value), columns_by_name().get(name)
    stall = name.removeprefix("stall_") if name.startswith("stall_") else ""
    unit = column.unit if column else catalogue()[1].unit if stall else ""
    why = f"warps that wait {STALLS[stall]}" if stall in STALLS else column.why if column else ""
    if name.endswith("_frac") or name.startswith("sampled_kernels."):
        said = share(amount)
    elif unit == "ns":
        said = duration(amount)
    elif unit == "byte":
        said = size_of(amount)
    else:
        said = f"{amount:,.0f}" if amount >= 1e4 or amount.is_integer() else f"{amount:.4g}"
        said += f" {unit}" if unit not in ("", "1") and unit not in name else ""
    return f"{label} = {said}" + (f" ({re.split('[;:] ', why)[0]})" if why else "")


def _look_closer(recapture: object, first: object) -> str:
    """Return a sentence with two commands: one captures exactly that launch, the other opens the result.

    If only the launch differs from the command of finding 1, it names the launch. "" if the command is unknown.
    """
    if pd.isna(recapture):
        return ""
    launch = _LAUNCH.search(str(recapture))
    if launch and _LAUNCH.sub("", str(recapture)) == _LAUNCH.sub("", str(first)):
        return f"Look closer: the command of finding 1, with `{launch[0]}`."
    return f"Look closer: `{recapture}`, then `ncu-ui kernel.ncu-rep`."
