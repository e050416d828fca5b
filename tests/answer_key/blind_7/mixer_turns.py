"""A mixer of tokens and channels. a: turns its input for each product over tokens, b: multiplies from the other side."""

import torch
from torch import nn

B, T, C, LAYERS = 64, 1024, 512, 6


def build(form):
    tokens = nn.ParameterList(torch.randn(T, T) * T**-0.5 for _ in range(LAYERS)).cuda().bfloat16()
    channels = nn.ParameterList(torch.randn(C, C) * C**-0.5 for _ in range(LAYERS)).cuda().bfloat16()
    start = torch.randn(B, T, C, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step(i):
        x = start
        for over_t, over_c in zip(tokens, channels, strict=True):
            if form == "a":
                turned = x.transpose(1, 2).contiguous()
                x = torch.matmul(turned, over_t).transpose(1, 2).contiguous()
            else:
                x = torch.matmul(over_t.T, x)
            x = torch.matmul(x, over_c)
        return x

    return step
