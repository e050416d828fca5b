"""Estimate the times of GPT-2 124M's parts on one GPU at any size, float32, from committed runs only.

A part has measured times in the model at batch 1 (layers.csv), and as an op alone at larger sizes (bench.csv). Between
two measured sizes its time is interpolated linearly. Above the largest it grows in proportion to the work.
"""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.formats import packed
from analysis.formats.errors import InputError
from studies import runs as published

LAYERS = 12
API_CALLS = Path(__file__).parent.parent / "specimens" / "captures" / "cuda_api_sum.csv.xz"
PREFILL, DECODE = "prefill", "decode"
MEASURED_TOKENS = {PREFILL: 1024, DECODE: 1}  # tokens of the committed run's steps, batch 1
CONTEXT = 1024  # keys that the committed run's decode step reads


@dataclass(frozen=True)
class Part:
    """A part of a layer or of the model, launched `times` times in it.

    ranges   its ranges in layers.csv, below the layer or the step, to be summed; "" is what the layer itself launches
    op       the benchmark that has it at larger sizes; `sizes` gives the work of each registered shape
    shared   what tensor parallel splits: heads, inner width or vocabulary; "" if every rank runs the whole part
    """

    name: str
    ranges: tuple[str, ...]
    op: str
    sizes: Mapping[str, int] = field(hash=False)
    times: int = 1
    shared: str = ""


HEADS, INNER, VOCAB = "heads", "inner", "vocabulary"
_CHAIN = ("attn/scores", "attn/mask", "attn/softmax", "attn/values")
# The work is the number of rows: B x T of a prefill, B of a decode step.
ROWS = (
    Part("norms", ("ln_1", "ln_2"), "layernorm", {"b8_t1024": 8192, "b8_t4096": 32768}, times=2),
    Part("residuals", ("",), "residual", {"b8_t1024": 8192, "b8_t4096": 32768}, times=2),
    Part("qkv", ("attn/qkv",), "matmul", {"qkv_b8": 8192}, shared=HEADS),
    Part("proj", ("attn/proj",), "matmul", {"proj_b8": 8192}, shared=HEADS),
    Part("fc", ("mlp/fc",), "matmul", {"fc_b8": 8192}, shared=INNER),
    Part("act", ("mlp/act",), "gelu", {"b8_t1024": 8192, "b8_t4096": 32768}, shared=INNER),
    Part("mlp_proj", ("mlp/proj",), "matmul", {"mlp_proj_b8": 8192}, shared=INNER),
)
# The work is B x T x T of a prefill, B x keys of a decode step.
ATTENTION = {
    PREFILL: Part("attention", _CHAIN, "attention",
                  {"b1_t512": 512**2, "b8_t512": 8 * 512**2, "b8_t1024": 8 * 1024**2}, shared=HEADS),
    DECODE: Part("attention", _CHAIN, "attention_decode",
                 {"b1_t128": 128, "b8_t1024": 8 * 1024, "b32_t1024": 32 * 1024}, shared=HEADS),
}  # fmt: skip
EMBEDDINGS = Part("embeddings", ("embeddings",), "encoder", {"b8_t1024": 8192, "b8_t4096": 32768})
# The work is B: only the last row of each sequence gets a next token.
NORM_F = Part("ln_f", ("ln_f",), "layernorm", {"b8_t1024": 8192})
LM_HEAD = Part("lm_head", ("lm_head",), "", {}, shared=VOCAB)


@dataclass(frozen=True)
class Curve:
    """Time over work: `points` are (work, ns) in ascending order; `floor_ns` is the least time of any work above 0."""

    points: tuple[tuple[float, float], ...]
    floor_ns: float

    def time_ns(self, work: float, share: float = 1.0) -> float:
        """Return the time in ns of a rank's `share` of `work`: the floor and that share of the rest; 0 for no work."""
        if work <= 0 or share <= 0:
            return 0.0
        works, times = zip(*self.points, strict=True)
        whole = float(np.interp(work, works, times)) * max(1.0, work / works[-1])
        return min(whole, self.floor_ns + max(0.0, whole - self.floor_ns) * share)


@cache
def runs() -> published.Runs:
    """Return the committed runs of the first GPU in reports/published.toml.

    Raises: InputError if it has no run named `overview`.
    """
    found = published.read()
    if not found or found[0].folder("overview") is None:
        raise InputError("reports/published.toml names no overview: predictions need one GPU's kernel times.")
    return found[0]


@cache
def overview(name: str) -> pd.DataFrame:
    """Return a table of the committed run of GPT-2. Raises: InputError if there is no such run."""
    folder = runs().folder("overview")
    assert folder is not None
    return pd.read_csv(folder / "tables" / f"{name}.csv")


@cache
def bench(op: str) -> pd.DataFrame:
    """Return an op's committed benchmark, rows of float32 and a cold L2, as predictions saw it: the older one of two.

    Raises: InputError if there is none.
    """
    folders = (runs().bench(f"{op}-older"), runs().bench(op))
    folder = next((one for one in folders if one is not None and one.is_dir()), None)
    if folder is None or not (folder / "bench.csv").is_file():
        raise InputError(f"There is no committed benchmark of {op}: predictions need its times.")
    rows = pd.read_csv(folder / "bench.csv")
    return rows[(rows["dtype"] == "fp32") & (rows["convention"] == "cold")]


@cache
def bench_ns(op: str, shape: str, variant: str = "torch") -> float:
    """Return the median time in ns of an op at a registered shape, launched back to back if the run measured that."""
    rows = bench(op)
    row = rows[(rows["shape_name"] == shape) & (rows["variant"] == variant)].iloc[0]
    return float(row["chained_time_p50_ns" if "chained_time_p50_ns" in row else "bench_time_p50_ns"])


@cache
def layers_ns(step: str, ranges: tuple[str, ...]) -> float:
    """Return the summed GPU time in ns of some ranges: a range of the step's own, or the mean over the layers."""
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
    """Return a product's time in ns at 0 bytes, by a line through the times of the matrix-vector products."""
    rows = bench("gemv")
    rows = rows[rows["variant"] == "torch"]
    return float(np.polyfit(rows["minimum_bytes"], rows["chained_time_p50_ns"], 1)[1])


@cache
def curve(part: Part, step: str = "") -> Curve:
    """Return the curve of a part. Give `step` for a part that runs other kernels in a prefill than in a decode step."""
    points = {float(size): part.times * bench_ns(part.op, shape) for shape, size in part.sizes.items()}
    for one in [step] if step else [PREFILL, DECODE]:
        work = MEASURED_TOKENS[one]
        if step:
            work = CONTEXT**2 if step == PREFILL else CONTEXT
        points[float(work)] = layers_ns(one, part.ranges)
    if part.op == "attention":  # the smallest measured work: the same chain of kernels on one query
        points[128.0] = bench_ns("attention_decode", "b1_t128")
    least = min(points.values())
    floor = product_floor_ns() if part.op == "matmul" or part.name == "lm_head" else least
    return Curve(tuple(sorted(points.items())), min(floor, least))


def step_parts(step: str, batch: int, tokens: int, shares: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the ns of each part of a step over all layers: a prefill of `tokens`, or a decode step after `tokens`.

    `shares` are a rank's shares of heads, inner width and vocabulary; without them it does all. Only the last row of
    each sequence reaches the LM head.
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
    """Return the GPU time of a step in ns; 0 at batch 0. Arguments as `step_parts`."""
    return sum(step_parts(step, batch, tokens, shares).values()) if batch else 0.0


@cache
def launches(step: str) -> int:
    """Return the number of kernels and copies that a step launches on one GPU."""
    rows = overview("steps").set_index("step")
    return int(rows.at[f"gpt2/{step}", "launches"])


@cache
def launch_ns() -> float:
    """Return the CPU's time for a launch in ns: the decode step's wall time over its launches, which limit it."""
    rows = overview("steps").set_index("step")
    return float(rows.at["gpt2/decode", "bare_wall_ns"]) / launches(DECODE)


@cache
def api_ns(*calls: str) -> float:
    """Return the summed median times in ns of CUDA API calls, from the committed capture of studies/specimens."""
    table = pd.read_csv(io.BytesIO(packed.read_bytes(API_CALLS))).set_index("Name")["Med (ns)"]
    return float(sum(table[call] for call in calls))


@cache
def copy_rate() -> float:
    """Return the measured roof of a copy inside a GPU: bytes read and written, a second."""
    folder = runs().folder("overview")
    assert folder is not None
    roofs = json.loads((folder / "captures" / "ceilings.json").read_text(encoding="utf-8"))["roofs"]
    return float(next(roof["value"] for roof in roofs if roof["name"] == "dram_copy"))


def op_ns(op: str, batch: int, sizes: Sequence[tuple[str, int]], variant: str = "torch") -> float:
    """Return the time in ns of an op of the claims at `batch` x 1024 tokens, interpolated between registered shapes.

    `sizes` are (shape name, rows), in ascending order.
    """
    points = tuple((float(rows), bench_ns(op, shape, variant)) for shape, rows in sizes)
    return Curve(points, points[0][1]).time_ns(batch * 1024)
