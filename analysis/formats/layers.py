"""Declare the files of studies/layers: components timed alone, with the profiler's kernels, and under a capture."""

from msgspec import UNSET, Struct, UnsetType

from analysis.formats import place
from analysis.formats.files import Amount, CsvFile, JsonFile, Positive, Spread, Whole

_AGAIN = place.again("make layers")
_STUDIES = ("studies.layers",)


class ComponentTime(Struct):
    """Times of one component over all its calls; `base`: it contains no other component of its level."""

    component: str
    path: str
    count: Positive
    total_ns: Amount
    base: bool = False
    avg_ns: Amount = 0.0
    p5_ns: Amount = 0.0
    p50_ns: Amount = 0.0
    p95_ns: Amount = 0.0


class LevelTimes(Struct):
    """The components of one level of the model."""

    name: str
    title: str
    components: list[ComponentTime]


class Instrument(Struct):
    """The overhead of measuring: a forward pass with this number of events."""

    variant: str
    events: Amount
    forward_ns: Spread
    launch_ns: Spread
    count: Amount
    late: Whole = 0


class TokenTimes(Struct):
    """The times of a token. `forward_by_run_ns`: each forward pass with nothing attached, run by run."""

    forward_avg_ns: Positive
    wall_ns: Spread
    tokens_per_s: Spread
    blocks_avg_ns: Amount | None = None
    tokens_per_s_gpu: Amount | None = None
    forward_by_run_ns: list[list[Amount]] | UnsetType = UNSET
    warnings: list[str] = []


class LayerProfile(Struct):
    """One model, timed component by component."""

    name: str
    dtype: str
    clock: str
    levels: list[LevelTimes]
    instrument: list[Instrument]
    tokens: TokenTimes
    own_ns: Amount
    model: str | UnsetType = UNSET
    cache: bool | UnsetType = UNSET
    prompt_tokens: Whole | UnsetType = UNSET
    new_tokens: Whole | UnsetType = UNSET
    layers: Whole | UnsetType = UNSET
    channels: Whole | UnsetType = UNSET
    runs: Whole | UnsetType = UNSET
    warmup: Whole | UnsetType = UNSET


class LayerProfiles(Struct):
    """layers.json."""

    profiles: list[LayerProfile]


class Called(Struct):
    """A kernel or a call of the CUDA API under a component."""

    name: str
    count: Positive
    self_ns: Amount


class ComponentKernels(Struct):
    """The kernels of one component, as torch.profiler sees them."""

    component: str
    share_frac: Amount
    cpu_ns: Amount
    kernels: list[Called]
    gpu_ns: Amount | None = None
    api_calls: Amount | None = None
    api_ns: Amount | None = None
    path: str = ""
    per_forward_ns: Amount = 0.0
    api: list[Called] = []


class KernelProfile(Struct):
    """One model under torch.profiler."""

    name: str
    dtype: str
    calls: Positive
    components: list[ComponentKernels]
    on_gpu: bool = True


class KernelProfiles(Struct):
    """kernels_of_layers.json."""

    profiles: list[KernelProfile]


class LayerEvent(Struct):
    """The times of the two events around a component, as read, and the part that the events themselves take."""

    range: str
    ordinal: Whole
    component: str
    event_ns: Whole
    own_ns: Whole


LAYER_PROFILE = JsonFile("layer-profile", "layers.json", LayerProfiles, _AGAIN, alone=True, studies=_STUDIES)
LAYER_EVENTS = CsvFile("layer_events", "layer_events.csv", LayerEvent, _AGAIN, studies=_STUDIES)
KERNELS_OF_LAYERS = JsonFile(
    "kernels-of-layers",
    "kernels_of_layers.json",
    KernelProfiles,
    again=place.again("make kernels-of-layers"),
    alone=True,
    studies=_STUDIES,
)
