"""Clean: fused attention over long sequences in bfloat16. Tensor cores are the limit."""

import torch
from torch.nn import functional as F  # noqa: N812


def build(form):
    q, k, v = (torch.randn(8, 16, 8192, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    return lambda i: F.scaled_dot_product_attention(q, k, v)
