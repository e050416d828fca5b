"""Run steps of a GPT with ranges: a compiled forward pass, GPT-2 of transformers, training in JAX, training of two ranks.

Run        python tests/samples/gpt_steps.py compiled|gpt2|jax [STEPS [WARM]]
           python -m torch.distributed.run --standalone --nproc-per-node 2 tests/samples/gpt_steps.py ddp [STEPS [WARM]]

The window (cudaProfilerStart) holds STEPS steps, after WARM others. Their bytes in it are a table of the harness.
"""

import os
import sys
from contextlib import contextmanager, nullcontext

FORM, STEPS, WARM = sys.argv[1], *(int(word) for word in [*sys.argv[2:], "100", "10"][:2])
TINY = os.environ.get("GPT_STEPS_TINY")  # on the CPU, to test this file
LAYERS, WIDTH, HEADS, TOKENS, BATCH, WORDS = (2, 64, 4, 16, 2, 128) if TINY else (3, 1024, 16, 512, 8, 16384)
RANK = int(os.environ.get("LOCAL_RANK", "0"))


def torch_step():
    """Return a function that runs a step of the three forms in PyTorch, and one that waits for the GPU."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

    device = "cpu" if TINY else f"cuda:{RANK}"
    if not TINY:
        torch.cuda.set_device(RANK)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            heads = self.qkv(self.first(x)).unflatten(-1, (3 * HEADS, -1)).transpose(1, 2).chunk(3, 1)
            x = x + self.out(scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
            return x + self.down(gelu(self.up(self.second(x))))

    torch.manual_seed(0)
    blocks = (Block() for _ in range(LAYERS))
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS))
    if FORM == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=4) if TINY else GPT2Config()).eval()
    model = model.to(device, torch.bfloat16)
    ids = torch.randint(WORDS, (BATCH, TOKENS + 1), device=device)
    if FORM != "ddp":
        run = torch.compile(model, dynamic=False) if FORM == "compiled" else lambda x: model(x).logits
        return torch.no_grad()(lambda: run(ids[:, :-1])), torch.cuda.synchronize
    torch.distributed.init_process_group("gloo" if TINY else "nccl")
    model = nn.parallel.DistributedDataParallel(model, None if TINY else [RANK])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step():
        with span("forward"):
            loss = cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        with span("backward"):
            loss.backward()
        with span("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    return step, torch.cuda.synchronize


def jax_step():
    """Return a function that runs a training step in JAX, and one that waits for the GPU."""
    import jax
    from jax import numpy as jnp

    def norm(x):
        wide = x.astype(jnp.float32)
        return ((wide - wide.mean(-1, keepdims=True)) / (wide.std(-1, keepdims=True) + 1e-5)).astype(x.dtype)

    def loss_of(weights, ids):
        x = weights["embed"][ids[:, :-1]]
        for qkv, out, up, down in weights["blocks"]:
            q, k, v = jnp.split((norm(x) @ qkv).reshape(BATCH, TOKENS, 3 * HEADS, -1), 3, 2)
            x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ out
            x = x + jax.nn.gelu(norm(x) @ up) @ down
        logits = jax.nn.log_softmax((norm(x) @ weights["embed"].T).astype(jnp.float32))
        return -jnp.take_along_axis(logits, ids[:, 1:, None], -1).mean()

    @jax.jit
    def train(weights, moments, ids):
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, jax.grad(loss_of)(weights, ids))
        return jax.tree.map(lambda w, m: w - 1e-3 * m, weights, moments), moments

    keys = iter(jax.random.split(jax.random.key(0), 4 * LAYERS + 2))
    new = lambda *shape: 0.02 * jax.random.normal(next(keys), shape, jnp.bfloat16)  # noqa: E731
    shapes = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
    weights = {"embed": new(WORDS, WIDTH), "blocks": [tuple(new(*shape) for shape in shapes) for _ in range(LAYERS)]}
    ids = jax.random.randint(next(keys), (BATCH, TOKENS + 1), 0, WORDS)
    state = [weights, jax.tree.map(jnp.zeros_like, weights)]

    def step():
        state[:] = train(*state, ids)

    return step, lambda: jax.block_until_ready(state)


@contextmanager
def span(name):
    """Open a range of the profilers around the block."""
    import nvtx

    with nullcontext() if TINY else nvtx.annotate(name):
        yield


step, wait = jax_step() if FORM == "jax" else torch_step()
wait = (lambda: None) if TINY and FORM != "jax" else wait
for _ in range(WARM):
    step()
wait()
if not TINY:
    from cuda.bindings import runtime

    runtime.cudaProfilerStart()
for _ in range(STEPS):
    with span("step"):
        step()
wait()
if not TINY:
    runtime.cudaProfilerStop()
