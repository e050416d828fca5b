"""Ten layers of products. a: a Triton kernel counts what is not finite after each of them, b: no count."""

import torch
import triton
import triton.language as tl

N, C, L, WIDTH = 16384, 1024, 10, 4096
SAME = 2e-2


@triton.jit
def count_wrong(x, wrong, width: tl.constexpr):
    v = tl.load(x + tl.program_id(0) * width + tl.arange(0, width)).to(tl.float32)
    tl.atomic_add(wrong, tl.sum(((v != v) | (tl.abs(v) > 1e30)).to(tl.int32)))


def build(form):
    torch.manual_seed(0)
    layers = [torch.randn(C, C, device="cuda", dtype=torch.bfloat16) * C**-0.5 for _ in range(L)]
    x = torch.randn(N, C, device="cuda", dtype=torch.bfloat16)
    wrong = torch.zeros(1, device="cuda", dtype=torch.int32)

    @torch.no_grad()
    def step(i):
        y = x
        for layer in layers:
            y = y @ layer
            if form == "a":
                count_wrong[(y.numel() // WIDTH,)](y, wrong, WIDTH)
        return y

    return step
