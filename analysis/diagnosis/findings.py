"""Find what could win most time, and cite the table cells that each finding rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.capture.model import Capture
from analysis.diagnosis import step_findings
from analysis.diagnosis.claims import PROGRAM, About, Claim, cell
from analysis.diagnosis.copies import exposed_sets, large_copies
from analysis.diagnosis.each import build_diagnosis, tables_of_kernels
from analysis.diagnosis.graphs import unseen_graphs
from analysis.diagnosis.host import cpu_ranges, host_waits, idle_gpu
from analysis.diagnosis.hot import hot_kernels
from analysis.diagnosis.loops import WAIT_LESS, elementwise_chains, idle_in_windows, share_in_steps, turns
from analysis.diagnosis.rank_costs import build_rank_costs
from analysis.diagnosis.ranks import of_one_rank, rank_findings, without_told
from analysis.diagnosis.reasons import nearest_roof
from analysis.diagnosis.step_tables import answer_steps
from analysis.formats import symbols
from analysis.formats.collectives import communicates
from analysis.formats.report import Confidence, kind_of, kinds
from analysis.formats.words import count_of
from analysis.fusion.opmap import kind_of_kernel
from analysis.tables.distinct import holds
from analysis.tables.gaps import LAUNCH_BOUND, WAITING, step_paths, takes_turns
from analysis.tables.graphs import WHOLE
from analysis.tables.host import CUDA
from analysis.tables.set_up import SET_UP
from analysis.tables.stalls import NOT_WAITING

if TYPE_CHECKING:
    from analysis.facts import Facts

LEAST_HOST = 0.01  # of the kernels' time: a shorter call is worth no finding
COUNT = 3  # at most so many findings with a time to win, without those of ranks
MOST = 5  # findings in all
_INSIDE = "It contains no other range. To see what it does, add NVTX ranges inside, or trace it with torch.profiler."


def findings_of(facts: Facts) -> list[Claim]:
    """Return the findings: first those with a time to win, then what takes most time, with its known reasons.

    A capture that is not of a program has none. The findings with a time to win and those on hot kernels are three, or
    four with a hot kernel behind three others.
    """
    capture, gaps, fusion, host, devices = facts.capture, facts.gaps, facts.fusion, facts.host, facts.devices
    kernel_tables, graphs, ranks, gpu_ops = facts.once(tables_of_kernels), facts.graphs, facts.ranks, facts.gpu_ops
    step_ranges = facts.step_ranges
    if not facts.is_program:
        return []
    if told := step_findings.claims(facts.once(answer_steps)):
        is_nothing = all(one.kind == "nothing" for one in told)
        return (is_nothing and large_copies(exposed_sets(facts.copies))) or told  # the replay changes no sets
    of_ranks = rank_findings(ranks, facts.collectives, facts.overlap, facts.stragglers, facts.once(build_rank_costs))
    moved = without_told(large_copies(facts.copies, in_steps=share_in_steps(gpu_ops, step_ranges)), of_ranks)
    more = [*turns(facts.steps, gaps, facts.filled), *(one for one in moved if one.bound_ns)]
    if fusion.empty:
        more += elementwise_chains(gpu_ops, kernel_tables["kernels"], _waiting(gaps), judged_root(gaps))
    won = of_one_rank(
        find(gaps, facts.measured, facts.roofline, facts.stalls, fusion, facts.once(build_diagnosis), more), ranks
    )
    if of_ranks:
        won = sorted([*of_ranks, *won], key=lambda one: -(one.bound_ns or 0.0))[:MOST]
    gpus = devices["device"].nunique() if len(devices) else 1
    named = {name for one in won for name in (one.covers or (one.about.kernel if one.about else "",))}
    if len(ranks) > 1:  # the findings on ranks judge collectives: as kernels, they mostly wait
        named |= {name for name in kernel_tables["kernels"]["kernel"] if communicates(str(name))}
    hot = hot_kernels(
        kernel_tables,
        _clock(capture),
        judged_root(gaps),
        sm_count=facts.sm_count,
        vendor=capture.vendor,
        most=max(COUNT - len(won), 1),
        unseen=bool((graphs["seen"] == WHOLE).any()),
        skip=named,
    )
    idle = idle_gpu(gaps, host, _clock(capture), gpus=gpus, idle_ns=idle_in_windows(gpu_ops, step_ranges, gaps))
    rest = [*hot, *(one for one in moved if not one.bound_ns), *unseen_graphs(graphs), *idle]
    if not rest and not won:
        rest = [
            *cpu_ranges(facts.cpu_times, capture.ranges, capture.ops, recorded=_INSIDE),
            *_of_each(host_waits(host)),
        ]
    elif not won:
        told = [one for one in host_waits(host, most=1) if one.cells[0].row["source"] == CUDA][:1]
        rest += [one for one in told if one.weight_ns >= LEAST_HOST * sum(other.weight_ns for other in hot)]
    rest.sort(key=lambda one: -one.weight_ns)
    return [*won, *rest[: MOST - len(won)]]


def _of_each(found: list[Claim], most: int = 2) -> list[Claim]:
    """Keep the first `most` findings of each source. Otherwise calls in which threads sleep would hide all others."""
    kept: list[Claim] = []
    for one in found:
        if sum(other.cells[0].row["source"] == one.cells[0].row["source"] for other in kept) < most:
            kept.append(one)
    return kept


def _clock(capture: Capture) -> str:
    """Return the name of the tool that recorded the timeline."""
    return "torch.profiler" if capture.clock == "torch" else "nsys"


def find(
    gaps: pd.DataFrame,
    measured: pd.DataFrame,
    roofline: pd.DataFrame,
    stalls: pd.DataFrame,
    fusion: pd.DataFrame,
    diagnosis: pd.DataFrame | None = None,
    more: Sequence[Claim] = (),
) -> list[Claim]:
    """Return the findings with a time to win and `more` of them, most time first, at most COUNT.

    Shape: `gaps` gaps.csv, `fusion` fusion.csv, `diagnosis` diagnosis.csv. Units: ns.
    Judge only the program under the outermost range of the first step: other roots are variants of it. If a step waits
    for launches or the host, faster kernels win nothing, so its kernels give no finding.
    """
    root = judged_root(gaps)
    waiting = _waiting(gaps)
    judged = _under(measured["range"], root) & ~_begins(measured["range"], waiting)
    candidates = [*_waiting_steps(gaps, root), *more]
    to_fuse = fusion[fusion["gain_ns"].notna() & (fusion["scope"] != "epilogue") & _under(fusion["step"], root)]
    to_fuse = to_fuse[~_begins(to_fuse["step"] + "/", waiting) & ~to_fuse["step"].isin(_only_recorded(gaps))]
    candidates += _fusions(to_fuse, step_paths(gaps["step"]).value_counts().to_dict())
    fused_ranges = {name for ranges in to_fuse["range"] for name in str(ranges).split(" + ")}
    first = _first_rows(diagnosis, root, waiting)
    chained = first["range"].isin(fused_ranges) & first["defect"].isin(_OF_MEMORY)
    chained |= _replaced(first, to_fuse)
    candidates += [_cause(row) for _, row in first[~chained & (first["time_to_win_ns"] > 0)].iterrows()]
    known = set(first.dropna(subset=["defect"])[["kernel", "range"]].itertuples(index=False, name=None))
    told = first[["kernel", "range", "recapture"]].itertuples(index=False, name=None)
    commands = {(kernel, inside): str(recapture) for kernel, inside, recapture in told}
    candidates += _far_from_roof(measured[judged], roofline, stalls, fused_ranges, known, commands)
    candidates.sort(key=lambda one: (-(one.bound_ns or 0.0), one.title))
    return candidates[:COUNT]


def _only_recorded(gaps: pd.DataFrame) -> set[str]:
    """Return the steps that only record a CUDA graph, or warm up for it: the launches of the graph stand for them."""
    rows = gaps[["verdict", "launches"]].groupby(step_paths(gaps["step"]))
    return {str(path) for path, own in rows if own["verdict"].eq(SET_UP).all() and own["launches"].isna().any()}


def _waiting(gaps: pd.DataFrame) -> tuple[str, ...]:
    """Return the beginning of the ranges inside steps that wait for launches or the host."""
    return tuple(path + "/" for path in step_paths(gaps.loc[gaps["verdict"].isin(WAITING), "step"]))


def judged_root(gaps: pd.DataFrame) -> str | None:
    """Return the outermost range of the first step, or None without one. Other roots are variants of the program."""
    first = str(gaps["step"].iloc[0]) if len(gaps) else ""
    return first.split("/")[0] if "/" in first else None


def _under(paths: pd.Series, root: str | None) -> pd.Series:
    if not root:
        return pd.Series(True, index=paths.index)
    return holds(paths, lambda path: path == root or path.startswith(root + "/"))


def _begins(paths: pd.Series, with_one_of: tuple[str, ...]) -> pd.Series:
    return holds(paths, lambda path: path.startswith(with_one_of))


def _waiting_steps(gaps: pd.DataFrame, root: str | None) -> list[Claim]:
    """Find steps in which the GPU waits for the host. Each finding says what delays the host, and what to do."""
    found = []
    bound = gaps[gaps["verdict"].isin(WAITING) & _under(gaps["step"].astype(str), root)]
    for path, rows in bound.groupby(step_paths(bound["step"]), sort=False):
        step = _usual(rows)
        # With a filled queue, the GPU still pays for the start and end of every kernel. Only the rest can be won.
        known = pd.notna(step["bare_gpu_ns"])
        least = rows["bare_gpu_ns" if known else "busy_ns"].astype(float)
        told = f"for {least.iloc[0] / 1e3:,.0f} µs{' when nothing waits' * known}"
        cited = ["bare_wall_ns", *["bare_gpu_ns"] * known, "busy_ns", "launches"]
        kind, whom, told_more, way_out, also = _way_out(step)
        found.append(
            Claim(
                kind=kind,
                title=f"{path} waits for {whom}",
                sentence=(
                    f"In {count_of(len(rows), 'step')} of {step['bare_wall_ns'] / 1e3:,.0f} µs the GPU works "
                    f"{told}{told_more}."
                ),
                do=way_out,
                scope=f"step {path}",
                bound_ns=int((rows["bare_wall_ns"].astype(float) - least).sum()),
                about=About(step=str(step["step"])),
                cells=tuple(cell("gaps", {"step": step["step"]}, name, int(step[name])) for name in [*cited, *also]),
            )
        )
    return found


def _usual(rows: pd.DataFrame) -> pd.Series:
    """Return the step of median length among those with the verdict and the launch calls of most.

    Earlier ones may compile or warm up.
    """
    kinds = rows[["verdict", "launch_calls"]].astype(object).agg(tuple, axis=1)
    same = rows[kinds == kinds.value_counts().index[0]].sort_values("wall_ns", kind="stable")
    return same.iloc[(len(same) - 1) // 2]


def _way_out(step: pd.Series) -> tuple[str, str, str, str, list[str]]:
    """Return the cause, what a step waits for, the end of the sentence, what to do, and the columns to cite."""
    launches = count_of(step["launches"], "kernel")
    if step["verdict"] == LAUNCH_BOUND and 2 * step["launch_calls"] < max(step["launches"], 3):
        told = f", with {launches} from {count_of(step['launch_calls'], 'launch call')}, so it uses CUDA graphs already"
        way_out = "Put more into one graph, or launch the next graph before waiting for this one."
        return "launch_bound", "launches of CUDA graphs", told, way_out, ["launch_calls"]
    if step["verdict"] == LAUNCH_BOUND:
        return (
            "launch_bound", "launches", f", with {launches}",
            "Capture the step in a CUDA graph (`torch.compile(mode='reduce-overhead')`), or launch fewer.", [],
        )  # fmt: skip
    if pd.notna(step["blocked_ns"]) and takes_turns(float(step["bare_wall_ns"]), float(step["blocked_ns"])):
        told = f", and the host waits for the GPU for {step['blocked_ns'] / 1e3:,.0f} µs: they take turns"
        return "sync", "the host, which waits for it", told, WAIT_LESS, ["blocked_ns"]
    told = f", with {launches}: the host does other work between launches"
    return "host_work", "the host", told, kinds()["host_work"]["cure"], []


def _fusions(to_fuse: pd.DataFrame, times: dict[str, int]) -> list[Claim]:
    """Turn rows of the fusion plan into findings: neighbouring kernels that one kernel could replace.

    Shape: `times` step -> its instances. The plan is of one instance; the time to win is of all, as in other findings.
    """
    found = []
    for _, row in _together(to_fuse).iterrows():
        place = {name: row[name] for name in ("pattern", "step", "range") if row[name]}
        cited = [
            cell("fusion", place, name, int(row[name]))
            for name in ("now_time_ns", "now_bytes", "after_bytes", "bound_time_ns", "gain_ns")
            if pd.notna(row[name])
        ]
        moved = "" if pd.isna(row["now_bytes"]) else f" and move {_megabytes(row['now_bytes'])} by {row['now_from']}"
        found.append(
            Claim(
                kind="fuse",
                title=f"{row['place']}: fuse {row['pattern']}",
                sentence=(
                    f"{count_of(row['launches'], 'launch')} in {row['place']} "
                    f"take{'s' * (row['launches'] == 1)} {row['now_time_ns'] / 1e3:,.0f} µs{moved}. "
                    f"With one kernel for each chain, they would move {_megabytes(row['after_bytes'])} and take at "
                    f"least {row['bound_time_ns'] / 1e3:,.0f} µs. The gain includes the idle time before each saved "
                    f"launch.{_of_all(times.get(row['step'], 1))}"
                ),
                do="Write one kernel for them, or let `torch.compile` do it.",
                wrong_if="The fused kernel moves as many bytes as its parts.",
                scope=f"step {row['step']}" if row["step"] else PROGRAM,
                bound_ns=int(row["gain_ns"]) * max(times.get(row["step"], 1), 1),
                about=About(ranges=tuple(str(row["range"]).split(" + "))),
                cells=tuple(cited),
            )
        )
    return found


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e7 else f"{size / 1e6:.2g} MB"


def _together(to_fuse: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each place and pattern: sums over its ranges, which are joined with ` + `.

    The place is the step. Outside all steps it is the outermost range.
    """
    summed = ["launches", "now_time_ns", "now_bytes", "after_bytes", "bound_time_ns", "gain_ns"]
    to_fuse = to_fuse.assign(place=to_fuse["step"].where(to_fuse["step"] != "", to_fuse["range"].str.split("/").str[0]))
    if not to_fuse.duplicated(["place", "pattern"]).any():
        return to_fuse
    groups = to_fuse.groupby(["place", "step", "pattern"], sort=False)
    joined = groups.agg(
        {"range": " + ".join, "now_from": "first"} | dict.fromkeys(summed, lambda own: own.sum(skipna=False))
    )
    return joined.reset_index()


def _of_all(times: int) -> str:
    return f" These are values of one step of {times:,}." if times > 1 else ""


# Fusing a kernel with its neighbours cures these causes too.
_OF_MEMORY = ("wide_data", "block_order_l2")
SURE = 0.8  # a cause from here on counts as sure
_LIKELY = 0.5  # a cause whose `sure_frac` is below this gets no finding


def _first_rows(diagnosis: pd.DataFrame | None, root: str | None, waiting: tuple[str, ...]) -> pd.DataFrame:
    """Return one row for each judged kernel and range: its first cause, blank if unknown or not sure enough."""
    columns = ["kernel", "range", "rank", "defect", "sure_frac", "gain_bound_frac", "time_to_win_ns", "recapture"]
    if diagnosis is None or "defect" not in diagnosis:
        return pd.DataFrame(columns=[*columns, "reason", "evidence"])
    rows = diagnosis[diagnosis["range"].notna() & diagnosis["rank"].fillna(1).eq(1)]
    rows = rows[_under(rows["range"].astype(str), root) & ~_begins(rows["range"].astype(str), waiting)]
    unsure = rows["sure_frac"].fillna(0) < _LIKELY
    return rows.assign(defect=rows["defect"].mask(unsure), time_to_win_ns=rows["time_to_win_ns"].mask(unsure))


def _replaced(first: pd.DataFrame, to_fuse: pd.DataFrame) -> pd.Series:
    """Return which kernels a fusion replaces: no second finding can win the time that the fusion already wins."""
    gone = {
        (path, kind)
        for row in to_fuse[to_fuse["gain_ns"] > 0].itertuples()
        for path in str(row.range).split(" + ")
        for kind in str(row.kernels).split(" > ")
    }
    own = zip(first["range"], first["kernel"], strict=True)
    return pd.Series([(path, kind_of_kernel(str(name))) in gone for path, name in own], index=first.index, dtype=bool)


def _cause(row: pd.Series) -> Claim:
    """Return the finding of one verdict: the cause, its cure, the gain, and commands to look closer."""
    label = {"kernel": row["kernel"], "range": row["range"], "rank": 1}
    rests = f" It rests on {row['evidence']}." if pd.notna(row["evidence"]) else ""
    return Claim(
        kind=str(row["defect"]),
        title=f"{row['range']}: {symbols.short(row['kernel'], 60)}: {str(row['defect']).replace('_', ' ')}",
        sentence=f"{row['reason']}{rests}",
        do=f"{kinds()[kind_of(row['defect'])]['cure']} {_look_closer(row['recapture'])}".strip(),
        bound_ns=int(row["time_to_win_ns"]),
        about=About(kernel=row["kernel"], ranges=(row["range"],)),
        confidence=Confidence.SURE if row["sure_frac"] >= SURE else Confidence.LIKELY,
        cells=(
            *(cell("diagnosis", label, name, float(row[name])) for name in ("gain_bound_frac", "sure_frac")),
            cell("diagnosis", label, "time_to_win_ns", int(row["time_to_win_ns"])),
        ),
    )


def _look_closer(recapture: object) -> str:
    """Return a sentence with two commands: one captures exactly that launch, the other opens the result.

    "" if the program's command is not known.
    """
    if pd.isna(recapture):
        return ""
    return f"Look closer: `{recapture}`, then `ncu-ui kernel.ncu-rep`."


def _far_from_roof(
    measured: pd.DataFrame, roofline: pd.DataFrame, stalls: pd.DataFrame, skip: set[str],
    caused: set[tuple[str, str]], commands: dict[tuple[str, str], str],
) -> list[Claim]:  # fmt: skip
    """Find kernels without a known cause that lose most time against their nearest roof.

    Leave out kernels in `caused`, and memory-bound kernels of the ranges in `skip`: the fusion plan judges those.
    ncu measures the share of the roof, on one launch alone. The time comes from nsys, or from ncu without a timeline.
    """
    if roofline.empty or measured.empty:
        return []
    clock = "ncu" if measured["nsys_time_ns"].isna().all() else "nsys"
    measured = measured.assign(nsys_time_ns=measured["duration_ns" if clock == "ncu" else "nsys_time_ns"])
    # The level at which a kernel is nearest to its roof limits it.
    known = roofline.dropna(subset=["roof_frac"]).iloc[::-1]  # among equal levels, take the outermost, DRAM
    nearest = known.sort_values("roof_frac", kind="stable").groupby(["kernel", "range"]).tail(1)
    time = measured.assign(nsys_time_ns=measured["nsys_time_ns"].astype(float)).groupby(["kernel", "range"])[
        "nsys_time_ns"
    ]
    rows = nearest.join(time.sum(), on=["kernel", "range"]).join(time.size().rename("launches"), on=["kernel", "range"])
    chained = rows["range"].isin(skip) & (rows["bound"] != "compute")
    named = [key in caused for key in zip(rows["kernel"], rows["range"], strict=True)]
    rows = rows[rows["nsys_time_ns"].notna() & ~chained & ~np.array(named, dtype=bool) & (rows["roof_frac"] < 1)]
    rows = (
        rows.assign(win=rows["nsys_time_ns"] * (1 - rows["roof_frac"])).sort_values("win", ascending=False).head(COUNT)
    )
    found = []
    for _, row in rows.iterrows():
        where = (stalls["kernel"] == row["kernel"]) & (stalls["range"] == row["range"])
        # A warp that is ready but not selected waits for nothing.
        top = stalls[where & (~stalls["reason"].isin(NOT_WAITING))].head(1)
        name = symbols.short(row["kernel"], 60)
        label = {"kernel": row["kernel"], "range": row["range"]}
        roof = round(float(row["roof_frac"]), 4)
        evidence = [cell("roofline", {**label, "level": row["level"]}, "roof_frac", roof)]
        evidence.append(cell("kernels", label, f"{clock}_time_ns", int(row["nsys_time_ns"])))
        why = ""
        if len(top):
            reason, share = str(top["reason"].iloc[0]), float(top["share_frac"].iloc[0])
            why = f"; {share:.0%} of its stalls are {reason}"
            stalled = {**label, "reason": reason}
            evidence.append(cell("stalls", stalled, "share_frac", round(share, 4)))
        command = commands.get((row["kernel"], row["range"]))
        found.append(
            Claim(
                kind="unknown",
                title=f"{row['range']}: {name} stays at {row['roof_frac']:.0%} of its roof",
                sentence=(
                    f"{count_of(row['launches'], 'launch takes', 'launches take')} {row['nsys_time_ns'] / 1e3:,.0f} µs "
                    f"at {row['roof_frac']:.0%} of the nearest roof, {nearest_roof(row)}{why}."
                ),
                do=f"No rule explains it. {_look_closer(command)}" if command else "",
                bound_ns=int(row["win"]),
                about=About(kernel=row["kernel"], ranges=(row["range"],)),
                cells=tuple(evidence),
            )
        )
    return found
