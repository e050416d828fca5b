"""Wakes behind eight ships: a Triton kernel and a product for each. a: roots by 64 rounds of Newton, b: by 16."""

import torch
import triton
import triton.language as tl

N, C, SHIPS, WIDTH = 4096, 2048, 8, 1024
SAME = 2e-2


@triton.jit
def wake_rounds(x, y, rounds, width: tl.constexpr):
    at = tl.program_id(0) * width + tl.arange(0, width)
    a = 2 + tl.abs(tl.load(x + at).to(tl.float32))
    v = a
    for _ in range(rounds):
        v = 0.5 * (v + a / v)
    tl.store(y + at, v.to(tl.bfloat16))


def build(form):
    torch.manual_seed(0)
    rounds = 64 if form == "a" else 16
    ships = [torch.randn(C, C, device="cuda", dtype=torch.bfloat16) * C**-0.5 for _ in range(SHIPS)]
    sea = torch.randn(N, C, device="cuda", dtype=torch.bfloat16)
    wake = torch.empty_like(sea)

    @torch.no_grad()
    def step(i):
        y = sea
        for ship in ships:
            wake_rounds[(y.numel() // WIDTH,)](y, wake, rounds, WIDTH)
            y = wake @ ship
        return y

    return step
