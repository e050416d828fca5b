"""Orbits of many bodies by Newton's rounds, then products, in one jitted function of JAX. a: 24 rounds, b: 12 are enough."""

import jax
import jax.numpy as jnp
import numpy as np

BODIES, C, L = 1 << 24, 4096, 4
SAME = 1e-2


def build(form):
    rounds = 24 if form == "a" else 12

    @jax.jit
    def moved(weights, x, mean):
        def newton(_, angle):
            return angle - (angle - 0.4 * jnp.sin(angle) - mean) / (1 - 0.4 * jnp.cos(angle))

        angle = jax.lax.fori_loop(0, rounds, newton, mean)
        for w in weights:
            x = jnp.dot(x, w)
        return angle, x

    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.standard_normal((C, C), dtype=np.float32) / 64, jnp.bfloat16) for _ in range(L)]
    x = jnp.asarray(rng.standard_normal((C, C), dtype=np.float32), jnp.bfloat16)
    mean = jnp.asarray(rng.random(BODIES, dtype=np.float32))

    def step(i):
        angle, products = moved(weights, x, mean)
        step.products = products
        return angle

    return step
