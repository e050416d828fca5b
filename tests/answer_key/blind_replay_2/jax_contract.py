"""Contraction of a tensor network in JAX. a: products with precision "highest", b: with the default, TF32."""

import jax
import jax.numpy as jnp
import numpy as np

N, C, L = 8192, 1024, 6


def build(form):
    @jax.jit
    def contract(sites, x):
        for site in sites:
            x = jnp.dot(x, site, precision="highest" if form == "a" else "default")
            x = x / jnp.sqrt(jnp.sum(x * x, axis=1, keepdims=True) + 1e-6)
        return x

    rng = np.random.default_rng(0)
    sites = [jnp.asarray(rng.standard_normal((C, C), dtype=np.float32)) for _ in range(L)]
    x = jnp.asarray(rng.standard_normal((N, C), dtype=np.float32))
    return lambda i: contract(sites, x)
