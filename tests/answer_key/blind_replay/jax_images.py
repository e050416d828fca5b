"""A convolutional scorer in JAX over images from the host. a: uploaded as float32, b: as uint8 and converted there."""

import jax
import jax.numpy as jnp
import numpy as np

B, S, C = 48, 224, 32


@jax.jit
def score(kernels, images):
    x = images.astype(jnp.bfloat16)
    for kernel in kernels:
        x = jax.lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x)
    return x.mean((1, 2)).astype(jnp.float32)


def build(form):
    rng = np.random.default_rng(0)
    widths = [3, C, 2 * C, 4 * C]
    kernels = [jnp.asarray(rng.standard_normal((3, 3, a, b)) * 0.1, jnp.bfloat16) for a, b in zip(widths, widths[1:])]  # noqa: B905, RUF007
    images = rng.integers(0, 256, (4, B, S, S, 3), dtype=np.uint8)
    if form == "a":
        images = images.astype(np.float32)
    return lambda i: score(kernels, jax.device_put(images[i % 4]))
