"""Tesserae are cut by one Triton kernel beside a longer one on another stream, then both are laid. b: a quarter of the cuts (wins nothing)."""

import torch
import triton
import triton.language as tl

PROGRAMS, WIDTH = 56, 256
SAME = 1e-4


@triton.jit
def cut_tesserae(x, y, rounds, width: tl.constexpr):
    at = tl.program_id(0) * width + tl.arange(0, width)
    a = 2 + tl.load(x + at)
    v = a
    for _ in range(rounds):
        v = 0.5 * (v + a / v)
    tl.store(y + at, v)


@triton.jit
def paint_wall(x, y, rounds, width: tl.constexpr):
    at = tl.program_id(0) * width + tl.arange(0, width)
    a = 3 + tl.load(x + at)
    v = a
    for _ in range(rounds):
        v = 0.5 * (v + a / v)
    tl.store(y + at, v)


def build(form):
    rounds = 12032 if form == "a" else 3008
    colours = torch.arange(PROGRAMS * WIDTH, device="cuda").remainder(53).float()
    pieces, wall = torch.zeros_like(colours), torch.zeros_like(colours)
    side = torch.cuda.Stream()
    begun, cut = torch.cuda.Event(), torch.cuda.Event()

    @torch.no_grad()
    def step(i):
        main = torch.cuda.current_stream()
        begun.record(main)
        with torch.cuda.stream(side):
            side.wait_event(begun)
            cut_tesserae[(PROGRAMS,)](colours, pieces, rounds, WIDTH)
            cut.record(side)
        paint_wall[(PROGRAMS,)](colours, wall, 80000, WIDTH)
        main.wait_event(cut)
        return pieces + wall

    return step
