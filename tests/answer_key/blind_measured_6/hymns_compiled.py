"""Hymns are normalised by a compiled kernel; a quarter of them goes through a product. a: all normalised, b: that quarter."""

import torch
import torch._inductor.config

torch._inductor.config.compile_threads = 1
N, C, OUT = 1 << 17, 4096, 1024
SAME = 1e-2


def build(form):
    torch.manual_seed(0)
    voices = torch.randn(C, OUT, device="cuda", dtype=torch.bfloat16) * C**-0.5
    hymns = torch.randn(N, C, device="cuda", dtype=torch.bfloat16)
    hymns = hymns if form == "a" else hymns[: N // 4].clone()

    @torch.compile(dynamic=False)
    def normalised(x):
        x = x.float()
        x = x - x.mean(1, keepdim=True)
        return (x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-5)).to(torch.bfloat16)

    @torch.no_grad()
    def step(i):
        return normalised(hymns)[: N // 4] @ voices

    return step
