"""Run GPT-2 with tinygrad: a cache of fixed size, a symbolic position, and TinyJit around the step.

The model follows tinygrad's examples: the step assigns its keys and values to the cache. BEAM is off unless the
environment sets it. The weights are those of the other rungs. tinygrad is an optional package: without it, the rung
`tinygrad` says how to install it.
"""

import ctypes
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

os.environ.pop("PYTHON", None)  # a program to our scripts, a number to tinygrad, which reads it now
from tinygrad import Tensor, TinyJit, UOp, dtypes

from harness.gpt2 import GPT2Config


@contextmanager
def own_context(on_gpu: bool) -> Iterator[None]:
    """Give PyTorch its CUDA context back behind the block: tinygrad makes one of its own the thread's."""
    if not on_gpu:
        yield
        return
    driver, before = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    driver.cuCtxGetCurrent(ctypes.byref(before))
    try:
        yield
    finally:
        driver.cuCtxSetCurrent(before)


class Model:
    """GPT-2 at batch 1 with a cache for `capacity` tokens."""

    def __init__(self, state: Mapping[str, Any], config: GPT2Config, dtype: str, capacity: int) -> None:
        kind = getattr(dtypes, dtype)
        self.config, self.capacity = config, capacity
        self.weights = {name: Tensor(value.float().numpy()).cast(kind).realize() for name, value in state.items()}
        shape = (2, 1, config.n_head, capacity, config.head_size)
        self.caches = [Tensor.zeros(*shape, dtype=kind).contiguous().realize() for _ in range(config.n_layer)]
        self.step = TinyJit(self.forward)
        self.place = UOp.variable("place", 1, capacity - 1)

    def _norm(self, x: Any, name: str) -> Any:
        normed = x.layernorm(eps=self.config.layer_norm_epsilon)
        return normed * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def _project(self, x: Any, name: str) -> Any:
        return x.dot(self.weights[f"{name}.weight"]) + self.weights[f"{name}.bias"]

    def _attend(self, x: Any, layer: int, place: Any) -> Any:
        tokens, heads = x.shape[1], self.config.n_head
        qkv = self._project(x, f"h.{layer}.attn.c_attn").reshape(1, tokens, 3, heads, self.config.head_size)
        q, k, v = (qkv[:, :, part].transpose(1, 2) for part in range(3))
        cache = self.caches[layer]
        cache[:, :, :, place : place + tokens, :].assign(Tensor.stack(k, v)).realize()
        keys, values = (cache[part, :, :, 0 : place + tokens, :] for part in range(2))
        mask = None
        if tokens > 1:
            mask = Tensor.full((1, 1, tokens, tokens), float("-inf"), dtype=x.dtype).triu(1)
        out = q.scaled_dot_product_attention(keys, values, attn_mask=mask)
        return self._project(out.transpose(1, 2).reshape(1, tokens, -1), f"h.{layer}.attn.c_proj")

    def forward(self, ids: Any, place: Any) -> Any:
        """Return the next token (1, 1) after `ids` (1, T), whose first token has position `place`."""
        tokens = ids.shape[1]
        places = Tensor.arange(self.capacity).reshape(1, -1)[:, place : place + tokens]
        x = self.weights["wte.weight"][ids] + self.weights["wpe.weight"][places]
        for layer in range(self.config.n_layer):
            x = x + self._attend(self._norm(x, f"h.{layer}.ln_1"), layer, place)
            inner = self._project(self._norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc").gelu()
            x = x + self._project(inner, f"h.{layer}.mlp.c_proj")
        logits = self._norm(x[:, -1:], "ln_f").dot(self.weights["wte.weight"].transpose())
        return logits.argmax(-1).realize()


class Tinygrad:
    """Time a generation token by token: the host reads each token before it starts the next step."""

    def __init__(self, state: Mapping[str, Any], config: GPT2Config, dtype: str, prompt: Any, tokens: int) -> None:
        self._length, self._tokens, self._on_gpu = prompt.shape[1], tokens, prompt.is_cuda
        with own_context(self._on_gpu):
            self._prompt = Tensor(prompt.cpu().numpy())
            self._model = Model(state, config, dtype, config.n_positions)
        self.generate()  # TinyJit records its graph at the second call of the step

    def generate(self) -> tuple[list[int], list[int]]:
        """Return the tokens after the prompt, and the time in ns at which the host read each."""
        with own_context(self._on_gpu):
            return self._generate()

    def _generate(self) -> tuple[list[int], list[int]]:
        token = self._model.forward(self._prompt, 0)
        found, stamps = [int(token.item())], [time.perf_counter_ns()]
        for at in range(self._length, self._length + self._tokens):
            token = self._model.step(token.clone().realize(), self._model.place.bind(at))
            found.append(int(token.item()))
            stamps.append(time.perf_counter_ns())
        return found, stamps

    def token_ns(self) -> float:
        """Return the mean time in ns of a token after the first."""
        return float(np.diff(self.generate()[1]).mean())

    def start(self) -> None:
        """Do nothing: `step` begins with the prompt."""

    def step(self) -> None:
        """Run a whole generation."""
        self.generate()

    def seen_ns(self) -> float | None:
        """Return None: `token_ns` already waits for each token."""
        return None
