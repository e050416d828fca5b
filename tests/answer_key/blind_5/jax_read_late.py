"""Training in JAX that logs the loss of the step before. b: no loss is read (wins nothing)."""

import jax
import jax.numpy as jnp
import numpy as np

B, C = 8192, 4096


@jax.jit
def updated(w, x):
    def loss(w):
        return jnp.square((x @ w) @ w.T - x).astype(jnp.float32).mean()

    value, slope = jax.value_and_grad(loss)(w)
    return w - 1e-6 * slope, value


def build(form):
    rng = np.random.default_rng(0)
    w, x = (jnp.asarray(rng.standard_normal(size, dtype=np.float32), jnp.bfloat16) for size in ((C, C), (B, C)))
    last, log = None, []

    def step(i):
        nonlocal w, last
        w, value = updated(w, x)
        if last is not None and form == "a":
            log.append(float(last))
        last = value
        return w

    return step
