"""Large products in bfloat16 in one jitted JAX function, without waits: nothing is worth doing."""

import jax
import jax.numpy as jnp

B, C, L = 16384, 8192, 3


@jax.jit
def forward(weights, x):
    for weight in weights:
        x = jax.nn.relu(x @ weight)
    return x


def build(form):
    keys = jax.random.split(jax.random.key(0), L + 1)
    weights = [jax.random.normal(key, (C, C), jnp.bfloat16) * 0.015 for key in keys[:L]]
    x = jax.random.normal(keys[L], (B, C), jnp.bfloat16)
    return lambda i: forward(weights, x)
