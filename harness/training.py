"""Run a training step of GPT-2 with ranges for profilers: forward, loss, backward, AdamW.

Ranges: gpt2_train > forward > (embeddings, h.N > …, ln_f, lm_head), loss, backward > h.N, optimizer. The backward pass
runs on the calling thread, so its kernels lie in its range. There is no KV cache.
"""

import copy
import functools
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  the name everybody knows
from torch.utils.checkpoint import checkpoint

from harness.gpt2 import GPT2, KVCache
from harness.ranges import Tracer, component
from harness.workloads import Workload

ROOT = "gpt2_train"
LEARNING_RATE = 1e-4


class NoCache(KVCache):
    """Stand in for a KV cache: keep nothing, so autograd sees no in-place write.

    Shape   future (T, T) bool, true above the diagonal
    """

    def __init__(self, tokens: int, device: Any) -> None:
        self.future = torch.ones(tokens, tokens, device=device, dtype=torch.bool).triu(1)
        self.length = 0

    def append(self, layer: int, k: Any, v: Any) -> tuple[Any, Any]:
        """Return the keys and values unchanged."""
        return k, v

    def split(self, layer: int, qkv: Any, contiguous: bool = False) -> None:
        """Return None: there are no rows to write."""


class Trainer(nn.Module):  # type: ignore[misc]
    """A model with its optimizer; `step` is one training step.

    checkpointed   keep only the input of each block, and recompute its activations during the backward pass
    autocast       run products in bfloat16, over weights in float32
    compiled       put forward pass and loss behind torch.compile, as one range. `attach` does not see the model
                   then: it would give each block another class, and the compiler would start again
    fused          AdamW as one kernel for many tensors (on a GPU), not one for each operation
    root           name of the step's range
    """

    def __init__(
        self,
        model: GPT2,
        checkpointed: bool = False,
        *,
        autocast: bool = False,
        compiled: bool = False,
        fused: bool = True,
        root: str = ROOT,
    ) -> None:
        super().__init__()
        whole = copy.deepcopy(model).requires_grad_(True).train()
        if compiled:
            object.__setattr__(self, "model", whole)
        else:
            self.model, self.h = whole, whole.h
        self.config, self.root = model.config, root
        self.checkpointed, self.autocast, self.is_compiled = checkpointed, autocast, compiled
        on_gpu = self.model.wte.weight.is_cuda
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=LEARNING_RATE, fused=on_gpu and fused, foreach=False if not fused else None
        )
        if compiled:
            self._compiled = torch.compile(functools.partial(_loss_of, whole, checkpointed), dynamic=False)

    @component("{self.root}")
    def step(self, ids: Any, targets: Any, cache: NoCache) -> Any:
        """Train on token ids (B, T) with next tokens `targets` (B, T), and return the loss before the update."""
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=self.autocast):
            loss = self.loss_of(ids, targets, cache)
        self.backward(loss)
        self.update()
        return loss.detach()

    def loss_of(self, ids: Any, targets: Any, cache: NoCache) -> Any:
        """Run the forward pass, and return the loss."""
        if self.is_compiled:
            return self.forward_loss(ids, targets, cache)
        return self.loss(self.forward(ids, cache), targets)

    @component("forward_loss")
    def forward_loss(self, ids: Any, targets: Any, cache: NoCache) -> Any:
        return self._compiled(ids, targets, cache)

    def trace_backward(self, tracer: Tracer) -> None:
        """Open a range h.N around each block's part of the backward pass."""
        for number, block in enumerate(self.model.h):
            name = f"h.{number}"
            block.register_full_backward_pre_hook(lambda *_, name=name: tracer.push(name))
            block.register_full_backward_hook(lambda *_: tracer.pop())

    @component("forward")
    def forward(self, ids: Any, cache: NoCache) -> Any:
        """Logits (B, T, V)."""
        return _logits(self.model, self.checkpointed, ids, cache)

    @component("loss")
    def loss(self, logits: Any, targets: Any) -> Any:
        return _loss(logits, targets)

    @component("backward")
    def backward(self, loss: Any) -> None:
        with torch.autograd.set_multithreading_enabled(False):
            loss.backward()

    @component("optimizer")
    def update(self) -> None:
        """Update the weights with AdamW, then free the gradients."""
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def _logits(model: GPT2, checkpointed: bool, ids: Any, cache: NoCache) -> Any:
    x = model.embeddings(ids, cache)
    for block in model.h:
        x = checkpoint(block, x, cache, use_reentrant=False) if checkpointed else block(x, cache)
    return model.lm_head(model.norm_f(x))


def _loss(logits: Any, targets: Any) -> Any:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _loss_of(model: GPT2, checkpointed: bool, ids: Any, targets: Any, cache: NoCache) -> Any:
    return _loss(_logits(model, checkpointed, ids, cache), targets)


class TrainingStep:
    """One training step on fixed tokens that can run many times. The model learns these tokens."""

    def __init__(self, model: GPT2, workload: Workload, seed: int, checkpointed: bool = False, **how: Any) -> None:
        self.model, self.workload = Trainer(model, checkpointed, **how), workload
        device = model.wte.weight.device
        generator = torch.Generator().manual_seed(seed)
        shape = (workload.batch, workload.tokens + 1)
        tokens = torch.randint(model.config.vocab_size, shape, generator=generator).to(device)
        self.ids, self.targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        self.cache = NoCache(workload.tokens, device)

    @property
    def range(self) -> str:
        return self.workload.range_under(self.model.root)

    def reset(self) -> None:
        """Do nothing: a step changes only the weights."""

    def run(self) -> Any:
        with torch.enable_grad():
            return self.model.step(self.ids, self.targets, self.cache)
