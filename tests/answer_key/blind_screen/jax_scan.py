"""A jitted transformer in bfloat16 with a scan over its layers: after compilation nothing is worth doing."""

import jax
import jax.numpy as jnp
import numpy as np

B, T, C, L = 32, 512, 1024, 6


@jax.jit
def forward(layers, x):
    def layer(x, weights):
        qkv, up, down = weights
        q, k, v = jnp.split(x @ qkv, 3, -1)
        shape = (B, T, 16, C // 16)
        y = jax.nn.dot_product_attention(q.reshape(shape), k.reshape(shape), v.reshape(shape), implementation="cudnn")
        x = x + y.reshape(B, T, C)
        return x + jax.nn.relu(x @ up) @ down, None

    return jax.lax.scan(layer, x, layers)[0]


def build(form):
    rng = np.random.default_rng(0)
    sizes = [(L, C, 3 * C), (L, C, 4 * C), (L, 4 * C, C)]
    layers = [jnp.asarray(rng.standard_normal(size, dtype=np.float32) * 0.01, jnp.bfloat16) for size in sizes]
    x = jnp.asarray(rng.standard_normal((B, T, C), dtype=np.float32), jnp.bfloat16)
    return lambda i: forward(layers, x)
