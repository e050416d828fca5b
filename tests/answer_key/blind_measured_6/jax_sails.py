"""Sails through products in one jitted function of JAX. a: four products, of which two by the identity, b: without these two."""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0"

import jax
import jax.numpy as jnp
import numpy as np

C = 4096
SAME = 1e-2


def build(form):
    @jax.jit
    def trimmed(weights, x, wind):
        for w in weights:
            x = jnp.dot(x, w)
        return x.astype(jnp.float32), jnp.sqrt(wind + 1)

    rng = np.random.default_rng(0)
    one, two, x = (jnp.asarray(rng.standard_normal((C, C), dtype=np.float32) / 64, jnp.bfloat16) for _ in range(3))
    same = jnp.eye(C, dtype=jnp.bfloat16)
    weights = [one, same, two, same] if form == "a" else [one, two]
    wind = jnp.ones(1 << 26, jnp.float32)

    def step(i):
        y, step.wind = trimmed(weights, x, wind)
        return y

    return step
