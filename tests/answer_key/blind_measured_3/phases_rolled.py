"""A phased array: samples are rolled to their delays before each of six products. b: the weights hold the delays."""

import torch

N, C, L = 16384, 2048, 6


def build(form):
    layers = [torch.randn(C, C, device="cuda", dtype=torch.bfloat16) * C**-0.5 for _ in range(L)]
    turned = [torch.roll(layer, 5, 0) for layer in layers]
    x = torch.randn(N, C, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step(i):
        y = x
        for layer, other in zip(layers, turned, strict=True):
            y = torch.roll(y, -5, 1) @ layer if form == "a" else y @ other
        return y

    return step
