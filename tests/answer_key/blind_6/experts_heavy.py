"""Experts of a language model in a Python loop, with many tokens. a: each expert finds its tokens, b: all are sorted once (wins nothing)."""

import torch

EXPERTS, TOKENS, C, WIDE = 8, 65_536, 4096, 14_336


def build(form):
    torch.manual_seed(0)
    up = torch.randn(EXPERTS, C, WIDE, device="cuda", dtype=torch.bfloat16) * 0.02
    down = torch.randn(EXPERTS, WIDE, C, device="cuda", dtype=torch.bfloat16) * 0.02
    x = torch.randn(TOKENS, C, device="cuda", dtype=torch.bfloat16)
    chosen = torch.randint(EXPERTS, (TOKENS,), device="cuda")
    out = torch.empty_like(x)

    @torch.no_grad()
    def step(i):
        if form == "a":
            groups = (torch.where(chosen == expert)[0] for expert in range(EXPERTS))
        else:
            order = chosen.argsort()
            groups = iter(order.split(torch.bincount(chosen, minlength=EXPERTS).tolist()))
        for expert, rows in enumerate(groups):
            out[rows] = (x[rows] @ up[expert]).relu_() @ down[expert]
        return out

    return step
