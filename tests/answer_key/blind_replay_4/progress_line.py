"""Training of wide layers that keeps the GPU busy, while Python formats a line of progress. b: no line (wins nothing)."""

import torch
from torch import nn

B, C, L = 16384, 4096, 2


def build(form):
    net = nn.Sequential(*(nn.Linear(C, C, bias=False) for _ in range(L))).cuda().bfloat16()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, fused=True)
    x = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)

    def step(i):
        with torch.cuda.nvtx.range("train"):
            net(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.cuda.nvtx.range("format line"):
            if form == "a":
                return " | ".join(
                    f"{name} {k * 0.001:8.4f}" for k in range(80) for name in ("loss", "rate", "norm", "grad")
                )
        return None

    return step
