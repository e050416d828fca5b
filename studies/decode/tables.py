"""Build the tables of decoding: times of the rungs, declared bounds, correctness, prefill, and phases of blocks."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.facts import Facts
from analysis.tables.declare import Column, part, table
from analysis.tables.tokens import WAIT

CERTAIN = 0.95
CONFIRMED, REFUTED, OPEN = "confirmed", "refuted", "open"
FLOOR = "floor"
_WORK, _TAIL, _EXCHANGE = "work", "tail", "exchange"

Run = dict[str, Any]


def run_of(facts: Facts) -> Run:
    return facts.capture.of("decode") or {}


def roof_of(facts: Facts) -> tuple[str, float | None]:
    """Return the roof of a step, which only reads, and its bytes per second; a run before this roof has a copy's."""
    decode_run = facts.once(run_of)
    read = decode_run.get("read_bytes_per_s")
    return ("read", read) if read else ("copy", decode_run.get("copy_bytes_per_s"))


def floor_of(facts: Facts) -> float | None:
    """Return the time in ns that a step's bytes take at the roof of `roof_of`; None if none was measured."""
    decode_run, (_, rate) = facts.once(run_of), facts.once(roof_of)
    return (decode_run["weight_bytes"] + decode_run["cache_bytes"]) / rate * 1e9 if rate else None


def by_order(decode_run: Run) -> pd.DataFrame:
    """Return the median time a token of each rung: `forward_ns` of processes in declared order, and `reverse_ns`."""
    samples = pd.DataFrame(decode_run.get("samples", []), columns=["process", "rung", "token_time_ns"])
    odd = samples["process"].astype(int) % 2 == 1
    return pd.DataFrame(
        {
            name: samples[chosen].groupby("rung")["token_time_ns"].median()
            for name, chosen in (("forward_ns", ~odd), ("reverse_ns", odd))
        }
    )


def times_of(facts: Facts) -> pd.DataFrame:
    """Return the wall time a token in ns: a row for each process, a column for each rung."""
    rows = pd.DataFrame(facts.once(run_of).get("samples", []), columns=["process", "rung", "token_time_ns"])
    if rows.empty:
        return pd.DataFrame(index=pd.Index([], name="process"))
    return rows.pivot_table(index="process", columns="rung", values="token_time_ns")


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of the median for any distribution; None for fewer than six values.

    With probability 1 - 2 P(B(n, 1/2) < k) the median lies between the k-th smallest and the k-th largest of n values.
    For ten values these are the second and the ninth.
    """
    ranked = sorted(values)
    n = len(ranked)
    k, below = 0, 0.0
    while 2 * (below + math.comb(n, k) / 2**n) <= 1 - CERTAIN:
        below += math.comb(n, k) / 2**n
        k += 1
    return (ranked[k - 1], ranked[n - k]) if k else None


def _spread(values: pd.Series) -> dict[str, float]:
    """Return median, low and high of times or ratios; low and high are NaN for fewer than six processes."""
    known = values.dropna()
    low, high = interval(known.tolist()) or (np.nan, np.nan)
    return {"median": float(known.median()) if len(known) else np.nan, "low": low, "high": high}


# Rung by rung ------------------------------------------------------------------------------------------------


@table(
    "decode",
    question="How long does each rung take for a token, and how far is that from reading its bytes once?",
    title="GPT-2, one token at a time",
    columns=(
        Column("rung", "a way to decode, declared in kernels/decode/rungs.py", "key"),
        Column("token_ns", "wall time a token, median over fresh processes without a profiler", "timing"),
        Column("token_low_ns", "lower end of the 95 % interval of that median, by order statistics", "timing"),
        Column("token_high_ns", "upper end of that interval", "timing"),
        Column("tokens_per_s", "batch over token_ns", "timing", "1/s"),
        Column("seen_ns", "token_ns if the host waits for each token, median", "timing", shown=False),
        Column(
            "processes", "number of fresh processes; every second one reverses the order", "timing", "1", shown=False
        ),
        Column("launches", "launches by the host for each token (nsys); a CUDA graph counts as one", "timing", "1"),
        Column("kernels", "kernels for each token (nsys); blank if nsys recorded whole graphs only", "timing", "1"),
        Column("busy_ns", "time a token in which the GPU works, over all streams (nsys)", "timing"),
        Column("bytes", "bytes of all weights, and of keys and values at the mean context", "static"),
        Column("forward_ns", "token_ns of the processes that time the rungs in order", "timing", shown=False),
        Column("reverse_ns", "token_ns of the processes that reverse the order", "timing", shown=False),
        Column("floor_ns", "time of these bytes at the roof of this run", "timing"),
        Column("floor_roof", "that roof: read, or copy for a run that did not measure how fast it reads", "key"),
        Column("floor_frac", "floor_ns over token_ns", "timing", style="bar"),
        Column(
            "source",
            "12 digits of the source of kernels/decode, of its rungs; blank: not recorded, or several",
            "key",
            shown=False,
        ),
        Column("idea", "what the rung is", "key", style="prose"),
        Column("reason", "why there is no time", "row", style="prose"),
    ),
)
def build_decode(facts: Facts) -> pd.DataFrame | None:
    """Return decode.csv: a row for each rung that decodes, in declared order; `reason` says why one has no time."""
    decode_run, decode_times, decode_floor_ns = facts.once(run_of), facts.once(times_of), facts.once(floor_of)
    if not decode_run.get("rungs"):
        return None
    seen, orders, (roof, _) = _seen(decode_run), by_order(decode_run), facts.once(roof_of)
    counted = _counted(decode_run, facts.gpu_ops, facts.step_ranges, facts.step_of_op)
    sources: dict[str, set[str]] = {}
    for sample in decode_run.get("samples", []):
        sources.setdefault(sample["rung"], set()).add(sample.get("source") or "")
    rows = []
    for rung in decode_run.get("rungs", []):
        if rung["prefill"]:
            continue
        name = rung["rung"]
        times = _spread(decode_times[name]) if name in decode_times else _spread(pd.Series(dtype=float))
        token_ns = times["median"]
        rows.append(
            {
                "rung": name, "token_ns": token_ns, "token_low_ns": times["low"], "token_high_ns": times["high"],
                "tokens_per_s": decode_run["batch"] * 1e9 / token_ns,
                "seen_ns": seen.get(name, np.nan),
                "processes": decode_times[name].count() if name in decode_times else 0,
                **counted.get(name, {"launches": np.nan, "kernels": np.nan, "busy_ns": np.nan}),
                "bytes": decode_run["weight_bytes"] + decode_run["cache_bytes"],
                **{order: times.get(name, np.nan) for order, times in orders.items()},
                "floor_ns": np.nan if decode_floor_ns is None else decode_floor_ns, "floor_roof": roof,
                "floor_frac": np.nan if decode_floor_ns is None else decode_floor_ns / token_ns,
                "source": "".join(own) if len(own := sources.get(name, set())) == 1 else "",
                "idea": rung["idea"], "reason": rung.get("reason") or "", "tier": "timing",
            }
        )  # fmt: skip
    return pd.DataFrame(rows) if rows else None


def _seen(decode_run: Run) -> pd.Series:
    """Return the median time (ns) of each rung if the host waits for each step."""
    samples = pd.DataFrame(decode_run.get("samples", []), columns=["rung", "seen_time_ns"])
    return samples.groupby("rung")["seen_time_ns"].median()


def _counted(
    decode_run: Run, gpu_ops: pd.DataFrame, step_ranges: pd.DataFrame, step_of_op: np.ndarray
) -> dict[str, dict[str, float]]:
    """Return launches, kernels and busy time (ns) a token for each rung: medians over its captured steps."""
    from analysis.formats.intervals import length, union

    tokens = {entry["rung"]: entry["tokens"] for entry in decode_run.get("captured", [])}
    found: dict[str, list[tuple[int, float, int]]] = {}
    for row, path in zip(step_ranges.index, step_ranges["path"] if len(step_ranges) else [], strict=True):
        rung = str(path).partition("/")[0]
        if rung not in tokens:  # the steps of a program that is no run of this study
            continue
        own = gpu_ops[step_of_op == row]
        if len(own):
            start, took = (own[name].to_numpy(np.int64) for name in ("start_ns", "duration_ns"))
            launches = own[["pid", "api_start_ns"]].drop_duplicates().shape[0]
            whole = (own["kind"] == "graph").any()
            kernels = np.nan if whole else float((own["kind"] == "kernel").sum())
            found.setdefault(rung, []).append((launches, kernels, length(union(start, took))))
    return {
        rung: dict(zip(("launches", "kernels", "busy_ns"), np.median(values, axis=0) / tokens[rung], strict=True))
        for rung, values in found.items()
    }


# Bounds ------------------------------------------------------------------------------------------------------


@table(
    "decode_bounds",
    question="Which bounds, declared before the measurement, hold?",
    title="Expectations of each rung",
    columns=(
        Column("rung", "rung of decode.csv", "key"),
        Column("bound", "the declared bound in words", "key", style="prose"),
        Column("ratio", "this rung's time over the other's in the same process, median over processes", "timing", "1"),
        Column("ratio_low", "lower end of the 95 % interval of that median", "timing", "1"),
        Column("ratio_high", "upper end of that interval", "timing", "1"),
        Column("verdict", f"{CONFIRMED}: the interval is inside the bound; {REFUTED}: outside; else {OPEN}", "timing"),
    ),
)
def build_bounds(facts: Facts) -> pd.DataFrame | None:
    """Return decode_bounds.csv: a row for each bound; ratio and verdict are blank unless both times are known."""
    rows = []
    for rung in facts.once(run_of).get("rungs", []):
        for bound in rung["bounds"]:
            ratio = _spread(_ratio(rung["rung"], bound["than"], facts.once(times_of), facts.once(floor_of)))
            rows.append(
                {
                    "rung": rung["rung"], "bound": bound["said"], "ratio": ratio["median"],
                    "ratio_low": ratio["low"], "ratio_high": ratio["high"], "verdict": judge(ratio, bound),
                    "tier": "timing",
                }
            )  # fmt: skip
    return pd.DataFrame(rows) if rows else None


def _ratio(rung: str, than: str, times: pd.DataFrame, floor_ns: float | None) -> pd.Series:
    """Return a rung's time over another's, or over the floor, for each process that has both."""
    if rung not in times or (floor_ns is None if than == FLOOR else than not in times):
        return pd.Series(dtype=float)
    return (times[rung] / (floor_ns if than == FLOOR else times[than])).dropna()


def judge(ratio: dict[str, float], bound: dict[str, Any]) -> str:
    """Return whether the interval of a ratio lies inside the bound (CONFIRMED), outside (REFUTED), or across (OPEN).

    Without an interval, return "".
    """
    low, high = ratio["low"], ratio["high"]
    if math.isnan(low):
        return ""
    least, most = bound.get("low") or 0.0, math.inf if bound.get("high") is None else bound["high"]
    if least <= low and high <= most:
        return CONFIRMED
    return REFUTED if high < least or low > most else OPEN


# Correctness -------------------------------------------------------------------------------------------------


@table(
    "decode_checks",
    question="Do the engines decode like the reference, also at late positions and on weights that show mistakes?",
    title="Correctness",
    columns=(
        Column("engine", "engine of studies/decode", "key"),
        Column("dtype", "type of weights and arithmetic", "key"),
        Column("weights", "random: as initialised; peaked: heads look at few keys, so that mistakes show", "key"),
        Column("positions", "positions of a given text", "timing", "1"),
        Column("same", "positions at which engine and reference have the same largest logit", "timing", "1"),
        Column("ties", "positions at which they differ, but rounding can explain it", "timing", "1"),
        Column("wrong", "positions at which they differ by more than rounding", "timing", "1"),
        Column("greedy_same", "tokens of the engine's own texts that the reference chooses, too", "timing", "1"),
        Column("greedy_ties", "tokens of its own texts that differ, but rounding can explain it", "timing", "1"),
        Column("greedy_wrong", "tokens of its own texts that differ by more than rounding", "timing", "1"),
        Column("kl_mean", "mean KL divergence of the reference from the engine", "timing", "nat"),
        Column("plain_kl_mean", "kl_mean of Hugging Face's model in this type", "timing", "nat"),
        Column("kl_most", "largest KL divergence", "timing", "nat", shown=False),
        Column("plain_kl_most", "kl_most of Hugging Face's model in this type", "timing", "nat", shown=False),
        Column("verdict", "good: no wrong token, and no window of positions with a KL above plain_kl", "timing"),
    ),
)
def build_checks(facts: Facts) -> pd.DataFrame | None:
    """Return decode_checks.csv."""
    names = [column.name for column in build_checks.columns if column.name != "verdict"]
    rows = [
        {name: entry[name] for name in names} | {"verdict": _checked(entry)}
        for entry in facts.once(run_of).get("checks", [])
    ]
    return pd.DataFrame(rows).assign(tier="timing") if rows else None


def _checked(entry: dict[str, Any]) -> str:
    wrong = entry["wrong"] + entry["greedy_wrong"]
    worse = f"KL worse at positions {', '.join(entry['worse'])}" if entry["worse"] else ""
    return "; ".join(filter(None, [f"{wrong} wrong tokens" if wrong else "", worse])) or "good"


# Prefill -----------------------------------------------------------------------------------------------------


@table(
    "decode_prefill",
    question="How long does a pass over the prompt take, and what share of the arithmetic roof is that?",
    title="Prefill",
    columns=(
        Column("rung", "a way to run the prompt", "key"),
        Column("tokens", "tokens of the prompt, batch 1", "key", "1"),
        Column("time_ns", "time of the pass, median over fresh processes without a profiler", "timing"),
        Column("time_low_ns", "lower end of the 95 % interval of that median", "timing"),
        Column("time_high_ns", "upper end of that interval", "timing"),
        Column("seen_ns", "time of a pass if the host waits for each, median", "timing"),
        Column("flops", "FLOPs of projections, causal attention, and logits of the last token", "static", "1"),
        Column("mfu_frac", "FLOP/s of the pass over those of a square product of size 8192", "timing", style="bar"),
        Column("idea", "what the rung is", "key", style="prose"),
        Column("reason", "why there is no time", "row", style="prose"),
    ),
)
def build_prefill(facts: Facts) -> pd.DataFrame | None:
    """Return decode_prefill.csv."""
    decode_run, decode_times = facts.once(run_of), facts.once(times_of)
    rows, seen = [], _seen(decode_run)
    for rung in decode_run.get("rungs", []):
        if not rung["prefill"]:
            continue
        name, rate = rung["rung"], decode_run.get("flop_per_s") or np.nan
        times = _spread(decode_times[name]) if name in decode_times else _spread(pd.Series(dtype=float))
        rows.append(
            {
                "rung": name, "tokens": decode_run["prefill_tokens"], "time_ns": times["median"],
                "time_low_ns": times["low"], "time_high_ns": times["high"], "seen_ns": seen.get(name, np.nan),
                "flops": decode_run["prefill_flops"],
                "mfu_frac": decode_run["prefill_flops"] / times["median"] * 1e9 / rate, "idea": rung["idea"],
                "reason": rung.get("reason") or "", "tier": "timing",
            }
        )  # fmt: skip
    return pd.DataFrame(rows) if rows else None


@part("note")
def _cost_of_stamps(facts: Facts) -> str | None:
    """Say how much the stamps of decode_phases.csv change the time of a token, of the engines that have some."""
    stamps = facts.capture.of("decode_phases")
    has = set() if stamps is None else set(stamps["rung"])
    said = [
        f"{entry['rung']} {entry['stamped_time_ns'] / entry['token_time_ns'] - 1:+z.1%}"
        for entry in facts.once(run_of).get("stamped") or []
        if entry["rung"] in has
    ]
    return f"Stamps of the phases change the time of a token: {', '.join(said)}." if said else None


@part("note")
def _cards(facts: Facts) -> str | None:
    """Say which processes ran on which GPU, if a run went on with another one."""
    samples = facts.once(run_of).get("samples", [])
    cards = list(dict.fromkeys(one.get("card", "") for one in samples))
    if len(cards) < 2:
        return None
    by_card = {card: sorted({one["process"] for one in samples if one.get("card", "") == card}) for card in cards}
    said = (f"{', '.join(map(str, own))} on {card or 'an unnamed one'}" for card, own in by_card.items())
    return f"The processes ran on {len(cards)} GPUs of this model: {'; '.join(said)}."


# Phases ------------------------------------------------------------------------------------------------------


@table(
    "decode_phases",
    question="How does a resident block spend the time of a token: does it multiply, or wait for another block?",
    title="Phases of the persistent kernel",
    columns=(
        Column("rung", "engine that recorded the stamps", "key"),
        Column("phase", "phase of a layer, or after the last layer", "key"),
        Column(
            "kind",
            "work; tail: the block waits until the slowest block has written; exchange: then until it has the values",
            "key",
        ),
        Column("time_ns", "time a token in this phase of all layers, mean over blocks and tokens", "timing"),
        Column("share_frac", "share of the mean time of a token; all rows add up to 1", "timing", style="bar"),
        Column("longest_ns", "time_ns of the block that takes longest", "timing"),
        Column("shortest_ns", "time_ns of the block that takes least", "timing"),
    ),
)
def build_phases(facts: Facts) -> pd.DataFrame | None:
    """Return decode_phases.csv. A block's phases add up to its token, from its first stamp to its last."""
    stamps = facts.capture.of("decode_phases")
    if stamps is None or stamps.empty:
        return None
    rows = []
    for rung, own in _kinds(stamps).groupby("rung", sort=False):
        tokens = own["token"].nunique()
        blocks = own.groupby(["phase", "kind", "block"], sort=False)["time_ns"].sum() / tokens
        whole = float(blocks.groupby("block").sum().mean())
        rows += [
            {
                "rung": rung, "phase": phase, "kind": kind, "time_ns": times.mean(),
                "share_frac": times.mean() / whole if whole else np.nan, "longest_ns": times.max(),
                "shortest_ns": times.min(), "tier": "timing",
            }
            for (phase, kind), times in blocks.unstack(fill_value=0.0).iterrows()
        ]  # fmt: skip
    return pd.DataFrame(rows)


def _kinds(stamps: pd.DataFrame) -> pd.DataFrame:
    """Return the stamps with `time_ns` and `kind`; each wait becomes two rows, its tail and its exchange.

    A block begins to wait when it has written its values. So the tail ends when the last block begins to wait.
    """
    took = stamps.assign(time_ns=(stamps["end_ns"] - stamps["start_ns"]).astype(float), kind=_WORK)
    waits = took["phase"].str.startswith(WAIT)
    waiting = took[waits]
    written = waiting.groupby(["rung", "token", "layer", "phase"], sort=False)["start_ns"].transform("max")
    tail = (written - waiting["start_ns"]).astype(float).clip(upper=waiting["time_ns"])
    parts = [
        took[~waits],
        waiting.assign(kind=_TAIL, time_ns=tail),
        waiting.assign(kind=_EXCHANGE, time_ns=waiting["time_ns"] - tail),
    ]
    return pd.concat(parts).sort_index(kind="stable")


@part("note")
def _kinds_of_time(facts: Facts) -> str | None:
    """Say which shares of a token are work, tails and exchanges."""
    rows = facts.once(build_phases)
    if rows.empty:
        return None
    said = []
    for rung, own in rows.groupby("rung", sort=False):
        shares = own.groupby("kind")["share_frac"].sum()
        parts = ", ".join(f"{kind} {shares.get(kind, 0.0):.0%}" for kind in (_WORK, _TAIL, _EXCHANGE))
        said.append(f"{rung} {parts}")
    return f"Of the time of a token by its stamps: {'; '.join(said)}."
