"""How long the parts of GPT-2 124M take on one GPU at any size, from the committed runs alone; float32.

A part's time lies along the lines between the sizes at which it was measured: in the model at batch 1 (layers.csv), as
an op alone at larger ones (bench.csv). Above the largest it grows with the work.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import published
from analysis.formats import packed
from analysis.formats.errors import InputError

LAYERS = 12
API_CALLS = Path(__file__).parent.parent / "specimens" / "captures" / "cuda_api_sum.csv.xz"
PREFILL, DECODE = "prefill", "decode"
MEASURED_TOKENS = {PREFILL: 1024, DECODE: 1}  # rows of the model's own steps
CONTEXT = 1024  # keys that the model's decode step saw


@dataclass(frozen=True)
class Part:
    """A part of a layer or of the model, launched `times` times in it.

    ranges   below the layer or the step in layers.csv, summed; "" is what the layer itself launches
    op       benchmark that has it at larger sizes, shape name → work
    shared   what tensor parallel slices of it; "" for what every rank does in full
    """

    name: str
    ranges: tuple[str, ...]
    op: str
    sizes: Mapping[str, int] = field(hash=False)
    times: int = 1
    shared: str = ""


HEADS, INNER, VOCAB = "heads", "inner", "vocabulary"
_CHAIN = ("attn/scores", "attn/mask", "attn/softmax", "attn/values")
# Work is rows (B x T of a prefill, B of a decode step).
ROWS = (
    Part("norms", ("ln_1", "ln_2"), "layernorm", {"b8_t1024": 8192, "b8_t4096": 32768}, times=2),
    Part("residuals", ("",), "residual", {"b8_t1024": 8192, "b8_t4096": 32768}, times=2),
    Part("qkv", ("attn/qkv",), "matmul", {"qkv_b8": 8192}, shared=HEADS),
    Part("proj", ("attn/proj",), "matmul", {"proj_b8": 8192}, shared=HEADS),
    Part("fc", ("mlp/fc",), "matmul", {"fc_b8": 8192}, shared=INNER),
    Part("act", ("mlp/act",), "gelu", {"b8_t1024": 8192, "b8_t4096": 32768}, shared=INNER),
    Part("mlp_proj", ("mlp/proj",), "matmul", {"mlp_proj_b8": 8192}, shared=INNER),
)
# Work is B x T x T of a prefill, B x keys of a decode step.
ATTENTION = {
    PREFILL: Part("attention", _CHAIN, "attention",
                  {"b1_t512": 512**2, "b8_t512": 8 * 512**2, "b8_t1024": 8 * 1024**2}, shared=HEADS),
    DECODE: Part("attention", _CHAIN, "attention_decode",
                 {"b1_t128": 128, "b8_t1024": 8 * 1024, "b32_t1024": 32 * 1024}, shared=HEADS),
}  # fmt: skip
EMBEDDINGS = Part("embeddings", ("embeddings",), "encoder", {"b8_t1024": 8192, "b8_t4096": 32768})
# Work is rows whose next token is asked for: B.
NORM_F = Part("ln_f", ("ln_f",), "layernorm", {"b8_t1024": 8192})
LM_HEAD = Part("lm_head", ("lm_head",), "", {}, shared=VOCAB)


@dataclass(frozen=True)
class Curve:
    """Time over work; `floor_ns` is what remains however small the work."""

    points: tuple[tuple[float, float], ...]
    floor_ns: float

    def time_ns(self, work: float, share: float = 1.0) -> float:
        """The time of a share of so much work; nothing where there is no work."""
        if work <= 0 or share <= 0:
            return 0.0
        works, times = zip(*self.points, strict=True)
        whole = float(np.interp(work, works, times)) * max(1.0, work / works[-1])
        return min(whole, self.floor_ns + max(0.0, whole - self.floor_ns) * share)


@cache
def runs() -> published.Runs:
    """The committed runs of the first GPU.

    Raises: InputError where it has no run with a timeline.
    """
    found = published.read()
    if not found or found[0].folder("overview") is None:
        raise InputError("reports/published.toml names no overview: predictions need one GPU's kernel times.")
    return found[0]


@cache
def overview(name: str) -> pd.DataFrame:
    """A table of the committed run of GPT-2."""
    folder = runs().folder("overview")
    assert folder is not None
    return pd.read_csv(folder / "tables" / f"{name}.csv")


@cache
def bench(op: str) -> pd.DataFrame:
    """The committed benchmark of an op, float32 and a cold L2."""
    folder = runs().bench(op)
    if folder is None or not (folder / "bench.csv").is_file():
        raise InputError(f"There is no committed benchmark of {op}: predictions need its times.")
    rows = pd.read_csv(folder / "bench.csv")
    return rows[(rows["dtype"] == "fp32") & (rows["convention"] == "cold")]


@cache
def bench_ns(op: str, shape: str, variant: str = "torch") -> float:
    """The median time of an op at a registered shape, launched back to back."""
    rows = bench(op)
    row = rows[(rows["shape_name"] == shape) & (rows["variant"] == variant)].iloc[0]
    return float(row["chained_time_p50_ns" if "chained_time_p50_ns" in row else "bench_time_p50_ns"])


@cache
def layers_ns(step: str, ranges: tuple[str, ...]) -> float:
    """GPU time of ranges below a layer, the mean of all layers; of ranges of the step itself, their own."""
    rows = overview("layers").set_index("range")
    root = f"gpt2/{step}"
    total = 0.0
    for name in ranges:
        if f"{root}/{name}" in rows.index and name:
            total += float(rows.at[f"{root}/{name}", "gpu_time_ns"])
            continue
        column = "gpu_time_ns" if name else "gpu_self_time_ns"
        total += float(np.mean([rows.at[f"{root}/h.{n}/{name}".rstrip("/"), column] for n in range(LAYERS)]))
    return total


@cache
def product_floor_ns() -> float:
    """What remains of a product whatever its size: the line through the matrix-vector products at zero bytes."""
    rows = bench("gemv")
    rows = rows[rows["variant"] == "torch"]
    return float(np.polyfit(rows["minimum_bytes"], rows["chained_time_p50_ns"], 1)[1])


@cache
def curve(part: Part, step: str = "") -> Curve:
    """The times of a part; `step` alone for one that is another chain of kernels in each step."""
    points = {float(size): part.times * bench_ns(part.op, shape) for shape, size in part.sizes.items()}
    for one in [step] if step else [PREFILL, DECODE]:
        work = MEASURED_TOKENS[one]
        if step:
            work = CONTEXT**2 if step == PREFILL else CONTEXT
        points[float(work)] = layers_ns(one, part.ranges)
    if part.op == "attention":  # the same chain of kernels on one query, as the least that there is
        points[128.0] = bench_ns("attention_decode", "b1_t128")
    least = min(points.values())
    floor = product_floor_ns() if part.op == "matmul" or part.name == "lm_head" else least
    return Curve(tuple(sorted(points.items())), min(floor, least))


def step_parts(step: str, batch: int, tokens: int, shares: Mapping[str, float] | None = None) -> dict[str, float]:
    """ns of each part of a step over all layers: a prefill of `tokens`, or a decode step behind `tokens` of context.

    `shares`: what a rank does of heads, inner and vocabulary. Of each sequence only the last row reaches the LM head.
    """
    shares = shares or {}

    def share(part: Part) -> float:
        return shares.get(part.shared, 1.0)

    rows = batch * (tokens if step == PREFILL else 1)
    work = batch * (tokens**2 if step == PREFILL else tokens + 1)
    attention = ATTENTION[step]
    found = {part.name: LAYERS * curve(part).time_ns(rows, share(part)) for part in ROWS}
    found["attention"] = LAYERS * curve(attention, step).time_ns(work, share(attention))
    found["embeddings"] = curve(EMBEDDINGS).time_ns(rows)
    found["ln_f"] = curve(NORM_F).time_ns(batch)
    found["lm_head"] = curve(LM_HEAD).time_ns(batch, share(LM_HEAD))
    return found


def step_ns(step: str, batch: int, tokens: int, shares: Mapping[str, float] | None = None) -> float:
    """GPU time of a step; 0 without a sequence."""
    return sum(step_parts(step, batch, tokens, shares).values()) if batch else 0.0


@cache
def launches(step: str) -> int:
    """Kernels and copies that a step launches on one GPU."""
    rows = overview("steps").set_index("step")
    return int(rows.at[f"gpt2/{step}", "launches"])


@cache
def launch_ns() -> float:
    """What the CPU takes for each launch: of the decode step, which waits for nothing else."""
    rows = overview("steps").set_index("step")
    return float(rows.at["gpt2/decode", "bare_wall_ns"]) / launches(DECODE)


@cache
def api_ns(*calls: str) -> float:
    """Sum of the median times of these CUDA API calls, in the committed capture of the planted defects."""
    table = pd.read_csv(io.BytesIO(packed.read_bytes(API_CALLS))).set_index("Name")["Med (ns)"]
    return float(sum(table[call] for call in calls))


@cache
def copy_rate() -> float:
    """Bytes a second, read and written, of a copy inside a GPU: the measured roof."""
    folder = runs().folder("overview")
    assert folder is not None
    roofs = json.loads((folder / "captures" / "ceilings.json").read_text(encoding="utf-8"))["roofs"]
    return float(next(roof["value"] for roof in roofs if roof["name"] == "dram_copy"))


def op_ns(op: str, batch: int, sizes: Sequence[tuple[str, int]], variant: str = "torch") -> float:
    """An op of the claims at some batch of 1024 tokens, between its registered shapes."""
    points = tuple((float(rows), bench_ns(op, shape, variant)) for shape, rows in sizes)
    return Curve(points, points[0][1]).time_ns(batch * 1024)
