"""Attention over a long context. a: heads are copied before and after it, b: views."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

B, T, C, H = 32, 512, 1024, 16


def build(form):
    qkv, out = nn.Linear(C, 3 * C).cuda().bfloat16(), nn.Linear(C, C).cuda().bfloat16()
    x = torch.randn(B, T, C, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step(i):
        q, k, v = (part.view(B, T, H, C // H).transpose(1, 2) for part in qkv(x).chunk(3, -1))
        if form == "a":
            q, k, v = q.contiguous().clone(), k.contiguous().clone(), v.contiguous().clone()
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return out(y.reshape(B, T, C))

    return step
