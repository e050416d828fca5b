"""Tone mapping of large pictures in JAX. a: operation by operation, b: jitted."""

import jax
import jax.numpy as jnp
import numpy as np

PICTURES, SIDE = 4, 2048


def tonemap(light):
    gray = light * 0.6
    curve = (gray * (2.51 * gray + 0.03)) / (gray * (2.43 * gray + 0.59) + 0.14)
    return jnp.sqrt(jnp.minimum(curve, 1.0)) * 255.0


def build(form):
    light = jnp.asarray(np.random.default_rng(0).random((PICTURES, SIDE, SIDE, 3), dtype=np.float32))
    function = jax.jit(tonemap) if form == "b" else tonemap
    return lambda i: function(light)
