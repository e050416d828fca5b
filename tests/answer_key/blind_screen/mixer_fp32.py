"""Training of an MLP mixer. a: float32 products, b: TF32."""

import torch
from torch import nn

B, T, C = 32, 256, 768


class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(C) for _ in range(2))
        self.tokens = nn.Sequential(nn.Linear(T, 4 * T), nn.GELU(), nn.Linear(4 * T, T))
        self.channels = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C))

    def forward(self, x):
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


def build(form):
    model = nn.Sequential(Mix(), Mix()).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(B, T, C, device="cuda")

    def step(i):
        torch.set_float32_matmul_precision("highest" if form == "a" else "high")
        (model(x) - x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step
