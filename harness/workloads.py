"""Define workloads: names for one timed or captured step and its shape.

A name holds the whole shape. `prefill_b1_t1024` is a prefill of 1024 tokens at batch 1. `decode_b1_ctx1023` is one
decode step with 1023 tokens in the KV cache, at the 1024th position. `train_b1_t1024` is one training step on 1024
tokens (harness/training.py). Every name of these three forms is valid; WORKLOADS lists the ones that reports use.
"""

import re
from dataclasses import dataclass
from typing import Any

from analysis.formats.errors import UsageError
from harness.gpt2 import GPT2Config

_NAME = re.compile(r"(?:(?P<whole>prefill|train)_b(?P<wb>\d+)_t(?P<t>\d+)|decode_b(?P<db>\d+)_ctx(?P<ctx>\d+))")
TRAIN = "train"

WORKLOADS = {
    "prefill_b1_t1024": "the whole context at once; the captured prefill",
    "decode_b1_ctx1023": "one token at the last position; the captured decode step",
    "prefill_b1_t64": "small enough for a CPU",
    "decode_b1_ctx64": "small enough for a CPU",
    "prefill_b8_t1024": "eight sequences, the shape of the softmax figures",
    "decode_b8_ctx1023": "eight sequences, one token each",
    "train_b1_t1024": "forward, loss, backward and AdamW on the whole context",
}
GPU_WORKLOADS = ("prefill_b1_t1024", "decode_b1_ctx1023")
CPU_WORKLOADS = ("prefill_b1_t64", "decode_b1_ctx64")


@dataclass(frozen=True)
class Workload:
    """One forward pass: `tokens` new tokens per sequence behind `context` cached ones; or one step of training."""

    name: str
    step: str  # "prefill" | "decode", also the name of the range; or TRAIN
    batch: int
    tokens: int
    context: int

    @property
    def total(self) -> int:
        """Tk: the number of keys in the attention."""
        return self.context + self.tokens

    def range_under(self, root: str) -> str:
        """Return the range of the whole step; for a training step, the root range itself."""
        return root if self.step == TRAIN else f"{root}/{self.step}"

    def as_json(self, root: str, dtype: str, softmax: str) -> dict[str, Any]:
        """Return the manifest's entry for this workload under the model whose root range is `root`."""
        return {
            "name": self.name,
            "batch": self.batch,
            "tokens": self.tokens,
            "context": self.context,
            "dtype": dtype,
            "softmax": softmax,
            "range": self.range_under(root),
        }


def find_workload(name: str, config: GPT2Config | None = None) -> Workload:
    """Return the workload of a name. Raises: UsageError for another form of name, or too few positions of the model."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise UsageError(
            f"{name!r} is not a workload: use prefill_b<batch>_t<tokens>, decode_b<batch>_ctx<context> or "
            f"train_b<batch>_t<tokens>, for example {', '.join(GPU_WORKLOADS)}."
        )
    if found["whole"]:
        workload = Workload(name, found["whole"], int(found["wb"]), int(found["t"]), 0)
    else:
        workload = Workload(name, "decode", int(found["db"]), 1, int(found["ctx"]))
    if workload.batch < 1 or workload.tokens < 1 or (workload.step == "decode" and workload.context < 1):
        raise UsageError(f"The workload {name} is empty: use a batch, tokens and a context of 1 or more.")
    if config is not None and workload.total > config.n_positions:
        raise UsageError(
            f"The workload {name} needs {workload.total} positions and the model has {config.n_positions}: "
            "choose a shorter one."
        )
    return workload
