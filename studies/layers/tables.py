"""Build the tables of the layer profiler, which show where a token's time goes, and compare its events with nsys.

Events time a component from the mark before its first kernel to the mark after its last one. nsys times the same run
from the start of that first kernel to the end of that last one. The marks add time themselves: the run measures it with
kernels of known time, and the tables subtract it and show both readings. The remaining difference is the gap from one
component's kernel to the next one's. Events count the gap to a component, nsys to none.
"""

from typing import Any

import numpy as np
import pandas as pd

from analysis.capture.model import Capture
from analysis.facts import Facts
from analysis.formats import symbols
from analysis.tables import attribution
from analysis.tables.declare import Column, part, table

ALONE = "alone."  # prefix of the harness' range around the heaviest components, run alone
BETWEEN = "(between components)"
WHOLE, WHOLE_LEVEL = "Total_Forward_Pass", "forward"
# Either limit shows agreement: an event reads a fixed time too long, which is a large share of a short component.
MOST_FRAC, MOST_NS = 0.02, 2000.0
PROFILE = Column(
    "profile", "setting of the layer profiler and the type: with the KV cache, without, or a module", "key"
)


def profile_label(entry: dict[str, Any]) -> str:
    """Return the setting and the type of a profile, such as `cache, float32`."""
    return f"{entry['name']}, {entry['dtype']}"


def profiles_of(facts: Facts) -> list[dict[str, Any]]:
    return (facts.capture.layer_profile or {}).get("profiles") or []


@table(
    "layer_profile",
    question="Where does a token's time go, level by level?",
    title="Layers, level by level",
    columns=(
        PROFILE,
        Column("level", "what is taken apart: model, block, attention, mlp, or the parts of a module", "key"),
        Column("component", "the base, its components, then what lies between them: base less components", "key"),
        Column("avg_ns", "mean of one instance, less the time that its events add", "timing"),
        Column("total_ns", "sum over all instances", "timing"),
        Column("count", "instances", "timing", "1"),
        Column(
            "share_frac",
            "total_ns over the base's total_ns; components and the rest add up to 1",
            "timing",
            style="bar",
        ),
        Column(
            "nsys_share_frac",
            "the same by nsys in its captured run, first kernel's start to last one's end; blank without one",
            "timing",
        ),
        Column("base", "the component that is 100 %", "key"),
    ),
)
def build_profile(facts: Facts) -> pd.DataFrame | None:
    """Return layer_profile.csv: for each level, its components, then the time between them.

    Shape: `layer_agreement` from build_agreement, for the shares by nsys.
    """
    rows = []
    for entry in facts.once(profiles_of):
        by_nsys = _nsys_times(entry, facts.once(build_agreement))
        for level in entry["levels"]:
            base = next((row for row in level["components"] if row.get("base")), None)
            if base is None or not base["total_ns"]:
                continue
            parts = [row for row in level["components"] if row is not base]
            rest_ns = base["total_ns"] - sum(row["total_ns"] for row in parts)
            nsys_ns = [by_nsys.get(row["path"], np.nan) for row in (base, *parts)]
            if np.isnan(nsys_ns[0]):  # the base is one of several layers: take the parent, which consists of them
                nsys_ns[0] = by_nsys.get(base["path"].rpartition("/")[0], np.nan)
            shown = [(row["component"], row["total_ns"], row["count"]) for row in (base, *parts)]
            if parts:
                shown.append((BETWEEN, rest_ns, base["count"]))
                nsys_ns.append(nsys_ns[0] - sum(nsys_ns[1:]))
            rows += [
                {
                    "profile": profile_label(entry),
                    "level": level["name"],
                    "component": name,
                    "avg_ns": total_ns / count,
                    "total_ns": total_ns,
                    "count": count,
                    "share_frac": total_ns / base["total_ns"],
                    "nsys_share_frac": of_nsys / nsys_ns[0],
                    "base": base["component"],
                }
                for (name, total_ns, count), of_nsys in zip(shown, nsys_ns, strict=True)
            ]
    return timed(rows)


def _nsys_times(entry: dict[str, Any], agreement: pd.DataFrame) -> dict[str, float]:
    """Return the time by nsys of each component of a profile in its captured run, in ns, by the component's path."""
    of = agreement[agreement["profile"] == profile_label(entry)]
    timed = {(row["level"], row["component"]): row["nsys_ns"] * row["instances"] for row in of.to_dict("records")}
    rows = [(level["name"], row) for level in entry["levels"] for row in level["components"]]
    rows += [(WHOLE_LEVEL, row) for _, row in rows if row["component"] == WHOLE]
    return {row["path"]: timed[name, row["component"]] for name, row in rows if (name, row["component"]) in timed}


@table(
    "layer_instrument",
    question="What does the layer profiler itself cost?",
    title="What the instrument costs",
    columns=(
        PROFILE,
        Column("attached", "nothing, the ranges alone, or the events of one level", "key"),
        Column("events", "events recorded in a forward pass", "timing", "1"),
        Column("forward_ns", "one forward pass, median, rounds of all rows taken in turn", "timing"),
        Column("over_nothing_frac", "forward_ns over forward_ns with nothing attached, less 1", "timing"),
        Column("launch_ns", "time the CPU takes to launch a forward pass, median", "timing"),
        Column("forwards", "forward passes", "timing", "1"),
    ),
)
def build_instrument(facts: Facts) -> pd.DataFrame | None:
    """Return layer_instrument.csv: one forward pass with nothing attached, with the ranges alone, with events."""
    rows = []
    for entry in facts.once(profiles_of):
        nothing_ns = next((e["forward_ns"]["p50"] for e in entry["instrument"] if e["variant"] == "nothing"), None)
        rows += [
            {
                "profile": profile_label(entry),
                "attached": "events of level " + e["variant"] if e["events"] else e["variant"],
                "events": e["events"],
                "forward_ns": e["forward_ns"]["p50"],
                "over_nothing_frac": e["forward_ns"]["p50"] / nothing_ns - 1 if nothing_ns else np.nan,
                "launch_ns": e["launch_ns"]["p50"],
                "forwards": e["count"],
            }
            for e in entry["instrument"]
        ]
    return timed(rows)


@table(
    "layer_tokens",
    question="How long does a token take?",
    title="Per token",
    columns=(
        PROFILE,
        Column("clock", "CUDA events behind a held GPU, or the CPU's clock", "key"),
        Column("prompt_tokens", "tokens of the prompt", "static", "1"),
        Column("new_tokens", "tokens of a run, one forward pass each", "static", "1"),
        Column("runs", "profiled runs", "static", "1"),
        Column("forward_avg_ns", "mean forward pass with nothing attached: time of the GPU", "timing"),
        Column("blocks_avg_ns", "mean of all transformer blocks of a forward pass", "timing"),
        Column("token_ns", "wall time per token of a run without events or a held GPU, median", "timing"),
        Column("tokens_per_s", "tokens per second of such a run, median", "timing", "1/s"),
        Column("tokens_per_s_p5", "the same, 5 % are slower", "timing", "1/s"),
        Column("tokens_per_s_p95", "the same, 5 % are faster", "timing", "1/s"),
        Column("own_ns", "what two events add to a reading, measured in this run and subtracted from each", "timing"),
    ),
)
def build_tokens(facts: Facts) -> pd.DataFrame | None:
    """Return layer_tokens.csv: one row for each profile."""
    rows = [
        {
            "profile": profile_label(entry),
            "clock": entry["clock"],
            "prompt_tokens": entry.get("prompt_tokens"),
            "new_tokens": entry.get("new_tokens"),
            "runs": entry.get("runs"),
            "forward_avg_ns": statistics["forward_avg_ns"],
            "blocks_avg_ns": statistics.get("blocks_avg_ns"),
            "token_ns": statistics["wall_ns"]["p50"],
            "tokens_per_s": statistics["tokens_per_s"]["p50"],
            "tokens_per_s_p5": statistics["tokens_per_s"].get("p5"),
            "tokens_per_s_p95": statistics["tokens_per_s"].get("p95"),
            "own_ns": entry["own_ns"],
        }
        for entry in facts.once(profiles_of)
        for statistics in (entry["tokens"],)
    ]
    return timed(rows)


# The compounds of the study that this one follows; without dropout, which inference has not.
COMPOUNDS = {
    "scores + mask": ("Scores_Compute", "Mask_Apply"),
    "softmax + dropout + values": ("Softmax", "Values_Apply"),
    "expansion + GELU": ("Expansion", "Activation"),
    "projection of the MLP": ("Projection",),
    "QKV projection + reshape": ("QKV_Projection", "QKV_Reshape"),
    "reshape + output projection": ("Output_Reshape", "Output_Projection"),
    "LM head": ("LM_Head_Projection",),
}


@table(
    "layer_compounds",
    question="Which compounds take most of a forward pass?",
    title="Compounds",
    columns=(
        PROFILE,
        Column("compound", "neighbouring components, as the study joins them", "key"),
        Column("parts", "the components; their kernels are in component_kernels", "static"),
        Column("count", "calls of the first component: layers times forward passes", "timing", "1"),
        Column("avg_ns", "mean of a call", "timing"),
        Column("share_frac", "total over that of all forward passes", "timing", style="bar"),
        Column("kernels", "each kernel of a call run alone, with its time (torch.profiler)", "timing", style="prose"),
    ),
)
def build_compounds(facts: Facts) -> pd.DataFrame | None:
    """Return layer_compounds.csv: the compounds of each profile of GPT-2, most time first."""
    rows: list[dict[str, Any]] = []
    alone = {
        (profile_label(entry), part_of(component["component"])): _each_call(component, entry["calls"])
        for entry in (facts.capture.kernels_of_layers or {}).get("profiles") or []
        for component in entry["components"]
    }
    for entry in facts.once(profiles_of):
        seen = {one["component"]: one for level in entry["levels"] for one in level["components"]}
        whole = (seen.get(WHOLE) or {}).get("total_ns")
        found = []
        for compound, names in COMPOUNDS.items():
            parts = [seen[name] for name in names if name in seen]
            if parts and whole:
                passes = parts[0]["count"] / seen[WHOLE]["count"]
                total = sum(one["avg_ns"] for one in parts)
                found.append(
                    {"profile": profile_label(entry), "compound": compound,
                     "parts": " + ".join(one["component"] for one in parts), "count": parts[0]["count"],
                     "avg_ns": total, "share_frac": total * passes / (whole / seen[WHOLE]["count"]),
                     "kernels": "; ".join(filter(None, (alone.get((profile_label(entry), name)) for name in names)))}
                )  # fmt: skip
        rows += sorted(found, key=lambda row: -row["share_frac"])
    return timed(rows)


def part_of(component: str) -> str:
    """Return a component's name without its level, which comes first: `mlp Projection`."""
    return component.rpartition(" ")[2]


def _each_call(component: dict[str, Any], calls: float) -> str:
    return "; ".join(
        f"{symbols.short(one['name'], 40)} {one['self_ns'] / calls / 1e3:.1f} µs" for one in component["kernels"]
    )


FAR = 5.0  # times the median absolute deviation of a position


@table(
    "layer_curve",
    question="How long does each token of a run take, and which passes lie apart?",
    title="Token by token",
    columns=(
        PROFILE,
        Column("token", "forward pass of a run; the first one reads the prompt", "key", "1"),
        Column("p50_ns", "median over the runs, with nothing attached", "timing"),
        Column("outliers", "runs that lie further from it than five median deviations and 1 %", "timing", "1"),
        Column("largest_ns", "the longest of them", "timing"),
        Column("cause", "all runs: the token's own work; a whole run: a clock; else: something outside", "timing"),
    ),
)
def build_curve(facts: Facts) -> pd.DataFrame | None:
    """Return layer_curve.csv: a row for each token of a run."""
    rows: list[dict[str, Any]] = []
    for entry in facts.once(profiles_of):
        times = np.array((entry.get("tokens") or {}).get("forward_by_run_ns") or [], float)
        if times.ndim != 2 or not times.size:
            continue
        median = np.median(times, axis=0)
        apart = np.abs(times - median)
        far = apart > np.maximum(FAR * np.median(apart, axis=0), 0.01 * median)
        slow_run = far.mean(axis=1) > 0.5
        usual = float(np.median(median[1:])) if len(median) > 1 else float(median[0])
        for token, at in enumerate(median):
            own = far[:, token]
            why = "the work of this token" if at > 1.2 * usual else ""
            if own.any():
                why = "a slow run: clocks" if slow_run[own].all() else "single passes: not of the model"
            largest = float(times[own, token].max()) if own.any() else None
            rows.append({"profile": profile_label(entry), "token": token, "p50_ns": at, "outliers": int(own.sum()),
                         "largest_ns": largest, "cause": why})  # fmt: skip
    return timed(rows)


@table(
    "layer_agreement",
    question="Do the events say what nsys says?",
    title="Events against nsys, one and the same run",
    columns=(
        PROFILE,
        Column("level", "level whose events were on", "key"),
        Column("component", "component", "key"),
        Column("instances", "instances of the one captured run, each timed by both", "timing", "1"),
        Column("read_ns", "mean time between the component's two events, as read", "timing"),
        Column("own_ns", "what the two events add, measured in this run with kernels of known time", "timing"),
        Column("event_ns", "mean of read_ns - own_ns, not below 0", "timing"),
        Column("nsys_ns", "mean from the start of its first kernel to the end of its last; 0: no kernel", "timing"),
        Column("difference_ns", "event_ns - nsys_ns", "timing"),
        Column("difference_frac", "difference_ns over nsys_ns", "timing"),
        Column("largest_difference_ns", "the difference of the instance where it is largest", "timing"),
        Column("within_frac", "yes: difference_ns is at most 2 % of nsys_ns", "row", ""),
        Column("within_ns", "yes: difference_ns is at most 2 µs", "row", ""),
    ),
)
def build_agreement(facts: Facts) -> pd.DataFrame | None:
    """Return layer_agreement.csv: each component's times by events and by nsys in the same run.

    Shape: `capture` with `layer_events`. Ranges of equal path are matched by their order in time.
    """
    capture = facts.capture
    events = capture.layer_events
    if events is None or events.empty or capture.ranges.empty or capture.gpu_ops.empty:
        return None
    ranges = capture.ranges.reset_index(drop=True)
    first, last = extents(ranges, capture.gpu_ops.reset_index(drop=True))
    spans = pd.DataFrame({"range": ranges["path"].astype(str), "start": ranges["start_ns"], "nsys_ns": last - first})
    spans.loc[last < 0, "nsys_ns"] = 0  # a component without a kernel takes no time of the GPU
    spans = spans.sort_values("start", kind="stable")
    spans["ordinal"] = spans.groupby("range").cumcount()
    both = events.merge(spans, on=["range", "ordinal"], how="inner")
    if both.empty:
        return None
    root = both["range"].str.partition("/")[0].str.partition(".")
    labels = {entry["name"]: profile_label(entry) for entry in (capture.layer_profile or {}).get("profiles") or []}
    profile = root[0].map(lambda name: labels.get(name, name))
    both = both.assign(profile=profile, level=root[2], read_ns=both["event_ns"].astype(float))
    both["event_ns"] = (both["read_ns"] - both["own_ns"].astype(float)).clip(lower=0.0)
    both["off"] = both["event_ns"] - both["nsys_ns"]
    grouped = both.groupby(["profile", "level", "component"], sort=False)
    table = grouped.agg(
        instances=("off", "size"),
        read_ns=("read_ns", "mean"),
        own_ns=("own_ns", "mean"),
        event_ns=("event_ns", "mean"),
        nsys_ns=("nsys_ns", "mean"),
        difference_ns=("off", "mean"),
        largest_difference_ns=("off", lambda values: values[values.abs().idxmax()]),
    ).reset_index()
    nsys_ns = table["nsys_ns"].where(table["nsys_ns"] > 0)
    table["difference_frac"] = table["difference_ns"] / nsys_ns
    off = table["difference_ns"].abs()
    table["within_frac"] = np.where(off <= MOST_FRAC * table["nsys_ns"], "yes", "no")
    table["within_ns"] = np.where(off <= MOST_NS, "yes", "no")
    return timed(table.to_dict("records"))


def extents(ranges: pd.DataFrame, gpu_ops: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the start of the first and the end of the last GPU operation in each range, nested ranges included.

    Both are -1 for a range without GPU operations.
    """
    owner = attribution.attribute(gpu_ops, ranges).to_numpy(np.int64)
    owned = owner >= 0
    start = gpu_ops["start_ns"].to_numpy(np.int64)[owned]
    end = start + gpu_ops["duration_ns"].to_numpy(np.int64)[owned]
    far = np.iinfo(np.int64).max
    first = np.full(len(ranges), far, dtype=np.int64)
    last = np.full(len(ranges), -1, dtype=np.int64)
    np.minimum.at(first, owner[owned], start)
    np.maximum.at(last, owner[owned], end)
    parent = attribution.parent_rows(ranges)
    level = ranges["level"].to_numpy(np.int64)
    for depth in sorted(set(level.tolist()), reverse=True):
        rows = np.flatnonzero((level == depth) & (parent >= 0))
        np.minimum.at(first, parent[rows], first[rows])
        np.maximum.at(last, parent[rows], last[rows])
    return np.where(last < 0, -1, first), last


@part("note")
def _agreement_note(facts: Facts) -> str | None:
    layer_agreement = facts.once(build_agreement)
    return agreement_sentence(layer_agreement) if len(layer_agreement) else None


def agreement_sentence(agreement: pd.DataFrame) -> str:
    """Return a sentence: how many components agree by each measure, which agrees least, which tool to believe."""
    close, near = (int((agreement[name] == "yes").sum()) for name in ("within_frac", "within_ns"))
    frac, off_ns = agreement["difference_frac"], agreement["difference_ns"]
    said = (
        f"Events and nsys agree within {MOST_FRAC:.0%} in {close} of {len(agreement)} components of one and the same "
        f"run, within {MOST_NS / 1e3:g} µs in {near}"
    )
    if frac.notna().any():
        worst = agreement.loc[frac.abs().idxmax()]
        said += (
            f"; furthest apart is {worst['component']} ({worst['profile']}, {worst['level']}) with "
            f"{worst['event_ns'] / 1e3:.2f} µs by events and {worst['nsys_ns'] / 1e3:.2f} µs by nsys "
            f"({worst['difference_frac']:+.0%})"
        )
    return (
        f"{said}. Events read {off_ns.median() / 1e3:+.2f} µs more in the median ({off_ns.min() / 1e3:+.2f} to "
        f"{off_ns.max() / 1e3:+.2f} µs), of a long component as of a short one: they split all of a level among its "
        "components, so each has the gap to the next one's kernel in it, which nsys leaves between them. For how long "
        "a component's kernels run, and for the share of a short one, believe nsys."
    )


# The heaviest components alone ---------------------------------------------------------------------------------------


@table(
    "component_kernels",
    question="Which kernels are in the heaviest components, run alone?",
    title="Kernels of the heaviest components, run alone",
    columns=(
        PROFILE,
        Column("compound", "what the component is a part of, as in layer_compounds", "static"),
        Column("component", "component, the heaviest compound first", "key"),
        Column("kernel", "kernel (operator, on a CPU)", "key"),
        Column("source", "which tool timed it", "key"),
        Column("self_ns", "sum over all its launches", "timing"),
        Column("count", "launches in all calls", "timing", "1"),
        Column("avg_ns", "self_ns over count", "timing"),
    ),
)
def build_component_kernels(facts: Facts) -> pd.DataFrame | None:
    """Return component_kernels.csv: the kernels of the heaviest components, by torch.profiler and by nsys."""
    capture = facts.capture
    rows = []
    compounds = {part: compound for compound, parts in COMPOUNDS.items() for part in parts}
    for entry in (capture.kernels_of_layers or {}).get("profiles") or []:
        source = "torch.profiler" if entry.get("on_gpu") else "torch.profiler, CPU operators"
        seen = _alone_kernels(capture, entry["name"])
        for component in entry["components"]:
            kernels = [(source, k["name"], k["count"], k["self_ns"]) for k in component["kernels"]]
            kernels += [("nsys", *kernel) for kernel in seen.get(component["component"], [])]
            rows += [
                {
                    "profile": profile_label(entry),
                    "compound": compounds.get(part_of(component["component"])),
                    "component": component["component"],
                    "kernel": name,
                    "source": told_by,
                    "self_ns": self_ns,
                    "count": count,
                    "avg_ns": self_ns / count,
                }
                for told_by, name, count, self_ns in kernels
            ]
    return timed(rows)


def _alone_ops(capture: Capture, profile: str) -> pd.DataFrame:
    """Return the kernels under `alone.<profile>/<component>`, with a column `component`."""
    if capture.ranges.empty or capture.gpu_ops.empty:
        return pd.DataFrame({"component": []})
    ranges = capture.ranges.reset_index(drop=True)
    ops = capture.gpu_ops.reset_index(drop=True)
    path = pd.Series(attribution.paths_of(attribution.attribute(ops, ranges), ranges), dtype="str")
    root, _, component = (path.str.partition("/")[i] for i in range(3))
    inside = (root == f"{ALONE}{profile}") & (component != "")
    return ops[inside.to_numpy()].assign(component=component[inside].to_numpy())


def _alone_kernels(capture: Capture, profile: str) -> dict[str, list[tuple[str, int, float]]]:
    ops = _alone_ops(capture, profile)
    found: dict[str, list[tuple[str, int, float]]] = {}
    if ops.empty:
        return found
    summed = ops.assign(name=ops["name"].astype(str)).groupby(["component", "name"], sort=False)["duration_ns"]
    for (component, name), times in sorted(summed, key=lambda item: -item[1].sum()):
        found.setdefault(component, []).append((name, len(times), float(times.sum())))
    return found


@table(
    "component_launches",
    question="What does launching the heaviest components cost?",
    title="Launching the heaviest components",
    columns=(
        PROFILE,
        Column("rank", "by time in the forward pass", "key", "1"),
        Column("component", "component", "key"),
        Column("forward_share_frac", "its share of the forward pass, all layers together", "timing"),
        Column("calls", "times it was called alone", "timing", "1"),
        Column("gpu_ns", "one call on the GPU, all calls queued", "timing"),
        Column("cpu_ns", "one call on the CPU, Python and PyTorch included, no profiler", "timing"),
        Column("api_calls", "CUDA API calls of all calls (torch.profiler)", "timing", "1"),
        Column("api_ns", "time in them for one call (torch.profiler)", "timing"),
        Column("nsys_launches", "launches of all calls (nsys)", "timing", "1"),
        Column("nsys_api_ns", "time in these launches for one call (nsys)", "timing"),
    ),
)
def build_component_launches(facts: Facts) -> pd.DataFrame | None:
    """Return component_launches.csv: the launch cost of the heaviest components, beside their GPU time."""
    capture = facts.capture
    rows = []
    for entry in (capture.kernels_of_layers or {}).get("profiles") or []:
        calls = entry["calls"]
        ops = _alone_ops(capture, entry["name"])
        for rank, component in enumerate(entry["components"], 1):
            of = ops[ops["component"] == component["component"]]
            known = of[of["api_start_ns"].notna()] if len(of) else of
            in_api = (known["api_end_ns"] - known["api_start_ns"]).sum() if len(known) else None
            api_ns = component.get("api_ns")
            rows.append(
                {
                    "profile": profile_label(entry),
                    "rank": rank,
                    "component": component["component"],
                    "forward_share_frac": component["share_frac"],
                    "calls": calls,
                    "gpu_ns": component.get("gpu_ns"),
                    "cpu_ns": component["cpu_ns"],
                    "api_calls": component.get("api_calls"),
                    "api_ns": None if api_ns is None else api_ns / calls,
                    "nsys_launches": len(known) if len(known) else None,
                    "nsys_api_ns": None if in_api is None else float(in_api) / calls,
                }
            )
    return timed(rows)


def timed(rows: list[dict[str, Any]]) -> pd.DataFrame | None:
    """Return measured rows as a table; None without rows."""
    return pd.DataFrame(rows).assign(tier="timing") if rows else None
