"""What `harness.run` writes about the program that it runs: conditions, times, roofs, operations and ranges."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from analysis.formats.files import Amount, CsvFile, JsonFile, Positive, Quantity, Spread, Whole

AGAIN = "write it again with `python -m harness.run`"


# Conditions --------------------------------------------------------------------------------------------------


class Clock(Struct):
    """Samples of a clock or of the power; the unit stands in the field's name."""

    min: Amount
    median: Amount
    max: Amount


class Clocks(Struct):
    """Clocks, power and temperature while a run was timed, and why the clocks were held back."""

    sm_mhz: Clock | UnsetType = UNSET
    memory_mhz: Clock | UnsetType = UNSET
    power_w: Clock | UnsetType = UNSET
    temperature_c: Clock | UnsetType = UNSET
    throttle_reasons: list[str] | UnsetType = UNSET
    samples: Whole | UnsetType = UNSET


class Gpu(Struct):
    """The GPU; `card` is a short hash of its UUID."""

    name: str = ""
    compute_capability: str = ""
    sm_count: int = 0
    l2_bytes: int = 0
    memory_bytes: int = 0
    card: str | UnsetType = UNSET


class Cpu(Struct):
    """The CPU."""

    cores: int | None = None
    model: str = ""


class Workload(Struct):
    """One step of the model; `range` is its outermost NVTX range."""

    name: str = ""
    batch: int = 0
    tokens: int = 0
    context: int = 0
    dtype: str = ""
    softmax: str = ""
    range: str = ""


class Weights(Struct):
    """Where the weights are from: random, none, a checkpoint's name; and the digest of its file."""

    source: str = ""
    sha256: str | UnsetType = UNSET


class MatmulPrecision(Struct):
    """Whether float32 products may use TF32."""

    float32: str = ""
    tf32: bool = False


class Manifest(Struct):
    """The conditions of a run. `copy_byte_per_s` and `roofs` stand there where a benchmark measured them beside it."""

    gpu: Gpu | None = None
    cpu: Cpu = field(default_factory=Cpu)
    driver: str | None = None
    cuda: str | None = None
    torch: str = ""
    triton: str | None = None
    transformers: str | None = None
    nvtx: str | None = None
    python: str = ""
    nsys: str | None = None
    ncu: str | None = None
    git_sha: str | None = None
    git_dirty: bool | None = None
    arguments: list[str] = []
    workloads: list[Workload] = []
    seed: int = 0
    weights: Weights = field(default_factory=Weights)
    locale: str = ""
    matmul_precision: MatmulPrecision = field(default_factory=MatmulPrecision)
    clocks: Clocks | None = None
    clocks_reason: str | None = None
    copy_byte_per_s: dict[str, Positive] | UnsetType = UNSET
    roofs: dict[str, Positive] | UnsetType = UNSET


MANIFEST = JsonFile("manifest", "manifest.json", Manifest, AGAIN)


# Times -------------------------------------------------------------------------------------------------------


class StepTime(Struct):
    """Times of one step, ranges off; `gpu_ns` is null without a GPU."""

    range: str
    wall_ns: Spread
    gpu_ns: Spread | None = None
    workload: str = ""
    samples: Whole = 0
    warnings: list[str] = []


class Rate(Struct):
    """Tokens a second of one model, and over the first model's, round by round."""

    p5: Positive
    p50: Positive
    p95: Positive
    prompt_tokens: Whole = 0
    new_tokens: Whole = 0
    samples: Whole = 0
    tokens_equal_gpt2: bool = False
    ratio_to_gpt2: Spread | UnsetType = UNSET


class Timing(Struct):
    """Times that no tool disturbed; `tokens_per_s` by the root range of a model."""

    steps: list[StepTime]
    tokens_per_s: dict[str, Rate] = {}
    how: str = ""
    seconds: Amount = 0.0


class Roof(Struct):
    """A measured roof in `unit`."""

    name: str
    value: Positive
    unit: str = ""
    p5: Amount | UnsetType = UNSET
    p95: Amount | UnsetType = UNSET
    samples: Whole | UnsetType = UNSET
    how: str = ""


class Link(Struct):
    """How fast data crosses a link at one size. `name` is one of LINKS, `ranks` the GPUs that take part.

    `byte_per_s` is `bytes` over the median time; of a collective times its factor (formats/collectives.py), which is
    the bus bandwidth of nccl-tests. `bytes` are counted as there: of an all-gather what a rank has at its end, of a
    reduce-scatter what it has at its beginning.
    """

    name: str
    ranks: Whole
    bytes: Whole
    time_ns: Spread
    byte_per_s: Positive
    samples: Whole


class LinkConditions(Struct):
    """What the links were measured with. `environment` holds the variables of NCCL that were set."""

    backend: str
    nccl: str
    dtype: str
    ranks: Whole
    gpus: list[str]
    torch: str
    environment: dict[str, str]
    driver: str = ""
    measured: str = ""


class Ceilings(Struct):
    """The roofs of a GPU and its driver, `measured` at a time in UTC: before the run, where they were kept.

    `links`: rates between host and GPUs over size, by `harness.links`; the ceilings of one GPU have none.
    """

    roofs: list[Roof]
    gpu: str = ""
    clocks: Any = None
    driver: str | UnsetType = UNSET
    measured: str | UnsetType = UNSET
    links: list[Link] | UnsetType = UNSET
    link_conditions: LinkConditions | UnsetType = UNSET


class KnownCount(Struct):
    """A count of the self-test: what it must be and what ncu counted, in `unit` (byte or FLOP)."""

    name: str
    unit: str
    expected: Positive
    measured: Amount


class Selftest(Struct):
    """The self-test of a GPU's counters, kept for later runs on it; `measured` is a time in UTC."""

    gpu: str
    driver: str
    ncu: str
    measured: str
    checks: list[KnownCount]


# The kinds of transfers that `harness.links` measures.
COPIES = ("host_to_device_pageable", "host_to_device_pinned", "device_to_host_pageable", "device_to_host_pinned")
PEER_COPY = "peer_copy"
LINKS = (*COPIES, PEER_COPY, "all_reduce", "all_gather", "reduce_scatter")

TIMING = JsonFile("timing", "timing.json", Timing, AGAIN)
CEILINGS = JsonFile("ceilings", "ceilings.json", Ceilings, AGAIN)
SELFTEST = JsonFile("selftest", "selftest.json", Selftest, "write it again with `make selftest`")


# Operations and ranges ---------------------------------------------------------------------------------------


class Operation(Struct):
    """What one leaf range of one step needs and moves; harness/ledger.py says how it is counted."""

    op: str
    variant: str
    symbols: str
    range: str
    workload: str
    ordinal: Whole | None
    shape: str
    dtype: str
    flops: Amount | None
    minimum_bytes: Quantity | None
    predicted_unfused_bytes: Quantity | None
    predicted_fused_bytes: Quantity | None
    note: str


class Operand(Struct):
    """A tensor that an operation reads (in0, in1 …) or writes (out0 …); harness/dataflow.py says what each cell is."""

    range: str
    call: Whole
    ordinal: Whole
    op: str
    operand: str
    storage: Whole
    offset: Whole
    shape: str
    strides: str
    dtype: str
    bytes: Whole
    view: Whole
    masked_frac: Amount | None
    freed: Whole | None


class CpuRange(Struct):
    """A range on the CPU's clock; `path` is joined with /."""

    start_ns: Whole
    end_ns: Whole
    path: str
    thread: str


OPS = CsvFile("ops", "ops.csv", Operation, AGAIN)
DATAFLOW = CsvFile("dataflow", "dataflow.csv", Operand, AGAIN)
CPU_RANGES = CsvFile("cpu_ranges", "cpu_ranges.csv", CpuRange, AGAIN, alone=True)
