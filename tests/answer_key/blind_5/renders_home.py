"""A neural renderer whose frames leave for the host. a: on the stream that renders, b: on a stream of their own."""

import torch
from torch import nn

RAYS, C, OUT, L = 1 << 20, 128, 48, 8


def build(form):
    net = nn.Sequential(*(nn.Linear(C, C) for _ in range(L)), nn.Linear(C, OUT)).cuda().half()
    rays = torch.randn(RAYS, C, device="cuda", dtype=torch.half)
    frames = [torch.empty(RAYS, OUT, device="cuda", dtype=torch.half) for _ in range(2)]
    home = [torch.empty(RAYS, OUT, dtype=torch.half, pin_memory=True) for _ in range(2)]
    down, gone = torch.cuda.Stream(), [torch.cuda.Event() for _ in range(2)]

    @torch.no_grad()
    def step(i):
        k = i % 2
        if form == "a":
            frames[k].copy_(net(rays))
            home[k].copy_(frames[k], non_blocking=True)
            return
        torch.cuda.current_stream().wait_event(gone[k])
        frames[k].copy_(net(rays))
        down.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(down):
            home[k].copy_(frames[k], non_blocking=True)
            gone[k].record(down)

    return step
