"""What `harness.bench` writes: a row for each variant, dtype and shape that it timed, and its conditions."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType, field

from analysis.formats.files import Amount, CsvFile, JsonFile, Quantity, Whole
from analysis.formats.run import Manifest, Rate, StepTime

_AGAIN = "make it again"
BASELINES = ("torch", "compile", "triton")


class BenchTime(Struct):
    """The times of a variant, and how many times faster than a baseline it is, round by round."""

    op: str
    variant: str
    dtype: str
    shape_name: str
    shape: str
    convention: str
    samples: Whole
    launches_per_sample: Whole
    bench_time_p5_ns: Quantity
    bench_time_p50_ns: Quantity
    bench_time_p95_ns: Quantity
    minimum_bytes: Quantity
    predicted_bytes: Quantity
    achieved_byte_per_s: Quantity
    floor_time_ns: Quantity
    floor_frac: Amount
    versus_torch_p5: Amount | UnsetType | None = UNSET
    versus_torch_p50: Amount | UnsetType | None = UNSET
    versus_torch_p95: Amount | UnsetType | None = UNSET
    versus_compile_p5: Amount | UnsetType | None = UNSET
    versus_compile_p50: Amount | UnsetType | None = UNSET
    versus_compile_p95: Amount | UnsetType | None = UNSET
    versus_triton_p5: Amount | UnsetType | None = UNSET
    versus_triton_p50: Amount | UnsetType | None = UNSET
    versus_triton_p95: Amount | UnsetType | None = UNSET
    achieved_flop_per_s: Quantity | UnsetType | None = UNSET  # of ops bound by arithmetic


class ModelTimes(Struct):
    """Times of GPT-2 in one dtype: tokens/s by model, and each step."""

    tokens_per_s: dict[str, Rate]
    steps: list[StepTime]


class Bench(Struct):
    """bench.json: `sources` has the fingerprint of each variant, `failed` those that gave wrong results."""

    conditions: Manifest = field(default_factory=Manifest)
    conventions: dict[str, str] = {}
    rounds: Whole = 0
    sources: dict[str, str] = {}
    failed: list[str] = []
    left_out: list[str] = []
    gpt2: dict[str, ModelTimes] = {}


class Gpt2Ops(Struct):
    """gpt2.json."""

    conditions: Manifest
    gpt2: dict[str, ModelTimes]


BENCH_ROWS = CsvFile("bench_rows", "bench.csv", BenchTime, _AGAIN, captured=False)
BENCH = JsonFile("bench", "bench.json", Bench, _AGAIN, captured=False)
GPT2_OPS = JsonFile("gpt2-ops", "gpt2.json", Gpt2Ops, _AGAIN, captured=False)
