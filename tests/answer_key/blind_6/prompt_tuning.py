"""Tuning of a prompt before a frozen network. a: Adam launches a kernel for each operation, b: one kernel (wins nothing)."""

import torch

B, C, LAYERS = 8192, 8192, 4


def build(form):
    torch.manual_seed(0)
    frozen = [torch.randn(C, C, device="cuda", dtype=torch.bfloat16) / C**0.5 for _ in range(LAYERS)]
    prompt = [torch.randn(C, device="cuda", requires_grad=True) for _ in range(3)]
    optimiser = torch.optim.Adam(prompt, 1e-4, **({"foreach": False} if form == "a" else {"fused": True}))
    tokens = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)

    def step(i):
        x = tokens + sum(prompt).bfloat16()
        for weight in frozen:
            x = x @ weight
        loss = x.square().mean()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss

    return step
