"""Clean: each batch comes from pinned memory on a second stream during the products of the batch before. Products are the limit."""

import torch

B, C, LAYERS = 16384, 8192, 3


def build(form):
    weights = [torch.randn(C, C, device="cuda").mul_(C**-0.5).bfloat16() for _ in range(LAYERS)]
    waiting = [torch.randn(B, C, device="cuda", dtype=torch.bfloat16).cpu().pin_memory() for _ in range(2)]
    rooms = [one.to("cuda") for one in waiting]
    beside = torch.cuda.Stream()

    @torch.no_grad()
    def step(i):
        here, other = torch.cuda.current_stream(), (i + 1) % 2
        beside.wait_stream(here)  # the step before has read the other room
        with torch.cuda.stream(beside):
            rooms[other].copy_(waiting[other], non_blocking=True)
        x = rooms[i % 2]
        for weight in weights:
            x = x @ weight
        here.wait_stream(beside)
        return x

    return step
