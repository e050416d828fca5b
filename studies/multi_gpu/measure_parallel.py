"""Run GPT-2 on several ranks, data parallel and tensor parallel; both are built from the harness' model.

Axes as in harness/gpt2.py; N ranks. If a number does not divide by the ranks, the first ranks get one more each.
Source: Shoeybi et al. 2019, "Megatron-LM", arXiv:1909.08053 (columns, then rows; two all-reduces a layer).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812

from analysis.formats.errors import UsageError
from harness.gpt2 import GPT2, GPT2Config, KVCache, Projection
from harness.ranges import component
from harness.weights import Weights
from studies.multi_gpu.measure_ranks import World


def shares(total: int, parts: int) -> list[int]:
    """Split `total` into `parts` numbers that differ by at most 1, the larger ones first."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def own(total: int, world: World) -> slice:
    """Return this rank's slice of `total` things."""
    dealt = shares(total, world.size)
    start = sum(dealt[: world.rank])
    return slice(start, start + dealt[world.rank])


# Tensor parallel ---------------------------------------------------------------------------------------------


class SummedProjection(Projection):
    """A projection whose input rows are split over the ranks: each computes a partial sum, an all-reduce adds them."""

    def forward(self, x: Any) -> Any:
        return self.add_up(super().forward(x))

    @component("all_reduce")
    def add_up(self, y: Any) -> Any:
        dist.all_reduce(y)
        return y


class TensorParallelGPT2(GPT2):
    """One rank's part of a GPT-2: its heads and its columns of the MLP; embeddings and norms are whole on every rank.

    The forward pass returns this rank's part of the logits, (B, T, own part of V).

    Raises: UsageError if there are more ranks than heads.
    """

    def __init__(self, config: GPT2Config, world: World) -> None:
        if world.size > config.n_head:
            raise UsageError(
                f"{world.size} ranks cannot share {config.n_head} heads: use {config.n_head} ranks or fewer."
            )
        super().__init__(config)
        self.root = "gpt2_tp"
        self.world = world
        self.heads, self.inner = own(config.n_head, world), own(config.inner, world)
        self.vocab = own(config.vocab_size, world)
        heads, inner = self.heads.stop - self.heads.start, self.inner.stop - self.inner.start
        width = heads * config.head_size
        self.cached = replace(config, n_head=heads, n_embd=width)
        for block in self.h:
            block.attn.n_head = heads
            block.attn.c_attn = Projection(config.n_embd, 3 * width)
            block.attn.c_proj = SummedProjection(width, config.n_embd)
            block.mlp.c_fc = Projection(config.n_embd, inner)
            block.mlp.c_proj = SummedProjection(inner, config.n_embd)

    def take(self, state: Mapping[str, Any]) -> None:
        """Load this rank's part of the parameters of a whole model, which have its dtype and device already."""
        parts = {name: self._part(name, tensor) for name, tensor in state.items()}
        self.load_state_dict(parts, assign=True)

    def _part(self, name: str, tensor: Any) -> Any:
        """Return this rank's part of one parameter. A bias after an all-reduce is 0 on all ranks but the first."""
        config = self.config
        if ".attn.c_attn." in name:
            by_head = tensor.unflatten(-1, (3, config.n_head, config.head_size))
            return by_head[..., self.heads, :].flatten(-3).contiguous()
        if name.endswith(".attn.c_proj.weight"):
            return tensor.unflatten(0, (config.n_head, config.head_size))[self.heads].flatten(0, 1).clone()
        if ".mlp.c_fc." in name:
            return tensor[..., self.inner].contiguous()
        if name.endswith(".mlp.c_proj.weight"):
            return tensor[self.inner].clone()
        if name.endswith(".c_proj.bias") and not self.world.first:
            return torch.zeros_like(tensor)
        return tensor

    def new_cache(self, batch: int, capacity: int | None = None) -> KVCache:
        """Return an empty cache for this rank's heads."""
        weight = self.wte.weight
        return KVCache(self.cached, batch, capacity or self.config.n_positions, weight.device, weight.dtype)

    @component("lm_head")
    def lm_head(self, x: Any) -> Any:
        """Return this rank's part of the logits: (B, T, C) -> (B, T, own part of V)."""
        return F.linear(x, self.wte.weight[self.vocab])

    @component("argmax")
    def next_token(self, logits: Any) -> Any:
        """Return the token with the largest logit, at a tie the smallest id: (B, T, own part of V) -> (B, 1)."""
        value, index = logits[:, -1].max(dim=-1)
        # One collective carries the logit and the token id: a double holds both exactly.
        mine = torch.stack([value.double(), (index + self.vocab.start).double()])
        found = mine.new_empty(self.world.size, *mine.shape)
        dist.all_gather(list(found), mine)
        values, ids = found.unbind(1)
        return torch.where(values == values.amax(0), ids, float(self.config.vocab_size)).amin(0).long()[:, None]

    def all_logits(self, logits: Any) -> Any:
        """Gather the whole logits on every rank: (B, T, own part of V) -> (B, T, V)."""
        dealt = shares(self.config.vocab_size, self.world.size)
        mine = F.pad(logits, (0, max(dealt) - logits.shape[-1]))
        found = [torch.empty_like(mine) for _ in dealt]
        dist.all_gather(found, mine)
        return torch.cat([part[..., :width] for part, width in zip(found, dealt, strict=True)], dim=-1)


def build_tensor_parallel(weights: Weights, world: World) -> TensorParallelGPT2:
    """Return this rank's part of the model, in eval mode, on its device."""
    with torch.device("meta"):
        model = TensorParallelGPT2(weights.config, world)
    model.take({name: tensor.to(world.device, torch.float32) for name, tensor in weights.state.items()})
    return model.eval().requires_grad_(False)


# Data parallel -----------------------------------------------------------------------------------------------


class Pending(NamedTuple):
    """A gather to the first rank that still runs: this rank sends `mine`, the first receives `whole` (N, rows, …)."""

    work: Any
    mine: Any
    whole: Any | None
    dealt: list[int]

    def result(self) -> Any:
        """Wait for the gather. Return (B, …), without the padding, on the first rank and None on every other."""
        self.work.wait()
        if self.whole is None:
            return None
        return torch.cat([part[:count] for part, count in zip(self.whole, self.dealt, strict=True)])


class DataParallelGPT2(nn.Module):  # type: ignore[misc]
    """A whole model on each rank, which runs its share of the sequences. A rank without sequences only sends padding.

    The first rank holds the batch and gets the results. Every message has `rows` rows, the largest share. Results are
    `Pending`: the caller can compute the next batch before it waits for them.
    """

    def __init__(self, model: GPT2, world: World, batch: int) -> None:
        super().__init__()
        self.model, self.world = model, world
        self.dealt = shares(batch, world.size)
        self.rows, self.mine = max(self.dealt), self.dealt[world.rank]

    @component("gpt2_dp")
    def forward(self, ids: Any, cache: KVCache | None) -> Pending:
        """Return the next token of each sequence, Pending (B, 1), from this rank's ids (rows, T) and cache."""
        if cache is None:
            return self.gather(ids[:0, :1])
        return self.gather(greedy(self.model, ids[: self.mine], cache, 1))

    @component("gpt2_dp")
    def decode(self, ids: Any, cache: KVCache | None, new_tokens: int) -> Pending:
        """Decode greedily after a filled cache and gather once: this rank's last ids (rows, 1) -> (B, new_tokens)."""
        if cache is None:
            return self.gather(ids.new_empty(0, new_tokens))
        return self.gather(greedy(self.model, ids[: self.mine], cache, new_tokens))

    @component("scatter")
    def scatter(self, ids: Any | None, tokens: int) -> Any:
        """Return this rank's share of the first rank's batch `ids` (B, T), padded with zeros to (rows, T)."""
        mine = torch.zeros(self.rows, tokens, dtype=torch.int64, device=self.world.device)
        parts = None
        if ids is not None:
            parts = [F.pad(part, (0, 0, 0, self.rows - len(part))).contiguous() for part in ids.split(self.dealt)]
        dist.scatter(mine, parts)
        return mine

    @component("gather")
    def gather(self, mine: Any) -> Pending:
        """Start to send this rank's results (own rows, …) to the first rank."""
        filled = mine.contiguous()
        if len(mine) < self.rows:
            filled = mine.new_zeros(self.rows, *mine.shape[1:])
            filled[: self.mine] = mine
        whole = filled.new_empty(self.world.size, *filled.shape) if self.world.first else None
        work = dist.gather(filled, None if whole is None else list(whole), async_op=True)
        return Pending(work, filled, whole, self.dealt)

    def new_cache(self) -> KVCache | None:
        """Return an empty cache for this rank's sequences; None if it has none."""
        return self.model.new_cache(self.mine) if self.mine else None


def greedy(model: GPT2, ids: Any, cache: KVCache, new_tokens: int) -> Any:
    """Return `new_tokens` greedy tokens after the tokens in the cache and `ids` (B, T): (B, new_tokens)."""
    out = []
    for _ in range(new_tokens):
        ids = model.next_token(model(ids, cache, last_only=True))
        out.append(ids)
    return torch.cat(out, dim=1)
