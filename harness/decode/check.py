"""Whether an engine decodes like the reference: tokens where the choice is clear, and how far its logits are off.

The reference is the model in float32 for engines in bfloat16, and in float64 for those in float32. "Plain" logits are
those of a plain model in the engine's own dtype: what rounding alone does. A token that differs counts as a tie where
the reference holds both tokens closer together than rounding moves logits; anywhere else it is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch

from harness.decode.engines import Engine
from harness.gpt2 import GPT2Config
from harness.weights import Weights, load_weights

WINDOWS = 8  # parts of the positions, each of which is judged
RESAMPLES = 4000


@dataclass(frozen=True)
class Agreement:
    """What an engine chose at each position of a text; KL in nats, of the reference from the engine.

    `worse` names the windows of positions in which the engine's mean KL exceeds the plain model's for certain.
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
    """Yield the logits (V) behind each token of a text (1, T) that is run token by token from `prompt_tokens` on."""
    engine.prefill(ids[:, :prompt_tokens])
    for at in range(prompt_tokens, ids.shape[1]):
        engine.force(ids[:, at])
        engine.step()
        yield engine.program.logits[0].float()
    engine.check()


def divergence(reference: Any, logits: Any) -> Any:
    """KL of the distribution of `reference` from that of `logits`, over the last axis, in nats; in float64."""
    expected = reference.double().log_softmax(-1)
    return (expected.exp() * (expected - logits.double().log_softmax(-1))).sum(-1)


def compare(reference: Any, plain: Any, engine: Iterator[Any], first: int) -> Agreement:
    """Judge an engine's logits, one position after the other, from position `first` on.

    Shape   reference, plain (T, V): logits of the same text.
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
        # two logits may move towards each other, each by as much as plain rounding moves the furthest one
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
    """The windows of positions in which the mean difference is above 0 for certain, by the bootstrap of positions.

    Of two equal engines one window or more is named in 2.5 % of comparisons: each window has an eighth of that.
    Differences below 1e-9 nats are those of the sums themselves.
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
    """The engine's own continuation of a prompt: (1, T + new_tokens)."""
    text = engine.generate(ids, new_tokens)
    engine.check()
    return text


def compare_greedy(reference: Any, plain: Any, text: Any, prompt_tokens: int) -> tuple[int, int, int]:
    """Of an engine's own text (1, T): tokens that the reference chooses too, ties, and wrong ones.

    Shape   reference, plain (T, V): logits of the whole text. One pass suffices: each token is judged behind the
            tokens that the engine chose before it.
    """
    expected, usual = reference[prompt_tokens - 1 : -1].float(), plain[prompt_tokens - 1 : -1].float()
    chosen = text[0, prompt_tokens:, None]
    margin = expected.max(-1).values - expected.gather(1, chosen)[:, 0]
    rounding = 2 * (usual - expected).abs().amax(-1)
    same, tie = margin == 0, (margin > 0) & (margin <= rounding)
    return int(same.sum()), int(tie.sum()), int((~same & ~tie).sum())


def peaked_weights(config: GPT2Config, seed: int = 0) -> Weights:
    """Random weights whose heads look at few keys and decide the logits; biases and norms are not 0 and 1.

    GPT-2's own initialisation gives nearly equal weights to all keys, and the residual stream hides what attention
    adds: a shifted position, a stale row or a dropped head then moves the logits less than rounding does. Here scores
    have a standard deviation of 4, and a head adds as much to the residual stream as a layernorm puts into it.
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
