"""Propagation of light through lenses in JAX. a: in complex128, as 64 bits are enabled, b: in complex64."""

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

BEAMS, SIDE, LENSES = 6, 2048, 2
SAME = 1e-3


def build(form):
    dtype = np.complex128 if form == "a" else np.complex64
    rng = np.random.default_rng(0)
    beams = jnp.asarray(rng.standard_normal((BEAMS, SIDE, SIDE), dtype=np.float32).astype(dtype))
    phases = jnp.asarray(np.exp(1j * rng.random((LENSES, SIDE, SIDE), dtype=np.float32)).astype(dtype))

    @jax.jit
    def through(beams, phases):
        for phase in phases:
            beams = jnp.fft.ifft2(jnp.fft.fft2(beams) * phase)
        return beams

    return lambda i: through(beams, phases)
