"""Write the generated parts of the READMEs: text between `<!-- begin: NAME -->` and `<!-- end: NAME -->`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from tabulate import tabulate

from analysis.formats.spans import QUANTILES, Span
from analysis.fusion.plan import BYTES_GOAL, TIME_GOAL
from analysis.page.text import MISSING, is_missing, number
from analysis.tables.selftest import LIMITS

SHAPE, DTYPE, VARIANT = "b8_t1024", "fp32", "v05_early"
TRITON_SHAPES = [f"b{batch}_t{tokens}" for batch in (1, 8) for tokens in (512, 1024, 2048)]
FUSIONS = 6  # rows of the fusion plan
NOT_MET = "**no**"
NEAR = ", within the spread"  # for a goal whose limit lies between p5 and p95 of the result
INPUT_BYTES = 8 * 12 * 1024 * 1024 * 4  # of SHAPE in fp32
# Goals of a run that no ladder has: kernels with counters, seconds under nsys and ncu, and the fused softmax.
COUNTED_FRAC, CAPTURE_S = 0.99, 240
FLOOR_FRAC, FP32_TIME_US, READ_RATIO = 0.96, 146.0, 0.55


def replace_part(text: str, name: str, content: str) -> str:
    """Return `text` with the part `name` replaced by `content`.

    Raises: ValueError if the markers are not there exactly once.
    """
    pattern = re.compile(rf"(<!-- begin: {re.escape(name)} -->\n).*?(<!-- end: {re.escape(name)} -->)", re.DOTALL)
    new, count = pattern.subn(lambda match: f"{match[1]}\n{content.strip()}\n\n{match[2]}", text)
    if count != 1:
        raise ValueError(f"the markers of the part `{name}` occur {count} times, expected once")
    return new


def join_gpus(texts: Mapping[str, str]) -> str:
    """Return a part of a README: the text of a single GPU unchanged, or each GPU's text under its name.

    Shape: `texts` by the name of the GPU. Headings inside a text move one level down.
    """
    if len(texts) == 1:
        return next(iter(texts.values()))
    deeper = {gpu: re.sub(r"^(#+ )", r"#\1", text, flags=re.MULTILINE) for gpu, text in texts.items()}
    return "\n\n".join(f"### {gpu}\n\n{text.strip()}" for gpu, text in deeper.items())


@dataclass(frozen=True)
class Results:
    """The results of the committed runs.

    Shape: `report` and `tables` of the run with counters; `bench` the softmax benchmark's bench.csv; `gpt2` the part of
    its bench.json about GPT-2, by dtype; `gpt2_ops` the same with every applicable op, {} if not measured;
    `ladder_goals`, `ladder` and `ladder_times` tables of the ladder; `seconds` of each capture, by tool; `run`,
    `bench_run` and `gpt2_ops_run` their folders, relative to reports/.
    """

    report: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    bench: pd.DataFrame
    gpt2: dict[str, Any]
    gpt2_ops: dict[str, Any]
    ladder_goals: pd.DataFrame
    ladder: pd.DataFrame
    ladder_times: pd.DataFrame
    seconds: dict[str, Any]
    run: str
    bench_run: str
    gpt2_ops_run: str

    @property
    def conditions(self) -> dict[str, str]:
        return {row["name"]: row["value"] for row in self.report["conditions"]}


def render_summary(
    results: Results, advice: str = "", dropin: str = "", elsewhere: Mapping[str, pd.DataFrame] | None = None
) -> str:
    """Return the results of README.md: the conditions, and a line for each study, with its link.

    Shape: `advice` and `dropin` are lines of other studies, "" if they have none on this GPU. `elsewhere` has the goals
    of each GPU without a page of its own.
    """
    check, bench = results.tables["fusion_check"], results.bench
    cold = (bench["shape_name"] == SHAPE) & (bench["dtype"] == DTYPE) & (bench["convention"] == "cold")
    rows = bench[cold].set_index("variant")
    time = (rows["bench_time_p50_ns"] / 1e3).map("{:.1f} µs".format)
    floor = rows["floor_frac"].map("{:.1%}".format)
    judged = _declared(check).dropna(subset=["within"])
    gpu, least = results.conditions, _bytes(rows.at[VARIANT, "minimum_bytes"])
    lines = [
        "**Scale, causal mask and softmax in one kernel** (float32, B 8, 12 heads, T 1024): PyTorch's operations take "
        f"{time['torch']}, torch.compile {time['compile']}, our Triton kernel {time['triton']}, our CUDA kernel "
        f"`{VARIANT}` {time[VARIANT]}. A copy of the {least} that must move would take {floor[VARIANT]} of that "
        "([bytes moved](kernels/softmax/README.md)).",
        f"**Fusion, planned from a capture.** {int((judged['within'] == 'yes').sum())} of {len(judged)} kernels that "
        "were built came within 5 % of the predicted bytes and 15 % of the predicted time "
        "([plan and kernels](reports/README.md#what-to-fuse)).",
        advice,
        dropin,
    ]
    said = f"On {gpu['GPU']}, driver {gpu['driver']}, torch {gpu['torch']}; models have random weights."
    found = [
        f"{_met(_goals(results))} goals for kernels and captures are met ([each, also the missed ones]"
        "(reports/README.md#goals)).",
        *(
            f"On {name}, {_met(_timed_goals(goals))} goals for times are "
            f"([each](kernels/README.md#{name.lower().replace(' ', '-')}))."
            for name, goals in (elsewhere or {}).items()
        ),
        "[Advice](kernels/specimens/README.md), [decoding](kernels/decode/README.md) and "
        "[profiles](reports/README.md#committed-runs) have goals of their own.",
    ]
    return "\n\n".join((said, "\n".join(f"- {line}" for line in lines if line), " ".join(found)))


def _met(rows: list[list[str]]) -> str:
    """Return how many of the goals are met, as "m of n"."""
    return f"{sum(not row[-1].startswith(NOT_MET) for row in rows)} of {len(rows)}"


def render_results(results: Results) -> str:
    """Return the results in reports/README.md: time of each step, fusion plan, and each goal with its result."""
    gpu = results.conditions
    figure = f"{results.run}/figures/traffic_op.png"
    parts = [
        f"Measured on {gpu['GPU']} GPUs: driver {gpu['driver']}, torch {gpu['torch']}, ncu {gpu['ncu']}. Generated "
        f"from [{results.run}]({results.run}/report.md) and "
        f"[{results.bench_run}]({results.bench_run}/microbenchmark.txt).",
        f"![bytes that each softmax must move, should move by prediction, and moved]({figure})",
        "### Where the time of a step goes",
        "GPT-2 124M, fp32, batch 1: the prefill of 1024 tokens, and the decode step at the last position.",
        _steps_table(results.tables["gaps"]),
        *all_ops(results.gpt2_ops, results.gpt2_ops_run),
        *_fusion_parts(results.tables, results.run),
        "### Goals",
        _markdown(_goals(results) + _rates(results), ["what", "goal", "reached", "met"]),
        *_left_out(results.ladder),
        *_behind(results),
    ]
    return "\n\n".join(parts)


def _steps_table(gaps: pd.DataFrame) -> str:
    table = [
        [
            f"`{row['step']}`",
            number(row["bare_wall_ns"], "ns"),
            number(row["busy_ns"], "ns"),
            number(row["launches"]),
            row["verdict"] or MISSING,
        ]
        for _, row in gaps.iterrows()
    ]
    return _markdown(table, ["step", "wall, no profiler", "GPU busy", "kernels", "verdict"])


def _fusion_parts(tables: dict[str, pd.DataFrame], folder: str) -> list[str]:
    """Return the fusion plan, most gain first, and the results of the built kernels; empty if the run has no plan."""
    plan, check = tables["fusion"].dropna(subset=["gain_ns"]), tables["fusion_check"]
    if plan.empty:
        return []
    root = str(plan["step"].iloc[0]).split("/")[0]
    rows = [
        [
            row["pattern"],
            f"`{row['step']}`",
            number(row["launches"]),
            f"{_bytes(row['now_bytes'])} → {_bytes(row['after_bytes'])}",
            row["now_from"],
            f"{number(row['now_time_ns'], 'ns')} → {_bound(row)}",
            number(row["gain_ns"], "ns"),
        ]
        for _, row in plan[plan["step"].str.split("/").str[0] == root].head(FUSIONS).iterrows()
    ]
    headers = ["chain", "step", "launches", "bytes now → fused", "bytes now by", "time now → bound", "gain"]
    parts = [
        "### What to fuse",
        f"`make fusion` predicts these gains from the capture alone. The {len(rows)} largest per step, of "
        f"[tables/fusion.csv]({folder}/tables/fusion.csv). Where a chain is not far larger than L2, its bytes are "
        "those between L2 and the SMs. The fused bytes follow from the shapes: each input and each result once.",
        _markdown(rows, headers),
    ]
    if len(check):
        rows = [
            [
                row["pattern"],
                f"`{row['op']}` `{row['variant']}`",
                number(row["now_time_ns"], "ns"),
                f"{_bytes(row['predicted_bytes'])} / {_bytes(row['measured_bytes'])} "
                f"({_error(row['bytes_error_frac'])})",
                f"{number(row['predicted_time_ns'], 'ns')} / {number(row['measured_time_ns'], 'ns')} "
                f"({_error(row['time_error_frac'])})",
                MISSING if is_missing(row["reason"]) else row["reason"],
            ]
            for _, row in _declared(check).iterrows()
        ]
        headers = ["chain", "kernel that was built", "chain takes", "bytes: plan / kernel", "time: plan / kernel"]
        parts += [
            "The same plan for single chains far larger than L2, **against the kernels that replace them**. The "
            "prediction has not seen these kernels. Times are of the timeline (nsys), so they differ from the isolated "
            "times of the benchmarks.",
            _markdown(rows, [*headers, "difference"]),
        ]
        saved = []
        for _, row in check.dropna(subset=["measured_gain_ns", "predicted_gain_ns"]).iterrows():
            predicted, measured = row["predicted_gain_ns"], row["measured_gain_ns"]
            saved.append(
                f"- `{row['op']}` `{row['variant']}` in each `{row['range'].partition('/h.')[0]}`: predicted "
                f"{number(predicted, 'ns')}, measured {number(measured, 'ns')} ({_error(measured / predicted - 1)})"
            )
        if saved:
            parts.append(
                "What a step of the model saves when it runs from a filled queue without a profiler. The saving "
                "includes the idle time before each launch that is gone.\n\n" + "\n".join(saved)
            )
    return parts


def _declared(check: pd.DataFrame) -> pd.DataFrame:
    """For each op, the kernel that the model runs, which is its declared best; if no step runs it, the first."""
    in_step = check["measured_gain_ns"].notna()
    runs = check[in_step].drop_duplicates("op").set_index("op")["variant"]
    alone = check[~in_step & (check["variant"] == check["op"].map(runs).fillna(check["variant"]))]
    return alone.drop_duplicates("op")


def _bound(row: pd.Series) -> str:
    """Return the least time of a fused kernel. Work that moves into a matrix product has no kernel of its own."""
    inside = row["scope"] == "epilogue" and row["bound_time_ns"] == 0
    return f"{MISSING} (inside the product)" if inside else number(row["bound_time_ns"], "ns")


def _error(value: Any) -> str:
    return MISSING if is_missing(value) else f"{float(value):+.1%}"


def _fusion_goals(check: pd.DataFrame) -> list[list[str]]:
    """Return one row for the bytes and one for the time of the fusions with a result."""
    judged, goals = _declared(check).dropna(subset=["within"]), []
    for what, limit in (("bytes", BYTES_GOAL), ("time", TIME_GOAL)):
        errors = judged[f"{what}_error_frac"].astype(float)
        if judged.empty:
            continue
        within, worst = int((errors.abs() <= limit).sum()), errors.abs().idxmax()
        reached = f"{within} of {len(judged)}, worst {_error(errors[worst])} ({judged.loc[worst, 'op']})"
        name = f"{what} of fused kernels, predicted from the unfused chain alone ({', '.join(judged['op'])})"
        goals.append(_goal(name, f"≤ {limit:.0%} off", reached, within == len(judged)))
    return goals


def _ladder_goals(goals: pd.DataFrame) -> list[list[str]]:
    """Return one row for each goal of the ladder.

    It has the lowest speed-up with its p5 to p95, and the share of shapes that reach the goal.
    """
    rows = []
    for _, same in goals.groupby("goal", sort=True):
        least, met = same.loc[same["found"].astype(float).idxmin()], int(same["met"].sum())
        ops = f"{least['op']} " if same["op"].nunique() > 1 else ""
        where = f"{ops}{least['dtype']} {least['shape_name']}, `{least['variant']}`"
        found = Span(*(least[name] for name in ("found_p5", "found", "found_p95")))
        reached = f"{met} of {len(same)}, least {_ratio(found)}, {where}"
        reached += ", times of two runs" if same["two_runs"].any() else ""
        goal, share, never = f"≥ {float(least['least']):g} ×", float(least["share"]), float(least["never_below"])
        if share < 1.0:
            goal += f" at {share:.0%} of the shapes, ≥ {never:g} × at all"
        near = share == 1.0 and bool(same["within_spread"].any())
        rows.append(_goal(least["what"], goal, reached, reaches(same["found"], least), near=near))
    return rows


def reaches(found: pd.Series, goal: Mapping[str, Any]) -> bool:
    """Return whether speed-ups, one for each shape, reach a goal: `least` at its share, and nowhere below."""
    found = found.astype(float)
    enough = int((found >= float(goal["least"])).sum()) >= float(goal["share"]) * len(found)
    return bool(enough and found.min() >= float(goal["never_below"]))


def render_goals(goals: pd.DataFrame) -> str:
    """Return the table of the ladder's goals, each judged over the shapes that have a result."""
    return _markdown(_timed_goals(goals), ["what", "goal", "reached", "met"])


def _timed_goals(goals: pd.DataFrame) -> list[list[str]]:
    return _ladder_goals(goals[goals["found"].notna()])


def older_times(rungs: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (op, variant) of our rungs whose times are of an older build: goals and other shapes leave them out."""
    if rungs.empty:
        return []
    old = rungs[(rungs["kind"] == "cuda") & rungs["stale"].map(lambda stale: "times" in str(stale).split())]
    return list(dict.fromkeys(zip(old["op"], old["variant"], strict=True)))


def _left_out(rungs: pd.DataFrame) -> list[str]:
    """Return a sentence that names the rungs that no goal counts."""
    names = [f"{op} `{variant}`" for op, variant in older_times(rungs)]
    return [f"No goal counts times of an older build: those of {', '.join(names)}."] if names else []


def _behind(results: Results) -> list[str]:
    """Return every dtype and shape at which a rung misses the library of its goal, with the explanation."""
    goals = results.ladder_goals
    missed = goals[(goals["share"] < 1.0) & ~goals["met"].astype(bool)] if len(goals) else goals
    if missed.empty:
        return []
    keys = ["op", "variant", "dtype"]
    counters = results.ladder.drop_duplicates(keys).set_index(keys)
    times = results.ladder_times.set_index([*keys, "shape_name"])
    table = []
    for _, row in missed.iterrows():
        time, known = times.loc[(*row[keys], row["shape_name"])], counters.loc[tuple(row[keys])]
        alone, chained = time["isolated_time_p50_ns"], time["chained_time_p50_ns"]
        table.append(
            [
                f"{row['op']} {row['dtype']} {row['shape_name']}",
                f"`{row['variant']}`",
                f"`{row['beside']}`",
                _ratio(Span(*(row[name] for name in ("found_p5", "found", "found_p95")))),
                " / ".join(MISSING if is_missing(value) else f"{value / 1e3:.2f}" for value in (alone, chained)),
                _waits(known),
            ]
        )
    title = "#### Where a rung is behind the fastest library"
    even = int(missed["within_spread"].sum())
    said = (
        f"At {even} of these {len(missed)} places, more than one in twenty rounds of samples reaches the goal; the "
        "median does not. The counters belong to the shape of the op's ladder. A launch alone takes longer than one in "
        "a chain: alone, a small kernel cannot hide its start and its end."
    )
    headers = ["where", "rung", "library", "times as fast", "µs alone / chained", "counters"]
    return [title, said, _markdown(table, headers)]


def _waits(row: pd.Series) -> str:
    """Return the counters that show what a rung waits for."""
    if is_missing(row["top_stall"]):
        return MISSING
    shares = [("DRAM", row["dram_throughput_frac"]), ("arithmetic", row["compute_throughput_frac"])]
    busy = ", ".join(f"{name} {float(value):.0%}" for name, value in shares if not is_missing(value))
    return f"{row['top_stall']} {float(row['top_stall_frac']):.0%} of stalls; {busy}"


def _softmax_goals(results: Results) -> list[list[str]]:
    """Return the goals of the fused softmax: its reads, its distance from the floor, and its time against Triton."""
    bench, traffic = results.bench, results.tables["traffic"]
    rows: list[list[str]] = []
    ours = traffic[traffic["range"] == f"bench/softmax/{VARIANT}"]
    if len(ours):
        read = ours["dram_read_bytes"].iloc[0] / INPUT_BYTES
        goal, met = f"≤ {READ_RATIO:g} ×", read <= READ_RATIO
        rows.append(_goal("DRAM read of the fused softmax over its input", goal, f"{read:.3f} ×", met))
    for dtype, limit_us in (("fp32", FP32_TIME_US), ("bf16", None)):
        row = _row(bench, dtype, SHAPE)
        if row is not None:
            goal = f"≥ {100 * FLOOR_FRAC:g} % of the floor{f', ≤ {limit_us:g} µs' if limit_us else ''}"
            in_time = limit_us is None or row["bench_time_p50_ns"] <= limit_us * 1e3
            low, high = (row["floor_time_ns"] / row[f"bench_time_{name}_ns"] for name in ("p95", "p5"))
            reached = f"{row['floor_frac']:.1%} ({low:.1%} – {high:.1%}), {_spread(row)} µs"
            met = bool(row["floor_frac"] >= FLOOR_FRAC and in_time)
            near = bool(low <= FLOOR_FRAC <= high) or bool(
                limit_us and row["bench_time_p5_ns"] <= limit_us * 1e3 <= row["bench_time_p95_ns"]
            )
            rows.append(_goal(f"fused softmax, {dtype}, B 8, T 1024", goal, reached, met, near=near))
        ratios = [
            (Span(*(float(row[f"versus_triton_{at}"]) for at in QUANTILES)), shape)
            for shape in TRITON_SHAPES
            if (row := _row(bench, dtype, shape)) is not None
        ]
        if ratios:
            won, (least, where) = sum(ratio.p50 > 1 for ratio, _ in ratios), min(ratios, key=lambda one: one[0].p50)
            near = any(ratio.p5 <= 1 <= ratio.p95 for ratio, _ in ratios)
            what = f"fused softmax faster than Triton, {dtype}: B 1 and 8, T 512 to 2048"
            reached = f"{won} of {len(ratios)}, least {_ratio(least)}, {where}"
            rows.append(_goal(what, "all", reached, won == len(ratios), near=near))
    return rows


def _goals(results: Results) -> list[list[str]]:
    """Return one row per goal: subject, goal, result, whether it is met."""
    report, tables, seconds = results.report, results.tables, results.seconds
    coverage, equality = report["coverage"], report["nsys_equality"]
    rows = [
        _goal(
            "kernels in the captured ranges that have counters",
            f"≥ {100 * COUNTED_FRAC:g} %",
            f"{coverage['matched']} of {coverage['seen']}",
            coverage["matched"] >= COUNTED_FRAC * coverage["seen"],
        ),
        _goal(
            "ranges whose kernel time equals nsys' own sum to the ns",
            "all",
            f"{equality['equal']} of {equality['compared']}",
            equality["equal"] == equality["compared"] > 0,
        ),
    ]
    for unit, name, limit in (
        ("byte", "bytes", LIMITS["byte"]),
        ("FLOP", "FLOPs", LIMITS["FLOP"]),
    ):
        errors = [abs(check["error_frac"]) for check in report["trust"]["checks"] if check["unit"] == unit]
        if errors:
            goal = f"≤ {limit:.0%} off"
            rows.append(_goal(f"self-test: known {name}", goal, f"{max(errors):.2%}", max(errors) <= limit))
    rows += _softmax_goals(results)
    rows += _ladder_goals(results.ladder_goals)
    rows += _fusion_goals(tables["fusion_check"])
    if all(seconds.get(tool) is not None for tool in ("nsys", "ncu")):
        total = sum(seconds.values())
        most = CAPTURE_S
        rows.append(_goal("capture under nsys and ncu", f"≤ {most:g} s", f"{total} s", total <= most))
    return rows


def all_ops(measured: dict[str, Any], folder: str) -> list[str]:
    """Return the speed-up of GPT-2 with every applicable op, as paragraphs; empty if it was not measured.

    Shape: `folder` of that run, relative to the README.
    """
    if not measured:
        return []
    told = []
    for dtype, numbers in measured.items():
        ratio = numbers["tokens_per_s"]["gpt2_fused_ops"]["ratio_to_gpt2"]
        steps = {step["range"]: step["gpu_ns"]["p50"] for step in numbers["steps"]}
        less = steps["gpt2/decode"] / steps["gpt2_fused_ops/decode"]
        told.append(
            f"- {dtype}: {ratio['p50']:.2f} × ({ratio['p5']:.2f} – {ratio['p95']:.2f}) the tokens a second, "
            f"{less:.2f} × less GPU time a decode step"
        )
    return [
        "**GPT-2 with every op of `kernels/` that it takes**, eager, batch 1, 16 + 128 tokens "
        f"([all numbers]({folder}/gpt2.txt)):",
        "\n".join(told),
        "The GPU waits for launches during most of a decode step, whatever the kernels save.",
    ]


def _rates(results: Results) -> list[list[str]]:
    """Return rows of the table of goals without a goal: the rates of generation with GPT-2."""
    rows = []
    for dtype, measured in results.gpt2.items():
        before, after = (measured["tokens_per_s"][root] for root in ("gpt2", "gpt2_fused"))
        reached = f"{_rate(before)} → {_rate(after)} tokens/s"
        rows.append(
            [f"GPT-2, {dtype}, eager, 16 + 128 tokens, unfused → with the fused softmax", MISSING, reached, MISSING]
        )
    return rows


def _goal(what: str, goal: str, reached: str, met: bool, *, near: bool = False) -> list[str]:
    """Return a row of the table of goals; `near`: the limit lies between p5 and p95 of the result."""
    return [what, goal, reached, ("yes" if met else NOT_MET) + (NEAR if near else "")]


def _rate(rate: dict[str, float]) -> str:
    return f"{rate['p50']:.0f} ({rate['p5']:.0f} – {rate['p95']:.0f})"


def _row(bench: pd.DataFrame, dtype: str, shape: str) -> pd.Series | None:
    rows = bench[
        (bench["variant"] == VARIANT)
        & (bench["dtype"] == dtype)
        & (bench["shape_name"] == shape)
        & (bench["convention"] == "cold")
    ]
    return rows.iloc[0] if len(rows) else None


def _spread(row: pd.Series) -> str:
    p5, p50, p95 = (row[f"bench_time_{name}_ns"] / 1e3 for name in ("p5", "p50", "p95"))
    return f"{p50:.1f} ({p5:.1f} – {p95:.1f})"


def _ratio(found: Span) -> str:
    spread = f" ({found.p5:.3f} – {found.p95:.3f})" if not is_missing(found.p5) else ""
    return f"{found.p50:.3f}{spread} ×{'' if spread else ', too few samples for a spread'}"


def _bytes(value: Any) -> str:
    return MISSING if is_missing(value) else number(value, "byte")


def _markdown(table: list[list[str]], headers: list[str]) -> str:
    return tabulate(table, headers, tablefmt="github", disable_numparse=True)
