"""A point operator of torch.cuda.jiterator. a: the gain stands in the source, b: it is an argument."""

import itertools

import torch

N = 1 << 22
gains = itertools.count(1)
GENERAL = "template <typename T> T boosted(T x, T gain) { return x / (T(1) + gain * x * x); }"


def build(form):
    x = torch.randn(N, device="cuda")
    general = torch.cuda.jiterator._create_jit_fn(GENERAL, gain=1.0)

    def step(i):
        gain = 1.0 + 1e-4 * next(gains)
        if form == "b":
            return general(x, gain=gain)
        source = GENERAL.replace(", T gain", "").replace("gain", f"T({gain})")
        return torch.cuda.jiterator._create_jit_fn(source)(x)

    return step
