"""One decode step of GPT-2 whose token and position lie on the device: nothing in it asks the host for a value.

So the host may launch it kernel by kernel (engine eager) or record it once in a CUDA graph and replay it for every
token (engine graph). On the CPU the same function runs, with PyTorch's operations in place of our kernels.

Ranges: gpt2_step > embeddings, h.N > (ln_1, attn > (qkv, append, attend, proj), ln_2, mlp > (fc, act, proj)), ln_f,
lm_head, choose. Additions belong to the layernorm that follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812  the name everybody knows

from harness.gpt2 import GPT2Config
from harness.ranges import component
from kernels.decode.contract import Phase, Sampling, Sizes, State
from kernels.registry import ops

Weights = Mapping[str, Any]
_GROUPED = "attention_decode_grouped"


def best_kernel(op: str, device: str, dtype: str) -> Callable[..., Any]:
    """The op in its best variant for `dtype`: on a GPU the kernel itself, elsewhere the operations it stands for.

    A custom op written in Python costs some 30 us of host time a call. The step owns all of its operands, so what such
    an op checks and converts is right already.
    """
    declared = ops()[op]
    name = declared.best_for(dtype)
    return declared.variant(name).fn if device == "cuda" else declared.call(name)


class Kernels:
    """The ops that a step takes, for one device and dtype."""

    def __init__(self, sizes: Sizes, device: str) -> None:
        from kernels.attention_grouped.op import HEAD_SIZES

        self.encoder = best_kernel("encoder", device, sizes.dtype)
        self.norm = best_kernel("layernorm", device, sizes.dtype)
        self.add_norm = best_kernel("residual_layernorm", device, sizes.dtype)
        self.gelu = best_kernel("gelu", device, sizes.dtype)
        self._gemv = best_kernel("gemv", device, sizes.dtype)
        self._attention = best_kernel(_GROUPED, device, sizes.dtype) if sizes.head_size in HEAD_SIZES else attend
        self._one = sizes.batch == 1

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        """x (B, K) @ weight (N, K) transposed + bias (N): (B, N)."""
        return self._gemv(weight, x[0], bias)[None] if self._one else F.linear(x, weight, bias)

    def attend(self, q: Any, keys: Any, values: Any, spans: Any, scale: float) -> Any:
        """q (B, nh, 1, hs) against the rows of the cache that `spans` shows: (B, C)."""
        return self._attention(q, keys, values, spans, scale).flatten(1)


def attend(q: Any, keys: Any, values: Any, spans: Any, scale: float) -> Any:
    """Attention over the filled rows of a cache, for sizes of heads that no kernel of ours has: (B, 1, nh, hs)."""
    hidden = torch.arange(keys.shape[2], device=q.device) >= spans[:, 1, None]
    scores = (q.float() @ keys.float().mT * scale).masked_fill(hidden[:, None, None], -torch.inf)
    # what no query sees may hold anything, and 0 times NaN is NaN
    seen = values.float().masked_fill(hidden[:, None, :, None], 0.0)
    return (scores.softmax(-1) @ seen).transpose(1, 2).to(q.dtype)


class Layer:
    """One block of the model on the state's rows of the cache."""

    def __init__(self, weights: Weights, sizes: Sizes, config: GPT2Config, index: int, state: State) -> None:
        def of(name: str) -> Any:
            return weights[f"h.{index}.{name}"]

        def rows(name: str) -> tuple[Any, Any]:
            """A projection with an output a row, which is how gemv reads it."""
            return of(f"{name}.weight").t().contiguous(), of(f"{name}.bias")

        self.index, self.epsilon, self.scale = index, sizes.epsilon, config.scale(index)
        self.heads = sizes.heads
        self.ln_1, self.ln_2 = ((of(f"{name}.weight"), of(f"{name}.bias")) for name in ("ln_1", "ln_2"))
        self.c_attn, self.c_proj = rows("attn.c_attn"), rows("attn.c_proj")
        self.c_fc, self.mlp_proj = rows("mlp.c_fc"), rows("mlp.c_proj")
        self.keys, self.values = state.keys[index], state.values[index]

    @component("h.{self.index}")
    def run(self, x: Any, added: Any, step: Step) -> tuple[Any, Any]:
        """Take and return (x, what is still to be added to it), each (B, C)."""
        x, normed = self.norm_1(x, added, step.kernels)
        x, normed = self.norm_2(x, self.attention(normed, step), step.kernels)
        return x, self.mlp(normed, step.kernels)

    @component("ln_1")
    def norm_1(self, x: Any, added: Any, kernels: Kernels) -> tuple[Any, Any]:
        if added is None:
            return x, kernels.norm(x, *self.ln_1, self.epsilon)
        return kernels.add_norm(x, added, *self.ln_1, self.epsilon)

    @component("ln_2")
    def norm_2(self, x: Any, added: Any, kernels: Kernels) -> tuple[Any, Any]:
        return kernels.add_norm(x, added, *self.ln_2, self.epsilon)

    @component("attn")
    def attention(self, x: Any, step: Step) -> Any:
        qkv = self.qkv(x, step.kernels).unflatten(1, (3, self.heads, -1))
        self.append(qkv, step.state.position)
        return self.project(self.attend(qkv, step), step.kernels)

    @component("qkv")
    def qkv(self, x: Any, kernels: Kernels) -> Any:
        return kernels.linear(x, *self.c_attn)

    @component("append")
    def append(self, qkv: Any, position: Any) -> None:
        """Put k and v (B, nh, hs) into row `position` of the cache."""
        self.keys.index_copy_(2, position, qkv[:, 1, :, None])
        self.values.index_copy_(2, position, qkv[:, 2, :, None])

    @component("attend")
    def attend(self, qkv: Any, step: Step) -> Any:
        return step.kernels.attend(qkv[:, 0, :, None], self.keys, self.values, step.spans, self.scale)

    @component("proj")
    def project(self, x: Any, kernels: Kernels) -> Any:
        return kernels.linear(x, *self.c_proj)

    @component("mlp")
    def mlp(self, x: Any, kernels: Kernels) -> Any:
        return self.proj(self.act(self.fc(x, kernels), kernels), kernels)

    @component("fc")
    def fc(self, x: Any, kernels: Kernels) -> Any:
        return kernels.linear(x, *self.c_fc)

    @component("act")
    def act(self, x: Any, kernels: Kernels) -> Any:
        return kernels.gelu(x)

    @component("proj")
    def proj(self, x: Any, kernels: Kernels) -> Any:
        return kernels.linear(x, *self.mlp_proj)


class Step:
    """The step as a Program (kernels/decode/contract.py): a kernel an operation, some 130 a token."""

    root = "gpt2_step"
    most = 1

    def __init__(
        self, weights: Weights, sizes: Sizes, config: GPT2Config, state: State, sampling: Sampling, device: str
    ) -> None:
        self.state, self.sampling, self.epsilon = state, sampling, sizes.epsilon
        self.kernels = Kernels(sizes, device)
        self.layers = [Layer(weights, sizes, config, index, state) for index in range(sizes.layers)]
        self.wte, self.wpe = weights["wte.weight"], weights["wpe.weight"]
        self.ln_f = weights["ln_f.weight"], weights["ln_f.bias"]
        self.no_bias = torch.zeros(sizes.vocabulary, device=self.wte.device, dtype=self.wte.dtype)
        self.spans = _spans(sizes.batch, self.wte.device)
        self.generator = None if sampling.greedy else torch.Generator(self.wte.device).manual_seed(sampling.seed)
        self.logits: Any = None

    def modules(self) -> Iterator[object]:
        """What has ranges, for harness.ranges.attach."""
        yield self
        yield from self.layers

    def begin(self) -> None:
        """See Program: what the step counts on its own starts at the state's position."""
        self.spans[:, 1:2] = self.state.position + 1

    def launch(self, tokens: int) -> None:
        for _ in range(tokens):
            self.run()

    def trouble(self) -> str:
        return ""

    def phases(self) -> Sequence[Phase]:
        return ()

    @component("{self.root}")
    def run(self) -> None:
        """One token of every sequence."""
        x, added = self.embeddings(), None
        for layer in self.layers:
            x, added = layer.run(x, added, self)
        self.logits = self.lm_head(self.norm_f(x, added))
        self.choose(self.logits)

    @component("embeddings")
    def embeddings(self) -> Any:
        """The token's row and that of its position: (B, C)."""
        return self.kernels.encoder(self.state.token[:, None], self.wte, self.wpe.index_select(0, self.state.position))[
            :, 0
        ]

    @component("ln_f")
    def norm_f(self, x: Any, added: Any) -> Any:
        return self.kernels.add_norm(x, added, *self.ln_f, self.epsilon)[1]

    @component("lm_head")
    def lm_head(self, x: Any) -> Any:
        return self.kernels.linear(x, self.wte, self.no_bias)

    @component("choose")
    def choose(self, logits: Any) -> None:
        """Choose the next token, write it behind the others, and move on by one position."""
        state = self.state
        if self.sampling.greedy:
            torch.argmax(logits, dim=-1, out=state.token)
        else:
            state.token.copy_(sample(logits, self.sampling, self.generator))
        state.position.add_(1)
        self.spans[:, 1].add_(1)
        state.ids.index_copy_(1, state.position, state.token[:, None])


def _spans(batch: int, device: Any) -> Any:
    """(first, end, window) of each sequence, as op attention_decode_grouped takes them; `end` is set by `begin`."""
    from kernels.attention_grouped.op import NO_WINDOW

    return torch.tensor([[0, 1, NO_WINDOW]] * batch, dtype=torch.int32, device=device)


def sample(logits: Any, sampling: Sampling, generator: Any) -> Any:
    """Draw a token of each row of logits (B, V): (B,) int64.

    The largest of p / e with e from an exponential distribution is drawn with probability p. So nothing has to be
    counted on the host, which torch.multinomial does.
    """
    scaled = logits.float() / sampling.temperature
    if sampling.top:
        least = scaled.topk(min(sampling.top, logits.shape[-1])).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    noise = torch.empty_like(scaled).exponential_(generator=generator)
    return (scaled.softmax(-1) / noise).argmax(-1)
