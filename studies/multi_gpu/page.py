"""Write the study's README and findings: from which batch two GPUs pay, predictions, measurements, and claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.diagnosis.claims import Claim, cell
from analysis.page import cells, markdown, text
from analysis.page.canvas import to_svg
from analysis.tables.declare import part, section
from studies.multi_gpu import figures, predict, tables
from studies.multi_gpu.predict import NEVER, PAYS

SHOWN_BATCHES, SHOWN_TOKENS = (1, 8, 64), (128, 1024)
FOLDER = "studies/multi_gpu"


def _ratio(value: Any, digits: int = 2) -> str:
    return text.MISSING if text.is_missing(value) else f"{float(value):.{digits}f}×"


def _small(value: Any) -> str:
    """Return a speed-up with three significant digits: the trap's may be 0.01×."""
    return text.MISSING if text.is_missing(value) else f"{float(value):.3g}×"


def pays_from(rows: pd.DataFrame, column: str) -> str:
    """Return the smallest batch from which every batch has a speed-up of PAYS or more; "never" if none has."""
    last = NEVER
    for row in rows.sort_values("batch", ascending=False).to_dict("records"):
        if row[column] < PAYS:
            break
        last = str(int(row["batch"]))
    return last


def show_pays(speedups: pd.DataFrame) -> str:
    """Return the table of the smallest batch from which two GPUs pay: by GPU time / by wall time."""
    body = []
    for (mode, step), of in speedups.groupby(["mode", "step"], sort=False):
        measured = of["measured_speedup"].notna().any()
        for how, prefix in (("predicted", ""), ("measured", "measured_"))[: 1 + measured]:
            by_tokens = [of[of["tokens"] == tokens] for tokens in predict.TOKENS]
            said = [
                f"{pays_from(rows, f'{prefix}speedup')} / {pays_from(rows, f'{prefix}wall_speedup')}"
                for rows in by_tokens
            ]
            body.append([f"{figures.MODES[str(mode)]}, {step}, {how}", *said])
    return cells.table(["two GPUs pay from batch", *(f"T {tokens}" for tokens in predict.TOKENS)], body)


def show_errors(speedups: pd.DataFrame) -> str:
    """Return the table of prediction errors by mode and step; "" before any measurement."""
    found = speedups.dropna(subset=["error_frac"])
    linked = found.assign(error=found["error_frac"].abs(), linked=_linked_errors(found))
    body = [
        [
            f"{figures.MODES[str(mode)]}, {step}",
            f"{len(of)}",
            f"{of['error'].median():.1%}",
            text.MISSING if of["linked"].isna().all() else f"{of['linked'].median():.1%}",
            f"{of.loc[of['error'].idxmax(), 'error_frac']:+.1%}",
        ]
        for (mode, step), of in linked.groupby(["mode", "step"], sort=False)
    ]
    return cells.table(["step", "predictions", "median error", "with measured links", "worst"], body) if body else ""


def _linked_errors(found: pd.DataFrame) -> pd.Series:
    """Return the error of each prediction with measured links; NaN without links."""
    return (found["linked_speedup"].astype(float) / found["measured_speedup"].astype(float) - 1).abs()


@section("multi_gpu")
def show_speedups(multi_gpu: pd.DataFrame) -> str:
    """Return a table of some predictions with their measurements."""
    shown = multi_gpu["batch"].isin(SHOWN_BATCHES) & multi_gpu["tokens"].isin(SHOWN_TOKENS)
    body = [
        [
            f"{row.mode} {row.step}, B {row.batch}, T {row.tokens}",
            cells.ms(row.measured_one_ns),
            cells.ms(row.measured_ns),
            _ratio(row.measured_speedup),
            _ratio(row.speedup),
            text.MISSING if text.is_missing(row.error_frac) else f"{float(row.error_frac):+.1%}",
        ]
        for row in multi_gpu[shown].itertuples(index=False)
    ]
    return cells.table(["step", "one GPU (ms)", "two GPUs (ms)", "speed-up", "predicted", "error"], body)


@section("multi_gpu_claims")
def show_claims(multi_gpu_claims: pd.DataFrame) -> str:
    """Return the table of claims: the claimed, predicted and measured speed-up, and the explanation."""
    body = [
        [
            f"{row.op}, {row.way}",
            _small(row.claimed_speedup),
            f"{_small(row.predicted_4_speedup)}, {_small(row.predicted_speedup)}",
            _small(row.found_speedup),
            str(row.pays_from_batch),
            markdown.escape(row.why),
        ]
        for row in multi_gpu_claims.itertuples(index=False)
    ]
    headers = ["op and way", "claimed, 4 GPUs", "predicted, 4 and 2", "found, 2", "pays from batch", "why"]
    return markdown.table_of(headers, body, ["left"] + ["right"] * 4 + ["left"])


def said_of_checks(run: Mapping[str, Any]) -> str:
    """Return a sentence with the number of checks, their numbers of ranks, and the largest error; "" without checks."""
    checks = run.get("checks") or []
    if not checks:
        return ""
    ranks = " and ".join(str(count) for count in sorted({int(one["ranks"]) for one in checks}))
    equal = sum(one["tokens_equal"] for one in checks)
    return (
        f"{len(checks)} checks with {run['backend']} ({ranks} ranks): the largest error of a logit is "
        f"{max(one['error'] for one in checks):.1e}, the greedy tokens are equal in {equal}."
    )


def said_of_never(judged: pd.DataFrame) -> str:
    """Return a sentence that names the ops for which the trap pays at no batch."""
    never = judged[(judged["way"] == "trap") & (judged["pays_from_batch"] == NEVER)]["op"]
    names = " and ".join(f"`{op}`" for op in never)
    return (
        f"Up to a batch of {predict.MOST_BATCH:,} the trap never pays for {names}: they move bytes and compute little."
    )


def said_of_errors(speedups: pd.DataFrame) -> str:
    """Return a sentence with the median and the worst error of the predictions, or that nothing is measured yet."""
    found = speedups.dropna(subset=["error_frac"])
    if found.empty:
        return "**Not measured yet:** every `–` waits for a run on two GPUs."
    errors = found["error_frac"]
    worst = found.loc[errors.abs().idxmax()]
    return (
        f"**{len(found)} of {len(speedups)} predictions are measured:** median error {errors.abs().median():.1%}, "
        f"worst {worst['error_frac']:+.1%} ({worst['mode']} {worst['step']}, B {worst['batch']}, T {worst['tokens']})."
    )


def render_line(speedups: pd.DataFrame, judged: pd.DataFrame) -> str:
    """Return the line of README.md on two GPUs: predictions, largest speed-up, trap; "" if not measured.

    Shape: `speedups` as `tables.compare` returns them, `judged` as `tables.judge`.
    """
    found = speedups.dropna(subset=["error_frac"])
    trap = judged[judged["way"] == "trap"]["found_speedup"].dropna()
    if found.empty or trap.empty:
        return ""
    best = found.loc[found["measured_speedup"].idxmax()]
    errors = found["error_frac"].abs()
    by_step = ", ".join(f"{step} {of.median():.1%}" for step, of in errors.groupby(found["step"], sort=False))
    return (
        f"**GPT-2 on two GPUs, predicted first** (float32). {len(found)} predicted speed-ups are off by "
        f"{errors.median():.1%} in the median ({by_step}). The best is {best['measured_speedup']:.2f} times: "
        f"{figures.MODES[str(best['mode'])]}, {best['step']}, {best['batch']} x {best['tokens']} tokens. Slices that "
        f"each call allocates and copies run at {trap.min():.2g} to {trap.max():.2g} times the speed of one GPU "
        f"([study]({FOLDER}/README.md))."
    )


def render_multi_gpu(run: Mapping[str, Any], ceilings: Mapping[str, Any], checked: Mapping[str, Any]) -> str:
    """Return the generated part of the study's README. `checked` is the committed run of CPU ranks."""
    speedups, judged = tables.compare(run, ceilings), tables.judge(run)
    parts = [
        said_of_errors(speedups),
        show_errors(speedups),
        show_pays(speedups),
        "The first number is for GPU time, the second for wall time, which includes the CPU's launches. "
        f"Two GPUs pay from a speed-up of {PAYS}: at this batch and at all larger ones up to 64.",
        "![speed-up over batch](speedup.svg)",
        show_speedups(speedups),
        "**The claims**, as speed-ups of slices on several GPUs over one GPU:",
        show_claims(judged),
        said_of_never(judged),
        "![the trap and its cure](trap.svg)",
        "\n".join(f"- {line}" for line in map(said_of_checks, (run, checked)) if line),
    ]
    return "\n\n".join(filter(None, parts))


def draw(run: Mapping[str, Any], ceilings: Mapping[str, Any]) -> dict[str, str]:
    """Return the README's figures as SVG text, by their path in the checkout."""
    caption = "GPT-2 124M, float32; NVIDIA H200; NCCL_NVLS_ENABLE=0"
    drawn = {
        "speedup": figures.plot_speedups(tables.compare(run, ceilings), caption),
        "trap": figures.plot_trap(tables.judge(run), caption),
    }
    return {f"{FOLDER}/{name}.svg": to_svg(figure).decode() for name, figure in drawn.items()}


@part("findings", 3)
def _findings(multi_gpu: pd.DataFrame, multi_gpu_claims: pd.DataFrame) -> list[Claim] | None:
    """Return the finding on the errors of the predictions; None unless two GPUs were measured."""
    found = multi_gpu.dropna(subset=["error_frac"]) if len(multi_gpu) else multi_gpu
    if found.empty:
        return None
    worst = found.loc[found["error_frac"].abs().idxmax()]
    evidence = cell("multi_gpu", cells.keys(multi_gpu, worst), "error_frac", float(worst["error_frac"]))
    said = said_of_errors(multi_gpu).replace("**", "")
    return [Claim(kind="result", title="Predicted speed-up of two GPUs", sentence=said, cells=(evidence,))]


@part("title", 2)
def _title(multi_gpu_run: Mapping[str, Any], gpu: str | None) -> str | None:
    """Return the report's title if the run is one of this study."""
    return f"GPT-2 on several GPUs, {gpu or 'CPU ranks'}" if multi_gpu_run else None
