"""Run one decode step of GPT-2 that reads the token and the position from device memory, and no value from the host.

The host can launch the step kernel by kernel (engine `eager`), or record it once in a CUDA graph and replay the graph
for every token (engine `graph`). On the CPU the same step runs with PyTorch's operations instead of our kernels.

Ranges: gpt2_step > embeddings, h.N > (ln_1, attn > (qkv, append, attend, proj), ln_2, mlp > (fc, act, proj)), ln_f,
lm_head, choose. The range of a layernorm includes the residual addition before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812  the name everybody knows

from harness.gpt2 import GPT2Config
from harness.ranges import component
from kernels.decode.contract import Phase, Sampling, Sizes, State
from kernels.gemv.op import argmax
from kernels.registry import ops

Weights = Mapping[str, Any]
_GROUPED = "attention_decode_grouped"
STEP_KERNELS = ("encoder", "layernorm", "residual_layernorm", "gelu", "gemv", _GROUPED)


def best_kernel(op: str, device: str, dtype: str) -> Callable[..., Any]:
    """Return the best variant of `op` for `dtype`: on a GPU the kernel's own function, elsewhere the custom op.

    On the GPU this saves host time at each call: a custom op's Python code checks and converts its operands.
    The step makes its operands itself, so they need neither.
    """
    declared = ops()[op]
    name = declared.best_for(dtype)
    return declared.variant(name).fn if device == "cuda" else declared.call(name)


class Kernels:
    """The operations of a step, chosen for one device and dtype."""

    def __init__(self, sizes: Sizes, device: str) -> None:
        from kernels.attention_grouped.op import HEAD_SIZES

        self.encoder = best_kernel("encoder", device, sizes.dtype)
        self.norm = best_kernel("layernorm", device, sizes.dtype)
        self.add_norm = best_kernel("residual_layernorm", device, sizes.dtype)
        self.gelu = best_kernel("gelu", device, sizes.dtype)
        self._gemv = best_kernel("gemv", device, sizes.dtype)
        self._attention = best_kernel(_GROUPED, device, sizes.dtype) if sizes.head_size in HEAD_SIZES else attend
        self._one = sizes.batch == 1
        self._on_gpu = device == "cuda"

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        """Return x (B, K) @ weight (N, K) transposed + bias (N): (B, N). Batch 1 takes op gemv."""
        return self._gemv(weight, x[0], bias)[None] if self._one else F.linear(x, weight, bias)

    def argmax(self, values: Any, out: Any) -> None:
        """Write the position of each row's largest value to `out` (B): values (B, N)."""
        if self._on_gpu:
            argmax(values, out)
        else:
            torch.argmax(values, dim=-1, out=out)

    def attend(self, q: Any, keys: Any, values: Any, spans: Any, scale: float) -> Any:
        """Attend with q (B, nh, 1, hs) to the rows of keys and values that `spans` (B, 3) selects: (B, C)."""
        return self._attention(q, keys, values, spans, scale).flatten(1)


def attend(q: Any, keys: Any, values: Any, spans: Any, scale: float) -> Any:
    """Attend to the filled rows of a cache with PyTorch's operations, for head sizes that our kernel does not support.

    Shape   q (B, nh, 1, hs); keys, values (B, nh, capacity, hs); spans (B, 3), of which column 1 is the number of
            filled rows. Returns (B, 1, nh, hs).
    """
    hidden = torch.arange(keys.shape[2], device=q.device) >= spans[:, 1, None]
    scores = (q.float() @ keys.float().mT * scale).masked_fill(hidden[:, None, None], -torch.inf)
    # a hidden row may hold anything, and 0 times NaN is NaN
    seen = values.float().masked_fill(hidden[:, None, :, None], 0.0)
    return (scores.softmax(-1) @ seen).transpose(1, 2).to(q.dtype)


class Layer:
    """One transformer block; its keys and values are views of the state's cache."""

    def __init__(self, weights: Weights, sizes: Sizes, config: GPT2Config, index: int, state: State) -> None:
        def of(name: str) -> Any:
            return weights[f"h.{index}.{name}"]

        def rows(name: str) -> tuple[Any, Any]:
            """Return a projection as weight (N, K) and bias (N): gemv reads one output's weights per row."""
            return of(f"{name}.weight").t().contiguous(), of(f"{name}.bias")

        self.index, self.epsilon, self.scale = index, sizes.epsilon, config.scale(index)
        self.heads = sizes.heads
        self.ln_1, self.ln_2 = ((of(f"{name}.weight"), of(f"{name}.bias")) for name in ("ln_1", "ln_2"))
        self.c_attn, self.c_proj = rows("attn.c_attn"), rows("attn.c_proj")
        self.c_fc, self.mlp_proj = rows("mlp.c_fc"), rows("mlp.c_proj")
        self.keys, self.values = state.keys[index], state.values[index]

    @component("h.{self.index}")
    def run(self, x: Any, added: Any, step: Step) -> tuple[Any, Any]:
        """Run the block. Take and return the residual stream `x` and `added`, each (B, C).

        The next layernorm adds `added` to `x`. The first block takes None for `added`.
        """
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
        """Write k and v of `qkv` (B, 3, nh, hs) into row `position` (1,) of the cache."""
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
    """The step as a Program (kernels/decode/contract.py): one kernel an operation, about 130 a token for 12 layers."""

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
        """Yield the objects that have components, for harness.ranges.attach."""
        yield self
        yield from self.layers

    def begin(self) -> None:
        """Let each sequence's span end behind the state's position, so that the next step sees its own row."""
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
        """Decode one token of every sequence."""
        x, added = self.embeddings(), None
        for layer in self.layers:
            x, added = layer.run(x, added, self)
        self.logits = self.lm_head(self.norm_f(x, added))
        self.choose(self.logits)

    @component("embeddings")
    def embeddings(self) -> Any:
        """Return the sum of each token's embedding and its position's: (B, C)."""
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
        """Choose the next tokens from `logits` (B, V), write them behind the others, and add 1 to the position."""
        state = self.state
        if self.sampling.greedy:
            self.kernels.argmax(logits, state.token)
        else:
            state.token.copy_(sample(logits, self.sampling, self.generator))
        state.position.add_(1)
        self.spans[:, 1].add_(1)
        state.ids.index_copy_(1, state.position, state.token[:, None])


def _spans(batch: int, device: Any) -> Any:
    """Return (first, end, window) of each sequence, (B, 3), for op attention_decode_grouped. `begin` sets `end`."""
    from kernels.attention_grouped.op import NO_WINDOW

    return torch.tensor([[0, 1, NO_WINDOW]] * batch, dtype=torch.int32, device=device)


def sample(logits: Any, sampling: Sampling, generator: Any) -> Any:
    """Draw a token from each row of logits (B, V): (B,) int64.

    The argmax of p / e, with each e drawn from an exponential distribution, is a token with its probability p. No value
    goes to the host, so a CUDA graph can record this.
    """
    scaled = logits.float() / sampling.temperature
    if sampling.top:
        least = scaled.topk(min(sampling.top, logits.shape[-1])).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    noise = torch.empty_like(scaled).exponential_(generator=generator)
    return (scaled.softmax(-1) / noise).argmax(-1)
