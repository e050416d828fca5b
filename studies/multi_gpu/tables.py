"""Build the tables of the study: predicted and measured speed-ups, claims and their verdicts, and checks of logits."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.facts import Facts
from analysis.formats.multi_gpu import MULTI_GPU
from analysis.formats.run import CEILINGS
from analysis.tables.declare import Column, part, table
from studies.multi_gpu import predict, splits
from studies.multi_gpu.predict import GPUS
from studies.multi_gpu.slices import CLAIMED_GPUS, FORWARD, OPS, claims

Run = Mapping[str, Any]
TRAP, RESIDENT = "trap", "resident"
ON = (GPUS, CLAIMED_GPUS)
CONFIRMED, REFUTED, UNKNOWN = "confirmed", "refuted", "not measured"
_UNCLAIMED = {
    TRAP: "weights go to every GPU on every call, and each of their tensors is allocated",
    RESIDENT: "the slices need nothing of each other: half the work, less what does not shrink with it",
}


def run_of(facts: Facts) -> Run:
    return facts.capture.of(MULTI_GPU.kind) or {}


@part("title")
def _title(facts: Facts) -> str | None:
    return f"GPT-2 on several GPUs, {facts.gpu or 'CPU ranks'}" if facts.once(run_of) else None


def links_of(facts: Facts) -> Run:
    return facts.capture.of(CEILINGS.kind) or {}


def on_gpus(run: Run, field: str) -> list[Mapping[str, Any]]:
    """Return a list of the run if it ran on GPUs, else []: times of CPU ranks only prove that the programs run."""
    return run.get(field) or [] if run.get("gpu") else []


def gpu_ns(entry: Mapping[str, Any]) -> float | None:
    """Return the median GPU time in ns of an entry of `times`; None for a run on CPUs."""
    return float(entry["gpu_ns"]["p50"]) if entry.get("gpu_ns") else None


def compare(run: Run, ceilings: Run) -> pd.DataFrame:
    """Return each prediction with its measurement, if there is one, and the prediction from this run's own links.

    Predictions for more GPUs than GPUS are left out if the run has no time of so many ranks.
    """
    measured = {(one["mode"], one["workload"], int(one["ranks"])): one for one in on_gpus(run, "times")}
    tables = {GPUS: predict.frozen()}
    if any(ranks == CLAIMED_GPUS for _, _, ranks in measured):
        tables[CLAIMED_GPUS] = predict.frozen(predict.FOUR_TABLE)
    linked = {gpus: list(predict.rows(ceilings, gpus)) for gpus in tables} if ceilings.get("links") else {}
    rows = []
    every = [(count, place, row) for count, table in tables.items() for place, row in enumerate(table)]
    for gpus, place, expected in every:
        name = predict.workload(expected["step"], int(expected["batch"]), int(expected["tokens"]))
        one, many = measured.get(("one", name, 1)), measured.get((expected["mode"], name, gpus))
        row: dict[str, Any] = {"gpus": gpus, **{column: expected[column] or None for column in predict.COLUMNS}}
        row |= {"linked_speedup": linked[gpus][place]["speedup"] if linked else None, "tier": "timing"}
        row |= dict.fromkeys((*predict.MEASURED, "measured_wall_speedup"))
        if one and many:
            row["measured_wall_speedup"] = one["wall_ns"]["p50"] / many["wall_ns"]["p50"]
            before, after = gpu_ns(one), gpu_ns(many)
            if before and after:
                speedup = before / after
                row |= {"measured_one_ns": before, "measured_ns": after, "measured_speedup": speedup,
                        "error_frac": float(expected["speedup"]) / speedup - 1}  # fmt: skip
        rows.append(row)
    made = pd.DataFrame(rows)
    numbers = [name for name in made if name not in ("mode", "step", "tier")]
    return made.assign(**{name: pd.to_numeric(made[name]) for name in numbers})


@table(
    "multi_gpu",
    question="How much faster are several GPUs than one, and did the prediction say so?",
    title="Speed-up of several GPUs",
    columns=(
        Column("gpus", "number of GPUs", "key", "1"),
        Column("mode", "dp: each GPU has a share of the sequences; tp: of heads, columns and vocabulary", "key"),
        Column("step", "prefill, or one decode step", "key"),
        Column("batch", "number of sequences", "key", "1"),
        Column("tokens", "tokens of the prompt; for decode: position of the second of two steps", "key", "1"),
        Column("one_ns", "time on one GPU, from its committed kernel times", "static"),
        Column("compute_ns", "predicted kernel time of the busiest GPU", "static", shown=False),
        Column("exposed_ns", "predicted communication that no kernel hides", "static", shown=False),
        Column("predicted_ns", "compute_ns plus exposed_ns, written before any run on so many GPUs", "static"),
        Column("speedup", "predicted: one_ns over predicted_ns", "static", "1"),
        Column("wall_speedup", "predicted speed-up of wall time, which includes the CPU's launches", "static", "1"),
        Column(
            "linked_speedup", "speedup by the same formula from the links of this run's ceilings.json", "timing", "1"
        ),
        Column("measured_one_ns", "GPU time on one GPU", "timing", shown=False),
        Column("measured_ns", "GPU time on these GPUs, of the slowest rank", "timing"),
        Column("measured_speedup", "measured_one_ns over measured_ns; blank: not measured", "timing", "1"),
        Column("measured_wall_speedup", "measured speed-up of wall time", "timing", "1"),
        Column("error_frac", "predicted over measured speed-up, less 1", "timing", "1"),
    ),
)
def build_speedups(facts: Facts) -> pd.DataFrame | None:
    """Return multi_gpu.csv: a row for each prediction; None for a run of something else."""
    multi_gpu_run = facts.once(run_of)
    return compare(multi_gpu_run, facts.once(links_of)) if multi_gpu_run else None


def judge(run: Run) -> pd.DataFrame:
    """Return the claimed, predicted and measured speed-up of each op and the forward pass, as the trap and resident.

    A claim is about CLAIMED_GPUS; where only GPUS were measured, these judge it.
    """
    expected = {(one["op"], int(one["gpus"])): one for one in predict.frozen(predict.TRAP_TABLE)}
    measured = {(one["op"], one["way"], int(one["gpus"])): one["wall_ns"]["p50"] for one in on_gpus(run, "trap")}
    claimed = {(claim.op, RESIDENT if claim.resident else TRAP): claim for claim in claims()}
    rows = []
    for op in (*OPS, FORWARD):
        for way in (TRAP, RESIDENT):
            claim = claimed.get((op, way))
            one = measured.get((op, "one", 1))
            found = {gpus: one / many if one and (many := measured.get((op, way, gpus))) else None for gpus in ON}
            most = CLAIMED_GPUS if found[CLAIMED_GPUS] else GPUS
            gain = found[most]
            told = claim is not None and claim.speedup >= predict.PAYS
            verdict = UNKNOWN if gain is None else CONFIRMED if (gain >= predict.PAYS) == told else REFUTED
            rows.append(
                {
                    "op": op, "way": way, "claimed_one_ns": claim.one_ns if claim else None,
                    "claimed_sliced_ns": claim.sliced_ns if claim else None,
                    "claimed_speedup": claim.speedup if claim else None,
                    "predicted_4_speedup": float(expected[op, CLAIMED_GPUS][f"{way}_speedup"]),
                    "predicted_speedup": float(expected[op, GPUS][f"{way}_speedup"]),
                    "pays_from_batch": expected[op, GPUS][f"{way}_pays_from_batch"],
                    "found_one_ns": one, "found_ns": measured.get((op, way, GPUS)), "found_speedup": found[GPUS],
                    "found_4_ns": measured.get((op, way, CLAIMED_GPUS)), "found_4_speedup": found[CLAIMED_GPUS],
                    **_parts(measured, op, most if way == TRAP else 0), "verdict": verdict if claim else "",
                    "why": claim.why if claim else _UNCLAIMED[way], "tier": "timing",
                }
            )  # fmt: skip
    made = pd.DataFrame(rows)
    numbers = [name for name in made if name.endswith(("_ns", "_speedup"))]
    return made.assign(**{name: pd.to_numeric(made[name]) for name in numbers})


def _parts(measured: Mapping[tuple[str, str, int], float], op: str, gpus: int) -> dict[str, float | None]:
    """Return what the trap pays for allocating, and for copying, ns; None where a way was not measured."""
    trap, copies, resident = (measured.get((op, way, gpus)) for way in (TRAP, "copies", RESIDENT))
    return {
        "allocating_ns": trap - copies if trap and copies else None,
        "copying_ns": copies - resident if copies and resident else None,
    }


@table(
    "multi_gpu_claims",
    question="A student project found that slicing the batch makes GPT-2's ops slower. Does it?",
    title="Claims about slicing",
    columns=(
        Column("op", "B 8, T 1024, C 768, float32; forward: the whole pass", "key"),
        Column("way", "trap: allocate, copy, compute, copy back on every call; resident: data stays", "key"),
        Column("claimed_one_ns", "the project's time on one GPU of another kind", "static", shown=False),
        Column("claimed_sliced_ns", "the project's time on four of these GPUs", "static", shown=False),
        Column("claimed_speedup", "claimed_one_ns over claimed_sliced_ns; 1: no gain; blank: no claim", "static", "1"),
        Column("predicted_4_speedup", "predicted speed-up on four GPUs", "static", "1"),
        Column("predicted_speedup", "predicted speed-up on two GPUs", "static", "1"),
        Column("found_one_ns", "wall time on one GPU; blank: not measured", "timing", shown=False),
        Column("found_ns", "wall time on two GPUs, of one process; blank: not measured", "timing", shown=False),
        Column("found_speedup", "wall time on one GPU over wall time on two; blank: not measured", "timing", "1"),
        Column("found_4_ns", "wall time on four GPUs, of one process; blank: not measured", "timing"),
        Column("found_4_speedup", "wall time on one GPU over wall time on four; blank: not measured", "timing", "1"),
        Column("allocating_ns", "what the trap takes longer than its copies into memory that torch keeps, on the "
               "most GPUs measured", "timing"),
        Column("copying_ns", "what those copies take longer than resident slices", "timing"),
        Column("verdict", "confirmed: claim and measurement agree on whether it gains 5 %, on four GPUs if "
               "measured", "timing"),
        Column("pays_from_batch", "predicted: least batch, up to 4096, from which two GPUs gain 5 %", "static", "1"),
        Column("why", "reason for the prediction", "static", style="prose"),
    ),
)  # fmt: skip
def build_claims(facts: Facts) -> pd.DataFrame | None:
    """Return multi_gpu_claims.csv: two rows for each op; None for a run of something else."""
    multi_gpu_run = facts.once(run_of)
    return judge(multi_gpu_run) if multi_gpu_run else None


@table(
    "multi_gpu_splits",
    question="What does splitting a single kernel over GPUs win, and did the prediction say so?",
    title="Single kernels on several GPUs",
    columns=(
        Column("op", "float32; windowed: attention to the last 256 tokens; all_reduce: ours beside NCCL's", "key"),
        Column("split", "what the ranks share: rows, columns, heads, the sequence …", "key"),
        Column("shape", "sizes", "key"),
        Column("gpus", "number of GPUs", "key", "1"),
        Column("predicted_speedup", "predicted before any run; of all_reduce: NCCL's time over ours", "static", "1"),
        Column("one_ns", "GPU time on one GPU; of all_reduce: NCCL's", "timing"),
        Column("found_ns", "GPU time of the slowest rank, with its communication", "timing"),
        Column("found_p5_ns", "5th percentile", "timing", shown=False),
        Column("found_p95_ns", "95th percentile", "timing", shown=False),
        Column("found_speedup", "one_ns over found_ns", "timing", "1"),
        Column("efficiency_frac", "found_speedup over the GPUs; blank of all_reduce", "timing"),
        Column("error_frac", "predicted over found speed-up, less 1", "timing", "1"),
        Column("error", "largest difference from the result of one GPU", "timing", shown=False),
    ),
)
def build_splits(facts: Facts) -> pd.DataFrame | None:
    """Return multi_gpu_splits.csv, a row for each split that was measured; None without one."""
    found = pd.DataFrame(on_gpus(facts.once(run_of), "splits"))
    if found.empty:
        return None
    key = ["op", "split", "shape", "gpus"]
    told = pd.read_csv(splits.TABLE).rename(columns={"speedup": "predicted_speedup"})[[*key, "predicted_speedup"]]
    made = found.merge(told, on=key, how="left")
    made["found_speedup"] = made["one_ns"] / made["found_ns"]
    made["efficiency_frac"] = (made["found_speedup"] / made["gpus"]).mask(made["op"] == "all_reduce")
    made["error_frac"] = made["predicted_speedup"] / made["found_speedup"] - 1
    return made.assign(tier="timing")


@table(
    "multi_gpu_checks",
    question="Do several ranks compute what one process does?",
    title="Several ranks against one process",
    columns=(
        Column("mode", "dp or tp", "key"),
        Column("step", "prefill: logits of all tokens; decode: logits of the next token", "key"),
        Column("ranks", "number of processes", "key", "1"),
        Column("backend", "nccl between GPUs, gloo between CPU processes", "key"),
        Column("model", "small: the ranks divide its heads; uneven: they divide nothing; gpt2: 124M", "key"),
        Column("batch", "number of sequences", "key", "1"),
        Column("tokens", "tokens of each sequence", "key", "1"),
        Column("error", "largest difference of a logit, float32", "timing"),
        Column("logit", "largest logit", "timing"),
        Column("tokens_equal", "whether the greedy tokens are the same", "timing"),
    ),
)
def build_checks(facts: Facts) -> pd.DataFrame | None:
    """Return multi_gpu_checks.csv: a row for each check; None without checks."""
    multi_gpu_run = facts.once(run_of)
    found = multi_gpu_run.get("checks")
    return pd.DataFrame(found).assign(backend=multi_gpu_run["backend"], tier="timing") if found else None
