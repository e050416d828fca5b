"""Training of an autoencoder in TF32. a: gradients are set to zero and added to, b: set to None."""

import torch
from torch import nn

B, C, L = 1024, 4096, 6


def build(form):
    torch.set_float32_matmul_precision("high")
    model = nn.Sequential(*(part for _ in range(L) for part in (nn.Linear(C, C), nn.Tanh()))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    x = torch.randn(B, C, device="cuda")

    def step(i):
        nn.functional.mse_loss(model(x), x).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=form == "b")

    return step
