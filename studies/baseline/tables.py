"""Build the tables of the Hugging Face baseline: settings, operators, and what others published."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.facts import Facts
from analysis.tables.declare import Column, table
from studies.layers.tables import build_profile, build_tokens, timed

_EQUAL = {True: "yes", False: "no", None: ""}
_PUBLISHED = Path(__file__).parent / "others.toml"


def settings_of(facts: Facts) -> list[dict[str, Any]]:
    return (facts.capture.baseline or {}).get("settings") or []


@table(
    "baseline",
    question="How fast is Hugging Face transformers here, and how far from what the memory allows?",
    title="Hugging Face transformers, side by side",
    columns=(
        Column("setting", "attention of generate(), a CUDA graph of one step, or static cache + compile", "key"),
        Column("dtype", "type of weights and arithmetic", "key"),
        Column("tokens_per_s", "new tokens over the wall time of a generation, median", "timing", "1/s"),
        Column("tokens_per_s_p5", "the same, 5 % are slower", "timing", "1/s"),
        Column("tokens_per_s_p95", "the same, 5 % are faster", "timing", "1/s"),
        Column("token_p50_ns", "time from one token on the host to the next, median", "timing"),
        Column("token_p95_ns", "the same, 5 % take longer", "timing"),
        Column("kernels_per_token", "kernels, those in CUDA graphs included (torch.profiler)", "timing", "1"),
        Column("launches_per_token", "launches of the CPU, a CUDA graph is one (torch.profiler)", "timing", "1"),
        Column("busy_ns", "time per token in which a GPU operation ran (torch.profiler), as a union", "timing"),
        Column("busy_frac", "busy_ns over the wall time per token without a profiler", "timing"),
        Column("floor_ns", "bytes that a token must read over the measured copy speed", "static"),
        Column("floor_frac", "floor_ns over the wall time per token", "timing"),
        Column("first_call_s", "the first generation, compilation included", "timing", "s"),
        Column("tokens_equal_first", "yes: the same tokens as the first setting of this type", "row"),
        Column("reason", "why there are no numbers", "row", style="prose"),
    ),
)
def build_baseline(facts: Facts) -> pd.DataFrame | None:
    """Return baseline.csv: one row for each setting and type, with the reason if it was not measured."""
    rows = []
    for entry in facts.once(settings_of):
        rate, token = entry.get("tokens_per_s") or {}, entry.get("token_ns") or {}
        wall_ns = 1e9 / rate["p50"] if rate else None
        rows.append(
            {
                "setting": entry["setting"],
                "dtype": entry["dtype"],
                "tokens_per_s": rate.get("p50"),
                "tokens_per_s_p5": rate.get("p5"),
                "tokens_per_s_p95": rate.get("p95"),
                "token_p50_ns": token.get("p50"),
                "token_p95_ns": token.get("p95"),
                "kernels_per_token": entry.get("kernels_per_token"),
                "launches_per_token": entry.get("launches_per_token"),
                "busy_ns": entry.get("busy_ns_per_token"),
                "busy_frac": _ratio(entry.get("busy_ns_per_token"), wall_ns),
                "floor_ns": entry.get("floor_ns"),
                "floor_frac": _ratio(entry.get("floor_ns"), wall_ns),
                "first_call_s": entry.get("first_call_s"),
                "tokens_equal_first": _EQUAL[entry.get("tokens_equal_first")],
                "reason": entry.get("skipped", ""),
            }
        )
    return timed(rows)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


@table(
    "baseline_operators",
    question="Which operators and kernels does a generation consist of?",
    title="Operators and kernels of the first setting",
    columns=(
        Column("setting", "setting of baseline.csv", "key"),
        Column("dtype", "type of weights and arithmetic", "key"),
        Column("name", "name as torch.profiler prints it", "key"),
        Column("kind", "operator, kernel, or call (of CUDA and the rest)", "key"),
        Column("self_cpu_ns", "CPU time without what it calls", "timing"),
        Column("cpu_ns", "CPU time with what it calls", "timing"),
        Column("self_cuda_ns", "time of its own kernels", "timing"),
        Column("cuda_ns", "time of all kernels below it", "timing"),
        Column("calls", "calls", "timing", "1"),
        Column("calls_per_token", "calls over the tokens of the profiled generation", "timing", "1"),
        Column(
            "share_frac",
            "self_cuda_ns over the sum of its kind (without a GPU: the same of self_cpu_ns)",
            "timing",
            style="bar",
        ),
    ),
)
def build_operators(facts: Facts) -> pd.DataFrame | None:
    """Return baseline_operators.csv: torch.profiler's table, with shares among operators or among kernels."""
    rows = []
    for entry in facts.once(settings_of):
        listed = entry.get("operators") or []
        on_gpu = any(row.get("self_cuda_ns") for row in listed)
        measure = "self_cuda_ns" if on_gpu else "self_cpu_ns"
        for row in listed:
            total = sum(other.get(measure) or 0 for other in listed if other["kind"] == row["kind"])
            rows.append(
                {
                    "setting": entry["setting"],
                    "dtype": entry["dtype"],
                    "name": row["name"],
                    "kind": row["kind"],
                    **{name: row.get(name) for name in ("self_cpu_ns", "cpu_ns", "self_cuda_ns", "cuda_ns")},
                    "calls": row["calls"],
                    "calls_per_token": _ratio(row["calls"], entry.get("profile_tokens")),
                    "share_frac": _ratio(row.get(measure), total),
                }
            )
    return timed(rows)


# Beside what others published --------------------------------------------------------------------------------------


@table(
    "published",
    question="How does this machine compare with what two student projects published?",
    title="Beside what two student projects published",
    columns=(
        Column("figure", "what is compared", "key"),
        Column("unit", "unit of both numbers", "key"),
        Column("ours", "this run", "timing"),
        Column("our_clock", "clock of this run's figure; theirs may use another if they do not name it", "key"),
        Column("theirs", "as published", "key"),
        Column("their_machine", "GPU of the published figure", "key"),
        Column("their_setting", "how it was taken", "key"),
    ),
)
def build_published(facts: Facts) -> pd.DataFrame | None:
    """Return published.csv: the figures of two student projects (others.toml), each beside that of this run."""
    tables = {
        "layer_profile": facts.once(build_profile),
        "layer_tokens": facts.once(build_tokens),
        "baseline_operators": facts.once(build_operators),
    }
    if all(rows.empty for rows in tables.values()):
        return timed([])
    entries = tomllib.loads(_PUBLISHED.read_text(encoding="utf-8"))["figure"]
    rows = [
        {
            "figure": entry["figure"],
            "unit": entry["unit"],
            "ours": _OURS[entry["ours"]](tables),
            "our_clock": entry["clock"],
            "theirs": entry["theirs"],
            "their_machine": entry["machine"],
            "their_setting": entry["setting"],
        }
        for entry in entries
    ]
    known = [row for row in rows if row["ours"] is not None]
    return timed(rows if known else [])


def _of_profile(tables: dict[str, pd.DataFrame], column: str) -> float | None:
    rows = tables["layer_tokens"]
    found = rows[rows["profile"] == "no_cache, float32"]
    return float(found[column].iloc[0]) if len(found) and not pd.isna(found[column].iloc[0]) else None


def _share(base: str, component: str) -> Callable[[dict[str, pd.DataFrame]], float | None]:
    def read(tables: dict[str, pd.DataFrame]) -> float | None:
        rows = tables["layer_profile"]
        wanted = (rows["profile"] == "no_cache, float32") & (rows["base"] == base) & (rows["component"] == component)
        found = rows.loc[wanted, "share_frac"]
        return 100 * float(found.iloc[0]) if len(found) else None

    return read


def _addmm(column: str, factor: float) -> Callable[[dict[str, pd.DataFrame]], float | None]:
    def read(tables: dict[str, pd.DataFrame]) -> float | None:
        rows = tables["baseline_operators"]
        wanted = (rows["setting"] == "eager") & (rows["dtype"] == "float32") & (rows["name"] == "aten::addmm")
        found = rows.loc[wanted & rows["self_cuda_ns"].notna(), column]
        return factor * float(found.iloc[0]) if len(found) else None

    return read


def _token_ms(tables: dict[str, pd.DataFrame]) -> float | None:
    value = _of_profile(tables, "token_ns")
    return None if value is None else value / 1e6


# The names that others.toml may use in `ours`.
_OURS: dict[str, Callable[[dict[str, pd.DataFrame]], float | None]] = {
    "token_ms": _token_ms,
    "tokens_per_s": lambda tables: _of_profile(tables, "tokens_per_s"),
    "qkv_share": _share("Multi-Head Attention", "QKV_Projection"),
    "mask_share": _share("Multi-Head Attention", "Mask_Apply"),
    "scores_share": _share("Multi-Head Attention", "Scores_Compute"),
    "activation_share": _share("MLP", "Activation"),
    "addmm_share": _addmm("share_frac", 100.0),
    "addmm_calls": _addmm("calls", 1.0),
}
