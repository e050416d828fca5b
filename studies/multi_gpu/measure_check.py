"""Compare every parallel mode with one process: its logits and its greedy tokens."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from analysis.formats.errors import InputError
from harness.gpt2 import GPT2, GPT2Config, KVCache
from harness.weights import Weights, build_model, load_weights
from studies.multi_gpu.measure_parallel import (
    DataParallelGPT2,
    TensorParallelGPT2,
    build_tensor_parallel,
    greedy,
)
from studies.multi_gpu.measure_ranks import World

SMALL = GPT2Config(n_layer=2, n_embd=96, n_head=6, vocab_size=211, n_positions=32)  # heads divide by 2 and by 3
UNEVEN = GPT2Config(n_layer=2, n_embd=80, n_head=5, n_inner=97, vocab_size=101, n_positions=32)  # by neither
NEW_TOKENS = 6
WITHIN = 1e-4
NARROW = 256
# (batch, tokens) of every check: a batch that 2 or 3 ranks divide, one that they do not, one smaller than the ranks.
SHAPES = ((6, 9), (5, 8), (1, 7))


def random_weights(config: GPT2Config) -> Weights:
    """Return seeded random weights that make errors visible: no bias is 0, and narrow models have larger weights."""
    weights = load_weights(config=config)
    generator = torch.Generator().manual_seed(1)
    scale = 10 if config.n_embd < NARROW else 1  # makes logits larger than 1 in narrow models, too
    state = {
        name: tensor * scale if tensor.ndim > 1 else tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in weights.state.items()
    }
    return replace(weights, state=state)


def batch_of(config: GPT2Config, batch: int, tokens: int, device: Any) -> Any:
    """Return random token ids (batch, tokens), the same on every rank."""
    generator = torch.Generator().manual_seed(batch * 1000 + tokens)
    return torch.randint(config.vocab_size, (batch, tokens), generator=generator).to(device)


def check(world: World, weights: Weights, name: str, batch: int, tokens: int) -> Iterator[dict[str, Any]]:
    """Yield an entry of `checks` for each mode and step, on the first rank only: it gets the results."""
    model = build_model(weights, device=world.device)
    ids = batch_of(weights.config, batch, tokens, world.device)
    with torch.inference_mode():
        expected = whole(model, ids)
        parallel = DataParallelGPT2(model, world, batch)
        tensor = build_tensor_parallel(weights, world)
        for mode, found in (("dp", data_parallel(parallel, ids)), ("tp", tensor_parallel(tensor, ids))):
            world.watch.beat(f"the check of {mode}")
            if not world.first:
                continue
            equal = bool(torch.equal(found["tokens"], expected["tokens"]))
            for step in ("prefill", "decode"):
                error = (found[step] - expected[step]).abs().max()
                yield {
                    "mode": mode, "step": step, "ranks": world.size, "model": name, "batch": batch, "tokens": tokens,
                    "error": float(error), "logit": float(expected[step].abs().max()), "tokens_equal": equal,
                }  # fmt: skip


Found = dict[str, Any]


def whole(model: GPT2, ids: Any, logits_of: Callable[[Any], Any] = lambda logits: logits) -> Found:
    """Return the logits of the prefill and of the first decode step, and NEW_TOKENS greedy tokens, of `model`.

    `logits_of` makes the whole logits (B, T, V) of what the model returns.
    """
    cache = model.new_cache(len(ids))
    prefill = model(ids, cache)
    first = model.next_token(prefill)
    decode = model(first, cache)
    cache.truncate(ids.shape[1])
    tokens = greedy(model, first, cache, NEW_TOKENS)
    return {"prefill": logits_of(prefill), "decode": logits_of(decode), "tokens": tokens}


def data_parallel(model: DataParallelGPT2, ids: Any) -> Found:
    """Return the same as `whole`, by ranks that each have a share of the sequences; None values after the first rank.

    Raises: InputError if the first token is not the argmax of its logits.
    """
    inner, first = model.model, model.world.first
    mine = model.scatter(ids if first else None, ids.shape[1])
    prefill = model.gather(own_logits(model, mine, None)).result()
    token = model.scatter(inner.next_token(prefill) if first else None, 1)
    cache = model.new_cache()
    same = model(mine, cache).result()
    if first and not torch.equal(same, inner.next_token(prefill)):
        raise InputError("The first token of data parallel is not that of its logits: report this as a bug.")
    decode = model.gather(own_logits(model, token, cache)).result()
    if cache:
        cache.truncate(ids.shape[1])
    return {"prefill": prefill, "decode": decode, "tokens": model.decode(token, cache, NEW_TOKENS).result()}


def own_logits(model: DataParallelGPT2, ids: Any, cache: KVCache | None) -> Any:
    """Return the logits of this rank's sequences, (own rows, T, V); a rank may have none."""
    inner = model.model
    if not model.mine:
        return inner.wte.weight.new_empty(0, ids.shape[1], inner.config.vocab_size)
    return inner(ids[: model.mine], cache)


def tensor_parallel(model: TensorParallelGPT2, ids: Any) -> Found:
    """Return the same as `whole`, by ranks that each have a share of the heads."""
    return whole(model, ids, model.all_logits)
