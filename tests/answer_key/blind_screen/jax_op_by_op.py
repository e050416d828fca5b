"""An epidemic model in JAX. a: each operation is dispatched by itself, b: the step is jitted."""

import jax
import jax.numpy as jnp

N = 65536


def advance(state, rate):
    healthy, ill, well = state
    new = rate * healthy * ill / (healthy + ill + well)
    back = 0.1 * ill
    noise = 1e-3 * jnp.sin(healthy + 3 * ill)
    healthy, ill, well = healthy - new + noise, ill + new - back, well + back - noise
    return jnp.clip(healthy, 1e-3, 1e3), jnp.clip(ill, 1e-3, 1e3), jnp.clip(well, 1e-3, 1e3)


def build(form):
    function = jax.jit(advance) if form == "b" else advance
    state = [tuple(jnp.full(N, value, jnp.float32) for value in (0.9, 0.1, 0.01))]

    def step(i):
        for _ in range(2):
            state[0] = function(state[0], 0.3)
        return state[0]

    return step
