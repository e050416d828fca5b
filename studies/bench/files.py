"""Declare the files of studies/bench: a row for each variant, dtype and shape that it timed, and its conditions."""

from collections.abc import Mapping

from msgspec import UNSET, Struct, UnsetType, field

from analysis.formats.files import Amount, CsvFile, JsonFile, Quantity, Whole
from analysis.formats.run import Manifest, Rate, StepTime
from analysis.formats.spans import QUANTILES

_AGAIN = "make it again"
# A single launch with cold caches, and one of many launches in a row; studies/bench/measure.py defines both.
KINDS = ("isolated", "chained")
BASELINES = ("torch", "compile", "triton")


class BenchTime(Struct, kw_only=True):
    """The times of a variant, and its speed-up over each baseline, paired round by round.

    Values derived from a time (rates, `floor_frac`, `versus_…`) use the isolated time if there is one. Files from
    before 2026-11-23 have only chained times, and the `convention` "plain" beside "cold". With fewer than 40 samples,
    only the median is written.
    """

    op: str
    variant: str
    dtype: str
    shape_name: str
    shape: str
    convention: str
    samples: Whole
    launches_per_sample: Whole
    chained_time_p5_ns: Quantity | None = None
    chained_time_p50_ns: Quantity
    chained_time_p95_ns: Quantity | None = None
    isolated_samples: Quantity | UnsetType | None = UNSET
    isolated_time_p5_ns: Quantity | UnsetType | None = UNSET
    isolated_time_p50_ns: Quantity | UnsetType | None = UNSET
    isolated_time_p95_ns: Quantity | UnsetType | None = UNSET
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
    achieved_flop_per_s: Quantity | UnsetType | None = UNSET  # only for ops bound by arithmetic


class ModelTimes(Struct):
    """Times of GPT-2 in one dtype: tokens/s by model, and each step."""

    tokens_per_s: dict[str, Rate]
    steps: list[StepTime]


class Bench(Struct):
    """bench.json.

    `sources`: the fingerprint of each variant. `libraries`: the versions of the timed libraries besides PyTorch; older
    runs lack them. `failed`: the variants with wrong results. `gpt2`: only in older runs, and empty.
    """

    conditions: Manifest = field(default_factory=Manifest)
    conventions: dict[str, str] = {}
    rounds: Whole = 0
    sources: dict[str, str] = {}
    libraries: dict[str, str] | UnsetType = UNSET
    failed: list[str] = []
    left_out: list[str] = []
    gpt2: dict[str, ModelTimes] | UnsetType = UNSET


BENCH_ROWS = CsvFile(
    "bench_rows",
    "bench.csv",
    BenchTime,
    _AGAIN,
    captured=False,
    renamed=tuple((f"bench_time_{at}_ns", f"chained_time_{at}_ns") for at in QUANTILES),
)
BENCH = JsonFile("bench", "bench.json", Bench, _AGAIN, captured=False, version=2)


def median_ns(row: Mapping[str, str]) -> float | None:
    """Return the median time by which a row of bench.csv is compared: isolated, else chained, in any version."""
    names = ("isolated_time_p50_ns", "chained_time_p50_ns", "bench_time_p50_ns")
    return next((float(row[name]) for name in names if row.get(name)), None)
