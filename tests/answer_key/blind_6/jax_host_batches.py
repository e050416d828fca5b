"""Inference in JAX on batches that NumPy disturbs. a: products in float32, b: in bfloat16 (wins nothing: the host is the limit)."""

import jax
import jax.numpy as jnp
import numpy as np

B, INTO, C, LAYERS = 2048, 512, 4096, 4


def build(form):
    rng = np.random.default_rng(0)
    kind = jnp.float32 if form == "a" else jnp.bfloat16
    shapes = [(INTO, C)] + [(C, C)] * LAYERS
    weights = [jnp.asarray(rng.standard_normal(shape, dtype=np.float32) * 0.02, kind) for shape in shapes]
    base = rng.standard_normal((B, INTO), dtype=np.float32)

    @jax.jit
    def answered(weights, x):
        x = x.astype(kind)
        for weight in weights:
            x = jnp.maximum(x @ weight, 0)
        return x.sum(1)

    def step(i):
        batch = np.roll(base, i % 7, 1) + 0.1 * rng.standard_normal(base.shape)  # of float64, as NumPy draws it
        return answered(weights, batch.astype(np.float32))

    return step
