"""Clean: a field that relaxes to another one, in JAX, in one kernel on a donated field. Memory is the limit."""

import functools

import jax
import jax.numpy as jnp

N = 1 << 28


@functools.partial(jax.jit, donate_argnums=0)
def relaxed(field, goal):
    return 0.9 * field + 0.1 * jnp.maximum(goal, field)


def build(form):
    field, goal = (jax.random.uniform(jax.random.PRNGKey(k), (N,), jnp.float32) for k in range(2))

    def step(i):
        nonlocal field
        field = relaxed(field, goal)
        return field

    return step
