"""Large products in JAX, dispatched one by one (b: all of them jitted; wins nothing: the GPU is the limit)."""

import jax
import jax.numpy as jnp

N, COUNT = 8192, 4
SAME = 2e-2


def build(form):
    keys = jax.random.split(jax.random.key(0), COUNT)
    weights = [jax.random.normal(key, (N, N), jnp.bfloat16) * jnp.bfloat16(N**-0.5) for key in keys]

    def products(x):
        for weight in weights:
            x = jnp.matmul(x, weight)
        return x

    made = products if form == "a" else jax.jit(products)
    return lambda i: made(weights[-1])
