"""A Gaussian process in JAX that asks for the highest precision of products. a: in all of them, b: the default one."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

N, C = 4096, 1024


@partial(jax.jit, static_argnums=2)
def kernel(x, y, precision):
    squares = (x * x).sum(1)[:, None] + (y * y).sum(1)[None]
    values = jnp.exp(-1e-3 * (squares - 2 * jnp.matmul(x, y.T, precision=precision)))
    return jnp.matmul(values, y, precision=precision)


def build(form):
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.standard_normal((N, C), dtype=np.float32)) for _ in "xy")
    return lambda i: kernel(x, y, "highest" if form == "a" else None)
