"""A long product in JAX whose small state is not donated (b: donated; wins nothing: the product is the limit)."""

import jax
import jax.numpy as jnp
import numpy as np

N = 8192


def build(form):
    rng = np.random.default_rng(0)
    weight = jnp.asarray(rng.standard_normal((N, N), dtype=np.float32) / N**0.5, jnp.bfloat16)
    x = jnp.asarray(rng.standard_normal((N, N), dtype=np.float32), jnp.bfloat16)
    kept = [jnp.zeros(N, jnp.float32)]

    def advanced(mean, x, weight):
        y = x @ weight
        return 0.9 * mean + 0.1 * y.mean(0).astype(jnp.float32)

    made = jax.jit(advanced, donate_argnums=(0,) if form == "b" else ())

    def step(i):
        kept[0] = made(kept[0], x, weight)
        return kept[0]

    return step
