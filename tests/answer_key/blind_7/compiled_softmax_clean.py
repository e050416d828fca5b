"""Clean: softmax and loss over a large vocabulary, compiled. Memory is the limit."""

import torch
from torch.nn import functional as F  # noqa: N812


def build(form):
    logits = torch.randn(32768, 32000, device="cuda", dtype=torch.bfloat16)
    labels = torch.randint(32000, (32768,), device="cuda")
    made = torch.compile(
        lambda logits, labels: F.cross_entropy(logits.float(), labels, reduction="none"), dynamic=False
    )
    return lambda i: made(logits, labels)
