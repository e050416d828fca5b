"""Declare the files that `harness.run` writes about its program: conditions, times, roofs, operations and ranges."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from analysis.formats import place
from analysis.formats.files import Amount, CsvFile, JsonFile, Positive, Quantity, Spread, Whole

AGAIN = place.again("python -m harness.run")


# Conditions --------------------------------------------------------------------------------------------------


class Clock(Struct):
    """Samples of a clock or of the power; the name of the field gives the unit."""

    min: Amount
    median: Amount
    max: Amount


class Clocks(Struct):
    """Clocks, power and temperature during a timed run, and the reasons for reduced clocks."""

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
    """The source of the weights (random, none, a checkpoint's name) and the digest of its file."""

    source: str = ""
    sha256: str | UnsetType = UNSET


class MatmulPrecision(Struct):
    """Whether float32 products may use TF32."""

    float32: str = ""
    tf32: bool = False


class Manifest(Struct):
    """The conditions of a run. The last four are set if a benchmark measured them in the same run.

    `empty_kernel_ns`: p5, p50 and p95 of a kernel that does nothing, timed as the benchmark times a launch alone.
    `read_alone_ns`: the same of a kernel that only reads as many bytes as the op at a dtype and shape.
    """

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
    empty_kernel_ns: dict[str, Positive] | UnsetType = UNSET
    read_alone_ns: dict[str, dict[str, Positive]] | UnsetType = UNSET


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
    """Tokens per second of one model, and their ratio to the first model's, round by round."""

    p5: Positive
    p50: Positive
    p95: Positive
    prompt_tokens: Whole = 0
    new_tokens: Whole = 0
    samples: Whole = 0
    tokens_equal_gpt2: bool = False
    ratio_to_gpt2: Spread | UnsetType = UNSET


class Timing(Struct):
    """Times without any tool attached; `tokens_per_s` by the root range of a model."""

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
    """The rate of a link at one size. `name` is one of LINKS, `ranks` the GPUs that take part.

    `byte_per_s` is `bytes` over the median time. For a collective it is multiplied by its factor
    (formats/collectives.py), which gives the bus bandwidth of nccl-tests. `bytes` follow nccl-tests, too: for an
    all-gather, the data that a rank holds at the end; for a reduce-scatter, the data that a rank holds at the
    beginning.
    """

    name: str
    ranks: Whole
    bytes: Whole
    time_ns: Spread
    byte_per_s: Positive
    samples: Whole


class LinkConditions(Struct):
    """The conditions of the link measurement. `nccl_variables` holds the NCCL variables that were set."""

    backend: str
    nccl: str
    dtype: str
    ranks: Whole
    gpus: list[str]
    torch: str
    nccl_variables: dict[str, str]
    driver: str = ""
    measured: str = ""


class Ceilings(Struct):
    """The roofs of a GPU and its driver. `measured` is a time in UTC, before the run if an earlier run stored them.

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
    """A count of the self-test: the known value and ncu's value, in `unit` (byte or FLOP)."""

    name: str
    unit: str
    expected: Positive
    measured: Amount


class Selftest(Struct):
    """The self-test of a GPU's counters, stored for later runs on it; `measured` is a time in UTC."""

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
SELFTEST = JsonFile("selftest", "selftest.json", Selftest, place.again("make selftest"))


# Operations and ranges ---------------------------------------------------------------------------------------


class Operation(Struct):
    """The bytes and operations of one leaf range of one step; harness/op_rows.py defines how they are counted."""

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
    """A tensor that an operation reads (in0, in1 …) or writes (out0 …); harness/dataflow.py defines each cell."""

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
    """A range on the CPU's clock; `/` joins the names of `path`."""

    start_ns: Whole
    end_ns: Whole
    path: str
    thread: str


OPS = CsvFile("ops", "ops.csv", Operation, AGAIN)
DATAFLOW = CsvFile("dataflow", "dataflow.csv", Operand, AGAIN)
CPU_RANGES = CsvFile("cpu_ranges", "cpu_ranges.csv", CpuRange, AGAIN, alone=True)
