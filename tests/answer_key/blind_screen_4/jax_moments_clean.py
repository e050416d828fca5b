"""Adam's update of a large vector in JAX, jitted and donated, at the DRAM roof: nothing is worth doing."""

from functools import partial

import jax
import jax.numpy as jnp

N = 1 << 27


@partial(jax.jit, donate_argnums=(0, 1, 2))
def update(weight, mean, square, grad):
    mean = 0.9 * mean + 0.1 * grad
    square = 0.99 * square + 0.01 * grad * grad
    return weight - 1e-3 * mean / (jnp.sqrt(square) + 1e-8), mean, square


def build(form):
    held = [jnp.ones(N, jnp.float32), jnp.zeros(N, jnp.float32), jnp.zeros(N, jnp.float32)]
    grad = jnp.full(N, 0.1, jnp.float32)

    def step(i):
        held[:] = update(*held, grad)
        return held[0]

    return step
