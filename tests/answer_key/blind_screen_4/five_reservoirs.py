"""Five reservoirs, each advanced in time by a few Triton programs, then one readout. a: on one stream, b: on five."""

import torch
import triton
import triton.language as tl

UNITS, LOOPS, COUNT, TILE = 2048, 3000, 5, 128


@triton.jit
def advance(state, loops, TILE: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    x = tl.load(state + at)
    for _ in range(loops):
        x = 0.95 * x + 0.05 * tl.sin(x * 3.1)
    tl.store(state + at, x)


def build(form):
    states = [torch.randn(UNITS, device="cuda") for _ in range(COUNT)]
    readout = torch.randn(UNITS * COUNT, 64, device="cuda")
    work = torch.cuda.current_stream()
    streams = [torch.cuda.Stream() for _ in range(COUNT)]

    def in_turn():
        for state in states:
            advance[(UNITS // TILE,)](state, LOOPS, TILE)

    def beside():
        for stream in streams:
            stream.wait_stream(work)
        for state, stream in zip(states, streams, strict=True):
            with torch.cuda.stream(stream):
                advance[(UNITS // TILE,)](state, LOOPS, TILE)
        for stream in streams:
            work.wait_stream(stream)

    def step(i):
        in_turn() if form == "a" else beside()
        return torch.cat(states) @ readout

    return step
