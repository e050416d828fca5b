"""Check that an engine decodes like a reference model: compare their tokens and their logits.

The caller gives two models besides the engine. The reference has more precision than the engine: float32 for an engine
in bfloat16, float64 for one in float32. The plain model has the engine's dtype: its logits show what rounding does.
A token that differs from the reference's is a tie if rounding can explain it: the reference's logits of both tokens
are then no further apart than twice the plain model's largest error. Any other such token is wrong.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch

from harness.gpt2 import GPT2Config
from harness.weights import Weights, load_weights
from studies.decode.measure_engines import Engine

WINDOWS = 8  # parts of the positions, each of which is judged
RESAMPLES = 4000


@dataclass(frozen=True)
class Agreement:
    """How many of an engine's tokens agree with the reference; KL(reference || engine) over the positions, in nats.

    `worse` names the windows of positions, such as `129-256`, where the engine's mean KL is above the plain model's
    (see `_worse`).
    """

    positions: int
    same: int
    ties: int
    wrong: int
    first_wrong: int | None
    kl_mean: float
    kl_most: float
    plain_kl_mean: float
    plain_kl_most: float
    worse: list[str]

    @property
    def good(self) -> bool:
        return not self.wrong and not self.worse

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def forced_logits(engine: Engine, ids: Any, prompt_tokens: int = 1) -> Iterator[Any]:
    """Run the text `ids` (1, T): the first `prompt_tokens` as a prompt, then token by token. Yield logits (V), float32.

    There is one yield for each position from `prompt_tokens` on.
    Raises: UsageError if the text does not fit the engine's cache; InputError if a kernel reported an error.
    """
    engine.prefill(ids[:, :prompt_tokens])
    for at in range(prompt_tokens, ids.shape[1]):
        engine.force(ids[:, at])
        engine.step()
        yield engine.program.logits[0].float()
    engine.check()


def divergence(reference: Any, logits: Any) -> Any:
    """Return KL(softmax(reference) || softmax(logits)) over the last axis, in nats, computed in float64."""
    expected = reference.double().log_softmax(-1)
    return (expected.exp() * (expected - logits.double().log_softmax(-1))).sum(-1)


def compare(reference: Any, plain: Any, engine: Iterator[Any], first: int) -> Agreement:
    """Compare an engine's logits with the reference's, position by position, from position `first` on.

    Shape   reference, plain (T, V): logits of the same text. engine yields (V).
    """
    kl, plain_kl = [], []
    same = ties = 0
    wrong = []
    for at, logits in enumerate(engine, start=first):
        expected, usual = reference[at].float(), plain[at].float()
        kl.append(float(divergence(expected, logits)))
        plain_kl.append(float(divergence(expected, usual)))
        chosen, right = int(logits.argmax()), int(expected.argmax())
        margin = float(expected[right] - expected[chosen])
        # rounding may move both logits towards each other, each by the plain model's largest error
        rounding = 2 * float((usual - expected).abs().max())
        if chosen == right:
            same += 1
        elif margin <= rounding:
            ties += 1
        else:
            wrong.append(at)
    ours, theirs = torch.tensor(kl), torch.tensor(plain_kl)
    return Agreement(
        positions=len(kl),
        same=same,
        ties=ties,
        wrong=len(wrong),
        first_wrong=wrong[0] if wrong else None,
        kl_mean=float(ours.mean()),
        kl_most=float(ours.max()),
        plain_kl_mean=float(theirs.mean()),
        plain_kl_most=float(theirs.max()),
        worse=_worse(ours, theirs, first),
    )


def _worse(ours: Any, theirs: Any, first: int) -> list[str]:
    """Return the windows of positions where the mean of `ours` - `theirs` is above 0, by a bootstrap of the positions.

    If both are equally good, at least one window is named in about 2.5 % of comparisons: each of the WINDOWS tests at
    an eighth of that. A difference below 1e-9 nats counts as 0, because summation alone makes such differences.
    """
    generator = torch.Generator().manual_seed(0)
    found = []
    edges = torch.linspace(0, len(ours), WINDOWS + 1).round().int().tolist()
    for start, end in pairwise(edges):
        difference = (ours - theirs)[start:end]
        if end - start < 2:
            continue
        drawn = torch.randint(end - start, (RESAMPLES, end - start), generator=generator)
        low = float(difference[drawn].mean(1).quantile(0.025 / WINDOWS))
        if low > 1e-9:
            found.append(f"{first + start}-{first + end - 1}")
    return found


def greedy_text(engine: Engine, ids: Any, new_tokens: int) -> Any:
    """Return the prompt `ids` (1, T) with the engine's own continuation: (1, T + new_tokens).

    Raises: InputError if a kernel reported an error.
    """
    text = engine.generate(ids, new_tokens)
    engine.check()
    return text


def compare_greedy(reference: Any, plain: Any, text: Any, prompt_tokens: int) -> tuple[int, int, int]:
    """Count the tokens of an engine's own text (1, T): those that the reference also chooses, ties, and wrong ones.

    Shape   reference, plain (T, V): logits of the whole text, from one pass. The pass gives each token the same
            preceding tokens that the engine had.
    """
    expected, usual = reference[prompt_tokens - 1 : -1].float(), plain[prompt_tokens - 1 : -1].float()
    chosen = text[0, prompt_tokens:, None]
    margin = expected.max(-1).values - expected.gather(1, chosen)[:, 0]
    rounding = 2 * (usual - expected).abs().amax(-1)
    same, tie = margin == 0, (margin > 0) & (margin <= rounding)
    return int(same.sum()), int(tie.sum()), int((~same & ~tie).sum())


def peaked_weights(config: GPT2Config, seed: int = 0) -> Weights:
    """Return random weights that make mistakes of attention visible in the logits.

    With GPT-2's own initialisation all keys get nearly equal attention, and attention adds little to the residual
    stream. A shifted position, a stale row or a dropped head then moves the logits less than rounding does. Here,
    attention scores have a standard deviation of about 4, so each head looks at few keys. Attention adds about as much
    to the residual stream as a layernorm's output has. Biases are not 0, and weights of norms are not 1.
    """
    weights = load_weights(seed=seed, config=config)
    generator = torch.Generator().manual_seed(seed + 1)
    unit = config.n_embd**-0.5
    for name, tensor in weights.state.items():
        if name.endswith("attn.c_attn.weight"):
            tensor *= unit / tensor.std()
            tensor[:, : 2 * config.n_embd] *= 2.0
        elif name.endswith("attn.c_proj.weight"):
            tensor *= unit / tensor.std()
        elif name.startswith(("wte", "wpe")):
            tensor *= 5.0
        tensor += 0.02 * torch.randn(tensor.shape, generator=generator)
    return weights
