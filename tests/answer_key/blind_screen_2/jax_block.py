"""Training of a wide JAX model in bfloat16. a: the loop waits after every fourth step, b: never (wins nothing)."""

import jax
import jax.numpy as jnp
import numpy as np

B, C, L = 24576, 4096, 4


@jax.jit
def train(weights, x):
    def loss(weights):
        y = x
        for weight in weights:
            y = jax.nn.relu(y @ weight)
        return jnp.mean(jnp.square(y.astype(jnp.float32)))

    return [weight - 1e-3 * slope for weight, slope in zip(weights, jax.grad(loss)(weights), strict=True)]


def build(form):
    rng = np.random.default_rng(0)
    state = [[jnp.asarray(rng.standard_normal((C, C), dtype=np.float32) * 0.02, jnp.bfloat16) for _ in range(L)]]
    x = jnp.full((B, C), 0.01, jnp.bfloat16)

    def step(i):
        state[0] = train(state[0], x)
        return jax.block_until_ready(state[0]) if form == "a" and i % 4 == 3 else state[0]

    return step
