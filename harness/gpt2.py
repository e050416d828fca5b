"""GPT-2 in one file, written to be profiled: every step of the forward pass is a marked component.

Axes: B batch, T tokens of this call, C = n_embd channels, V vocabulary, nh heads, hs = C / nh head size; Tq = T
queries against Tk = cached + T keys. Parameters carry the names and layouts of the published checkpoints:
projections are stored (C_in, C_out), so y = x @ weight + bias, and the output embedding is the input embedding.

Ranges: gpt2 > prefill | decode > embeddings, h.N > (ln_1, attn > (qkv, scores, mask, softmax, values, proj),
ln_2, mlp > (fc, act, proj)), ln_f, lm_head. The two residual additions of a block belong to h.N itself. Other models
have another root, so that one capture can hold several:

    gpt2_fused        a fused softmax: no `mask`
    gpt2_fused_ops    ops="fused": each addition moves into the layernorm after it (ln_2, the next block's ln_1, ln_f),
                      and the bias of fc into act. A decode step has one `attend` in place of scores to values
    gpt2_best         ops="best": a prefill has one `attend`, too, and keeps no scores in memory. Its projections are
                      our matmul. One launch splits qkv by head and fills the cache. An `lm_head` of one row is our
                      gemv. In bf16 on a GPU, `attend` also merges a prompt's heads, and `fc` includes GPT-2's `act`

Finer parts (blocks, qkv_proj, qkv_reshape, values_apply, merge) are details: only tracers that ask for them open those.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; openai/gpt-2 `model.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  the name everybody knows

from analysis.formats.errors import InputError, UsageError
from harness.ranges import component

TORCH_SOFTMAX = "torch"  # the unfused chain: scale, masked_fill, softmax
# The kernels beside softmax: PyTorch's operations; our best kernel of each op that fuses; or our best kernel of every
# op, which includes the attention and the matrix products of a prefill.
TORCH_OPS, FUSED_OPS, BEST_OPS = "torch", "fused", "best"
# The registered ops that a prompt of several tokens runs; a short last row takes gemv.
PROMPT_KERNELS = {
    FUSED_OPS: ("encoder", "residual_layernorm", "bias_gelu", "merge_heads"),
    BEST_OPS: (
        "encoder", "layernorm", "residual_layernorm", "split_permute", "merge_heads", "attention", "matmul", "gelu",
        "gemv",
    ),
}  # fmt: skip
_GELU = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "none"}
TANH_GELU = tuple(name for name, form in _GELU.items() if form == "tanh")


@dataclass(frozen=True)
class GPT2Config:
    """The sizes of a GPT-2, with the field names of transformers' GPT2Config and the defaults of GPT-2 124M."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False

    def __post_init__(self) -> None:
        for name in ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head"):
            if getattr(self, name) < 1:
                raise UsageError(f"The model configuration has {name}={getattr(self, name)}: use 1 or more.")
        if self.n_embd % self.n_head:
            raise UsageError(
                f"The model configuration has n_embd={self.n_embd}, not a multiple of n_head={self.n_head}: "
                "choose sizes that divide."
            )
        if self.activation_function not in _GELU:
            raise InputError(
                f"The model configuration asks for activation_function={self.activation_function!r}: "
                f"this harness has {', '.join(_GELU)}."
            )

    @property
    def head_size(self) -> int:
        return self.n_embd // self.n_head

    @property
    def inner(self) -> int:
        """Return the width of the MLP: n_inner, else 4 C."""
        return self.n_inner or 4 * self.n_embd

    def scale(self, layer: int) -> float:
        """Return the factor on the scores of block `layer` (0-based)."""
        scale = self.head_size**-0.5 if self.scale_attn_weights else 1.0
        return scale / (layer + 1) if self.scale_attn_by_inverse_layer_idx else scale

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GPT2Config:
        """Return the known fields of a checkpoint's config.

        Raises:
            InputError: an option changes the arithmetic to one that the model does not have.
        """
        if (kind := values.get("model_type", "gpt2")) != "gpt2":
            instead = "kernels.decode_llama.device.Engine" if kind in ("llama", "qwen3") else "transformers"
            raise InputError(
                f"The configuration is of a {kind} model and the engines decode gpt2 only: run it with {instead}; "
                "`python -m studies.dropin.measure` replaces the attention of transformers by ours."
            )
        if values.get("reorder_and_upcast_attn"):
            raise InputError(
                "The checkpoint sets reorder_and_upcast_attn, which this harness does not have: "
                "use a checkpoint without it."
            )
        if values.get("tie_word_embeddings") is False:
            raise InputError(
                "The checkpoint does not tie its output embedding, which this harness does: use a tied one."
            )
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


class KVCache:
    """Keys and values of the tokens seen so far, allocated once for `capacity` tokens.

    Shape   keys, values (n_layer, B, nh, capacity, hs); future (capacity, capacity) bool, true above the diagonal
    Units   length: tokens held, also the position of the next token
    """

    def __init__(
        self, config: GPT2Config, batch: int, capacity: int, device: Any = "cpu", dtype: Any = torch.float32
    ) -> None:
        shape = (config.n_layer, batch, config.n_head, capacity, config.head_size)
        # Zeros, not empty: a decode step may be timed at an unfilled context, and must not compute on NaNs.
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.future = torch.ones(capacity, capacity, device=device, dtype=torch.bool).triu(1)
        self.batch = batch
        self.capacity = capacity
        self.length = 0

    @classmethod
    def over(cls, keys: Any, values: Any) -> KVCache:
        """Return a cache that stores its keys and values in these tensors, which the caller can read, too."""
        cache = cls.__new__(cls)
        cache.keys, cache.values = keys, values
        cache.batch, cache.capacity, cache.length = keys.shape[1], keys.shape[3], 0
        cache.future = torch.ones(cache.capacity, cache.capacity, device=keys.device, dtype=torch.bool).triu(1)
        return cache

    def append(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """Copy k, v (B, nh, T, hs) behind the `length` tokens held, and return views of all keys and values."""
        end = self.length + k.shape[2]
        self.keys[layer, :, :, self.length : end] = k
        self.values[layer, :, :, self.length : end] = v
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def split(self, layer: int, qkv: Any, contiguous: bool = False) -> tuple[Any, Any, Any] | None:
        """Split qkv (B, T, 3 C) by head and append k and v, all in one launch of our kernel; None if it cannot run.

        It runs without gradients, on a GPU, with T of 2 or more, if qkv and the layer's keys and values are contiguous
        and have a dtype that the kernel supports. Return a new, contiguous q (B, nh, T, hs), and views of all keys and
        values, as `append` does. If the caller needs these `contiguous`, and the views of a cache that was empty are
        not, the launch writes k and v a second time, and these copies are returned.
        """
        keys, values = self.keys[layer], self.values[layer]
        launch = _split_into_cache(qkv.dtype)
        if (
            launch is None
            or qkv.shape[1] == 1
            or torch.is_grad_enabled()
            or not keys.dtype == values.dtype == qkv.dtype
            or not all(_on_gpu(tensor) and tensor.is_contiguous() for tensor in (qkv, keys, values))
        ):
            return None
        end = self.length + qkv.shape[1]
        k, v = keys[:, :, :end], values[:, :, :end]
        twice = contiguous and not self.length and not k.is_contiguous()
        q, *copies = launch(qkv, keys, values, self.length, twice)
        k, v = copies or (k, v)
        return q, k, v

    def truncate(self, length: int = 0) -> None:
        """Forget all tokens from position `length` on. This moves no memory."""
        if not 0 <= length <= self.capacity:
            raise UsageError(f"A cache of {self.capacity} tokens has no position {length}: use 0 to its capacity.")
        self.length = length


class Projection(nn.Module):  # type: ignore[misc]
    """x @ weight + bias with weight (C_in, C_out), the layout of the published checkpoints (their `Conv1D`)."""

    def __init__(self, c_in: int, c_out: int, ops: str = TORCH_OPS) -> None:
        super().__init__()
        self.ops = ops
        self.weight = nn.Parameter(torch.empty(c_in, c_out))
        self.bias = nn.Parameter(torch.empty(c_out))

    def forward(self, x: Any) -> Any:
        rows = x.reshape(-1, x.shape[-1])
        multiply = _matmul(rows.shape, self.weight.shape[1], x.dtype) if self.ops == BEST_OPS else None
        y = _addmm(self.bias, rows, self.weight) if multiply is None else multiply(rows, self.weight, self.bias)
        return y.view(*x.shape[:-1], -1)


def _addmm(bias: Any, rows: Any, weight: Any) -> Any:
    """Return rows @ weight + bias. On a CPU, inference multiplies a narrow type in float32 and rounds the result once.

    PyTorch's own bfloat16 product of 700 rows takes 90 times as long on a CPU without AVX-512. It sums in float32 too.
    """
    narrow = rows.dtype in (torch.bfloat16, torch.float16)
    if rows.device.type != "cpu" or not narrow or torch.is_grad_enabled():
        return torch.addmm(bias, rows, weight)
    return torch.addmm(bias.float(), rows.float(), weight.float()).to(rows.dtype)


@functools.cache
def _matmul(rows: Any, c_out: int, dtype: Any) -> Callable[..., Any] | None:
    """Return our best matmul for (M, K) and N columns; None for one row, or if the matmul does not take these sizes."""
    from kernels.registry import ops

    op = ops()["matmul"]
    takes = op.variant(op.best_for(dtype)).takes((rows[0], c_out, rows[1]), str(dtype).removeprefix("torch."))
    return _kernel("matmul", dtype) if rows[0] > 1 and takes else None


@functools.cache
def _kernel(op: str, dtype: Any = torch.float32) -> Callable[..., Any]:
    """Return the best variant of an op of kernels.registry.

    Without gradients and with tensors in the expected layout, it calls the kernel directly, else the custom op. A
    custom op written in Python costs more CPU time a call than the launches that fusing saves.
    """
    from kernels.registry import ops

    declared, best = ops()[op], ops()[op].best_for(dtype)
    checked, direct = declared.call(best), declared.variant(best).fn
    strided = op == "attention_decode"  # reads the filled part of the cache in place

    def fits(value: Any) -> bool:
        return bool(value.is_cuda and (value.stride(-1) == 1 if strided else value.is_contiguous()))

    def run(*inputs: Any) -> Any:
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        plain = not torch.is_grad_enabled() and all(map(fits, tensors))
        return (direct if plain else checked)(*inputs)

    return run


def _launches(x: Any) -> bool:
    """Return whether a launch that is no registered op may take x: without gradients, on a GPU, and in bf16."""
    return _on_gpu(x) and not torch.is_grad_enabled() and bool(x.dtype == torch.bfloat16)


@functools.cache
def _split_into_cache(dtype: Any) -> Callable[..., Any] | None:
    """Return our launch that splits qkv by head and fills a cache; None if it does not support the dtype."""
    from kernels.permute.op import SPLIT_PERMUTE, split_into_cache

    return split_into_cache if str(dtype).removeprefix("torch.") in SPLIT_PERMUTE.dtypes else None


def _on_gpu(tensor: Any) -> bool:
    """Return whether a tensor is on a GPU. Tests replace this function."""
    return bool(tensor.is_cuda)


@functools.cache
def _zeros(count: int, dtype: Any, device: Any) -> Any:
    """Return the bias of a product that has none, for a kernel that adds one.

    Like the kernel's loading, this happens at the first call, which a CUDA graph must not record.

    Raises: UsageError if a graph is being recorded.
    """
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise UsageError("The model's first pass cannot be recorded in a CUDA graph: run it once before.")
    return torch.zeros(count, dtype=dtype, device=device)


def _decode_head_size() -> int:
    """Return the head size that op attention_decode supports."""
    from kernels.attention_decode.op import HEAD_SIZE

    return int(HEAD_SIZE)


def _add_norm(norm: Any, x: Any, added: Any) -> tuple[Any, Any]:
    """Return (x + added, its layernorm) by one kernel."""
    residual, normed = _kernel("residual_layernorm")(x, added, norm.weight, norm.bias, norm.eps)
    return residual, normed


class Attention(nn.Module):  # type: ignore[misc]
    """Causal self-attention in explicit steps: (B, T, C) -> (B, T, C)."""

    def __init__(self, config: GPT2Config, index: int, softmax: str, ops: str) -> None:
        super().__init__()
        self.index = index
        self.ops = ops
        self.n_head = config.n_head
        self.scale = config.scale(index)
        self.softmax_variant = softmax
        self.attends = ops != TORCH_OPS and config.head_size == _decode_head_size()
        # op attention has GPT-2's scale built in, and starts at the first key
        self.attends_all = ops == BEST_OPS and self.attends and self.scale == config.head_size**-0.5
        self.c_attn = Projection(config.n_embd, 3 * config.n_embd, ops)
        self.c_proj = Projection(config.n_embd, config.n_embd, ops)

    @component("attn")
    def forward(self, x: Any, cache: KVCache) -> Any:
        q, k, v = self.qkv(x, cache)
        if self.attends and q.shape[2] == 1:
            return self.proj(self.attend(q, k, v))
        if self.attends_all and q.shape[2] == k.shape[2]:
            return self.proj(self.attend_all(q, k, v))
        scores = self.scores(q, k)
        if self.softmax_variant == TORCH_SOFTMAX:
            weights = self.softmax(self.mask(scores, cache))
        else:
            weights = self.fused_softmax(scores)
        return self.proj(self.values(weights, v))

    @component("qkv")
    def qkv(self, x: Any, cache: KVCache) -> tuple[Any, Any, Any]:
        """Project and append to the cache: q (B, nh, Tq, hs), k and v (B, nh, Tk, hs)."""
        return self.split_heads(self.project(x), cache)

    @component("qkv_proj", detail=True)
    def project(self, x: Any) -> Any:
        return self.c_attn(x)

    @component("qkv_reshape", detail=True)
    def split_heads(self, qkv: Any, cache: KVCache) -> tuple[Any, Any, Any]:
        """Return q, k and v by head; the cache keeps k and v. q is a view of qkv unless one launch does all of it."""
        parts = cache.split(self.index, qkv, contiguous=self.attends_all) if self.ops == BEST_OPS else None
        if parts is not None:
            return parts
        q, k, v = (part.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
        return q, *cache.append(self.index, k, v)

    @component("scores")
    def scores(self, q: Any, k: Any) -> Any:
        """Return Q K^T and nothing else: (B, nh, Tq, Tk)."""
        return q @ k.transpose(-2, -1)

    @component("mask")
    def mask(self, scores: Any, cache: KVCache) -> Any:
        """Scale, then -inf wherever the key is later than the query; queries are the last Tq of Tk tokens."""
        tq, tk = scores.shape[-2:]
        return (scores * self.scale).masked_fill(cache.future[tk - tq : tk, :tk], -math.inf)

    @component("softmax")
    def softmax(self, scores: Any) -> Any:
        return scores.softmax(dim=-1)

    @component("softmax")
    def fused_softmax(self, scores: Any) -> Any:
        """Scale, causal mask and softmax in the registered variant."""
        return torch.ops.kernel_ledger.causal_softmax(scores, self.scale, self.softmax_variant)

    @component("attend")
    def attend(self, q: Any, k: Any, v: Any) -> Any:
        """Scores to values of one token in one kernel. Every key is visible: (B, nh, 1, hs) -> (B, 1, C), a view."""
        return self.merge_heads(_kernel("attention_decode")(q, k, v, self.scale))

    @component("attend")
    def attend_all(self, q: Any, k: Any, v: Any) -> Any:
        """Scores to values of a whole prompt in one kernel, which stores no scores: (B, nh, T, hs) -> (B, T, C)."""
        if _launches(q):
            from kernels.attention.op import attention_merged

            return attention_merged(q.contiguous(), k.contiguous(), v.contiguous())
        return self.merge_heads(_kernel("attention", q.dtype)(q.contiguous(), k.contiguous(), v.contiguous()))

    @component("values")
    def values(self, weights: Any, v: Any) -> Any:
        """Average the values and merge the heads: (B, nh, Tq, Tk) x (B, nh, Tk, hs) -> (B, Tq, C)."""
        return self.merge_heads(self.average(weights, v))

    @component("values_apply", detail=True)
    def average(self, weights: Any, v: Any) -> Any:
        return weights @ v

    @component("merge", detail=True)
    def merge_heads(self, x: Any) -> Any:
        """(B, nh, Tq, hs) -> (B, Tq, C): a copy, or with one token a view."""
        if self.ops != TORCH_OPS and x.shape[2] > 1:
            return _kernel("merge_heads")(x)
        return x.transpose(1, 2).flatten(2)

    @component("proj")
    def proj(self, x: Any) -> Any:
        return self.c_proj(x)


class MLP(nn.Module):  # type: ignore[misc]
    """(B, T, C) -> (B, T, inner) -> (B, T, C)."""

    def __init__(self, config: GPT2Config, ops: str) -> None:
        super().__init__()
        self.approximate = _GELU[config.activation_function]
        self.fused = ops != TORCH_OPS and self.approximate == "tanh"
        # our matmul adds the bias itself, so `act` applies only the activation
        self.biased = ops == BEST_OPS
        self.c_fc = Projection(config.n_embd, config.inner, ops)
        self.c_proj = Projection(config.inner, config.n_embd, ops)

    @component("mlp")
    def forward(self, x: Any) -> Any:
        return self.proj(self.fc_act(x) if self.activates(x) else self.act(self.fc(x)))

    def activates(self, x: Any) -> bool:
        """Return whether one launch computes fc and act of x. It needs several rows, in packets of 16 bytes."""
        weight, bias = self.c_fc.weight, self.c_fc.bias
        return (
            self.fused
            and self.biased
            and _launches(x)
            and x.shape[:-1].numel() > 1
            and not any(size % 8 for size in weight.shape)
            and all(value.is_contiguous() and value.data_ptr() % 16 == 0 for value in (x, weight, bias))
        )

    @component("fc")
    def fc_act(self, x: Any) -> Any:
        """Return the activation of fc's product, in one launch."""
        from kernels.matmul.op import matmul_gelu

        rows = x.reshape(-1, x.shape[-1])
        return matmul_gelu(rows, self.c_fc.weight, self.c_fc.bias).view(*x.shape[:-1], -1)

    @component("fc")
    def fc(self, x: Any) -> Any:
        """Return the product with fc's weight, plus its bias unless `act` adds it (fused GELU, PyTorch's product)."""
        return x @ self.c_fc.weight if self.fused and not self.biased else self.c_fc(x)

    @component("act")
    def act(self, x: Any) -> Any:
        if not self.fused:
            return F.gelu(x, approximate=self.approximate)
        return _kernel("gelu")(x) if self.biased else _kernel("bias_gelu")(x, self.c_fc.bias)

    @component("proj")
    def proj(self, x: Any) -> Any:
        return self.c_proj(x)


class Block(nn.Module):  # type: ignore[misc]
    """Pre-norm transformer block; the residual additions are its own kernels."""

    def __init__(self, config: GPT2Config, index: int, softmax: str, ops: str) -> None:
        super().__init__()
        self.index = index
        self.ops = ops
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.attn = Attention(config, index, softmax, ops)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = MLP(config, ops)

    @component("h.{self.index}")
    def forward(self, x: Any, cache: KVCache) -> Any:
        x = x + self.attn(self.norm_1(x), cache)
        return x + self.mlp(self.norm_2(x))

    @component("h.{self.index}")
    def forward_fused(self, x: Any, added: Any | None, cache: KVCache) -> tuple[Any, Any]:
        """Run the block with additions inside the layernorms: take and return x and the summand still to be added."""
        x, normed = (x, self.norm_1(x)) if added is None else self.add_norm_1(x, added)
        x, normed = self.add_norm_2(x, self.attn(normed, cache))
        return x, self.mlp(normed)

    @component("ln_1")
    def norm_1(self, x: Any) -> Any:
        if self.ops == BEST_OPS:
            return _kernel("layernorm", x.dtype)(x, self.ln_1.weight, self.ln_1.bias, self.ln_1.eps)
        return self.ln_1(x)

    @component("ln_2")
    def norm_2(self, x: Any) -> Any:
        return self.ln_2(x)

    @component("ln_1")
    def add_norm_1(self, x: Any, added: Any) -> tuple[Any, Any]:
        return _add_norm(self.ln_1, x, added)

    @component("ln_2")
    def add_norm_2(self, x: Any, added: Any) -> tuple[Any, Any]:
        return _add_norm(self.ln_2, x, added)


class GPT2(nn.Module):  # type: ignore[misc]
    """The model.

    `softmax` is "torch" (the unfused chain) or the name of a registered variant of op softmax. `ops` is "torch",
    "fused" or "best". With "fused", each of these is one kernel, the best of the registry: the embeddings, an addition
    with its layernorm, bias with GELU, the merging of heads, and the attention of one token. "best" also replaces the
    attention of a prompt, the matrix products, and what lies between them: on a GPU one launch splits qkv by head and
    writes k and v into the cache. (Elsewhere q is a view, and the copies into the cache permute k and v.)
    """

    def __init__(self, config: GPT2Config, softmax: str = TORCH_SOFTMAX, ops: str = TORCH_OPS) -> None:
        super().__init__()
        if softmax != TORCH_SOFTMAX:
            import kernels.softmax.custom_op  # noqa: F401  registers torch.ops.kernel_ledger.causal_softmax
        if ops not in (TORCH_OPS, FUSED_OPS, BEST_OPS):
            raise UsageError(f"The model has no ops {ops!r}: use {TORCH_OPS}, {FUSED_OPS} or {BEST_OPS}.")
        self.config = config
        self.ops = ops
        self.root = "gpt2" if softmax == TORCH_SOFTMAX else "gpt2_fused"
        if ops != TORCH_OPS:
            self.root = {FUSED_OPS: "gpt2_fused_ops", BEST_OPS: "gpt2_best"}[ops]
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.h = nn.ModuleList(Block(config, index, softmax, ops) for index in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)

    def with_softmax(self, softmax: str, ops: str = TORCH_OPS) -> GPT2:
        """Return a second model over the same parameters (shared, not copied) with another softmax and other ops."""
        with torch.device("meta"):
            other = GPT2(self.config, softmax, ops)
        other.load_state_dict(self.state_dict(), assign=True)
        return other.eval()

    def new_cache(self, batch: int, capacity: int | None = None) -> KVCache:
        """Return an empty cache on the model's device, for `capacity` tokens (default: n_positions)."""
        weight = self.wte.weight
        return KVCache(self.config, batch, capacity or self.config.n_positions, weight.device, weight.dtype)

    @component("{self.root}")
    def forward(self, ids: Any, cache: KVCache | None = None, last_only: bool = False) -> Any:
        """Return the logits of the next tokens. An empty cache means prefill, any other decode.

        Shape   ids (B, T) int64 -> logits (B, T, V), or (B, 1, V) with `last_only`. All T rows are the default,
                because published baselines compute them; `generate` needs only the last one.
        Raises  UsageError when there are no tokens, or they do not fit the positions or the cache
        """
        if ids.ndim != 2 or 0 in ids.shape:
            raise UsageError(f"The token ids have shape {tuple(ids.shape)}: give (B, T) with B and T of 1 or more.")
        cache = cache or self.new_cache(*ids.shape)
        if cache.batch != ids.shape[0]:
            raise UsageError(
                f"The cache is for a batch of {cache.batch} and the token ids have one of {ids.shape[0]}: "
                "make the cache with new_cache of that batch."
            )
        end = cache.length + ids.shape[1]
        if end > min(cache.capacity, self.config.n_positions):
            raise UsageError(
                f"{ids.shape[1]} tokens after {cache.length} do not fit a model of {self.config.n_positions} "
                f"positions with a cache of {cache.capacity}: shorten the input."
            )
        step = self.decode if cache.length else self.prefill
        return step(ids, cache, last_only)

    @component("prefill")
    def prefill(self, ids: Any, cache: KVCache, last_only: bool) -> Any:
        return self._step(ids, cache, last_only)

    @component("decode")
    def decode(self, ids: Any, cache: KVCache, last_only: bool) -> Any:
        return self._step(ids, cache, last_only)

    def _step(self, ids: Any, cache: KVCache, last_only: bool) -> Any:
        x = self.embeddings(ids, cache)
        parts = self.fused_blocks(x, cache) if self.ops != TORCH_OPS else (self.blocks(x, cache),)
        cache.length += ids.shape[1]
        return self.lm_head(self.norm_f(*(part[:, -1:] if last_only else part for part in parts)))

    @component("blocks", detail=True)
    def blocks(self, x: Any, cache: KVCache) -> Any:
        for block in self.h:
            x = block(x, cache)
        return x

    @component("blocks", detail=True)
    def fused_blocks(self, x: Any, cache: KVCache) -> tuple[Any, Any]:
        """x and the summand not yet added to it: the last addition belongs to ln_f."""
        added = None
        for block in self.h:
            x, added = block.forward_fused(x, added, cache)
        return x, added

    @component("embeddings")
    def embeddings(self, ids: Any, cache: KVCache) -> Any:
        """Token plus position embedding: one gather and one addition. The positions are a slice, not a gather."""
        positions = self.wpe.weight[cache.length : cache.length + ids.shape[1]]
        if self.ops != TORCH_OPS:
            return _kernel("encoder")(ids, self.wte.weight, positions)
        return self.wte(ids) + positions

    @component("ln_f")
    def norm_f(self, x: Any, added: Any | None = None) -> Any:
        return self.ln_f(x) if added is None else _add_norm(self.ln_f, x, added)[1]

    @component("lm_head")
    def lm_head(self, x: Any) -> Any:
        """(B, T, C) -> (B, T, V) with the tied input embedding. With ops="best", one row on a GPU takes our gemv."""
        weight = self.wte.weight
        if self.ops == BEST_OPS and x.shape[:-1].numel() == 1 and _on_gpu(x) and not torch.is_grad_enabled():
            no_bias = _zeros(len(weight), weight.dtype, weight.device)
            return _kernel("gemv", x.dtype)(weight, x.flatten(), no_bias).view(*x.shape[:-1], -1)
        return F.linear(x, weight)

    def next_token(self, logits: Any) -> Any:
        """Return the most likely token: (B, T, V) -> (B, 1)."""
        last = logits[:, -1]
        if self.ops == BEST_OPS and _launches(last) and last.is_contiguous():
            from kernels.gemv.op import argmax

            token = torch.empty(len(last), dtype=torch.int64, device=last.device)
            argmax(last, token)
            return token[:, None]
        return last.argmax(dim=-1, keepdim=True)

    def generate(self, ids: Any, new_tokens: int) -> Any:
        """Greedy continuation with the KV cache: (B, T) int64 -> (B, T + new_tokens).

        The next token stays on the device, so nothing synchronises until the caller looks at the result.
        """
        batch, tokens = ids.shape
        # The last token is returned without being run through the model.
        cache = self.new_cache(batch, max(1, tokens + new_tokens - 1))
        out, step = [ids], ids
        with torch.inference_mode():
            for _ in range(new_tokens):
                step = self.next_token(self(step, cache, last_only=True))
                out.append(step)
        return torch.cat(out, dim=1)
