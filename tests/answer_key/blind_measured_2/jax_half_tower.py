"""A tower of products in JAX. a: twelve layers, b: six."""

import jax
import jax.numpy as jnp
import numpy as np

N, C = 4096, 4096


def build(form):
    @jax.jit
    def tower(weights, x):
        for w in weights:
            x = jnp.dot(x, w)
        return x

    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.standard_normal((C, C), dtype=np.float32) / 64, jnp.bfloat16) for _ in range(12)]
    weights = weights if form == "a" else weights[:6]
    x = jnp.asarray(rng.standard_normal((N, C), dtype=np.float32), jnp.bfloat16)
    return lambda i: tower(weights, x)
