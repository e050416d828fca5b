"""Declare the file of studies/baseline: generation with the published model, one setting after the other."""

from msgspec import UNSET, Struct, UnsetType

from analysis.formats import place
from analysis.formats.files import Amount, JsonFile, Positive, Spread, Whole


class Operator(Struct):
    """An operator of the profile of one setting, over `profile_tokens` tokens."""

    name: str
    kind: str
    self_cpu_ns: Amount
    calls: Amount
    cpu_ns: Amount | None = None
    self_cuda_ns: Amount | None = None
    cuda_ns: Amount | None = None


class Setting(Struct):
    """One setting and its times; `skipped` is the reason if it has none."""

    setting: str
    dtype: str
    skipped: str | UnsetType = UNSET
    prompt_tokens: Whole | UnsetType = UNSET
    tokens: Positive | UnsetType = UNSET
    rounds: Whole | UnsetType = UNSET
    bytes_per_token: Amount | UnsetType = UNSET
    copy_bytes_per_s: Amount | UnsetType | None = UNSET
    floor_ns: Amount | UnsetType | None = UNSET
    tokens_per_s: Spread | UnsetType = UNSET
    token_ns: Spread | UnsetType = UNSET
    first_call_s: Amount | UnsetType | None = UNSET
    tokens_equal_first: bool | UnsetType | None = UNSET
    profile_tokens: Positive | UnsetType = UNSET
    kernels_per_token: Amount | UnsetType | None = UNSET
    launches_per_token: Amount | UnsetType | None = UNSET
    busy_ns_per_token: Amount | UnsetType | None = UNSET
    operators: list[Operator] | UnsetType = UNSET


class Baseline(Struct):
    """baseline.json."""

    settings: list[Setting]


BASELINE = JsonFile(
    "baseline",
    "baseline.json",
    Baseline,
    again=place.again("make baseline"),
    alone=True,
    studies=("studies.baseline", "studies.layers"),
)
