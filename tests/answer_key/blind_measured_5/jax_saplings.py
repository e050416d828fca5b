"""Roots of saplings and products, in one jitted function of JAX. a: twelve products, b: six; the roots stay."""

import jax
import jax.numpy as jnp
import numpy as np

N, C = 1 << 24, 4096
SAME = 1e-4


def build(form):
    @jax.jit
    def grown(weights, x, sapling):
        root = sapling
        for _ in range(40):
            root = sapling / (2 + root)
        for w in weights:
            x = jnp.dot(x, w)
        return root, x

    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.standard_normal((C, C), dtype=np.float32) / 64, jnp.bfloat16) for _ in range(12)]
    weights = weights if form == "a" else weights[:6]
    x = jnp.asarray(rng.standard_normal((C, C), dtype=np.float32), jnp.bfloat16)
    sapling = jnp.asarray(1 + rng.random(N, dtype=np.float32))

    def step(i):
        root, step.products = grown(weights, x, sapling)
        return root

    return step
