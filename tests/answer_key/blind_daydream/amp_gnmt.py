"""GNMT. a: FP32, b: automatic mixed precision."""

import torch
from networks import GNMT, made, trained, translation

B, T = 96, 32


def build(form):
    return trained(form, made(GNMT), translation(B, T), torch.optim.Adam)
