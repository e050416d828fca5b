"""Declare the files of studies/decode: GPT-2 one token at a time, rung by rung, in fresh processes; and block times."""

from msgspec import UNSET, Struct, UnsetType

from analysis.formats import place
from analysis.formats.files import Amount, CsvFile, JsonFile, Positive, Whole

AGAIN = place.again("make decode")


class Bound(Struct):
    """A bound that was declared before the measurement: the ratio of the time to that of `than` lies in [low, high]."""

    than: str
    said: str
    low: Amount = 0.0
    high: Positive | None = None


class Rung(Struct):
    """A way to decode, or (`prefill`) to run a prompt; `bounds` were declared with it."""

    rung: str
    idea: str
    ours: bool
    prefill: bool
    bounds: list[Bound]
    reason: str = ""


class Sample(Struct):
    """One rung in one fresh process, after `place` other rungs: the median of its rounds, for a prefill of the pass.

    `seen_time_ns` is the same time if the host waits for each token before it requests the next. `card` tells one GPU
    of a model from another, as in the manifest. `source` are 12 digits of the source of kernels/decode, of its rungs.
    """

    process: Whole
    place: Whole
    rung: str
    rounds: Positive
    token_time_ns: Positive
    seen_time_ns: Positive | None = None
    card: str | UnsetType = UNSET
    source: str | UnsetType = UNSET


class Check(Struct):
    """An engine against the reference on one text, at positions far behind the prompt, and on its own greedy texts.

    `worse`: windows of positions in which its mean KL is certainly above that of the plain model.
    """

    engine: str
    dtype: str
    weights: str
    positions: Whole
    same: Whole
    ties: Whole
    wrong: Whole
    kl_mean: float
    kl_most: float
    plain_kl_mean: float
    plain_kl_most: float
    worse: list[str]
    greedy_texts: Whole
    greedy_same: Whole
    greedy_ties: Whole
    greedy_wrong: Whole
    first_wrong: Whole | None = None


class Captured(Struct):
    """One step under the profiler: the number of tokens in its range."""

    rung: str
    tokens: Positive


class Stamped(Struct):
    """The cost of stamps for an engine: the time of a token without and with them, in one process, in turn."""

    rung: str
    token_time_ns: Positive
    stamped_time_ns: Positive


class Decode(Struct):
    """decode.json: one model, batch 1 unless `batch` says otherwise, at a mean context of `context_tokens`."""

    weights: str
    dtype: str
    batch: Whole
    context_tokens: Amount
    tokens: Whole
    weight_bytes: Amount
    cache_bytes: Amount
    rungs: list[Rung]
    samples: list[Sample]
    checks: list[Check]
    captured: list[Captured]
    stamped: list[Stamped] = []
    prefill_tokens: Whole | UnsetType = UNSET
    prefill_flops: Amount | UnsetType = UNSET
    copy_bytes_per_s: Positive | UnsetType | None = UNSET
    read_bytes_per_s: Positive | UnsetType | None = UNSET
    flop_per_s: Positive | UnsetType | None = UNSET


DECODE = JsonFile("decode", "decode.json", Decode, again=AGAIN, alone=True, studies=("studies.decode",))


class PhaseRow(Struct):
    """What one block did between two stamps of the GPU's clock, in one layer of one token."""

    rung: str
    token: Whole
    block: Whole
    layer: Whole
    phase: str
    start_ns: Whole
    end_ns: Whole


PHASES = CsvFile("decode-phases", "decode_phases.csv", PhaseRow, again=AGAIN, alone=True, studies=("studies.decode",))
