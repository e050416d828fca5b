"""Declare the rungs from Hugging Face's eager GPT-2 to the floor, with hypotheses that precede the measurement.

TIME is the wall time per token at batch 1, bfloat16 and a mean context of 256 tokens. FLOOR is the time to read the
bytes of a step (weights and cache, contract.Sizes) at the read bandwidth; in a run that did not measure it, at copy
speed. `ours` names engines of studies/decode.

    python -m kernels.decode.rungs               prints the table of README.md

This module needs neither torch nor a GPU.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

from kernels import objects
from kernels.hypotheses import FLOOR, TIME, Hypothesis, sentence

BFLOAT16 = ("bfloat16",)


@dataclass(frozen=True)
class Rung:
    """A way to decode (or, as `prefill`, to run a prompt of 1024 tokens): its idea, and bounds that may be refuted."""

    name: str
    idea: str
    ours: bool = False
    prefill: bool = False
    hypotheses: tuple[Hypothesis, ...] = ()

    @property
    def expected(self) -> str:
        """Return the bounds in words, "" without any."""
        return sentence(self.hypotheses, BFLOAT16, "") if self.hypotheses else ""


def _time(than: str, low: float = 0.0, high: float = float("inf")) -> Hypothesis:
    return Hypothesis(TIME, than, low=low, high=high, dtypes=BFLOAT16)


HF_EAGER, HF_GRAPH = "hf_eager", "hf_compile_graph"
KERNELS = ("few", "persistent")  # the rungs with kernels of this folder
RUNGS = (
    Rung(HF_EAGER, "Hugging Face generate(), attention by separate operations, a growing cache"),
    Rung("hf_sdpa", "Hugging Face generate(), attention by PyTorch's SDPA", hypotheses=(_time(HF_EAGER, high=1.0),)),
    Rung(
        "hf_static_compile",
        "Hugging Face generate() with a static cache, which compiles the step",
        hypotheses=(_time(HF_EAGER, high=0.4),),
    ),
    Rung(
        HF_GRAPH,
        "Hugging Face's step over a static cache, compiled with max-autotune and coordinate descent, in a CUDA graph",
        hypotheses=(_time("hf_static_compile", high=0.35), _time(FLOOR, low=7.0, high=10.0)),
    ),
    Rung(
        "tinygrad",
        "tinygrad's operations, the step as one of its own graphs, BEAM off",
        hypotheses=(_time(HF_GRAPH, low=1.0),),
    ),
    Rung(
        "eager",
        "our best kernel for every operation, launched one by one: the host limits it",
        ours=True,
        hypotheses=(_time(HF_EAGER, high=0.35), _time("graph", low=3.0)),
    ),
    Rung(
        "graph",
        "the same kernels in one CUDA graph, token and position on the GPU",
        ours=True,
        hypotheses=(_time("eager", high=0.33), _time(HF_GRAPH, high=0.9), _time(FLOOR, low=3.5, high=7.0)),
    ),
    Rung(
        "few",
        "two launches per layer with programmatic dependent launch, weights packed in the order of their use",
        ours=True,
        hypotheses=(_time("graph", high=0.5), _time(FLOOR, low=2.0, high=2.5)),
    ),
    Rung(
        "persistent",
        "one kernel for many tokens: a ring of weights runs ahead of the exchanges between blocks",
        ours=True,
        hypotheses=(_time(FLOOR, high=1.0 / 0.6), _time(HF_GRAPH, high=0.25), _time(HF_EAGER, high=0.1)),
    ),
    Rung(
        "hf_prefill",
        "Hugging Face's pass over 1024 tokens, compiled with max-autotune, in a CUDA graph",
        prefill=True,
    ),
    Rung(
        "prefill",
        "our best kernels over 1024 tokens in a CUDA graph: no scores in memory",
        ours=True,
        prefill=True,
        hypotheses=(_time("hf_prefill", high=1.0 / 1.3),),
    ),
)
NAMES = tuple(rung.name for rung in RUNGS)


def rung_of(name: str) -> Rung:
    """The rung of that name. Raises: KeyError."""
    return next(rung for rung in RUNGS if rung.name == name)


def table() -> str:
    """Return the table of README.md."""
    head = ["| rung | what it is | expected before it was measured |", "|---|---|---|"]
    return "\n".join([*head, *(f"| `{rung.name}` | {rung.idea} | {rung.expected or '–'} |" for rung in RUNGS)])


def kernels_now() -> str:
    """Return 12 digits that identify the source of the kernels of this folder, which the rungs of KERNELS run."""
    return objects.fingerprint(Path(__file__).with_name("decode.cu"))


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(
        prog="python -m kernels.decode.rungs", description="Print the table of README.md."
    ).parse_args()
    print(table())


if __name__ == "__main__":
    main()
