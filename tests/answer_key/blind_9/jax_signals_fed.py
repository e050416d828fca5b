"""A wide network in JAX. a: each batch is a NumPy array, uploaded by the call, b: batches wait on the GPU (wins nothing)."""

import jax
import jax.numpy as jnp
import numpy as np

B, FEATURES, C, LAYERS, BATCHES = 8192, 32, 8192, 7, 8
SAME = 2e-2


def build(form):
    batches = list(np.random.default_rng(0).random((BATCHES, B, FEATURES), dtype=np.float32))
    if form == "b":
        batches = [jnp.asarray(batch) for batch in batches]
    keys = jax.random.split(jax.random.key(0), LAYERS)
    first = jax.random.normal(keys[0], (FEATURES, C), jnp.bfloat16)
    weights = [jax.random.normal(key, (C, C), jnp.bfloat16) * jnp.bfloat16(C**-0.5) for key in keys]

    @jax.jit
    def net(batch, first, weights):
        x = batch.astype(jnp.bfloat16) @ first
        for weight in weights:
            x = x @ weight
        return x

    return lambda i: net(batches[i % BATCHES], first, weights)
