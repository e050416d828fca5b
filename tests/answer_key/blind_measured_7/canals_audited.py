"""Canals through a compiled lock, four times. a: a second compiled function audits each level, which nobody reads, b: no audit."""

import torch
import torch._inductor.config

torch._inductor.config.compile_threads = 1
ROWS, C, LOCKS = 1 << 17, 1024, 4
SAME = 1e-4


def build(form):
    canal = torch.linspace(-1, 1, ROWS * C, device="cuda").view(ROWS, C)

    @torch.compile(dynamic=False)
    def locked(x):
        return torch.sigmoid(x) * x + 0.3

    @torch.compile(dynamic=False)
    def audited(x):
        return (x * x + x).sum(1)

    @torch.no_grad()
    def step(i):
        level = canal
        for _ in range(LOCKS):
            level = locked(level)
            if form == "a":
                step.audit = audited(level)
        return level

    return step
