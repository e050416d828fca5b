"""Shading in JAX with moving lights. a: each light is a dict of NumPy arrays, uploaded one by one, b: all of them are one array."""

import jax
import jax.numpy as jnp
import numpy as np

LIGHTS, SIDE = 32, 2048
SAME = 1e-3


def shade(places, colours):
    y, x = jnp.arange(SIDE)[:, None] / SIDE, jnp.arange(SIDE)[None] / SIDE
    total = jnp.zeros((SIDE, SIDE), jnp.float32)
    for place, colour in zip(places, colours, strict=True):
        total += colour[0] / (0.01 + (x - place[0]) ** 2 + (y - place[1]) ** 2 + place[2] ** 2)
    return total


def build(form):
    base = np.random.default_rng(0).random((LIGHTS, 6), dtype=np.float32)

    @jax.jit
    def of_dicts(lights):
        return shade([one["place"] for one in lights], [one["colour"] for one in lights])

    @jax.jit
    def of_array(lights):
        return shade(list(lights[:, :3]), list(lights[:, 3:]))

    def step(i):
        moved = base + np.float32(0.01 * (i % 100))
        if form == "b":
            return of_array(moved)
        return of_dicts([{"place": light[:3], "colour": light[3:]} for light in moved])

    return step
