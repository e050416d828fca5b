"""Means of long float32 records in JAX. a: added in double precision, b: in single (wins nothing: memory is the limit)."""

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

RECORDS, N = 131072, 16384
SAME = 1e-3


def build(form):
    few = jax.random.uniform(jax.random.key(0), (1024, N), jnp.float32)
    records = jnp.tile(few, (RECORDS // 1024, 1))
    wide = jnp.float64 if form == "a" else jnp.float32

    @jax.jit
    def means(records):
        return (records.astype(wide).sum(1) / N).astype(jnp.float32)

    return lambda i: means(records)
