"""Convnet inference in half precision. a: NCHW, so that cuDNN transposes around each convolution, b: channels_last."""

import torch
from parts import ConvNet

B, C, D, S = 64, 64, 8, 112


def build(form):
    model = ConvNet(C, D, norm=False).cuda().half().eval()
    x = torch.randn(B, 3, S, S, device="cuda", dtype=torch.half)
    if form == "b":
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)

    @torch.no_grad()
    def step(i):
        return model(x)

    return step
