"""Moods of a small crowd in JAX, sixty calls of a jitted function a step. a: 16 rounds inside, b: 8 (wins nothing)."""

import jax
import jax.numpy as jnp
import numpy as np

CROWD = 1 << 14
SAME = 1e-4


def build(form):
    @jax.jit
    def settled(mood):
        root = mood
        for _ in range(16 if form == "a" else 8):
            root = 0.5 * (root + mood / root)
        return 1 + 0.5 * root

    moods = jnp.asarray(1 + np.random.default_rng(0).random(CROWD, dtype=np.float32))

    def step(i):
        mood = moods
        for _ in range(60):
            mood = settled(mood)
        return mood

    return step
