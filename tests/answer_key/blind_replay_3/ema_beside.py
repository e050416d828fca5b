"""Training of a wide net, while a second stream averages the weights of a small teacher. b: no average (wins nothing)."""

import torch
import triton
import triton.language as tl
from torch import nn

B, C, L, SMALL, TILE = 16384, 4096, 3, 1 << 18, 1024


@triton.jit
def average_kernel(mean, weight, TILE: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(mean + at, tl.load(mean + at) * 0.999 + tl.load(weight + at) * 0.001)


def build(form):
    net = nn.Sequential(*(nn.Sequential(nn.Linear(C, C, bias=False), nn.ReLU()) for _ in range(L))).cuda().bfloat16()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, fused=True)
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)
    teacher = [torch.randn(2, SMALL, device="cuda") for _ in range(12)]
    side = torch.cuda.Stream()

    def step(i):
        if form == "a":
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for mean, weight in teacher:
                    average_kernel[(SMALL // TILE,)](mean, weight, TILE)
        net(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
