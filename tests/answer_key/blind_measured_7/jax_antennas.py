"""Spectra of antennas in one jitted function of JAX. a: all antennas are transformed, of which half are summed, b: that half."""

import jax
import jax.numpy as jnp

ANTENNAS, SAMPLES, WIND = 16384, 8192, 1 << 27
SAME = 1e-4


def build(form):
    @jax.jit
    def observed(signals, wind):
        spectra = jax.lax.slice_in_dim(jnp.fft.fft(signals), 0, ANTENNAS // 2)
        return jnp.square(jnp.abs(spectra)).sum(0), jnp.sqrt(wind + 1)

    @jax.jit
    def received():
        phase = jnp.arange(SAMPLES, dtype=jnp.float32)[None] * jnp.arange(ANTENNAS, dtype=jnp.float32)[:, None] % 977
        return jax.lax.complex(jnp.sin(phase), jnp.cos(phase))

    signals = received() if form == "a" else received()[: ANTENNAS // 2]
    wind = jnp.ones(WIND, jnp.float32)

    def step(i):
        power, step.wind = observed(signals, wind)
        return power

    return step
