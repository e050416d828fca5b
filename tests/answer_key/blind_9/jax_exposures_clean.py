"""Clean: two exposures are merged by their weights in JAX, jitted into one kernel. Memory is the limit."""

import jax
import jax.numpy as jnp

SIDE = 32768


@jax.jit
def merged(dark, bright):
    share = jnp.clip(2 * dark - 0.5, 0, 1)
    return dark + share * (bright - dark)


def build(form):
    few = jax.random.uniform(jax.random.key(0), (1024, SIDE), jnp.float32)
    dark, bright = jnp.tile(few, (SIDE // 1024, 1)), jnp.tile(1 - few, (SIDE // 1024, 1))
    return lambda i: merged(dark, bright)
