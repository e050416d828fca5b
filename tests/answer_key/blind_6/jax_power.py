"""The largest eigenvalue by power iteration in JAX. a: a Python loop asks for the change after each iteration, b: one jit of all."""

import jax
import jax.numpy as jnp
import numpy as np

N, MOST = 2048, 50


def once(matrix, vector):
    new = matrix @ vector
    new = new / jnp.linalg.norm(new)
    return new, jnp.abs(new - vector).max()


def build(form):
    rng = np.random.default_rng(0)
    matrix = jnp.asarray(rng.standard_normal((N, N), dtype=np.float32))
    first = jnp.ones(N, jnp.float32)
    iterated = jax.jit(once)

    @jax.jit
    def all_at_once(matrix, vector):
        return jax.lax.fori_loop(0, MOST, lambda _, found: once(matrix, found[0]), (vector, jnp.float32(0)))

    def step(i):
        if form == "b":
            return all_at_once(matrix, first)
        vector = first
        for _ in range(MOST):
            vector, change = iterated(matrix, vector)
            if float(change) < 1e-12:  # is not reached
                break
        return vector

    return step
