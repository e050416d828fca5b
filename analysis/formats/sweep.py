"""Declare the files of studies/sweep: a row for each measured combination of macros, and the recommended ones."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from analysis.formats import place
from analysis.formats.files import Amount, CsvFile, JsonFile, Positive, Whole
from analysis.formats.run import Clocks

_AGAIN = place.again("make sweep")
Macros = Annotated[str, Meta(pattern=r"[A-Z]\w*=-?[0-9]{1,18}( [A-Z]\w*=-?[0-9]{1,18})*", description="NAME=value")]


class Combination(Struct):
    """A combination of macros of one source, on one dtype and shape.

    Times are blank if it was not built or not timed.
    """

    op: str
    variant: str
    source: str
    macros: Macros
    default: Whole
    dtype: str
    shape_name: str
    shape: str
    range: str
    gpu: str
    fingerprint: str
    verdict: str
    reason: str
    kernel: str
    registers: Whole | None
    spill_bytes: Whole | None
    shared_bytes: Whole | None
    block_threads: Whole | None
    occupancy_theoretical_frac: Amount | None
    limiter: str
    grid_blocks: Whole | None
    blocks_per_sm: Whole | None
    waves: Amount | None
    tail_frac: Amount | None
    tolerance_used: Amount | None
    samples: Whole | None
    launches_per_sample: Whole | None
    bench_time_p5_ns: Whole | None
    bench_time_p50_ns: Whole | None
    bench_time_p95_ns: Whole | None
    minimum_bytes: Whole | None
    versus_default_p5: Amount | None
    versus_default_p50: Amount | None
    versus_default_p95: Amount | None


class Gain(Struct):
    """The speed-up of the choice over the default on one dtype and shape."""

    op: str
    variant: str
    dtype: str
    shape: str
    gain_p5: Positive | UnsetType = UNSET
    gain_p50: Positive | UnsetType = UNSET
    gain_p95: Positive | UnsetType = UNSET


class Choice(Struct):
    """The recommended combination for a source on a GPU, and the reason."""

    gpu: str
    source: str
    macros: str
    why: str
    gain: Positive
    measured: list[Gain]
    default: str = ""
    clear: bool = False
    not_measured: list[str] = []
    keeps_default: str | UnsetType = UNSET


class Call(Struct):
    """The rows that one call of the program appended, counted from 1, its conditions, and the kind of its times."""

    first_row: Positive
    arguments: list[str]
    last_row: Positive | UnsetType = UNSET
    clocks: Clocks | None = None
    clocks_reason: str | None = None
    driver: str | None = None
    cuda: str | None = None
    torch: str | None = None
    nvcc: str | None = None
    when: str = ""
    git_sha: str | None = None
    git_dirty: bool | None = None
    time_kind: str | UnsetType = UNSET  # absent from calls before 2026-11-23, which have chained times
    sampled: str | UnsetType = UNSET
    note: str | UnsetType = UNSET


class Sweep(Struct):
    """sweep.json."""

    choices: list[Choice]
    not_swept: list[str] = []
    without_choices: list[str] = []
    calls: list[Call] = []
    convention: str = ""
    rounds: Whole = 0
    least_gain: Amount = 0.0


SWEEP = JsonFile("sweep", "sweep.json", Sweep, _AGAIN, version=2, studies=("studies.sweep",))
SWEEP_ROWS = CsvFile("sweep_rows", "sweep.csv", Combination, _AGAIN, alone=True, studies=("studies.sweep",))
