"""Scores of candidates in JAX are sorted before only their mean is read. b: they are not sorted."""

import jax
import jax.numpy as jnp
import numpy as np

N, C, L = 4096, 4096, 6


def build(form):
    @jax.jit
    def scored(weights, x, others):
        for w in weights:
            x = jnp.dot(x, w)
        ranked = jnp.sort(others, axis=-1) if form == "a" else others
        return x, jnp.mean(ranked[:, : ranked.shape[1] // 2])

    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.standard_normal((C, C), dtype=np.float32) / 64, jnp.bfloat16) for _ in range(L)]
    x = jnp.asarray(rng.standard_normal((N, C), dtype=np.float32), jnp.bfloat16)
    others = jnp.asarray(rng.standard_normal((1024, 16384), dtype=np.float32))

    def step(i):
        return scored(weights, x, others)

    return step
