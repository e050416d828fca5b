"""Two encoders of a search engine, one in bfloat16, one in half. a: in turn, b: on two streams (wins nothing)."""

import torch
from torch import nn

B, C, L = 21120, 4096, 4


def build(form):
    towers = [
        nn.Sequential(*(nn.Linear(C, C, bias=False) for _ in range(L))).cuda().to(dtype)
        for dtype in (torch.bfloat16, torch.half)
    ]
    inputs = [torch.randn(B, C, device="cuda", dtype=dtype) for dtype in (torch.bfloat16, torch.half)]
    here = torch.cuda.current_stream()
    streams = [torch.cuda.Stream() for _ in range(2)] if form == "b" else [here] * 2

    @torch.no_grad()
    def step(i):
        for stream, tower, x in zip(streams, towers, inputs, strict=True):
            with torch.cuda.stream(stream):
                tower(x)

    return step
