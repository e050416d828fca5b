"""A mixture of experts. a: for each expert the host asks which tokens are its own, b: slots of a fixed number, one product."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

N, C, EXPERTS, LAYERS, SLOTS = 4096, 768, 16, 2, 1024


class Experts(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form, self.gate = form, nn.Linear(C, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, C, 2 * C) * 0.02)
        self.down = nn.Parameter(torch.randn(EXPERTS, 2 * C, C) * 0.02)

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        return (self.each if self.form == "a" else self.slots)(x, weights, chosen)

    def each(self, x, weights, chosen):
        out = torch.zeros_like(x)
        for expert in range(EXPERTS):
            rows, places = torch.where(chosen == expert)
            y = F.silu(x[rows] @ self.up[expert]) @ self.down[expert]
            out.index_add_(0, rows, y * weights[rows, places, None])
        return out

    def slots(self, x, weights, chosen):
        experts, order = chosen.flatten().sort(stable=True)
        first = torch.searchsorted(experts, torch.arange(EXPERTS, device=x.device))
        place = torch.arange(2 * N, device=x.device) - first[experts]
        slot = experts * SLOTS + place.clamp(max=SLOTS - 1)
        held = x.new_zeros(EXPERTS * SLOTS, C).index_copy_(0, slot, x[order // 2])
        y = torch.bmm(F.silu(torch.bmm(held.view(EXPERTS, SLOTS, C), self.up)), self.down).view(-1, C)
        return torch.zeros_like(x).index_add_(0, order // 2, y[slot] * weights.flatten()[order, None])


def build(form):
    layers = nn.ModuleList(Experts(form) for _ in range(LAYERS)).cuda().bfloat16()
    x = torch.randn(N, C, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step(i):
        y = x
        for layer in layers:
            y = y + layer(F.rms_norm(y, (C,)))
        return y

    return step
