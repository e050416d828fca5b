"""Declare the file of `studies.dropin.measure`: times of models of Hugging Face with each attention."""

from msgspec import Struct, field

from analysis.formats.files import JsonFile, Positive, Whole
from analysis.formats.run import Manifest


class Setting(Struct, kw_only=True):
    """One attention in one mode at one batch and context: times of a decode step, and of the prompt if it was timed.

    `mode`: eager (a dynamic cache, the default of generate()), graph (one step over a static cache in a CUDA graph),
    compile+graph (the same step with torch.compile). `same_text`: whether the greedy tokens equal those of "eager";
    null if that did not run. `prompt_peak_bytes`: how far a prompt raises the allocator; null where it was not taken.
    """

    model: str = "gpt2"
    attention: str
    mode: str
    dtype: str
    batch: Whole
    context_tokens: Whole
    samples: Whole
    token_time_p5_ns: Positive
    token_time_p50_ns: Positive
    token_time_p95_ns: Positive
    tokens_per_s: Positive
    same_text: bool | None = None
    prompt_samples: Whole = 0
    prompt_time_p5_ns: Positive | None = None
    prompt_time_p50_ns: Positive | None = None
    prompt_time_p95_ns: Positive | None = None
    prompt_peak_bytes: Whole | None = None


class Dropin(Struct, kw_only=True):
    """dropin.json: `left_out` names each setting without a time, with the reason."""

    conditions: Manifest = field(default_factory=Manifest)
    settings: list[Setting] = []
    left_out: dict[str, str] = {}


DROPIN = JsonFile("dropin", "dropin.json", Dropin, again="make it again with `python -m studies.dropin.measure`")
