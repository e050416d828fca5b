"""GNMT. a: Adam tensor by tensor, b: the fused Adam."""

from networks import GNMT, made, translation, updated

B, T = 64, 32


def build(form):
    return updated(form, made(GNMT), translation(B, T))
