"""Correlation of series at a growing lag in JAX. a: the lag is a static argument, so each one compiles, b: a traced one."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

SERIES, LENGTH, WINDOW = 64, 8192, 4096
lags = itertools.count(1)


@partial(jax.jit, static_argnums=1)
def lagged_static(x, lag):
    return jnp.tanh(x[:, :WINDOW] @ x[:, lag : lag + WINDOW].T)


@jax.jit
def lagged_traced(x, lag):
    return jnp.tanh(x[:, :WINDOW] @ jax.lax.dynamic_slice_in_dim(x, lag, WINDOW, 1).T)


def build(form):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((SERIES, LENGTH), dtype=np.float32))
    function = lagged_static if form == "a" else lagged_traced

    def step(i):
        return function(x, next(lags) % 4000)

    return step
